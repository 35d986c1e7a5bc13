/* How are many queries multiplied with keys at once? Queries of eight heads stand side by side.
 *
 * A dot product is one sum over the channels, ascending, in the lane of its head; it depends on nothing
 * but the query and the key.
 */
#ifndef DI_HEADS_H
#define DI_HEADS_H

#include "lanes.h"

#define DI_HEADS 8
#define DI_KEYS 8 /* keys at a time */

typedef float di_v8 __attribute__((vector_size(32)));

DI_INLINE di_v8 di_fma8(di_v8 a, di_v8 b, di_v8 acc) {
#if defined(__AVX2__) && defined(__FMA__)
  return (di_v8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)acc);
#else
  return acc + a * b;
#endif
}

DI_INLINE di_v8 di_load8(const float *from) {
  di_v8 x;
  memcpy(&x, from, sizeof x);
  return x;
}

DI_INLINE void di_store8(float *to, di_v8 x) { memcpy(to, &x, sizeof x); }

DI_INLINE int64_t di_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

/* Turn queries [heads, width] into [blocks of heads, width, 8]; heads that do not exist are zeros. */
static inline void di_turn_queries(const void *q, int64_t type, int64_t heads, int64_t width,
                                   float *out) {
  const float *wide = q;
  const uint16_t *half = q;
  for (int64_t h = 0; h < di_up(heads, DI_HEADS); h++) {
    float *to = out + h / DI_HEADS * width * DI_HEADS + h % DI_HEADS;
    for (int64_t d = 0; d < width; d++) {
      float x = 0;
      if (h < heads) x = type == DI_F32 ? wide[h * width + d] : di_from_bf16(half[h * width + d]);
      to[d * DI_HEADS] = x;
    }
  }
}

/* Dot products of `count` keys, a constant, with eight queries. */
DI_INLINE void di_some_dots(const float *query, const float *key, int64_t width, int count,
                            di_v8 *sum) {
  for (int i = 0; i < count; i++) sum[i] = (di_v8){0};
  for (int64_t d = 0; d < width; d++) {
    di_v8 q = di_load8(query + d * DI_HEADS);
    for (int i = 0; i < count; i++)
      sum[i] = di_fma8(q, key[i * width + d] - (di_v8){0}, sum[i]);
  }
}

#endif
