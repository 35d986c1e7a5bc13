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

/* Each lane's sum with the lanes whose numbers differ in the two bits of `first` and `second`. */
DI_INLINE vec16 sum_of_four(vec16 x, mask16 first, mask16 second) {
  x = x + __builtin_shuffle(x, first);
  return x + __builtin_shuffle(x, second);
}

/* Softmax of the rows of a 4 x 4 matrix, then columns and rows are normalised in turn. The lanes of a
 * row differ in bits 0 and 1, those of a column in bits 2 and 3. */
DI_INLINE vec16 sinkhorn(vec16 logits, int64_t iterations, float eps) {
  const mask16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const mask16 by1 = lane ^ 1, by2 = lane ^ 2, by4 = lane ^ 4, by8 = lane ^ 8;
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
  comb = comb / sum_of_four(comb, by1, by2) + eps;
  comb = comb / (sum_of_four(comb, by4, by8) + eps);
  for (int64_t i = 1; i < iterations; i++) {
    comb = comb / (sum_of_four(comb, by1, by2) + eps);
    comb = comb / (sum_of_four(comb, by4, by8) + eps);
  }
  return comb;
}

/* The products of one row with all mixes, and the sum of its squares behind them. */
DI_INLINE void products(const void *row, int64_t type, int64_t width, const float *fn, float *out) {
  di_vf sum[MIXES + 1] = {{0}};
  for (int64_t at = 0; at < width; at += DI_LANES) {
    di_vf x = di_take_some(row, type, at, width);
    for (int m = 0; m < MIXES; m++)
      sum[m] = di_fma(x, di_take_some(fn + m * width, DI_F32, at, width), sum[m]);
    sum[MIXES] = di_fma(x, x, sum[MIXES]);
  }
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
