/* Which tokens survive truncation, which one is drawn, and what are the alternatives?
 *
 * Weights are whole numbers, floor(2^31 * p), so their sums have no order. A row is put in order only
 * where that matters: tokens fall into buckets of falling logits, and the bucket in which a prefix
 * ends is sorted. Order: logit descending, then id ascending.
 *
 * Shapes: R rows, V vocabulary, A alternatives.
 */
#include "calls.h"
#include "laws.h"

#define BUCKETS 1024
#define BUCKETS_PER_UNIT 64.0

typedef struct {
  double logit;
  int64_t token, weight;
} candidate;

/* Flag rows whose raw logits hold NaN or +inf, or whose adjusted logits are all -inf. */
DI_EXPORT int di_flag_rows(const double *raw, const double *adjusted, int64_t rows,
                           int64_t vocabulary, uint8_t *invalid) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t bad = 0, possible = 0;
    for (int64_t v = 0; v < vocabulary; v++) {
      bad |= !(raw[r * vocabulary + v] < INFINITY);
      possible |= adjusted[r * vocabulary + v] > -INFINITY;
    }
    invalid[r] = (uint8_t)(bad || !possible);
  }
  return DI_OK;
}
DI_CALLED(di_flag_rows, P(0), P(1), L(2), L(3), P(4))

/* Larger logits have lower buckets, equal ones the same. */
static int64_t bucket_of(double logit, double most) {
  double place = (most - logit) * BUCKETS_PER_UNIT;
  return place < BUCKETS - 1 ? (int64_t)place : BUCKETS - 1;
}

static int in_order(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
  return a->token < b->token ? -1 : a->token > b->token;
}

/* The last token, in order, before which at most `limit` is; a token's size is its weight, or 1 if
 * `counts`. `sum` has the sizes of buckets. Gives 0 if that is the last token of all. */
static int last_within(const double *logit, const double *p, int64_t vocabulary, double most,
                       const int64_t *sum, int counts, int64_t limit, candidate *work,
                       candidate *last) {
  int64_t bucket = 0, found = 0;
  while (bucket < BUCKETS && limit >= sum[bucket]) limit -= sum[bucket++];
  if (bucket == BUCKETS) return 0;
  for (int64_t v = 0; v < vocabulary; v++)
    if (bucket_of(logit[v], most) == bucket)
      work[found++] = (candidate){logit[v], v, counts ? 1 : di_weight_of(p[v])};
  qsort(work, (size_t)found, sizeof *work, in_order);
  int64_t i = 0;
  while (limit >= work[i].weight) limit -= work[i++].weight;
  *last = work[i];
  return 1;
}

static int is_behind(double logit, int64_t token, const candidate *last) {
  return logit < last->logit || (logit == last->logit && token > last->token);
}

/* Set the logits of a row to -inf from where top-k or top-p end; gives whether any is. */
static int cut(double *logit, const double *p, int64_t vocabulary, double top_p, int64_t top_k,
               candidate *work) {
  int64_t weight[BUCKETS] = {0}, count[BUCKETS] = {0};
  double most = di_largest(logit, vocabulary);
  for (int64_t v = 0; v < vocabulary; v++) {
    int64_t bucket = bucket_of(logit[v], most);
    weight[bucket] += di_weight_of(p[v]);
    count[bucket]++;
  }
  candidate last = {-INFINITY, vocabulary, 0}, other;
  int64_t limit = (int64_t)(top_p * 2147483648.0);
  int is_cut = last_within(logit, p, vocabulary, most, weight, 0, limit, work, &last);
  if (top_k == 0) last = (candidate){INFINITY, -1, 0}, is_cut = 1;
  if (top_k > 0 && last_within(logit, p, vocabulary, most, count, 1, top_k - 1, work, &other)) {
    if (!is_cut || is_behind(last.logit, last.token, &other)) last = other;
    is_cut = 1;
  }
  if (is_cut)
    for (int64_t v = 0; v < vocabulary; v++)
      if (is_behind(logit[v], v, &last)) logit[v] = -INFINITY;
  return is_cut;
}

/* Truncate rows of logits in place. `p` are their probabilities, `share` those relative to the best,
 * or null if no row has a min_p. Rows of temperature 0 are left alone. Flags the rows that changed. */
