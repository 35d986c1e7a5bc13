// How does a product with few channels keep many SMs of Hopper busy?
//
// A cluster of blocks shares one tile: each multiplies its own parts of K, then the parts are added
// through the shared memories of the cluster, in the order of the parts. The cut depends on the
// widths alone, so a row's bits do not depend on the number of rows. A block that holds several
// parts keeps the sums of each, as sums of sums would be rounded otherwise.

namespace deepinfer_dense {

template <int kN, int kK, int kParts, int kHeld, typename Ring, typename Out, int kRegisters>
struct Spread {
  using Part = Parts<kK, kParts>;
  static constexpr int kWarpGroups = Ring::kWarpGroups;
  static constexpr int kBlocks = kParts / kHeld;  // of the cluster
  // Of a thread and part: four sums each, two channels of a row and of the row eight below.
  static constexpr int kQuads = Ring::kTiles * Ring::kSums / 4;
  static_assert(Ring::kBlocks == 1 && kParts <= 8 && kParts % kHeld == 0);
  static_assert(kHeld * Ring::kRows * Ring::kChannels * 4 <= Ring::kStages * Ring::kStageBytes,
                "sums of the parts take the place of the ring");
  static_assert(kRegisters == 0 || kWarpGroups == 2);

  Ring ring;
  const CUtensorMap &x;
  const CUtensorMap &weight;
  Out *out;
  int rows;

  static __device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
  }

  // The parts of a block are neighbours along K: its first step, and how many there are.
  static __device__ __forceinline__ int first_step(int block) { return block * kHeld * Part::kEach; }
  static __device__ __forceinline__ int steps(int block) {
    if constexpr (Part::kSteps == Part::kEach * kParts)
      return kHeld * Part::kEach;
    return max(0, min(kHeld * Part::kEach, Part::kSteps - first_step(block)));
  }
  static __device__ __forceinline__ typename Ring::Source source(int rows, int channel_tile,
                                                                 int row_tile) {
    int channel = channel_tile * Ring::kChannels, row = row_tile * Ring::kRows;
    return {0, channel, row, min(Ring::kRows, rows - row), min(Ring::kChannels, kN - channel)};
  }

  // What can be done before there are rows: barriers, and the first weights.
  static __device__ __forceinline__ void begin(const Ring &ring, const CUtensorMap &weight, int rows,
                                               int block, int channel_tile, int row_tile) {
    if (threadIdx.x == 0)
      ring.start();
    __syncthreads();
    if (threadIdx.x == kWarpGroups * 128)
      ring.begin(weight, source(rows, channel_tile, row_tile), first_step(block), steps(block), 0);
  }

  __device__ __forceinline__ void run(int block, int channel_tile, int row_tile) const {
    if (threadIdx.x >= kWarpGroups * 128) {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(504 - kWarpGroups * kRegisters));
      if (threadIdx.x == kWarpGroups * 128) {
        typename Ring::Place at{0, 1};
        ring.fill(at, x, weight, source(rows, channel_tile, row_tile), first_step(block),
                  steps(block), Ring::kStages, 0);
      }
      __syncwarp();
      meet();
    } else {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
      keep(block);
      meet();
      add(block, channel_tile * Ring::kChannels, row_tile * Ring::kRows);
    }
    meet();
  }

  // Sums of a thread lie 16 bytes each, one behind the other for all threads.
  __device__ __forceinline__ uint32_t sums(int held, int quad) const {
    return shared_address(ring.shared) +
           ((held * kQuads + quad) * kWarpGroups * 128 + threadIdx.x) * 16;
  }

  __device__ __forceinline__ void keep(int block) const {
    typename Ring::Place at{0, 0};
    float sum[kHeld][Ring::kTiles][Ring::kSums];
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      ring.multiply(sum[h], at, Part::steps(block * kHeld + h));
    // All have read the last stages.
    asm volatile("bar.sync 1, %0;" ::"n"(kWarpGroups * 128) : "memory");
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float *four = sum[h][q / (Ring::kSums / 4)] + q % (Ring::kSums / 4) * 4;
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(sums(h, q)), "f"(four[0]),
                     "f"(four[1]), "f"(four[2]), "f"(four[3])
                     : "memory");
      }
  }

  static __device__ __forceinline__ float4 read(uint32_t address, int block) {
    float4 v;
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address), "r"(block)
                 : "memory");
    return v;
  }

  // Blocks take turns at the sums; each adds the parts in their order.
  __device__ __forceinline__ void add(int block, int first_channel, int first_row) const {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    for (int q = block; q < kQuads; q += kBlocks) {
      int m = q / (Ring::kSums / 4), j = q % (Ring::kSums / 4);
      int row = first_row + (group * Ring::kTiles + m) * 64 + warp * 16 + lane / 4;
      int channel = first_channel + j * 8 + lane % 4 * 2;
      if (row >= rows)
        continue;
      float4 each[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        each[p] = read(sums(p % kHeld, q), p / kHeld);
      float4 total = {Part::kNothing, Part::kNothing, Part::kNothing, Part::kNothing};
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        total.x += each[p].x;
        total.y += each[p].y;
        total.z += each[p].z;
        total.w += each[p].w;
      }
      store_channels<kN>(out + int64_t(row) * kN, channel, total.x, total.y);
      if (row + 8 < rows)
        store_channels<kN>(out + int64_t(row + 8) * kN, channel, total.z, total.w);
    }
  }
};

} // namespace deepinfer_dense
