#include "ops/format/row_block.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/format/crc32c.h"
#include "ops/format/row_block_view.h"
#include "ops/format/segment_testing.h"

namespace adaptcp {
namespace {

using testing::BatchOf;
using testing::PlainRows;
using testing::Random;

std::string KeyOf(const RowBlockView& view, const GroupSpec& group, size_t i) {
  if (group.key_dtype == DType::kString) {
    return std::string(view.string_keys()[i]);
  }
  if (group.key_dtype == DType::kInt64) {
    return std::string(reinterpret_cast<const char*>(view.int64_keys() + i), 8);
  }
  return std::string(reinterpret_cast<const char*>(view.int32_keys() + i), 4);
}

std::string Values(const RowBlockView& view, size_t table) {
  std::string values(view.value_bytes(table), '\0');
  view.ReadValues(table, values.data());
  return values;
}

// Holds what `view` shows against rows sel of `rows`.
void ExpectRows(const RowBlockView& view, const GroupSpec& group,
                const PlainRows& rows, const std::vector<uint32_t>& sel) {
  ASSERT_EQ(view.rows(), sel.size());
  size_t tombstones = 0;
  std::vector<size_t> next(group.tables.size(), 0);
  for (size_t i = 0; i < sel.size(); ++i) {
    EXPECT_EQ(KeyOf(view, group, i), rows.keys[sel[i]]);
    EXPECT_EQ(view.p()[i], rows.p[sel[i]]);
    bool anywhere = false;
    for (size_t t = 0; t < group.tables.size(); ++t) {
      const TableSpec& spec = group.tables[t];
      ASSERT_EQ(view.present(t, i), rows.present[t][sel[i]]);
      if (!view.present(t, i)) continue;
      anywhere = true;
      for (size_t d = 0; d < spec.dim; ++d) {
        const size_t at = next[t] * spec.dim + d;
        const std::string& expected = rows.values[t][sel[i]][d];
        if (spec.dtype == DType::kString) {
          ASSERT_EQ(view.string_values(t)[at], expected);
        } else {
          const size_t size = DTypeSize(spec.dtype);
          ASSERT_EQ(Values(view, t).substr(at * size, size), expected);
        }
      }
      ++next[t];
    }
    if (!anywhere) ++tombstones;
  }
  for (size_t t = 0; t < group.tables.size(); ++t) {
    EXPECT_EQ(view.present_rows(t), next[t]);
  }
  EXPECT_EQ(view.tombstones(), tombstones);
}

GroupSpec SmallGroup(DType key_dtype, DType dtype, uint32_t dim) {
  GroupSpec group;
  group.name = "g";
  group.key_dtype = key_dtype;
  group.tables = {{"g", dtype, dim}, {"g/slot", DType::kFloat32, 2}};
  return group;
}

TEST(RowBlockTest, EveryDTypeComesBack) {
  Random random(1);
  for (const DType key : {DType::kInt64, DType::kInt32, DType::kString}) {
    for (const DType dtype : testing::kAllDTypes) {
      const GroupSpec group = SmallGroup(key, dtype, 3);
      const PlainRows rows = random.Rows(group, 21);
      const BatchOf batch(group, rows);
      RowBlockBuilder builder(group, 0);
      ASSERT_TRUE(builder.Append(batch.get(), nullptr, 21).ok());
      EncodedBlock block;
      builder.Encode(&block);
      EXPECT_EQ(block.record.size(), builder.bytes());
      EXPECT_EQ(block.record_crc, Crc32c(block.record));
      RowBlockView view;
      const Status status = RowBlockView::Parse(block.record, {group}, &view);
      ASSERT_TRUE(status.ok()) << status.ToString();
      std::vector<uint32_t> all(21);
      for (uint32_t i = 0; i < 21; ++i) all[i] = i;
      ExpectRows(view, group, rows, all);
      EXPECT_EQ(block.tombstones, view.tombstones());
    }
  }
}

TEST(RowBlockTest, RandomBlocksOfSeveralBatchesComeBack) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    std::vector<GroupSpec> groups = {random.Group("a"), random.Group("b")};
    const auto index = static_cast<uint32_t>(random.Below(2));
    const GroupSpec& group = groups[index];
    const PlainRows rows = random.Rows(group, 1 + random.Below(60));
    const BatchOf batch(group, rows);
    RowBlockBuilder builder(group, index);
    EncodedBlock block;
    RowBlockView view;
    for (int reuse = 0; reuse < 2; ++reuse) {
      builder.Clear();
      std::vector<uint32_t> taken;
      for (uint64_t appends = random.Below(4); appends > 0; --appends) {
        std::vector<uint32_t> sel(random.Below(20));
        for (uint32_t& i : sel) {
          i = static_cast<uint32_t>(random.Below(rows.keys.size()));
        }
        ASSERT_TRUE(builder.Append(batch.get(), sel.data(), sel.size()).ok());
        taken.insert(taken.end(), sel.begin(), sel.end());
      }
      builder.Encode(&block);
      ASSERT_EQ(block.record.size(), builder.bytes());
      const Status status = RowBlockView::Parse(block.record, groups, &view);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(view.group_index(), index);
      ExpectRows(view, group, rows, taken);
    }
  }
}

