/* The best entries of each row, and the candidate pool.
 *
 * Scores become whole numbers of the same order. A row is read once: what is above the kept-th best so
 * far becomes a candidate, and whenever there are LIMIT times as many candidates as are kept, the best
 * stay. The smallest that is kept is found bit by bit. Everything above it is kept, and of its equals
 * those with the lowest index. -inf is never kept.
 *
 * Shapes: T rows, S entries, B blocks of entries.
 */
#include "calls.h"
#include "common.h"
#include <float.h>

#define ABSENT 0x007fffffu /* the number of -inf */
#define LIMIT 4
#define STEP 16 /* scores looked at together */

/* Larger scores give larger numbers, both zeros the same; NaN and -inf give ABSENT. */
static uint32_t order_of(float score) {
  uint32_t bits = di_bits(score + 0.0f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ABSENT;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float score_of(uint32_t number) {
  return di_float(number & 0x80000000u ? number ^ 0x80000000u : ~number);
}

/* Candidates by ascending index, room for `limit` and STEP more; scores up to `bound` are none. */
typedef struct {
  uint32_t *number;
  int32_t *index;
  int64_t count, kept, limit;
  float bound;
} candidates;

/* A number of which, or of more, there are at least `kept` of `count` numbers, and how many of its
 * equals are kept. At least `kept` are there, and kept is at least 1. */
static uint32_t threshold(const uint32_t *number, int64_t count, int64_t kept, int64_t *equals) {
  uint32_t least = 0;
  int64_t more = 0;
  for (int bit = 31; bit >= 0; bit--) {
    uint32_t trial = least | 1u << bit, found = 0;
    for (int64_t i = 0; i < count; i++) found += number[i] >= trial;
    if (found >= kept) least = trial;
    if (found == kept) break;
    if (found < kept) more = found;
  }
  *equals = kept - more;
  return least;
}

/* Let the best stay. */
static void thin(candidates *among) {
  if (among->count <= among->kept) return;
  int64_t equals, count = 0;
  uint32_t least = threshold(among->number, among->count, among->kept, &equals);
  for (int64_t i = 0; i < among->count; i++) {
    uint32_t number = among->number[i];
    int is_equal = number == least && equals > 0;
    among->number[count] = number;
    among->index[count] = among->index[i];
    count += number > least || is_equal;
    equals -= is_equal;
  }
  among->count = count;
  among->bound = score_of(least);
}

/* Scores [from, to) that are above the bound become candidates. */
DI_INLINE void add(candidates *among, const float *score, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++) {
    among->number[among->count] = order_of(score[i]);
    among->index[among->count] = (int32_t)i;
    among->count += score[i] > among->bound;
  }
}

/* The same for STEP scores. */
DI_INLINE void add_step(candidates *among, const float *score, int64_t from) {
#if defined(__AVX512F__)
  __m512 x = _mm512_loadu_ps(score + from);
  __mmask16 is_above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(among->bound), _CMP_GT_OQ);
  if (!is_above) return;
  const __m512i ascending = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i index = _mm512_add_epi32(ascending, _mm512_set1_epi32((int32_t)from));
  __m512i bits = _mm512_castps_si512(_mm512_add_ps(x, _mm512_setzero_ps()));
  __m512i sign = _mm512_set1_epi32(INT32_MIN);
  bits = _mm512_xor_si512(bits, _mm512_or_si512(_mm512_srai_epi32(bits, 31), sign));
  _mm512_storeu_si512(among->number + among->count, _mm512_maskz_compress_epi32(is_above, bits));
  _mm512_storeu_si512(among->index + among->count, _mm512_maskz_compress_epi32(is_above, index));
  among->count += __builtin_popcount(is_above);
#else
  int is_above = 0;
  for (int i = 0; i < STEP; i++) is_above |= score[from + i] > among->bound;
  if (is_above) add(among, score, from, from + STEP);
#endif
}

/* Leave the best of a row's scores as candidates. */
static void choose(candidates *among, const float *score, int64_t entries) {
  int64_t s = 0;
  among->count = 0;
  among->bound = -INFINITY;
  for (; s + STEP <= entries; s += STEP) {
    add_step(among, score, s);
    if (among->count > among->limit) thin(among);
  }
  add(among, score, s, entries);
  thin(among);
}

