/* How are rows multiplied with a weight?
 *
 * A weight lies in strips of 16 outputs, [strips][K][16], bf16 or fp32. Every output is one chain of
 * fused multiply-adds over k = 0, 1, ... in fp32, whatever tile computes it: so a row's bits depend on
 * that row alone, and neither on threads nor on vector width.
 */
#include "common.h"

#define STRIP 16
#define VECTORS (STRIP / DI_LANES) /* of one strip */
#define MAX_STRIPS 8

DI_INLINE di_vf load_f32(const float *from) { return di_load_f32(from); }
DI_INLINE di_vf load_bf16(const uint16_t *from) { return di_load_bf16(from); }

/* R rows x S strips: out[R][S * 16]. The loops over constants are unrolled into registers. */
#define TILE(NAME, ELEMENT, R, S)                                                                  \
  static void tile_##NAME##_##R##_##S(const float *x, int64_t x_stride, const ELEMENT *w, int64_t k, \
                                      float *out) {                                                \
    di_vf acc[R][(S) * VECTORS];                                                                   \
    for (int r = 0; r < (R); r++)                                                                  \
      for (int j = 0; j < (S) * VECTORS; j++) acc[r][j] = (di_vf){0};                              \
    for (int64_t i = 0; i < k; i++) {                                                              \
      di_vf wide[(S) * VECTORS];                                                                   \
      _Pragma("GCC unroll 32") for (int j = 0; j < (S) * VECTORS; j++) wide[j] =                   \
          load_##NAME(w + ((j / VECTORS) * k + i) * STRIP + (j % VECTORS) * DI_LANES);             \
      _Pragma("GCC unroll 8") for (int r = 0; r < (R); r++) {                                      \
        di_vf factor = di_splat(x[r * x_stride + i]);                                              \
        _Pragma("GCC unroll 32") for (int j = 0; j < (S) * VECTORS; j++) acc[r][j] =               \
            di_fma(factor, wide[j], acc[r][j]);                                                    \
      }                                                                                            \
    }                                                                                              \
    for (int r = 0; r < (R); r++)                                                                  \
      for (int j = 0; j < (S) * VECTORS; j++)                                                      \
        di_store_f32(out + r * (S) * STRIP + j * DI_LANES, acc[r][j]);                             \
  }

#define ROWS_OF(NAME, ELEMENT, S) \
  TILE(NAME, ELEMENT, 1, S) TILE(NAME, ELEMENT, 2, S) TILE(NAME, ELEMENT, 4, S)

/* Accumulators must fit the registers: 32 of 512 bits, or 16 narrower ones. */
#if DI_LANES == 16
#define WIDE_STRIPS 4
#else
#define WIDE_STRIPS 2
#endif

#define TILES(NAME, ELEMENT)                                                                        \
  ROWS_OF(NAME, ELEMENT, 1)                                                                         \
  ROWS_OF(NAME, ELEMENT, 2)                                                                         \
  ROWS_OF(NAME, ELEMENT, 4)                                                                         \
  TILE(NAME, ELEMENT, 1, 8)                                                                         \
  static void tile_##NAME(int rows, int strips, const float *x, int64_t x_stride, const void *w,    \
                          int64_t k, float *out) {                                                  \
    switch (rows * 16 + strips) {                                                                   \
      case 1 * 16 + 1: tile_##NAME##_1_1(x, x_stride, w, k, out); break;                            \
      case 1 * 16 + 2: tile_##NAME##_1_2(x, x_stride, w, k, out); break;                            \
      case 1 * 16 + 4: tile_##NAME##_1_4(x, x_stride, w, k, out); break;                            \
      case 1 * 16 + 8: tile_##NAME##_1_8(x, x_stride, w, k, out); break;                            \
      case 2 * 16 + 1: tile_##NAME##_2_1(x, x_stride, w, k, out); break;                            \
      case 2 * 16 + 2: tile_##NAME##_2_2(x, x_stride, w, k, out); break;                            \
      case 2 * 16 + 4: tile_##NAME##_2_4(x, x_stride, w, k, out); break;                            \
      case 4 * 16 + 1: tile_##NAME##_4_1(x, x_stride, w, k, out); break;                            \
      case 4 * 16 + 2: tile_##NAME##_4_2(x, x_stride, w, k, out); break;                            \
      case 4 * 16 + 4: tile_##NAME##_4_4(x, x_stride, w, k, out); break;                            \
    }                                                                                               \
  }

TILES(f32, float)
TILES(bf16, uint16_t)

/* A weight, and what every product with it shares. */
typedef struct {
  const char *data;
  int64_t type, k, strip_bytes;
} weight_t;

typedef struct {
  char *data;
  int64_t type, stride, element_bytes;
} output_t;

DI_INLINE weight_t weight_of(const void *data, int64_t type, int64_t k) {
  return (weight_t){data, type, k, k * STRIP * (type == DI_F32 ? 4 : 2)};
}

/* How many strips one row tile takes: the largest tile that is there and fits. */
DI_INLINE int strips_at_once(int64_t left, int rows) {
  int most = rows == 1 ? 2 * WIDE_STRIPS : rows == 2 ? WIDE_STRIPS : (DI_LANES == 16 ? 4 : 1);
  while (most > left) most /= 2;
  return most;
}

/* Outputs [from, until) of strips [strip, strip + count) for all rows; column 0 of `out` is output
 * `origin`. */
