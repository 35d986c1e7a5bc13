// What the gathering warpgroups do: list a row's keys, gather them, widen them to bf16.
namespace deepinfer {

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

// bf16 of two to a power, in both halves.
__host__ __device__ constexpr uint32_t power(int exponent) { return (uint32_t)(exponent + 127) * 0x00800080u; }

// Two bytes of the eight of x and y, each below a byte that repeats its sign.
template <int kLow, int kHigh> TL_DEVICE uint32_t with_signs(uint32_t x, uint32_t y) {
  uint32_t t;
  asm("prmt.b32 %0, %1, %2, %3;"
      : "=r"(t)
      : "r"(x), "r"(y), "n"(kLow | (8 | kLow) << 4 | kHigh << 8 | (8 | kHigh) << 12));
  return t;
}

// Two e4m3, bytes kByte and kByte + 1 of x, as bf16 times 2^-120.
template <int kByte> TL_DEVICE uint32_t spread_e4m3(uint32_t x) {
  return (with_signs<kByte, kByte + 1>(x, 0) << 4) & 0x87F087F0;
}

// Four e4m3 times 2^-120 times a factor, as bf16.
TL_DEVICE void widen_e4m3(uint32_t x, uint32_t factor, uint32_t &a, uint32_t &b) {
  a = times(spread_e4m3<0>(x), factor);
  b = times(spread_e4m3<2>(x), factor);
}

// Bits 7, 15, 23, 31: is a byte an e4m3 NaN?
TL_DEVICE uint32_t nan_e4m3(uint32_t x) { return (x & 0x7F7F7F7F) + 0x01010101; }

// Two e2m1, both codes of byte kByte of x, as bf16 times 2^-126; `low` is x moved up by a code.
template <int kByte> TL_DEVICE uint32_t spread_e2m1(uint32_t low, uint32_t x) {
  return (with_signs<kByte, 4 + kByte>(low, x) << 2) & 0x81C081C0;
}

// Eight e2m1 times 2^-126 times a factor, as bf16.
TL_DEVICE uint4 widen_e2m1(uint32_t x, uint32_t factor) {
  const uint32_t low = x << 4;
  return make_uint4(times(spread_e2m1<0>(low, x), factor), times(spread_e2m1<1>(low, x), factor),
                    times(spread_e2m1<2>(low, x), factor), times(spread_e2m1<3>(low, x), factor));
}

// Multiplies 16 bytes that this thread has stored.
TL_DEVICE void multiply_stored(uint32_t address, uint32_t factor) {
  const uint4 v = load16_shared(address);
  store16(address, make_uint4(times(v.x, factor), times(v.y, factor), times(v.z, factor),
                              times(v.w, factor)));
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
  uint32_t exponents;       // of the factors that go with these
  uint32_t lane, to, from, selector, turn, nan;
  bool is_large;

  TL_DEVICE void begin() {
    lane = threadIdx.x % 32;
    const uint32_t odd = lane >> 2 & 1;
    to = (lane >> 3) * kBlockBytes + odd * 128;
    turn = ((lane & 3) * 2 ^ odd) << 4;
    from = odd * 4 + (lane >> 4);
    selector = 0x4040 | (lane >> 2 & 2 | lane >> 1 & 1) * 0x101;
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
  TL_DEVICE void start_tile() {  // is a byte above 134?
    scales = __shfl_sync(~0u, coming, lane);  // no copy, which would wait for it a tile early
    is_large = __any_sync(~0u, ((scales & 0x7F7F7F7F) + 0x79797979) & scales & 0x80808080);
    exponents = is_large ? 0xF7F7F7F7 : scales + 0x78787878;
    nan = 0;
  }
  // The byte of piece i of the tile's key j, in both halves.
  TL_DEVICE uint32_t byte_of(uint32_t word, int j, int i) const {
    return __byte_perm(__shfl_sync(~0u, word, from + j * 8 + i * 2), 0, selector);
  }
  TL_DEVICE uint32_t place(int j, uint32_t rows) const { return rows + to + (turn ^ j << 5) + j * 256; }
  TL_DEVICE void store(int j, uint32_t rows) {
    forget(turn), forget(from);
    const uint32_t address = place(j, rows);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t factor = byte_of(exponents, j, i) << 7;
      const uint4 x = raw[j][i];
      nan |= nan_e4m3(x.x) | nan_e4m3(x.y), nan |= nan_e4m3(x.z) | nan_e4m3(x.w);
      uint4 low, high;
      widen_e4m3(x.x, factor, low.x, low.y);
      widen_e4m3(x.y, factor, low.z, low.w);
      widen_e4m3(x.z, factor, high.x, high.y);
      widen_e4m3(x.w, factor, high.z, high.w);
      store16(address + i * 4 * kBlockBytes, low);
      store16((address ^ 16) + i * 4 * kBlockBytes, high);
    }
  }
  TL_DEVICE void finish_tile(uint32_t rows) {
    if (nan & 0x80808080)
      store16(place(0, rows), make_uint4(0x7FC07FC0, 0x7FC07FC0, 0x7FC07FC0, 0x7FC07FC0));
    if (is_large) {
#pragma unroll 1
      for (int k = 0; k < 8; k++) {
        const int j = k >> 1, i = k & 1;
        // scale 0 is 2^-127; scale 255 is infinite here, which shows as well as NaN
        const uint32_t s = byte_of(scales, j, i), more = s == 0 ? 0x00400040 : s << 7;
        const uint32_t address = place(j, rows) + i * 4 * kBlockBytes;
        multiply_stored(address, more);
        multiply_stored(address ^ 16, more);
      }
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
  TL_DEVICE void start_tile() {
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < kGroups; j++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        largest = max(largest, max(scale[j][i] & 0x7F, scale[j][i] >> 8 & 0x7F));
    is_large = __any_sync(~0u, largest >= 0x48);  // e4m3 of 4
  }
  TL_DEVICE uint32_t place(int j, uint32_t rows) const { return rows + to + (turn ^ j << 6) + j * 512; }
  TL_DEVICE void store(int j, uint32_t rows) {
    forget(turn);
    const uint32_t address = place(j, rows);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t s = times(spread_e4m3<0>(scale[j][i]), power(120));
      s = times(s, is_large ? power(117) : power(126));
      if ((scale[j][i] & 0x7F) == 0x7F) s = (s & 0xFFFF0000) | 0x7FC0;
      if ((scale[j][i] & 0x7F00) == 0x7F00) s = (s & 0xFFFF) | 0x7FC00000;
      const uint32_t s0 = __byte_perm(s, 0, 0x1010), s1 = __byte_perm(s, 0, 0x3232);
      const uint32_t words[4] = {raw[j][i].x, raw[j][i].y, raw[j][i].z, raw[j][i].w};
#pragma unroll
      for (int p = 0; p < 4; p++)
        store16((address ^ p << 4) + i * 4 * kBlockBytes, widen_e2m1(words[p], p < 2 ? s0 : s1));
    }
  }
  TL_DEVICE void finish_tile(uint32_t rows) {
    if (is_large) {
#pragma unroll 1
      for (int k = 0; k < 16; k++)
        multiply_stored((place(k >> 3, rows) ^ (k & 3) << 4) + (k >> 2 & 1) * 4 * kBlockBytes, power(9));
    }
  }
};

// Tells the consumers that this thread's part of a tile is there. The matrix unit reads by another
// proxy, so a fence must stand on the way from the stores to its products: stores, arrival (release),
// wait (acquire), fence, product. It is the reader's, who needs it for copied keys too: here it would
// wait for the loads of the next tile, which this thread has just asked for.
template <bool kByThread> TL_DEVICE void announce(uint64_t &barrier) {
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
      held.start_tile();
      if (t + 1 < tiles) held.load_scales(pages + list[min(next + held.key_of_scales(), last)]);
#pragma unroll
      for (int j = 0; j < G::kGroups; j++) {
        const int64_t at = list[min(next + held.key(j), last)];
        held.store(j, rows);
        if (t + 1 < tiles) held.load(j, pages + at);
      }
      held.finish_tile(rows);
      announce<kByThread>(shared->full[stage]);
    }
  }
}

}  // namespace deepinfer