DI_EXPORT int di_truncate(double *logit, const double *p, const double *share, int64_t rows,
                          int64_t vocabulary, const float *temperature, const float *top_p,
                          const int64_t *top_k, const float *min_p, uint8_t *changed) {
  candidate *work = malloc((size_t)(vocabulary + 1) * sizeof *work);
  if (!work) return DI_NO_MEMORY;
  for (int64_t r = 0; r < rows; r++) {
    double *row = logit + r * vocabulary;
    changed[r] = 0;
    if (temperature[r] == 0) continue;
    if (top_p[r] < 1 || top_k[r] >= 0)
      changed[r] = (uint8_t)cut(row, p + r * vocabulary, vocabulary, top_p[r], top_k[r], work);
    if (!share || min_p[r] <= 0) continue;
    for (int64_t v = 0; v < vocabulary; v++)
      if (!(share[r * vocabulary + v] >= min_p[r])) row[v] = -INFINITY;
    changed[r] = 1;
  }
  free(work);
  return DI_OK;
}
DI_CALLED(di_truncate, P(0), P(1), P(2), L(3), L(4), P(5), P(6), P(7), P(8), P(9))

static int64_t total_weight(const double *p, int64_t count) {
  int64_t total = 0;
  for (int64_t v = 0; v < count; v++) total += di_weight_of(p[v]);
  return total;
}

/* The first token whose running weight exceeds floor(bits * total / 2^53). */
static int64_t invert(const double *p, int64_t vocabulary, uint64_t bits) {
  int64_t total = total_weight(p, vocabulary), v = 0;
  int64_t point = di_point_of(bits, total);
  for (; v + 64 <= vocabulary; v += 64) {
    int64_t block = total_weight(p + v, 64);
    if (block > point) break;
    point -= block;
  }
  while (v < vocabulary - 1 && di_weight_of(p[v]) <= point) point -= di_weight_of(p[v++]);
  return v;
}

/* Draw a token of each row and give its log-probabilities. `logit` are the surviving logits over
 * temperature and `p` their probabilities, both null if all rows have temperature 0; `adjusted` are
 * the logits before temperature, `law` the log-probabilities of the raw logits. */
DI_EXPORT int di_draw(const double *adjusted, const double *logit, const double *p,
                      const double *law, int64_t rows, int64_t vocabulary,
                      const float *temperature, const int64_t *seed, const int64_t *position,
                      const int64_t *forced, int64_t *token, float *logprob, float *processed) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t start = r * vocabulary, drawn = forced[r];
    if (temperature[r] == 0) {
      const double *row = adjusted + start;
      int64_t best = di_first_of(row, di_largest(row, vocabulary));
      drawn = drawn < 0 ? best : drawn;
      processed[r] = drawn == best ? 0.0f : -INFINITY;
    } else {
      const double *row = logit + start;
      uint64_t bits = di_uniform_bits((uint64_t)seed[r], (uint64_t)position[r], DI_FRESH);
      int64_t found = invert(p + start, vocabulary, bits);
      drawn = drawn < 0 ? found : drawn;
      double most = di_largest(row, vocabulary);
      /* The best token has the probability 1 / sum. */
      processed[r] = (float)(row[drawn] - most + log(p[start + di_first_of(row, most)]));
    }
    token[r] = drawn;
    logprob[r] = (float)law[start + drawn];
  }
  return DI_OK;
}
DI_CALLED(di_draw, P(0), P(1), P(2), P(3), L(4), L(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12))

/* The best `count` tokens of each row of raw logits, and their log-probabilities. */
DI_EXPORT int di_alternatives(const double *raw, const double *law, int64_t rows,
                              int64_t vocabulary, int64_t count, int64_t *token, float *logprob) {
  for (int64_t r = 0; r < rows; r++) {
    const double *row = raw + r * vocabulary;
    int64_t *best = token + r * count, held = 0;
    for (int64_t v = 0; v < vocabulary; v++) {
      if (held == count && !(row[v] > row[best[held - 1]])) continue;
      int64_t place = held < count ? held++ : count - 1;
      for (; place > 0 && row[v] > row[best[place - 1]]; place--) best[place] = best[place - 1];
      best[place] = v;
    }
    for (int64_t i = 0; i < count; i++)
      logprob[r * count + i] = (float)law[r * vocabulary + best[i]];
  }
  return DI_OK;
}
DI_CALLED(di_alternatives, P(0), P(1), L(2), L(3), L(4), P(5), P(6))
