#include "ops/kernels/segment_source.h"

#include <map>
#include <utility>

#include "ops/io/store.h"

namespace adaptcp {
namespace {

Json SpecOf(const GroupSpec& group) {
  Json tables = Json::array();
  for (const TableSpec& table : group.tables) {
    tables.push_back({{"name", table.name},
                      {"dtype", DTypeName(table.dtype)},
                      {"dim", table.dim}});
  }
  return {{"key_dtype", DTypeName(group.key_dtype)},
          {"tables", std::move(tables)}};
}

Status CheckSpec(const std::string& what, const Json& received,
                 const Json& specs, const std::string& name) {
  const auto expected = specs.find(name);
  if (expected != specs.end() && *expected == received) return Status::Ok();
  return Status::DataLoss(
      what + ": Received: " + received.dump() + ". Expected: " +
      (expected == specs.end() ? "nothing of that name" : expected->dump()) +
      ", as in the manifest");
}

// What a file says of its rows decides how much memory they take.
Status CheckSpecs(const std::string& path, const Json& specs,
                  const std::vector<GroupSpec>& groups) {
  for (const GroupSpec& group : groups) {
    ADAPTCP_RETURN_IF_ERROR(CheckSpec(path + ": group " + group.name,
                                      SpecOf(group), specs.at("groups"),
                                      group.name));
  }
  return Status::Ok();
}

Status CheckDense(const std::string& path, const Json& specs,
                  const DenseSlice& slice) {
  return CheckSpec(path + ": dense variable " + slice.name,
                   {{"dtype", DTypeName(slice.dtype)}, {"shape", slice.shape}},
                   specs.at("dense"), slice.name);
}

}  // namespace

Status OpenedSegment::Open(const Json& object, const Json& specs,
                           std::unique_ptr<OpenedSegment>* out) {
  const std::string path = object.value("path", "");
  SegmentExpectation expected;
  expected.bytes = object.value("bytes", uint64_t{0});
  expected.crc32c = object.value("crc32c", uint32_t{0});
  std::unique_ptr<ByteSource> source;
  ADAPTCP_RETURN_IF_ERROR(NewSource(path, &source));
  std::unique_ptr<SegmentReader> reader;
  ADAPTCP_RETURN_IF_ERROR(
      SegmentReader::Open(std::move(source), expected, &reader));
  auto opened = std::make_unique<OpenedSegment>();
  opened->header_ = reader->header();
  if (!specs.is_null()) {
    ADAPTCP_RETURN_IF_ERROR(CheckSpecs(path, specs, opened->header_.groups));
  }
  for (;;) {
    auto block = std::make_unique<SegmentBlock>();
    ADAPTCP_RETURN_IF_ERROR(reader->Next(block.get()));
    if (block->type == RecordType::kFooter) break;
    if (block->type == RecordType::kDense && !specs.is_null()) {
      ADAPTCP_RETURN_IF_ERROR(CheckDense(path, specs, block->dense.slice));
    }
    opened->blocks_.push_back(std::move(block));
  }
  const std::string kind = object.value("kind", "");
  if (kind != SegmentKindName(opened->header_.kind)) {
    return Status::DataLoss(path + ": is of kind " +
                            SegmentKindName(opened->header_.kind) +
                            ", the manifest says " + kind);
  }
  const auto rows =
      object.value("rows", std::map<std::string, uint64_t>());
  if (reader->info().rows != rows) {
    return Status::DataLoss(path + ": holds rows " +
                            Json(reader->info().rows).dump() +
                            ", the manifest says " + Json(rows).dump());
  }
  *out = std::move(opened);
  return Status::Ok();
}

std::vector<const RowBlockView*> OpenedSegment::BlocksOf(
    const std::string& group) const {
  std::vector<const RowBlockView*> found;
  for (const auto& block : blocks_) {
    if (block->type == RecordType::kRows &&
        header_.groups[block->rows.group_index()].name == group) {
      found.push_back(&block->rows);
    }
  }
  return found;
}

}  // namespace adaptcp
