// How does a Hopper SM multiply rows with MXFP4 expert weights at the rate of its memory?
//
// out^T = W x^T: 64 output channels are the M of one wgmma, the rows of an expert are its N. Packed
// weights travel by bulk copies through a ring in shared memory, are widened to bf16 in registers
// (exact) and enter the tensor core from there. The layout of the packed weights is that of
// deepinfer_nvidia.gemm.packing: for 64 channels and 64 inputs one record of 2048 bytes of codes, in
// the order of the registers, and 128 bytes of scales.
//
// One warp group copies, the others multiply. Work items (a tile of rows, a tile of channels) are
// dealt out in a fixed order, from running ends that live on the device. Where tiles are halved, an
// item of few rows, and one of a last wave that is at most half full, is multiplied with half as many
// rows. Each sum runs over K in ascending order whatever the tile, so a row's bits do not depend on
// the other rows.

namespace deepinfer {

constexpr int kCodeBytes = 2048;               // 64 channels x 64 inputs
constexpr int kRecordBytes = kCodeBytes + 128; // and their scales

// Parts that a probe may leave out, to see what bounds the kernel.
constexpr int kNoScale = 1, kNoWiden = 2, kOneExpert = 4, kNoRows = 8, kNoMma = 16, kNoWeights = 32;

__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// Eight codes of a thread become the four A registers of one k16 step, still without their scale:
// the bits of a code, put where bf16 has sign, exponent and first mantissa bit, are the value times
// 2^-126.
template <int kFlags>
__device__ __forceinline__ void widen(uint32_t codes, uint32_t scale_low, uint32_t scale_high,
                                      uint32_t *a) {
  constexpr uint32_t kBits = 0x81C081C0u;
  if constexpr (kFlags & kNoWiden) {
    a[0] = a[1] = a[2] = a[3] = codes;
  } else {
    a[0] = codes & kBits;
    a[1] = (codes << 3) & kBits;
    a[2] = (codes << 6) & kBits;
    a[3] = ((codes << 1) & 0x80008000u) | ((codes >> 5) & 0x01000100u) |
           ((codes >> 4) & 0x00C000C0u);
  }
  if constexpr (!(kFlags & kNoScale)) {
    a[0] = times(a[0], scale_low);
    a[1] = times(a[1], scale_high);
    a[2] = times(a[2], scale_low);
    a[3] = times(a[3], scale_high);
  }
}
// A stored scale byte is the exponent field of 2^126 times the scale; twice, for bf16x2.
__device__ __forceinline__ uint32_t spread(uint32_t bytes, int which) {
  return __byte_perm(bytes, 0, 0x4040 | which << 8 | which) << 7;
}

template <int kExperts, int kN, int kK, int kGroups, int kTilesPerGroup, int kRows, int kDepth,
          int kStages, typename Out, int kFlags, int kRegisters, bool kIsHalved>
struct Experts {
  static constexpr int kSteps = (kK + 63) / 64;                  // records along K
  static constexpr int kTurns = (kSteps + kDepth - 1) / kDepth;  // stages along K
  static constexpr int kStoredSteps = (kSteps + 3) / 4 * 4;
  static_assert(4 % kDepth == 0);
  static_assert(kRegisters == 0 || kGroups == 2, "168 registers each, dealt out anew");
  static constexpr int kTiles = kGroups * kTilesPerGroup;        // m64 tiles of an item
  static constexpr int kTilesN = (kN + 63) / 64;
  static constexpr int kItemsN = kTilesN / kTiles;
  static_assert(kTilesN % kTiles == 0);
  static_assert(kDepth * kTilesPerGroup % 2 == 0, "registers alternate between two sets");
  static constexpr int kRowBytes = kDepth * kRows * 128;
  static constexpr int kWeightBytes = kTiles * kDepth * kRecordBytes;
  static constexpr int kStageBytes = (kRowBytes + kWeightBytes + 1023) / 1024 * 1024;
  static constexpr int kHalf = kIsHalved ? kRows / 2 : kRows;    // rows of one copy

  struct Item {
    int expert, first, rows, channel_tile;
    __device__ __forceinline__ bool is_half() const { return kIsHalved && rows <= kHalf; }
  };

  // Shared memory behind the ring: barriers, then ends and tile starts of the experts.
  char *shared;
  const uint8_t *weight;
  const CUtensorMap &x;  // boxes of kRows rows and 64 inputs, swizzled
  Out *out;

  __device__ __forceinline__ uint32_t full(int s) const {
    return shared_address(shared + kStages * kStageBytes) + 8 * s;
  }
  __device__ __forceinline__ uint32_t empty(int s) const { return full(kStages + s); }
  __device__ __forceinline__ int *ends() const {
    return reinterpret_cast<int *>(shared + kStages * kStageBytes + 16 * kStages);
  }
  __device__ __forceinline__ int *tile_ends() const { return ends() + kExperts; }

