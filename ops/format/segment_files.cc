#include "ops/format/segment_files.h"

#include <utility>

namespace adaptcp {

SegmentFiles::SegmentFiles(SegmentHeader header, uint64_t segment_bytes,
                           NextPath next_path, OpenSink open)
    : header_(std::move(header)),
      segment_bytes_(segment_bytes),
      next_path_(std::move(next_path)),
      open_(std::move(open)) {}

Status SegmentFiles::Append(const EncodedBlock& block) {
  if (!status_.ok()) return status_;
  const uint64_t size = SegmentWriter::FramedSize(block.record.size());
  if (current_ != nullptr && current_->blocks() > 0 &&
      current_->bytes() + size > segment_bytes_) {
    ADAPTCP_RETURN_IF_ERROR(Seal());
  }
  if (current_ == nullptr) {
    current_path_ = next_path_();
    std::unique_ptr<ByteSink> sink;
    status_ = open_(current_path_, &sink);
    if (!status_.ok()) return status_;
    status_ = SegmentWriter::Create(std::move(sink), header_, &current_);
    if (!status_.ok()) return status_;
  }
  status_ = current_->Append(block);
  return status_;
}

Status SegmentFiles::Seal() {
  if (status_.ok() && current_ != nullptr) status_ = FinishCurrent();
  return status_;
}

Status SegmentFiles::FinishCurrent() {
  SegmentInfo info;
  ADAPTCP_RETURN_IF_ERROR(current_->Finish(&info));
  info.path = current_path_;
  current_.reset();
  finished_.push_back(std::move(info));
  return Status::Ok();
}

Status SegmentFiles::Finish(std::vector<SegmentInfo>* infos) {
  ADAPTCP_RETURN_IF_ERROR(Seal());
  *infos = finished_;
  status_ = Status::FailedPrecondition("segments are finished already");
  return Status::Ok();
}

}  // namespace adaptcp
