#include "ops/format/segment_writer.h"

#include "ops/format/crc32c.h"
#include "ops/format/wire.h"

namespace adaptcp {

SegmentWriter::SegmentWriter(std::unique_ptr<ByteSink> sink,
                             const SegmentHeader& header)
    : sink_(std::move(sink)), header_(header) {
  footer_.groups.resize(header.groups.size());
}

Status SegmentWriter::Create(std::unique_ptr<ByteSink> sink,
                             const SegmentHeader& header,
                             std::unique_ptr<SegmentWriter>* writer) {
  std::string record;
  ADAPTCP_RETURN_IF_ERROR(EncodeHeader(header, &record));
  std::unique_ptr<SegmentWriter> created(
      new SegmentWriter(std::move(sink), header));
  ADAPTCP_RETURN_IF_ERROR(created->AppendRecord(record, Crc32c(record)));
  *writer = std::move(created);
  return Status::Ok();
}

Status SegmentWriter::AppendBytes(std::string_view data) {
  status_ = sink_->Append(data);
  if (!status_.ok()) return status_;
  crc_ = ExtendCrc32c(crc_, data.data(), data.size());
  bytes_ += data.size();
  return Status::Ok();
}

Status SegmentWriter::AppendRecord(std::string_view record,
                                   uint32_t record_crc) {
  std::string head;
  wire::Put(static_cast<uint64_t>(record.size()), &head);
  wire::Put(MaskCrc(Crc32c(head)), &head);
  std::string tail;
  wire::Put(MaskCrc(record_crc), &tail);
  ADAPTCP_RETURN_IF_ERROR(AppendBytes(head));
  ADAPTCP_RETURN_IF_ERROR(AppendBytes(record));
  return AppendBytes(tail);
}

DenseCounts* SegmentWriter::DenseEntry(const std::string& name) {
  const auto [it, added] = dense_index_.emplace(name, footer_.dense.size());
  if (added) {
    footer_.dense.emplace_back();
    footer_.dense.back().name = name;
  }
  return &footer_.dense[it->second];
}

Status SegmentWriter::Append(const EncodedBlock& block) {
  if (!status_.ok()) return status_;
  if (finished_) {
    return Status::FailedPrecondition(sink_->name() +
                                      ": a block after the footer");
  }
  const bool is_rows = block.type == RecordType::kRows;
  if (!is_rows && block.type != RecordType::kDense) {
    return Status::InvalidArgument(sink_->name() + ": not a block");
  }
  if (is_rows && block.group_index >= header_.groups.size()) {
    return Status::InvalidArgument(
        sink_->name() + ": no such group. Received: index " +
        std::to_string(block.group_index) + ". Expected: below " +
        std::to_string(header_.groups.size()));
  }
  ADAPTCP_RETURN_IF_ERROR(AppendRecord(block.record, block.record_crc));
  ++blocks_;
  if (is_rows) {
    GroupCounts& counts = footer_.groups[block.group_index];
    counts.rows += block.rows;
    counts.tombstones += block.tombstones;
    ++counts.blocks;
  } else {
    DenseCounts* counts = DenseEntry(block.dense_name);
    counts->elements += block.elements;
    ++counts->blocks;
  }
  return Status::Ok();
}

Status SegmentWriter::Finish(SegmentInfo* info) {
  if (!status_.ok()) return status_;
  if (finished_) {
    return Status::FailedPrecondition(sink_->name() + ": finished twice");
  }
  finished_ = true;
  std::string record;
  status_ = EncodeFooter(header_, footer_, &record);
  if (!status_.ok()) return status_;
  ADAPTCP_RETURN_IF_ERROR(AppendRecord(record, Crc32c(record)));
  status_ = sink_->SyncAndClose();
  if (!status_.ok()) return status_;
  *info = MakeSegmentInfo(sink_->name(), bytes_, crc_, header_, footer_);
  return Status::Ok();
}

SegmentInfo MakeSegmentInfo(const std::string& path, uint64_t bytes,
                            uint32_t crc32c, const SegmentHeader& header,
                            const SegmentFooter& footer) {
  SegmentInfo info;
  info.path = path;
  info.bytes = bytes;
  info.crc32c = crc32c;
  for (size_t i = 0; i < header.groups.size(); ++i) {
    if (footer.groups[i].rows == 0) continue;
    const std::string& name = header.groups[i].name;
    info.rows[name] += footer.groups[i].rows;
    info.tombstones[name] += footer.groups[i].tombstones;
  }
  info.dense = footer.dense;
  return info;
}

}  // namespace adaptcp
