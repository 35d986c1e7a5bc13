// How does a Hopper SM multiply rows with MXFP4 expert weights at the rate of its memory?
//
// out^T = W x^T: 64 output channels are the M of one wgmma, the rows of an expert are its N. Packed
// weights travel by bulk copies through a ring in shared memory, are widened to bf16 in registers
// (exact) and enter the tensor core from there.
//
// One warp group copies, the others multiply. Work items (a tile of rows, a tile of channels) are
// dealt out in a fixed order, from running ends that live on the device. If the last round leaves
// most blocks without an item, its items are cut in two; the last rows of an expert take half a tile
// where they fit. Each sum runs over K in ascending order whatever the tile, so a row's bits do not
// depend on the other rows.

namespace deepinfer {

template <int kExperts, int kN, int kK, int kGroups, int kTilesPerGroup, int kRows, int kDepth,
          int kStages, typename Out, int kRegisters>
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
  // Rows of one copy, and of the small kind of item.
  static constexpr int kBox = kRows >= 128 ? kRows / 2 : kRows;

  // ``tiles`` of 64 channels for each warp group.
  struct Item {
    int expert, first, rows, channel_tile, tiles;
    __device__ __forceinline__ int boxes() const { return rows > kBox ? kRows / kBox : 1; }
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
      int before = 0;
      for (int start = 0; start < kExperts; start += 32) {
        int e = start + threadIdx.x, tiles = 0;
        if (e < kExperts)
          tiles = (ends()[e] - (e ? ends()[e - 1] : 0) + kRows - 1) / kRows;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          int other = __shfl_up_sync(0xFFFFFFFFu, tiles, step);
          if (threadIdx.x >= step)
            tiles += other;
        }
        if (e < kExperts)
          tile_ends()[e] = before + tiles;
        before += __shfl_sync(0xFFFFFFFFu, tiles, 31);
      }
    }
    __syncthreads();
  }

  // Items before those that are cut in two, and all with either half counted.
  struct Rounds {
    int whole, all;
  };
  __device__ __forceinline__ Rounds rounds() const {
    int count = tile_ends()[kExperts - 1] * kItemsN, left = count % int(gridDim.x);
    if (kTilesPerGroup == 2 && 2 * left <= int(gridDim.x))
      return {count - left, count + left};
    return {count, count};
  }

  __device__ __forceinline__ Item item(int index, const Rounds &all) const {
    int part = 0, tiles = kTilesPerGroup;
    if (index >= all.whole) {
      part = (index - all.whole) % 2, tiles = 1;
      index = all.whole + (index - all.whole) / 2;
    }
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
    return {low, first, left < kRows ? left : kRows, index % kItemsN * kTiles + part * kGroups,
            tiles};
  }

  // Rows behind the end of the expert come along; their columns of the product are not stored.
  __device__ __forceinline__ void copy_rows(uint32_t to, const Item &it, int turn,
                                            uint32_t bar) const {
#pragma unroll
    for (int step = 0; step < kDepth; ++step)
      for (int i = 0; i < it.boxes(); ++i)
        tensor_copy(to + (step * kRows + i * kBox) * 128, x, (turn * kDepth + step) * 64,
                    it.first + i * kBox, bar);
  }

  __device__ __forceinline__ void copy_weights(uint32_t to, const Item &it, int turn,
                                               uint32_t bar) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i == kGroups * it.tiles)
        break;
      int64_t record =
          (int64_t(it.expert) * kTilesN + it.channel_tile + i) * kStoredSteps + turn * kDepth;
      bulk_copy(to + i * kDepth * kRecordBytes, weight + record * kRecordBytes,
                kDepth * kRecordBytes, bar);
    }
  }

  // One thread.
  __device__ __forceinline__ void produce() const {
    int stage = 0;
    uint32_t phase = 1;
    const Rounds all = rounds();
    for (int index = blockIdx.x; index < all.all; index += gridDim.x) {
      Item it = item(index, all);
      int bytes = kDepth * (it.boxes() * kBox * 128 + kGroups * it.tiles * kRecordBytes);
      for (int turn = 0; turn < kTurns; ++turn) {
        barrier_wait(empty(stage), phase);
        uint32_t to = shared_address(shared + stage * kStageBytes);
        barrier_expect(full(stage), bytes);
        copy_weights(to + kRowBytes, it, turn, full(stage));
        copy_rows(to, it, turn, full(stage));
        if (++stage == kStages)
          stage = 0, phase ^= 1;
      }
    }
  }

  template <int kSums>
  __device__ __forceinline__ void store(const float *sum, const Item &it, int tile) const {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int channel = (it.channel_tile + tile) * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      int row = j / 4 * 8 + lane % 4 * 2 + j % 2, n = channel + (j / 2 % 2) * 8;
      if (row < it.rows && n < kN)
        out[int64_t(it.first + row) * kN + n] = static_cast<Out>(sum[j]);
    }
  }

  // The next stage to multiply.
  struct Place {
    int stage;
    uint32_t phase;
  };

  // All of an item with kCount tiles of channels a warp group, and at most kUsed rows.
  template <int kCount, int kUsed>
  __device__ __forceinline__ void multiply(Place &at, const Item &it) const {
    int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    constexpr int kSums = kUsed / 2;
    uint32_t a[2][16];
    float sum[kCount][kSums];
#pragma unroll
    for (int m = 0; m < kCount; ++m)
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        sum[m][j] = 0.f;
    int previous = -1;
    for (int turn = 0; turn < kTurns; ++turn) {
      barrier_wait(full(at.stage), at.phase);
      // Alike in all lanes, which the compiler cannot know.
      const int offset = __shfl_sync(0xFFFFFFFFu, at.stage * kStageBytes, 0);
      const char *here = shared + offset;
#pragma unroll
      for (int step = 0; step < kDepth; ++step) {
        uint64_t rows = descriptor(shared_address(here + step * kRows * 128));
#pragma unroll
        for (int m = 0; m < kCount; ++m) {
          uint32_t *set = a[(step * kCount + m) & 1];
          const char *record =
              here + kRowBytes + ((group * kCount + m) * kDepth + step) * kRecordBytes;
          uint4 codes = *reinterpret_cast<const uint4 *>(record + warp * 512 + lane * 16);
          uint32_t scales =
              *reinterpret_cast<const uint32_t *>(record + kCodeBytes + warp * 32 + lane / 4 * 4);
          uint32_t low0 = spread(scales, 0), low1 = spread(scales, 1);
          uint32_t high0 = spread(scales, 2), high1 = spread(scales, 3);
          widen(codes.x, low0, high0, set);
          widen(codes.y, low0, high0, set + 4);
          widen(codes.z, low1, high1, set + 8);
          widen(codes.w, low1, high1, set + 12);
#pragma unroll
          for (int j = 0; j < kSums; ++j)
            asm volatile("" : "+f"(sum[m][j])::"memory");
#pragma unroll
          for (int k = 0; k < 16; ++k)
            asm volatile("" : "+r"(set[k])::"memory");
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int k = 0; k < 4; ++k)
            tl::wgmma_rs<tl::DataType::kBFloat16, tl::DataType::kBFloat16,
                         tl::DataType::kFloat32, 64, kUsed, 16, false, false>(
                set + 4 * k, rows + 2 * k, reinterpret_cast<uint32_t *>(sum[m]), true);
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (step == 0 && m == 0 && previous >= 0)
            release(previous);
        }
      }
      previous = at.stage;
      if (++at.stage == kStages)
        at.stage = 0, at.phase ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int m = 0; m < kCount; ++m)
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        asm volatile("" : "+f"(sum[m][j])::"memory");
    release(previous);
#pragma unroll
    for (int m = 0; m < kCount; ++m)
      store<kSums>(sum[m], it, group * kCount + m);
  }

  template <int kCount>
  __device__ __forceinline__ void multiply_rows(Place &at, const Item &it) const {
    if (kBox < kRows && it.rows <= kBox)
      multiply<kCount, kBox>(at, it);
    else
      multiply<kCount, kRows>(at, it);
  }

  __device__ __forceinline__ void consume() const {
    Place at{0, 0};
    const Rounds all = rounds();
    for (int index = blockIdx.x; index < all.all; index += gridDim.x) {
      Item it = item(index, all);
      if (kTilesPerGroup > 1 && it.tiles == 1)
        multiply_rows<1>(at, it);
      else
        multiply_rows<kTilesPerGroup>(at, it);
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
