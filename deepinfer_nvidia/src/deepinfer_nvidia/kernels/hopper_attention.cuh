// Sparse attention of one row and 64 heads of 512 channels over its listed keys, for SM90.
//
// Four warpgroups. Two gather keys, widen them to bf16 and leave tiles of 64 keys in shared memory,
// two tiles deep. The third scores a tile, keeps the online softmax and blends the first half of the
// channels; the fourth blends the second half with the weights that the third leaves in shared
// memory. Keys are listed and taken as attention_sparse.py says; every sum has one order.
//
// A tile of 64 keys, the queries and the weights have the layout that the matrix unit reads with its
// 128-byte swizzle: blocks of 64 channels; in a block 128 bytes a row, whose eight 16-byte pieces
// stand at their number exclusive-or the last three bits of the row.
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/barrier.h>
#include <tl_templates/cuda/intrin.h>
#include <tl_templates/cuda/instruction/wgmma.h>

namespace deepinfer {

enum Format { kNone = 0, kBf16 = 1, kMxfp8 = 2, kFp4 = 3 };

constexpr int kTile = 64, kThreads = 512, kBlockBytes = 8192, kTileBytes = 65536;
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

// ---- the list of keys -----------------------------------------------------------------------

template <int kRowsPerPage, int kRowBytes> TL_DEVICE int64_t place_of(const Source &from, uint32_t slot) {
  if constexpr (kRowsPerPage == 0) return (int64_t)slot * kRowBytes;
  const uint32_t page = slot / kRowsPerPage, row = slot % kRowsPerPage;
  return page * from.stride_bytes + row * kRowBytes;
}

// The gathering warps move the byte offsets of present keys together, source after source.
template <int F0, int F1, int C0, int C1, int R0, int R1>
TL_DEVICE void list_keys(const Source &s0, const Source &s1, int64_t row, Shared *shared,
                         int64_t *list, int (&count)[2]) {
  constexpr int kChunks0 = C0 / 32, kChunks = (C0 + C1) / 32, kTurns = (kChunks + 7) / 8;
  const int warp = threadIdx.x / 32 - 8, lane = threadIdx.x % 32;
  int64_t slot[kTurns];
  uint32_t present[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; i++) {
    const int chunk = i * 8 + warp;
    const bool is_first = chunk < kChunks0;
    const int at = (is_first ? chunk : chunk - kChunks0) * 32 + lane;
    const int64_t *from = is_first ? s0.slot + row * s0.list_stride : s1.slot + row * s1.list_stride;
    slot[i] = chunk < kChunks && at < (is_first ? s0.length : s1.length) ? from[at] : -1;
  }
#pragma unroll
  for (int i = 0; i < kTurns; i++) {
    const int chunk = i * 8 + warp;
    present[i] = __ballot_sync(~0u, slot[i] >= 0);
    if (lane == 0 && chunk < kChunks) shared->chunk_count[chunk] = __popc(present[i]);
  }
  sync_gatherers();
  int in_first = 0, in_second = 0;
  for (int c = lane; c < kChunks; c += 32)
    (c < kChunks0 ? in_first : in_second) += shared->chunk_count[c];
  count[0] = same_in_all_lanes(__reduce_add_sync(~0u, in_first));
  count[1] = same_in_all_lanes(__reduce_add_sync(~0u, in_second));
#pragma unroll
  for (int i = 0; i < kTurns; i++) {
    const int chunk = i * 8 + warp;
    const bool is_first = chunk < kChunks0;
    int before = 0;
    for (int c = lane; c < kChunks; c += 32)
      if (c < chunk && (c < kChunks0) == is_first) before += shared->chunk_count[c];
    before = __reduce_add_sync(~0u, before) + __popc(present[i] & ((1u << lane) - 1));
    if (slot[i] >= 0)
      list[(is_first ? 0 : C0) + before] =
          is_first ? place_of<R0, row_bytes(F0)>(s0, (uint32_t)slot[i])
                   : place_of<R1, row_bytes(F1)>(s1, (uint32_t)slot[i]);
  }
  if (threadIdx.x == 256) shared->count[0] = count[0], shared->count[1] = count[1];
  asm volatile("bar.arrive 2, 512;" ::: "memory");
  sync_gatherers();
}

// The multiplying warps wait for their queries, and for the numbers of keys.
TL_DEVICE Tiles wait_for_start(const Shared *shared) {
  asm volatile("cp.async.wait_all;" ::: "memory");
  tl::fence_proxy_async();
  asm volatile("bar.sync 2, 512;" ::: "memory");
  const int count0 = same_in_all_lanes(shared->count[0]);
  const int count1 = same_in_all_lanes(shared->count[1]);
  const int first = (count0 + kTile - 1) / kTile;
  return {first, count0, count1, first + (count1 + kTile - 1) / kTile - 1};
}

// ---- gathering and widening -----------------------------------------------------------------

TL_DEVICE uint32_t twice(uint32_t bf16) { return __byte_perm(bf16, 0, 0x1010); }

// bf16 of two to a power, in both halves.
__host__ __device__ constexpr uint32_t power(int exponent) { return (uint32_t)(exponent + 127) * 0x00800080u; }

// Two e4m3 in the upper bytes of the halves of t, as bf16 times 2^-120.
TL_DEVICE uint32_t spread_e4m3(uint32_t t) { return (t & 0x80008000) | ((t >> 4) & 0x07F007F0); }

// Four e4m3 times 2^-120 times a factor, as bf16.
TL_DEVICE void widen_e4m3(uint32_t x, uint32_t factor, uint32_t &a, uint32_t &b) {
#ifdef DEEPINFER_ABLATE_WIDEN
  a = x & 0x3FFF3FFF, b = a ^ factor;
  return;
#endif
  a = times(spread_e4m3(__byte_perm(x, 0, 0x1404)), factor);
  b = times(spread_e4m3(__byte_perm(x, 0, 0x3424)), factor);
}

TL_DEVICE uint32_t nan_e4m3(uint32_t x) { return (x & 0x7F7F7F7F) + 0x01010101; }

// Eight e2m1 times 2^-126 times a factor, as bf16.
TL_DEVICE uint4 widen_e2m1(uint32_t x, uint32_t factor) {
  uint32_t w[4];  // channels i and i + 4
  w[0] = ((x << 12) & 0x80008000) | ((x << 6) & 0x01C001C0);
  w[1] = ((x << 8) & 0x80008000) | ((x << 2) & 0x01C001C0);
  w[2] = ((x << 4) & 0x80008000) | ((x >> 2) & 0x01C001C0);
  w[3] = (x & 0x80008000) | ((x >> 6) & 0x01C001C0);
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = times(w[i], factor);
  return make_uint4(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410),
                    __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
}

TL_DEVICE uint4 times_all(uint4 v, uint32_t factor) {
  return make_uint4(times(v.x, factor), times(v.y, factor), times(v.z, factor), times(v.w, factor));
}

// Keeps what is computed from x out of the registers that live through a loop.
template <typename X> TL_DEVICE void forget(X &x) { asm volatile("" : "+r"(x)); }

// How a thread of the gathering warps takes part in a tile of a format. Warp w has keys 8w to 8w + 7;
// eight neighbouring lanes store to eight different pieces. The load of a group of keys follows the
// store of the same group of the tile before; registers are short, because a spilled one would share
// the wait for the loads.
//
// Scales that bf16 cannot hold together with the 2^120 or 2^126 that spread bits lack are multiplied
// in a second step, which all lanes of a warp take or skip for a whole tile.
template <int kFormat> struct Gather;

template <> struct Gather<kMxfp8> {
  static constexpr int kGroups = 4;
  uint4 raw[kGroups][2];    // pieces p and p + 16 of a key
  uint32_t scales, coming;  // four of the 16 of key lane / 4, and of that of the next tile
  uint32_t lane, to, from, selector, turn;
  bool is_large;

  TL_DEVICE void begin() {
    lane = threadIdx.x % 32;
    const uint32_t odd = lane >> 2 & 1;
    to = (lane >> 3) * kBlockBytes + odd * 128;
    turn = ((lane & 3) * 2 ^ odd) << 4;
    from = odd * 4 + (lane >> 4);
    selector = 0x4440 | (lane >> 2 & 2) | (lane >> 1 & 1);
  }
  TL_DEVICE int key(int j) const { return j * 2 + (lane >> 2 & 1); }
  TL_DEVICE void load(int j, const uint8_t *row) {
    row += (lane >> 3) * 64 + (lane & 3) * 16;
    raw[j][0] = load16(row);
    raw[j][1] = load16(row + 256);
  }
  TL_DEVICE int key_of_scales() const { return lane / 4; }
  TL_DEVICE void load_scales(const uint8_t *row) {
    coming = __ldg((const uint32_t *)(row + 512) + (lane & 3));
  }
  TL_DEVICE void take_scales() {  // is a byte above 134?
    scales = __shfl_sync(~0u, coming, lane);  // no copy, which would wait for it a tile early
    is_large = __any_sync(~0u, ((scales & 0x7F7F7F7F) + 0x79797979) & scales & 0x80808080);
  }
  TL_DEVICE void store(int j, uint32_t rows) {
    forget(turn), forget(from);
    const uint32_t address = rows + to + (turn ^ j << 5) + j * 256;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t s = __shfl_sync(~0u, scales, from + j * 8 + i * 2);
      s = __byte_perm(s, 0, selector);
      const uint4 x = raw[j][i];
      uint32_t factor = twice(is_large ? power(120) & 0xFFFF : (s + 120) << 7);
      const uint32_t nan = nan_e4m3(x.x) | nan_e4m3(x.y) | nan_e4m3(x.z) | nan_e4m3(x.w);
      if (nan & 0x80808080) factor = 0x7FC07FC0;
      uint4 low, high;
      widen_e4m3(x.x, factor, low.x, low.y);
      widen_e4m3(x.y, factor, low.z, low.w);
      widen_e4m3(x.z, factor, high.x, high.y);
      widen_e4m3(x.w, factor, high.z, high.w);
      if (is_large) {  // scale 0 is 2^-127; scale 255 is infinite here, which shows as well as NaN
        const uint32_t more = twice(max(s << 7, 0x0040u));
        low = times_all(low, more), high = times_all(high, more);
      }
      store16(address + i * 4 * kBlockBytes, low);
      store16((address ^ 16) + i * 4 * kBlockBytes, high);
    }
  }
};

