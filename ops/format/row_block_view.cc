#include "ops/format/row_block_view.h"

#include <cstring>
#include <string>

#include "ops/format/wire.h"

namespace adaptcp {
namespace {

std::string ReceivedExpected(const std::string& what, uint64_t received,
                             uint64_t expected) {
  return what + ". Received: " + std::to_string(received) + ". Expected: " +
         std::to_string(expected);
}

struct Column {
  Codec codec = Codec::kRaw;
  uint32_t entries = 0;
  std::string_view bytes;
};

// The next column, which must be the given one of the given table.
Status TakeColumn(wire::Cursor* cursor, ColumnType type, size_t table,
                  const std::string& what, Column* column) {
  std::string_view head;
  if (!cursor->Take(wire::kColumnHeader, &head)) {
    return Status::DataLoss(what + ": the block ends inside a column header");
  }
  const auto received_type = wire::Get<uint8_t>(head.data());
  const auto received_table = wire::Get<uint16_t>(head.data() + 2);
  if (received_type != static_cast<uint8_t>(type)) {
    return Status::DataLoss(ReceivedExpected(what + ": wrong column type",
                                             received_type,
                                             static_cast<uint8_t>(type)));
  }
  if (received_table != table) {
    return Status::DataLoss(
        ReceivedExpected(what + ": wrong table index", received_table, table));
  }
  const auto number = wire::Get<uint8_t>(head.data() + 1);
  const Status codec = CheckCodec(number, type == ColumnType::kValues);
  if (!codec.ok()) return Status(codec.code(), what + ": " + codec.message());
  column->codec = static_cast<Codec>(number);
  column->entries = wire::Get<uint32_t>(head.data() + 4);
  const auto bytes = wire::Get<uint64_t>(head.data() + 8);
  if (!cursor->TakePadded(bytes, &column->bytes)) {
    return Status::DataLoss(what + ": " + std::to_string(bytes) +
                            " bytes, zero-padded to 8, don't fit in the " +
                            std::to_string(cursor->size()) +
                            " left in the block");
  }
  return Status::Ok();
}

Status CheckEqual(const std::string& what, uint64_t received,
                  uint64_t expected) {
  if (received == expected) return Status::Ok();
  return Status::DataLoss(ReceivedExpected(what, received, expected));
}

// Counts the bits of `rows` rows; DataLoss if there are bits beyond them.
Status CountBits(std::string_view bits, size_t rows, const std::string& what,
                 size_t* count) {
  ADAPTCP_RETURN_IF_ERROR(
      CheckEqual(what + ": wrong size", bits.size(), (rows + 7) / 8));
  *count = 0;
  for (const char byte : bits) {
    *count += static_cast<size_t>(
        __builtin_popcount(static_cast<unsigned char>(byte)));
  }
  if (rows % 8 != 0 &&
      (static_cast<unsigned char>(bits.back()) >> (rows % 8)) != 0) {
    return Status::DataLoss(what + ": bits set beyond the last row");
  }
  return Status::Ok();
}

}  // namespace

Status RowBlockView::Parse(std::string_view record,
                           const std::vector<GroupSpec>& groups,
                           RowBlockView* view) {
  if (reinterpret_cast<uintptr_t>(record.data()) % 8 != 0) {
    return Status::InvalidArgument("a record must be aligned to 8 bytes");
  }
  wire::Cursor cursor(record);
  std::string_view head;
  if (!cursor.Take(wire::kRowBlockHeader, &head) ||
      head[0] != static_cast<char>(RecordType::kRows)) {
    return Status::DataLoss("not a row block");
  }
  const auto version = wire::Get<uint8_t>(head.data() + 1);
  if (version != kRowBlockVersion) {
    return Status::Unimplemented(ReceivedExpected(
        "unknown row block version", version, kRowBlockVersion));
  }
  ADAPTCP_RETURN_IF_ERROR(CheckEqual("row block: reserved bytes are not zero",
                                     wire::Get<uint16_t>(head.data() + 2), 0));
  const auto group_index = wire::Get<uint32_t>(head.data() + 4);
  if (group_index >= groups.size()) {
    return Status::DataLoss("row block: no such group. Received: index " +
                            std::to_string(group_index) + ". Expected: below " +
                            std::to_string(groups.size()));
  }
  const GroupSpec& group = groups[group_index];
  const std::string where = "row block of group \"" + group.name + "\": ";
  const size_t rows = wire::Get<uint32_t>(head.data() + 8);
  ADAPTCP_RETURN_IF_ERROR(CheckEqual(where + "wrong number of columns",
                                     wire::Get<uint32_t>(head.data() + 12),
                                     2 + 2 * group.tables.size()));
  view->group_index_ = group_index;
  view->rows_ = rows;

  Column column;
  std::string what = where + "keys";
  ADAPTCP_RETURN_IF_ERROR(
      TakeColumn(&cursor, ColumnType::kKeys, 0, what, &column));
  ADAPTCP_RETURN_IF_ERROR(
      CheckEqual(what + ": wrong number", column.entries, rows));
  view->keys_ = column.bytes.data();
  view->string_keys_.clear();
  if (group.key_dtype == DType::kString) {
    ADAPTCP_RETURN_IF_ERROR(
        wire::ParseStrings(column.bytes, rows, what, &view->string_keys_));
  } else {
    ADAPTCP_RETURN_IF_ERROR(CheckEqual(what + ": wrong size",
                                       column.bytes.size(),
                                       rows * DTypeSize(group.key_dtype)));
  }

  what = where + "update indicators";
  ADAPTCP_RETURN_IF_ERROR(
      TakeColumn(&cursor, ColumnType::kIndicators, 0, what, &column));
  ADAPTCP_RETURN_IF_ERROR(
      CheckEqual(what + ": wrong number", column.entries, rows));
  ADAPTCP_RETURN_IF_ERROR(CheckEqual(what + ": wrong size",
                                     column.bytes.size(),
                                     rows * sizeof(float)));
  view->p_ = reinterpret_cast<const float*>(column.bytes.data());
  for (size_t i = 0; i < rows; ++i) {
    if (view->p_[i] >= 0 && view->p_[i] <= 1) continue;
    return Status::DataLoss(what + ": Received: " +
                            std::to_string(view->p_[i]) + " of row " +
                            std::to_string(i) + ". Expected: 0 to 1");
  }

  view->tables_.resize(group.tables.size());
  for (size_t t = 0; t < group.tables.size(); ++t) {
    const TableSpec& spec = group.tables[t];
    TableView& table = view->tables_[t];
    table.strings.clear();
    what = where + "presence of table \"" + spec.name + "\"";
    ADAPTCP_RETURN_IF_ERROR(
        TakeColumn(&cursor, ColumnType::kPresence, t, what, &column));
    ADAPTCP_RETURN_IF_ERROR(
        CheckEqual(what + ": wrong number", column.entries, rows));
    ADAPTCP_RETURN_IF_ERROR(
        CountBits(column.bytes, rows, what, &table.present_rows));
    table.presence = reinterpret_cast<const uint8_t*>(column.bytes.data());

    what = where + "values of table \"" + spec.name + "\"";
    ADAPTCP_RETURN_IF_ERROR(
        TakeColumn(&cursor, ColumnType::kValues, t, what, &column));
    ADAPTCP_RETURN_IF_ERROR(CheckEqual(what + ": wrong number of rows",
                                       column.entries, table.present_rows));
    // Both factors are below 2^32.
    const uint64_t elements = uint64_t{table.present_rows} * spec.dim;
    table.codec = column.codec;
    table.values = column.bytes;
    table.value_bytes = elements * DTypeSize(spec.dtype);
    if (column.codec != Codec::kRaw) {
      ADAPTCP_RETURN_IF_ERROR(QuantizedColumn::Parse(
          what, column.codec, column.bytes, spec.dtype, spec.dim,
          table.present_rows, &table.quantized));
      continue;
    }
    if (spec.dtype == DType::kString) {
      ADAPTCP_RETURN_IF_ERROR(
          wire::ParseStrings(column.bytes, elements, what, &table.strings));
      continue;
    }
    ADAPTCP_RETURN_IF_ERROR(
        wire::CheckElements(column.bytes, elements, spec.dtype, what));
  }
  if (!cursor.empty()) {
    return Status::DataLoss(where + std::to_string(cursor.size()) +
                            " bytes after the last column");
  }

  std::string any((rows + 7) / 8, '\0');
  for (const TableView& table : view->tables_) {
    for (size_t i = 0; i < any.size(); ++i) {
      any[i] = static_cast<char>(any[i] | table.presence[i]);
    }
  }
  size_t alive = 0;
  ADAPTCP_RETURN_IF_ERROR(CountBits(any, rows, where, &alive));
  view->tombstones_ = rows - alive;
  return Status::Ok();
}

void RowBlockView::ReadValues(size_t table, char* to) const {
  const TableView& view = tables_[table];
  if (view.codec != Codec::kRaw) {
    view.quantized.Read(to);
  } else if (!view.values.empty()) {
    std::memcpy(to, view.values.data(), view.values.size());
  }
}

const int64_t* RowBlockView::int64_keys() const {
  return reinterpret_cast<const int64_t*>(keys_);
}

const int32_t* RowBlockView::int32_keys() const {
  return reinterpret_cast<const int32_t*>(keys_);
}

const std::vector<std::string_view>& RowBlockView::string_keys() const {
  return string_keys_;
}

}  // namespace adaptcp
