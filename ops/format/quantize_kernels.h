// The loops over the elements of one row, in the widest vectors that the
// processor has. All versions compute the same bits.

#ifndef ADAPTCP_OPS_FORMAT_QUANTIZE_KERNELS_H_
#define ADAPTCP_OPS_FORMAT_QUANTIZE_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace adaptcp {

// Elements are computed in blocks of this many; buffers are padded to it.
constexpr size_t kBlock = 8;
constexpr size_t PaddedToBlock(size_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// A code q stands for zero + q * scale. Both are bfloat16 numbers, so that the
// product is exact in float, and fused or not the sum is the same.
struct Grid {
  float zero = 0;
  float scale = 0;  // 0, or at least the smallest normal float
};

// x: n floats, padded with copies of one of them; codes: n, padded likewise.
struct RowKernels {
  // Least and greatest element; false if one is NaN or infinite.
  bool (*range)(const float* x, size_t n, float* lo, float* hi);
  // The nearest code of each element, 0 to levels. grid.scale > 0.
  void (*quantize)(const float* x, size_t n, Grid grid, int levels,
                   uint8_t* codes);
  // The sum of the squares of what `quantize` loses, times `unit`.
  float (*loss)(const float* x, size_t n, Grid grid, int levels, float unit);
  // x[i] = what codes[i] stands for.
  void (*dequantize)(const uint8_t* codes, size_t n, Grid grid, float* x);
};

// Those that this processor runs fastest.
const RowKernels& Kernels();
// Those that every processor runs.
const RowKernels& PortableKernels();

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_QUANTIZE_KERNELS_H_
