// How does Hopper multiply bf16 rows with one bf16 weight at the rate of its tensor cores?
//
// Blocks are persistent and take one tile of rows and channels after the other. The copies of the
// next tile run while results are written: they go to shared memory first, and from there by the copy
// engine, while the tensor cores are at the next tile.

namespace deepinfer_dense {

// kProducts products of kN channels and kK inputs each lie side by side. K is summed in kParts parts
// one after the other. Results are written kChunk channels at a time, in boxes of kBox channels and
// the 16 rows of a warp; 0 writes them from registers.
template <int kProducts, int kN, int kK, int kParts, typename Ring, int kBand, int kChunk,
          int kBox, typename Out, int kRegisters>
struct Dense {
  static constexpr int kWarpGroups = Ring::kWarpGroups, kTiles = Ring::kTiles;
  static constexpr int kChannels = Ring::kChannels, kDown = Ring::kDown, kAcross = Ring::kAcross;
  using Part = Parts<kK, kParts>;
  static constexpr int kRows = Ring::kRows, kBlocks = Ring::kBlocks;
  static constexpr int kTilesN = (kN + kChannels - 1) / kChannels;
  // Clusters side by side: kAcross tiles of channels each.
  static constexpr int kPlacesN = (kTilesN + kAcross - 1) / kAcross;
  // Of results: a row of a box, and what all warps keep; the ring begins behind.
  static constexpr int kPitch = kBox * int(sizeof(Out));
  static constexpr int kResultBytes = kWarpGroups * 64 * kChunk * int(sizeof(Out));
  static_assert(kChunk == 0 || (kChannels % kChunk == 0 && kChunk % kBox == 0 && kBox % 8 == 0 &&
                                kPitch <= 128 && (kProducts == 1 || kN % kBox == 0)));
  static_assert(kRegisters == 0 || kWarpGroups == 2 || kWarpGroups == 3);

  Ring ring;
  const CUtensorMap &x;
  const CUtensorMap &weight;
  const CUtensorMap &results;  // without chunks, of no meaning
  Out *out;
  int rows;

  static __device__ __forceinline__ int rank() {
    if constexpr (kBlocks == 1)
      return 0;
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return static_cast<int>(r);
  }

  struct Item {
    int product, row, channel;
  };
  static __device__ __forceinline__ int row_places(int rows) {
    return (rows + kRows * kDown - 1) / (kRows * kDown);
  }
  static __device__ __forceinline__ int items(int rows) {
    return kProducts * kPlacesN * row_places(rows);
  }
  // Bands of kBand row tiles, so that what runs at one time shares rows and channels in the L2.
  static __device__ __forceinline__ Item item(int index, int rows, int block) {
    int places = row_places(rows), product = index / (kPlacesN * places);
    index -= product * kPlacesN * places;
    int band = index / (kPlacesN * kBand), inside = index % (kPlacesN * kBand);
    int height = min(kBand, places - band * kBand);
    int down = band * kBand + inside % height, across = inside / height;
    return {product, (down * kDown + block % kDown) * kRows,
            (across * kAcross + block / kDown) * kChannels};
  }

  static __device__ __forceinline__ typename Ring::Source source(const Item &it, int rows) {
    return {it.product * kK, it.product * kN + it.channel, it.row,
            max(0, min(kRows, rows - it.row)), max(0, min(kChannels, kN - it.channel))};
  }

  // What can be done before there are rows: barriers, and weights of the first item.
  static __device__ __forceinline__ void begin(const Ring &ring, const CUtensorMap &weight, int rows) {
    int block = rank(), index = blockIdx.x / kBlocks;
    if (threadIdx.x == 0)
      ring.start();
    meet();
    if (threadIdx.x == kWarpGroups * 128 && index < items(rows))
      ring.begin(weight, source(item(index, rows, block), rows), 0, Part::kSteps, block);
  }

  __device__ __forceinline__ void produce(int block) const {
    typename Ring::Place at{0, 1};
    int begun = Ring::kStages;
    for (int index = blockIdx.x / kBlocks; index < items(rows); index += gridDim.x / kBlocks) {
      ring.fill(at, x, weight, source(item(index, rows, block), rows), 0, Part::kSteps, begun, block);
      begun = 0;
    }
  }

  // Where 16 bytes of a row of results lie among those of this warp: boxes of 16 rows, with the
  // pieces of a row in another order in each row.
  static __device__ __forceinline__ uint32_t piece(int row, int i) {
    constexpr int kPieces = kPitch / 16;
    int turned = i % kPieces ^ (row * kPitch / 128) % kPieces;
    return i / kPieces * 16 * kPitch + row * kPitch + turned * 16;
  }

