/* The best entries of each row, and the candidate pool.
 *
 * Scores become whole numbers of the same order; the smallest that is kept is found digit by digit.
 * Everything above it is kept, and of its equals those with the lowest index. -inf is never kept.
 *
 * Shapes: T rows, S entries, B blocks of entries.
 */
#include "calls.h"
#include "common.h"

#define ABSENT 0x007fffffu /* the number of -inf */

/* Larger scores give larger numbers, both zeros the same; NaN and -inf give ABSENT. */
static uint32_t order_of(float score) {
  uint32_t bits = di_bits(score + 0.0f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ABSENT;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The kept-th largest of `count` numbers, and how many of its equals are kept. At least `kept` of the
 * numbers are there, and kept is at least 1. */
static uint32_t threshold(const uint32_t *number, int64_t count, int64_t kept, int64_t *equals) {
  uint32_t prefix = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t found[256] = {0};
    for (int64_t i = 0; i < count; i++)
      if ((number[i] & mask) == prefix) found[number[i] >> shift & 255]++;
    uint32_t digit = 255;
    while (found[digit] < kept) kept -= found[digit--];
    prefix |= digit << shift;
    mask |= 255u << shift;
  }
  *equals = kept;
  return prefix;
}

/* Indices of the best `kept` of `count` numbers, ascending; gives how many there are. */
static int64_t best(const uint32_t *number, int64_t count, int64_t kept, int64_t *index) {
  int64_t present = 0, equals = 0, found = 0;
  uint32_t least = ABSENT;
  for (int64_t i = 0; i < count; i++) present += number[i] > ABSENT;
  if (present > kept) least = kept ? threshold(number, count, kept, &equals) : 0xffffffffu;
  for (int64_t i = 0; i < count; i++) {
    if (number[i] > least || (number[i] == least && equals > 0)) {
      equals -= number[i] == least;
      index[found++] = i;
    }
  }
  return found;
}

/* Indices [rows, kept] of the best of [rows, entries], ascending, then -1. */
DI_EXPORT int di_select(const float *score, int64_t rows, int64_t entries, int64_t kept,
                        int64_t *index) {
  uint32_t *number = malloc((size_t)(entries + 1) * sizeof *number);
  if (!number) return DI_NO_MEMORY;
  for (int64_t t = 0; t < rows; t++) {
    for (int64_t s = 0; s < entries; s++) number[s] = order_of(score[t * entries + s]);
    int64_t *to = index + t * kept, found = best(number, entries, kept, to);
    while (found < kept) to[found++] = -1;
  }
  free(number);
  return DI_OK;
}
DI_CALLED(di_select, P(0), L(1), L(2), L(3), P(4))

/* Numbers of the blocks of a row: those of their best visible score, finite; the block of the last
 * visible entry comes before all. */
static void rank_blocks(const float *pool, int64_t visible, int64_t size, int64_t blocks,
                        uint32_t *number) {
  for (int64_t b = 0; b < blocks; b++) {
    number[b] = ABSENT;
    for (int64_t s = b * size; s < (b + 1) * size && s < visible; s++) {
      float score = pool[s] > 3.402823466e38f ? 3.402823466e38f : pool[s];
      uint32_t order = order_of(score < -3.402823466e38f ? -3.402823466e38f : score);
      number[b] = order > number[b] ? order : number[b];
    }
  }
  if (visible > 0) number[(visible - 1) / size] = order_of(INFINITY);
}

/* Set scores [rows, entries] to -inf outside the best `top` blocks of `size` entries of the pool's
 * scores [rows, pool_entries]. */
DI_EXPORT int di_restrict(const float *pool, int64_t pool_entries, const int64_t *visible,
                          int64_t rows, int64_t size, int64_t top, float *score, int64_t entries) {
  int64_t blocks = (pool_entries + size - 1) / size;
  uint32_t *number = malloc((size_t)(blocks + 1) * sizeof *number);
  int64_t *kept = malloc((size_t)(top + 1) * sizeof *kept);
  if (!number || !kept) {
    free(number);
    free(kept);
    return DI_NO_MEMORY;
  }
  for (int64_t t = 0; t < rows; t++) {
    int64_t seen = visible[t] < pool_entries ? visible[t] : pool_entries, next = 0;
    rank_blocks(pool + t * pool_entries, seen, size, blocks, number);
    int64_t found = best(number, blocks, top, kept);
    for (int64_t b = 0; b * size < entries; b++) {
      if (next < found && kept[next] == b) {
        next++;
        continue;
      }
      for (int64_t s = b * size; s < (b + 1) * size && s < entries; s++)
        score[t * entries + s] = -INFINITY;
    }
  }
  free(number);
  free(kept);
  return DI_OK;
}
DI_CALLED(di_restrict, P(0), L(1), P(2), L(3), L(4), L(5), P(6), L(7))
