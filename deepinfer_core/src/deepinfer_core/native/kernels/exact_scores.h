/* How are rows scored whose products with the keys are exact?
 *
 * Keys of four bits are turned a tile of entries at a time, queries and weights once for a run of rows.
 * Where a key is one group, its scale, a power of two, is multiplied last. All of it is left out for
 * processors without the instructions.
 *
 * Shapes: T rows, H heads, S entries.
 */
#ifndef DI_EXACT_SCORES_H
#define DI_EXACT_SCORES_H

#include "exact.h"

#define ENTRIES 256 /* of a tile */
#define ROWS 64     /* of a run */

/* The arguments of di_index_scores. */
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

/* Turned keys [blocks, groups] of a tile; turned queries [ROWS, H, groups] and weights [ROWS, H] of a
 * run, and which rows have them. */
typedef struct {
  di_exact_keys *key;
  di_exact_query *query;
  float *weight;
  int is_exact[ROWS];
} exact_memory;

DI_INLINE const void *query_of(const score_call *call, int64_t row) {
  int64_t size = call->type == DI_F32 ? 4 : 2;
  return (const char *)call->query + row * call->heads * call->width * size;
}

DI_INLINE const void *weight_of(const score_call *call, int64_t row) {
  return (const char *)call->weight + row * call->heads * (call->weight_type == DI_F32 ? 4 : 2);
}

DI_INLINE int has_exact(const score_call *call) {
  return DI_EXACT && call->pages.format == DI_MXFP4 && call->width % DI_GROUP == 0;
}

#if DI_EXACT
/* Turn the query and the weights of row `at` of a run; gives whether products with them are exact. */
static int turn_row(const score_call *call, int64_t row, int64_t at, exact_memory *memory) {
  memory->is_exact[at] = 0;
  if (!has_exact(call)) return 0;
  int64_t groups = call->width / DI_GROUP, size = call->type == DI_F32 ? 4 : 2;
  const char *from = query_of(call, row);
  float *weight = memory->weight + at * call->heads, x[DI_GROUP];
  di_exact_query *query = memory->query + at * call->heads * groups;
  di_widen(weight_of(call, row), call->weight_type, call->heads, weight);
  for (int64_t h = 0; h < call->heads; h++) {
    float magnitude = fabsf(weight[h]);
    if (magnitude != 0 && !(magnitude >= 0x1p-50f && magnitude <= 0x1p50f)) return 0;
  }
  for (int64_t g = 0; g < call->heads * groups; g++) {
    di_widen(from + g * DI_GROUP * size, call->type, DI_GROUP, x);
    if (!di_turn_group(x, query + g)) return 0;
    if (groups == 1) query[g].unit *= weight[g];
  }
  memory->is_exact[at] = 1;
  return 1;
}

/* Group `g` of `count` entries from `first` on: channels and the bytes of scales; entries without a page are
 * left as they are. */
static void gather_group(const score_call *call, const int64_t *table, int64_t first, int64_t count,
                         int64_t g, uint8_t (*data)[DI_GROUP / 2], uint8_t *scale) {
  const di_pages *pages = &call->pages;
  int64_t size = pages->rows_per_page;
  int64_t data_step = di_data_bytes(pages->format, pages->width);
  int64_t scale_step = di_scale_bytes(pages->format, pages->width);
  if (!pages->scales_apart) data_step = scale_step = data_step + scale_step;
  for (int64_t i = 0, end; i < count; i = end) {
    int64_t block = (first + i) / size, row = (first + i) % size;
    int64_t page = block < call->blocks ? table[block] : -1;
    end = size - row < count - i ? i + size - row : count;
    if (page < 0) continue;
    di_place place = di_place_of(pages, page * size + row);
    for (int64_t k = i; k < end; k++) {
      memcpy(data[k], place.data + (k - i) * data_step + g * DI_GROUP / 2, sizeof *data);
      scale[k] = place.scale[(k - i) * scale_step + g];
    }
  }
}

/* Turn entries [first, end) of a sequence. Those without a page are zeros; one whose scale is not a number
 * scores 0, as it does when products are rounded. */
