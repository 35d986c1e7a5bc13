/* Rows go into cache pages and come out of them, and pairs of tokens are blended.
 *
 * Shapes: T rows, D width.
 */
#include "calls.h"
#include "formats.h"
#include "lanes.h"

/* Encode rows [rows, width] into their slots; slot -1 skips a row. */
DI_EXPORT int di_store_rows(const void *x, int64_t type, int64_t rows, const int64_t *slot,
                            char *data, int64_t stride, int64_t rows_per_page, int64_t width,
                            int64_t format, int64_t scales_apart) {
  const di_pages pages = {data, stride, rows_per_page, width, format, scales_apart};
  int64_t size = type == DI_F32 ? 4 : 2;
  float *wide = malloc((size_t)(width + 1) * sizeof *wide);
  if (!wide) return DI_NO_MEMORY;
  for (int64_t t = 0; t < rows; t++) {
    if (slot[t] < 0) continue;
    di_widen((const char *)x + t * width * size, type, width, wide);
    di_encode_row(format, wide, width, di_place_of(&pages, slot[t]));
  }
  free(wide);
  return DI_OK;
}
DI_CALLED(di_store_rows, P(0), L(1), L(2), P(3), P(4), L(5), L(6), L(7), L(8), L(9))

/* Decode the rows of slots; slot -1 gives zeros. */
DI_EXPORT int di_load_rows(char *data, int64_t stride, int64_t rows_per_page, int64_t width,
                           int64_t format, int64_t scales_apart, const int64_t *slot, int64_t rows,
                           void *out, int64_t out_type) {
  const di_pages pages = {data, stride, rows_per_page, width, format, scales_apart};
  int64_t size = out_type == DI_F32 ? 4 : 2;
  float *wide = malloc((size_t)(width + 1) * sizeof *wide);
  if (!wide) return DI_NO_MEMORY;
  for (int64_t t = 0; t < rows; t++) {
    if (slot[t] < 0)
      memset(wide, 0, (size_t)width * sizeof *wide);
    else
      di_decode_row(format, di_place_of(&pages, slot[t]), width, wide);
    di_narrow(wide, out_type, width, (char *)out + t * width * size);
  }
  free(wide);
  return DI_OK;
}
DI_CALLED(di_load_rows, P(0), L(1), L(2), L(3), L(4), L(5), P(6), L(7), P(8), L(9))

DI_INLINE void blend(const float *gate, const float *value, const float *first_gate,
                     const float *first_value, int64_t width, void *out, int64_t out_type) {
  for (int64_t at = 0; at < width; at += DI_LANES) {
    di_vf a = di_take_some(first_gate, DI_F32, at, width), b = di_take_some(gate, DI_F32, at, width);
    di_vf largest = di_pick(a > b, a, b);
    di_vf first = di_exp(a - largest), second = di_exp(b - largest);
    di_vf sum = first * di_take_some(first_value, DI_F32, at, width) +
                second * di_take_some(value, DI_F32, at, width);
    di_put_some(sum / (first + second), out, out_type, at, width);
  }
}

/* Weigh each row with the row before it by the softmax of their gates, channel by channel; then keep
 * the rows that have a slot. Pages hold gate, then value: rows of 2 * width. */
DI_EXPORT int di_compress_pairs(const float *value, const float *gate, int64_t rows, int64_t width,
                                const int64_t *slot, const int64_t *partner_slot,
                                const int64_t *partner_row, char *data, int64_t stride,
                                int64_t rows_per_page, int64_t format, int64_t scales_apart,
                                void *out, int64_t out_type) {
  const di_pages pages = {data, stride, rows_per_page, 2 * width, format, scales_apart};
  int64_t size = out_type == DI_F32 ? 4 : 2;
  float *kept = malloc((size_t)(2 * width + 1) * sizeof *kept);
  if (!kept) return DI_NO_MEMORY;
  for (int64_t t = 0; t < rows; t++) {
    const float *first_gate = kept, *first_value = kept + width;
    if (partner_row[t] >= 0) {
      first_gate = gate + partner_row[t] * width;
      first_value = value + partner_row[t] * width;
    } else if (partner_slot[t] >= 0) {
      di_decode_row(format, di_place_of(&pages, partner_slot[t]), 2 * width, kept);
    } else {
      memset(kept, 0, (size_t)(2 * width) * sizeof *kept);
    }
    blend(gate + t * width, value + t * width, first_gate, first_value, width,
          (char *)out + t * width * size, out_type);
  }
  for (int64_t t = 0; t < rows; t++) {
    if (slot[t] < 0) continue;
    memcpy(kept, gate + t * width, (size_t)width * sizeof *kept);
    memcpy(kept + width, value + t * width, (size_t)width * sizeof *kept);
    di_encode_row(format, kept, 2 * width, di_place_of(&pages, slot[t]));
  }
  free(kept);
  return DI_OK;
}
DI_CALLED(di_compress_pairs, P(0), P(1), L(2), L(3), P(4), P(5), P(6), P(7), L(8), L(9), L(10),
          L(11), P(12), L(13))

/* Slots of entries, of lists [rows, length], of the rows' sequences; -1 stays. */
DI_EXPORT int di_entry_slots(const int64_t *entry, int64_t rows, int64_t length,
                             const int64_t *table, int64_t blocks, const int64_t *sequence,
                             int64_t block_entries, int64_t *slot) {
  for (int64_t t = 0; t < rows; t++) {
    const int64_t *page = table + sequence[t] * blocks;
    int64_t block = 0, first = 0; /* lists ascend, so most entries are in the block of the last */
    for (int64_t i = t * length; i < (t + 1) * length; i++) {
      if (entry[i] < 0) {
        slot[i] = -1;
        continue;
      }
      if ((uint64_t)(entry[i] - first) >= (uint64_t)block_entries) {
        block = entry[i] / block_entries;
        if (block >= blocks) return DI_OUT_OF_RANGE;
        first = block * block_entries;
      }
      slot[i] = entry[i] - first + page[block] * block_entries;
    }
  }
  return DI_OK;
}
DI_CALLED(di_entry_slots, P(0), L(1), L(2), P(3), L(4), P(5), L(6), P(7))
