// How does Hopper multiply many bf16 rows with one bf16 weight at the rate of its tensor cores?
//
// A tile of rows times a tile of channels at a time; one thread has the copy engine bring both tiles,
// 64 inputs a stage, the other warp groups multiply from shared memory. Blocks of a cluster that need
// the same rows or the same channels bring a part each and send it to all of them. Blocks are
// persistent: the copies of the next tile run while the sums of this one are written. Each sum runs
// over K in ascending order, whatever the tile.

namespace deepinfer_dense {
using namespace deepinfer;

// kProducts products of kN channels and kK inputs each lie side by side.
// kWarpGroups that multiply own kTiles times 64 rows and kChannels channels each.
template <int kProducts, int kN, int kK, int kWarpGroups, int kTiles, int kChannels, int kStages,
          int kDown, int kAcross, int kBand, typename Out, int kRegisters>
struct Dense {
  static constexpr int kRows = kWarpGroups * kTiles * 64;
  static constexpr int kBlocks = kDown * kAcross;  // of a cluster
  static constexpr int kSteps = (kK + 63) / 64;
  static constexpr int kTilesN = (kN + kChannels - 1) / kChannels;
  // Clusters side by side: kAcross tiles of channels each.
  static constexpr int kPlacesN = (kTilesN + kAcross - 1) / kAcross;
  static constexpr int kRowBytes = kRows * 128;
  static constexpr int kStageBytes = kRowBytes + kChannels * 128;
  static_assert(kStageBytes % 1024 == 0);
  static_assert(kRegisters == 0 || kWarpGroups == 2, "168 registers each, dealt out anew");
  static_assert(kRows / kAcross % 8 == 0 && kChannels / kDown % 8 == 0);

  char *shared;
  const CUtensorMap &x;
  const CUtensorMap &weight;
  Out *out;
  int rows;

  __device__ __forceinline__ uint32_t full(int s) const {
    return shared_address(shared + kStages * kStageBytes) + 8 * s;
  }
  __device__ __forceinline__ uint32_t empty(int s) const { return full(kStages + s); }

  __device__ __forceinline__ int rank() const {
    if constexpr (kBlocks == 1)
      return 0;
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return static_cast<int>(r);
  }

  struct Item {
    int product, row, channel;
  };
  __device__ __forceinline__ int row_places() const {
    return (rows + kRows * kDown - 1) / (kRows * kDown);
  }
  __device__ __forceinline__ int items() const { return kProducts * kPlacesN * row_places(); }
  // Bands of kBand row tiles, so that what runs at one time shares rows and channels in the L2.
  __device__ __forceinline__ Item item(int index, int block) const {
    int product = index / (kPlacesN * row_places());
    index -= product * kPlacesN * row_places();
    int band = index / (kPlacesN * kBand), inside = index % (kPlacesN * kBand);
    int height = min(kBand, row_places() - band * kBand);
    int down = band * kBand + inside % height, across = inside / height;
    return {product, (down * kDown + block % kDown) * kRows,
            (across * kAcross + block / kDown) * kChannels};
  }

  __device__ __forceinline__ void produce(int block) const {
    constexpr int kPartRows = kRows / kAcross, kPartChannels = kChannels / kDown;
    // Blocks of the cluster with the same rows, and with the same channels.
    int same_rows = 0, same_channels = ((1 << kDown) - 1) << block / kDown * kDown;
#pragma unroll
    for (int i = 0; i < kAcross; ++i)
      same_rows |= 1 << (i * kDown + block % kDown);
    int part_row = block / kDown * kPartRows, part_channel = block % kDown * kPartChannels;
    int stage = 0;
    uint32_t phase = 1;
    for (int index = blockIdx.x / kBlocks; index < items(); index += gridDim.x / kBlocks) {
      Item it = item(index, block);
      for (int step = 0; step < kSteps; ++step) {
        barrier_wait(empty(stage), phase);
        uint32_t to = shared_address(shared + stage * kStageBytes);
        barrier_expect(full(stage), kStageBytes);
        tensor_copy(to + part_row * 128, x, it.product * kK + step * 64, it.row + part_row,
                    full(stage), same_rows, kAcross > 1);
        tensor_copy(to + kRowBytes + part_channel * 128, weight, step * 64,
                    it.product * kN + it.channel + part_channel, full(stage), same_channels,
                    kDown > 1);
        if (++stage == kStages)
          stage = 0, phase ^= 1;
      }
    }
  }

