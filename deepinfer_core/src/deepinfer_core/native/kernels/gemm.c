/* How are rows multiplied with a weight?
 *
 * A weight lies in strips of 16 outputs: as fp32 [strips][K][16], or as pairs of bf16 numbers of
 * neighbouring channels, [strips][K / 2][16][2]. Every output is one chain of additions over
 * k = 0, 1, ... in fp32, whatever tile computes it: so a row's bits depend on that row alone, and
 * neither on threads nor on the rows beside it. A link of the chain is a fused multiply-add, or the
 * processor's sum of two bf16 products where both factors are bf16 numbers and it has one.
 */
#include "calls.h"
#include "common.h"

#define STRIP 16
#define VECTORS (STRIP / DI_LANES) /* of one strip */
#define MAX_STRIPS 8

#if defined(__AVX512BF16__) && defined(__AVX512F__)
#define HAS_PAIR_PRODUCT 1
#else
#define HAS_PAIR_PRODUCT 0
#endif

/* Each link reads weights at `w`, R rows at `x` + r * `x_bytes`, and adds to acc[R][S * VECTORS]. */
#define EACH(COUNT, j) _Pragma("GCC unroll 32") for (int j = 0; j < (COUNT); j++)

#define LINK_F32(R, S, i)                                                                         \
  EACH((S) * VECTORS, j) first[j] =                                                               \
      di_load_f32((const float *)w + ((j / VECTORS) * links + i) * STRIP + (j % VECTORS) * DI_LANES); \
  EACH(R, r) {                                                                                    \
    di_vf factor = di_splat(((const float *)(x + r * x_bytes))[i]);                                \
    EACH((S) * VECTORS, j) acc[r][j] = di_fma(factor, first[j], acc[r][j]);                       \
  }

#define LOAD_PAIR(j, i)                                                                           \
  ((di_vu)di_load_f32((const float *)w + ((j / VECTORS) * links + i) * STRIP +                    \
                      (j % VECTORS) * DI_LANES))

#define LINK_PAIR(R, S, i)                                                                        \
  di_vf second[(S) * VECTORS];                                                                    \
  EACH((S) * VECTORS, j) {                                                                        \
    di_vu pair = LOAD_PAIR(j, i);                                                                 \
    first[j] = (di_vf)(pair << 16);                                                               \
    second[j] = (di_vf)(pair & 0xffff0000u);                                                      \
  }                                                                                               \
  EACH(R, r) {                                                                                    \
    const float *factors = (const float *)(x + r * x_bytes) + 2 * i;                              \
    EACH((S) * VECTORS, j) acc[r][j] = di_fma(di_splat(factors[0]), first[j], acc[r][j]);         \
    EACH((S) * VECTORS, j) acc[r][j] = di_fma(di_splat(factors[1]), second[j], acc[r][j]);        \
  }

#define LINK_HALF(R, S, i)                                                                        \
  EACH((S) * VECTORS, j) first[j] = (di_vf)LOAD_PAIR(j, i);                                       \
  EACH(R, r) {                                                                                    \
    float factors;                                                                                \
    memcpy(&factors, (const uint16_t *)(x + r * x_bytes) + 2 * i, sizeof factors);                \
    __m512bh both = (__m512bh)_mm512_set1_epi32((int)di_bits(factors));                           \
    EACH((S) * VECTORS, j) acc[r][j] =                                                            \
        (di_vf)_mm512_dpbf16_ps((__m512)acc[r][j], both, (__m512bh)first[j]);                     \
  }

/* R rows x S strips over `links` links: out[R][S * 16]. Constant loops are unrolled into registers. */
#define TILE(LINK, R, S)                                                                          \
  static void tile_##LINK##_##R##_##S(const char *x, int64_t x_bytes, const char *w,              \
                                      int64_t links, float *out) {                                \
    di_vf acc[R][(S) * VECTORS];                                                                  \
    EACH(R, r) EACH((S) * VECTORS, j) acc[r][j] = (di_vf){0};                                     \
    for (int64_t i = 0; i < links; i++) {                                                         \
      di_vf first[(S) * VECTORS];                                                                 \
      LINK(R, S, i)                                                                               \
    }                                                                                             \
    EACH(R, r) EACH((S) * VECTORS, j)                                                             \
        di_store_f32(out + r * (S) * STRIP + j * DI_LANES, acc[r][j]);                            \
  }

#define ROWS_OF(LINK, S) TILE(LINK, 1, S) TILE(LINK, 2, S) TILE(LINK, 4, S)

#define CASE(LINK, R, S) \
  case (R) * 16 + (S): tile_##LINK##_##R##_##S(x, x_bytes, w, links, out); break;

