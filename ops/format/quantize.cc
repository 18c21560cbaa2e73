#include "ops/format/quantize.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/format/float_bits.h"
#include "ops/format/quantize_kernels.h"
#include "ops/format/quantized_column.h"
#include "ops/format/wire.h"

namespace adaptcp {
namespace {

// Of the greedy search: it takes the range in so many steps, and goes on until
// this part of it is gone.
constexpr int kSteps = 25;
constexpr int kTurns = 15;
// Rounds of Lloyd's algorithm, which mostly ends before.
constexpr int kLloydRounds = 16;

struct MethodName {
  Method method;
  const char* name;
};
constexpr MethodName kMethods[] = {
    {Method::kNone, "raw"},           {Method::kSymmetric, "symmetric"},
    {Method::kAsymmetric, "asymmetric"}, {Method::kAdaptive, "adaptive"},
    {Method::kKmeans, "kmeans"},      {Method::kBfloat16, "bfloat16"}};

Codec CodecOf(Method method) {
  switch (method) {
    case Method::kNone: return Codec::kRaw;
    case Method::kKmeans: return Codec::kCodebook;
    case Method::kBfloat16: return Codec::kBfloat16;
    default: return Codec::kAffine;
  }
}

// The least grid in bfloat16 that reaches from lo to hi > lo, up to the rounding
// of its last step; false if there is none.
bool MakeGrid(float lo, float hi, int levels, Grid* grid) {
  const uint16_t zero = FloorBfloat16(lo);
  if (!IsFiniteBfloat16(zero)) return false;
  grid->zero = FromBfloat16(zero);
  const float step = (hi - grid->zero) / static_cast<float>(levels);
  if (!IsFinite(step) || step < FLT_MIN) return false;
  const uint16_t scale = CeilBfloat16(step);
  if (!IsFiniteBfloat16(scale)) return false;
  grid->scale = FromBfloat16(scale);
  const float width = static_cast<float>(levels) * grid->scale;
  return IsFinite(width) && IsFinite(grid->zero + width);
}

// One row at a time; the buffers are reused.
class RowQuantizer {
 public:
  RowQuantizer(const Quantization& quantization, DType dtype, size_t dim)
      : quantization_(quantization),
        dtype_(dtype),
        dim_(dim),
        levels_((1 << std::min(quantization.bits, 8)) - 1),
        row_bytes_(DTypeSize(dtype) * dim),
        kernels_(Kernels()),
        row_(PaddedToBlock(dim)),
        codes_(PaddedToBlock(dim)) {}

  // Writes the record of a row; false: it has to be kept raw.
  bool Quantize(const char* values, char* record) {
    LoadFloats(values, dim_, dtype_, row_.data());
    std::fill(row_.begin() + static_cast<long>(dim_), row_.end(), row_[0]);
    float lo, hi;
    if (!kernels_.range(row_.data(), dim_, &lo, &hi)) return false;
    if (quantization_.method == Method::kBfloat16) return ToBfloat16s(record, lo, hi);
    if (lo == hi) return Constant(values, record);
    if (quantization_.method == Method::kKmeans) return Codebook(record);
    Grid grid;
    if (!FindGrid(lo, hi, &grid)) return false;
    const float top = static_cast<float>(levels_) * grid.scale + grid.zero;
    if (!FitsDType(grid.zero) || !FitsDType(top)) return false;
    kernels_.quantize(row_.data(), dim_, grid, levels_, codes_.data());
    WriteAffine(grid, record);
    return true;
  }

 private:
  bool FindGrid(float lo, float hi, Grid* grid) {
    if (quantization_.method == Method::kSymmetric) {
      const float most = std::max(-lo, hi);
      return MakeGrid(-most, most, levels_, grid);
    }
    if (!MakeGrid(lo, hi, levels_, grid)) return false;
    if (quantization_.method == Method::kAdaptive) Search(lo, hi, grid);
    return true;
  }

  float Loss(const Grid& grid, float unit) const {
    return kernels_.loss(row_.data(), dim_, grid, levels_, unit);
  }

