#include "ops/format/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ops/format/quantize_kernels.h"
#include "ops/format/quantized_column.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace adaptcp {
namespace {

using Rows = std::vector<float>;

constexpr Method kGrids[] = {Method::kSymmetric, Method::kAsymmetric,
                             Method::kAdaptive};
constexpr Method kLossy[] = {Method::kSymmetric, Method::kAsymmetric,
                             Method::kAdaptive, Method::kKmeans};
constexpr int kWidths[] = {2, 3, 4, 8};

// What comes back of `rows` rows; *raw_rows: how many of them were kept raw.
std::string RoundTrip(Quantization quantization, DType dtype, size_t dim,
                      const char* values, size_t rows,
                      size_t* raw_rows = nullptr) {
  const Codec codec = CodecFor(quantization, dtype, dim);
  std::string bytes = "before";
  QuantizeColumn(quantization, dtype, dim, values, rows, &bytes);
  EXPECT_EQ(bytes.substr(0, 6), "before");
  QuantizedColumn column;
  const Status status =
      QuantizedColumn::Parse("c", codec, std::string_view(bytes).substr(6), dtype,
                             static_cast<uint32_t>(dim), rows, &column);
  EXPECT_TRUE(status.ok()) << status.ToString();
  if (raw_rows != nullptr) *raw_rows = column.raw_rows();
  // One byte off, so that an aligned access would show.
  std::string out(1 + rows * dim * DTypeSize(dtype), '\0');
  column.Read(&out[1]);
  return out.substr(1);
}

Rows RoundTrip(Quantization quantization, const Rows& values, size_t dim,
               size_t* raw_rows = nullptr) {
  const std::string out = RoundTrip(
      quantization, DType::kFloat32, dim,
      reinterpret_cast<const char*>(values.data()), values.size() / dim, raw_rows);
  Rows floats(values.size());
  std::memcpy(floats.data(), out.data(), out.size());
  return floats;
}

double Squares(const Rows& a, const Rows& b, size_t row, size_t dim) {
  double sum = 0;
  for (size_t i = row * dim; i < (row + 1) * dim; ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  }
  return sum;
}

double RelativeError(Quantization quantization, const Rows& values, size_t dim) {
  const Rows back = RoundTrip(quantization, values, dim);
  const Rows zeros(values.size());
  double sum = 0;
  for (size_t row = 0; row < values.size() / dim; ++row) {
    sum += std::sqrt(Squares(values, back, row, dim) /
                     Squares(values, zeros, row, dim));
  }
  return sum / static_cast<double>(values.size() / dim);
}

Rows NormalRows(size_t count, uint64_t seed, float scale = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  Rows values(count);
  for (float& x : values) x = scale * normal(engine);
  return values;
}

bool SameBits(const Rows& a, const Rows& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(QuantizeTest, LosesWhatIsPublished) {
  const Rows values = NormalRows(64 * 1000, 1);
  const struct { Method method; int bits; double error; } kExpected[] = {
      {Method::kSymmetric, 2, .499},  {Method::kAsymmetric, 2, .447},
      {Method::kAdaptive, 2, .321},   {Method::kSymmetric, 3, .213},
      {Method::kAsymmetric, 3, .191}, {Method::kAdaptive, 3, .166},
      {Method::kSymmetric, 4, .0995}, {Method::kAsymmetric, 4, .0889},
      {Method::kAdaptive, 4, .0833},  {Method::kSymmetric, 8, .0058},
      {Method::kAsymmetric, 8, .0052}, {Method::kAdaptive, 8, .0052}};
  for (const auto& expected : kExpected) {
    const double error = RelativeError({expected.method, expected.bits}, values, 64);
    EXPECT_NEAR(error, expected.error, .05 * expected.error)
        << static_cast<int>(expected.method) << ", " << expected.bits << " bits";
  }
  // However small or large a row is.
  for (const float scale : {1e-30f, 1e30f}) {
    EXPECT_NEAR(RelativeError({Method::kAdaptive, 2}, NormalRows(64 * 500, 1, scale), 64),
                .321, .05 * .321);
  }
  EXPECT_LT(RelativeError({Method::kBfloat16, 16}, values, 64), .002);
  // A codebook fits a row better than any grid.
  for (const int bits : {2, 3, 4}) {
    EXPECT_LT(RelativeError({Method::kKmeans, bits}, values, 64),
              RelativeError({Method::kAdaptive, bits}, values, 64));
  }
}

// Rows on which a search may go astray: outliers, steps, offsets, two values.
Rows HardRows(size_t dim) {
  Rows rows;
  std::mt19937_64 engine(7);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 600; ++i) {
    const float scale = std::ldexp(1.0f, static_cast<int>(engine() % 160) - 105);
    const float offset = engine() % 3 == 0 ? 0 : scale * normal(engine) * 100;
    for (size_t d = 0; d < dim; ++d) {
      float x = normal(engine);
      switch (i % 5) {
        case 0: break;
        case 1: x = d == 0 ? 1000 : x; break;
        case 2: x = engine() % 2 == 0 ? 1 : -1; break;
        case 3: x = std::exp(4 * x); break;
        default: x = static_cast<float>(d);
      }
      rows.push_back(offset + scale * x);
    }
  }
  return rows;
}

TEST(QuantizeTest, AdaptiveIsNeverWorseThanAsymmetric) {
  for (const size_t dim : {2, 5, 16, 64}) {
    for (const Rows& values : {NormalRows(dim * 300, dim), HardRows(dim)}) {
      for (const int bits : kWidths) {
        const Rows adaptive = RoundTrip({Method::kAdaptive, bits}, values, dim);
        const Rows whole = RoundTrip({Method::kAsymmetric, bits}, values, dim);
        size_t better = 0;
        for (size_t row = 0; row < values.size() / dim; ++row) {
          const double a = Squares(values, adaptive, row, dim);
          const double b = Squares(values, whole, row, dim);
          ASSERT_LE(a, b) << "row " << row << " of dim " << dim;
          better += a < b;
        }
        if (dim == 64 && bits == 2) {
          EXPECT_GT(better, 200u);
        }
      }
    }
  }
}

TEST(QuantizeTest, EveryElementIsWithinHalfAStep) {
  for (const size_t dim : {2, 7, 8, 9, 31}) {
    const Rows values = NormalRows(dim * 50, dim, 1e-3f);
    for (const int bits : kWidths) {
      const Rows back = RoundTrip({Method::kAsymmetric, bits}, values, dim);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto row = values.begin() + static_cast<long>(i / dim * dim);
        const auto [lo, hi] = std::minmax_element(row, row + static_cast<long>(dim));
        // Zero and scale are rounded away from the row, by a 128th at most.
        const float reach = *hi - *lo + std::abs(*lo) / 128;
        const float step = reach / static_cast<float>((1 << bits) - 1) * (1 + 1 / 128.f);
        EXPECT_LE(std::abs(values[i] - back[i]), step * .5001f);
      }
    }
  }
}

