// An encoded block on its way from an encoding thread to a SegmentWriter.

#ifndef ADAPTCP_OPS_FORMAT_BLOCK_H_
#define ADAPTCP_OPS_FORMAT_BLOCK_H_

#include <cstdint>
#include <string>

#include "ops/format/enums.h"

namespace adaptcp {

// Made by RowBlockBuilder::Encode and EncodeDenseBlock; `record` is reused when
// a block is passed to Encode again.
struct EncodedBlock {
  std::string record;
  uint32_t record_crc = 0;  // unmasked CRC32C of `record`
  RecordType type = RecordType::kRows;

  // 'R' only.
  uint32_t group_index = 0;
  uint32_t rows = 0;
  uint32_t tombstones = 0;

  // 'D' only.
  std::string dense_name;
  uint64_t elements = 0;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_BLOCK_H_
