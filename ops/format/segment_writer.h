// Writes one segment file: header, blocks, footer.

#ifndef ADAPTCP_OPS_FORMAT_SEGMENT_WRITER_H_
#define ADAPTCP_OPS_FORMAT_SEGMENT_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/format/block.h"
#include "ops/format/byte_io.h"
#include "ops/format/segment_header.h"
#include "ops/util/status.h"

namespace adaptcp {

// What a manifest says about a segment.
struct SegmentInfo {
  std::string path;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // of the whole file, unmasked
  // By group name, shards of one group added up; groups of which the file has no
  // rows are left out.
  std::map<std::string, uint64_t> rows;        // tombstones included
  std::map<std::string, uint64_t> tombstones;  // likewise; may be 0
  std::vector<DenseCounts> dense;
};

SegmentInfo MakeSegmentInfo(const std::string& path, uint64_t bytes,
                            uint32_t crc32c, const SegmentHeader& header,
                            const SegmentFooter& footer);

// One thread at a time; calls block as the sink does. After an error the file
// is lost: every further call returns that error.
class SegmentWriter {
 public:
  // Takes the sink and writes the header to it. InvalidArgument for a header
  // that can't be (CheckHeader).
  static Status Create(std::unique_ptr<ByteSink> sink,
                       const SegmentHeader& header,
                       std::unique_ptr<SegmentWriter>* writer);

  // Appends a block. InvalidArgument if it names a group the header doesn't.
  Status Append(const EncodedBlock& block);

  // Writes the footer; when it returns OK the file is durable. Call once.
  Status Finish(SegmentInfo* info);

  uint64_t bytes() const { return bytes_; }    // so far
  uint64_t blocks() const { return blocks_; }  // so far

  // The bytes a record of n bytes takes in the file.
  static uint64_t FramedSize(uint64_t n) { return n + 16; }

 private:
  SegmentWriter(std::unique_ptr<ByteSink> sink, const SegmentHeader& header);
  Status AppendRecord(std::string_view record, uint32_t record_crc);
  Status AppendBytes(std::string_view data);
  DenseCounts* DenseEntry(const std::string& name);

  const std::unique_ptr<ByteSink> sink_;
  const SegmentHeader header_;
  SegmentFooter footer_;
  std::map<std::string, size_t> dense_index_;
  uint64_t bytes_ = 0;
  uint64_t blocks_ = 0;
  uint32_t crc_ = 0;
  Status status_;
  bool finished_ = false;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_SEGMENT_WRITER_H_
