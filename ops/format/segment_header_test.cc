#include "ops/format/segment_header.h"

#include <gtest/gtest.h>

namespace adaptcp {
namespace {

SegmentHeader Example() {
  SegmentHeader header;
  header.run = "0123456789ab";
  header.generation = 3;
  header.sequence = 17;
  header.kind = SegmentKind::kDifferential;
  header.ps = 1;
  header.groups = {{"emb", DType::kInt64, 1, 2,
                    {{"emb", DType::kFloat32, 16}, {"emb/m", DType::kHalf, 1}}},
                   {"töchter", DType::kString, 0, 1,
                    {{"w", DType::kBfloat16, 4}}}};
  return header;
}

std::string Encoded(const SegmentHeader& header) {
  std::string record;
  const Status status = EncodeHeader(header, &record);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return record;
}

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(SegmentHeaderTest, ComesBack) {
  SegmentHeader header = Example();
  SegmentHeader parsed;
  ASSERT_TRUE(ParseHeader(Encoded(header), &parsed).ok());
  EXPECT_EQ(parsed, header);
  header.groups.clear();
  header.kind = SegmentKind::kDense;
  header.ps = -1;
  header.generation = ~uint64_t{0};
  header.sequence = ~uint32_t{0};
  ASSERT_TRUE(ParseHeader(Encoded(header), &parsed).ok());
  EXPECT_EQ(parsed, header);
}

TEST(SegmentHeaderTest, MembersOfLaterWritersAreIgnored) {
  SegmentHeader parsed;
  const std::string record =
      Replaced(Encoded(Example()), "\"kind\"", "\"note\":[1],\"kind\"");
  ASSERT_TRUE(ParseHeader(record, &parsed).ok());
  EXPECT_EQ(parsed, Example());
}

TEST(SegmentHeaderTest, LaterVersionsAndTypesAreNamed) {
  SegmentHeader parsed;
  const std::string good = Encoded(Example());
  Status status =
      ParseHeader(Replaced(good, "\"format\":1", "\"format\":2"), &parsed);
  EXPECT_EQ(status.code(), Status::Code::kUnimplemented);
  EXPECT_EQ(status.message(),
            "unknown format version. Received: 2. Expected: 1; was this file "
            "written by a later version?");
  status = ParseHeader(Replaced(good, "bfloat16", "float8"), &parsed);
  EXPECT_EQ(status.code(), Status::Code::kUnimplemented);
  EXPECT_NE(status.message().find(
                "header, group 1, table 0: unknown dtype. Received: \"float8\""),
            std::string::npos)
      << status.message();
  status = ParseHeader(Replaced(good, "differential", "sketch"), &parsed);
  EXPECT_EQ(status.code(), Status::Code::kUnimplemented);
}

TEST(SegmentHeaderTest, BadMembersAreNamed) {
  SegmentHeader parsed;
  const std::string good = Encoded(Example());
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } kCases[] = {
      {"\"ps\":1", "\"ps\":-2", "bad \"ps\". Received: -2"},
      {"\"ps\":1", "\"ps\":18446744073709551615", "bad \"ps\""},
      {"\"ps\":1", "\"ps\":1.5", "bad \"ps\". Received: 1.5"},
      {"\"ps\":1,", "", "bad \"ps\". Received: nothing"},
      {"\"sequence\":17", "\"sequence\":0", "bad \"sequence\". Received: 0"},
      {"\"sequence\":17", "\"sequence\":4294967296", "bad \"sequence\""},
      {"\"sequence\":17", "\"sequence\":\"17\"", "bad \"sequence\""},
      {"\"generation\":3", "\"generation\":-3", "bad \"generation\""},
      {"\"dim\":16", "\"dim\":0", "group 0, table 0: bad \"dim\". Received: 0"},
      {"\"shard\":1", "\"shard\":2", "shard 2 of 2"},
      {"int64", "float32", "bad key type. Received: \"float32\""},
      {"emb/m", "emb", "table names must be there and differ"},
      {"\"run\":\"0123456789ab\"", "\"run\":7", "bad \"run\". Received: 7"},
      {"\"groups\":[", "\"groups\":[7,", "group 0: bad \"name\""},
      {"{", "[", "not a JSON object"},
      {"}", "}x", "not a JSON object"},
  };
  for (const auto& c : kCases) {
    const Status status = ParseHeader(Replaced(good, c.from, c.to), &parsed);
    EXPECT_EQ(status.code(), Status::Code::kDataLoss) << c.to;
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << status.message();
  }
  EXPECT_FALSE(ParseHeader("", &parsed).ok());
  EXPECT_FALSE(ParseHeader("H", &parsed).ok());
  EXPECT_FALSE(ParseHeader("F{}", &parsed).ok());
  // Deep nesting must not exhaust the stack.
  EXPECT_FALSE(ParseHeader("H" + std::string(1000000, '['), &parsed).ok());
  const std::string deep =
      std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_EQ(ParseHeader("H{\"format\":1,\"run\":" + deep + "}", &parsed)
                .code(),
            Status::Code::kDataLoss);
}

TEST(SegmentHeaderTest, WhatCannotBeWrittenIsRefused) {
  std::string record;
  SegmentHeader header = Example();
  header.groups[1] = header.groups[0];
  EXPECT_EQ(EncodeHeader(header, &record).message(),
            "shard 1 of group \"emb\" is there twice");
  header.groups[1].shard = 0;
  EXPECT_TRUE(EncodeHeader(header, &record).ok());
  header = Example();
  header.groups[0].tables.clear();
  EXPECT_FALSE(EncodeHeader(header, &record).ok());
  header = Example();
  header.run = "\xff\xfe";
  EXPECT_EQ(EncodeHeader(header, &record).code(),
            Status::Code::kInvalidArgument);
  header = Example();
  header.version = 2;
  EXPECT_FALSE(EncodeHeader(header, &record).ok());
}

TEST(SegmentFooterTest, ComesBackAndMustFitTheHeader) {
  const SegmentHeader header = Example();
  SegmentFooter footer;
  footer.groups = {{10, 2, 1}, {0, 0, 0}};
  footer.dense = {{"bias", 2, 7}};
  std::string record;
  ASSERT_TRUE(EncodeFooter(header, footer, &record).ok());
  SegmentFooter parsed;
  ASSERT_TRUE(ParseFooter(record, header, &parsed).ok());
  EXPECT_EQ(parsed, footer);
  EXPECT_FALSE(
      ParseFooter(Replaced(record, "emb", "bme"), header, &parsed).ok());
  EXPECT_FALSE(
      ParseFooter(Replaced(record, "10", "-1"), header, &parsed).ok());
  EXPECT_FALSE(ParseFooter("F{\"groups\":[],\"dense\":[]}", header, &parsed)
                   .ok());
  EXPECT_FALSE(ParseFooter("F{}", header, &parsed).ok());
}

}  // namespace
}  // namespace adaptcp
