#include "ops/kernels/segment_source.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "ops/io/local/retry.h"
#include "ops/io/store.h"

namespace adaptcp {
namespace {

// A request for so much is worth its latency, and done within the time that
// stores allow for one, also when several share a slow line.
constexpr uint64_t kRangeBytes = 4 << 20;
// Larger objects than these are not held in ranges, whatever a manifest says.
constexpr uint64_t kMostRanges = 1 << 18;
// Of an answer that is shorter than the object is long.
constexpr int kShortReads = 4;
// A store allows each connection but a part of what it has.
constexpr int kRemoteThreads = 16;
constexpr uint64_t kLeastMemory = 32 << 20;
constexpr uint64_t kMostMemory = 1 << 30;

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
                           std::unique_ptr<ByteSource> source,
                           std::unique_ptr<OpenedSegment>* out) {
  const std::string path = object.value("path", "");
  SegmentExpectation expected;
  expected.bytes = object.value("bytes", uint64_t{0});
  expected.crc32c = object.value("crc32c", uint32_t{0});
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

// --- SegmentObject

SegmentObject::SegmentObject(Json object,
                             std::shared_ptr<const ReadRequest> request)
    : object_(std::move(object)),
      request_(std::move(request)),
      path_(object_.value("path", "")),
      bytes_(object_.value("bytes", uint64_t{0})) {
  std::string local;
  // One range more than what is read ahead: what is not more than that is read
  // ahead by each of them.
  range_bytes_ = std::max(kRangeBytes, ReadAheadBytes(path_) + 1);
  if (bytes_ > 0 && bytes_ / range_bytes_ < kMostRanges &&
      !IsLocalPath(path_, &local)) {
    ranges_ = std::make_unique<RangeBuffer>(path_, bytes_, range_bytes_);
  }
}

uint64_t SegmentObject::memory_bytes() const {
  // While it is parsed a range is there twice.
  return bytes_ + (ranges_ == nullptr ? 0 : std::min(bytes_, range_bytes_));
}

uint64_t SegmentObject::part_bytes(size_t part) const {
  return ranges_ == nullptr ? bytes_ : ranges_->range_size(part);
}

Status SegmentObject::Read(size_t part, const StopFlag& stop) {
  if (ranges_ == nullptr) {
    std::unique_ptr<ByteSource> source;
    ADAPTCP_RETURN_IF_ERROR(NewSource(path_, &source));
    return Parse(std::move(source));
  }
  RetryLimits limits;
  limits.deadline = std::chrono::steady_clock::now() + request_->patience;
  int short_reads = 0;
  return Retry(limits, &stop, [&](int) {
    const Status status = ReadRange(part);
    if (status.code() == Status::Code::kDataLoss &&
        ++short_reads < kShortReads) {
      return Status::Unavailable(status.message());
    }
    return status;
  });
}

Status SegmentObject::ReadRange(size_t part) const {
  if (part == 0) {
    uint64_t size = 0;
    ADAPTCP_RETURN_IF_ERROR(ObjectSize(path_, &size));
    if (size != bytes_) {
      return Status::DataLoss(path_ + ": wrong file size. Received: " +
                              std::to_string(size) + " bytes. Expected: " +
                              std::to_string(bytes_));
    }
  }
  // Each range by a file of its own: some file systems read one file by one
  // thread at a time.
  std::unique_ptr<ByteSource> source;
  ADAPTCP_RETURN_IF_ERROR(NewSource(path_, bytes_, &source));
  return ranges_->Fill(part, *source);
}

Status SegmentObject::Parse(std::unique_ptr<ByteSource> source) {
  // On a thread of its own, which nothing that is thrown may leave.
  return CatchingJson([&] {
    return OpenedSegment::Open(object_, request_->specs, std::move(source),
                               &segment_);
  });
}

Status SegmentObject::Finish(size_t* pieces) {
  if (ranges_ != nullptr) {
    ADAPTCP_RETURN_IF_ERROR(Parse(std::move(ranges_)));
  }
  *pieces = 1;
  if (!request_->by_rows) return Status::Ok();
  const auto& groups = request_->groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    size_t bytes = 0;
    for (const auto& block : segment_->blocks()) {
      if (block->type != RecordType::kRows ||
          spec(block->rows).name != groups[g]) {
        continue;
      }
      const size_t more =
          std::max<size_t>(block->buffer.size(),
                           block->rows.rows() * spec(block->rows).row_bytes());
      if (rows_.empty() || rows_.back().group != g ||
          bytes + more > request_->piece_bytes) {
        rows_.push_back({g, {}});
        bytes = 0;
      }
      rows_.back().blocks.push_back(&block->rows);
      bytes += more;
    }
  }
  *pieces = rows_.size();
  return Status::Ok();
}

// --- Reading

namespace {

ReadersOptions ReadersOptionsOf(
    const Json& limits, const std::vector<ObjectReaders::Level>& levels) {
  uint64_t largest = 0;
  bool remote = false;
  for (const auto& level : levels) {
    for (const auto& object : level) {
      largest = std::max(largest, object->memory_bytes());
      std::string local;
      remote = remote || !IsLocalPath(object->name(), &local);
    }
  }
  ReadersOptions options;
  options.threads = limits.value("threads", 0);
  options.max_threads =
      remote ? kRemoteThreads
             : std::clamp<int>(std::thread::hardware_concurrency(), 2, 8);
  options.memory_bytes = limits.value("memory_bytes", uint64_t{0});
  if (options.memory_bytes == 0) {
    // One is read while one is applied; from afar, several.
    options.memory_bytes =
        std::clamp(std::min(largest, kMostMemory) * (remote ? 8 : 2),
                   kLeastMemory, kMostMemory);
  }
  const auto timeout = limits.value("timeout_ms", int64_t{0});
  if (timeout > 0) {
    options.deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
    // Hosts wait for the slowest of them at the end of a level, however long.
    options.idle = std::chrono::milliseconds(timeout);
  }
  return options;
}

std::shared_ptr<const ReadRequest> Complete(const Json& request,
                                            ReadRequest read) {
  read.specs = request.value("specs", Json());
  const Json limits = request.value("limits", Json::object());
  const auto patience = limits.value("patience_ms", int64_t{0});
  if (patience > 0) read.patience = std::chrono::milliseconds(patience);
  return std::make_shared<ReadRequest>(std::move(read));
}

std::shared_ptr<ObjectReaders> Start(const Json& request,
                                     std::vector<ObjectReaders::Level> levels) {
  const ReadersOptions options =
      ReadersOptionsOf(request.value("limits", Json::object()), levels);
  return std::make_shared<ObjectReaders>(std::move(levels), options);
}

}  // namespace

std::shared_ptr<ObjectReaders> StartReaders(const Json& request,
                                            const Json& levels,
                                            ReadRequest read) {
  const auto complete = Complete(request, std::move(read));
  std::vector<ObjectReaders::Level> objects;
  for (const Json& level : levels) {
    objects.emplace_back();
    for (const Json& object : level.value("objects", Json::array())) {
      objects.back().push_back(
          std::make_shared<SegmentObject>(object, complete));
    }
  }
  return Start(request, std::move(objects));
}

Status ReadSegment(const Json& request, std::shared_ptr<SegmentObject>* out) {
  *out = std::make_shared<SegmentObject>(
      request.value("object", Json::object()), Complete(request, {}));
  const auto readers = Start(request, {{*out}});
  ObjectReaders::Piece piece;
  return readers->Next(0, &piece);
}

}  // namespace adaptcp