#define TILES(LINK)                                                                               \
  ROWS_OF(LINK, 1)                                                                                \
  ROWS_OF(LINK, 2)                                                                                \
  ROWS_OF(LINK, 4)                                                                                \
  TILE(LINK, 1, 8)                                                                                \
  static void tile_##LINK(int rows, int strips, const char *x, int64_t x_bytes, const char *w,    \
                          int64_t links, float *out) {                                            \
    switch (rows * 16 + strips) {                                                                 \
      CASE(LINK, 1, 1) CASE(LINK, 1, 2) CASE(LINK, 1, 4) CASE(LINK, 1, 8)                         \
      CASE(LINK, 2, 1) CASE(LINK, 2, 2) CASE(LINK, 2, 4)                                          \
      CASE(LINK, 4, 1) CASE(LINK, 4, 2) CASE(LINK, 4, 4)                                          \
    }                                                                                             \
  }

TILES(LINK_F32)
TILES(LINK_PAIR)
#if HAS_PAIR_PRODUCT
TILES(LINK_HALF)
#else
#define tile_LINK_HALF tile_LINK_PAIR
#endif

/* What a plan fixes; gemm.py fills it. */
typedef struct {
  int64_t k, n, groups, rounds, out_type, threads;
} product_t;

typedef struct {
  const char *data;
  int64_t row_bytes, type; /* DI_BF16 only where weights are bf16 and pair products exist */
  void *scratch;
} rows_t;

typedef struct {
  const char *data;
  int64_t type, links, strip_bytes;
} weight_t;

typedef struct {
  char *data;
  int64_t type, row_bytes, element_bytes;
} output_t;

DI_INLINE int64_t bytes_of(int64_t type) { return type == DI_F32 ? 4 : 2; }

DI_INLINE weight_t describe(const void *data, int64_t type, int64_t k) {
  return (weight_t){data, type, type == DI_F32 ? k : k / 2, k * STRIP * bytes_of(type)};
}

/* How many strips pass at once. The sums of a tile must fit the registers (32 of 512 bits, or 16
 * narrower ones), and strips that several tiles of rows use stay in the first-level cache. */
DI_INLINE int strips_at_once(int64_t left, int64_t rows) {
  int most = DI_LANES == 16 ? (rows == 1 ? 8 : 4) : rows == 1 ? 4 : rows < 4 ? 2 : 1;
  while (most > left) most /= 2;
  return most;
}

/* Outputs [from, until) of strips [strip, strip + count) for `count_rows` rows at `x`. */
static void multiply(const char *x, const rows_t *rows, int64_t count_rows, const weight_t *w,
                     int64_t strip, int64_t count, int64_t from, int64_t until, output_t out) {
  float sums[4 * MAX_STRIPS * STRIP];
  for (int64_t done = 0; done < count;) {
    int width = strips_at_once(count - done, count_rows);
    const char *data = w->data + (strip + done) * w->strip_bytes;
    int64_t first = (strip + done) * STRIP, last = first + width * STRIP;
    int64_t skipped = from > first ? from - first : 0;
    int64_t kept = (until < last ? until : last) - first - skipped;
    for (int64_t row = 0; row < count_rows;) {
      int height = count_rows - row >= 4 ? 4 : count_rows - row >= 2 ? 2 : 1;
      const char *x_row = x + row * rows->row_bytes;
      if (w->type == DI_F32)
        tile_LINK_F32(height, width, x_row, rows->row_bytes, data, w->links, sums);
      else if (rows->type == DI_F32)
        tile_LINK_PAIR(height, width, x_row, rows->row_bytes, data, w->links, sums);
      else
        tile_LINK_HALF(height, width, x_row, rows->row_bytes, data, w->links, sums);
      for (int r = 0; r < height; r++)
        di_narrow(sums + r * width * STRIP + skipped, out.type, kept,
                  out.data + (row + r) * out.row_bytes + (first + skipped) * out.element_bytes);
      row += height;
    }
    done += width;
  }
}

/* One row rounded to mxfp8, in fp32 or, as exactly, in bf16. */
static void round_row(const void *from, int64_t type, int64_t width, int64_t to_type, void *to) {
  float group[32];
  for (int64_t i = 0; i < width; i += 32) {
    di_widen((const char *)from + i * bytes_of(type), type, 32, group);
    di_round_mxfp8(group);
    if (to_type == DI_F32)
      memcpy((float *)to + i, group, sizeof group);
    else
      for (int j = 0; j < 32; j++) ((uint16_t *)to)[i + j] = (uint16_t)(di_bits(group[j]) >> 16);
  }
}

