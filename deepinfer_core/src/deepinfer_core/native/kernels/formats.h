/* How does a row of fp32 numbers look in a cache format, and where in its page does it lie?
 *
 * The rules, bit for bit, are those of deepinfer_core.numeric. All loops work element by element or
 * take a maximum, so the compiler may use any vectors.
 */
#ifndef DI_FORMATS_H
#define DI_FORMATS_H

#include "common.h"

/* Codes of number formats, as in pages.py; plain formats have the codes of their dtypes. */
#define DI_MXFP8 2
#define DI_MXFP4 3
#define DI_FP4_E4M3X16 4

typedef uint8_t di_bytes8 __attribute__((vector_size(8)));
typedef uint8_t di_bytes16 __attribute__((vector_size(16)));
typedef uint16_t di_words8 __attribute__((vector_size(16)));
typedef uint32_t di_words16 __attribute__((vector_size(64)));
typedef uint16_t di_halves16 __attribute__((vector_size(32)));
typedef int32_t di_ints16 __attribute__((vector_size(64)));
typedef float di_floats16 __attribute__((vector_size(64)));

/* Twofold steps, for which processors have instructions. */
DI_INLINE di_words16 di_widen16(di_bytes16 x) {
  return __builtin_convertvector(__builtin_convertvector(x, di_halves16), di_words16);
}

/* Rows of one format in pages of equal size; see CachePages. */
typedef struct {
  char *data;
  int64_t stride, rows_per_page, width, format, scales_apart;
} di_pages;

typedef struct {
  uint8_t *data, *scale;
} di_place;

DI_INLINE int64_t di_data_bytes(int64_t format, int64_t width) {
  if (format == DI_F32) return 4 * width;
  if (format == DI_BF16) return 2 * width;
  return format == DI_MXFP8 ? width : width / 2;
}

DI_INLINE int64_t di_scale_bytes(int64_t format, int64_t width) {
  if (format == DI_F32 || format == DI_BF16) return 0;
  return width / (format == DI_FP4_E4M3X16 ? 16 : 32);
}

/* Where the row of a slot, which is not -1, has its data and its scales. */
DI_INLINE di_place di_place_of(const di_pages *pages, int64_t slot) {
  int64_t data_bytes = di_data_bytes(pages->format, pages->width);
  int64_t scale_bytes = di_scale_bytes(pages->format, pages->width);
  int64_t row = slot % pages->rows_per_page;
  uint8_t *page = (uint8_t *)pages->data + slot / pages->rows_per_page * pages->stride;
  if (pages->scales_apart)
    return (di_place){page + row * data_bytes,
                      page + pages->rows_per_page * data_bytes + row * scale_bytes};
  uint8_t *data = page + row * (data_bytes + scale_bytes);
  return (di_place){data, data + data_bytes};
}

DI_INLINE float di_decode_e4m3(uint32_t byte) {
  uint32_t magnitude = byte & 0x7f;
  /* Exponent 0 has steps of 2^-9; the others only need another bias. */
  float small = (float)(int32_t)magnitude * 0.001953125f;
  float large = di_float((magnitude << 20) + (120u << 23));
  float value = magnitude < 8 ? small : large;
  value = magnitude == 0x7f ? di_float(0x7fc00000u) : value;
  return di_float(di_bits(value) | (byte & 0x80) << 24);
}

/* Sixteen e4m3 numbers times their scale, the same rule. */
DI_INLINE void di_decode_bytes(const uint8_t *data, float scale, float *x) {
#if defined(__AVX512F__)
  __m512i bytes16 = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)data));
  __m512i size = _mm512_and_si512(bytes16, _mm512_set1_epi32(0x7f));
  __m512i wide = _mm512_add_epi32(_mm512_slli_epi32(size, 20), _mm512_set1_epi32(120 << 23));
  __m512 number = _mm512_castsi512_ps(_mm512_mask_mov_epi32(
      wide, _mm512_cmpeq_epi32_mask(size, _mm512_set1_epi32(0x7f)), _mm512_set1_epi32(0x7fc00000)));
  number = _mm512_mask_mul_ps(number, _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(8)),
                              _mm512_cvtepi32_ps(size), _mm512_set1_ps(0.001953125f));
  __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(bytes16, size), 24);
  number = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(number), sign));
  _mm512_storeu_ps(x, _mm512_mul_ps(number, _mm512_set1_ps(scale)));
