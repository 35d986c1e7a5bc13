/* Is a draft accepted with probability min(1, p / g), and which token takes its place if not?
 *
 * The whole numbers of reference.ratio_rule, one after the other, so the verdicts are its verdicts: with
 * the law v of sum T for p and w of sum W for g, the residual max(v W - w T, 0) is exact in 64 bits.
 *
 * Shapes: R rows, V vocabulary, P rows of kept laws.
 */
#include "calls.h"
#include "laws.h"

/* The law of a row, and its sum. `p` is null, or means nothing, where the row is greedy. */
static int64_t law_of(const double *adjusted, const double *p, float temperature, int64_t vocabulary,
                      int64_t *law) {
  int64_t total = 0;
  if (temperature == 0) {
    memset(law, 0, (size_t)vocabulary * sizeof *law);
    law[di_first_of(adjusted, di_largest(adjusted, vocabulary))] = total = 1LL << 31;
    return total;
  }
  for (int64_t v = 0; v < vocabulary; v++) total += law[v] = di_weight_of(p[v]);
  return total;
}

/* The first token whose running weight exceeds floor(bits * total / 2^53). */
static int64_t inverted(const int64_t *law, int64_t total, int64_t vocabulary, uint64_t bits) {
  int64_t point = di_point_of(bits, total), v = 0;
  while (v < vocabulary - 1 && law[v] <= point) point -= law[v++];
  return v;
}

/* Draw a draft of each row, and keep the law that it was drawn from; certainty is kept as 2^31 - 1. */
DI_EXPORT int di_draw_drafts(const double *adjusted, const double *p, int64_t rows,
                             int64_t vocabulary, const float *temperature, const int64_t *seed,
                             const int64_t *position, const int64_t *law_row, int32_t *laws,
                             int64_t *token) {
  int64_t *law = malloc((size_t)vocabulary * sizeof *law);
  if (!law) return DI_NO_MEMORY;
  for (int64_t r = 0; r < rows; r++) {
    int64_t start = r * vocabulary, total = 0;
    int32_t *kept = laws + law_row[r] * vocabulary;
    law_of(adjusted + start, p ? p + start : NULL, temperature[r], vocabulary, law);
    for (int64_t v = 0; v < vocabulary; v++) {
      law[v] = law[v] < INT32_MAX ? law[v] : INT32_MAX;
      kept[v] = (int32_t)law[v];
      total += law[v];
    }
    uint64_t bits = di_uniform_bits((uint64_t)seed[r], (uint64_t)position[r], DI_FRESH);
    token[r] = inverted(law, total, vocabulary, bits);
  }
  free(law);
  return DI_OK;
}
DI_CALLED(di_draw_drafts, P(0), P(1), L(2), L(3), P(4), P(5), P(6), P(7), P(8), P(9))

/* Turn a law into max(v W - w T, 0) of 36 bits or fewer, and give the sum before and after it was cut.
 * `other` is null for a draft that was certain. */
static int64_t residual(int64_t *law, int64_t total, const int32_t *other, int64_t other_total,
                        int64_t draft, int64_t vocabulary, int64_t *cut_total) {
  int64_t sum = 0, cut = 0;
  if (other) {
    for (int64_t v = 0; v < vocabulary; v++) {
      int64_t left = law[v] * other_total - other[v] * total;
      sum += law[v] = left > 0 ? left : 0;
    }
  } else {
    law[draft] = 0;
    for (int64_t v = 0; v < vocabulary; v++) sum += law[v];
  }
  int exponent;
  frexp((double)sum, &exponent);
  int shift = exponent > 36 ? exponent - 36 : 0;
  for (int64_t v = 0; v < vocabulary; v++) cut += law[v] >>= shift;
  *cut_total = cut;
  return sum;
}

/* Verify the draft of each row that has one; `overlap` is the sum of min(p, g). `token` becomes the
 * token of the row: what is forced, the draft, what replaces it, or -1 where an ordinary draw decides. */
DI_EXPORT int di_verify(const double *adjusted, const double *p, int64_t rows, int64_t vocabulary,
                        const float *temperature, const int64_t *seed, const int64_t *position,
                        const int64_t *forced, const int64_t *draft, const int64_t *law_row,
                        const int32_t *laws, int64_t *token, uint8_t *accepted, float *overlap) {
  int64_t *law = malloc((size_t)vocabulary * sizeof *law);
  if (!law) return DI_NO_MEMORY;
  for (int64_t r = 0; r < rows; r++) {
    int64_t start = r * vocabulary, wanted = draft[r], other_total = 1, other_weight = 1, cut;
    accepted[r] = 0, overlap[r] = 0, token[r] = forced[r];
    if (wanted < 0) continue;
    const int32_t *other = laws && law_row[r] >= 0 ? laws + law_row[r] * vocabulary : NULL;
    int64_t total = law_of(adjusted + start, p ? p + start : NULL, temperature[r], vocabulary, law);
    if (other) {
      other_total = 0, other_weight = other[wanted];
      for (int64_t v = 0; v < vocabulary; v++) other_total += other[v];
    }
    double own = (double)(law[wanted] * other_total), others = (double)(other_weight * total);
    int64_t rejection = residual(law, total, other, other_total, wanted, vocabulary, &cut);
    overlap[r] = (float)(1 - (double)rejection / ((double)total * (double)other_total));
    uint64_t key = (uint64_t)seed[r], place = (uint64_t)position[r];
    double u = (double)di_uniform_bits(key, place, DI_ACCEPTANCE) * 0x1p-53;
    accepted[r] = u * others < own || rejection == 0;
    if (forced[r] >= 0)
      accepted[r] = forced[r] == wanted;
    else if (accepted[r])
      token[r] = wanted;
    else
      token[r] = inverted(law, cut, vocabulary, di_uniform_bits(key, place, DI_RESIDUAL));
  }
  free(law);
  return DI_OK;
}
DI_CALLED(di_verify, P(0), P(1), L(2), L(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12),
          P(13))
