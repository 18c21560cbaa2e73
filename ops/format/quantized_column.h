// A value column of a row block whose rows were quantised, each by itself
// (docs/format.md): how it is laid out, and how it is read.

#ifndef ADAPTCP_OPS_FORMAT_QUANTIZED_COLUMN_H_
#define ADAPTCP_OPS_FORMAT_QUANTIZED_COLUMN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ops/format/enums.h"
#include "ops/util/status.h"

namespace adaptcp {

// The front of a column; the bits that say which rows are raw come after it,
// then the records of the rows that are not, then the rows that are.
constexpr size_t kQuantizedHeader = 8;
// In front of the codes of an affine row: scale and zero, in bfloat16.
constexpr size_t kGridBytes = 4;

constexpr size_t CodeBytes(size_t dim, int bits) { return (dim * bits + 7) / 8; }
// Bytes of a row that is not raw. `codec` is not kRaw.
size_t RecordBytes(Codec codec, int bits, size_t dim);
// 2, 3, 4 and 8; of kBfloat16 16.
bool IsCodeWidth(Codec codec, int bits);

// Code i takes bits [i*bits, (i+1)*bits) of `packed`, the least significant bit
// of a byte first; what is left of the last byte is 0. `codes` has room for 8
// codes more than there are, those must be 0 when packing.
void PackCodes(const uint8_t* codes, size_t n, int bits, char* packed);
void UnpackCodes(const char* packed, size_t n, int bits, uint8_t* codes);

// n floats as elements of a dtype of floating point, rounded to nearest; and
// the other way round.
void StoreFloats(const float* x, size_t n, DType dtype, char* to);
void LoadFloats(const char* from, size_t n, DType dtype, float* x);

// Points into the bytes it was parsed from. Immutable; any thread may read it.
class QuantizedColumn {
 public:
  // `bytes` is untrusted. `what` names the column. `rows` rows of `dim` elements.
  static Status Parse(const std::string& what, Codec codec,
                      std::string_view bytes, DType dtype, uint32_t dim,
                      size_t rows, QuantizedColumn* column);

  // Writes [rows, dim] elements to `to`, which need not be aligned.
  void Read(char* to) const;

  // Rows that were kept as they are.
  size_t raw_rows() const { return raw_rows_; }

 private:
  bool is_raw(size_t row) const { return (raw_[row >> 3] >> (row & 7)) & 1; }
  Status CheckRecords(const std::string& what) const;

  Codec codec_ = Codec::kRaw;
  DType dtype_ = DType::kInvalid;
  int bits_ = 0;
  size_t dim_ = 0;
  size_t rows_ = 0;
  size_t raw_rows_ = 0;
  const char* raw_ = nullptr;
  const char* records_ = nullptr;
  const char* raw_values_ = nullptr;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_QUANTIZED_COLUMN_H_