  // Copies the ends and adds up the row tiles of the experts.
  __device__ __forceinline__ void read_ends(const int64_t *ends_E) const {
    for (int e = threadIdx.x; e < kExperts; e += blockDim.x)
      ends()[e] = static_cast<int>(ends_E[e]);
    __syncthreads();
    if (threadIdx.x < 32) {
      // A lane has neighbouring experts.
      constexpr int kEach = (kExperts + 31) / 32;
      int tiles[kEach], own = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        int e = threadIdx.x * kEach + i;
        tiles[i] = e < kExperts ? (ends()[e] - (e ? ends()[e - 1] : 0) + kRows - 1) / kRows : 0;
        own += tiles[i];
      }
      int all = own;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xFFFFFFFFu, all, step);
        if (threadIdx.x >= step)
          all += other;
      }
      int before = all - own;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        int e = threadIdx.x * kEach + i;
        before += tiles[i];
        if (e < kExperts)
          tile_ends()[e] = before;
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ int items() const { return tile_ends()[kExperts - 1] * kItemsN; }

  // Items of a last wave that is at most half full are cut into two, so that twice as many blocks
  // share it: those from ``whole`` on.
  struct Deal {
    int whole, all;
  };
  __device__ __forceinline__ Deal deal() const {
    const int all = items(), blocks = gridDim.x, left = all % blocks;
    if (kIsHalved && left > 0 && 2 * left <= blocks)
      return {all - left, all + left};
    return {all, all};
  }
  __device__ __forceinline__ Item item(const Deal &deal, int index) const {
    if (!kIsHalved || index < deal.whole)
      return item(index);
    const int behind = index - deal.whole;
    Item it = item(deal.whole + behind / 2);
    if (behind % 2) {
      it.first += kHalf;
      it.rows -= kHalf;
    } else {
      it.rows = min(it.rows, kHalf);
    }
    return it;
  }

  __device__ __forceinline__ Item item(int index) const {
    int row_tile = index / kItemsN, low = 0, high = kExperts - 1;
    while (low < high) {
      int middle = (low + high) / 2;
      if (tile_ends()[middle] > row_tile)
        high = middle;
      else
        low = middle + 1;
    }
    int begin = low ? ends()[low - 1] : 0, tiles_before = low ? tile_ends()[low - 1] : 0;
    int first = begin + (row_tile - tiles_before) * kRows;
    int left = ends()[low] - first;
    return {low, first, left < kRows ? left : kRows, index % kItemsN * kTiles};
  }

