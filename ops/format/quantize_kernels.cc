#include "ops/format/quantize_kernels.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define ADAPTCP_AVX2 __attribute__((target("avx2")))
#endif

#define ADAPTCP_INLINE inline __attribute__((always_inline))

namespace adaptcp {
namespace {

// GCC's and Clang's vectors of W elements: 4 are one of SSE2's or NEON's, 8 one
// of AVX2's. Wider ones than the processor has are taken apart into elements. A
// block is computed in kBlock / W parts, lane by lane in the same order.
template <size_t W>
struct Lanes {
  typedef float Floats __attribute__((vector_size(4 * W)));
  typedef int32_t Ints __attribute__((vector_size(4 * W)));
  typedef uint8_t Bytes __attribute__((vector_size(W)));
  static constexpr size_t kParts = kBlock / W;
};

// Adding this to a float in [0, 2^22] rounds it to an integer, ties to even.
constexpr float kRounding = 8388608.0f;

template <size_t W>
ADAPTCP_INLINE bool Range(const float* x, size_t n, float* lo, float* hi) {
  using Floats = typename Lanes<W>::Floats;
  using Ints = typename Lanes<W>::Ints;
  Floats least, greatest;
  std::memcpy(&least, x, sizeof(least));
  greatest = least;
  Ints all_finite = Ints{} - 1;
  const size_t padded = PaddedToBlock(n);
  for (size_t i = 0; i < padded; i += W) {
    Floats part;
    Ints bits;
    std::memcpy(&part, x + i, sizeof(part));
    std::memcpy(&bits, x + i, sizeof(bits));
    least = part < least ? part : least;
    greatest = part > greatest ? part : greatest;
    all_finite &= (bits & 0x7f800000) != 0x7f800000;
  }
  *lo = least[0];
  *hi = greatest[0];
  bool finite = true;
  for (size_t j = 0; j < W; ++j) {
    *lo = least[j] < *lo ? least[j] : *lo;
    *hi = greatest[j] > *hi ? greatest[j] : *hi;
    finite = finite && all_finite[j] != 0;
  }
  return finite;
}

// A grid, in every lane.
template <size_t W>
struct WideGrid {
  typename Lanes<W>::Floats zero, scale, inverse, levels;
};

template <size_t W>
ADAPTCP_INLINE WideGrid<W> Widen(Grid grid, int levels) {
  using Floats = typename Lanes<W>::Floats;
  return {Floats{} + grid.zero, Floats{} + grid.scale,
          Floats{} + 1.0f / grid.scale,
          Floats{} + static_cast<float>(levels)};
}

// The codes of a part, as floats.
template <size_t W>
ADAPTCP_INLINE void Round(const float* x, const WideGrid<W>& grid,
                          typename Lanes<W>::Floats* part,
                          typename Lanes<W>::Floats* codes) {
  std::memcpy(part, x, sizeof(*part));
  const typename Lanes<W>::Floats none = {};
  auto t = (*part - grid.zero) * grid.inverse;
  t = t < none ? none : t;
  t = t > grid.levels ? grid.levels : t;
  t = t + kRounding;
  *codes = t - kRounding;
}

template <size_t W>
ADAPTCP_INLINE void Quantize(const float* x, size_t n, Grid grid, int levels,
                             uint8_t* codes) {
  const WideGrid<W> wide = Widen<W>(grid, levels);
  const size_t padded = PaddedToBlock(n);
  for (size_t i = 0; i < padded; i += W) {
    typename Lanes<W>::Floats part, rounded;
    Round<W>(x + i, wide, &part, &rounded);
    const auto ints = __builtin_convertvector(rounded, typename Lanes<W>::Ints);
    const auto bytes = __builtin_convertvector(ints, typename Lanes<W>::Bytes);
    std::memcpy(codes + i, &bytes, W);
  }
}

template <size_t W>
ADAPTCP_INLINE float Loss(const float* x, size_t n, Grid grid, int levels,
                          float unit) {
  constexpr size_t kParts = Lanes<W>::kParts;
  const WideGrid<W> wide = Widen<W>(grid, levels);
  typename Lanes<W>::Floats sum[kParts] = {}, part, rounded;
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (size_t p = 0; p < kParts; ++p) {
      Round<W>(x + i + p * W, wide, &part, &rounded);
      const auto lost = (part - (rounded * wide.scale + wide.zero)) * unit;
      sum[p] = sum[p] + lost * lost;
    }
  }
  for (size_t p = 0; i < n && p < kParts; ++p) {
    Round<W>(x + i + p * W, wide, &part, &rounded);
    auto lost = (part - (rounded * wide.scale + wide.zero)) * unit;
    for (size_t j = 0; j < W; ++j) {
      if (i + p * W + j >= n) lost[j] = 0;
    }
    sum[p] = sum[p] + lost * lost;
  }
  float lanes[kBlock];
  std::memcpy(lanes, sum, sizeof(lanes));
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <size_t W>
ADAPTCP_INLINE void Dequantize(const uint8_t* codes, size_t n, Grid grid,
                               float* x) {
  using Floats = typename Lanes<W>::Floats;
  const Floats zero = Floats{} + grid.zero;
  const Floats scale = Floats{} + grid.scale;
  const size_t padded = PaddedToBlock(n);
  for (size_t i = 0; i < padded; i += W) {
    typename Lanes<W>::Bytes bytes;
    std::memcpy(&bytes, codes + i, W);
    const auto ints = __builtin_convertvector(bytes, typename Lanes<W>::Ints);
    const Floats part = __builtin_convertvector(ints, Floats) * scale + zero;
    std::memcpy(x + i, &part, sizeof(part));
  }
}

#define ADAPTCP_KERNELS(suffix, W, target)                                     \
  target bool Range##suffix(const float* x, size_t n, float* lo, float* hi) {  \
    return Range<W>(x, n, lo, hi);                                             \
  }                                                                            \
  target void Quantize##suffix(const float* x, size_t n, Grid grid,            \
                               int levels, uint8_t* codes) {                   \
    Quantize<W>(x, n, grid, levels, codes);                                    \
  }                                                                            \
  target float Loss##suffix(const float* x, size_t n, Grid grid,               \
                            int levels, float unit) {                          \
    return Loss<W>(x, n, grid, levels, unit);                                  \
  }                                                                            \
  target void Dequantize##suffix(const uint8_t* codes, size_t n, Grid grid,    \
                                 float* x) {                                   \
    Dequantize<W>(codes, n, grid, x);                                          \
  }                                                                            \
  constexpr RowKernels k##suffix = {Range##suffix, Quantize##suffix,           \
                                    Loss##suffix, Dequantize##suffix};

ADAPTCP_KERNELS(Portable, 4, )
#ifdef ADAPTCP_AVX2
ADAPTCP_KERNELS(Avx2, 8, ADAPTCP_AVX2)
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
