// SegmentWriter, SegmentFiles and SegmentReader together.

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "ops/format/crc32c.h"
#include "ops/format/segment_files.h"
#include "ops/format/segment_reader.h"
#include "ops/format/segment_testing.h"

namespace adaptcp {
namespace {

using testing::BatchOf;
using testing::MemorySink;
using testing::MemorySource;
using testing::PlainRows;
using testing::Random;

SegmentHeader HeaderOf(std::vector<GroupSpec> groups) {
  SegmentHeader header;
  header.run = "feedc0ffee00";
  header.generation = 1;
  header.sequence = 2;
  header.kind = SegmentKind::kIncrement;
  header.groups = std::move(groups);
  return header;
}

EncodedBlock RowsBlock(Random* random, const SegmentHeader& header, size_t n) {
  const auto index =
      static_cast<uint32_t>(random->Below(header.groups.size()));
  const GroupSpec& group = header.groups[index];
  const PlainRows rows = random->Rows(group, n);
  const BatchOf batch(group, rows);
  RowBlockBuilder builder(group, index);
  EXPECT_TRUE(builder.Append(batch.get(), nullptr, n).ok());
  EncodedBlock block;
  builder.Encode(&block);
  return block;
}

EncodedBlock DenseBlock(const std::string& name, size_t n) {
  const std::vector<float> data(n, 1.5f);
  EncodedBlock block;
  EXPECT_TRUE(EncodeDenseBlock(DenseSlice::Whole(name, DType::kFloat32, {n}),
                               data.data(), n * sizeof(float), &block)
                  .ok());
  return block;
}

// A file of the given blocks, in memory.
std::string WriteFile(const SegmentHeader& header,
                      const std::vector<EncodedBlock>& blocks,
                      SegmentInfo* info) {
  std::string file;
  std::unique_ptr<SegmentWriter> writer;
  EXPECT_TRUE(SegmentWriter::Create(
                  std::make_unique<MemorySink>("out.seg", &file), header,
                  &writer)
                  .ok());
  for (const EncodedBlock& block : blocks) {
    EXPECT_TRUE(writer->Append(block).ok());
  }
  EXPECT_TRUE(writer->Finish(info).ok());
  return file;
}

Status Verify(const std::string& file, const SegmentExpectation& expected = {},
              SegmentInfo* info = nullptr) {
  SegmentInfo unused;
  return VerifySegment(std::make_unique<MemorySource>("dir/a.seg", file),
                       expected, info == nullptr ? &unused : info);
}

// The byte offset that an error names.
uint64_t OffsetIn(const Status& status) {
  static const char kAt[] = "dir/a.seg: record at byte ";
  const size_t at = status.message().find(kAt);
  EXPECT_EQ(at, 0u) << status.message();
  return std::stoull(status.message().substr(sizeof(kAt) - 1));
}

std::vector<uint64_t> RecordOffsets(const std::string& file) {
  std::vector<uint64_t> offsets;
  for (uint64_t at = 0; at < file.size();) {
    offsets.push_back(at);
    uint64_t length;
    std::memcpy(&length, file.data() + at, 8);
    at += length + 16;
  }
  return offsets;
}

TEST(SegmentTest, BlocksComeBackInOrder) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const SegmentHeader header =
        HeaderOf({random.Group("a"), random.Group("b")});
    std::vector<EncodedBlock> blocks;
    std::map<std::string, uint64_t> rows, tombstones;
    for (uint64_t i = random.Below(8); i > 0; --i) {
      if (random.OneIn(3)) {
        blocks.push_back(DenseBlock(random.OneIn(2) ? "x" : "y", i));
        continue;
      }
      blocks.push_back(RowsBlock(&random, header, random.Below(30)));
      if (blocks.back().rows == 0) continue;
      const std::string& name = header.groups[blocks.back().group_index].name;
      rows[name] += blocks.back().rows;
      tombstones[name] += blocks.back().tombstones;
    }
    SegmentInfo written;
    const std::string file = WriteFile(header, blocks, &written);
    EXPECT_EQ(written.path, "out.seg");
    EXPECT_EQ(written.bytes, file.size());
    EXPECT_EQ(written.crc32c, Crc32c(file));
    EXPECT_EQ(written.rows, rows);
    EXPECT_EQ(written.tombstones, tombstones);