static void turn_entries(const score_call *call, int64_t sequence, int64_t first, int64_t end,
                         exact_memory *memory) {
  int64_t groups = call->width / DI_GROUP;
  di_exact_keys *keys = memory->key;
  for (int64_t from = first; from < end; from += DI_BLOCK) {
    int64_t count = end - from < DI_BLOCK ? end - from : DI_BLOCK;
    for (int64_t g = 0; g < groups; g++, keys++) {
      uint8_t data[DI_BLOCK][DI_GROUP / 2] = {{0}}, scale[DI_BLOCK] = {0};
      gather_group(call, call->table + sequence * call->blocks, from, count, g, data, scale);
      for (int i = 0; i < DI_BLOCK; i += 16) {
        di_turn_keys(data[i], keys->channel[0][i]);
        di_turn_scales(scale + i, groups == 1 ? 0 : 0x7fc00000u, keys->scale + i);
      }
    }
  }
}

/* Scores of a block of keys of `groups` groups. With one group, which the compiler then knows, the scale of
 * a key comes last, and the weight is part of the unit. The maximum of NaN and zero is zero. */
DI_INLINE void score_block(const di_exact_query *query, const float *weight, int64_t heads,
                           const di_exact_keys *keys, int64_t groups, __m512 *total) {
  __m512 zero = _mm512_setzero_ps(), dot[2];
  total[0] = total[1] = zero;
  for (int64_t h = 0; h < heads; h++, query += groups) {
    __m512 sum[2] = {zero, zero};
    for (int64_t g = 0; g < groups; g++) {
      di_exact_dots(query + g, keys + g, dot);
      for (int i = 0; i < 2; i++) {
        if (groups == 1) {
          sum[i] = dot[i];
          continue;
        }
        __m512 scale = _mm512_loadu_ps(keys[g].scale + 16 * i);
        dot[i] = _mm512_mul_ps(dot[i], _mm512_set1_ps(query[g].unit));
        sum[i] = _mm512_fmadd_ps(dot[i], scale, sum[i]);
      }
    }
    __m512 factor = _mm512_set1_ps(groups == 1 ? query->unit : weight[h]);
    for (int i = 0; i < 2; i++)
      total[i] = _mm512_fmadd_ps(_mm512_max_ps(sum[i], zero), factor, total[i]);
  }
  for (int i = 0; i < 2 && groups == 1; i++)
    total[i] = _mm512_mul_ps(total[i], _mm512_loadu_ps(keys->scale + 16 * i));
}

/* Scores of row `at` of a run and the first `keys` keys of the tile. */
static void score_row_exactly(const score_call *call, int64_t at, int64_t keys,
                              const exact_memory *memory, float *score) {
  int64_t groups = call->width / DI_GROUP;
  const di_exact_keys *key = memory->key;
  const di_exact_query *query = memory->query + at * call->heads * groups;
  const float *weight = memory->weight + at * call->heads;
  for (int64_t first = 0; first < keys; first += DI_BLOCK, key += groups) {
    __m512 total[2];
    if (groups == 1)
      score_block(query, weight, call->heads, key, 1, total);
    else
      score_block(query, weight, call->heads, key, groups, total);
    int64_t left = keys - first;
    uint32_t mask = left < DI_BLOCK ? (1u << left) - 1 : 0xffffffffu;
    _mm512_mask_storeu_ps(score + first, (__mmask16)mask, total[0]);
    _mm512_mask_storeu_ps(score + first + 16, (__mmask16)(mask >> 16), total[1]);
  }
}
#else
static int turn_row(const score_call *call, int64_t row, int64_t at, exact_memory *memory) {
  (void)call, (void)row;
  return memory->is_exact[at] = 0;
}

static void turn_entries(const score_call *call, int64_t sequence, int64_t first, int64_t end,
                         exact_memory *memory) {
  (void)call, (void)sequence, (void)first, (void)end, (void)memory;
}

static void score_row_exactly(const score_call *call, int64_t at, int64_t keys,
                              const exact_memory *memory, float *score) {
  (void)call, (void)at, (void)keys, (void)memory, (void)score;
}
#endif

#endif