template <> struct Gather<kFp4> {
  static constexpr int kGroups = 2;
  uint4 raw[kGroups][2];  // pieces p and p + 8 of a key
  uint32_t scale[kGroups][2];
  uint32_t lane, to, turn;
  bool is_large;

  TL_DEVICE void begin() {
    lane = threadIdx.x % 32;
    const uint32_t r = lane >> 1 & 3;
    to = (lane >> 3) * kBlockBytes + r * 128;
    turn = ((lane & 1) * 4 ^ r) << 4;
  }
  TL_DEVICE int key(int j) const { return j * 4 + (lane >> 1 & 3); }
  TL_DEVICE void load(int j, const uint8_t *row) {
    const uint32_t piece = (lane >> 3) * 2 + (lane & 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      raw[j][i] = load16(row + piece * 16 + i * 128);
      scale[j][i] = __ldg((const unsigned short *)(row + 256) + piece + i * 8);
    }
  }
  TL_DEVICE int key_of_scales() const { return 0; }
  TL_DEVICE void load_scales(const uint8_t *) {}
  TL_DEVICE void take_scales() {
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < kGroups; j++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        largest = max(largest, max(scale[j][i] & 0x7F, scale[j][i] >> 8 & 0x7F));
    is_large = __any_sync(~0u, largest >= 0x48);  // e4m3 of 4
  }
  TL_DEVICE void store(int j, uint32_t rows) {
    forget(turn);
    const uint32_t address = rows + to + (turn ^ j << 6) + j * 512;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t pair = __byte_perm(scale[j][i], 0, 0x1404);
      uint32_t s = times(spread_e4m3(pair), power(120));
      s = times(s, is_large ? power(117) : power(126));
      if ((pair & 0x7F00) == 0x7F00) s = (s & 0xFFFF0000) | 0x7FC0;
      if ((pair & 0x7F000000) == 0x7F000000) s = (s & 0xFFFF) | 0x7FC00000;
      const uint32_t s0 = __byte_perm(s, 0, 0x1010), s1 = __byte_perm(s, 0, 0x3232);
      const uint32_t words[4] = {raw[j][i].x, raw[j][i].y, raw[j][i].z, raw[j][i].w};
#pragma unroll
      for (int p = 0; p < 4; p++) {
        uint4 v = widen_e2m1(words[p], p < 2 ? s0 : s1);
        if (is_large) v = times_all(v, power(9));
        store16((address ^ p << 4) + i * 4 * kBlockBytes, v);
      }
    }
  }
};

