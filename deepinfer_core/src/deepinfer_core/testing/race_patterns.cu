// Small kernels that hand numbers from thread to thread through shared memory, each in one way.
// Usage: program NAME. Ends with 0 if all numbers arrived, 1 if not, 2 if there is no such way.
#include <cstdint>
#include <cstdio>
#include <cstring>

constexpr int kThreads = 256, kRounds = 64, kHalf = kThreads / 2;

__device__ uint32_t address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count)
               : "memory");
}

__device__ void arrive(uint64_t *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}

__device__ void wait(uint64_t *barrier, int parity) {
  asm volatile("{\n.reg .pred p;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\n"
               "done:\n}" ::"r"(address(barrier)), "r"(parity)
               : "memory");
}

template <int kId, int kCount> __device__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kCount) : "memory");
}

// The first half writes, the second half reads; a barrier a direction. All lanes arrive, or the
// first of each warp arrives for the others, which it has met at __syncwarp.
template <bool kAll> __device__ void handed_over(int *wrong) {
  __shared__ int number[kHalf];
  __shared__ uint64_t full, empty;
  const int t = threadIdx.x, at = t % kHalf;
  if (t == 0) {
    init(&full, kAll ? kHalf : kHalf / 32);
    init(&empty, kAll ? kHalf : kHalf / 32);
  }
  __syncthreads();
  for (int round = 0; round < kRounds; round++) {
    uint64_t *mine = t < kHalf ? &full : &empty;
    if (t < kHalf) {
      wait(&empty, (round & 1) ^ 1);
      number[at] = round * kHalf + at;
    } else {
      wait(&full, round & 1);
      if (number[(at + 5) % kHalf] != round * kHalf + (at + 5) % kHalf) atomicAdd(wrong, 1);
    }
    if (kAll) {
      arrive(mine);
    } else {
      __syncwarp();
      if (t % 32 == 0) arrive(mine);
    }
  }
}

__global__ void every_lane_arrives(int *wrong) { handed_over<true>(wrong); }
__global__ void first_lane_arrives(int *wrong) { handed_over<false>(wrong); }

// The copy engine writes and the first half reads; all lanes say when, or the first of each warp.
__device__ __align__(128) int numbers[kRounds * kHalf];

template <bool kAll> __device__ void copied(int *wrong) {
  __shared__ __align__(128) int number[kHalf];
  __shared__ uint64_t full, empty;
  const int t = threadIdx.x, at = (t + 5) % kHalf;
  if (t == 0) {
    init(&full, 1);
    init(&empty, kAll ? kHalf : kHalf / 32);
  }
  __syncthreads();
  for (int round = 0; round < kRounds; round++) {
    if (t == kHalf) {
      wait(&empty, (round & 1) ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full)),
                   "n"(kHalf * 4)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%0], [%1], %2, [%3];" ::"r"(address(number)),
                   "l"(numbers + round * kHalf), "n"(kHalf * 4), "r"(address(&full))
                   : "memory");
    } else if (t < kHalf) {
      wait(&full, round & 1);
      if (number[at] != round * kHalf + at) atomicAdd(wrong, 1);
      if (kAll) {
        arrive(&empty);
      } else {
        __syncwarp();
        if (t % 32 == 0) arrive(&empty);
      }
    }
  }
}

__global__ void every_lane_frees_a_copy(int *wrong) { copied<true>(wrong); }
__global__ void first_lane_frees_a_copy(int *wrong) { copied<false>(wrong); }

// All threads meet between a write and the read of a neighbour's number, and before the next write.
template <bool kSome, bool kNamed> __device__ void exchanged(int *wrong) {
  __shared__ int number[kThreads], other[64];
  const int t = threadIdx.x;
  if (kSome && t < 64) {
    other[t] = t;
    meet<3, 64>();
    if (other[63 - t] != 63 - t) atomicAdd(wrong, 1);
  }
  __syncthreads();
  for (int round = 0; round < kRounds; round++) {
    number[t] = round + t;
    if (kNamed) meet<1, kThreads>(); else __syncthreads();
    if (number[t ^ 128] != round + (t ^ 128)) atomicAdd(wrong, 1);
    if (kNamed) meet<2, kThreads>(); else __syncthreads();
  }
}

__global__ void all_meet(int *wrong) { exchanged<false, false>(wrong); }
__global__ void all_meet_by_name(int *wrong) { exchanged<false, true>(wrong); }
__global__ void some_met_before(int *wrong) { exchanged<true, false>(wrong); }
__global__ void some_met_before_by_name(int *wrong) { exchanged<true, true>(wrong); }

// A race: what is read may be of either round.
__global__ void nobody_waits(int *wrong) {
  __shared__ int number[kThreads];
  const int t = threadIdx.x;
  number[t] = -1;
  __syncthreads();
  number[t] = t;
  const int found = number[t ^ 128];
  if (found != -1 && found != (t ^ 128)) atomicAdd(wrong, 1);
}

int main(int count, char **arguments) {
  struct { const char *name; void (*kernel)(int *); } ways[] = {
      {"every_lane_arrives", every_lane_arrives},
      {"first_lane_arrives", first_lane_arrives},
      {"every_lane_frees_a_copy", every_lane_frees_a_copy},
      {"first_lane_frees_a_copy", first_lane_frees_a_copy},
      {"all_meet", all_meet},
      {"all_meet_by_name", all_meet_by_name},
      {"some_met_before", some_met_before},
      {"some_met_before_by_name", some_met_before_by_name},
      {"nobody_waits", nobody_waits},
  };
  for (auto &way : ways) {
    if (count != 2 || strcmp(way.name, arguments[1]) != 0) continue;
    static int counted[kRounds * kHalf];
    for (int i = 0; i < kRounds * kHalf; i++) counted[i] = i;
    int *wrong, found = -1;
    if (cudaMemcpyToSymbol(numbers, counted, sizeof counted)) return 3;
    if (cudaMalloc(&wrong, sizeof found) || cudaMemset(wrong, 0, sizeof found)) return 3;
    way.kernel<<<8, kThreads>>>(wrong);
    if (cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost)) return 3;
    printf("%s: %d wrong\n", way.name, found);
    return found != 0;
  }
  return 2;
}
