// Reads an 'R' record in place.

#ifndef ADAPTCP_OPS_FORMAT_ROW_BLOCK_VIEW_H_
#define ADAPTCP_OPS_FORMAT_ROW_BLOCK_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/format/quantized_column.h"
#include "ops/format/segment_header.h"
#include "ops/util/status.h"

namespace adaptcp {

// Points into the record it was parsed from, which must stay where it is; the
// numeric columns are aligned for their types. Immutable after Parse, so any
// thread may read it.
class RowBlockView {
 public:
  // `record` is untrusted and must start at an address divisible by 8 (as every
  // SegmentReader's does). DataLoss saying what is wrong, Unimplemented for an
  // unknown layout version or codec. Nothing is allocated before its length was
  // held against the record's. *view is usable only if OK.
  static Status Parse(std::string_view record,
                      const std::vector<GroupSpec>& groups,
                      RowBlockView* view);

  uint32_t group_index() const { return group_index_; }
  size_t rows() const { return rows_; }
  size_t tombstones() const { return tombstones_; }

  // [rows]; only the one of the group's key_dtype may be called.
  const int64_t* int64_keys() const;
  const int32_t* int32_keys() const;
  const std::vector<std::string_view>& string_keys() const;

  // [rows] update indicators.
  const float* p() const { return p_; }

  bool present(size_t table, size_t row) const {
    return (tables_[table].presence[row >> 3] >> (row & 7)) & 1;
  }
  // Rows of the table's value column: those that are present, in row order.
  size_t present_rows(size_t table) const {
    return tables_[table].present_rows;
  }
  // The bytes of [present_rows, dim] elements, of a table that is not of strings.
  size_t value_bytes(size_t table) const { return tables_[table].value_bytes; }
  // Writes those elements, little-endian, to `to`, which need not be aligned;
  // out of a quantised column what is left of them.
  void ReadValues(size_t table, char* to) const;
  // [present_rows * dim], for a table of strings.
  const std::vector<std::string_view>& string_values(size_t table) const {
    return tables_[table].strings;
  }

 private:
  struct TableView {
    const uint8_t* presence = nullptr;
    size_t present_rows = 0;
    Codec codec = Codec::kRaw;
    size_t value_bytes = 0;
    std::string_view values;    // kRaw
    QuantizedColumn quantized;  // otherwise
    std::vector<std::string_view> strings;
  };

  uint32_t group_index_ = 0;
  size_t rows_ = 0;
  size_t tombstones_ = 0;
  const char* keys_ = nullptr;
  std::vector<std::string_view> string_keys_;
  const float* p_ = nullptr;
  std::vector<TableView> tables_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_ROW_BLOCK_VIEW_H_
