#include "ops/format/segment_header.h"

#include <limits>
#include <set>
#include <utility>

#include "nlohmann/json.hpp"

namespace adaptcp {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxTables = 65535;  // a column names its table in 16 bits

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// For messages: not longer than a line.
std::string Short(const Json& json) {
  std::string text = Dump(json);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

Status EncodeRecord(RecordType type, const Json& json, std::string* record) {
  std::string text = Dump(json);
  // What was replaced because it isn't UTF-8 doesn't come back the same.
  if (Json::parse(text, nullptr, /*allow_exceptions=*/false) != json) {
    return Status::InvalidArgument("a name is not valid UTF-8. Received: " +
                                   Short(json));
  }
  record->assign(1, static_cast<char>(type));
  record->append(text);
  return Status::Ok();
}

Status ParseRecord(RecordType type, const char* what, std::string_view record,
                   Json* json) {
  if (record.empty() || record[0] != static_cast<char>(type)) {
    return Status::DataLoss(std::string("not a ") + what + " record");
  }
  *json = Json::parse(record.begin() + 1, record.end(), nullptr,
                      /*allow_exceptions=*/false);
  if (json->is_discarded() || !json->is_object()) {
    return Status::DataLoss(std::string(what) + ": not a JSON object");
  }
  return Status::Ok();
}

// The accessors below are DataLoss, naming `where` and the member, unless it is
// there and of the type and within the bounds asked for.

Status Missing(const std::string& where, const char* key, const Json& object,
               const std::string& expected) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  std::string received = "nothing";
  if (object.is_object() && it != object.end()) {
    // What is nested may be so as deeply as the stack, which writing it takes.
    received = it->is_structured() ? it->type_name() : Short(*it);
  }
  return Status::DataLoss(where + ": bad \"" + key + "\". Received: " +
                          received + ". Expected: " + expected);
}

Status GetUint(const Json& object, const char* key, const std::string& where,
               uint64_t min, uint64_t max, uint64_t* out) {
  if (object.is_object()) {
    const auto it = object.find(key);
    if (it != object.end() && it->is_number_unsigned()) {
      *out = *it->get_ptr<const Json::number_unsigned_t*>();
      if (*out >= min && *out <= max) return Status::Ok();
    }
  }
  return Missing(where, key, object,
                 "an integer from " + std::to_string(min) + " to " +
                     std::to_string(max));
}

Status GetUint32(const Json& object, const char* key, const std::string& where,
                 uint32_t min, uint32_t* out) {
  uint64_t value = 0;
  ADAPTCP_RETURN_IF_ERROR(GetUint(object, key, where, min, kMaxU32, &value));
  *out = static_cast<uint32_t>(value);
  return Status::Ok();
}

Status GetString(const Json& object, const char* key, const std::string& where,
                 std::string* out) {
  if (object.is_object()) {
    const auto it = object.find(key);
    if (it != object.end() && it->is_string()) {
      *out = *it->get_ptr<const Json::string_t*>();
      return Status::Ok();
    }
  }
  return Missing(where, key, object, "a string");
}

Status GetArray(const Json& object, const char* key, const std::string& where,
                const Json** out) {
  if (object.is_object()) {
    const auto it = object.find(key);
    if (it != object.end() && it->is_array()) {
      *out = &*it;
      return Status::Ok();
    }
  }
  return Missing(where, key, object, "an array");
}

Status GetDType(const Json& object, const char* key, const std::string& where,
                DType* out) {
  std::string name;
  ADAPTCP_RETURN_IF_ERROR(GetString(object, key, where, &name));
  const Status status = ParseDType(name, out);
  if (status.ok()) return status;
  return Status::Unimplemented(where + ": " + status.message());
}

Status GetPs(const Json& object, int32_t* out) {
  const auto it = object.find("ps");
  // 2^64-1 would compare equal to -1.
  if (it != object.end() && it->is_number_integer() &&
      !it->is_number_unsigned() && *it == -1) {
    *out = -1;
    return Status::Ok();
  }
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  uint64_t value = 0;
  if (!GetUint(object, "ps", "header", 0, kMax, &value).ok()) {
    return Missing("header", "ps", object, "an integer from -1 to 2147483647");
  }
  *out = static_cast<int32_t>(value);
  return Status::Ok();
}

Status ParseTable(const Json& json, const std::string& where,
                  TableSpec* table) {
  ADAPTCP_RETURN_IF_ERROR(GetString(json, "name", where, &table->name));
  ADAPTCP_RETURN_IF_ERROR(GetDType(json, "dtype", where, &table->dtype));
  return GetUint32(json, "dim", where, 1, &table->dim);
}

Status ParseGroup(const Json& json, const std::string& where,
                  GroupSpec* group) {
  ADAPTCP_RETURN_IF_ERROR(GetString(json, "name", where, &group->name));
  ADAPTCP_RETURN_IF_ERROR(
      GetDType(json, "key_dtype", where, &group->key_dtype));
  ADAPTCP_RETURN_IF_ERROR(GetUint32(json, "shard", where, 0, &group->shard));
  ADAPTCP_RETURN_IF_ERROR(
      GetUint32(json, "num_shards", where, 1, &group->num_shards));
  const Json* tables;
  ADAPTCP_RETURN_IF_ERROR(GetArray(json, "tables", where, &tables));
  for (const Json& entry : *tables) {
    TableSpec table;
    ADAPTCP_RETURN_IF_ERROR(ParseTable(
        entry, where + ", table " + std::to_string(group->tables.size()),
        &table));
    group->tables.push_back(std::move(table));
  }
  return Status::Ok();
}

Status CheckGroup(const GroupSpec& group) {
  const std::string where = "group \"" + group.name + "\": ";
  if (group.name.empty()) {
    return Status::InvalidArgument("a group without a name");
  }
  if (!IsKeyDType(group.key_dtype)) {
    return Status::InvalidArgument(
        where + "bad key type. Received: \"" + DTypeName(group.key_dtype) +
        "\". Expected: int64, int32 or string");
  }
  if (group.num_shards < 1 || group.shard >= group.num_shards) {
    return Status::InvalidArgument(where + "shard " +
                                   std::to_string(group.shard) + " of " +
                                   std::to_string(group.num_shards));
  }
  if (group.tables.empty() || group.tables.size() > kMaxTables) {
    return Status::InvalidArgument(
        where + "bad number of tables. Received: " +
        std::to_string(group.tables.size()) + ". Expected: 1 to 65535");
  }
  std::set<std::string> names;
  for (const TableSpec& table : group.tables) {
    if (table.name.empty() || !names.insert(table.name).second) {
      return Status::InvalidArgument(
          where + "table names must be there and differ. Received: \"" +
          table.name + "\"");
    }
    if (!IsKnownDType(table.dtype) || table.dim < 1) {
      return Status::InvalidArgument(
          where + "table \"" + table.name + "\" has dtype " +
          std::to_string(static_cast<int>(table.dtype)) + " and dim " +
          std::to_string(table.dim));
    }
  }
  return Status::Ok();
}

}  // namespace