#else
  di_bytes16 bytes;
  memcpy(&bytes, data, sizeof bytes);
  di_words16 code = di_widen16(bytes), magnitude = code & 0x7f;
  di_floats16 few = __builtin_convertvector((di_ints16)magnitude, di_floats16) * 0.001953125f;
  di_words16 is_small = (di_words16)(magnitude < 8), is_nan = (di_words16)(magnitude == 0x7f);
  di_words16 bits = (magnitude << 20) + (120u << 23);
  bits = (is_small & (di_words16)few) | (~is_small & bits);
  bits |= (is_nan & 0x7fc00000u) | (code & 0x80) << 24;
  di_floats16 value = (di_floats16)bits * scale;
  memcpy(x, &value, sizeof value);
#endif
}

/* Nearest, ties to even, saturating at 448; NaN stays NaN. */
DI_INLINE uint32_t di_encode_e4m3(float x) {
  uint32_t sign = di_bits(x) >> 24 & 0x80;
  uint32_t bits = di_bits(x) & 0x7fffffffu;
  /* Below 2^-6 the step is 2^-9: adding 1.5 * 2^14 leaves no finer bits. */
  uint32_t small = di_bits(di_float(bits) + 24576.0f) - di_bits(24576.0f);
  uint32_t large = ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - (120u << 3);
  uint32_t code = bits < di_bits(0.015625f) ? small : large;
  code = bits > di_bits(448.0f) ? 0x7e : code;
  code = bits > 0x7f800000u ? 0x7f : code;
  return code | sign;
}

/* Nearest, ties to even, saturating at 6; NaN gets the code of 6. */
DI_INLINE uint32_t di_encode_e2m1(float x) {
  float magnitude = di_float(di_bits(x) & 0x7fffffffu);
  /* Written so that a NaN passes every step. A tie goes up where the step is ">=". */
  uint32_t code = !(magnitude <= 0.25f);
  code += !(magnitude < 0.75f);
  code += !(magnitude <= 1.25f);
  code += !(magnitude < 1.75f);
  code += !(magnitude <= 2.5f);
  code += !(magnitude < 3.5f);
  code += !(magnitude <= 5.0f);
  return code | (di_bits(x) >> 28 & 8);
}

DI_INLINE void di_encode_mxfp8(const float *x, uint8_t *data, uint8_t *scale) {
  uint32_t largest = 0;
  for (int i = 0; i < 32; i++) {
    uint32_t bits = di_bits(x[i]) & 0x7fffffffu;
    bits = bits > 0x7f800000u ? 0 : bits; /* A NaN takes no part in the scale. */
    largest = bits > largest ? bits : largest;
  }
  float amax = di_float(largest > 0x7f7fffffu ? 0x7f7fffffu : largest);
  amax = amax < 1e-4f ? 1e-4f : amax;
  uint32_t byte = di_ue8m0_at_least(amax * (float)(1 / 448.0));
  float reciprocal = di_ue8m0_reciprocal(byte);
  for (int i = 0; i < 32; i++) data[i] = (uint8_t)di_encode_e4m3(x[i] * reciprocal);
  *scale = (uint8_t)byte;
}