// Tells the consumers that this thread's part of a tile is there.
template <bool kByThread> TL_DEVICE void announce(uint64_t &barrier) {
  tl::fence_proxy_async();
  if constexpr (kByThread) {
    tl::mbarrier_arrive(barrier);
  } else {
    __syncwarp();
    if (threadIdx.x % 32 == 0) tl::mbarrier_arrive(barrier);
  }
}

// All tiles of one source. `tile` counts over sources.
template <int kFormat, bool kByThread>
TL_DEVICE void gather_source(const uint8_t *pages, const int64_t *list, int count, Shared *shared,
                             uint32_t smem, int &tile) {
  const int warp = (threadIdx.x - 256) / 32, lane = threadIdx.x % 32;
  const int tiles = (count + kTile - 1) / kTile;
  if constexpr (kFormat == kBf16) {
    for (int t = 0; t < tiles; t++, tile++) {
      const int stage = tile & 1;
      tl::mbarrier_wait(shared->free[stage], (tile >> 1 & 1) ^ 1);
      const uint32_t to = smem + kKeyAt + stage * kTileBytes + (lane >> 3) * kBlockBytes;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const int r = warp * 8 + j;
        const uint8_t *row = pages + list[min(t * kTile + r, count - 1)];
#pragma unroll
        for (int half = 0; half < 2; half++)
          copy16(to + half * 4 * kBlockBytes + r * 128 + (((lane & 7) ^ j) << 4),
                 row + half * 512 + lane * 16);
      }
      tl::mbarrier_cp_async_arrive_noinc(shared->full[stage]);
    }
  } else if constexpr (kFormat != kNone) {
    using G = Gather<kFormat>;
    G held;
    held.begin();
    const int last = count - 1;
    int next = warp * 8;
    if (tiles > 0) {
      held.load_scales(pages + list[min(next + held.key_of_scales(), last)]);
#pragma unroll
      for (int j = 0; j < G::kGroups; j++)
        held.load(j, pages + list[min(next + held.key(j), last)]);
    }
    for (int t = 0; t < tiles; t++, tile++) {
      const int stage = tile & 1;
      const uint32_t rows = smem + kKeyAt + stage * kTileBytes + warp * 1024;
      next += kTile;
      tl::mbarrier_wait(shared->free[stage], (tile >> 1 & 1) ^ 1);
      held.take_scales();
      if (t + 1 < tiles) held.load_scales(pages + list[min(next + held.key_of_scales(), last)]);
#pragma unroll
      for (int j = 0; j < G::kGroups; j++) {
        const int64_t at = list[min(next + held.key(j), last)];
        held.store(j, rows);
        if (t + 1 < tiles) held.load(j, pages + at);
      }
      announce<kByThread>(shared->full[stage]);
    }
  }
}

