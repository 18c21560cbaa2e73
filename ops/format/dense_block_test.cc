#include "ops/format/dense_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ops/format/segment_testing.h"

namespace adaptcp {
namespace {

using testing::Random;

TEST(DenseBlockTest, RandomSlicesComeBack) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const DenseSlice slice = random.Slice("layer/kernel:0");
    std::vector<std::string> elements;
    std::string joined;
    for (uint64_t i = 0; i < slice.elements(); ++i) {
      elements.push_back(random.Element(slice.dtype));
      joined += elements.back();
    }
    EncodedBlock block;
    Status status;
    if (slice.dtype == DType::kString) {
      status = EncodeStringDenseBlock(
          slice, {elements.begin(), elements.end()}, &block);
    } else {
      status = EncodeDenseBlock(slice, joined.data(), joined.size(), &block);
    }
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(block.elements, elements.size());
    DenseBlockView view;
    status = DenseBlockView::Parse(block.record, &view);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(view.slice, slice);
    if (slice.dtype == DType::kString) {
      ASSERT_EQ(view.strings.size(), elements.size());
      EXPECT_TRUE(std::equal(elements.begin(), elements.end(),
                             view.strings.begin()));
    } else {
      EXPECT_EQ(view.data, joined);
    }
  }
}

// Every part is contiguous in the slice, within the limit, and together they
// are the slice, in order.
TEST(DenseBlockTest, SplitCoversTheSliceInOrder) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const DenseSlice slice = random.Slice("x");
    const uint64_t max_bytes = 1 + random.Below(300);
    const size_t size = std::max<size_t>(
        1, slice.dtype == DType::kString ? 16 : DTypeSize(slice.dtype));
    std::vector<std::vector<uint64_t>> covered;
    for (const DenseSlice& part : SplitSlice(slice, max_bytes)) {
      EXPECT_TRUE(part.elements() * size <= max_bytes || part.elements() == 1);
      std::vector<uint64_t> at = part.offset;
      for (uint64_t i = 0; i < part.elements(); ++i) {
        covered.push_back(at);
        for (size_t d = at.size(); d-- > 0;) {
          if (++at[d] < part.offset[d] + part.slice_shape[d]) break;
          at[d] = part.offset[d];
        }
      }
    }
    EXPECT_EQ(covered.size(), slice.elements());
    EXPECT_TRUE(std::is_sorted(covered.begin(), covered.end()));
    EXPECT_EQ(std::adjacent_find(covered.begin(), covered.end()),
              covered.end());
  }
}

TEST(DenseBlockTest, ScalarsAndEmptyTensors) {
  EncodedBlock block;
  DenseBlockView view;
  const int64_t step = 17;
  const auto scalar = DenseSlice::Whole("iteration", DType::kInt64, {});
  ASSERT_TRUE(EncodeDenseBlock(scalar, &step, 8, &block).ok());
  ASSERT_TRUE(DenseBlockView::Parse(block.record, &view).ok());
  EXPECT_EQ(view.slice.elements(), 1u);
  const auto empty = DenseSlice::Whole("none", DType::kFloat32, {0, 3});
  ASSERT_TRUE(EncodeDenseBlock(empty, nullptr, 0, &block).ok());
  ASSERT_TRUE(DenseBlockView::Parse(block.record, &view).ok());
  EXPECT_EQ(view.slice, empty);
  EXPECT_EQ(view.slice.elements(), 0u);
  EXPECT_EQ(SplitSlice(empty, 1).size(), 1u);
}

TEST(DenseBlockTest, WhatDoesNotFitIsRefused) {
  EncodedBlock block;
  const float data[6] = {};
  auto slice = DenseSlice::Whole("k", DType::kFloat32, {2, 3});
  EXPECT_EQ(EncodeDenseBlock(slice, data, 20, &block).code(),
            Status::Code::kInvalidArgument);
  slice.offset = {1, 0};
  const Status status = EncodeDenseBlock(slice, data, 24, &block);
  EXPECT_EQ(status.message(),
            "dense block of \"k\": the slice at [1, 0] of shape [2, 3] is not "
            "within the tensor's shape [2, 3]");
  slice = DenseSlice::Whole("k", DType::kFloat32,
                            {uint64_t{1} << 40, uint64_t{1} << 40});
  EXPECT_FALSE(EncodeDenseBlock(slice, data, 24, &block).ok());
  slice = DenseSlice::Whole("k", DType::kString, {2});
  EXPECT_FALSE(EncodeDenseBlock(slice, data, 24, &block).ok());
  EXPECT_FALSE(EncodeStringDenseBlock(slice, {"one"}, &block).ok());
}

TEST(DenseBlockTest, DamagedRecordsNeverCrash) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const DenseSlice slice = random.Slice("x");
    std::vector<std::string> elements;
    std::string joined;
    for (uint64_t i = 0; i < slice.elements(); ++i) {
      elements.push_back(random.Element(slice.dtype));
      joined += elements.back();
    }
    EncodedBlock block;
    const Status encoded =
        slice.dtype == DType::kString
            ? EncodeStringDenseBlock(slice, {elements.begin(), elements.end()},
                                     &block)
            : EncodeDenseBlock(slice, joined.data(), joined.size(), &block);
    ASSERT_TRUE(encoded.ok());
    for (int change = 0; change < 60; ++change) {
      std::vector<char> copy(block.record.begin(), block.record.end());
      const size_t at = random.Below(copy.size());
      if (random.OneIn(3)) {
        copy.resize(at);
        copy.shrink_to_fit();
      } else {
        const uint64_t value = ~uint64_t{0} >> random.Below(64);
        std::memcpy(copy.data() + at, &value,
                    std::min<size_t>(1 + 7 * random.Below(2),
                                     copy.size() - at));
      }
      DenseBlockView view;
      const std::string_view record(copy.data(), copy.size());
      if (!DenseBlockView::Parse(record, &view).ok()) ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace adaptcp
