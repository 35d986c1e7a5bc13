/* Attention of each row over its listed keys, straight from the cache pages.
 *
 * A row's present keys are decoded in list order, source after source, and absent ones are left out.
 * Eight heads stand side by side in vectors. Dot products are summed as heads.h says, each output is
 * one sum over keys, ascending; the sum of weights is kept in four parts, key i in part i modulo
 * 4. So a row's bits depend on its query and its present keys in order, and on nothing else.
 *
 * Shapes: T rows, N heads, D width, L present keys.
 */
#include "calls.h"
#include "formats.h"
#include "heads.h"
#include <omp.h>

/* A key source as the caller lists it: pages, then the rows' lists. */
typedef struct {
  di_pages pages;
  const int64_t *slot;
  int64_t length, slot_stride;
} key_source;

typedef struct {
  const void *q;
  int64_t type, heads, width, sources;
  const key_source *source;
  const float *sink;
  float scale;
  void *out;
  float *lse;
} attention_call;

/* Memory of one thread. */
typedef struct {
  float *query, *key, *weight, *out;
} scratch;

/* Decode the present keys of one source; `format` is a constant. Neighbours in a list are mostly
 * neighbours in a page, so a page is looked for only where the one before does not do. */
DI_INLINE int64_t list_some(const key_source *source, const int64_t *slot, int64_t format,
                            int64_t width, float *key) {
  di_pages pages = source->pages;
  pages.width = width, pages.format = format;
  int64_t data_bytes = di_data_bytes(format, width), scale_bytes = di_scale_bytes(format, width);
  int64_t row_bytes = pages.scales_apart ? data_bytes : data_bytes + scale_bytes;
  int64_t scale_step = pages.scales_apart ? scale_bytes : row_bytes;
  int64_t count = 0, first = INT64_MAX;
  di_place page = {0};
  for (int64_t i = 0; i < source->length; i++) {
    if (slot[i] < 0) continue;
    if (slot[i] < first || slot[i] - first >= pages.rows_per_page) {
      first = slot[i] - slot[i] % pages.rows_per_page;
      page = di_place_of(&pages, first);
    }
    int64_t row = slot[i] - first;
    di_place place = {page.data + row * row_bytes, page.scale + row * scale_step};
    di_decode_row(format, place, width, key + count++ * width);
  }
  return count;
}

static int64_t list_keys(const attention_call *call, int64_t row, float *key) {
  int64_t count = 0, width = call->width;
  for (int64_t s = 0; s < call->sources; s++) {
    const key_source *source = call->source + s;
    const int64_t *slot = source->slot + row * source->slot_stride;
    float *to = key + count * width;
    switch (source->pages.format) {
      case DI_MXFP8: count += list_some(source, slot, DI_MXFP8, width, to); break;
      case DI_MXFP4: count += list_some(source, slot, DI_MXFP4, width, to); break;
      case DI_FP4_E4M3X16: count += list_some(source, slot, DI_FP4_E4M3X16, width, to); break;
      case DI_BF16: count += list_some(source, slot, DI_BF16, width, to); break;
      default: count += list_some(source, slot, DI_F32, width, to);
    }
  }
  return count;
}

/* Scaled scores [keys, 8] of eight heads. */
static void score_keys(const float *query, const float *key, int64_t keys, int64_t width,
                       float scale, float *score) {
  di_v8 sum[DI_KEYS];
  int64_t i = 0;
  for (; i + DI_KEYS <= keys; i += DI_KEYS) {
    di_some_dots(query, key + i * width, width, DI_KEYS, sum);
    for (int j = 0; j < DI_KEYS; j++) di_store8(score + (i + j) * DI_HEADS, sum[j] * scale);
  }
  for (; i < keys; i++) {
    di_some_dots(query, key + i * width, width, 1, sum);
    di_store8(score + i * DI_HEADS, sum[0] * scale);
  }
}

DI_INLINE di_v8 larger(di_v8 x, di_v8 most) {
  __typeof__(x > most) mask = x > most;
  return (di_v8)((mask & (__typeof__(mask))x) | (~mask & (__typeof__(mask))most));
}

/* The largest score of each head. */
static di_v8 largest_of(const float *score, int64_t keys) {
  di_v8 first = di_load8(score), part[4] = {first, first, first, first};
  int64_t i = 0;
  for (; i + 4 <= keys; i += 4)
    for (int j = 0; j < 4; j++) part[j] = larger(di_load8(score + (i + j) * DI_HEADS), part[j]);
  for (; i < keys; i++) part[0] = larger(di_load8(score + i * DI_HEADS), part[0]);
  return larger(larger(part[0], part[1]), larger(part[2], part[3]));
}

/* The sum of each head's weights, key i in part i modulo 4. */
static di_v8 sum_of(const float *weight, int64_t keys) {
  di_v8 part[4] = {{0}};
  int64_t i = 0;
  for (; i + 4 <= keys; i += 4)
    for (int j = 0; j < 4; j++) part[j] += di_load8(weight + (i + j) * DI_HEADS);
  for (int j = 0; i + j < keys; j++) part[j] += di_load8(weight + (i + j) * DI_HEADS);
  return (part[0] + part[1]) + (part[2] + part[3]);
}