TEST(QuantizeTest, RowsOfOneValueAreExact) {
  for (const float x : {0.0f, -0.0f, 1.0f, -0.1f, 1e-40f, 3e38f, 1 / 3.0f, -7e-20f}) {
    const Rows values(64 * 3, x);
    for (const Method method : kLossy) {
      for (const int bits : kWidths) {
        if (CodecFor({method, bits}, DType::kFloat32, 64) == Codec::kRaw) continue;
        EXPECT_TRUE(SameBits(values, RoundTrip({method, bits}, values, 64))) << x;
      }
    }
  }
  size_t raw = 9;
  RoundTrip({Method::kAsymmetric, 4}, Rows(64, 0.0f), 64, &raw);
  EXPECT_EQ(raw, 0u) << "zeros, as fresh slots are";
}

TEST(QuantizeTest, WhatHasNoGridIsKeptRaw) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float most = std::numeric_limits<float>::max();
  for (const Method method : kGrids) {
    for (const auto& pair : {std::pair{nan, 1.f}, {1.f, nan}, {inf, 0.f},
                             {-inf, 1.f}, {-most, most}, {1e-40f, 2e-40f},
                             {0.f, 1e-38f}}) {
      Rows values = NormalRows(64 * 3, 3);
      values[64] = pair.first;
      for (size_t i = 65; i < 128; ++i) values[i] = pair.second;
      size_t raw = 0;
      const Rows back = RoundTrip({method, 8}, values, 64, &raw);
      EXPECT_EQ(raw, 1u) << pair.first << " " << pair.second;
      EXPECT_EQ(0, std::memcmp(&back[64], &values[64], 64 * sizeof(float)));
    }
  }
  // One that does not come back finite in its own type.
  std::vector<uint16_t> halves(64, 0xfbff);  // -65504
  halves[0] = 0x7bff;
  size_t raw = 0;
  RoundTrip({Method::kAsymmetric, 2}, DType::kHalf, 64,
            reinterpret_cast<const char*>(halves.data()), 1, &raw);
  EXPECT_EQ(raw, 1u);
  for (size_t i = 1; i < halves.size(); ++i) halves[i] = 0x3c00 + i;
  for (const uint16_t sign : {0, 0x8000}) {
    halves[0] = 0x7bff | sign;  // in bfloat16 65536, an infinite half
    RoundTrip({Method::kKmeans, 4}, DType::kHalf, 64,
              reinterpret_cast<const char*>(halves.data()), 1, &raw);
    EXPECT_EQ(raw, 1u) << sign;
  }
  RoundTrip({Method::kBfloat16, 16}, Rows{1, 2, most, 4, 5, nan}, 2, &raw);
  EXPECT_EQ(raw, 2u);
}

