/* Which types, number formats and vector steps do all kernels share?
 *
 * Bits: bf16 <-> fp32 rounds to nearest even, a NaN becomes 0x7fc0. Nothing here depends on the place
 * of an element.
 */
#ifndef DI_COMMON_H
#define DI_COMMON_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define DI_EXPORT __attribute__((visibility("default")))
#define DI_INLINE static inline __attribute__((always_inline))

/* Return codes; library.py says what they mean. */
#define DI_OK 0
#define DI_NO_MEMORY 1
#define DI_OUT_OF_RANGE 2

/* Codes of dtypes, as in tensors.py. */
#define DI_BF16 0
#define DI_F32 1

/* Rows of memory are read and written as vectors of this many fp32 lanes. */
#if defined(__AVX512F__)
#define DI_LANES 16
#elif defined(__AVX2__)
#define DI_LANES 8
#else
#define DI_LANES 4
#endif

typedef float di_vf __attribute__((vector_size(4 * DI_LANES)));
typedef uint32_t di_vu __attribute__((vector_size(4 * DI_LANES)));
typedef uint16_t di_vh __attribute__((vector_size(2 * DI_LANES)));

/* acc + a * b with one rounding where the machine has the instruction, else with two. */
DI_INLINE di_vf di_fma(di_vf a, di_vf b, di_vf acc) {
#if defined(__AVX512F__)
  return (di_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)acc);
#elif defined(__AVX2__) && defined(__FMA__)
  return (di_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)acc);
#else
  return acc + a * b;
#endif
}

DI_INLINE di_vf di_splat(float x) { return x - (di_vf){0}; }

DI_INLINE di_vf di_load_f32(const float *from) {
  di_vf out;
  memcpy(&out, from, sizeof out);
  return out;
}

DI_INLINE void di_store_f32(float *to, di_vf x) { memcpy(to, &x, sizeof x); }

DI_INLINE di_vf di_load_bf16(const uint16_t *from) {
#if defined(__AVX512F__)
  /* Compilers take several steps for the conversion below. */
  return (di_vf)((di_vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)) << 16);
#else
  di_vh half;
  memcpy(&half, from, sizeof half);
  return (di_vf)(__builtin_convertvector(half, di_vu) << 16);
#endif
}

DI_INLINE uint32_t di_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

DI_INLINE float di_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

DI_INLINE float di_from_bf16(uint16_t x) { return di_float((uint32_t)x << 16); }

DI_INLINE uint16_t di_to_bf16(float x) {
  uint32_t bits = di_bits(x);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (uint16_t)rounded;
}

/* Widen `count` elements of type DI_BF16 or DI_F32. */
DI_INLINE void di_widen(const void *from, int64_t type, int64_t count, float *to) {
  if (type == DI_F32) {
    memcpy(to, from, (size_t)count * sizeof *to);
    return;
  }
  const uint16_t *half = from;
  for (int64_t i = 0; i < count; i++) to[i] = di_from_bf16(half[i]);
}

/* Round `count` fp32 numbers to type DI_BF16, or copy them as DI_F32. */
DI_INLINE void di_narrow(const float *from, int64_t type, int64_t count, void *to) {
  if (type == DI_F32) {
    memcpy(to, from, (size_t)count * sizeof *from);
    return;
  }
  uint16_t *half = to;
  for (int64_t i = 0; i < count; i++) half[i] = di_to_bf16(from[i]);
}

/* 2^(byte - 127), the meaning of a ue8m0 byte; 255 is NaN. */
DI_INLINE float di_ue8m0(uint32_t byte) {
  if (byte == 255) return di_float(0x7fc00000u);
  return di_float(byte == 0 ? 1u << 22 : byte << 23);
}

/* 1 / scale of a ue8m0 byte, exact. */
DI_INLINE float di_ue8m0_reciprocal(uint32_t byte) {
  if (byte == 255) return di_float(0x7fc00000u);
  return di_float(byte == 254 ? 1u << 22 : (254 - byte) << 23);
}

/* The byte of the smallest power of two that is at least x (positive, normal). */
DI_INLINE uint32_t di_ue8m0_at_least(float x) {
  uint32_t bits = di_bits(x);
  uint32_t byte = ((bits >> 23) & 0xff) + ((bits & 0x7fffffu) != 0);
  return byte > 255 ? 255 : byte;
}

/* The bits of the largest of 32 magnitudes; a NaN takes no part, an infinity is the largest number. */
DI_INLINE uint32_t di_largest_of_32(const float *x) {
  uint32_t largest = 0;
#if defined(__AVX512F__)
  __m512i magnitudes = _mm512_setzero_si512(), mask = _mm512_set1_epi32(0x7fffffff);
  for (int i = 0; i < 32; i += 16) {
    __m512i bits = _mm512_and_si512(_mm512_loadu_si512(x + i), mask);
    __mmask16 is_number = _mm512_cmple_epu32_mask(bits, _mm512_set1_epi32(0x7f800000));
    magnitudes = _mm512_mask_max_epu32(magnitudes, is_number, magnitudes, bits);
  }
  largest = _mm512_reduce_max_epu32(magnitudes);
#else
  for (int i = 0; i < 32; i++) {
    uint32_t bits = di_bits(x[i]) & 0x7fffffffu;
    bits = bits > 0x7f800000u ? 0 : bits;
    largest = bits > largest ? bits : largest;
  }
#endif
  return largest > 0x7f7fffffu ? 0x7f7fffffu : largest;
}

/* The e4m3 number nearest to each lane, ties to even, saturating at 448; NaN stays NaN. Adding
 * 1.5 * 2^20 times the power of two of a number (at least 2^-6) leaves three bits behind its first. */
DI_INLINE di_vf di_round_e4m3_lanes(di_vf x) {
  di_vu sign = (di_vu)x & 0x80000000u, bits = (di_vu)x ^ sign;
#if defined(__AVX512F__)
  /* The minimum with a NaN is its second operand. */
  bits = (di_vu)_mm512_min_ps(_mm512_set1_ps(448.0f), (__m512)bits);
  di_vu power = bits & 0x7f800000u;
  power = (di_vu)_mm512_max_epu32((__m512i)power, _mm512_set1_epi32(0x3c800000));
#else
  di_vu is_over = (di_vu)(bits > 0x43e00000u) & (di_vu)(bits <= 0x7f800000u);
  bits = (is_over & 0x43e00000u) | (~is_over & bits);
  di_vu power = bits & 0x7f800000u;
  di_vu is_small = (di_vu)(power < 0x3c800000u);
  power = (is_small & 0x3c800000u) | (~is_small & power);
#endif
  di_vf shift = (di_vf)(power + 0x0a400000u);
  di_vf rounded = ((di_vf)bits + shift) - shift;
  return (di_vf)((di_vu)rounded | sign);
}

/* Store 32 channels as mxfp8 and read them back, in place. Source of the rule: numeric. */
DI_INLINE void di_round_mxfp8(float *x) {
  float amax = di_float(di_largest_of_32(x));
  amax = amax < 1e-4f ? 1e-4f : amax;
  uint32_t byte = di_ue8m0_at_least(amax * (1.0f / 448.0f));
  float reciprocal = di_ue8m0_reciprocal(byte), scale = di_ue8m0(byte);
  for (int i = 0; i < 32; i += DI_LANES)
    di_store_f32(x + i, di_round_e4m3_lanes(di_load_f32(x + i) * reciprocal) * scale);
}

#endif