    std::unique_ptr<SegmentReader> reader;
    ASSERT_TRUE(SegmentReader::Open(
                    std::make_unique<MemorySource>("a", file),
                    {written.bytes, written.crc32c}, &reader)
                    .ok());
    EXPECT_EQ(reader->header(), header);
    SegmentBlock block;
    const std::vector<uint64_t> offsets = RecordOffsets(file);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Status status = reader->Next(&block);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(block.type, blocks[i].type);
      EXPECT_EQ(block.offset, offsets[i + 1]);
      EXPECT_EQ(block.buffer.compare(0, blocks[i].record.size(),
                                     blocks[i].record),
                0);
    }
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(reader->Next(&block).ok());
      EXPECT_EQ(block.type, RecordType::kFooter);
    }
    const SegmentInfo read = reader->info();
    EXPECT_EQ(read.rows, written.rows);
    EXPECT_EQ(read.tombstones, written.tombstones);
    EXPECT_EQ(read.dense, written.dense);
    EXPECT_EQ(read.crc32c, written.crc32c);
  }
}

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    Random random(7);
    GroupSpec group;
    group.name = "emb";
    group.key_dtype = DType::kString;
    group.tables = {{"emb", DType::kFloat32, 2}, {"emb/m", DType::kString, 1}};
    header_ = HeaderOf({group});
    file_ = WriteFile(header_,
                      {RowsBlock(&random, header_, 5), DenseBlock("bias", 3),
                       RowsBlock(&random, header_, 2)},
                      &info_);
    offsets_ = RecordOffsets(file_);
  }

  uint64_t RecordOf(uint64_t byte) const {
    uint64_t record = 0;
    for (const uint64_t offset : offsets_) {
      if (offset <= byte) record = offset;
    }
    return record;
  }

  SegmentHeader header_;
  SegmentInfo info_;
  std::string file_;
  std::vector<uint64_t> offsets_;
};

TEST_F(DamageTest, EveryFlippedByteIsFoundAndItsRecordNamed) {
  ASSERT_TRUE(Verify(file_).ok());
  for (size_t i = 0; i < file_.size(); ++i) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::string damaged = file_;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      const Status status = Verify(damaged);
      ASSERT_EQ(status.code(), Status::Code::kDataLoss) << "byte " << i;
      ASSERT_EQ(OffsetIn(status), RecordOf(i)) << status.message();
    }
  }
}

TEST_F(DamageTest, EveryTruncationIsFound) {
  for (size_t n = 0; n < file_.size(); ++n) {
    const Status status = Verify(file_.substr(0, n));
    ASSERT_EQ(status.code(), Status::Code::kDataLoss) << n << " bytes";
    ASSERT_EQ(OffsetIn(status), RecordOf(n)) << status.message();
    ASSERT_NE(status.message().find("truncated"), std::string::npos)
        << status.message();
  }
}

TEST_F(DamageTest, MissingRepeatedAndForeignRecordsAreFound) {
  offsets_.push_back(file_.size());
  for (size_t r = 0; r + 1 < offsets_.size(); ++r) {
    const uint64_t start = offsets_[r], end = offsets_[r + 1];
    const std::string record = file_.substr(start, end - start);
    EXPECT_FALSE(Verify(file_.substr(0, start) + file_.substr(end)).ok()) << r;
    EXPECT_FALSE(
        Verify(file_.substr(0, end) + record + file_.substr(end)).ok())
        << r;
    EXPECT_FALSE(Verify(file_ + record).ok()) << r;
  }
  EXPECT_FALSE(Verify(file_ + "x").ok());
  EXPECT_FALSE(Verify(file_ + file_).ok());
}

// As above with the CRCs made right again: what only the parsers can refuse.
TEST_F(DamageTest, DamageUnderARightCrcNeverCrashes) {
  int refused = 0, changes = 0;
  for (size_t r = 0; r < offsets_.size(); ++r) {
    uint64_t length;
    std::memcpy(&length, file_.data() + offsets_[r], 8);
    for (size_t i = 0; i < length; ++i) {
      for (const int mask : {1, 4, 0x80, 0xff}) {
        std::string damaged = file_;
        char* record = &damaged[offsets_[r] + 12];
        record[i] = static_cast<char>(record[i] ^ mask);
        const uint32_t crc = MaskCrc(Crc32c(std::string_view(record, length)));
        std::memcpy(record + length, &crc, 4);
        ++changes;
        const Status status = Verify(damaged);
        if (!status.ok()) {
          ++refused;
          OffsetIn(status);
        }
        // Not fooled when the manifest's checksum is at hand.
        ASSERT_FALSE(Verify(damaged, {info_.bytes, info_.crc32c}).ok());
      }
    }
  }
  EXPECT_GT(refused, changes / 2);
}

TEST_F(DamageTest, TheManifestsSizeAndChecksumAreHeldAgainstTheFile) {
  EXPECT_TRUE(Verify(file_, {info_.bytes, info_.crc32c}).ok());
  EXPECT_EQ(Verify(file_, {info_.bytes + 1, info_.crc32c}).code(),
            Status::Code::kDataLoss);
  EXPECT_EQ(Verify(file_, {info_.bytes, info_.crc32c + 1}).code(),
            Status::Code::kDataLoss);
}

