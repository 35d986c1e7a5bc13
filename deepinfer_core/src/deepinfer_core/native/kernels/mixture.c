/* Mixture of experts: the choice of experts, and the activation between their two products.
 *
 * Shapes: T rows, E experts, k experts a row, R rows of experts, I expert width.
 */
#include "calls.h"
#include "lanes.h"

/* sqrt(log(1 + exp(x))), accurate for large x of both signs. */
static float gate_score(float x) {
  float above = x > 0 ? x : 0;
  return sqrtf(above + log1pf(expf(-fabsf(x))));
}

/* Ids [rows, k] of the best by score + bias, best first, ties to the lower id; weights [rows, k] from
 * the scores. A NaN counts as the best, so that there are always k distinct ids. */
DI_EXPORT int di_gate_topk(const float *logits, int64_t rows, int64_t experts, const float *bias,
                           const float *image_bias, const uint8_t *image, float scaling, int64_t k,
                           int64_t *expert, float *weight) {
  float *score = malloc((size_t)(2 * experts + 1) * sizeof *score), *rank = score + experts;
  if (!score) return DI_NO_MEMORY;
  for (int64_t t = 0; t < rows; t++) {
    const float *added = image[t] ? image_bias : bias;
    for (int64_t e = 0; e < experts; e++) {
      score[e] = gate_score(logits[t * experts + e]);
      rank[e] = score[e] + added[e];
    }
    float sum = 0;
    for (int64_t place = 0; place < k; place++) {
      int64_t best = -1;
      for (int64_t e = 0; e < experts; e++) {
        int is_taken = 0;
        for (int64_t i = 0; i < place; i++) is_taken |= expert[t * k + i] == e;
        if (!is_taken && (best < 0 || !(rank[e] <= rank[best]))) best = e;
      }
      expert[t * k + place] = best;
      weight[t * k + place] = score[best];
      sum += score[best];
    }
    for (int64_t i = 0; i < k; i++) weight[t * k + i] = weight[t * k + i] / (sum + 1e-20f) * scaling;
  }
  free(score);
  return DI_OK;
}
DI_CALLED(di_gate_topk, P(0), L(1), L(2), P(3), P(4), P(5), F(6), L(7), P(8), P(9))

DI_INLINE void activate(const void *gate_up, int64_t type, int64_t rows, int64_t width,
                        const float *route, float limit, void *out, int64_t out_type) {
  int64_t size = type == DI_F32 ? 4 : 2, out_bytes = width * (out_type == DI_F32 ? 4 : 2);
  di_vf most = di_splat(limit);
  for (int64_t r = 0; r < rows; r++) {
    const char *gate_row = (const char *)gate_up + r * 2 * width * size;
    for (int64_t at = 0; at < width; at += DI_LANES) {
      di_vf gate = di_take_some(gate_row, type, at, width);
      di_vf up = di_take_some(gate_row + width * size, type, at, width);
      gate = di_pick(gate > most, most, gate);
      up = di_pick(up > most, most, di_pick(up < -most, -most, up));
      di_vf active = gate / (1.0f + di_exp(-gate)) * up;
      if (route) active = active * route[r];
      di_put_some(active, (char *)out + r * out_bytes, out_type, at, width);
    }
  }
}

/* silu(min(gate, limit)) * clamp(up) * route of rows [rows, gate and up]; route may be null. */
DI_EXPORT int di_swiglu(const void *gate_up, int64_t type, int64_t rows, int64_t width,
                        const float *route, float limit, void *out, int64_t out_type) {
  if (type == DI_F32)
    activate(gate_up, DI_F32, rows, width, route, limit, out, out_type);
  else
    activate(gate_up, DI_BF16, rows, width, route, limit, out, out_type);
  return DI_OK;
}
DI_CALLED(di_swiglu, P(0), L(1), L(2), L(3), P(4), F(5), P(6), L(7))
