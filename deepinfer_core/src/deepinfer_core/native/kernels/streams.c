/* Hyper-connections: the mixes of a sublayer, and how four streams collapse and are mixed.
 *
 * Shapes: T rows, S = 4 streams, D width, K = 4 * D, 24 mixes: pre, post, then comb by source.
 * A product's sum is kept in DI_LANES lanes, ascending; collapse and expand add stream after stream.
 */
#include "calls.h"
#include "lanes.h"

#define STREAMS 4
#define MIXES 24

typedef float vec16 __attribute__((vector_size(64)));
typedef int32_t mask16 __attribute__((vector_size(64)));

#if defined(__clang__)
#define SHUFFLE(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define SHUFFLE(x, ...) __builtin_shuffle(x, (mask16){__VA_ARGS__})
#endif

/* In each lane the sum of its row: lanes 0 to 3, 4 to 7 and so on. */
DI_INLINE vec16 row_sums(vec16 x) {
  x = x + SHUFFLE(x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return x + SHUFFLE(x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
}

/* In each lane the sum of its column: lanes that are equal modulo 4. */
DI_INLINE vec16 column_sums(vec16 x) {
  x = x + SHUFFLE(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  return x + SHUFFLE(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
}

/* Softmax of the rows of 4 x 4 matrices, then columns and rows are normalised in turn. Several matrices
 * go side by side, because each step of one waits for the step before. */
DI_INLINE void sinkhorn(vec16 *comb, const int count, int64_t iterations, float eps) {
  for (int c = 0; c < count; c++) {
    float x[16], shifted[16];
    memcpy(x, comb + c, sizeof x);
    for (int row = 0; row < 16; row += 4) {
      float largest = x[row];
      for (int i = 1; i < 4; i++) largest = x[row + i] > largest ? x[row + i] : largest;
      for (int i = 0; i < 4; i++) shifted[row + i] = x[row + i] - largest;
    }
    for (int at = 0; at < 16; at += DI_LANES)
      di_store_f32(x + at, di_exp(di_load_f32(shifted + at)));
    memcpy(comb + c, x, sizeof x);
    comb[c] = comb[c] / row_sums(comb[c]) + eps;
  }
  for (int c = 0; c < count; c++) comb[c] = comb[c] / (column_sums(comb[c]) + eps);
  for (int64_t i = 1; i < iterations; i++) {
    for (int c = 0; c < count; c++) comb[c] = comb[c] / (row_sums(comb[c]) + eps);
    for (int c = 0; c < count; c++) comb[c] = comb[c] / (column_sums(comb[c]) + eps);
  }
}

/* Rows that pass the weights together, and mixes that are summed at once for them: their sums fit the
 * registers. A sum has one order whatever goes beside it. */
#define TOGETHER 4
#define FEW_MIXES 6
#define SUMS 32 /* of one row: the mixes, and the sum of its squares behind them */

/* Products of `count` rows with the mixes from `mix` on. What is left of the width after whole vectors
 * counts as one more vector, filled up with zeros. */
DI_INLINE void products(const char *rows, int64_t row_bytes, const int count, int64_t type,
                        int64_t width, const float *fn, int mix, const int mixes, float *out) {
  di_vf sum[TOGETHER * FEW_MIXES > MIXES ? TOGETHER * FEW_MIXES : MIXES] = {{0}};
  int64_t at = 0;
  for (; at + DI_LANES <= width; at += DI_LANES) {
    di_vf x[TOGETHER];
#pragma GCC unroll 4
    for (int r = 0; r < count; r++) x[r] = di_take(rows + r * row_bytes, type, at);
#pragma GCC unroll 32
    for (int m = 0; m < mixes; m++) {
      di_vf weight = di_load_f32(fn + (mix + m) * width + at);
#pragma GCC unroll 4
      for (int r = 0; r < count; r++) sum[m * count + r] = di_fma(x[r], weight, sum[m * count + r]);
    }
  }
  if (at < width)
    for (int r = 0; r < count; r++) {
      di_vf x = di_take_last(rows + r * row_bytes, type, at, width - at);
      for (int m = 0; m < mixes; m++)
        sum[m * count + r] = di_fma(
            x, di_take_last(fn + (mix + m) * width, DI_F32, at, width - at), sum[m * count + r]);
    }
  for (int r = 0; r < count; r++)
    for (int m = 0; m < mixes; m++) out[r * SUMS + mix + m] = di_lane_sum(sum[m * count + r]);
}

/* Sums of the squares of `count` rows, in the same order. */
DI_INLINE void squares(const char *rows, int64_t row_bytes, const int count, int64_t type,
                       int64_t width, float *out) {
  di_vf sum[TOGETHER] = {{0}};
  for (int64_t at = 0; at < width; at += DI_LANES)
#pragma GCC unroll 4
    for (int r = 0; r < count; r++) {
      di_vf x = di_take_some(rows + r * row_bytes, type, at, width);
      sum[r] = di_fma(x, x, sum[r]);
    }
  for (int r = 0; r < count; r++) out[r * SUMS + MIXES] = di_lane_sum(sum[r]);
}

typedef struct {
  int64_t width, iterations;
  const float *fn, *base, *scale;
  float eps, norm_eps;
} mix_t;

/* Mixes of `count` rows, which is 1 or TOGETHER. */
DI_INLINE void mixes_of(const char *rows, const int count, int64_t type, const mix_t *by, float *pre,
                        float *post, float *comb) {
  float z[TOGETHER * SUMS] = {0}, gate[16];
  vec16 logits[TOGETHER];
  int64_t row_bytes = by->width * (type == DI_F32 ? 4 : 2);
  squares(rows, row_bytes, count, type, by->width, z);
  if (count == 1)
    products(rows, row_bytes, 1, type, by->width, by->fn, 0, MIXES, z);
  else
    for (int mix = 0; mix < MIXES; mix += FEW_MIXES)
      products(rows, row_bytes, TOGETHER, type, by->width, by->fn, mix, FEW_MIXES, z);
  for (int r = 0; r < count; r++) {
    float *own = z + r * SUMS;
    float factor = 1.0f / sqrtf(own[MIXES] / (float)by->width + by->norm_eps);
    for (int m = 0; m < MIXES; m++)
      own[m] = own[m] * factor * by->scale[m < 4 ? 0 : m < 8 ? 1 : 2] + by->base[m];
    memcpy(logits + r, own + 8, sizeof *logits);
    for (int at = 0; at < 16; at += DI_LANES)
      di_store_f32(gate + at, di_sigmoid(di_load_f32(own + at)));
    for (int s = 0; s < STREAMS; s++) {
      pre[r * STREAMS + s] = gate[s] + by->eps;
      post[r * STREAMS + s] = gate[STREAMS + s] * 2;
    }
  }
  sinkhorn(logits, count, by->iterations, by->eps);
  memcpy(comb, logits, (size_t)count * sizeof *logits);
}

DI_INLINE void all_mixes(const char *trunk, int64_t type, int64_t rows, const mix_t *by, float *pre,
                         float *post, float *comb) {
  int64_t row_bytes = by->width * (type == DI_F32 ? 4 : 2);
  for (int64_t t = 0; t < rows;) {
    const char *row = trunk + t * row_bytes;
    float *to_pre = pre + t * STREAMS, *to_post = post + t * STREAMS, *to_comb = comb + t * 16;
    if (rows - t >= TOGETHER) {
      mixes_of(row, TOGETHER, type, by, to_pre, to_post, to_comb);
      t += TOGETHER;
    } else {
      mixes_of(row, 1, type, by, to_pre, to_post, to_comb);
      t++;
    }
  }
}

/* Mixes of rows [rows, width = S * D]. */
DI_EXPORT int di_mhc_mixes(const void *trunk, int64_t type, int64_t rows, int64_t width,
                           const float *fn, const float *base, const float *scale,
                           int64_t iterations, float eps, float norm_eps, float *pre, float *post,
                           float *comb) {
  mix_t by = {width, iterations, fn, base, scale, eps, norm_eps};
  if (type == DI_F32)
    all_mixes(trunk, DI_F32, rows, &by, pre, post, comb);
  else
    all_mixes(trunk, DI_BF16, rows, &by, pre, post, comb);
  return DI_OK;
}
DI_CALLED(di_mhc_mixes, P(0), L(1), L(2), L(3), P(4), P(5), P(6), L(7), F(8), F(9), P(10), P(11),
          P(12))

DI_INLINE void collapse(const void *trunk, int64_t type, int64_t rows, int64_t width,
                        const float *pre, void *out) {
  int64_t size = type == DI_F32 ? 4 : 2;
  for (int64_t t = 0; t < rows; t++) {
    const char *row = (const char *)trunk + t * STREAMS * width * size;
    for (int64_t at = 0; at < width; at += DI_LANES) {
      di_vf sum = pre[t * STREAMS] * di_take_some(row, type, at, width);
      for (int s = 1; s < STREAMS; s++)
        sum += pre[t * STREAMS + s] * di_take_some(row + s * width * size, type, at, width);
      di_put_some(sum, (char *)out + t * width * size, type, at, width);
    }
  }
}

/* Sum over streams of pre * trunk. */
DI_EXPORT int di_mhc_collapse(const void *trunk, int64_t type, int64_t rows, int64_t width,
                              const float *pre, void *out) {
  if (type == DI_F32)
    collapse(trunk, DI_F32, rows, width, pre, out);
  else
    collapse(trunk, DI_BF16, rows, width, pre, out);
  return DI_OK;
}
DI_CALLED(di_mhc_collapse, P(0), L(1), L(2), L(3), P(4), P(5))

DI_INLINE void expand(const void *trunk, int64_t type, int64_t rows, int64_t width, const void *y,
                      const float *post, const float *comb, void *out) {
  int64_t size = type == DI_F32 ? 4 : 2;
  for (int64_t t = 0; t < rows; t++) {
    const char *row = (const char *)trunk + t * STREAMS * width * size;
    const char *added = (const char *)y + t * width * size;
    char *to = (char *)out + t * STREAMS * width * size;
    const float *mix = comb + t * STREAMS * STREAMS;
    for (int64_t at = 0; at < width; at += DI_LANES) {
      di_vf h[STREAMS], own = di_take_some(added, type, at, width);
      for (int m = 0; m < STREAMS; m++) h[m] = di_take_some(row + m * width * size, type, at, width);
      for (int n = 0; n < STREAMS; n++) {
        di_vf sum = post[t * STREAMS + n] * own;
        for (int m = 0; m < STREAMS; m++) sum += mix[m * STREAMS + n] * h[m];
        di_put_some(sum, to + n * width * size, type, at, width);
      }
    }
  }
}

/* out[n] = post[n] * y + sum over m of comb[m][n] * trunk[m]; out may be trunk. */
DI_EXPORT int di_mhc_expand(const void *trunk, int64_t type, int64_t rows, int64_t width,
                            const void *y, const float *post, const float *comb, void *out) {
  if (type == DI_F32)
    expand(trunk, DI_F32, rows, width, y, post, comb, out);
  else
    expand(trunk, DI_BF16, rows, width, y, post, comb, out);
  return DI_OK;
}
DI_CALLED(di_mhc_expand, P(0), L(1), L(2), L(3), P(4), P(5), P(6), P(7))
