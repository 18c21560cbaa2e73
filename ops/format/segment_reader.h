// Reads a segment file front to back and trusts nothing in it.

#ifndef ADAPTCP_OPS_FORMAT_SEGMENT_READER_H_
#define ADAPTCP_OPS_FORMAT_SEGMENT_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ops/format/byte_io.h"
#include "ops/format/dense_block.h"
#include "ops/format/row_block_view.h"
#include "ops/format/segment_header.h"
#include "ops/format/segment_writer.h"

namespace adaptcp {

// What a manifest promised; each is checked if it is there.
struct SegmentExpectation {
  std::optional<uint64_t> bytes;   // checked by Open
  std::optional<uint32_t> crc32c;  // checked when the footer has been read
};

// One block; owns the memory its views point into, and reuses it.
struct SegmentBlock {
  RecordType type = RecordType::kFooter;  // kFooter: there is no further block
  uint64_t offset = 0;                    // of the record, in the file
  RowBlockView rows;                      // if kRows
  DenseBlockView dense;                   // if kDense
  std::string buffer;
};

// One thread at a time; calls block as the source does. Errors read "<file>:
// record at byte <offset>: <what>": DataLoss for damage (a missing footer is a
// truncated file), Unimplemented for a version, codec or dtype of a later
// format. After an error every further call returns it.
class SegmentReader {
 public:
  // Takes the source, reads the header.
  static Status Open(std::unique_ptr<ByteSource> source,
                     const SegmentExpectation& expected,
                     std::unique_ptr<SegmentReader>* reader);

  const SegmentHeader& header() const { return header_; }

  // Reads the next block. At the footer: compares it with what was read, checks
  // that it is the last record and the file's CRC if one is expected, and gives
  // type kFooter. Blocks handed out before that are each intact, but the file
  // may still prove incomplete.
  Status Next(SegmentBlock* block);

  // After the footer.
  const SegmentFooter& footer() const { return footer_; }
  SegmentInfo info() const;

 private:
  explicit SegmentReader(std::unique_ptr<ByteSource> source);
  Status ReadRecord(std::string* buffer, std::string_view* record);
  Status ReadHeader();
  Status Interpret(std::string_view record, SegmentBlock* block);
  Status CheckEnd(std::string_view record);
  Status Fail(const Status& status);

  const std::unique_ptr<ByteSource> source_;
  SegmentExpectation expected_;
  SegmentHeader header_;
  SegmentFooter footer_;  // counted while reading
  std::map<std::string, size_t> dense_index_;
  uint64_t offset_ = 0;         // of the next record
  uint64_t record_offset_ = 0;  // of the last one
  uint32_t crc_ = 0;
  bool at_end_ = false;
  Status status_;
};

// Reads the whole segment; OK if it is whole and as expected.
Status VerifySegment(std::unique_ptr<ByteSource> source,
                     const SegmentExpectation& expected, SegmentInfo* info);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_SEGMENT_READER_H_