TEST(RowBlockTest, WithoutPresenceEveryRowIsThere) {
  const GroupSpec group = SmallGroup(DType::kInt64, DType::kFloat32, 1);
  const int64_t keys[] = {5, 6};
  const float p[] = {0.5f, 1.0f};
  const float a[] = {1, 2};
  const float b[] = {3, 4, 5, 6};
  RowBatch batch;
  batch.keys = keys;
  batch.p = p;
  batch.present = {nullptr, nullptr};
  batch.values = {a, b};
  RowBlockBuilder builder(group, 0);
  ASSERT_TRUE(builder.Append(batch, nullptr, 2).ok());
  EncodedBlock block;
  builder.Encode(&block);
  RowBlockView view;
  ASSERT_TRUE(RowBlockView::Parse(block.record, {group}, &view).ok());
  EXPECT_TRUE(view.present(0, 0) && view.present(1, 1));
  EXPECT_EQ(0, std::memcmp(Values(view, 1).data(), b, sizeof(b)));
  EXPECT_EQ(view.tombstones(), 0u);
}

TEST(RowBlockTest, BadBatchesAreRefusedAndChangeNothing) {
  const GroupSpec group = SmallGroup(DType::kInt64, DType::kString, 1);
  const int64_t keys[] = {5};
  const int32_t wrong_keys[] = {5};
  const float p[] = {0.5f};
  const float slot[] = {1, 2};
  const std::string_view values[] = {"x"};
  RowBatch good;
  good.keys = keys;
  good.p = p;
  good.present = {nullptr, nullptr};
  good.values = {values, slot};
  RowBlockBuilder builder(group, 0);
  ASSERT_TRUE(builder.Append(good, nullptr, 1).ok());
  EncodedBlock before;
  builder.Encode(&before);

  RowBatch bad = good;
  bad.keys = wrong_keys;
  EXPECT_EQ(builder.Append(bad, nullptr, 1).message(),
            "group \"g\": wrong key type. Received: int32. Expected: int64");
  bad = good;
  bad.values.pop_back();
  EXPECT_EQ(builder.Append(bad, nullptr, 1).code(),
            Status::Code::kInvalidArgument);
  bad = good;
  bad.p = nullptr;
  EXPECT_EQ(builder.Append(bad, nullptr, 1).code(),
            Status::Code::kInvalidArgument);
  bad = good;
  bad.values[1] = nullptr;
  EXPECT_EQ(builder.Append(bad, nullptr, 1).code(),
            Status::Code::kInvalidArgument);
  EncodedBlock after;
  builder.Encode(&after);
  EXPECT_EQ(before.record, after.record);
}

// With no CRC in the way: whatever the bytes are, Parse neither crashes nor
// reads outside the record, and what it accepts is consistent.
TEST(RowBlockTest, DamagedRecordsNeverCrash) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const std::vector<GroupSpec> groups = {random.Group("a")};
    const PlainRows rows = random.Rows(groups[0], random.Below(12));
    const BatchOf batch(groups[0], rows);
    RowBlockBuilder builder(groups[0], 0);
    ASSERT_TRUE(builder.Append(batch.get(), nullptr, rows.keys.size()).ok());
    EncodedBlock block;
    builder.Encode(&block);
    for (int change = 0; change < 60; ++change) {
      // An own allocation of the exact size, so that ASan sees an over-read.
      std::vector<char> copy(block.record.begin(), block.record.end());
      const size_t at = random.Below(copy.size());
      switch (random.Below(3)) {
        case 0: copy[at] = static_cast<char>(random.Below(256)); break;
        case 1: copy.resize(at); copy.shrink_to_fit(); break;
        default: {
          const uint64_t huge = ~uint64_t{0} >> random.Below(64);
          std::memcpy(copy.data() + at, &huge,
                      std::min<size_t>(8, copy.size() - at));
        }
      }
      RowBlockView view;
      const std::string_view record(copy.data(), copy.size());
      const Status status = RowBlockView::Parse(record, groups, &view);
      if (!status.ok()) {
        ++refused;
        EXPECT_FALSE(status.message().empty());
        continue;
      }
      size_t present = 0;
      for (size_t i = 0; i < view.rows(); ++i) {
        KeyOf(view, groups[0], i);
        present += view.present(0, i) ? 1 : 0;
      }
      EXPECT_EQ(present, view.present_rows(0));
    }
  }
  EXPECT_GT(refused, 5000);
}

TEST(RowBlockTest, UnknownVersionAndCodecAreNamed) {
  const GroupSpec group = SmallGroup(DType::kInt64, DType::kFloat32, 1);
  EncodedBlock block;
  RowBlockBuilder(group, 0).Encode(&block);
  RowBlockView view;
  ASSERT_TRUE(RowBlockView::Parse(block.record, {group}, &view).ok());
  EXPECT_EQ(view.rows(), 0u);

  std::string other = block.record;
  other[1] = 2;
  Status status = RowBlockView::Parse(other, {group}, &view);
  EXPECT_EQ(status.code(), Status::Code::kUnimplemented);
  EXPECT_EQ(status.message(),
            "unknown row block version. Received: 2. Expected: 1");
  other = block.record;
  other[17] = 1;
  status = RowBlockView::Parse(other, {group}, &view);
  EXPECT_EQ(status.code(), Status::Code::kDataLoss);
  EXPECT_NE(status.message().find("keys: a codec for values of floating point"),
            std::string::npos);
  other = block.record;
  other[17] = 9;
  status = RowBlockView::Parse(other, {group}, &view);
  EXPECT_EQ(status.code(), Status::Code::kUnimplemented);
  EXPECT_NE(status.message().find("keys: unknown codec. Received: 9"),
            std::string::npos);
}

}  // namespace
}  // namespace adaptcp
