// What do the registers of a matrix instruction get from packed MXFP4 weights?
//
// The layout is that of deepinfer_nvidia.gemm.packing: for 64 channels and 64 inputs one record of
// 2048 bytes of codes, in the order of the registers, and 128 bytes of scales.

namespace deepinfer {

constexpr int kCodeBytes = 2048;               // 64 channels x 64 inputs
constexpr int kRecordBytes = kCodeBytes + 128; // and their scales

__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// Eight codes of a thread become the four A registers of one k16 step: the bits of a code, put where bf16 has sign, exponent and first mantissa bit, are the value times
// 2^-126.
__device__ __forceinline__ void widen(uint32_t codes, uint32_t scale_low, uint32_t scale_high,
                                      uint32_t *a) {
  constexpr uint32_t kBits = 0x81C081C0u;
  a[0] = times(codes & kBits, scale_low);
  a[1] = times((codes << 3) & kBits, scale_high);
  a[2] = times((codes << 6) & kBits, scale_low);
  uint32_t last = ((codes << 1) & 0x80008000u) | ((codes >> 5) & 0x01000100u) |
                  ((codes >> 4) & 0x00C000C0u);
  a[3] = times(last, scale_high);
}
// A stored scale byte is the exponent field of 2^126 times the scale; twice, for bf16x2.
__device__ __forceinline__ uint32_t spread(uint32_t bytes, int which) {
  return __byte_perm(bytes, 0, 0x4040 | which << 8 | which) << 7;
}

} // namespace deepinfer
