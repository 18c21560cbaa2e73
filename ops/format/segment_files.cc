#include "ops/format/segment_files.h"

#include <cstdio>
#include <utility>

namespace adaptcp {

SegmentFiles::SegmentFiles(SegmentHeader header, std::string prefix,
                           uint64_t segment_bytes, OpenSink open)
    : header_(std::move(header)),
      prefix_(std::move(prefix)),
      segment_bytes_(segment_bytes),
      open_(std::move(open)) {}

Status SegmentFiles::Append(const EncodedBlock& block) {
  if (!status_.ok()) return status_;
  const uint64_t size = SegmentWriter::FramedSize(block.record.size());
  if (current_ != nullptr && current_->blocks() > 0 &&
      current_->bytes() + size > segment_bytes_) {
    status_ = FinishCurrent();
    if (!status_.ok()) return status_;
  }
  if (current_ == nullptr) {
    char number[16];
    std::snprintf(number, sizeof(number), "-%05zu", finished_.size());
    current_path_ = prefix_ + number + ".seg";
    std::unique_ptr<ByteSink> sink;
    status_ = open_(current_path_, &sink);
    if (!status_.ok()) return status_;
    status_ = SegmentWriter::Create(std::move(sink), header_, &current_);
    if (!status_.ok()) return status_;
  }
  status_ = current_->Append(block);
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
  if (!status_.ok()) return status_;
  if (current_ != nullptr) {
    status_ = FinishCurrent();
    if (!status_.ok()) return status_;
  }
  *infos = finished_;
  status_ = Status::FailedPrecondition(prefix_ + ": already finished");
  return Status::Ok();
}

uint64_t SegmentFiles::bytes() const {
  uint64_t total = current_ == nullptr ? 0 : current_->bytes();
  for (const SegmentInfo& info : finished_) total += info.bytes;
  return total;
}

}  // namespace adaptcp