// ---- matrix products ------------------------------------------------------------------------

TL_DEVICE void score_tile(float (&score)[32], uint32_t q, uint32_t key) {
#ifdef DEEPINFER_ABLATE_MMA
  return;
#endif
  asm volatile("" : "+r"(q), "+r"(key));  // or descriptors are kept over the loop, and spilled
#pragma unroll
  for (int k = 0; k < 32; k++) {
    const int at = (k >> 2) * kBlockBytes + (k & 3) * 32;
    tl::wgmma_ss<tl::DataType::kBFloat16, tl::DataType::kBFloat16, tl::DataType::kFloat32, 64, 64, 16,
                 false, false, 1, 1>(operand(q, 1, at), operand(key, 1, at), (uint32_t *)score,
                                     k != 0);
  }
}

// The instruction for 256 channels needs more registers than 512 threads can start with.
TL_DEVICE void blend_from_registers(float (&blend)[128], const uint32_t (&weight)[16], uint32_t key) {
#ifdef DEEPINFER_ABLATE_MMA
  return;
#endif
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      tl::wgmma_rs<tl::DataType::kBFloat16, tl::DataType::kBFloat16, tl::DataType::kFloat32, 64, 128,
                   16, false, true, 1, 1>(
          weight + 4 * k, operand(key, 512, k * 2048 + half * 2 * kBlockBytes),
          (uint32_t *)blend + half * 64, true);
}