bool TableSpec::operator==(const TableSpec& other) const {
  return name == other.name && dtype == other.dtype && dim == other.dim;
}

bool GroupSpec::operator==(const GroupSpec& other) const {
  return name == other.name && key_dtype == other.key_dtype &&
         shard == other.shard && num_shards == other.num_shards &&
         tables == other.tables;
}

size_t GroupSpec::row_bytes() const {
  constexpr size_t kString = 24;
  size_t bytes = 0;
  for (const TableSpec& table : tables) {
    bytes += table.dim * (table.dtype == DType::kString ? kString
                                                        : DTypeSize(table.dtype));
  }
  return bytes;
}

bool SegmentHeader::operator==(const SegmentHeader& other) const {
  return version == other.version && run == other.run &&
         generation == other.generation && sequence == other.sequence &&
         kind == other.kind && ps == other.ps && groups == other.groups;
}

bool GroupCounts::operator==(const GroupCounts& other) const {
  return rows == other.rows && tombstones == other.tombstones &&
         blocks == other.blocks;
}

bool DenseCounts::operator==(const DenseCounts& other) const {
  return name == other.name && blocks == other.blocks &&
         elements == other.elements;
}

bool SegmentFooter::operator==(const SegmentFooter& other) const {
  return groups == other.groups && dense == other.dense;
}