TEST_F(DamageTest, AnErrorStays) {
  // A record of no known type under a right CRC, so that the reader is past it.
  char* const record = &file_[offsets_[2] + 12];
  uint64_t length;
  std::memcpy(&length, file_.data() + offsets_[2], 8);
  record[0] = 99;
  const uint32_t crc = MaskCrc(Crc32c(std::string_view(record, length)));
  std::memcpy(record + length, &crc, 4);
  std::unique_ptr<SegmentReader> reader;
  ASSERT_TRUE(SegmentReader::Open(std::make_unique<MemorySource>("a", file_),
                                  {}, &reader)
                  .ok());
  SegmentBlock block;
  EXPECT_TRUE(reader->Next(&block).ok());
  EXPECT_FALSE(reader->Next(&block).ok());
  EXPECT_FALSE(reader->Next(&block).ok());
}

// A sink that fails from the n-th call on.
class FailingSink : public ByteSink {
 public:
  explicit FailingSink(int calls) : calls_(calls) {}
  Status Append(std::string_view) override { return Step(); }
  Status SyncAndClose() override { return Step(); }
  const std::string& name() const override { return name_; }

 private:
  Status Step() {
    return --calls_ < 0 ? Status::ResourceExhausted("full") : Status::Ok();
  }
  int calls_;
  const std::string name_ = "failing";
};

TEST_F(DamageTest, EveryFailureOfTheSinkReachesTheCaller) {
  Random random(7);
  const EncodedBlock block = RowsBlock(&random, header_, 5);
  int successes = 0;
  for (int calls = 0; calls < 12; ++calls) {
    std::unique_ptr<SegmentWriter> writer;
    Status status = SegmentWriter::Create(std::make_unique<FailingSink>(calls),
                                          header_, &writer);
    SegmentInfo info;
    if (status.ok()) status = writer->Append(block);
    if (writer != nullptr) {
      const Status finish = writer->Finish(&info);
      EXPECT_TRUE(status.ok() || !finish.ok());
      status = finish;
    }
    if (status.ok()) {
      ++successes;
    } else {
      EXPECT_EQ(status.code(), Status::Code::kResourceExhausted);
    }
  }
  // Three records of three appends and one close need ten calls.
  EXPECT_EQ(successes, 2);
}

TEST(SegmentFilesTest, RotatesAtSegmentBytes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const SegmentHeader header = HeaderOf({random.Group("a")});
    const uint64_t limit = 500 + random.Below(3000);
    std::map<std::string, std::string> files;
    int numbers = 100;
    SegmentFiles set(header, limit,
                     [&] { return "ps0-" + std::to_string(numbers++) + ".seg"; },
                     [&](const std::string& path,
                         std::unique_ptr<ByteSink>* sink) {
                       EXPECT_EQ(files.count(path), 0u);
                       *sink =
                           std::make_unique<MemorySink>(path, &files[path]);
                       return Status::Ok();
                     });
    std::string records;
    uint64_t rows = 0;
    for (uint64_t i = random.Below(40); i > 0; --i) {
      const EncodedBlock block = RowsBlock(&random, header, random.Below(25));
      ASSERT_TRUE(set.Append(block).ok());
      if (random.Below(8) == 0) {
        ASSERT_TRUE(set.Seal().ok());
        ASSERT_TRUE(set.Seal().ok());
      }
      records += block.record;
      rows += block.rows;
    }
    std::vector<SegmentInfo> infos;
    ASSERT_TRUE(set.Finish(&infos).ok());
    EXPECT_FALSE(set.Finish(&infos).ok());
    ASSERT_EQ(infos.size(), files.size());
    EXPECT_EQ(files.empty(), records.empty());
    std::string read;
    uint64_t rows_read = 0;
    auto file = files.begin();  // sorted names are the order of writing
    for (const SegmentInfo& info : infos) {
      EXPECT_EQ(info.path, file->first);
      SegmentInfo verified;
      ASSERT_TRUE(
          Verify(file->second, {info.bytes, info.crc32c}, &verified).ok());
      EXPECT_EQ(verified.rows, info.rows);
      for (const auto& [name, count] : info.rows) rows_read += count;
      const auto offsets = RecordOffsets(file->second);
      // The footer is beyond the limit's reach.
      EXPECT_TRUE(offsets.back() <= limit || offsets.size() == 3);
      for (size_t r = 1; r + 1 < offsets.size(); ++r) {
        read += file->second.substr(offsets[r] + 12,
                                    offsets[r + 1] - offsets[r] - 16);
      }
      ++file;
    }
    EXPECT_EQ(read, records);
    EXPECT_EQ(rows_read, rows);
  }
}

TEST(SegmentFilesTest, AFailedOpenFailsTheSet) {
  Random random(1);
  const SegmentHeader header = HeaderOf({random.Group("a")});
  SegmentFiles set(header, 100, [] { return "p"; },
                   [](const std::string&, std::unique_ptr<ByteSink>*) {
                     return Status::Unavailable("store down");
                   });
  const EncodedBlock block = RowsBlock(&random, header, 3);
  EXPECT_EQ(set.Append(block).code(), Status::Code::kUnavailable);
  std::vector<SegmentInfo> infos;
  EXPECT_EQ(set.Finish(&infos).code(), Status::Code::kUnavailable);
}

}  // namespace
}  // namespace adaptcp