TL_DEVICE void blend_from_shared(float (&blend)[128], uint32_t weight, uint32_t key) {
#ifdef DEEPINFER_ABLATE_MMA
  return;
#endif
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      tl::wgmma_ss<tl::DataType::kBFloat16, tl::DataType::kBFloat16, tl::DataType::kFloat32, 64, 128,
                   16, false, true, 1, 1>(operand(weight, 1, k * 32),
                                          operand(key, 512, k * 2048 + half * 2 * kBlockBytes),
                                          (uint32_t *)blend + half * 64, true);
}

TL_DEVICE void rescale(float (&blend)[128], float a, float b) {
  if (__any_sync(~0u, a != 1.f || b != 1.f)) {
#pragma unroll
    for (int i = 0; i < 128; i += 4) {
      blend[i] *= a, blend[i + 1] *= a;
      blend[i + 2] *= b, blend[i + 3] *= b;
    }
  }
}

// Scales, rounds, and writes 16 heads of 256 channels; `scratch` belongs to this warp.
TL_DEVICE void write_out(const float (&blend)[128], float a, float b, uint32_t scratch,
                         bfloat16_t *out) {
  const int lane = threadIdx.x % 32, r = lane / 4;
#pragma unroll
  for (int j = 0; j < 32; j++) {
    const uint32_t at = scratch + r * 512 + ((j ^ r) << 4) + (lane & 3) * 4;
    store4(at, pack(blend[4 * j] * a, blend[4 * j + 1] * a));
    store4(at + 8 * 512, pack(blend[4 * j + 2] * b, blend[4 * j + 3] * b));
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 16; r++) {
    const uint4 v = load16_shared(scratch + r * 512 + ((lane ^ (r & 7)) << 4));
    *(uint4 *)(out + r * 512 + lane * 8) = v;
  }
}