  // Takes the range in from below or from above, whichever loses less, and
  // leaves the best grid seen in *grid, which comes in as that of the whole.
  void Search(float lo, float hi, Grid* grid) {
    const Grid whole = *grid;
    const float unit = 1.0f / whole.scale;  // squares neither over- nor underflow
    const float of_whole = Loss(whole, unit);
    float least = of_whole;
    const float step = (hi - lo) / static_cast<float>(kSteps);
    int below = 0, above = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      Grid up, down;
      const float from = lo + static_cast<float>(below) * step;
      const float to = hi - static_cast<float>(above) * step;
      if (!MakeGrid(lo + static_cast<float>(below + 1) * step, to, levels_, &up) ||
          !MakeGrid(from, hi - static_cast<float>(above + 1) * step, levels_,
                    &down)) {
        break;
      }
      const float loses_up = Loss(up, unit), loses_down = Loss(down, unit);
      const bool is_up = loses_up < loses_down;
      (is_up ? below : above) += 1;
      const float loses = is_up ? loses_up : loses_down;
      if (loses < least) {
        least = loses;
        *grid = is_up ? up : down;
      }
    }
    // Never worse than the whole: the sums of floats are rounded, by less than
    // this much of them.
    const float rounding = 1.2e-7f * static_cast<float>(dim_ + 8);
    if (least < of_whole * (1 - rounding)) return;
    if (!(ExactLoss(*grid) < ExactLoss(whole))) *grid = whole;
  }

  double ExactLoss(const Grid& grid) {
    kernels_.quantize(row_.data(), dim_, grid, levels_, codes_.data());
    double sum = 0;
    for (size_t d = 0; d < dim_; ++d) {
      const float stored = static_cast<float>(codes_[d]) * grid.scale + grid.zero;
      const double lost = static_cast<double>(row_[d]) - stored;
      sum += lost * lost;
    }
    return sum;
  }

  bool FitsDType(float x) const {
    if (dtype_ == DType::kHalf) return (ToHalf(x) & 0x7c00) != 0x7c00;
    return dtype_ != DType::kBfloat16 || IsFiniteBfloat16(ToBfloat16(x));
  }

  void WriteAffine(const Grid& grid, char* record) {
    const uint16_t parts[] = {CeilBfloat16(grid.scale), FloorBfloat16(grid.zero)};
    std::memcpy(record, parts, sizeof(parts));
    WriteCodes(record + kGridBytes);
  }

  void WriteCodes(char* to) {
    std::fill(codes_.begin() + static_cast<long>(dim_), codes_.end(), 0);
    PackCodes(codes_.data(), dim_, quantization_.bits, to);
  }

  // A row of equal elements, if it comes back as it is.
  bool Constant(const char* values, char* record) {
    const uint16_t value = ToBfloat16(row_[0]);
    const std::vector<float> stored(dim_, FromBfloat16(value) + 0.0f);
    exact_.resize(row_bytes_);
    StoreFloats(stored.data(), dim_, dtype_, exact_.data());
    if (std::memcmp(exact_.data(), values, row_bytes_) != 0) return false;
    std::fill(codes_.begin(), codes_.end(), 0);
    if (quantization_.method == Method::kKmeans) {
      book_.assign(static_cast<size_t>(levels_) + 1, value);
      WriteCodebook(record);
    } else {
      WriteAffine({FromBfloat16(value), 0}, record);
    }
    return true;
  }

  bool ToBfloat16s(char* record, float lo, float hi) const {
    if (!IsFiniteBfloat16(ToBfloat16(lo)) || !IsFiniteBfloat16(ToBfloat16(hi))) {
      return false;
    }
    StoreFloats(row_.data(), dim_, DType::kBfloat16, record);
    return true;
  }

  void WriteCodebook(char* record) {
    const size_t bytes = book_.size() * sizeof(uint16_t);
    std::memcpy(record, book_.data(), bytes);
    WriteCodes(record + bytes);
  }

  // Lloyd's algorithm in one dimension, from an even grid: of sorted elements
  // each entry has a stretch. An entry that has none stays where it is.
  bool Codebook(char* record) {
    sorted_.assign(row_.begin(), row_.begin() + static_cast<long>(dim_));
    std::sort(sorted_.begin(), sorted_.end());
    const size_t entries = static_cast<size_t>(levels_) + 1;
    const double lo = sorted_.front(), hi = sorted_.back();
    centers_.resize(entries);
    for (size_t k = 0; k < entries; ++k) {
      centers_[k] = lo + (hi - lo) * static_cast<double>(k) / levels_;
    }
    for (int round = 0; round < kLloydRounds; ++round) {
      bool moved = false;
      for (size_t k = 0, i = 0; k < entries; ++k) {
        const double bound =
            k + 1 < entries ? (centers_[k] + centers_[k + 1]) / 2 : HUGE_VAL;
        const size_t first = i;
        double sum = 0;
        for (; i < dim_ && sorted_[i] <= bound; ++i) sum += sorted_[i];
        next_.push_back(i > first ? sum / static_cast<double>(i - first)
                                  : centers_[k]);
        moved = moved || next_.back() != centers_[k];
      }
      centers_.swap(next_);
      next_.clear();
      if (!moved) break;
    }
    return WriteNearest(record);
  }