/* The largest magnitude of a group, at least `least`; NaN if there is one. */
DI_INLINE float di_group_amax(const float *x, int count, float least) {
  uint32_t largest = 0;
  for (int i = 0; i < count; i++) {
    uint32_t bits = di_bits(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  if (largest > 0x7f800000u) return di_float(0x7fc00000u);
  float amax = di_float(largest > 0x7f7fffffu ? 0x7f7fffffu : largest);
  return amax < least ? least : amax;
}

DI_INLINE void di_encode_nibbles(const float *x, int count, float factor, uint8_t *data) {
  uint8_t code[32];
  for (int i = 0; i < count; i++) code[i] = (uint8_t)di_encode_e2m1(x[i] * factor);
  for (int i = 0; i < count / 2; i++) data[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
}

/* Encode a row of fp32 numbers. */
static inline void di_encode_row(int64_t format, const float *x, int64_t width, di_place to) {
  if (format == DI_F32 || format == DI_BF16) {
    di_narrow(x, format, width, to.data);
  } else if (format == DI_MXFP8) {
    for (int64_t at = 0; at < width; at += 32)
      di_encode_mxfp8(x + at, to.data + at, to.scale + at / 32);
  } else if (format == DI_MXFP4) {
    for (int64_t at = 0; at < width; at += 32) {
      float amax = di_group_amax(x + at, 32, 6 * 0x1p-126f);
      uint32_t byte = di_ue8m0_at_least(amax * (float)(1 / 6.0));
      di_encode_nibbles(x + at, 32, di_ue8m0_reciprocal(byte), to.data + at / 2);
      to.scale[at / 32] = (uint8_t)byte;
    }
  } else {
    for (int64_t at = 0; at < width; at += 16) {
      float amax = di_group_amax(x + at, 16, 6 * 0x1p-9f);
      uint32_t byte = di_encode_e4m3(amax * (float)(1 / 6.0));
      di_encode_nibbles(x + at, 16, 1.0f / di_decode_e4m3(byte), to.data + at / 2);
      to.scale[at / 16] = (uint8_t)byte;
    }
  }
}

/* Sixteen e2m1 numbers of eight bytes, the lower half of a byte first, times their scale. Magnitudes 0
 * and 1 are 0 and 0.5; from 2 on, one bit of a mantissa stands below an exponent. */
DI_INLINE void di_decode_nibbles(const uint8_t *data, float scale, float *x) {
#if defined(__AVX512F__)
  const __m512 numbers = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                        -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  /* A byte in the lower half of each pair of lanes, its upper code in the other: four bits count. */
  __m512i low = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)data));
  __m512i code4 = _mm512_or_si512(low, _mm512_slli_epi64(low, 28));
  _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_permutexvar_ps(code4, numbers), _mm512_set1_ps(scale)));
#else
  di_bytes8 bytes;
  memcpy(&bytes, data, sizeof bytes);
  di_words8 pair = __builtin_convertvector(bytes, di_words8);
  pair = (pair & 15) | (pair & 240) << 4;
  di_bytes16 half;
  memcpy(&half, &pair, sizeof half); /* little-endian: the lower code comes first */
  di_words16 code = di_widen16(half), magnitude = code & 7;
  di_words16 is_small = (di_words16)(magnitude < 2);
  di_words16 bits = (is_small & (magnitude * 0x3f000000u)) | (~is_small & ((magnitude + 252) << 22));
  bits |= (code & 8) << 28;
  di_floats16 value = (di_floats16)bits * scale;
  memcpy(x, &value, sizeof value);
#endif
}

/* Decode a row to fp32 numbers. */
static inline void di_decode_row(int64_t format, di_place from, int64_t width, float *x) {
  if (format == DI_F32 || format == DI_BF16) {
    di_widen(from.data, format, width, x);
  } else if (format == DI_MXFP8) {
    for (int64_t at = 0; at < width; at += 32) {
      float scale = di_ue8m0(from.scale[at / 32]);
      di_decode_bytes(from.data + at, scale, x + at);
      di_decode_bytes(from.data + at + 16, scale, x + at + 16);
    }
  } else if (format == DI_MXFP4) {
    for (int64_t at = 0; at < width; at += 16)
      di_decode_nibbles(from.data + at / 2, di_ue8m0(from.scale[at / 32]), x + at);
  } else {
    for (int64_t at = 0; at < width; at += 16)
      di_decode_nibbles(from.data + at / 2, di_decode_e4m3(from.scale[at / 16]), x + at);
  }
}

/* Decode `count` rows of one page, from that of a slot on. */
static inline void di_decode_rows(const di_pages *pages, int64_t slot, int64_t count, float *x) {
  int64_t data_bytes = di_data_bytes(pages->format, pages->width);
  int64_t scale_bytes = di_scale_bytes(pages->format, pages->width);
  int64_t row_bytes = data_bytes + scale_bytes;
  di_place place = di_place_of(pages, slot);
  for (int64_t i = 0; i < count; i++, x += pages->width) {
    di_decode_row(pages->format, place, pages->width, x);
    place.data += pages->scales_apart ? data_bytes : row_bytes;
    place.scale += pages->scales_apart ? scale_bytes : row_bytes;
  }
}

#endif
