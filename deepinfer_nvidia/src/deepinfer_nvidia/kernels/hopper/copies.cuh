// Which instructions of Hopper do the kernels here need by name? Barriers in shared memory, copies that
// complete on them, and the description of a tile in shared memory. The files are placed one behind the
// other, this one first.
#include <cuda.h>
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/instruction/wgmma.h>

namespace deepinfer {

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
__device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                                          uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar)
               : "memory");
}
// A box of a matrix: ``column`` is its first input, ``row`` its first row.
__device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap &map, int column, int row,
                                            uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(&map), "r"(column), "r"(row), "r"(bar)
               : "memory");
}
// At the barrier of a block of the cluster.
__device__ __forceinline__ void barrier_arrive(uint32_t bar, int block, bool is_cluster) {
  if (is_cluster)
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(bar),
                 "r"(block)
                 : "memory");
  else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// A box of a matrix, to the same place in the shared memory of every block of ``blocks``.
__device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap &map, int column, int row,
                                            uint32_t bar, int blocks, bool is_shared) {
  if (is_shared)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(bar), "h"(static_cast<uint16_t>(blocks))
                 : "memory");
  else
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(bar)
                 : "memory");
}
// A box of a matrix from shared memory, as far as it lies inside. What this thread asked for becomes
// one group, which it can wait for.
__device__ __forceinline__ void tensor_store(const CUtensorMap &map, int column, int row,
                                             uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                   &map),
               "r"(column), "r"(row), "r"(from)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the shared memory of all groups has been read.
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// What was written to shared memory before is seen by the copy engine.
__device__ __forceinline__ void fence_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Two 8 x 8 matrices of 16-bit numbers; lanes 0 to 15 say where their rows lie.
__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b)
               : "memory");
}
// Four; all lanes say where.
__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
// K-major, 128-byte swizzle, 1024 bytes from eight rows to the next eight.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return uint64_t((address & 0x3FFFF) >> 4) | (uint64_t(1) << 16) | (uint64_t(64) << 32) |
         (uint64_t(1) << 62);
}

} // namespace deepinfer
