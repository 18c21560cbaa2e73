// What a session knows of restores: which one may write rows, and what reads
// for it.

#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/row_stream.h"
#include "ops/kernels/session.h"

namespace adaptcp {

Status Session::CheckRestore(uint64_t number, const char* what) const {
  const uint64_t begun = restore_.load();
  if (number == begun) return Status::Ok();
  return Status::FailedPrecondition(
      std::string(what) + " of restore " + std::to_string(number) +
      " came too late: restore " + std::to_string(begun) + " has begun");
}

Status Session::CheckTable(uint64_t number, const char* what,
                           const tensorflow::lookup::LookupInterface* table,
                           Group** group) const {
  ADAPTCP_RETURN_IF_ERROR(CheckRestore(number, what));
  const Registry::Entry* entry = Registry::Get().Find(table);
  if (entry == nullptr || entry->session.get() != this) {
    return Status::FailedPrecondition(
        std::string(what) + " of restore " + std::to_string(number) +
        " came too late: a newer manager took the table over");
  }
  *group = entry->group;
  return Status::Ok();
}

Status Session::BeginRestore(uint64_t number) {
  std::vector<std::shared_ptr<ObjectReaders>> reading;
  std::shared_ptr<RowStream> stream;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (number < restore_.load()) {
      return Status::FailedPrecondition(
          "restore " + std::to_string(number) + " began too late: restore " +
          std::to_string(restore_.load()) + " has begun");
    }
    restore_.store(number);
    reading.swap(reading_);
    stream.swap(stream_);
  }
  VoidScans();
  for (const auto& readers : reading) {
    readers->Stop(Status::Cancelled("restore " + std::to_string(number) +
                                    " has begun"));
  }
  return Status::Ok();
}

Status Session::StartReading(uint64_t number,
                             std::shared_ptr<ObjectReaders> readers,
                             std::shared_ptr<RowStream> stream) {
  std::lock_guard<std::mutex> lock(mu_);
  ADAPTCP_RETURN_IF_ERROR(CheckRestore(number, "objects"));
  if (number != 0 && number == stopped_) {
    return Status::Cancelled("restore " + std::to_string(number) +
                             " was given up before it read");
  }
  reading_.push_back(std::move(readers));
  if (stream != nullptr) stream_ = std::move(stream);
  return Status::Ok();
}

void Session::StopReading(uint64_t number, const Status& why) {
  std::vector<std::shared_ptr<ObjectReaders>> reading;
  std::shared_ptr<RowStream> stream;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (number != 0 && number != restore_.load()) return;
    stopped_ = restore_.load();
    reading = reading_;
    stream.swap(stream_);
  }
  for (const auto& readers : reading) readers->Stop(why);
}

Status Session::FindStream(uint64_t number,
                           std::shared_ptr<RowStream>* stream) const {
  std::lock_guard<std::mutex> lock(mu_);
  ADAPTCP_RETURN_IF_ERROR(CheckRestore(number, "rows"));
  if (stream_ == nullptr) {
    return Status::FailedPrecondition("restore " + std::to_string(number) +
                                      " has no stream of rows here");
  }
  *stream = stream_;
  return Status::Ok();
}

Status Session::RestoreRows(tensorflow::OpKernelContext* ctx, Group* group,
                            const RestoredRows& rows,
                            const RestoreLevel& level) const {
  const GateScope inside(&Registry::Get().gate());
  Group* there = nullptr;
  ADAPTCP_RETURN_IF_ERROR(CheckTable(level.restore, "rows",
                                     group->tables()[0].get(), &there));
  return group->RestoreRows(ctx, rows, level);
}

Json Session::RestoreProgress() const {
  std::vector<std::shared_ptr<ObjectReaders>> reading;
  {
    std::lock_guard<std::mutex> lock(mu_);
    reading = reading_;
  }
  // They read one after another: rows, then dense variables.
  ReadersStats all;
  for (const auto& readers : reading) {
    const ReadersStats stats = readers->stats();
    all.bytes_read += stats.bytes_read;
    all.peak_bytes = std::max(all.peak_bytes, stats.peak_bytes);
    all.threads = std::max(all.threads, stats.threads);
  }
  uint64_t rows = 0;
  for (const auto& group : groups_) rows += group->received();
  return {{"bytes", all.bytes_read},
          {"rows", rows},
          {"peak_bytes", all.peak_bytes},
          {"threads", all.threads}};
}

}  // namespace adaptcp