  __device__ __forceinline__ void store(const float *sum, const Item &it, int first_row) const {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int row = it.row + first_row + warp * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= rows)
        continue;
      Out *line = out + (int64_t(row + 8 * half) * kProducts + it.product) * kN;
#pragma unroll
      for (int j = 0; j < kChannels / 8; ++j) {
        int channel = it.channel + 8 * j + lane % 4 * 2;
        float a = sum[4 * j + 2 * half], b = sum[4 * j + 2 * half + 1];
        if (kN % 2 == 0 && channel < kN) {
          if constexpr (sizeof(Out) == 4) {
            *reinterpret_cast<float2 *>(line + channel) = make_float2(a, b);
          } else {
            __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
            *reinterpret_cast<__nv_bfloat162 *>(line + channel) = pair;
          }
        } else if (kN % 2) {
          if (channel < kN)
            line[channel] = static_cast<Out>(a);
          if (channel + 1 < kN)
            line[channel + 1] = static_cast<Out>(b);
        }
      }
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    // One lane of a warp for each block of the cluster.
    int lane = threadIdx.x % 32;
    if (lane < kBlocks)
      barrier_arrive(empty(stage), lane, kBlocks > 1);
  }

  __device__ __forceinline__ void consume(int block) const {
    int group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0);
    int stage = 0;
    uint32_t phase = 0;
    for (int index = blockIdx.x / kBlocks; index < items(); index += gridDim.x / kBlocks) {
      Item it = item(index, block);
      float sum[kTiles][kChannels / 2];
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int j = 0; j < kChannels / 2; ++j)
          sum[m][j] = 0.f;
      int previous = -1;
      for (int step = 0; step < kSteps; ++step) {
        barrier_wait(full(stage), phase);
        const int offset = __shfl_sync(0xFFFFFFFFu, stage * kStageBytes, 0);
        uint32_t here = shared_address(shared) + offset;
        uint64_t channels = descriptor(here + kRowBytes);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int j = 0; j < kChannels / 2; ++j)
            asm volatile("" : "+f"(sum[m][j])::"memory");
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          uint64_t lines = descriptor(here + (group * kTiles + m) * 64 * 128);
#pragma unroll
          for (int k = 0; k < 4; ++k)
            tl::wgmma_ss<tl::DataType::kBFloat16, tl::DataType::kBFloat16, tl::DataType::kFloat32,
                         64, kChannels, 16, false, false>(
                lines + 2 * k, channels + 2 * k, reinterpret_cast<uint32_t *>(sum[m]), true);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (previous >= 0)
          release(previous);
        previous = stage;
        if (++stage == kStages)
          stage = 0, phase ^= 1;
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int j = 0; j < kChannels / 2; ++j)
          asm volatile("" : "+f"(sum[m][j])::"memory");
      release(previous);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        store(sum[m], it, (group * kTiles + m) * 64);
    }
  }

  __device__ __forceinline__ void meet() const {
    if constexpr (kBlocks > 1) {
      asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
                   ::: "memory");
    } else {
      __syncthreads();
    }
  }

  __device__ __forceinline__ void run() const {
    int block = rank();
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) {
        barrier_init(full(s), 1);
        barrier_init(empty(s), kWarpGroups * 4 * kBlocks);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
    if (threadIdx.x >= kWarpGroups * 128) {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(504 - 2 * kRegisters));
      if (threadIdx.x == kWarpGroups * 128)
        produce(block);
    } else {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
      consume(block);
    }
    // Nobody leaves while another block may still write here.
    if constexpr (kBlocks > 1) {
      __syncwarp();
      meet();
    }
  }
};

} // namespace deepinfer_dense