Status CheckHeader(const SegmentHeader& header) {
  if (header.version != kFormatVersion) {
    return Status::InvalidArgument(
        "bad format version. Received: " + std::to_string(header.version) +
        ". Expected: " + std::to_string(kFormatVersion));
  }
  if (header.run.empty() || header.sequence < 1 || header.ps < -1 ||
      *SegmentKindName(header.kind) == '\0') {
    return Status::InvalidArgument(
        "bad segment header. Received: run \"" + header.run + "\", sequence " +
        std::to_string(header.sequence) + ", ps " + std::to_string(header.ps) +
        ", kind " + std::to_string(static_cast<int>(header.kind)) +
        ". Expected: a run, a sequence of at least 1, a ps of at least -1, a "
        "kind from 1 to 4");
  }
  std::set<std::pair<std::string, uint32_t>> shards;
  for (const GroupSpec& group : header.groups) {
    ADAPTCP_RETURN_IF_ERROR(CheckGroup(group));
    if (!shards.emplace(group.name, group.shard).second) {
      return Status::InvalidArgument("shard " + std::to_string(group.shard) +
                                     " of group \"" + group.name +
                                     "\" is there twice");
    }
  }
  return Status::Ok();
}

Status EncodeHeader(const SegmentHeader& header, std::string* record) {
  ADAPTCP_RETURN_IF_ERROR(CheckHeader(header));
  Json groups = Json::array();
  for (const GroupSpec& group : header.groups) {
    Json tables = Json::array();
    for (const TableSpec& table : group.tables) {
      tables.push_back({{"name", table.name},
                        {"dtype", DTypeName(table.dtype)},
                        {"dim", table.dim}});
    }
    groups.push_back({{"name", group.name},
                      {"key_dtype", DTypeName(group.key_dtype)},
                      {"shard", group.shard},
                      {"num_shards", group.num_shards},
                      {"tables", std::move(tables)}});
  }
  const Json json = {{"format", header.version},
                     {"run", header.run},
                     {"generation", header.generation},
                     {"sequence", header.sequence},
                     {"kind", SegmentKindName(header.kind)},
                     {"ps", header.ps},
                     {"groups", std::move(groups)}};
  return EncodeRecord(RecordType::kHeader, json, record);
}

Status ParseHeader(std::string_view record, SegmentHeader* header) {
  Json json;
  ADAPTCP_RETURN_IF_ERROR(
      ParseRecord(RecordType::kHeader, "header", record, &json));
  SegmentHeader parsed;
  ADAPTCP_RETURN_IF_ERROR(
      GetUint32(json, "format", "header", 1, &parsed.version));
  if (parsed.version != kFormatVersion) {
    return Status::Unimplemented(
        "unknown format version. Received: " + std::to_string(parsed.version) +
        ". Expected: " + std::to_string(kFormatVersion) +
        "; was this file written by a later version?");
  }
  ADAPTCP_RETURN_IF_ERROR(GetString(json, "run", "header", &parsed.run));
  ADAPTCP_RETURN_IF_ERROR(GetUint(json, "generation", "header", 0,
                                  std::numeric_limits<uint64_t>::max(),
                                  &parsed.generation));
  ADAPTCP_RETURN_IF_ERROR(
      GetUint32(json, "sequence", "header", 1, &parsed.sequence));
  ADAPTCP_RETURN_IF_ERROR(GetPs(json, &parsed.ps));
  std::string kind;
  ADAPTCP_RETURN_IF_ERROR(GetString(json, "kind", "header", &kind));
  const Status kind_status = ParseSegmentKind(kind, &parsed.kind);
  if (!kind_status.ok()) {
    return Status::Unimplemented("header: " + kind_status.message());
  }
  const Json* groups;
  ADAPTCP_RETURN_IF_ERROR(GetArray(json, "groups", "header", &groups));
  for (const Json& entry : *groups) {
    GroupSpec group;
    ADAPTCP_RETURN_IF_ERROR(ParseGroup(
        entry, "header, group " + std::to_string(parsed.groups.size()),
        &group));
    parsed.groups.push_back(std::move(group));
  }
  const Status check = CheckHeader(parsed);
  if (!check.ok()) return Status::DataLoss("header: " + check.message());
  *header = std::move(parsed);
  return Status::Ok();
}

