/* How are many queries multiplied with keys at once? Queries of eight heads stand side by side.
 *
 * A dot product is the sum of two, over the even and over the odd channels, each ascending, in the two
 * lanes of its head; it depends on nothing but the query and the key.
 */
#ifndef DI_HEADS_H
#define DI_HEADS_H

#include "lanes.h"

#define DI_HEADS 8

/* Keys at a time: their sums should fit into the vector registers. */
#if DI_LANES == 16
#define DI_KEYS 8
#else
#define DI_KEYS 4
#endif

typedef float di_v8 __attribute__((vector_size(32)));
typedef float di_v16 __attribute__((vector_size(64)));
typedef uint64_t di_pairs __attribute__((vector_size(64)));

DI_INLINE di_v16 di_fma16(di_v16 a, di_v16 b, di_v16 acc) {
#if DI_LANES == 16
  return di_fma(a, b, acc);
#else
  float x[16], y[16], z[16];
  memcpy(x, &a, sizeof x), memcpy(y, &b, sizeof y), memcpy(z, &acc, sizeof z);
  for (int i = 0; i < 16; i += DI_LANES)
    di_store_f32(z + i, di_fma(di_load_f32(x + i), di_load_f32(y + i), di_load_f32(z + i)));
  memcpy(&acc, z, sizeof z);
  return acc;
#endif
}

DI_INLINE di_v8 di_load8(const float *from) {
  di_v8 x;
  memcpy(&x, from, sizeof x);
  return x;
}

DI_INLINE void di_store8(float *to, di_v8 x) { memcpy(to, &x, sizeof x); }

DI_INLINE int64_t di_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

/* Turn queries [heads, width] into [blocks of heads, width / 2, 8, 2]; width is even, and heads that do
 * not exist are zeros. */
static inline void di_turn_queries(const void *q, int64_t type, int64_t heads, int64_t width,
                                   float *out) {
  const float *wide = q;
  const uint16_t *half = q;
  for (int64_t h = 0; h < di_up(heads, DI_HEADS); h++) {
    float *to = out + h / DI_HEADS * width * DI_HEADS + h % DI_HEADS * 2;
    for (int64_t d = 0; d < width; d++) {
      float x = 0;
      if (h < heads) x = type == DI_F32 ? wide[h * width + d] : di_from_bf16(half[h * width + d]);
      to[d / 2 * 2 * DI_HEADS + d % 2] = x;
    }
  }
}

/* The sums of neighbouring lanes. */
DI_INLINE di_v8 di_add_pairs(di_v16 x) {
#if DI_LANES == 16
  __m256 low = _mm512_castps512_ps256((__m512)x);
  __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)x, 1));
  /* Each half of the result has two heads of low, then two of high. */
  __m256d mixed = _mm256_castps_pd(_mm256_hadd_ps(low, high));
  return (di_v8)_mm256_permute4x64_pd(mixed, 0xd8);
#else
  float lane[16], sum[DI_HEADS];
  memcpy(lane, &x, sizeof lane);
  for (int h = 0; h < DI_HEADS; h++) sum[h] = lane[2 * h] + lane[2 * h + 1];
  return di_load8(sum);
#endif
}

/* Dot products of `count` keys, a constant, with eight queries. */
DI_INLINE void di_some_dots(const float *query, const float *key, int64_t width, int count,
                            di_v8 *dot) {
  di_v16 sum[DI_KEYS];
  for (int i = 0; i < count; i++) sum[i] = (di_v16){0};
  for (int64_t d = 0; d < width; d += 2) {
    di_v16 q;
    memcpy(&q, query + d * DI_HEADS, sizeof q);
    for (int i = 0; i < count; i++) {
      uint64_t pair;
      memcpy(&pair, key + i * width + d, sizeof pair);
      sum[i] = di_fma16(q, (di_v16)((di_pairs){0} + pair), sum[i]);
    }
  }
  for (int i = 0; i < count; i++) dot[i] = di_add_pairs(sum[i]);
}

#endif