/* Room for the best `kept` of so many entries; gives whether there is memory. */
static int make_room(candidates *among, int64_t entries, int64_t kept) {
  among->kept = kept;
  among->limit = LIMIT * kept < entries ? LIMIT * kept : entries;
  int64_t room = among->limit + 2 * STEP;
  among->number = malloc((size_t)room * (sizeof *among->number + sizeof *among->index));
  among->index = (int32_t *)(among->number + room);
  return among->number != NULL;
}

/* Indices [rows, kept] of the best of [rows, entries], ascending, then -1. */
DI_EXPORT int di_select(const float *score, int64_t rows, int64_t entries, int64_t kept,
                        int64_t *index) {
  candidates among;
  if (!make_room(&among, entries, kept)) return DI_NO_MEMORY;
  for (int64_t t = 0; t < rows && kept; t++) {
    choose(&among, score + t * entries, entries);
    int64_t *to = index + t * kept;
    for (int64_t i = 0; i < kept; i++) to[i] = i < among.count ? among.index[i] : -1;
  }
  free(among.number);
  return DI_OK;
}
DI_CALLED(di_select, P(0), L(1), L(2), L(3), P(4))

/* The largest of `count` scores, made finite; -inf if there is no number. */
DI_INLINE float largest(const float *score, int64_t count) {
  float most = -INFINITY;
  int64_t s = 0;
#if defined(__AVX2__)
  /* Minimum and maximum with a NaN are their second operand. */
  __m256 most_8 = _mm256_set1_ps(-INFINITY);
  for (; s + 8 <= count; s += 8) {
    __m256 x = _mm256_min_ps(_mm256_set1_ps(FLT_MAX), _mm256_loadu_ps(score + s));
    most_8 = _mm256_max_ps(_mm256_max_ps(_mm256_set1_ps(-FLT_MAX), x), most_8);
  }
  __m128 most_4 = _mm_max_ps(_mm256_castps256_ps128(most_8), _mm256_extractf128_ps(most_8, 1));
  most_4 = _mm_max_ps(most_4, _mm_movehl_ps(most_4, most_4));
  most = _mm_cvtss_f32(_mm_max_ss(most_4, _mm_movehdup_ps(most_4)));
#endif
  for (; s < count; s++) {
    float x = score[s] > FLT_MAX ? FLT_MAX : score[s];
    x = x < -FLT_MAX ? -FLT_MAX : x;
    most = x > most ? x : most;
  }
  return most;
}

/* Best scores of the blocks of a row, finite, -inf where not visible; the block of the last visible entry
 * comes before all. */
static void rank_blocks(const float *pool, int64_t visible, int64_t size, int64_t blocks,
                        float *most) {
  for (int64_t b = 0; b < blocks; b++)
    most[b] = (b + 1) * size <= visible ? largest(pool + b * size, size) : -INFINITY;
  if (visible > 0) most[(visible - 1) / size] = INFINITY;
}

/* Set scores [rows, entries] to -inf outside the best `top` blocks of `size` entries of the pool's
 * scores [rows, pool_entries]. */
DI_EXPORT int di_restrict(const float *pool, int64_t pool_entries, const int64_t *visible,
                          int64_t rows, int64_t size, int64_t top, float *score, int64_t entries) {
  int64_t blocks = (pool_entries + size - 1) / size;
  candidates among;
  float *most = malloc((size_t)(blocks + 1) * sizeof *most);
  if (!make_room(&among, blocks, top) || !most) {
    free(among.number);
    free(most);
    return DI_NO_MEMORY;
  }
  for (int64_t t = 0; t < rows; t++) {
    int64_t seen = visible[t] < pool_entries ? visible[t] : pool_entries, hidden = 0;
    rank_blocks(pool + t * pool_entries, seen, size, blocks, most);
    choose(&among, most, blocks);
    float *row = score + t * entries;
    for (int64_t i = 0; i < among.count && hidden < entries; i++) {
      int64_t from = among.index[i] * size;
      for (; hidden < from && hidden < entries; hidden++) row[hidden] = -INFINITY;
      hidden = from + size;
    }
    for (; hidden < entries; hidden++) row[hidden] = -INFINITY;
  }
  free(among.number);
  free(most);
  return DI_OK;
}
DI_CALLED(di_restrict, P(0), L(1), P(2), L(3), L(4), L(5), P(6), L(7))