Status EncodeFooter(const SegmentHeader& header, const SegmentFooter& footer,
                    std::string* record) {
  Json groups = Json::array();
  for (size_t i = 0; i < header.groups.size(); ++i) {
    groups.push_back({{"name", header.groups[i].name},
                      {"rows", footer.groups[i].rows},
                      {"tombstones", footer.groups[i].tombstones},
                      {"blocks", footer.groups[i].blocks}});
  }
  Json dense = Json::array();
  for (const DenseCounts& counts : footer.dense) {
    dense.push_back({{"name", counts.name},
                     {"blocks", counts.blocks},
                     {"elements", counts.elements}});
  }
  const Json json = {{"groups", std::move(groups)},
                     {"dense", std::move(dense)}};
  return EncodeRecord(RecordType::kFooter, json, record);
}

Status ParseFooter(std::string_view record, const SegmentHeader& header,
                   SegmentFooter* footer) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  Json json;
  ADAPTCP_RETURN_IF_ERROR(
      ParseRecord(RecordType::kFooter, "footer", record, &json));
  const Json* groups;
  const Json* dense;
  ADAPTCP_RETURN_IF_ERROR(GetArray(json, "groups", "footer", &groups));
  ADAPTCP_RETURN_IF_ERROR(GetArray(json, "dense", "footer", &dense));
  if (groups->size() != header.groups.size()) {
    return Status::DataLoss(
        "footer: wrong number of groups. Received: " +
        std::to_string(groups->size()) + ". Expected, from the header: " +
        std::to_string(header.groups.size()));
  }
  SegmentFooter parsed;
  for (size_t i = 0; i < groups->size(); ++i) {
    const Json& entry = (*groups)[i];
    const std::string where = "footer, group " + std::to_string(i);
    std::string name;
    GroupCounts counts;
    ADAPTCP_RETURN_IF_ERROR(GetString(entry, "name", where, &name));
    if (name != header.groups[i].name) {
      return Status::DataLoss(where + ": wrong name. Received: \"" + name +
                              "\". Expected, from the header: \"" +
                              header.groups[i].name + "\"");
    }
    ADAPTCP_RETURN_IF_ERROR(
        GetUint(entry, "rows", where, 0, kMax, &counts.rows));
    ADAPTCP_RETURN_IF_ERROR(
        GetUint(entry, "tombstones", where, 0, kMax, &counts.tombstones));
    ADAPTCP_RETURN_IF_ERROR(
        GetUint(entry, "blocks", where, 0, kMax, &counts.blocks));
    parsed.groups.push_back(counts);
  }
  for (const Json& entry : *dense) {
    const std::string where =
        "footer, dense tensor " + std::to_string(parsed.dense.size());
    DenseCounts counts;
    ADAPTCP_RETURN_IF_ERROR(GetString(entry, "name", where, &counts.name));
    ADAPTCP_RETURN_IF_ERROR(
        GetUint(entry, "blocks", where, 0, kMax, &counts.blocks));
    ADAPTCP_RETURN_IF_ERROR(
        GetUint(entry, "elements", where, 0, kMax, &counts.elements));
    parsed.dense.push_back(std::move(counts));
  }
  *footer = std::move(parsed);
  return Status::Ok();
}

}  // namespace adaptcp
