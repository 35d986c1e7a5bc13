/* Scores of compressed entries: sum over heads of weight * relu(query . key).
 *
 * Keys are decoded a tile of entries at a time, once for up to ROWS rows of a sequence. Heads stand in
 * lanes, head h in lane h modulo 8, and blocks of heads are added in order; then the lanes are added,
 * neighbours first. An entry's score depends on its key, the query and the weights alone.
 *
 * Shapes: T rows, H heads, J width, S entries, B blocks.
 */
#include "calls.h"
#include "formats.h"
#include "heads.h"
#include <omp.h>

#define ENTRIES 256
#define ROWS 64

typedef struct {
  const void *query, *weight;
  int64_t type, weight_type, rows, heads, width;
  di_pages pages;
  const int64_t *table;
  int64_t blocks;
  const int64_t *sequence, *visible;
  float *score;
  int64_t entries;
} score_call;

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

static void score_row(const score_call *call, int64_t row, const float *key, int64_t keys,
                      float *query, float *score) {
  float *weight = query + di_up(call->heads, DI_HEADS) * call->width;
  int64_t size = call->type == DI_F32 ? 4 : 2, weight_size = call->weight_type == DI_F32 ? 4 : 2;
  di_turn_queries((const char *)call->query + row * call->heads * call->width * size, call->type,
                  call->heads, call->width, query);
  memset(weight, 0, (size_t)di_up(call->heads, DI_HEADS) * sizeof *weight);
  di_widen((const char *)call->weight + row * call->heads * weight_size, call->weight_type,
           call->heads, weight);
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
static void score_rows(const score_call *call, int64_t first, int64_t end, float *memory) {
  float *key = memory, *query = memory + ENTRIES * call->width;
  int64_t reach = 0;
  for (int64_t t = first; t < end; t++) {
    int64_t visible = call->visible[t] < call->entries ? call->visible[t] : call->entries;
    for (int64_t s = visible; s < call->entries; s++) call->score[t * call->entries + s] = -INFINITY;
    reach = visible > reach ? visible : reach;
  }
  for (int64_t from = 0; from < reach; from += ENTRIES) {
    int64_t to = from + ENTRIES < reach ? from + ENTRIES : reach;
    decode_entries(call, call->sequence[first], from, to, key);
    for (int64_t t = first; t < end; t++) {
      int64_t seen = call->visible[t] < to ? call->visible[t] : to;
      if (seen > from)
        score_row(call, t, key, seen - from, query, call->score + t * call->entries + from);
    }
  }
}

/* Where the rows end that share the sequence of row `first`, ROWS of them at most. */
static int64_t run_end(const score_call *call, int64_t first) {
  int64_t end = first + 1;
  while (end < call->rows && end < first + ROWS && call->sequence[end] == call->sequence[first]) end++;
  return end;
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
  int64_t floats = di_up((ENTRIES + di_up(heads, DI_HEADS)) * width + di_up(heads, DI_HEADS), 16);
  int64_t *start = malloc((size_t)(rows + 1) * sizeof *start), runs = 0;
  float *memory = aligned_alloc(64, (size_t)(threads * floats * 4));
  if (!start || !memory) {
    free(start);
    free(memory);
    return DI_NO_MEMORY;
  }
  for (int64_t t = 0; t < rows; t = run_end(&call, t)) start[runs++] = t;
#pragma omp parallel for schedule(dynamic) num_threads((int)threads) if (threads > 1 && runs > 3)
  for (int64_t r = 0; r < runs; r++)
    score_rows(&call, start[r], run_end(&call, start[r]), memory + omp_get_thread_num() * floats);
  free(start);
  free(memory);
  return DI_OK;
}
DI_CALLED(di_index_scores, P(0), L(1), P(2), L(3), L(4), L(5), L(6), P(7), L(8), L(9), L(10), L(11),
          P(12), L(13), P(14), P(15), P(16), L(17), L(18))