  // Rows behind the end of the expert come along; their columns of the product are not stored.
  __device__ __forceinline__ void copy_rows(uint32_t to, const Item &it, int turn,
                                            uint32_t bar) const {
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      tensor_copy(to + step * kRows * 128, x, (turn * kDepth + step) * 64, it.first, bar);
      if (kIsHalved && !it.is_half())
        tensor_copy(to + step * kRows * 128 + kHalf * 128, x, (turn * kDepth + step) * 64,
                    it.first + kHalf, bar);
    }
  }

  __device__ __forceinline__ void copy_weights(uint32_t to, const Item &it, int turn,
                                               uint32_t bar) const {
    int expert = kFlags & kOneExpert ? 0 : it.expert;
    int tile = kFlags & kOneExpert ? 0 : it.channel_tile;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      int64_t record =
          (int64_t(expert) * kTilesN + tile + i) * kStoredSteps + turn * kDepth;
      bulk_copy(to + i * kDepth * kRecordBytes, weight + record * kRecordBytes,
                kDepth * kRecordBytes, bar);
    }
  }

  // One thread.
  __device__ __forceinline__ void produce() const {
    int stage = 0;
    uint32_t phase = 1;
    const Deal dealt = deal();
    for (int index = blockIdx.x; index < dealt.all; index += gridDim.x) {
      Item it = item(dealt, index);
      if (it.rows <= 0)
        continue;
      const int bytes = (kFlags & kNoRows ? 0 : it.is_half() ? kRowBytes / 2 : kRowBytes) +
                        (kFlags & kNoWeights ? 0 : kWeightBytes);
      for (int turn = 0; turn < kTurns; ++turn) {
        barrier_wait(empty(stage), phase);
        uint32_t to = shared_address(shared + stage * kStageBytes);
        barrier_expect(full(stage), bytes);
        if constexpr (!(kFlags & kNoWeights))
          copy_weights(to + kRowBytes, it, turn, full(stage));
        if constexpr (!(kFlags & kNoRows))
          copy_rows(to, it, turn, full(stage));
        if (++stage == kStages)
          stage = 0, phase ^= 1;
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void store(const float *sum, const Item &it, int tile) const {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int channel = (it.channel_tile + tile) * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      int row = j / 4 * 8 + lane % 4 * 2 + j % 2, n = channel + (j / 2 % 2) * 8;
      if (row < it.rows && n < kN)
        out[int64_t(it.first + row) * kN + n] = static_cast<Out>(sum[j]);
    }
  }

  // An item of up to kWide rows.
  template <int kWide>
  __device__ __forceinline__ void multiply(const Item &it, int &stage, uint32_t &phase) const {
    constexpr int kAccumulators = kWide / 2;
    int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    uint32_t a[2][16];
    float sum[kTilesPerGroup][kAccumulators];
#pragma unroll
    for (int m = 0; m < kTilesPerGroup; ++m)
#pragma unroll
      for (int j = 0; j < kAccumulators; ++j)
        sum[m][j] = 0.f;
    int previous = -1;
    for (int turn = 0; turn < kTurns; ++turn) {
      barrier_wait(full(stage), phase);
      // Alike in all lanes, which the compiler cannot know.
      const int offset = __shfl_sync(0xFFFFFFFFu, stage * kStageBytes, 0);
      const char *here = shared + offset;
#pragma unroll
      for (int step = 0; step < kDepth; ++step) {
        uint64_t rows = descriptor(shared_address(here + step * kRows * 128));
#pragma unroll
        for (int m = 0; m < kTilesPerGroup; ++m) {
          uint32_t *set = a[(step * kTilesPerGroup + m) & 1];
          const char *record = here + kRowBytes +
                               ((group * kTilesPerGroup + m) * kDepth + step) * kRecordBytes;
          uint4 codes = *reinterpret_cast<const uint4 *>(record + warp * 512 + lane * 16);
          uint32_t scales =
              *reinterpret_cast<const uint32_t *>(record + kCodeBytes + warp * 32 + lane / 4 * 4);
          uint32_t low0 = spread(scales, 0), low1 = spread(scales, 1);
          uint32_t high0 = spread(scales, 2), high1 = spread(scales, 3);
          widen<kFlags>(codes.x, low0, high0, set);
          widen<kFlags>(codes.y, low0, high0, set + 4);
          widen<kFlags>(codes.z, low1, high1, set + 8);
          widen<kFlags>(codes.w, low1, high1, set + 12);
          if constexpr (kFlags & kNoMma) {
#pragma unroll
            for (int k = 0; k < 16; ++k)
              sum[m][k % kAccumulators] += __uint_as_float(set[k]);
          } else {
#pragma unroll
            for (int j = 0; j < kAccumulators; ++j)
              asm volatile("" : "+f"(sum[m][j])::"memory");
#pragma unroll
            for (int k = 0; k < 16; ++k)
              asm volatile("" : "+r"(set[k])::"memory");
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < 4; ++k)
              tl::wgmma_rs<tl::DataType::kBFloat16, tl::DataType::kBFloat16,
                           tl::DataType::kFloat32, 64, kWide, 16, false, false>(
                  set + 4 * k, rows + 2 * k, reinterpret_cast<uint32_t *>(sum[m]), true);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          }
          if (step == 0 && m == 0 && previous >= 0)
            release(previous);
        }
      }
      previous = stage;
      if (++stage == kStages)
        stage = 0, phase ^= 1;
    }
    if constexpr (!(kFlags & kNoMma)) {
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < kTilesPerGroup; ++m)
#pragma unroll
        for (int j = 0; j < kAccumulators; ++j)
          asm volatile("" : "+f"(sum[m][j])::"memory");
    }
    release(previous);
#pragma unroll
    for (int m = 0; m < kTilesPerGroup; ++m)
      store<kAccumulators>(sum[m], it, group * kTilesPerGroup + m);
  }

  __device__ __forceinline__ void consume() const {
    int stage = 0;
    uint32_t phase = 0;
    const Deal dealt = deal();
    for (int index = blockIdx.x; index < dealt.all; index += gridDim.x) {
      const Item it = item(dealt, index);
      if (it.rows <= 0)
        continue;
      if (it.is_half())
        multiply<kHalf>(it, stage, phase);
      else
        multiply<kRows>(it, stage, phase);
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0)
      barrier_arrive(empty(stage));
  }

  __device__ __forceinline__ void run(const int64_t *ends_E) const {
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) {
        barrier_init(full(s), 1);
        barrier_init(empty(s), kGroups * 4);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    read_ends(ends_E);
    if (threadIdx.x >= kGroups * 128) {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(504 - 2 * kRegisters));
      if (threadIdx.x == kGroups * 128)
        produce();
    } else {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
      consume();
    }
  }
};

} // namespace deepinfer