/* Rows in the form that tiles read: as they are where possible, else in scratch memory. */
static int prepare_rows(const void *x, int64_t type, int64_t stride, int64_t rows, int64_t width,
                        int64_t w_type, const product_t *product, rows_t *out) {
  int is_half = HAS_PAIR_PRODUCT && w_type == DI_BF16 && (product->rounds || type == DI_BF16);
  int64_t to_type = is_half ? DI_BF16 : DI_F32;
  *out = (rows_t){x, stride * bytes_of(type), to_type, NULL};
  if (!product->rounds && type == to_type) return DI_OK;
  int64_t row_bytes = width * bytes_of(to_type);
  char *to = malloc((size_t)(rows * row_bytes) + 1);
  if (!to) return DI_NO_MEMORY;
  const char *from = x;
#pragma omp parallel for num_threads(product->threads) schedule(static) if (product->threads > 1 && rows > 8)
  for (int64_t row = 0; row < rows; row++) {
    const char *source = from + row * stride * bytes_of(type);
    if (product->rounds)
      round_row(source, type, width, to_type, to + row * row_bytes);
    else
      di_widen(source, type, width, (float *)(to + row * row_bytes));
  }
  *out = (rows_t){to, row_bytes, to_type, to};
  return DI_OK;
}

/* out[t, g * n + i] = sum over j of weight[g * n + i, j] * x[t, g * k + j]. */
DI_EXPORT int di_gemm_dense(const product_t *product, const void *w, int64_t w_type, const void *x,
                            int64_t x_type, int64_t x_stride, int64_t count, void *out,
                            int64_t out_stride) {
  if (!count) return DI_OK;
  int64_t k = product->k, n = product->n, groups = product->groups, threads = product->threads;
  rows_t rows;
  int code = prepare_rows(x, x_type, x_stride, count, groups * k, w_type, product, &rows);
  if (code) return code;
  weight_t weight = describe(w, w_type, k);
  int64_t element_bytes = bytes_of(product->out_type);
  output_t to = {out, product->out_type, out_stride * element_bytes, element_bytes};
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (int64_t group = 0; group < groups; group++) {
    const char *columns = rows.data + group * k * bytes_of(rows.type);
    int64_t from = group * n, until = from + n;
    int64_t first = from / STRIP, end = (until + STRIP - 1) / STRIP;
#pragma omp for schedule(static) nowait
    for (int64_t strip = first; strip < end; strip += MAX_STRIPS) {
      int64_t strips = end - strip < MAX_STRIPS ? end - strip : MAX_STRIPS;
      multiply(columns, &rows, count, &weight, strip, strips, from, until, to);
    }
  }
  free(rows.scratch);
  return DI_OK;
}
DI_CALLED(di_gemm_dense, P(0), P(1), L(2), P(3), L(4), L(5), L(6), P(7), L(8))

/* Rows ends[e - 1] up to ends[e] with the matrix of expert e; the others are left alone. */
DI_EXPORT int di_gemm_experts(const product_t *product, const void *w, int64_t w_type, const void *x,
                              int64_t x_type, int64_t x_stride, const int64_t *ends,
                              int64_t experts, void *out, int64_t out_stride) {
  int64_t count = experts ? ends[experts - 1] : 0;
  if (!count) return DI_OK;
  int64_t n = product->n, threads = product->threads, strips = (n + STRIP - 1) / STRIP;
  rows_t rows;
  int code = prepare_rows(x, x_type, x_stride, count, product->k, w_type, product, &rows);
  if (code) return code;
  int64_t element_bytes = bytes_of(product->out_type), row_bytes = out_stride * element_bytes;
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (int64_t expert = 0; expert < experts; expert++) {
    int64_t start = expert ? ends[expert - 1] : 0, own = ends[expert] - start;
    if (own <= 0) continue;
    weight_t weight = describe(w, w_type, product->k);
    weight.data += expert * strips * weight.strip_bytes;
    output_t to = {(char *)out + start * row_bytes, product->out_type, row_bytes, element_bytes};
#pragma omp for schedule(static) nowait
    for (int64_t strip = 0; strip < strips; strip += MAX_STRIPS) {
      int64_t some = strips - strip < MAX_STRIPS ? strips - strip : MAX_STRIPS;
      multiply(rows.data + start * rows.row_bytes, &rows, own, &weight, strip, some, 0, n, to);
    }
  }
  free(rows.scratch);
  return DI_OK;
}
DI_CALLED(di_gemm_experts, P(0), P(1), L(2), P(3), L(4), L(5), P(6), L(7), P(8), L(9))
