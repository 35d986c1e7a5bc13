/* Scores of compressed entries: sum over heads of weight * relu(query . key).
 *
 * Keys are read a tile of entries at a time, once for up to ROWS rows of a sequence. An entry's score
 * depends on its key, the query and the weights alone; which of two ways a row is scored, on the
 * query, the weights and the keys' format.
 *
 * Exact: the dot products of groups are whole numbers, groups are added in order, and so are heads.
 * Rounded, for other formats and queries: heads stand in lanes, head h in lane h
 * modulo 8, and blocks of heads are added in order; then the lanes are added, neighbours first.
 *
 * Shapes: T rows, H heads, J width, S entries, B blocks.
 */
#include "calls.h"
#include "exact_scores.h"
#include "heads.h"
#include <omp.h>

/* What a thread works in: decoded keys, one turned query and its weights; and for exact products. */
typedef struct {
  float *key, *query, *weight;
  exact_memory exact;
} score_memory;

/* Add the lanes of `count` vectors, a constant, neighbours first. */
DI_INLINE void head_sums(const di_v8 *x, int count, float *sum) {
#if DI_LANES == 16
  if (count == 8) {
    __m256 y[4];
    for (int i = 0; i < 4; i++) y[i] = _mm256_hadd_ps((__m256)x[2 * i], (__m256)x[2 * i + 1]);
    __m256 a = _mm256_hadd_ps(y[0], y[1]), b = _mm256_hadd_ps(y[2], y[3]);
    __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    _mm256_storeu_ps(sum, _mm256_add_ps(low, high));
    return;
  }
#endif
  for (int i = 0; i < count; i++) {
    float lane[DI_HEADS];
    di_store8(lane, x[i]);
    sum[i] = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
}

/* Scores of `count` keys, a constant; `query` and `weight` are turned to blocks of heads. */
DI_INLINE void score_some(const score_call *call, const float *query, const float *weight,
                          const float *key, int count, float *score) {
  di_v8 total[DI_KEYS], dot[DI_KEYS];
  for (int i = 0; i < count; i++) total[i] = (di_v8){0};
  for (int64_t first = 0; first < call->heads; first += DI_HEADS) {
    di_some_dots(query + first * call->width, key, call->width, count, dot);
    for (int i = 0; i < count; i++) {
      di_v8 above = (di_v8)((dot[i] > 0) & (__typeof__(dot[i] > 0))dot[i]);
      total[i] += di_load8(weight + first) * above;
    }
  }
  head_sums(total, count, score);
}

static void score_row(const score_call *call, int64_t row, int64_t keys, score_memory *memory,
                      float *score) {
  float *key = memory->key, *query = memory->query, *weight = memory->weight;
  di_turn_queries(query_of(call, row), call->type, call->heads, call->width, query);
  memset(weight, 0, (size_t)di_up(call->heads, DI_HEADS) * sizeof *weight);
  di_widen(weight_of(call, row), call->weight_type, call->heads, weight);
  int64_t i = 0;
  for (; i + DI_KEYS <= keys; i += DI_KEYS)
    score_some(call, query, weight, key + i * call->width, DI_KEYS, score + i);
  for (; i < keys; i++) score_some(call, query, weight, key + i * call->width, 1, score + i);
}

/* Decode entries [first, end) of a sequence; those without a page are zeros. */
static void decode_entries(const score_call *call, int64_t sequence, int64_t first, int64_t end,
                           float *key) {
  const di_pages *pages = &call->pages;
  int64_t width = call->width, size = pages->rows_per_page;
  for (int64_t entry = first; entry < end;) {
    int64_t block = entry / size, row = entry % size, count = size - row;
    int64_t page = block < call->blocks ? call->table[sequence * call->blocks + block] : -1;
    count = count < end - entry ? count : end - entry;
    if (page < 0)
      memset(key, 0, (size_t)(count * width) * sizeof *key);
    else
      di_decode_rows(pages, page * size + row, count, key);
    key += count * width;
    entry += count;
  }
}

/* Rows [first, end) of one sequence. */
static void score_rows(const score_call *call, int64_t first, int64_t end, score_memory *memory) {
  int64_t reach = 0, exact = 0;
  for (int64_t t = first; t < end; t++) {
    int64_t visible = call->visible[t] < call->entries ? call->visible[t] : call->entries;
    for (int64_t s = visible; s < call->entries; s++) call->score[t * call->entries + s] = -INFINITY;
    reach = visible > reach ? visible : reach;
    exact += turn_row(call, t, t - first, &memory->exact);
  }
  for (int64_t from = 0; from < reach; from += ENTRIES) {
    int64_t to = from + ENTRIES < reach ? from + ENTRIES : reach;
    if (exact) turn_entries(call, call->sequence[first], from, to, &memory->exact);
    if (exact < end - first) decode_entries(call, call->sequence[first], from, to, memory->key);
    for (int64_t t = first; t < end; t++) {
      int64_t seen = call->visible[t] < to ? call->visible[t] : to;
      float *score = call->score + t * call->entries + from;
      if (seen <= from) continue;
      if (memory->exact.is_exact[t - first])
        score_row_exactly(call, t - first, seen - from, &memory->exact, score);
      else
        score_row(call, t, seen - from, memory, score);
    }
  }
}

/* Where the rows end that share the sequence of row `first`, ROWS of them at most. */
static int64_t run_end(const score_call *call, int64_t first) {
  int64_t end = first + 1;
  while (end < call->rows && end < first + ROWS && call->sequence[end] == call->sequence[first]) end++;
  return end;
}

/* Divide a thread's room; gives how many bytes it has. */
static int64_t lay_out(const score_call *call, char *room, score_memory *memory) {
  int64_t heads = di_up(call->heads, DI_HEADS), groups = has_exact(call) ? call->width / DI_GROUP : 0;
  const int64_t bytes[6] = {4 * ENTRIES * call->width,
                            4 * heads * call->width,
                            4 * heads,
                            ENTRIES / DI_BLOCK * groups * (int64_t)sizeof(di_exact_keys),
                            ROWS * call->heads * groups * (int64_t)sizeof(di_exact_query),
                            groups ? 4 * ROWS * call->heads : 0};
  int64_t at[7] = {0};
  for (int i = 0; i < 6; i++) at[i + 1] = at[i] + di_up(bytes[i], 64);
  if (memory) {
    memory->key = (float *)(room + at[0]);
    memory->query = (float *)(room + at[1]);
    memory->weight = (float *)(room + at[2]);
    memory->exact.key = (di_exact_keys *)(room + at[3]);
    memory->exact.query = (di_exact_query *)(room + at[4]);
    memory->exact.weight = (float *)(room + at[5]);
  }
  return at[6];
}

/* Scores [rows, entries]; -inf where not visible. */
DI_EXPORT int di_index_scores(const void *query, int64_t type, const void *weight,
                              int64_t weight_type, int64_t rows, int64_t heads, int64_t width,
                              char *data, int64_t stride, int64_t rows_per_page, int64_t format,
                              int64_t scales_apart, const int64_t *table, int64_t blocks,
                              const int64_t *sequence, const int64_t *visible, float *score,
                              int64_t entries, int64_t threads) {
  const score_call call = {query, weight, type, weight_type, rows, heads, width,
                           {data, stride, rows_per_page, width, format, scales_apart},
                           table, blocks, sequence, visible, score, entries};
  int64_t bytes = lay_out(&call, NULL, NULL);
  int64_t *start = malloc((size_t)(rows + 1) * sizeof *start), runs = 0;
  char *room = aligned_alloc(64, (size_t)(threads * bytes));
  if (!start || !room) {
    free(start);
    free(room);
    return DI_NO_MEMORY;
  }
  for (int64_t t = 0; t < rows; t = run_end(&call, t)) start[runs++] = t;
#pragma omp parallel for schedule(dynamic) num_threads((int)threads) if (threads > 1 && runs > 3)
  for (int64_t r = 0; r < runs; r++) {
    score_memory memory;
    lay_out(&call, room + omp_get_thread_num() * bytes, &memory);
    score_rows(&call, start[r], run_end(&call, start[r]), &memory);
  }
  free(start);
  free(room);
  return DI_OK;
}
DI_CALLED(di_index_scores, P(0), L(1), P(2), L(3), L(4), L(5), L(6), P(7), L(8), L(9), L(10), L(11),
          P(12), L(13), P(14), P(15), P(16), L(17), L(18))
