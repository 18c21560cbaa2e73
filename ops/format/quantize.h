// Quantises columns of values, row by row, with the methods of Check-N-Run
// (Eisenman et al., NSDI 2022): what QuantizedColumn reads again.

#ifndef ADAPTCP_OPS_FORMAT_QUANTIZE_H_
#define ADAPTCP_OPS_FORMAT_QUANTIZE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ops/format/enums.h"
#include "ops/util/status.h"

namespace adaptcp {

enum class Method : uint8_t {
  kNone,        // the values as they are
  kSymmetric,   // a grid from -a to a, a being the greatest magnitude
  kAsymmetric,  // a grid from the least to the greatest element
  kAdaptive,    // a grid within that, found by a greedy search
  kKmeans,      // a codebook, by Lloyd's algorithm
  kBfloat16,    // each element to nearest
};

// How the values of a table are written.
struct Quantization {
  Method method = Method::kNone;
  int bits = 0;  // 2, 3, 4 or 8; 16 for kBfloat16, 0 for kNone

  bool operator==(const Quantization& other) const {
    return method == other.method && bits == other.bits;
  }
};

// From a method's name: "symmetric", "asymmetric", "adaptive", "kmeans",
// "bfloat16", "raw". InvalidArgument naming what was received and is known.
Status ParseQuantization(std::string_view method, int bits,
                         Quantization* quantization);

// The codec of a column of such rows: kRaw where quantising does not make them
// smaller (rows too short, 16-bit floats as kBfloat16), and for what is no
// floating point.
Codec CodecFor(const Quantization& quantization, DType dtype, size_t dim);

// Appends to *out the bytes of the column that holds `rows` rows of `dim`
// elements; CodecFor is not kRaw. Any thread; the bytes follow from the values
// alone. A row that does not come back finite is kept raw: with NaN or infinite
// elements, or too large or too close together for a grid in bfloat16; so is one
// of equal elements that would not come back exactly.
void QuantizeColumn(const Quantization& quantization, DType dtype, size_t dim,
                    const char* values, size_t rows, std::string* out);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_QUANTIZE_H_
