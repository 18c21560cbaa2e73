#include "ops/io/local/range_buffer.h"

#include <thread>

#include <gtest/gtest.h>

#include "ops/format/segment_testing.h"

namespace adaptcp {
namespace {

std::string Numbers(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += static_cast<char>(i * 7 + i / 256);
  return text;
}

TEST(RangeBufferTest, ReadsWhatWasFilledInAnyOrder) {
  for (const size_t size : {1, 9, 10, 11, 100, 1234}) {
    for (const size_t range : {1, 10, 64, 5000}) {
      const std::string file = Numbers(size);
      const testing::MemorySource source("f", file);
      RangeBuffer buffer("f", size, range);
      ASSERT_EQ(buffer.ranges(), (size + range - 1) / range);
      std::thread odd([&] {
        for (size_t i = 1; i < buffer.ranges(); i += 2) {
          EXPECT_TRUE(buffer.Fill(i, source).ok());
        }
      });
      for (size_t i = (buffer.ranges() - 1) & ~size_t{1};; i -= 2) {
        EXPECT_TRUE(buffer.Fill(i, source).ok());
        EXPECT_TRUE(buffer.Fill(i, source).ok()) << "again, after a failure";
        if (i == 0) break;
      }
      odd.join();
      std::string read;
      for (size_t step = 1; read.size() < size; step += 5) {
        std::string part(std::min(step, size - read.size()), 0);
        ASSERT_TRUE(buffer.ReadAt(read.size(), part.size(), &part[0]).ok());
        read += part;
      }
      EXPECT_EQ(read, file);
      char byte;
      EXPECT_EQ(buffer.ReadAt(size, 1, &byte).code(), Status::Code::kDataLoss);
    }
  }
}

TEST(RangeBufferTest, AShortSourceIsDataLoss) {
  const testing::MemorySource source("f", Numbers(25));
  RangeBuffer buffer("f", 30, 10);
  EXPECT_TRUE(buffer.Fill(1, source).ok());
  EXPECT_EQ(buffer.Fill(2, source).code(), Status::Code::kDataLoss);
}

TEST(RangeBufferTest, WhatWasReadIsLetGo) {
  const testing::MemorySource source("f", Numbers(30));
  RangeBuffer buffer("f", 30, 10);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(buffer.Fill(i, source).ok());
  char bytes[10];
  ASSERT_TRUE(buffer.ReadAt(15, 10, bytes).ok());
  EXPECT_EQ(buffer.ReadAt(5, 1, bytes).code(), Status::Code::kInternal);
}

}  // namespace
}  // namespace adaptcp