/* Scores become exponentials relative to the largest; gives that and the sum of them, a head each. */
static void weigh(float *score, int64_t keys, float *largest, float *sum) {
  di_v8 most = largest_of(score, keys);
  for (int64_t i = 0; i < keys; i++)
    di_store8(score + i * DI_HEADS, di_load8(score + i * DI_HEADS) - most);
  for (int64_t at = keys * DI_HEADS; at % DI_LANES; at += DI_HEADS) di_store8(score + at, (di_v8){0});
  for (int64_t at = 0; at < keys * DI_HEADS; at += DI_LANES)
    di_store_f32(score + at, di_exp(di_load_f32(score + at)));
  di_store8(sum, sum_of(score, keys));
  di_store8(largest, most);
}

/* Sums over keys of weight * key for four heads and `chunks` vectors of channels, a constant. */
DI_INLINE void blend_some(const float *weight, const float *key, int64_t keys, int64_t width,
                          int chunks, float *out) {
  di_vf sum[4][4] = {{{0}}};
  for (int64_t i = 0; i < keys; i++) {
    for (int c = 0; c < chunks; c++) {
      di_vf x = di_load_f32(key + i * width + c * DI_LANES);
      for (int h = 0; h < 4; h++)
        sum[h][c] = di_fma(x, di_splat(weight[i * DI_HEADS + h]), sum[h][c]);
    }
  }
  for (int h = 0; h < 4; h++)
    for (int c = 0; c < chunks; c++) di_store_f32(out + h * width + c * DI_LANES, sum[h][c]);
}

/* The same for all channels. What is left of them after whole vectors is summed one by one. */
static void blend_keys(const float *weight, const float *key, int64_t keys, int64_t width,
                       float *out) {
  int64_t at = 0;
  for (; at + 4 * DI_LANES <= width; at += 4 * DI_LANES)
    blend_some(weight, key + at, keys, width, 4, out + at);
  for (; at + DI_LANES <= width; at += DI_LANES)
    blend_some(weight, key + at, keys, width, 1, out + at);
  for (; at < width; at++) {
    for (int h = 0; h < 4; h++) {
      di_vf sum = {0};
      for (int64_t i = 0; i < keys; i++)
        sum = di_fma(di_splat(key[i * width + at]), di_splat(weight[i * DI_HEADS + h]), sum);
      out[h * width + at] = sum[0];
    }
  }
}

/* Divide, round and store the outputs of up to eight heads. */
static void finish(const attention_call *call, int64_t row, int64_t first, const float *largest,
                   const float *sum, float *out) {
  int64_t width = call->width, size = call->type == DI_F32 ? 4 : 2;
  for (int64_t h = first; h < call->heads && h < first + DI_HEADS; h++) {
    float *x = out + (h - first) * width, divisor = sum[h - first];
    divisor += expf(call->sink[h] - largest[h - first]);
    for (int64_t d = 0; d < width; d++) x[d] = x[d] / divisor;
    int64_t place = row * call->heads + h;
    di_narrow(x, call->type, width, (char *)call->out + place * width * size);
    call->lse[place] = largest[h - first] + logf(sum[h - first]);
  }
}

static void attend_row(const attention_call *call, int64_t row, const scratch *work) {
  int64_t width = call->width, heads = call->heads, size = call->type == DI_F32 ? 4 : 2;
  int64_t keys = list_keys(call, row, work->key);
  if (keys == 0) {
    memset((char *)call->out + row * heads * width * size, 0, (size_t)(heads * width * size));
    for (int64_t h = 0; h < heads; h++) call->lse[row * heads + h] = INFINITY;
    return;
  }
  di_turn_queries((const char *)call->q + row * heads * width * size, call->type, heads, width,
                  work->query);
  for (int64_t first = 0; first < heads; first += DI_HEADS) {
    float largest[DI_HEADS], sum[DI_HEADS];
    score_keys(work->query + first * width, work->key, keys, width, call->scale, work->weight);
    weigh(work->weight, keys, largest, sum);
    blend_keys(work->weight, work->key, keys, width, work->out);
    if (first + 4 < heads) blend_keys(work->weight + 4, work->key, keys, width, work->out + 4 * width);
    finish(call, row, first, largest, sum, work->out);
  }
}

/* Rows [rows, heads, width] of queries and outputs of one type; `source` holds `sources` structures of
 * nine words each. */
DI_EXPORT int di_attend(const void *q, int64_t type, int64_t rows, int64_t heads, int64_t width,
                        const void *source, int64_t sources, const float *sink, float scale,
                        void *out, float *lse, int64_t threads) {
  const attention_call call = {q, type, heads, width, sources, source, sink, scale, out, lse};
  int64_t most = 0, blocks = di_up(heads, DI_HEADS);
  for (int64_t s = 0; s < sources; s++) most += call.source[s].length;
  int64_t query = di_up(blocks * width, 16), key = di_up(most * width, 16);
  int64_t weight = di_up(most * DI_HEADS + 16, 16), floats = query + key + weight + 8 * width + 16;
  threads = threads < rows ? threads : rows > 0 ? rows : 1;
  float *memory = aligned_alloc(64, (size_t)di_up(threads * di_up(floats, 16) * 4, 64));
  if (!memory) return DI_NO_MEMORY;
#pragma omp parallel for num_threads((int)threads) if (threads > 1 && rows >= 8)
  for (int64_t t = 0; t < rows; t++) {
    float *mine = memory + omp_get_thread_num() * di_up(floats, 16);
    const scratch work = {mine, mine + query, mine + query + key, mine + query + key + weight};
    attend_row(&call, t, &work);
  }
  free(memory);
  return DI_OK;
}
DI_CALLED(di_attend, P(0), L(1), L(2), L(3), L(4), P(5), L(6), P(7), F(8), P(9), P(10), L(11))