static void multiply(const float *x, int64_t x_stride, int64_t rows, weight_t w, int64_t strip,
                     int64_t count, int64_t from, int64_t until, int64_t origin, output_t out) {
  float sums[4 * MAX_STRIPS * STRIP];
  for (int64_t row = 0; row < rows;) {
    int height = rows - row >= 4 ? 4 : rows - row >= 2 ? 2 : 1;
    for (int64_t done = 0; done < count;) {
      int width = strips_at_once(count - done, height);
      const char *data = w.data + (strip + done) * w.strip_bytes;
      const float *x_row = x + row * x_stride;
      if (w.type == DI_F32)
        tile_f32(height, width, x_row, x_stride, data, w.k, sums);
      else
        tile_bf16(height, width, x_row, x_stride, data, w.k, sums);
      int64_t first = (strip + done) * STRIP, last = first + width * STRIP;
      int64_t skipped = from > first ? from - first : 0;
      int64_t kept = (until < last ? until : last) - first - skipped;
      for (int r = 0; r < height; r++)
        di_narrow(sums + r * width * STRIP + skipped, out.type, kept,
                  out.data + ((row + r) * out.stride + first + skipped - origin) * out.element_bytes);
      done += width;
    }
    row += height;
  }
}

/* Strips of one task: they stay in the first-level cache while all rows pass. */
#define TASK_STRIPS MAX_STRIPS

/* Rows widened to fp32 and rounded to mxfp8 if asked; NULL without memory. */
static float *prepare_rows(const void *x, int64_t type, int64_t stride, int64_t rows, int64_t width,
                           int64_t rounds, int64_t threads) {
  float *wide = malloc((size_t)(rows * width) * sizeof *wide + 1);
  if (!wide) return NULL;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && rows > 8)
  for (int64_t row = 0; row < rows; row++) {
    float *to = wide + row * width;
    di_widen((const char *)x + row * stride * (type == DI_F32 ? 4 : 2), type, width, to);
    if (rounds)
      for (int64_t group = 0; group < width; group += 32) di_round_mxfp8(to + group);
  }
  return wide;
}

/* out[t, g * n + i] = sum over j of weight[g * n + i, j] * x[t, g * k + j]. */
DI_EXPORT int di_gemm_dense(const void *x, int64_t x_type, int64_t x_stride, int64_t rows,
                            const void *w, int64_t w_type, int64_t k, int64_t n, int64_t groups,
                            int64_t rounds, void *out, int64_t out_type, int64_t out_stride,
                            int64_t threads) {
  if (!rows) return DI_OK;
  int64_t width = groups * k;
  int copies = rounds || x_type != DI_F32;
  float *scratch = copies ? prepare_rows(x, x_type, x_stride, rows, width, rounds, threads) : NULL;
  if (copies && !scratch) return DI_NO_MEMORY;
  const float *wide = copies ? scratch : x;
  int64_t stride = copies ? width : x_stride;
  weight_t weight = weight_of(w, w_type, k);
  output_t to = {out, out_type, out_stride, out_type == DI_F32 ? 4 : 2};
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (int64_t group = 0; group < groups; group++) {
    int64_t from = group * n, until = from + n;
    int64_t first = from / STRIP, end = (until + STRIP - 1) / STRIP;
#pragma omp for schedule(static) nowait
    for (int64_t strip = first; strip < end; strip += TASK_STRIPS) {
      int64_t count = end - strip < TASK_STRIPS ? end - strip : TASK_STRIPS;
      multiply(wide + group * k, stride, rows, weight, strip, count, from, until, 0, to);
    }
  }
  free(scratch);
  return DI_OK;
}

/* Rows ends[e - 1] up to ends[e] with the matrix of expert e; the others are left alone. */
DI_EXPORT int di_gemm_experts(const void *x, int64_t x_type, int64_t x_stride, const void *w,
                              int64_t w_type, int64_t k, int64_t n, const int64_t *ends,
                              int64_t experts, int64_t rounds, void *out, int64_t out_type,
                              int64_t out_stride, int64_t threads) {
  int64_t rows = experts ? ends[experts - 1] : 0;
  if (!rows) return DI_OK;
  int copies = rounds || x_type != DI_F32;
  float *scratch = copies ? prepare_rows(x, x_type, x_stride, rows, k, rounds, threads) : NULL;
  if (copies && !scratch) return DI_NO_MEMORY;
  const float *wide = copies ? scratch : x;
  int64_t stride = copies ? k : x_stride;
  int64_t strips = (n + STRIP - 1) / STRIP;
  weight_t weight = weight_of(w, w_type, k);
  int64_t element_bytes = out_type == DI_F32 ? 4 : 2;
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (int64_t expert = 0; expert < experts; expert++) {
    int64_t start = expert ? ends[expert - 1] : 0, count_rows = ends[expert] - start;
    if (count_rows <= 0) continue;
    weight_t own = weight;
    own.data += expert * strips * weight.strip_bytes;
    output_t to = {(char *)out + start * out_stride * element_bytes, out_type, out_stride,
                   element_bytes};
#pragma omp for schedule(static) nowait
    for (int64_t strip = 0; strip < strips; strip += TASK_STRIPS) {
      int64_t count = strips - strip < TASK_STRIPS ? strips - strip : TASK_STRIPS;
      multiply(wide + start * stride, stride, count_rows, own, strip, count, 0, n, 0, to);
    }
  }
  free(scratch);
  return DI_OK;
}
