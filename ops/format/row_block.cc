#include "ops/format/row_block.h"

#include <cstring>
#include <limits>
#include <utility>

#include "ops/format/crc32c.h"
#include "ops/format/wire.h"

namespace adaptcp {
namespace {

constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

size_t Row(const uint32_t* sel, size_t i) { return sel == nullptr ? i : sel[i]; }

template <typename T>
void AppendFixed(const T* values, const uint32_t* sel, size_t m,
                 std::string* out) {
  if (m == 0) return;
  if (sel == nullptr) {
    out->append(reinterpret_cast<const char*>(values), m * sizeof(T));
    return;
  }
  const size_t start = out->size();
  out->resize(start + m * sizeof(T));
  char* to = &(*out)[start];
  for (size_t i = 0; i < m; ++i) {
    std::memcpy(to + i * sizeof(T), &values[sel[i]], sizeof(T));
  }
}

void AppendString(std::string_view s, std::string* lengths,
                  std::string* characters) {
  wire::Put(static_cast<uint32_t>(s.size()), lengths);
  characters->append(s);
}

template <typename S>
void AppendStrings(const S* values, const uint32_t* sel, size_t m,
                   std::string* lengths, std::string* characters) {
  for (size_t i = 0; i < m; ++i) {
    AppendString(values[Row(sel, i)], lengths, characters);
  }
}

template <typename S>
bool StringsFit(const S* values, const uint32_t* sel, size_t m) {
  for (size_t i = 0; i < m; ++i) {
    if (values[Row(sel, i)].size() > kMaxU32) return false;
  }
  return true;
}

size_t ColumnSize(size_t bytes) {
  return wire::kColumnHeader + bytes + wire::Padding(bytes);
}

// What is in front of a column's bytes.
void PutColumnHeader(ColumnType type, Codec codec, uint16_t table,
                     uint32_t entries, uint64_t bytes, std::string* out) {
  wire::Put(static_cast<uint8_t>(type), out);
  wire::Put(static_cast<uint8_t>(codec), out);
  wire::Put(table, out);
  wire::Put(entries, out);
  wire::Put(bytes, out);
}

// One column; its bytes are `first` followed by `second`.
void PutColumn(ColumnType type, uint16_t table, uint32_t entries,
               const std::string& first, const std::string& second,
               std::string* out) {
  const uint64_t bytes = first.size() + second.size();
  PutColumnHeader(type, Codec::kRaw, table, entries, bytes, out);
  out->append(first);
  out->append(second);
  out->append(wire::Padding(bytes), '\0');
}

void PutQuantizedColumn(Codec codec, const Quantization& quantization,
                        uint16_t table, const TableSpec& spec, uint32_t entries,
                        const std::string& values, std::string* out) {
  const size_t header = out->size();
  PutColumnHeader(ColumnType::kValues, codec, table, entries, 0, out);
  const size_t start = out->size();
  QuantizeColumn(quantization, spec.dtype, spec.dim, values.data(), entries,
                 out);
  const uint64_t bytes = out->size() - start;
  std::memcpy(&(*out)[header + 8], &bytes, sizeof(bytes));
  out->append(wire::Padding(bytes), '\0');
}

}  // namespace

RowBlockBuilder::RowBlockBuilder(const GroupSpec& group, uint32_t group_index,
                                 std::vector<Quantization> quantization)
    : group_(group),
      group_index_(group_index),
      quantization_(quantization.empty()
                        ? std::vector<Quantization>(group.tables.size())
                        : std::move(quantization)),
      tables_(group.tables.size()) {}

Status RowBlockBuilder::CheckBatch(const RowBatch& batch, const uint32_t* sel,
                                   size_t m) const {
  const std::string where = "group \"" + group_.name + "\": ";
  const size_t tables = group_.tables.size();
  if (batch.values.size() != tables || batch.present.size() != tables) {
    return Status::InvalidArgument(
        where + "wrong number of tables in a batch. Received: " +
        std::to_string(batch.values.size()) + " values, " +
        std::to_string(batch.present.size()) + " presence columns. Expected: " +
        std::to_string(tables));
  }
  DType received = DType::kString;
  if (std::holds_alternative<const int64_t*>(batch.keys)) {
    received = DType::kInt64;
  } else if (std::holds_alternative<const int32_t*>(batch.keys)) {
    received = DType::kInt32;
  }
  if (received != group_.key_dtype) {
    return Status::InvalidArgument(where + "wrong key type. Received: " +
                                   DTypeName(received) + ". Expected: " +
                                   DTypeName(group_.key_dtype));
  }
  if (m == 0) return Status::Ok();
  const bool no_keys = std::visit([](auto* keys) { return keys == nullptr; },
                                  batch.keys);
  if (no_keys || batch.p == nullptr) {
    return Status::InvalidArgument(where + "a batch without keys or without "
                                           "update indicators");
  }
  if (m > kMaxU32 - rows_) {
    return Status::ResourceExhausted(where + "a block has at most 2^32-1 rows");
  }
  bool fits = true;
  if (auto* keys = std::get_if<const std::string*>(&batch.keys)) {
    fits = StringsFit(*keys, sel, m);
  } else if (auto* views = std::get_if<const std::string_view*>(&batch.keys)) {
    fits = StringsFit(*views, sel, m);
  }
  for (size_t t = 0; t < tables; ++t) {
    const TableSpec& spec = group_.tables[t];
    const uint8_t* present = batch.present[t];
    const auto* strings = static_cast<const std::string_view*>(batch.values[t]);
    for (size_t i = 0; i < m; ++i) {
      const size_t row = Row(sel, i);
      if (present != nullptr && present[row] == 0) continue;
      if (batch.values[t] == nullptr) {
        return Status::InvalidArgument(where + "table \"" + spec.name +
                                       "\" has present rows but no values");
      }
      if (spec.dtype != DType::kString) break;
      for (size_t d = 0; d < spec.dim; ++d) {
        fits = fits && strings[row * spec.dim + d].size() <= kMaxU32;
      }
    }
  }
  if (!fits) {
    return Status::InvalidArgument(where + "a string of 4 GiB or more");
  }
  return Status::Ok();
}

void RowBlockBuilder::AppendTable(const RowBatch& batch, size_t table,
                                  const uint32_t* sel, size_t m) {
  const TableSpec& spec = group_.tables[table];
  TableColumn& column = tables_[table];
  const uint8_t* present = batch.present[table];
  column.presence.resize((rows_ + m + 7) / 8);
  for (size_t i = 0; i < m; ++i) {
    if (present != nullptr && present[Row(sel, i)] == 0) continue;
    const size_t bit = rows_ + i;
    column.presence[bit / 8] |= static_cast<char>(1u << (bit % 8));
    ++column.present_rows;
  }
  if (spec.dtype == DType::kString) {
    const auto* values =
        static_cast<const std::string_view*>(batch.values[table]);
    for (size_t i = 0; i < m; ++i) {
      const size_t row = Row(sel, i);
      if (present != nullptr && present[row] == 0) continue;
      for (size_t d = 0; d < spec.dim; ++d) {
        AppendString(values[row * spec.dim + d], &column.lengths,
                     &column.values);
      }
    }
    return;
  }
  const auto* values = static_cast<const char*>(batch.values[table]);
  const size_t row_bytes = DTypeSize(spec.dtype) * spec.dim;
  // Rows that lie one after the other are copied together.
  size_t first = 0, rows = 0;
  const auto copy = [&] {
    column.values.append(values + first * row_bytes, rows * row_bytes);
  };
  for (size_t i = 0; i < m; ++i) {
    const size_t row = Row(sel, i);
    if (present != nullptr && present[row] == 0) continue;
    if (rows > 0 && row == first + rows) {
      ++rows;
      continue;
    }
    if (rows > 0) copy();
    first = row;
    rows = 1;
  }
  if (rows > 0) copy();
}

Status RowBlockBuilder::Append(const RowBatch& batch, const uint32_t* sel,
                               size_t m) {
  ADAPTCP_RETURN_IF_ERROR(CheckBatch(batch, sel, m));
  if (m == 0) return Status::Ok();
  if (auto* keys = std::get_if<const int64_t*>(&batch.keys)) {
    AppendFixed(*keys, sel, m, &keys_);
  } else if (auto* keys32 = std::get_if<const int32_t*>(&batch.keys)) {
    AppendFixed(*keys32, sel, m, &keys_);
  } else if (auto* strings = std::get_if<const std::string*>(&batch.keys)) {
    AppendStrings(*strings, sel, m, &key_lengths_, &keys_);
  } else {
    AppendStrings(std::get<const std::string_view*>(batch.keys), sel, m,
                  &key_lengths_, &keys_);
  }
  AppendFixed(batch.p, sel, m, &indicators_);
  for (size_t t = 0; t < tables_.size(); ++t) AppendTable(batch, t, sel, m);
  for (size_t i = 0; i < m; ++i) {
    const size_t row = Row(sel, i);
    bool anywhere = false;
    for (const uint8_t* present : batch.present) {
      anywhere = anywhere || present == nullptr || present[row] != 0;
    }
    if (!anywhere) ++tombstones_;
  }
  rows_ += m;
  return Status::Ok();
}

size_t RowBlockBuilder::bytes() const {
  size_t total = wire::kRowBlockHeader +
                 ColumnSize(key_lengths_.size() + keys_.size()) +
                 ColumnSize(indicators_.size());
  for (const TableColumn& column : tables_) {
    total += ColumnSize(column.presence.size()) +
             ColumnSize(column.lengths.size() + column.values.size());
  }
  return total;
}

size_t RowBlockBuilder::restored_bytes() const {
  return rows_ * group_.row_bytes();
}

void RowBlockBuilder::Encode(EncodedBlock* block) const {
  const auto rows = static_cast<uint32_t>(rows_);
  std::string* out = &block->record;
  out->clear();
  out->reserve(bytes());
  wire::Put(static_cast<char>(RecordType::kRows), out);
  wire::Put(kRowBlockVersion, out);
  wire::Put(uint16_t{0}, out);
  wire::Put(group_index_, out);
  wire::Put(rows, out);
  wire::Put(static_cast<uint32_t>(2 + 2 * tables_.size()), out);
  PutColumn(ColumnType::kKeys, 0, rows, key_lengths_, keys_, out);
  PutColumn(ColumnType::kIndicators, 0, rows, indicators_, "", out);
  for (size_t t = 0; t < tables_.size(); ++t) {
    const TableColumn& column = tables_[t];
    const auto table = static_cast<uint16_t>(t);
    PutColumn(ColumnType::kPresence, table, rows, column.presence, "", out);
    const TableSpec& spec = group_.tables[t];
    const Codec codec = CodecFor(quantization_[t], spec.dtype, spec.dim);
    if (codec != Codec::kRaw) {
      PutQuantizedColumn(codec, quantization_[t], table, spec,
                         column.present_rows, column.values, out);
      continue;
    }
    PutColumn(ColumnType::kValues, table, column.present_rows, column.lengths,
              column.values, out);
  }
  block->record_crc = Crc32c(*out);
  block->type = RecordType::kRows;
  block->group_index = group_index_;
  block->rows = rows;
  block->tombstones = static_cast<uint32_t>(tombstones_);
  block->dense_name.clear();
  block->elements = 0;
}

void RowBlockBuilder::Clear() {
  rows_ = 0;
  tombstones_ = 0;
  keys_.clear();
  key_lengths_.clear();
  indicators_.clear();
  for (TableColumn& column : tables_) {
    column.presence.clear();
    column.values.clear();
    column.lengths.clear();
    column.present_rows = 0;
  }
}

}  // namespace adaptcp
