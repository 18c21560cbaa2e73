#include "ops/format/quantized_column.h"

#include <algorithm>
#include <vector>

#include "ops/format/float_bits.h"
#include "ops/format/quantize_kernels.h"
#include "ops/format/wire.h"

namespace adaptcp {
namespace {

template <typename T, float (*kFrom)(T)>
void Load(const char* from, size_t n, float* x) {
  for (size_t i = 0; i < n; ++i) x[i] = kFrom(wire::Get<T>(from + i * sizeof(T)));
}

template <typename T, T (*kTo)(float)>
void Store(const float* x, size_t n, char* to) {
  for (size_t i = 0; i < n; ++i) {
    const T value = kTo(x[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

float Narrow(double x) { return static_cast<float>(x); }
double Widen(float x) { return x; }

}  // namespace

size_t RecordBytes(Codec codec, int bits, size_t dim) {
  switch (codec) {
    case Codec::kAffine: return kGridBytes + CodeBytes(dim, bits);
    case Codec::kCodebook:
      return (size_t{1} << bits) * sizeof(uint16_t) + CodeBytes(dim, bits);
    default: return dim * sizeof(uint16_t);
  }
}

bool IsCodeWidth(Codec codec, int bits) {
  if (codec == Codec::kBfloat16) return bits == 16;
  return bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

void PackCodes(const uint8_t* codes, size_t n, int bits, char* packed) {
  if (bits == 8) {
    std::memcpy(packed, codes, n);
    return;
  }
  for (size_t bytes = CodeBytes(n, bits); bytes > 0; codes += 8) {
    uint32_t word = 0;
    for (int j = 0; j < 8; ++j) word |= uint32_t{codes[j]} << (j * bits);
    const size_t take = std::min<size_t>(bytes, bits);
    std::memcpy(packed, &word, take);
    packed += take;
    bytes -= take;
  }
}

void UnpackCodes(const char* packed, size_t n, int bits, uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, packed, n);
    return;
  }
  const uint32_t mask = (1u << bits) - 1;
  for (size_t bytes = CodeBytes(n, bits); bytes > 0; codes += 8) {
    uint32_t word = 0;
    const size_t take = std::min<size_t>(bytes, bits);
    std::memcpy(&word, packed, take);
    for (int j = 0; j < 8; ++j) {
      codes[j] = static_cast<uint8_t>((word >> (j * bits)) & mask);
    }
    packed += take;
    bytes -= take;
  }
}

void LoadFloats(const char* from, size_t n, DType dtype, float* x) {
  switch (dtype) {
    case DType::kFloat32: std::memcpy(x, from, n * sizeof(float)); break;
    case DType::kHalf: Load<uint16_t, FromHalf>(from, n, x); break;
    case DType::kBfloat16: Load<uint16_t, FromBfloat16>(from, n, x); break;
    default: Load<double, Narrow>(from, n, x); break;
  }
}

void StoreFloats(const float* x, size_t n, DType dtype, char* to) {
  switch (dtype) {
    case DType::kFloat32: std::memcpy(to, x, n * sizeof(float)); break;
    case DType::kHalf: Store<uint16_t, ToHalf>(x, n, to); break;
    case DType::kBfloat16: Store<uint16_t, ToBfloat16>(x, n, to); break;
    default: Store<double, Widen>(x, n, to); break;
  }
}

Status QuantizedColumn::Parse(const std::string& what, Codec codec,
                              std::string_view bytes, DType dtype,
                              uint32_t dim, size_t rows,
                              QuantizedColumn* column) {
  if (!IsFloatDType(dtype)) {
    return Status::DataLoss(what + ": quantised. Received: codec " +
                            std::to_string(static_cast<int>(codec)) +
                            ". Expected: 0 (raw), as for all of dtype " +
                            DTypeName(dtype));
  }
  wire::Cursor cursor(bytes);
  std::string_view head, raw;
  if (!cursor.Take(kQuantizedHeader, &head) || !cursor.Take((rows + 7) / 8, &raw)) {
    return Status::DataLoss(what + ": " + std::to_string(bytes.size()) +
                            " bytes can't hold " + std::to_string(rows) +
                            " quantised rows");
  }
  const int bits = wire::Get<uint8_t>(head.data());
  const auto front = wire::Get<uint32_t>(head.data());
  if (!IsCodeWidth(codec, bits) || front >> 8 != 0) {
    return Status::DataLoss(what + ": no width that its codec has. Received: " +
                            std::to_string(front) + ". Expected: " +
                            (codec == Codec::kBfloat16 ? "16" : "2, 3, 4 or 8"));
  }
  size_t raw_rows = 0;
  for (const char byte : raw) {
    raw_rows += static_cast<size_t>(
        __builtin_popcount(static_cast<unsigned char>(byte)));
  }
  if (rows % 8 != 0 &&
      static_cast<unsigned char>(raw.back()) >> (rows % 8) != 0) {
    return Status::DataLoss(what + ": a raw row beyond the last row");
  }
  if (const auto said = wire::Get<uint32_t>(head.data() + 4); said != raw_rows) {
    return Status::DataLoss(what + ": wrong number of raw rows. Received: " +
                            std::to_string(said) + ". Expected: " +
                            std::to_string(raw_rows));
  }
  // The products may not fit in 64 bits: each factor is compared first.
  const size_t record = RecordBytes(codec, bits, dim);
  const size_t raw_row = DTypeSize(dtype) * dim;
  const size_t quantized = rows - raw_rows;
  const size_t left = cursor.size();
  if (quantized > left / record || raw_rows > left / raw_row ||
      quantized * record + raw_rows * raw_row != left) {
    return Status::DataLoss(
        what + ": wrong size. Received: " + std::to_string(left) +
        " bytes. Expected: " + std::to_string(quantized) + " records of " +
        std::to_string(record) + " bytes, and " + std::to_string(raw_rows) +
        " raw rows of " + std::to_string(raw_row));
  }
  column->codec_ = codec;
  column->dtype_ = dtype;
  column->bits_ = bits;
  column->dim_ = dim;
  column->rows_ = rows;
  column->raw_rows_ = raw_rows;
  column->raw_ = raw.data();
  column->records_ = raw.data() + raw.size();
  column->raw_values_ = column->records_ + quantized * record;
  return column->CheckRecords(what);
}

// What the writer never writes: infinite values, bits beyond the last code.
Status QuantizedColumn::CheckRecords(const std::string& what) const {
  if (codec_ == Codec::kBfloat16) return Status::Ok();
  const size_t size = RecordBytes(codec_, bits_, dim_);
  const size_t entries = codec_ == Codec::kCodebook ? size_t{1} << bits_ : 2;
  const int used = static_cast<int>(dim_ * bits_ % 8);
  for (const char* at = records_; at != raw_values_; at += size) {
    bool good = used == 0 || static_cast<uint8_t>(at[size - 1]) >> used == 0;
    for (size_t i = 0; i < entries; ++i) {
      good = good && IsFiniteBfloat16(wire::Get<uint16_t>(at + 2 * i));
    }
    if (codec_ == Codec::kAffine) good = good && static_cast<int8_t>(at[1]) >= 0;
    if (!good) {
      return Status::DataLoss(what + ": the record of a quantised row is damaged");
    }
  }
  return Status::Ok();
}

void QuantizedColumn::Read(char* to) const {
  // With rows, the file is as long as they are; without, they may be of any
  // length, and no memory is taken for one.
  if (rows_ == 0) return;
  const DefaultFloatEnvironment environment;
  const RowKernels& kernels = Kernels();
  const size_t record = RecordBytes(codec_, bits_, dim_);
  const size_t row_bytes = DTypeSize(dtype_) * dim_;
  std::vector<uint8_t> codes(PaddedToBlock(dim_));
  std::vector<float> row(PaddedToBlock(dim_));
  float book[256];
  const char* at = records_;
  const char* raw = raw_values_;
  for (size_t i = 0; i < rows_; ++i, to += row_bytes) {
    if (is_raw(i)) {
      std::memcpy(to, raw, row_bytes);
      raw += row_bytes;
      continue;
    }
    switch (codec_) {
      case Codec::kAffine: {
        const Grid grid = {FromBfloat16(wire::Get<uint16_t>(at + 2)),
                           FromBfloat16(wire::Get<uint16_t>(at))};
        UnpackCodes(at + kGridBytes, dim_, bits_, codes.data());
        kernels.dequantize(codes.data(), dim_, grid, row.data());
        break;
      }
      case Codec::kCodebook: {
        const size_t entries = size_t{1} << bits_;
        LoadFloats(at, entries, DType::kBfloat16, book);
        UnpackCodes(at + 2 * entries, dim_, bits_, codes.data());
        for (size_t d = 0; d < dim_; ++d) row[d] = book[codes[d]];
        break;
      }
      default: LoadFloats(at, dim_, DType::kBfloat16, row.data());
    }
    StoreFloats(row.data(), dim_, dtype_, to);
    at += record;
  }
}

}  // namespace adaptcp
