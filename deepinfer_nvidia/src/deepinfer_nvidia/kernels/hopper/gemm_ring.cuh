// How does a block of Hopper multiply a tile of rows with a tile of channels?
//
// One thread has the copy engine bring both, 64 inputs a stage, into a ring of stages; warp groups
// multiply them from there. Each sum runs over K in ascending order with instructions of 16 inputs,
// whatever the tile. Boxes of rows and channels that do not exist are not asked for, as the copy
// engine fills zeros in more slowly than it copies; what lies there instead reaches only sums that
// nobody stores.

namespace deepinfer_dense {
using namespace deepinfer;

// kWarpGroups that multiply own kTiles times 64 rows and kChannels channels each. A cluster has
// kDown tiles of rows and kAcross tiles of channels; its blocks send each other what they share. One
// copy brings kRowBox rows or kChannelBox channels.
template <int Groups, int Tiles, int Channels, int Stages, int Down, int Across, int kRowBox,
          int kChannelBox>
struct Ring {
  static constexpr int kWarpGroups = Groups, kTiles = Tiles, kChannels = Channels;
  static constexpr int kStages = Stages, kDown = Down, kAcross = Across;
  static constexpr int kRows = kWarpGroups * kTiles * 64;
  static constexpr int kBlocks = kDown * kAcross;  // of a cluster
  static constexpr int kSums = kChannels / 2;      // of a thread, for 64 rows
  static constexpr int kRowBytes = kRows * 128;
  static constexpr int kStageBytes = kRowBytes + kChannels * 128;
  static constexpr int kBytes = kStages * (kStageBytes + 16);  // stages and barriers
  static constexpr int kPartRows = kRows / kAcross, kPartChannels = kChannels / kDown;
  static_assert(kStageBytes % 1024 == 0 && kRowBox % 8 == 0 && kChannelBox % 8 == 0);
  static_assert(kPartRows % kRowBox == 0 && kPartChannels % kChannelBox == 0);

  // The next stage to fill or to multiply.
  struct Place {
    int stage;
    uint32_t phase;
    __device__ __forceinline__ void move() {
      if (++stage == kStages)
        stage = 0, phase ^= 1;
    }
  };

  char *shared;

  __device__ __forceinline__ uint32_t full(int s) const {
    return shared_address(shared + kStages * kStageBytes) + 8 * s;
  }
  __device__ __forceinline__ uint32_t empty(int s) const { return full(kStages + s); }
  __device__ __forceinline__ uint32_t stage(const Place &at) const {
    return shared_address(shared) + at.stage * kStageBytes;
  }

