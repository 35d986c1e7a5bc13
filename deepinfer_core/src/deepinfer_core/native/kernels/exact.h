/* How are keys of four bits multiplied with queries without rounding?
 *
 * Twice an e2m1 number is a whole number up to 12. Where the 32 channels of a group of the query are
 * whole numbers of eight bits times a power of two, which they are once rounded to e2m1, their
 * products with a group of a key add up to a whole number below 2^16, in any order. Processors with
 * instructions for it do so four channels at a time, for 16 keys in 16 lanes.
 *
 * A group has eight steps of four channels: of every eight channels the even ones, then the odd ones,
 * as they lie in the lower and in the upper halves of bytes. Groups of 32 channels, heads and blocks
 * of DI_BLOCK keys are worked on one at a time.
 */
#ifndef DI_EXACT_H
#define DI_EXACT_H

#include "formats.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define DI_EXACT 1
#else
#define DI_EXACT 0
#endif

#define DI_BLOCK 32 /* keys */
#define DI_GROUP 32 /* channels */
#define DI_ZERO 12  /* the byte of a channel that is 0: bytes of keys have no sign */

/* A group of a query: channels in steps, what they add up to times -DI_ZERO, and what 1 in a product of
 * whole numbers is worth, but for the key's scale. */
typedef struct {
  int8_t channel[DI_GROUP];
  int32_t bias;
  float unit;
} di_exact_query;

/* A group of a block of keys: channels [steps, keys, 4] and scales. */
typedef struct {
  uint8_t channel[8][DI_BLOCK][4];
  float scale[DI_BLOCK];
} di_exact_keys;

#if DI_EXACT
/* Turn a group of a query. Gives 0 where it is no such group, or so large or small that a product
 * with a weight could leave the range of fp32. */
DI_INLINE int di_turn_group(const float *x, di_exact_query *query) {
  const __m128i steps = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  uint32_t power = di_largest_of_32(x) >> 23;
  if (power == 0) power = 127;
  if (power < 127 - 50 || power > 127 + 50) return 0;
  __m512 reciprocal = _mm512_set1_ps(di_float((127 + 6 + 127 - power) << 23));
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < DI_GROUP; i += 16) {
    __m512 number = _mm512_mul_ps(_mm512_loadu_ps(x + i), reciprocal);
    __m512i channel = _mm512_cvtps_epi32(number);
    __m512 whole = _mm512_cvtepi32_ps(channel);
    if (_mm512_cmp_ps_mask(whole, number, _CMP_NEQ_UQ)) return 0;
    sum = _mm512_add_epi32(sum, channel);
    __m128i bytes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(channel), steps);
    _mm_storeu_si128((__m128i *)(query->channel + i), bytes);
  }
  query->bias = -DI_ZERO * _mm512_reduce_add_epi32(sum);
  query->unit = di_float((power - 7) << 23);
  return 1;
}

/* Scales of 16 keys of their ue8m0 bytes, that of 255 as given. */
DI_INLINE void di_turn_scales(const uint8_t *byte, uint32_t not_a_number, float *scale) {
  __m512i power = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)byte));
  __m512i bits = _mm512_slli_epi32(power, 23);
  __mmask16 is_least = _mm512_cmpeq_epi32_mask(power, _mm512_setzero_si512());
  __mmask16 is_none = _mm512_cmpeq_epi32_mask(power, _mm512_set1_epi32(255));
  bits = _mm512_mask_mov_epi32(bits, is_least, _mm512_set1_epi32(1 << 22));
  bits = _mm512_mask_mov_epi32(bits, is_none, _mm512_set1_epi32((int32_t)not_a_number));
  _mm512_storeu_si512(scale, bits);
}

/* Channels of 16 keys, a step in each of eight vectors, from 16 bytes a key. */
DI_INLINE void di_turn_keys(const uint8_t *data, uint8_t *channel) {
  const __m512i low = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i value = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  __m512i row[4], half[4], word[4];
  for (int i = 0; i < 4; i++) row[i] = _mm512_loadu_si512(data + 64 * i);
  for (int i = 0; i < 4; i += 2) {
    half[i] = _mm512_permutex2var_epi32(row[i], low, row[i + 1]);
    half[i + 1] = _mm512_permutex2var_epi32(row[i], high, row[i + 1]);
  }
  for (int i = 0; i < 2; i++) {
    word[2 * i] = _mm512_shuffle_i64x2(half[i], half[i + 2], 0x44);
    word[2 * i + 1] = _mm512_shuffle_i64x2(half[i], half[i + 2], 0xee);
  }
  for (int i = 0; i < 4; i++) {
    __m512i even = _mm512_and_si512(word[i], mask);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi16(word[i], 4), mask);
    _mm512_storeu_si512(channel + (2 * i) * DI_BLOCK * 4, _mm512_shuffle_epi8(value, even));
    _mm512_storeu_si512(channel + (2 * i + 1) * DI_BLOCK * 4, _mm512_shuffle_epi8(value, odd));
  }
}

/* Whole products of a group of a query with those of a block of keys. */
DI_INLINE void di_exact_dots(const di_exact_query *query, const di_exact_keys *keys, __m512 *dot) {
  __m512i start = _mm512_set1_epi32(query->bias), zero = _mm512_setzero_si512();
  __m512i sum[4] = {start, start, zero, zero}; /* even and odd steps apart: shorter chains */
  for (int step = 0; step < 8; step++) {
    int32_t four;
    memcpy(&four, query->channel + 4 * step, sizeof four);
    __m512i channel = _mm512_set1_epi32(four);
    for (int i = 0; i < 2; i++) {
      __m512i *to = sum + step % 2 * 2 + i;
      *to = _mm512_dpbusd_epi32(*to, _mm512_loadu_si512(keys->channel[step][16 * i]), channel);
    }
  }
  for (int i = 0; i < 2; i++) dot[i] = _mm512_cvtepi32_ps(_mm512_add_epi32(sum[i], sum[i + 2]));
}
#endif

#endif
