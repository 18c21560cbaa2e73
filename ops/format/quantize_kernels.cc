#include "ops/format/quantize_kernels.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define ADAPTCP_AVX2 __attribute__((target("avx2")))
#endif

#define ADAPTCP_INLINE inline __attribute__((always_inline))

namespace adaptcp {
namespace {

// GCC's and Clang's vectors: two of SSE2's or NEON's, or one of AVX2's.
typedef float Floats __attribute__((vector_size(4 * kBlock)));
typedef int32_t Ints __attribute__((vector_size(4 * kBlock)));
typedef uint8_t Bytes __attribute__((vector_size(kBlock)));

// Adding this to a float in [0, 2^22] rounds it to an integer, ties to even.
constexpr float kRounding = 8388608.0f;

ADAPTCP_INLINE bool Range(const float* x, size_t n, float* lo, float* hi) {
  Floats least, greatest;
  Ints all_finite;
  std::memcpy(&least, x, sizeof(least));
  greatest = least;
  all_finite = (Ints){} - 1;
  for (size_t i = 0; i < n; i += kBlock) {
    Floats block;
    Ints bits;
    std::memcpy(&block, x + i, sizeof(block));
    std::memcpy(&bits, x + i, sizeof(bits));
    least = block < least ? block : least;
    greatest = block > greatest ? block : greatest;
    all_finite &= (bits & 0x7f800000) != 0x7f800000;
  }
  *lo = least[0];
  *hi = greatest[0];
  bool finite = true;
  for (size_t j = 0; j < kBlock; ++j) {
    *lo = least[j] < *lo ? least[j] : *lo;
    *hi = greatest[j] > *hi ? greatest[j] : *hi;
    finite = finite && all_finite[j] != 0;
  }
  return finite;
}

// The codes of a block, as floats.
ADAPTCP_INLINE void Round(const float* x, const Floats& zero,
                          const Floats& inverse, const Floats& levels,
                          Floats* block, Floats* codes) {
  std::memcpy(block, x, sizeof(*block));
  const Floats none = {};
  Floats t = (*block - zero) * inverse;
  t = t < none ? none : t;
  t = t > levels ? levels : t;
  t = t + kRounding;
  *codes = t - kRounding;
}

ADAPTCP_INLINE void Quantize(const float* x, size_t n, Grid grid, int levels,
                             uint8_t* codes) {
  const Floats zero = (Floats){} + grid.zero;
  const Floats inverse = (Floats){} + 1.0f / grid.scale;
  const Floats most = (Floats){} + static_cast<float>(levels);
  for (size_t i = 0; i < n; i += kBlock) {
    Floats block, rounded;
    Round(x + i, zero, inverse, most, &block, &rounded);
    const Ints ints = __builtin_convertvector(rounded, Ints);
    const Bytes bytes = __builtin_convertvector(ints, Bytes);
    std::memcpy(codes + i, &bytes, sizeof(bytes));
  }
}

ADAPTCP_INLINE float Loss(const float* x, size_t n, Grid grid, int levels) {
  const Floats zero = (Floats){} + grid.zero;
  const Floats scale = (Floats){} + grid.scale;
  const Floats inverse = (Floats){} + 1.0f / grid.scale;
  const Floats most = (Floats){} + static_cast<float>(levels);
  Floats sum = {}, block, rounded;
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    Round(x + i, zero, inverse, most, &block, &rounded);
    const Floats lost = block - (rounded * scale + zero);
    sum = sum + lost * lost;
  }
  if (i < n) {
    Round(x + i, zero, inverse, most, &block, &rounded);
    Floats lost = block - (rounded * scale + zero);
    for (size_t j = n - i; j < kBlock; ++j) lost[j] = 0;
    sum = sum + lost * lost;
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) +
         ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

ADAPTCP_INLINE void Dequantize(const uint8_t* codes, size_t n, Grid grid,
                               float* x) {
  const Floats zero = (Floats){} + grid.zero;
  const Floats scale = (Floats){} + grid.scale;
  for (size_t i = 0; i < n; i += kBlock) {
    Bytes bytes;
    std::memcpy(&bytes, codes + i, sizeof(bytes));
    const Ints ints = __builtin_convertvector(bytes, Ints);
    const Floats block = __builtin_convertvector(ints, Floats) * scale + zero;
    std::memcpy(x + i, &block, sizeof(block));
  }
}

#define ADAPTCP_KERNELS(suffix, target)                                       \
  target bool Range##suffix(const float* x, size_t n, float* lo, float* hi) { \
    return Range(x, n, lo, hi);                                               \
  }                                                                           \
  target void Quantize##suffix(const float* x, size_t n, Grid grid,           \
                               int levels, uint8_t* codes) {                  \
    Quantize(x, n, grid, levels, codes);                                      \
  }                                                                           \
  target float Loss##suffix(const float* x, size_t n, Grid grid,              \
                            int levels) {                                     \
    return Loss(x, n, grid, levels);                                          \
  }                                                                           \
  target void Dequantize##suffix(const uint8_t* codes, size_t n, Grid grid,   \
                                 float* x) {                                  \
    Dequantize(codes, n, grid, x);                                            \
  }                                                                           \
  constexpr RowKernels k##suffix = {Range##suffix, Quantize##suffix,          \
                                    Loss##suffix, Dequantize##suffix};

ADAPTCP_KERNELS(Portable, )
#ifdef ADAPTCP_AVX2
ADAPTCP_KERNELS(Avx2, ADAPTCP_AVX2)
#endif

}  // namespace

const RowKernels& PortableKernels() { return kPortable; }

const RowKernels& Kernels() {
#ifdef ADAPTCP_AVX2
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return kAvx2;
#endif
  return kPortable;
}

}  // namespace adaptcp