TEST(QuantizeTest, OtherFloatsAreQuantisedAsFloat) {
  const Rows values = NormalRows(40 * 20, 5, 3);
  for (const DType dtype : {DType::kHalf, DType::kBfloat16, DType::kFloat64}) {
    const size_t size = DTypeSize(dtype);
    std::string stored(values.size() * size, '\0');
    StoreFloats(values.data(), values.size(), dtype, stored.data());
    Rows rounded(values.size());
    LoadFloats(stored.data(), values.size(), dtype, rounded.data());
    for (const Method method : kLossy) {
      if (CodecFor({method, 4}, dtype, 40) == Codec::kRaw) continue;
      const std::string back =
          RoundTrip({method, 4}, dtype, 40, stored.data(), 20);
      const Rows expected = RoundTrip({method, 4}, rounded, 40);
      std::string narrowed(back.size(), '\0');
      StoreFloats(expected.data(), expected.size(), dtype, narrowed.data());
      EXPECT_EQ(back, narrowed) << DTypeName(dtype);
    }
  }
}

TEST(QuantizeTest, OnlyWhatGetsSmallerIsQuantised) {
  EXPECT_EQ(CodecFor({}, DType::kFloat32, 64), Codec::kRaw);
  EXPECT_EQ(CodecFor({Method::kAsymmetric, 8}, DType::kInt64, 64), Codec::kRaw);
  EXPECT_EQ(CodecFor({Method::kAsymmetric, 2}, DType::kFloat32, 1), Codec::kRaw);
  EXPECT_EQ(CodecFor({Method::kAsymmetric, 2}, DType::kFloat32, 2), Codec::kAffine);
  EXPECT_EQ(CodecFor({Method::kKmeans, 8}, DType::kFloat32, 64), Codec::kRaw);
  EXPECT_EQ(CodecFor({Method::kKmeans, 4}, DType::kFloat32, 64), Codec::kCodebook);
  EXPECT_EQ(CodecFor({Method::kBfloat16, 16}, DType::kHalf, 64), Codec::kRaw);
  EXPECT_EQ(CodecFor({Method::kBfloat16, 16}, DType::kFloat32, 1), Codec::kBfloat16);
}

