/* Norm, sum, rotation and rounding of rows.
 *
 * A sum of squares is kept in DI_LANES lanes, element i in lane i modulo DI_LANES, ascending; then the
 * lanes are added. The order depends on the width alone.
 */
#include "calls.h"
#include "formats.h"
#include "lanes.h"

DI_INLINE void norm_row(const void *x, int64_t type, int64_t width, const void *weight,
                        int64_t weight_type, float eps, void *out, int64_t out_type) {
  di_vf sum = {0};
  for (int64_t at = 0; at < width; at += DI_LANES) {
    di_vf part = di_take_some(x, type, at, width);
    sum = di_fma(part, part, sum);
  }
  float factor = 1.0f / sqrtf(di_lane_sum(sum) / (float)width + eps);
  for (int64_t at = 0; at < width; at += DI_LANES) {
    di_vf scaled = di_take_some(x, type, at, width) * factor;
    di_put_some(scaled * di_take_some(weight, weight_type, at, width), out, out_type, at, width);
  }
}

/* x * rsqrt(mean(x^2) + eps) * weight of rows [rows, width]. */
DI_EXPORT int di_rms_norm(const void *x, int64_t type, int64_t rows, int64_t width,
                          const void *weight, int64_t weight_type, float eps, void *out,
                          int64_t out_type) {
  int64_t in_bytes = width * (type == DI_F32 ? 4 : 2);
  int64_t out_bytes = width * (out_type == DI_F32 ? 4 : 2);
  for (int64_t t = 0; t < rows; t++)
    norm_row((const char *)x + t * in_bytes, type, width, weight, weight_type, eps,
             (char *)out + t * out_bytes, out_type);
  return DI_OK;
}
DI_CALLED(di_rms_norm, P(0), L(1), L(2), L(3), P(4), L(5), F(6), P(7), L(8))

/* x + y of `count` fp32 numbers, rounded once. */
DI_EXPORT int di_add(const float *x, const float *y, int64_t count, void *out, int64_t out_type) {
  for (int64_t at = 0; at < count; at += DI_LANES) {
    di_vf sum = di_take_some(x, DI_F32, at, count) + di_take_some(y, DI_F32, at, count);
    di_put_some(sum, out, out_type, at, count);
  }
  return DI_OK;
}
DI_CALLED(di_add, P(0), P(1), L(2), P(3), L(4))

/* Rotate the last 2 * pairs of `width` channels of rows [rows, heads, width], which are `type`; the
 * angles are those of the row. `sign` is -1 for the inverse. Out may be x itself. */
DI_EXPORT int di_rope(const void *x, int64_t type, int64_t rows, int64_t heads, int64_t width,
                      const float *cosine, const float *sine, int64_t pairs, float sign,
                      void *out) {
  int64_t size = type == DI_F32 ? 4 : 2, plain = width - 2 * pairs;
  for (int64_t t = 0; t < rows; t++) {
    for (int64_t h = 0; h < heads; h++) {
      const char *from = (const char *)x + (t * heads + h) * width * size;
      char *to = (char *)out + (t * heads + h) * width * size;
      if (from != to) memcpy(to, from, (size_t)(plain * size));
      for (int64_t p = 0; p < pairs; p++) {
        float pair[2], turned[2];
        float c = cosine[t * pairs + p], s = sign * sine[t * pairs + p];
        di_widen(from + (plain + 2 * p) * size, type, 2, pair);
        turned[0] = pair[0] * c - pair[1] * s;
        turned[1] = pair[0] * s + pair[1] * c;
        di_narrow(turned, type, 2, to + (plain + 2 * p) * size);
      }
    }
  }
  return DI_OK;
}
DI_CALLED(di_rope, P(0), L(1), L(2), L(3), L(4), P(5), P(6), L(7), F(8), P(9))

/* Store rows [rows, width] in a block format and read them back. */
DI_EXPORT int di_fake_quantise(const void *x, int64_t type, int64_t rows, int64_t width,
                               int64_t format, void *out) {
  int64_t size = type == DI_F32 ? 4 : 2;
  float wide[32];
  uint8_t data[128], scale[2]; /* room for 32 channels of any format */
  di_place place = {data, scale};
  /* All groups divide 32 channels, but a row may end with one group of 16. */
  for (int64_t at = 0; at < rows * width;) {
    int64_t left = width - at % width, count = left < 32 ? left : 32;
    di_widen((const char *)x + at * size, type, count, wide);
    di_encode_row(format, wide, count, place);
    di_decode_row(format, place, count, wide);
    di_narrow(wide, type, count, (char *)out + at * size);
    at += count;
  }
  return DI_OK;
}
DI_CALLED(di_fake_quantise, P(0), L(1), L(2), L(3), L(4), P(5))
