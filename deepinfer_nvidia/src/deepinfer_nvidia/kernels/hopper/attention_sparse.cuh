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
namespace deepinfer {

// ---- matrix products ------------------------------------------------------------------------

TL_DEVICE void score_tile(float (&score)[32], uint32_t q, uint32_t key) {
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
      tl::warpgroup_wait<0>();
      if (lane == 0) tl::mbarrier_arrive(shared->free[tile & 1]);  // before the wait, or gathering idles
      wait_for_keys(tile + 1, shared);
      tl::warpgroup_arrive();
      score_tile(score, smem, next_key);
      tl::warpgroup_commit_batch();
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
