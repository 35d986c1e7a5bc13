/* With which whole numbers is a row drawn? Laws are those of reference.laws: floor(2^31 * p), or 2^31 at
 * the best token of a greedy row; uniform numbers those of reference.random_numbers.
 */
#ifndef DI_LAWS_H
#define DI_LAWS_H

#include "common.h"

#define DI_SCAN_LANES 8

enum { DI_FRESH, DI_RESIDUAL, DI_ACCEPTANCE };

DI_INLINE int64_t di_weight_of(double p) { return (int64_t)(p * 2147483648.0); }

/* The largest of `count` numbers, none of them NaN. */
static double di_largest(const double *x, int64_t count) {
  double most[DI_SCAN_LANES];
  for (int j = 0; j < DI_SCAN_LANES; j++) most[j] = -INFINITY;
  int64_t i = 0;
  for (; i + DI_SCAN_LANES <= count; i += DI_SCAN_LANES)
    for (int j = 0; j < DI_SCAN_LANES; j++) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
  for (; i < count; i++) most[0] = x[i] > most[0] ? x[i] : most[0];
  for (int j = 1; j < DI_SCAN_LANES; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
  return most[0];
}

/* The first place of a number that is there. */
DI_INLINE int64_t di_first_of(const double *x, double wanted) {
  int64_t i = 0;
  while (x[i] != wanted) i++;
  return i;
}

/* 53 uniform bits of a seed, a position and a case. */
DI_INLINE uint64_t di_uniform_bits(uint64_t seed, uint64_t position, uint64_t which) {
  uint64_t s = (3 * position + which) * 0x9E3779B97F4A7C15u;
  uint64_t z = seed + (s ^ s << 13) + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (z ^ z >> 31) >> 11;
}

/* floor(bits * total / 2^53), for a total below 2^36. */
DI_INLINE int64_t di_point_of(uint64_t bits, int64_t total) {
  int64_t lower = ((int64_t)(bits & ((1u << 27) - 1)) * total) >> 27;
  return ((int64_t)(bits >> 27) * total + lower) >> 26;
}

#endif
