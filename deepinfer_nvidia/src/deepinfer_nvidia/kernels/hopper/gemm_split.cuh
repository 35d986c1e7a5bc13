// How does a product with few channels keep many SMs of Hopper busy?
//
// A cluster of blocks shares one tile: each block multiplies its own part of K, then the parts are
// added through the shared memories of the cluster, in the order of the parts. The cut depends on the
// widths alone, so a row's bits do not depend on the number of rows. 64 channels are the M of one
// wgmma, rows its N.
#pragma once
#include <cuda.h>
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/instruction/wgmma.h>

namespace deepinfer_split {

__device__ __forceinline__ uint32_t shared_address(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void barrier_init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred P;\nWAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@P bra DONE_%=;\nbra WAIT_%=;\n"
      "DONE_%=:\n}" ::"r"(bar),
      "r"(phase)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap &map, int column, int row,
                                            uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(&map), "r"(column), "r"(row), "r"(bar)
               : "memory");
}
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return uint64_t((address & 0x3FFFF) >> 4) | (uint64_t(1) << 16) | (uint64_t(64) << 32) |
         (uint64_t(1) << 62);
}
__device__ __forceinline__ float read_part(uint32_t address, int block) {
  float value;
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
               "ld.shared::cluster.f32 %0, [there];\n}"
               : "=f"(value)
               : "r"(address), "r"(block)
               : "memory");
  return value;
}
__device__ __forceinline__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// kParts parts of K, each kSteps (the last fewer) times 64 inputs.
template <int kN, int kK, int kParts, int kRows, int kDepth, int kStages, typename Out> struct Split {
  static constexpr int kAllSteps = (kK + 63) / 64;
  static constexpr int kSteps = (kAllSteps + kParts - 1) / kParts;
  static constexpr int kWeightBytes = kDepth * 64 * 128;
  static constexpr int kRowBytes = kDepth * kRows * 128;
  static constexpr int kStageBytes = kWeightBytes + kRowBytes;
  static constexpr int kSums = kRows / 2;  // of a thread
  static constexpr int kPartBytes = kSums * 128 * 4;
  static_assert(kStageBytes % 1024 == 0);
  static_assert(kSteps % kDepth == 0 && kAllSteps % kDepth == 0, "a stage never ends a part early");

  // The ring, the sums of this part, barriers.
  char *shared;
  const CUtensorMap &x;
  const CUtensorMap &weight;
  Out *out;
  int rows;

  __device__ __forceinline__ uint32_t full(int s) const {
    return shared_address(shared + kStages * kStageBytes + kPartBytes) + 8 * s;
  }
  __device__ __forceinline__ uint32_t empty(int s) const { return full(kStages + s); }

  // The last parts may be shorter, or empty.
  __device__ __forceinline__ void run(int channel_tile, int row_tile, int part) const {
    int channel = channel_tile * 64, row = row_tile * kRows;
    int first = part * kSteps, steps = min(kSteps, kAllSteps - first);
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) {
        barrier_init(full(s), 1);
        barrier_init(empty(s), 4);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
      if (threadIdx.x == 128)
        produce(channel, row, first, steps);
      __syncwarp();
      meet();
    } else {
      float *sums = reinterpret_cast<float *>(shared + kStages * kStageBytes);
      multiply(steps, sums);
      meet();
      add(channel, row, part, sums);
    }
    meet();
  }

  __device__ __forceinline__ void produce(int channel, int row, int first, int steps) const {
    int stage = 0;
    uint32_t phase = 1;
    for (int step = 0; step < steps; step += kDepth) {
      barrier_wait(empty(stage), phase);
      uint32_t to = shared_address(shared + stage * kStageBytes);
      barrier_expect(full(stage), kStageBytes);
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        int column = (first + step + d) * 64;
        tensor_copy(to + d * 64 * 128, weight, column, channel, full(stage));
        tensor_copy(to + kWeightBytes + d * kRows * 128, x, column, row, full(stage));
      }
      if (++stage == kStages)
        stage = 0, phase ^= 1;
    }
  }

  __device__ __forceinline__ void multiply(int steps, float *sums) const {
    float sum[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j)
      sum[j] = 0.f;
    int stage = 0, previous = -1;
    uint32_t phase = 0;
    for (int step = 0; step < steps; step += kDepth) {
      barrier_wait(full(stage), phase);
      const int offset = __shfl_sync(0xFFFFFFFFu, stage * kStageBytes, 0);
      uint32_t here = shared_address(shared) + offset;
#pragma unroll
      for (int j = 0; j < kSums; ++j)
        asm volatile("" : "+f"(sum[j])::"memory");
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        uint64_t channels = descriptor(here + d * 64 * 128);
        uint64_t lines = descriptor(here + kWeightBytes + d * kRows * 128);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          tl::wgmma_ss<tl::DataType::kBFloat16, tl::DataType::kBFloat16, tl::DataType::kFloat32, 64,
                       kRows, 16, false, false>(channels + 2 * k, lines + 2 * k,
                                                reinterpret_cast<uint32_t *>(sum), true);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (previous >= 0 && threadIdx.x % 32 == 0)
        barrier_arrive(empty(previous));
      previous = stage;
      if (++stage == kStages)
        stage = 0, phase ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      asm volatile("" : "+f"(sum[j])::"memory");
      sums[j * 128 + threadIdx.x] = sum[j];
    }
  }

  // Blocks take turns at the sums; each adds the parts in their order.
  __device__ __forceinline__ void add(int channel, int row, int part, const float *sums) const {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t mine = shared_address(sums + threadIdx.x);
    for (int j = part; j < kSums; j += kParts) {
      float total = 0.f;
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        total += read_part(mine + j * 512, p);
      int n = channel + warp * 16 + lane / 4 + j / 2 % 2 * 8;
      int t = row + j / 4 * 8 + lane % 4 * 2 + j % 2;
      if (n < kN && t < rows)
        out[int64_t(t) * kN + n] = static_cast<Out>(total);
    }
  }
};

} // namespace deepinfer_split
