// Row blocks that are well-framed and lie: each number in turn says something
// that the rest of the record doesn't.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/format/row_block_view.h"
#include "ops/format/wire.h"

namespace adaptcp {
namespace {

struct Column {
  ColumnType type;
  uint16_t table;
  uint32_t entries;
  std::string bytes;
};

struct Block {
  uint32_t group = 0;
  uint32_t rows = 9;
  uint32_t columns = 6;
  std::vector<Column> column;

  std::string Record() const {
    std::string out = "R\1";
    wire::Put(uint16_t{0}, &out);
    wire::Put(group, &out);
    wire::Put(rows, &out);
    wire::Put(columns, &out);
    for (const Column& c : column) {
      wire::Put(static_cast<uint8_t>(c.type), &out);
      wire::Put(uint8_t{0}, &out);
      wire::Put(c.table, &out);
      wire::Put(c.entries, &out);
      wire::Put(uint64_t{c.bytes.size()}, &out);
      out += c.bytes;
      out.append(wire::Padding(c.bytes.size()), '\0');
    }
    return out;
  }
};

std::vector<GroupSpec> Groups() {
  GroupSpec group;
  group.name = "g";
  group.key_dtype = DType::kInt32;
  group.tables = {{"bools", DType::kBool, 2}, {"words", DType::kString, 1}};
  return {group};
}

// Nine rows; rows 0 and 8 are in "bools", row 8 is in "words".
Block Good() {
  Block block;
  block.column = {
      {ColumnType::kKeys, 0, 9, std::string(36, 'k')},
      {ColumnType::kIndicators, 0, 9, std::string(36, '\0')},
      {ColumnType::kPresence, 0, 9, std::string("\x01\x01", 2)},
      {ColumnType::kValues, 0, 2, std::string("\0\1\1\0", 4)},
      {ColumnType::kPresence, 1, 9, std::string("\x00\x01", 2)},
      {ColumnType::kValues, 1, 1, std::string("\3\0\0\0abc", 7)},
  };
  return block;
}

// In an allocation of the exact size, so that ASan sees any over-read.
Status Parse(const std::string& record, RowBlockView* view) {
  const std::vector<char> exact(record.begin(), record.end());
  return RowBlockView::Parse({exact.data(), exact.size()}, Groups(), view);
}

void ExpectLoss(const Block& block, const std::string& what) {
  RowBlockView view;
  const Status status = Parse(block.Record(), &view);
  EXPECT_EQ(status.code(), Status::Code::kDataLoss)
      << what << ": " << status.ToString();
}

TEST(RowBlockHostileTest, TheGoodOneIsRead) {
  RowBlockView view;
  const Status status = Parse(Good().Record(), &view);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(view.tombstones(), 7u);
}

TEST(RowBlockHostileTest, ColumnsOfTheWrongSize) {
  for (size_t c = 0; c < 6; ++c) {
    const size_t size = Good().column[c].bytes.size();
    for (size_t n = 0; n < 2 * size + 20; ++n) {
      if (n == size) continue;
      Block block = Good();
      block.column[c].bytes.resize(n);
      ExpectLoss(block, "column " + std::to_string(c) + " of " +
                            std::to_string(n) + " bytes");
    }
  }
}

TEST(RowBlockHostileTest, WrongNumbers) {
  for (const uint32_t wrong : {0u, 3u, 8u, 10u, 1u << 31, ~0u}) {
    Block block = Good();
    block.rows = wrong;
    ExpectLoss(block, "rows");
    block = Good();
    block.group = wrong + (wrong == 0 ? 1 : 0);
    ExpectLoss(block, "group");
    block = Good();
    block.columns = wrong;
    ExpectLoss(block, "columns");
    for (size_t c = 0; c < 6; ++c) {
      block = Good();
      block.column[c].entries = wrong;
      ExpectLoss(block, "entries of column " + std::to_string(c));
      block = Good();
      block.column[c].table ^= static_cast<uint16_t>(1 + (wrong & 0xff));
      ExpectLoss(block, "table of column " + std::to_string(c));
    }
    // All at once: consistent counts that only the sizes refute.
    block = Good();
    block.rows = wrong;
    for (Column& column : block.column) {
      if (column.type != ColumnType::kValues) column.entries = wrong;
    }
    ExpectLoss(block, "rows everywhere");
  }
}

TEST(RowBlockHostileTest, ColumnsMissingDoubledAndSwapped) {
  for (size_t a = 0; a < 6; ++a) {
    Block block = Good();
    block.column.erase(block.column.begin() + static_cast<long>(a));
    ExpectLoss(block, "missing " + std::to_string(a));
    block = Good();
    block.column.push_back(block.column[a]);
    ExpectLoss(block, "doubled " + std::to_string(a));
    for (size_t b = 0; b < a; ++b) {
      block = Good();
      std::swap(block.column[a], block.column[b]);
      ExpectLoss(block, "swapped " + std::to_string(a));
    }
  }
}

TEST(RowBlockHostileTest, WrongContents) {
  Block block = Good();
  block.column[2].bytes = std::string("\x00\x03", 2);  // row 8, and a tenth
  ExpectLoss(block, "bit beyond the rows");
  block = Good();
  block.column[2].bytes[0] = 3;  // three rows, values of two
  ExpectLoss(block, "more present than values");
  for (const float p : {-1.0f, 1.5f, 1e30f, std::nanf(""), INFINITY}) {
    block = Good();
    std::memcpy(block.column[1].bytes.data(), &p, sizeof(p));
    ExpectLoss(block, "no probability");
  }
  block = Good();
  block.column[3].bytes[0] = 2;
  ExpectLoss(block, "a bool of 2");
  for (const char length : {'\0', '\2', '\4', '\x7f'}) {
    block = Good();
    block.column[5].bytes[0] = length;
    ExpectLoss(block, "string length");
    block.column[5].bytes[3] = length;
    if (length != 0) ExpectLoss(block, "huge string length");
  }
  std::string record = Good().Record();
  record.back() = 1;
  RowBlockView view;
  EXPECT_EQ(Parse(record, &view).code(), Status::Code::kDataLoss) << "padding";
  EXPECT_EQ(Parse(Good().Record() + std::string(8, '\0'), &view).code(),
            Status::Code::kDataLoss);
}

}  // namespace
}  // namespace adaptcp