// Weighs the scores of a tile in place, as packed bf16 too; updates maximum, sum and change.
TL_DEVICE void weigh(float (&score)[32], uint32_t (&weight)[16], int valid, float factor,
                     float (&largest)[2], float (&total)[2], float (&change)[2]) {
  const int lane = threadIdx.x % 32;
  if (valid < kTile) {
#pragma unroll
    for (int i = 0; i < 32; i++)
      if ((i >> 2) * 8 + (lane & 3) * 2 + (i & 1) >= valid) score[i] = -INFINITY;
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float most = largest[h];
#pragma unroll
    for (int j = 0; j < 8; j++) most = fmaxf(most, fmaxf(score[4 * j + 2 * h], score[4 * j + 2 * h + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    change[h] = exp2_fast((largest[h] - most) * factor);
    largest[h] = most;
    const float shift = -most * factor;
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const float a = exp2_fast(fmaf(score[4 * j + 2 * h], factor, shift));
      const float b = exp2_fast(fmaf(score[4 * j + 2 * h + 1], factor, shift));
      sum += a + b;
      weight[2 * j + h] = pack(a, b);
    }
    total[h] = total[h] * change[h] + sum;
  }
}

// ---- the kernel -----------------------------------------------------------------------------

// Leaves weights and change of a tile to the other warpgroup.
TL_DEVICE void hand_over(int tile, uint32_t smem, Shared *shared, const uint32_t (&weight)[16],
                         const float (&change)[2]) {
  const int lane = threadIdx.x % 32, r = threadIdx.x / 32 * 16 + lane / 4, stage = tile & 1;
  tl::mbarrier_wait(shared->weight_free[stage], (tile >> 1 & 1) ^ 1);
  const uint32_t to = smem + kWeightAt + stage * 8192 + r * 128 + (lane & 3) * 4;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    store4(to + ((j ^ (r & 7)) << 4), weight[2 * j]);
    store4(to + 8 * 128 + ((j ^ (r & 7)) << 4), weight[2 * j + 1]);
  }
  if ((lane & 3) == 0) shared->change[stage][r] = change[0], shared->change[stage][r + 8] = change[1];
  announce<false>(shared->weight_full[stage]);
}

TL_DEVICE void wait_for_keys(int tile, Shared *shared) {
  tl::mbarrier_wait(shared->full[tile & 1], tile >> 1 & 1);
  tl::fence_proxy_async();
}

TL_DEVICE void score_and_blend(uint8_t *raw, Shared *shared, float factor, const float *sink,
                               bfloat16_t *out, float *lse) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = warp * 16 + lane / 4;
  const uint32_t smem = smem_address(raw);
  float blend[128], score[32], change[2], total[2] = {0.f, 0.f}, largest[2] = {-INFINITY, -INFINITY};
  uint32_t weight[16];
#pragma unroll
  for (int i = 0; i < 128; i++) blend[i] = 0.f;
  const Tiles tiles = wait_for_start(shared);
  const int last = tiles.last;
  if (last >= 0) {
    wait_for_keys(0, shared);
    tl::warpgroup_fence_operand(score, 32);
    tl::warpgroup_arrive();
    score_tile(score, smem, smem + kKeyAt);
    tl::warpgroup_commit_batch();
    tl::warpgroup_wait<0>();
    tl::warpgroup_fence_operand(score, 32);
    for (int tile = 0; tile < last; tile++) {
      const uint32_t key = smem + kKeyAt + (tile & 1) * kTileBytes;
      const uint32_t next_key = smem + kKeyAt + (tile & 1 ^ 1) * kTileBytes;
      weigh(score, weight, tiles.valid(tile), factor, largest, total, change);
      hand_over(tile, smem, shared, weight, change);
      rescale(blend, change[0], change[1]);
      tl::warpgroup_fence_operand(blend, 128);
      tl::warpgroup_fence_operand(weight, 16);
      tl::warpgroup_fence_operand(score, 32);
      tl::warpgroup_arrive();
      blend_from_registers(blend, weight, key);
      tl::warpgroup_commit_batch();
      wait_for_keys(tile + 1, shared);
      tl::warpgroup_arrive();
      score_tile(score, smem, next_key);
      tl::warpgroup_commit_batch();
      tl::warpgroup_wait<1>();
      if (lane == 0) tl::mbarrier_arrive(shared->free[tile & 1]);
      tl::warpgroup_wait<0>();
      tl::warpgroup_fence_operand(blend, 128);
      tl::warpgroup_fence_operand(score, 32);
    }
    weigh(score, weight, tiles.valid(last), factor, largest, total, change);
    hand_over(last, smem, shared, weight, change);
    rescale(blend, change[0], change[1]);
    tl::warpgroup_fence_operand(blend, 128);
    tl::warpgroup_arrive();
    blend_from_registers(blend, weight, smem + kKeyAt + (last & 1) * kTileBytes);
    tl::warpgroup_commit_batch();
    tl::warpgroup_wait<0>();
    tl::warpgroup_fence_operand(blend, 128);
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float sum = total[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const bool is_empty = last < 0;
    const float most = largest[h] * factor;
    total[h] = is_empty ? 0.f : 1.f / (sum + exp2f(sink[r + 8 * h] * 1.4426950408889634f - most));
    if ((lane & 3) == 0) {
      shared->factor[r + 8 * h] = total[h];
      lse[r + 8 * h] = is_empty ? INFINITY : most * 0.6931471805599453f + logf(sum);
    }
  }
  asm volatile("bar.sync 1, 256;" ::: "memory");
  write_out(blend, total[0], total[1], smem + warp * 8192, out + warp * 16 * 512);
}

TL_DEVICE void blend_second_half(uint8_t *raw, Shared *shared, bfloat16_t *out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, r = warp * 16 + lane / 4;
  const uint32_t smem = smem_address(raw);
  float blend[128];
#pragma unroll
  for (int i = 0; i < 128; i++) blend[i] = 0.f;
  const int last = wait_for_start(shared).last;
  for (int tile = 0; tile <= last; tile++) {
    const int stage = tile & 1, turn = tile >> 1 & 1;
    tl::mbarrier_wait(shared->full[stage], turn);
    tl::mbarrier_wait(shared->weight_full[stage], turn);
    tl::fence_proxy_async();
    rescale(blend, shared->change[stage][r], shared->change[stage][r + 8]);
    tl::warpgroup_fence_operand(blend, 128);
    tl::warpgroup_arrive();
    blend_from_shared(blend, smem + kWeightAt + stage * 8192,
                      smem + kKeyAt + stage * kTileBytes + 4 * kBlockBytes);
    tl::warpgroup_commit_batch();
    tl::warpgroup_wait<0>();
    tl::warpgroup_fence_operand(blend, 128);
    __syncwarp();
    if (lane == 0) {
      tl::mbarrier_arrive(shared->weight_free[stage]);
      tl::mbarrier_arrive(shared->free[stage]);
    }
  }
  asm volatile("bar.sync 1, 256;" ::: "memory");
  write_out(blend, shared->factor[r], shared->factor[r + 8], smem + 32768 + warp * 8192,
            out + warp * 16 * 512 + 256);
}

// All 256 multiplying threads.
TL_DEVICE void load_queries(const bfloat16_t *q, uint32_t smem) {
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int at = i * 256 + threadIdx.x, r = at >> 6, c = at & 63;
    copy16(smem + (c >> 3) * kBlockBytes + r * 128 + (((c & 7) ^ (r & 7)) << 4), q + at * 8);
  }
}