TEST(QuantizeTest, NamesAreParsedAndOthersNamed) {
  Quantization quantization;
  ASSERT_TRUE(ParseQuantization("adaptive", 3, &quantization).ok());
  EXPECT_TRUE((quantization == Quantization{Method::kAdaptive, 3}));
  for (const auto& [name, bits] : {std::pair{"adaptive", 5}, {"bfloat16", 8},
                                   {"kmeans", 16}, {"log", 8}, {"", 8}}) {
    EXPECT_EQ(ParseQuantization(name, bits, &quantization).code(),
              Status::Code::kInvalidArgument) << name;
  }
}

TEST(QuantizeTest, CodesArePackedFromTheLeastBit) {
  uint8_t codes[16] = {1, 2, 3};
  char packed[8] = {};
  PackCodes(codes, 3, 2, packed);
  EXPECT_EQ(packed[0], 0x39);
  PackCodes(codes, 3, 3, packed);
  EXPECT_EQ(static_cast<uint8_t>(packed[0]), 0xd1);
  EXPECT_EQ(packed[1], 0);
  std::mt19937_64 engine(1);
  for (const int bits : kWidths) {
    for (size_t n = 1; n < 40; ++n) {
      std::vector<uint8_t> in(n + 8, 0), out(n + 8);
      for (size_t i = 0; i < n; ++i) in[i] = engine() & ((1u << bits) - 1);
      std::vector<char> bytes(CodeBytes(n, bits));
      PackCodes(in.data(), n, bits, bytes.data());
      UnpackCodes(bytes.data(), n, bits, out.data());
      EXPECT_TRUE(std::equal(in.begin(), in.begin() + static_cast<long>(n), out.begin()));
    }
  }
}

TEST(QuantizeTest, EveryProcessorComputesTheSameBits) {
  const RowKernels& fast = Kernels();
  const RowKernels& plain = PortableKernels();
  for (const size_t n : {8, 64, 104}) {
    const Rows values = NormalRows(n, n);
    float a[2], b[2];
    EXPECT_EQ(fast.range(values.data(), n, &a[0], &a[1]),
              plain.range(values.data(), n, &b[0], &b[1]));
    EXPECT_EQ(a[0], b[0]);
    EXPECT_EQ(a[1], b[1]);
    const Grid grid = {-2.5f, 0.0625f};
    std::vector<uint8_t> codes(n), codes2(n);
    fast.quantize(values.data(), n, grid, 63, codes.data());
    plain.quantize(values.data(), n, grid, 63, codes2.data());
    EXPECT_EQ(codes, codes2);
    // Of a part of the last block.
    EXPECT_EQ(fast.loss(values.data(), n - 3, grid, 63, 16),
              plain.loss(values.data(), n - 3, grid, 63, 16));
    Rows back(n), back2(n);
    fast.dequantize(codes.data(), n, grid, back.data());
    plain.dequantize(codes.data(), n, grid, back2.data());
    EXPECT_TRUE(SameBits(back, back2));
  }
}

#if defined(__x86_64__)
// As TensorFlow's threads do.
TEST(QuantizeTest, FlushingDenormalsChangesNothing) {
  Rows values = NormalRows(64 * 30, 9, 1e-36f);
  values.push_back(3e-39f);
  values.resize(64 * 31, 3e-39f);
  for (const Method method : kLossy) {
    const Rows expected = RoundTrip({method, 4}, values, 64);
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    const Rows flushed = RoundTrip({method, 4}, values, 64);
    _mm_setcsr(before);
    EXPECT_TRUE(SameBits(expected, flushed));
  }
}
#endif

}  // namespace
}  // namespace adaptcp
