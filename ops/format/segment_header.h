// The JSON records of a segment: the header ('H'), which says what the file
// holds, and the footer ('F'), which says how much of it there is.

#ifndef ADAPTCP_OPS_FORMAT_SEGMENT_HEADER_H_
#define ADAPTCP_OPS_FORMAT_SEGMENT_HEADER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/format/enums.h"
#include "ops/util/status.h"

namespace adaptcp {

// One table of a group: the parameter or one of its optimizer slots.
struct TableSpec {
  std::string name;
  DType dtype = DType::kInvalid;
  uint32_t dim = 0;  // elements per row, at least 1

  bool operator==(const TableSpec& other) const;
};

// Tables with the same keys and shards, and which shard of them this is.
struct GroupSpec {
  std::string name;
  DType key_dtype = DType::kInvalid;
  uint32_t shard = 0;
  uint32_t num_shards = 1;
  std::vector<TableSpec> tables;  // at least 1

  bool operator==(const GroupSpec& other) const;

  // Bytes of the values of a row in memory; of strings without their characters.
  size_t row_bytes() const;
};

struct SegmentHeader {
  uint32_t version = kFormatVersion;
  std::string run;
  uint64_t generation = 0;
  uint32_t sequence = 0;
  SegmentKind kind = SegmentKind::kBase;
  int32_t ps = 0;  // index of the parameter server; -1: the coordinator
  std::vector<GroupSpec> groups;  // may be empty: a file of dense blocks

  bool operator==(const SegmentHeader& other) const;
};

// Parallel to SegmentHeader::groups.
struct GroupCounts {
  uint64_t rows = 0;        // tombstones included
  uint64_t tombstones = 0;  // rows absent from every table
  uint64_t blocks = 0;

  bool operator==(const GroupCounts& other) const;
};

struct DenseCounts {
  std::string name;
  uint64_t blocks = 0;
  uint64_t elements = 0;

  bool operator==(const DenseCounts& other) const;
};

struct SegmentFooter {
  std::vector<GroupCounts> groups;
  std::vector<DenseCounts> dense;  // in the order of first appearance

  bool operator==(const SegmentFooter& other) const;
};

// InvalidArgument, naming the field, if the header can't be written: a group
// without tables, a name twice, a dim of 0, a key type that can't be one, ...
Status CheckHeader(const SegmentHeader& header);

// The record: type byte, then JSON. InvalidArgument if CheckHeader fails or a
// name is not UTF-8.
Status EncodeHeader(const SegmentHeader& header, std::string* record);
Status EncodeFooter(const SegmentHeader& header, const SegmentFooter& footer,
                    std::string* record);

// `record` is untrusted. DataLoss saying what is wrong with it, Unimplemented
// for another format version or an unknown dtype or kind. Members that version
// 1 doesn't know are ignored.
Status ParseHeader(std::string_view record, SegmentHeader* header);
Status ParseFooter(std::string_view record, const SegmentHeader& header,
                   SegmentFooter* footer);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_SEGMENT_HEADER_H_