  // Sums of a warp for 16 rows and kChunk channels to shared memory.
  __device__ __forceinline__ void place(const float *sum, uint32_t to) const {
    int lane = threadIdx.x % 32;
    if constexpr (sizeof(Out) == 2) {
#pragma unroll
      for (int j = 0; j < kChunk / 8; j += 2) {
        uint32_t part[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (j + i / 2 >= kChunk / 8)
            continue;
          __nv_bfloat162 pair = __floats2bfloat162_rn(sum[4 * j + 2 * i], sum[4 * j + 2 * i + 1]);
          part[i] = *reinterpret_cast<uint32_t *>(&pair);
        }
        uint32_t here = to + piece(lane % 16, j + lane / 16);
        if (j + 1 < kChunk / 8)
          store_matrices(here, part[0], part[1], part[2], part[3]);
        else
          store_matrices(here, part[0], part[1]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kChunk / 4; ++j) {
        uint32_t here = to + piece(lane / 4 + j % 2 * 8, j / 2 * 2 + lane % 4 / 2) + lane % 2 * 8;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(here), "f"(sum[2 * j]),
                     "f"(sum[2 * j + 1])
                     : "memory");
      }
    }
  }

  // From registers, where rows of results do not begin at multiples of 16 bytes.
  __device__ __forceinline__ void store_at_once(const float *sum, const Item &it, int row) const {
    int lane = threadIdx.x % 32;
    row += lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= rows)
        continue;
      Out *line = out + (int64_t(row + 8 * half) * kProducts + it.product) * kN;
#pragma unroll
      for (int j = 0; j < kChannels / 8; ++j)
        store_channels<kN>(line, it.channel + 8 * j + lane % 4 * 2, sum[4 * j + 2 * half],
                           sum[4 * j + 2 * half + 1]);
    }
  }

  // Each warp writes the 16 rows that it has sums of.
  __device__ __forceinline__ void store(const float *sum, const Item &it, int first_row) const {
    int warp = threadIdx.x / 32;
    int row = it.row + first_row + warp % 4 * 16;
    if constexpr (kChunk == 0) {
      store_at_once(sum, it, row);
    } else {
      uint32_t here = shared_address(ring.shared) - kResultBytes + warp * 16 * kChunk * sizeof(Out);
#pragma unroll
      for (int c = 0; c < kChannels; c += kChunk) {
        bulk_wait_read();
        __syncwarp();
        place(sum + c / 2, here);
        fence_for_copies();
        __syncwarp();
        if (threadIdx.x % 32 == 0 && row < rows) {
#pragma unroll
          for (int i = 0; i < kChunk; i += kBox)
            if (it.channel + c + i < kN)
              tensor_store(results, it.product * kN + it.channel + c + i, row,
                           here + i * 16 * int(sizeof(Out)));
          bulk_commit();
        }
      }
    }
  }

  __device__ __forceinline__ void consume(int block) const {
    typename Ring::Place at{0, 0};
    int group = threadIdx.x / 128;
    for (int index = blockIdx.x / kBlocks; index < items(rows); index += gridDim.x / kBlocks) {
      Item it = item(index, rows, block);
      float sum[kTiles][Ring::kSums];
      if constexpr (kParts == 1) {
        ring.multiply(sum, at, Part::kSteps);
      } else {
        float total[kTiles][Ring::kSums];
#pragma unroll
        for (int i = 0; i < kTiles * Ring::kSums; ++i)
          total[i / Ring::kSums][i % Ring::kSums] = Part::kNothing;
        for (int part = 0; part < kParts; ++part) {
          ring.multiply(sum, at, Part::steps(part));
#pragma unroll
          for (int i = 0; i < kTiles * Ring::kSums; ++i)
            total[i / Ring::kSums][i % Ring::kSums] += sum[i / Ring::kSums][i % Ring::kSums];
        }
#pragma unroll
        for (int i = 0; i < kTiles * Ring::kSums; ++i)
          sum[i / Ring::kSums][i % Ring::kSums] = total[i / Ring::kSums][i % Ring::kSums];
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        store(sum[m], it, (group * kTiles + m) * 64);
    }
    // Shared memory is the block's until the copy engine has read it.
    if constexpr (kChunk > 0)
      bulk_wait_read();
  }

  static __device__ __forceinline__ void meet() {
    if constexpr (kBlocks > 1) {
      asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
                   ::: "memory");
    } else {
      __syncthreads();
    }
  }

  __device__ __forceinline__ void run() const {
    int block = rank();
    if (threadIdx.x >= kWarpGroups * 128) {
      if constexpr (kRegisters > 0)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((kWarpGroups == 2 ? 504 : 512) -
                                                                 kWarpGroups * kRegisters));
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
