// Columns of quantised rows that lie: each number in turn says something that
// the bytes don't.

#include "ops/format/quantized_column.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "ops/format/quantize.h"
#include "ops/format/wire.h"

// Far more than any column here needs: a number in a file that is believed
// would ask for it.
void* operator new(size_t n) {
  void* p = n > (size_t{1} << 26) ? nullptr : std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace adaptcp {
namespace {

constexpr size_t kRows = 9, kDim = 5;

// Nine rows of which the last is raw.
std::string Column(Quantization quantization) {
  std::vector<float> values(kRows * kDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i);
  values.back() = HUGE_VALF;
  std::string bytes;
  QuantizeColumn(quantization, DType::kFloat32, kDim,
                 reinterpret_cast<const char*>(values.data()), kRows, &bytes);
  return bytes;
}

// In an allocation of the exact size, so that ASan sees any over-read.
Status Parse(Codec codec, const std::string& bytes, DType dtype = DType::kFloat32,
             uint32_t dim = kDim, size_t rows = kRows) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  QuantizedColumn column;
  const Status status = QuantizedColumn::Parse("c", codec, {exact.data(), exact.size()},
                                               dtype, dim, rows, &column);
  if (status.ok()) {
    std::string values(rows * dim * DTypeSize(dtype), '\0');
    column.Read(values.data());
  }
  return status;
}

void ExpectLoss(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), Status::Code::kDataLoss) << message;
  EXPECT_NE(status.message().find(message), std::string::npos) << status.ToString();
}

TEST(QuantizedColumnTest, LiesAreFound) {
  const std::string good = Column({Method::kAsymmetric, 3});
  ASSERT_TRUE(Parse(Codec::kAffine, good).ok());
  ASSERT_EQ(good.size(), 8 + 2 + 8 * (4 + 2) + 4 * kDim);
  for (const DType dtype : {DType::kInt64, DType::kString, DType::kBool}) {
    ExpectLoss(Parse(Codec::kAffine, good, dtype), "as for all of dtype");
  }
  for (size_t n = 0; n < good.size(); ++n) {
    ExpectLoss(Parse(Codec::kAffine, good.substr(0, n)), n < 10 ? "can't hold" : "wrong size");
  }
  ExpectLoss(Parse(Codec::kAffine, good + '\0'), "wrong size");
  for (const int bits : {0, 1, 5, 6, 7, 16, 255}) {
    std::string bad = good;
    bad[0] = static_cast<char>(bits);
    ExpectLoss(Parse(Codec::kAffine, bad), "no width");
  }
  for (const int bits : {2, 4, 8}) {
    std::string bad = good;
    bad[0] = static_cast<char>(bits);
    ExpectLoss(Parse(Codec::kAffine, bad), bits == 2 ? "damaged" : "wrong size");
  }
  const struct { size_t at; int value; const char* message; } kLies[] = {
      {1, 1, "no width"}, {3, 0x80, "no width"}, {4, 2, "raw rows"},
      {7, 1, "raw rows"}, {8, 1, "raw rows"}, {9, 0, "raw rows"},
      {9, 3, "beyond the last row"},
      // Scale: negative, NaN. Zero: infinite. A code after the last one.
      {11, 0xbf, "damaged"}, {11, 0x7f, "damaged"}, {13, 0x7f, "damaged"},
      {15, 0x80, "damaged"}};
  for (const auto& lie : kLies) {
    std::string bad = good;
    bad[lie.at] = static_cast<char>(lie.value);
    if (lie.message == std::string("damaged")) bad[lie.at - 1] |= '\x80';
    ExpectLoss(Parse(Codec::kAffine, bad), lie.message);
  }
  // A raw row that is said to be none, and the number with it.
  std::string bad = good;
  bad[4] = 0;
  bad[9] = 0;
  ExpectLoss(Parse(Codec::kAffine, bad), "wrong size");
}

TEST(QuantizedColumnTest, OtherCodecsOfTheSameBytesAreRefused) {
  const std::string affine = Column({Method::kAsymmetric, 2});
  ExpectLoss(Parse(Codec::kCodebook, affine), "wrong size");
  ExpectLoss(Parse(Codec::kBfloat16, affine), "no width");
  const std::string book = Column({Method::kKmeans, 2});
  ASSERT_TRUE(Parse(Codec::kCodebook, book).ok());
  ExpectLoss(Parse(Codec::kAffine, book), "wrong size");
  std::string bad = book;
  bad[8 + 2 + 7] = '\x7f';  // the last entry of a codebook
  bad[8 + 2 + 6] = '\x80';
  ExpectLoss(Parse(Codec::kCodebook, bad), "damaged");
  const std::string half = Column({Method::kBfloat16, 16});
  ASSERT_TRUE(Parse(Codec::kBfloat16, half).ok());
}

TEST(QuantizedColumnTest, HugeNumbersDoNotOverflow) {
  const uint32_t most = ~0u;
  std::string bytes(64, '\0');
  bytes[0] = 2;
  ExpectLoss(Parse(Codec::kAffine, bytes, DType::kFloat32, most, most), "can't hold");
  ExpectLoss(Parse(Codec::kAffine, bytes, DType::kFloat64, most, 3), "wrong size");
  ExpectLoss(Parse(Codec::kAffine, bytes, DType::kFloat64, 1u << 31, 100), "wrong size");
  // No rows take no memory, however long.
  const std::string none(bytes.data(), 8);
  EXPECT_TRUE(Parse(Codec::kAffine, none, DType::kFloat32, most, 0).ok());
}

}  // namespace
}  // namespace adaptcp
