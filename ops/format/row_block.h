// Collects rows of one group in columns and encodes them as an 'R' record.

#ifndef ADAPTCP_OPS_FORMAT_ROW_BLOCK_H_
#define ADAPTCP_OPS_FORMAT_ROW_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ops/format/block.h"
#include "ops/format/quantize.h"
#include "ops/format/segment_header.h"
#include "ops/util/status.h"

namespace adaptcp {

// A batch of n rows as a caller has them; borrowed for the call.
struct RowBatch {
  // [n]; the alternative must match the group's key_dtype.
  std::variant<const int64_t*, const int32_t*, const std::string*,
               const std::string_view*>
      keys;
  // [n] update indicators.
  const float* p = nullptr;
  // Per table: [n], nonzero where the row is in that table. nullptr: in it all.
  std::vector<const uint8_t*> present;
  // Per table: [n, dim] elements, row-major; const std::string_view* for string
  // tables. Absent rows are not read. Any alignment.
  std::vector<const void*> values;
};

// Thread-compatible: one thread at a time; no call blocks. Reusable.
class RowBlockBuilder {
 public:
  // `group_index` is the group's place in SegmentHeader::groups. `quantization`:
  // how the values of each table are encoded; empty: all as they are.
  RowBlockBuilder(const GroupSpec& group, uint32_t group_index,
                  std::vector<Quantization> quantization = {});

  // Appends rows sel[0..m) of `batch`, in that order; sel == nullptr takes rows
  // 0..m. A row absent from every table is a tombstone. InvalidArgument if the
  // batch doesn't fit the group, ResourceExhausted if the block would pass
  // 2^32-1 rows; the builder is unchanged then.
  Status Append(const RowBatch& batch, const uint32_t* sel, size_t m);

  size_t rows() const { return rows_; }
  size_t tombstones() const { return tombstones_; }
  // The size of the record that Encode would make if no table were quantised:
  // what the rows take in memory until then.
  size_t bytes() const;
  // What a restore makes of the block: values of all its tables for all rows,
  // for tombstones too; strings without their characters.
  size_t restored_bytes() const;

  // Writes the block into *block (its buffer is reused); the builder keeps its
  // rows until Clear. 0 rows make a valid block. Quantising is done here.
  void Encode(EncodedBlock* block) const;

  // Drops the rows, keeps the memory.
  void Clear();

  const GroupSpec& group() const { return group_; }

 private:
  struct TableColumn {
    std::string presence;  // bits, least significant first
    std::string values;    // present rows only; strings: the characters
    std::string lengths;   // strings only: u32 per element
    uint32_t present_rows = 0;
  };

  Status CheckBatch(const RowBatch& batch, const uint32_t* sel,
                    size_t m) const;
  void AppendTable(const RowBatch& batch, size_t table, const uint32_t* sel,
                   size_t m);

  const GroupSpec group_;
  const uint32_t group_index_;
  const std::vector<Quantization> quantization_;  // by table
  size_t rows_ = 0;
  size_t tombstones_ = 0;
  std::string keys_;         // fixed-width keys, or the characters of strings
  std::string key_lengths_;  // strings only: u32 per key
  std::string indicators_;
  std::vector<TableColumn> tables_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_ROW_BLOCK_H_