  bool WriteNearest(char* record) {
    book_.clear();
    for (const double center : centers_) {
      book_.push_back(ToBfloat16(static_cast<float>(center)));
      const bool fits = FitsDType(FromBfloat16(book_.back()));
      if (!fits || !IsFiniteBfloat16(book_.back())) return false;
    }
    bounds_.clear();
    for (size_t k = 0; k + 1 < book_.size(); ++k) {
      bounds_.push_back((double{FromBfloat16(book_[k])} +
                         double{FromBfloat16(book_[k + 1])}) / 2);
    }
    for (size_t d = 0; d < dim_; ++d) {
      codes_[d] = static_cast<uint8_t>(
          std::lower_bound(bounds_.begin(), bounds_.end(), double{row_[d]}) -
          bounds_.begin());
    }
    WriteCodebook(record);
    return true;
  }

  const Quantization quantization_;
  const DType dtype_;
  const size_t dim_;
  const int levels_;
  const size_t row_bytes_;
  const RowKernels& kernels_;
  std::vector<float> row_;
  std::vector<uint8_t> codes_;
  std::vector<char> exact_;
  std::vector<float> sorted_;
  std::vector<double> centers_, next_, bounds_;
  std::vector<uint16_t> book_;
};

}  // namespace

Status ParseQuantization(std::string_view method, int bits,
                         Quantization* quantization) {
  for (const MethodName& entry : kMethods) {
    if (method == entry.name) {
      const bool raw = entry.method == Method::kNone;
      if (!raw && !IsCodeWidth(CodecOf(entry.method), bits)) break;
      *quantization = {entry.method, raw ? 0 : bits};
      return Status::Ok();
    }
  }
  return Status::InvalidArgument(
      "unknown quantization. Received: " + std::string(method) + ", " +
      std::to_string(bits) +
      " bits. Expected: raw, symmetric, asymmetric, adaptive or kmeans of 2, "
      "3, 4 or 8 bits, bfloat16 of 16");
}

Codec CodecFor(const Quantization& quantization, DType dtype, size_t dim) {
  const Codec codec = CodecOf(quantization.method);
  if (codec == Codec::kRaw || !IsFloatDType(dtype)) return Codec::kRaw;
  return RecordBytes(codec, quantization.bits, dim) < DTypeSize(dtype) * dim
             ? codec
             : Codec::kRaw;
}

void QuantizeColumn(const Quantization& quantization, DType dtype, size_t dim,
                    const char* values, size_t rows, std::string* out) {
  const DefaultFloatEnvironment environment;
  const size_t record =
      RecordBytes(CodecOf(quantization.method), quantization.bits, dim);
  const size_t row_bytes = DTypeSize(dtype) * dim;
  const size_t start = out->size();
  const size_t records = start + kQuantizedHeader + (rows + 7) / 8;
  out->resize(records + rows * record);
  (*out)[start] = static_cast<char>(quantization.bits);
  char* raw = &(*out)[start] + kQuantizedHeader;
  char* to = &(*out)[0] + records;
  std::vector<size_t> kept;
  RowQuantizer quantizer(quantization, dtype, dim);
  for (size_t i = 0; i < rows; ++i) {
    if (quantizer.Quantize(values + i * row_bytes, to)) {
      to += record;
    } else {
      raw[i / 8] = static_cast<char>(raw[i / 8] | 1 << (i % 8));
      kept.push_back(i);
    }
  }
  const auto count = static_cast<uint32_t>(kept.size());
  std::memcpy(&(*out)[start + 4], &count, sizeof(count));
  out->resize(records + (rows - kept.size()) * record);
  out->reserve(out->size() + kept.size() * row_bytes);
  for (const size_t i : kept) out->append(values + i * row_bytes, row_bytes);
}

}  // namespace adaptcp