  // One thread; the others must be told.
  __device__ __forceinline__ void start() const {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(full(s), 1);
      barrier_init(empty(s), kWarpGroups * 4 * kBlocks);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  // Where the rows and channels of a tile begin, in their matrices and in their blocks, and how many
  // there are of either.
  struct Source {
    int x_column, weight_line, row, rows, channels;
  };

  // One thread. ``block`` of the cluster brings its part of rows and channels, and sends it to those
  // that have the same ones. Channels come first, as weights are there before rows are, and announce
  // both.
  __device__ __forceinline__ void fill_channels(const Place &at, const CUtensorMap &weight,
                                                const Source &from, int step, int block) const {
    const int down = block % kDown, across = block / kDown;
    int same_channels = ((1 << kDown) - 1) << across * kDown;
    int row_boxes = (from.rows + kRowBox - 1) / kRowBox;
    int channel_boxes = (from.channels + kChannelBox - 1) / kChannelBox;
    uint32_t bar = full(at.stage), to = stage(at) + kRowBytes;
    barrier_wait(empty(at.stage), at.phase);
    barrier_expect(bar, (row_boxes * kRowBox + channel_boxes * kChannelBox) * 128);
    int first = down * kPartChannels;
#pragma unroll
    for (int i = first; i < first + kPartChannels; i += kChannelBox)
      if (i < from.channels)
        tensor_copy(to + i * 128, weight, step * 64, from.weight_line + i, bar, same_channels,
                    kDown > 1);
  }
  __device__ __forceinline__ void fill_rows(const Place &at, const CUtensorMap &x,
                                            const Source &from, int step, int block) const {
    const int down = block % kDown, across = block / kDown;
    int same_rows = 0;
#pragma unroll
    for (int i = 0; i < kAcross; ++i)
      same_rows |= 1 << (i * kDown + down);
    int first = across * kPartRows;
#pragma unroll
    for (int i = first; i < first + kPartRows; i += kRowBox)
      if (i < from.rows)
        tensor_copy(stage(at) + i * 128, x, from.x_column + step * 64, from.row + i,
                    full(at.stage), same_rows, kAcross > 1);
  }

  // One thread, before the rows may be read: the channels of the first stages, of ``steps`` steps from
  // ``first``.
  __device__ __forceinline__ void begin(const CUtensorMap &weight, const Source &from, int first,
                                        int steps, int block) const {
    Place at{0, 1};
    for (int step = 0; step < min(steps, kStages); ++step, at.move())
      fill_channels(at, weight, from, first + step, block);
  }
  // One thread: all of ``steps`` steps, but for the channels of the first ``begun``.
  __device__ __forceinline__ void fill(Place &at, const CUtensorMap &x, const CUtensorMap &weight,
                                       const Source &from, int first, int steps, int begun,
                                       int block) const {
    for (int step = 0; step < steps; ++step, at.move()) {
      if (step >= begun)
        fill_channels(at, weight, from, first + step, block);
      fill_rows(at, x, from, first + step, block);
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    // One lane of a warp for each block of the cluster.
    int lane = threadIdx.x % 32;
    if (lane < kBlocks)
      barrier_arrive(empty(stage), lane, kBlocks > 1);
  }

  // Between the sums and instructions that change them behind the compiler's back.
  static __device__ __forceinline__ void pin(float (&sum)[kTiles][kSums]) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        asm volatile("" : "+f"(sum[m][j])::"memory");
  }

  // Sums over the next ``steps`` stages, from zero.
  __device__ __forceinline__ void multiply(float (&sum)[kTiles][kSums], Place &at,
                                           int steps) const {
    int group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0);
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        sum[m][j] = 0.f;
    int previous = -1;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(full(at.stage), at.phase);
      // Alike in all lanes, which the compiler cannot know.
      const int offset = __shfl_sync(0xFFFFFFFFu, at.stage * kStageBytes, 0);
      uint32_t here = shared_address(shared) + offset;
      uint64_t channels = descriptor(here + kRowBytes);
      pin(sum);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        uint64_t lines = descriptor(here + (group * kTiles + m) * 64 * 128);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          tl::wgmma_ss<tl::DataType::kBFloat16, tl::DataType::kBFloat16, tl::DataType::kFloat32, 64,
                       kChannels, 16, false, false>(lines + 2 * k, channels + 2 * k,
                                                    reinterpret_cast<uint32_t *>(sum[m]), true);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (previous >= 0)
        release(previous);
      previous = at.stage;
      at.move();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    pin(sum);
    if (previous >= 0)
      release(previous);
  }
};

// K in kParts parts of whole steps of 64 inputs, as equal as can be; the last ones are shorter. Sums
// of parts are added in order. The number of parts follows from the widths of a product alone.
template <int kK, int kParts> struct Parts {
  static constexpr int kSteps = (kK + 63) / 64, kEach = (kSteps + kParts - 1) / kParts;
  static __device__ __forceinline__ int steps(int part) {
    // A number known to the compiler lets matrix instructions overlap.
    if constexpr (kSteps == kEach * kParts)
      return kEach;
    return max(0, min(kEach, kSteps - part * kEach));
  }
  // To which the first part is added without a change.
  static constexpr float kNothing = -0.f;
};

// Neighbours of one row, at once.
template <typename Out> __device__ __forceinline__ void store_pair(Out *to, float a, float b) {
  if constexpr (sizeof(Out) == 4)
    *reinterpret_cast<float2 *>(to) = make_float2(a, b);
  else
    *reinterpret_cast<__nv_bfloat162 *>(to) = __floats2bfloat162_rn(a, b);
}
// Two channels of a row, as far as it has them.
template <int kN, typename Out>
__device__ __forceinline__ void store_channels(Out *line, int channel, float a, float b) {
  if constexpr (kN % 2 == 0) {
    if (channel < kN)
      store_pair(line + channel, a, b);
  } else {
    if (channel < kN)
      line[channel] = static_cast<Out>(a);
    if (channel + 1 < kN)
      line[channel + 1] = static_cast<Out>(b);
  }
}

} // namespace deepinfer_dense
