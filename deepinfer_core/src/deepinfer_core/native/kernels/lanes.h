/* How are vectors of fp32 lanes loaded from rows of either type, compared and exponentiated?
 *
 * Every operation works lane by lane, and the last few elements of a row are loaded into a vector
 * that is filled up with zeros. So an element's bits depend neither on its place nor on the width.
 */
#ifndef DI_LANES_H
#define DI_LANES_H

#include "common.h"

typedef int32_t di_vi __attribute__((vector_size(4 * DI_LANES)));

/* yes where the mask is all ones, no where it is all zeros. */
DI_INLINE di_vf di_pick(di_vi mask, di_vf yes, di_vf no) {
  return (di_vf)((mask & (di_vi)yes) | (~mask & (di_vi)no));
}

DI_INLINE di_vf di_absolute(di_vf x) { return (di_vf)((di_vi)x & 0x7fffffff); }

/* Elements [at, at + DI_LANES) of a row; `type` should be known to the compiler. */
DI_INLINE di_vf di_take(const void *row, int64_t type, int64_t at) {
  return type == DI_F32 ? di_load_f32((const float *)row + at)
                        : di_load_bf16((const uint16_t *)row + at);
}

/* The last `count` elements from `at` on, then zeros. */
DI_INLINE di_vf di_take_last(const void *row, int64_t type, int64_t at, int64_t count) {
  float part[DI_LANES] = {0};
  di_widen((const char *)row + at * (type == DI_F32 ? 4 : 2), type, count, part);
  return di_load_f32(part);
}

/* Up to DI_LANES of `width` elements from `at` on. */
DI_INLINE di_vf di_take_some(const void *row, int64_t type, int64_t at, int64_t width) {
  return width - at >= DI_LANES ? di_take(row, type, at)
                                : di_take_last(row, type, at, width - at);
}

DI_INLINE void di_put(di_vf x, void *row, int64_t type, int64_t at) {
  if (type == DI_F32) {
    di_store_f32((float *)row + at, x);
    return;
  }
  di_vu bits = (di_vu)x;
  di_vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
#if defined(__AVX512F__)
  __mmask16 is_no_number = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
  __m512i chosen = _mm512_mask_mov_epi32((__m512i)rounded, is_no_number, _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256((__m256i *)((uint16_t *)row + at), _mm512_cvtepi32_epi16(chosen));
#else
  di_vu is_nan = (di_vu)((bits & 0x7fffffffu) > 0x7f800000u);
  di_vh half = __builtin_convertvector((is_nan & 0x7fc0u) | (~is_nan & rounded), di_vh);
  memcpy((uint16_t *)row + at, &half, sizeof half);
#endif
}

/* Up to DI_LANES of `width` elements from `at` on. */
DI_INLINE void di_put_some(di_vf x, void *row, int64_t type, int64_t at, int64_t width) {
  if (width - at >= DI_LANES) {
    di_put(x, row, type, at);
    return;
  }
  float part[DI_LANES];
  di_store_f32(part, x);
  di_narrow(part, type, width - at, (char *)row + at * (type == DI_F32 ? 4 : 2));
}

/* Sum of the lanes: halves are added to each other until one is left. */
DI_INLINE float di_lane_sum(di_vf x) {
#if defined(__AVX512F__)
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)x),
                              _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)x, 1)));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
#else
  float lane[DI_LANES];
  di_store_f32(lane, x);
  for (int half = DI_LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
#endif
}

/* exp(x), within two units in the last place; 0 below -104, infinity above 88.73, NaN for NaN.
 *
 * x = n ln 2 + r, with n the nearest whole number: adding 1.5 * 2^23 leaves no fraction. The power of
 * two is multiplied in two steps, so that results below the normal range are rounded once.
 * Source of the polynomial: Cephes, expf. */
DI_INLINE di_vf di_exp(di_vf x) {
  const float shift = 12582912.0f;
  x = di_pick(x < -104.0f, di_splat(-104.0f), x);
  x = di_pick(x > 89.0f, di_splat(89.0f), x);
  di_vf shifted = x * 1.44269504088896341f + shift;
  di_vf n = shifted - shift;
  di_vf r = di_fma(n, di_splat(-0.693359375f), x);
  r = di_fma(n, di_splat(2.12194440e-4f), r);
  di_vf p = di_splat(1.9875691500e-4f);
  p = di_fma(p, r, di_splat(1.3981999507e-3f));
  p = di_fma(p, r, di_splat(8.3334519073e-3f));
  p = di_fma(p, r, di_splat(4.1665795894e-2f));
  p = di_fma(p, r, di_splat(1.6666665459e-1f));
  p = di_fma(p, r, di_splat(5.0000001201e-1f));
  p = di_fma(p, r * r, r) + 1.0f;
  di_vi whole = (di_vi)shifted - 0x4b400000;
  di_vi half = whole >> 1;
  di_vf first = (di_vf)((half + 127) << 23);
  di_vf second = (di_vf)((whole - half + 127) << 23);
  return p * first * second;
}

/* 1 / (1 + exp(-x)). */
DI_INLINE di_vf di_sigmoid(di_vf x) { return 1.0f / (1.0f + di_exp(-x)); }

#endif
