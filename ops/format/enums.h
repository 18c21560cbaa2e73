// The numbers and names that are written into files. They are persistent:
// never change one, never use one again; add new ones at the end.

#ifndef ADAPTCP_OPS_FORMAT_ENUMS_H_
#define ADAPTCP_OPS_FORMAT_ENUMS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/util/status.h"

namespace adaptcp {

// The version of the whole file layout, in the header record.
constexpr uint32_t kFormatVersion = 1;
// The versions of the binary layouts of 'R' and 'D' records.
constexpr uint8_t kRowBlockVersion = 1;
constexpr uint8_t kDenseBlockVersion = 1;

// Element types. The numbers are those of TensorFlow's DataType (persistent
// there too), so that a kernel converts by a cast; JSON has the names of
// tf.DType.name.
enum class DType : uint8_t {
  kInvalid = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kUint32 = 22,
  kUint64 = 23,
};

// How the bytes of a column or a dense block are encoded.
enum class Codec : uint8_t {
  kRaw = 0,
  // Of columns of values of floating point alone; see quantized_column.h.
  kAffine = 1,
  kCodebook = 2,
  kBfloat16 = 3,
};

// The first byte of every record.
enum class RecordType : char {
  kHeader = 'H',
  kRows = 'R',
  kDense = 'D',
  kFooter = 'F',
};

// The columns of a row block.
enum class ColumnType : uint8_t {
  kKeys = 1,
  kIndicators = 2,
  kPresence = 3,
  kValues = 4,
};

// What the rows of a segment are to the checkpoint that owns it.
enum class SegmentKind : uint8_t {
  kBase = 1,
  kIncrement = 2,
  kDifferential = 3,
  kDense = 4,
};

// "float32", ...; "" for a number that is none of the above.
const char* DTypeName(DType dtype);
// "base", "increment", "differential", "dense"; "" for anything else.
const char* SegmentKindName(SegmentKind kind);

// InvalidArgument naming what was received and what is known.
Status ParseDType(std::string_view name, DType* dtype);
Status ParseSegmentKind(std::string_view name, SegmentKind* kind);

// Bytes of one element; 0 for strings (and for unknown numbers).
size_t DTypeSize(DType dtype);
// Keys may be int64, int32 or string.
bool IsKeyDType(DType dtype);
bool IsKnownDType(DType dtype);

bool IsFloatDType(DType dtype);  // kHalf, kBfloat16, kFloat32, kFloat64

// Unimplemented, naming the codec, unless it is one of the above. DataLoss if it
// isn't kRaw, the only one there is unless `may_lose`.
Status CheckCodec(uint8_t codec, bool may_lose);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_ENUMS_H_
