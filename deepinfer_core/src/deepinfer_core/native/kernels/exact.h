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

/* A group of a query: channels in steps, what they add up to times -DI_ZERO, and twice the number
 * that a product stands for. */
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

/* Turn a group of a query. Gives 0 where it is no such group, or so large or small that a product
 * with a weight could leave the range of fp32. */
static inline int di_turn_group(const float *x, di_exact_query *query) {
  const float shift = 12582912.0f; /* 1.5 * 2^23 leaves no fraction */
  uint32_t power = di_largest_of_32(x) >> 23;
  if (power == 0) power = 127;
  if (power < 127 - 50 || power > 127 + 50) return 0;
  float reciprocal = di_float((127 + 6 + 127 - power) << 23);
  int32_t sum = 0, whole = 1;
  for (int i = 0; i < DI_GROUP; i++) {
    float number = x[i] * reciprocal, shifted = number + shift;
    int32_t channel = (int32_t)(di_bits(shifted) - di_bits(shift));
    whole &= shifted - shift == number;
    sum += channel;
    query->channel[i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = (int8_t)channel;
  }
  query->bias = -DI_ZERO * sum;
  query->unit = di_float((power - 7) << 23);
  return whole;
}

#if DI_EXACT
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
  __m512i sum[2] = {_mm512_set1_epi32(query->bias), _mm512_set1_epi32(query->bias)};
  for (int step = 0; step < 8; step++) {
    int32_t four;
    memcpy(&four, query->channel + 4 * step, sizeof four);
    __m512i channel = _mm512_set1_epi32(four);
    for (int i = 0; i < 2; i++)
      sum[i] = _mm512_dpbusd_epi32(sum[i], _mm512_loadu_si512(keys->channel[step][16 * i]), channel);
  }
  for (int i = 0; i < 2; i++) dot[i] = _mm512_cvtepi32_ps(sum[i]);
}
#endif

#endif
