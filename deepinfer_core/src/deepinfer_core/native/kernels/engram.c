/* N-gram memory: the hash of n-grams to table rows, and the gate through which a value is added.
 *
 * Shapes: T rows, N n-gram size, C hash columns, S streams, D width.
 */
#include "calls.h"
#include "lanes.h"

/* The hash of order n is the exclusive or of id * multiplier at distances 0 to n - 1; products stay in
 * the positive range. */
DI_EXPORT int di_engram_rows(const int64_t *ids, int64_t rows, int64_t size,
                             const int64_t *multiplier, const int64_t *prime, const int64_t *offset,
                             const int64_t *order, int64_t columns, int64_t *row) {
  for (int64_t t = 0; t < rows; t++) {
    for (int64_t c = 0; c < columns; c++) {
      int64_t hash = 0;
      for (int64_t n = 0; n < order[c]; n++) hash ^= ids[t * size + n] * multiplier[n];
      row[t * columns + c] = hash % prime[c] + offset[c];
    }
  }
  return DI_OK;
}
DI_CALLED(di_engram_rows, P(0), L(1), L(2), P(3), P(4), P(5), P(6), L(7), P(8))

/* The gate of one stream: the sigmoid of the signed root of the normalised product. */
DI_INLINE float gate_of(const void *h, const void *key, const void *query_weight,
                        const void *key_weight, int64_t type, int64_t weight_type, int64_t width,
                        float eps) {
  di_vf dot = {0}, h_squares = {0}, key_squares = {0};
  for (int64_t at = 0; at < width; at += DI_LANES) {
    di_vf x = di_take_some(h, type, at, width), k = di_take_some(key, type, at, width);
    di_vf weight = di_take_some(query_weight, weight_type, at, width) *
                   di_take_some(key_weight, weight_type, at, width);
    dot = di_fma(x * weight, k, dot);
    h_squares = di_fma(x, x, h_squares);
    key_squares = di_fma(k, k, key_squares);
  }
  float product = di_lane_sum(dot);
  product *= 1.0f / sqrtf(di_lane_sum(h_squares) / (float)width + eps);
  product *= 1.0f / sqrtf(di_lane_sum(key_squares) / (float)width + eps) * (1.0f / sqrtf((float)width));
  float magnitude = fabsf(product);
  float root = sqrtf(magnitude < 1e-6f ? 1e-6f : magnitude);
  root = product > 0 ? root : product < 0 ? -root : product;
  float lanes[DI_LANES];
  di_store_f32(lanes, di_sigmoid(di_splat(root)));
  return lanes[0];
}

/* Add gate * value to every stream of rows that are not image rows. Keys and values of a row lie
 * key_stride and value_stride elements apart; out may be the trunk. */
DI_EXPORT int di_engram_gate(const void *trunk, int64_t type, int64_t rows, int64_t streams,
                             int64_t width, const void *key, int64_t key_stride, const void *value,
                             int64_t value_stride, const void *query_weight, const void *key_weight,
                             int64_t weight_type, const uint8_t *image, float eps, void *out) {
  int64_t size = type == DI_F32 ? 4 : 2, weight_size = weight_type == DI_F32 ? 4 : 2;
  for (int64_t t = 0; t < rows; t++) {
    const char *added = (const char *)value + t * value_stride * size;
    for (int64_t s = 0; s < streams; s++) {
      const char *h = (const char *)trunk + (t * streams + s) * width * size;
      char *to = (char *)out + (t * streams + s) * width * size;
      if (image[t]) {
        memmove(to, h, (size_t)(width * size));
        continue;
      }
      float gate = gate_of(h, (const char *)key + (t * key_stride + s * width) * size,
                           (const char *)query_weight + s * width * weight_size,
                           (const char *)key_weight + s * width * weight_size, type, weight_type,
                           width, eps);
      for (int64_t at = 0; at < width; at += DI_LANES)
        di_put_some(di_take_some(h, type, at, width) + gate * di_take_some(added, type, at, width),
                    to, type, at, width);
    }
  }
  return DI_OK;
}
DI_CALLED(di_engram_gate, P(0), L(1), L(2), L(3), L(4), P(5), L(6), P(7), L(8), P(9), P(10), L(11),
          P(12), F(13), P(14))
