// Where everything lies in shared memory, and single instructions under names.
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/barrier.h>
#include <tl_templates/cuda/intrin.h>
#include <tl_templates/cuda/instruction/wgmma.h>

namespace deepinfer {

enum Format { kNone = 0, kBf16 = 1, kMxfp8 = 2, kFp4 = 3 };

constexpr int kTile = 64, kBlockBytes = 8192, kTileBytes = 65536;
constexpr int kKeyAt = 65536, kWeightAt = kKeyAt + 2 * kTileBytes, kSmallAt = kWeightAt + 2 * 8192;
constexpr int kListAt = kSmallAt + 2048;

__host__ __device__ constexpr int row_bytes(int format) {
  return format == kMxfp8 ? 528 : format == kFp4 ? 288 : 1024;
}

// What the warpgroups tell each other; at kSmallAt.
struct Shared {
  uint64_t full[2], free[2], weight_full[2], weight_free[2];
  float change[2][64];
  float factor[64];
  int count[2];
  int chunk_count[64];
};
static_assert(sizeof(Shared) <= 2048);

// The tiles of a row: `first` of the first source, and the number of the last one.
struct Tiles {
  int first, count0, count1, last;
  TL_DEVICE int valid(int tile) const {
    return tile < first ? count0 - tile * kTile : count1 - (tile - first) * kTile;
  }
};

// One key source.
struct Source {
  const uint8_t *pages;
  const int64_t *slot;
  int64_t stride_bytes;
  int length, list_stride;
};

TL_DEVICE uint32_t smem_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Descriptor of a matrix operand `offset` bytes behind an address; the same in all lanes.
TL_DEVICE uint64_t operand(uint32_t address, uint32_t leading, uint32_t offset) {
  const uint32_t low = leading << 16 | ((address & 0x3FFFF) >> 4);
  return (1ull << 62) | (64ull << 32) | (low + (offset >> 4));
}

TL_DEVICE void sync_gatherers() { asm volatile("bar.sync 3, 256;" ::: "memory"); }

TL_DEVICE int same_in_all_lanes(int x) { return __shfl_sync(~0u, x, 0); }

TL_DEVICE void store16(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
TL_DEVICE void store4(uint32_t address, uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
TL_DEVICE uint4 load16_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
TL_DEVICE uint4 load16(const void *p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
TL_DEVICE void copy16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
TL_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TL_DEVICE uint32_t pack(float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
TL_DEVICE uint32_t times(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}

}  // namespace deepinfer