template <int kHeads, int F0, int C0, int R0, int F1, int C1, int R1>
TL_DEVICE void attend(uint8_t *raw, const bfloat16_t *q, Source s0, Source s1, const float *sink,
                      bfloat16_t *out, float *lse, float factor) {
  constexpr bool kByThread = F0 == kBf16 || F1 == kBf16;
  const int64_t row = blockIdx.x, first_head = blockIdx.y * 64;
  const uint32_t smem = smem_address(raw);
  Shared *shared = (Shared *)(raw + kSmallAt);
  int64_t *list = (int64_t *)(raw + kListAt);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      tl::mbarrier_init(shared->full[i], kByThread ? 256 : 8);
      tl::mbarrier_init(shared->free[i], 8);
      tl::mbarrier_init(shared->weight_full[i], 4);
      tl::mbarrier_init(shared->weight_free[i], 4);
    }
    tl::fence_barrier_init();
  }
  __syncthreads();
  const int64_t first = row * kHeads + first_head;
  if (threadIdx.x >= 256) {
    tl::warpgroup_reg_dealloc<GATHERER_REGISTERS>();
    int count[2], tile = 0;
    list_keys<F0, F1, C0, C1, R0, R1>(s0, s1, row, shared, list, count);
    gather_source<F0, kByThread>(s0.pages, list, count[0], shared, smem, tile);
    gather_source<F1, kByThread>(s1.pages, list + C0, count[1], shared, smem, tile);
  } else if (threadIdx.x < 128) {
    tl::warpgroup_reg_alloc<SCORER_REGISTERS>();
    load_queries(q + first * 512, smem);
    score_and_blend(raw, shared, factor, sink + first_head, out + first * 512, lse + first);
  } else {
    tl::warpgroup_reg_alloc<BLENDER_REGISTERS>();
    load_queries(q + first * 512, smem);
    blend_second_half(raw, shared, out + first * 512);
  }
}

}  // namespace deepinfer
