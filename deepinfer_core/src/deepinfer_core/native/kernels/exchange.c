/* How do rows get into the order of their experts, and back?
 *
 * Rows of one expert keep the order in which they come; a row's results are added in the order of its
 * choices.
 */
#include "calls.h"
#include "common.h"

/* Where each of `count` choices goes: counted first, then placed. Choices below 0 go nowhere (-1). */
static int place(const int64_t *chosen, int64_t count, int64_t experts, int64_t alignment,
                 int64_t *row, int64_t *ends, int64_t *next) {
  memset(next, 0, (size_t)experts * sizeof *next);
  for (int64_t i = 0; i < count; i++) {
    if (chosen[i] >= experts) return DI_OUT_OF_RANGE;
    if (chosen[i] >= 0) next[chosen[i]]++;
  }
  int64_t end = 0;
  for (int64_t expert = 0; expert < experts; expert++) {
    int64_t own = (next[expert] + alignment - 1) / alignment * alignment;
    next[expert] = end;
    end += own;
    ends[expert] = end;
  }
  for (int64_t i = 0; i < count; i++) row[i] = chosen[i] < 0 ? -1 : next[chosen[i]]++;
  return DI_OK;
}

/* Copy rows of row_bytes bytes and their fp32 weights; rows of `out` that nobody fills become zero.
 * `out` has `capacity` rows, which is enough for every choice and all padding. */
DI_EXPORT int di_exchange_dispatch(const int64_t *chosen, int64_t rows, int64_t choices,
                                   int64_t experts, int64_t alignment, const void *x,
                                   int64_t row_bytes, const float *weight, int64_t capacity,
                                   void *out, float *out_weight, int64_t *row, int64_t *ends) {
  int64_t *next = malloc((size_t)experts * sizeof *next);
  if (!next) return DI_NO_MEMORY;
  int code = place(chosen, rows * choices, experts, alignment, row, ends, next);
  if (code == DI_OK) {
    /* Without padding the filled rows are the first ones. */
    int64_t dense = alignment == 1 ? ends[experts - 1] : 0;
    memset((char *)out + dense * row_bytes, 0, (size_t)((capacity - dense) * row_bytes));
    memset(out_weight + dense, 0, (size_t)(capacity - dense) * sizeof *out_weight);
    for (int64_t i = 0; i < rows * choices; i++) {
      if (row[i] < 0) continue;
      memcpy((char *)out + row[i] * row_bytes, (const char *)x + i / choices * row_bytes,
             (size_t)row_bytes);
      out_weight[row[i]] = weight[i];
    }
  }
  free(next);
  return code;
}
DI_CALLED(di_exchange_dispatch, P(0), L(1), L(2), L(3), L(4), P(5), L(6), P(7), L(8), P(9), P(10),
          P(11), P(12))

/* out[t] = ((0 + y[row[t, 0]]) + y[row[t, 1]]) ..., fp32; a choice without a row adds nothing. */
DI_EXPORT int di_exchange_combine(const float *y, int64_t y_stride, const int64_t *row, int64_t rows,
                                  int64_t choices, int64_t width, float *out, int64_t out_stride) {
  for (int64_t t = 0; t < rows; t++) {
    float *sum = out + t * out_stride;
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t choice = 0; choice < choices; choice++) {
      int64_t from = row[t * choices + choice];
      if (from < 0) continue;
      for (int64_t i = 0; i < width; i++) sum[i] += y[from * y_stride + i];
    }
  }
  return DI_OK;
}
DI_CALLED(di_exchange_combine, P(0), L(1), P(2), L(3), L(4), L(5), P(6), L(7))
