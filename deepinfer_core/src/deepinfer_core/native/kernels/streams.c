/* Hyper-connections: the mixes of a sublayer, and how four streams collapse and are mixed.
 *
 * Shapes: T rows, S = 4 streams, D width, K = 4 * D, 24 mixes: pre, post, then comb by source.
 * A product's sum is kept in DI_LANES lanes, ascending; collapse and expand add stream after stream.
 */
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

/* Softmax of the rows of a 4 x 4 matrix, then columns and rows are normalised in turn. */
DI_INLINE vec16 sinkhorn(vec16 logits, int64_t iterations, float eps) {
  float x[16], shifted[16];
  memcpy(x, &logits, sizeof x);
  for (int row = 0; row < 16; row += 4) {
    float largest = x[row];
    for (int i = 1; i < 4; i++) largest = x[row + i] > largest ? x[row + i] : largest;
    for (int i = 0; i < 4; i++) shifted[row + i] = x[row + i] - largest;
  }
  for (int at = 0; at < 16; at += DI_LANES) di_store_f32(x + at, di_exp(di_load_f32(shifted + at)));
  vec16 comb;
  memcpy(&comb, x, sizeof comb);
  comb = comb / row_sums(comb) + eps;
  comb = comb / (column_sums(comb) + eps);
  for (int64_t i = 1; i < iterations; i++) {
    comb = comb / (row_sums(comb) + eps);
    comb = comb / (column_sums(comb) + eps);
  }
  return comb;
}

/* The products of one row with all mixes, and the sum of its squares behind them. What is left of the
 * width after whole vectors counts as one more vector, filled up with zeros. */
DI_INLINE void products(const void *row, int64_t type, int64_t width, const float *fn, float *out) {
  di_vf sum[MIXES + 1] = {{0}};
  int64_t at = 0;
  for (; at + DI_LANES <= width; at += DI_LANES) {
    di_vf x = di_take(row, type, at);
#pragma GCC unroll 32
    for (int m = 0; m < MIXES; m++)
      sum[m] = di_fma(x, di_load_f32(fn + m * width + at), sum[m]);
    sum[MIXES] = di_fma(x, x, sum[MIXES]);
  }
  if (at < width) {
    di_vf x = di_take_last(row, type, at, width - at);
    for (int m = 0; m < MIXES; m++)
      sum[m] = di_fma(x, di_take_last(fn + m * width, DI_F32, at, width - at), sum[m]);
    sum[MIXES] = di_fma(x, x, sum[MIXES]);
  }
#pragma GCC unroll 32
  for (int m = 0; m <= MIXES; m++) out[m] = di_lane_sum(sum[m]);
}

/* Mixes of rows [rows, width = S * D]. */
DI_EXPORT int di_mhc_mixes(const void *trunk, int64_t type, int64_t rows, int64_t width,
                           const float *fn, const float *base, const float *scale,
                           int64_t iterations, float eps, float norm_eps, float *pre, float *post,
                           float *comb) {
  int64_t row_bytes = width * (type == DI_F32 ? 4 : 2);
  for (int64_t t = 0; t < rows; t++) {
    float z[32] = {0}, gate[16];
    const char *row = (const char *)trunk + t * row_bytes;
    if (type == DI_F32)
      products(row, DI_F32, width, fn, z);
    else
      products(row, DI_BF16, width, fn, z);
    float factor = 1.0f / sqrtf(z[MIXES] / (float)width + norm_eps);
    for (int m = 0; m < MIXES; m++)
      z[m] = z[m] * factor * scale[m < 4 ? 0 : m < 8 ? 1 : 2] + base[m];
    vec16 logits;
    memcpy(&logits, z + 8, sizeof logits);
    logits = sinkhorn(logits, iterations, eps);
    memcpy(comb + t * 16, &logits, sizeof logits);
    for (int at = 0; at < 16; at += DI_LANES)
      di_store_f32(gate + at, di_sigmoid(di_load_f32(z + at)));
    for (int s = 0; s < STREAMS; s++) {
      pre[t * STREAMS + s] = gate[s] + eps;
      post[t * STREAMS + s] = gate[STREAMS + s] * 2;
    }
  }
  return DI_OK;
}

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
