// The saves and scans of a Session: from its rows to segments in the store.

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ops/kernels/save_options.h"
#include "ops/kernels/save_writer.h"
#include "ops/kernels/session.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

using Clock = std::chrono::steady_clock;

// A save and a scan that go on, and those before that a store hangs: each of
// them keeps threads, and dense values, blocks of rows or open files.
constexpr size_t kMostWriters = 6;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void Session::Drain(Seq sequence, SavePipeline* pipeline, Pace* pace,
                    int most_threads) {
  std::mutex mu;
  std::vector<std::thread> helpers;
  std::function<void()> drain;
  const auto help = [&] {
    std::lock_guard<std::mutex> lock(mu);
    if (static_cast<int>(helpers.size()) + 1 >= most_threads) return;
    try {
      helpers.emplace_back(drain);
    } catch (const std::system_error&) {
      // It takes longer without.
    }
  };
  drain = [&] {
    TableContext context;
    Pace::Meter meter(pace, TimesOfThisThread(), uses());
    for (const auto& group : groups_) {
      for (bool done = false; !done;) {
        // A failure has aborted the pipeline, which says why.
        for (const auto& any : groups_) {
          if (!any->CaptureHurried(context.get(), sequence, pipeline).ok()) {
            return;
          }
        }
        if (!group->CaptureNext(context.get(), sequence, pipeline, &done).ok()) {
          return;
        }
        pipeline->Rest(meter.Due(TimesOfThisThread(), uses()));
        if (!done && pipeline->is_starved()) help();
      }
    }
  };
  drain();
  for (size_t i = 0;; ++i) {
    std::thread next;
    {
      std::lock_guard<std::mutex> lock(mu);
      if (i == helpers.size()) break;
      next = std::move(helpers[i]);
    }
    next.join();
  }
}

uint64_t Session::CutBytes() const {
  uint64_t bytes = 0;
  for (const auto& group : groups_) bytes += group->CutBytes();
  return bytes;
}

Status Session::Save(const Json& request, const std::vector<tf::Tensor>& dense,
                     Json* reply) {
  const auto start = Clock::now();
  const Seq sequence = request.value("sequence", Seq{0});
  std::shared_ptr<SavePipeline> pipeline;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (sequence == 0 || pending_ != sequence || saving_ != 0) {
      return Status::FailedPrecondition(
          "asked to save checkpoint " + std::to_string(sequence) +
          ". Pending: " +
          (pending_ == 0 ? "none" : std::to_string(pending_)) +
          ". Being saved: " +
          (saving_ == 0 ? "none" : std::to_string(saving_)));
    }
    pipeline = pipeline_;
    saving_ = sequence;
  }
  // Whatever fails from here on aborts the pipeline: updates would go on filling
  // it, and nobody empties it. All that may throw comes before there are threads.
  SaveOptions options;
  Json slices;
  std::shared_ptr<SaveWriter> writer;
  Json objects;
  double drained_after = 0;
  Status status = CatchingJson([&]() -> Status {
    uint64_t bytes = CutBytes();
    for (const tf::Tensor& tensor : dense) bytes += tensor.TotalBytes();
    ADAPTCP_RETURN_IF_ERROR(ParseSaveOptions(request, bytes, &options));
    if (request.contains("rest_ms")) {
      options.rest_until =
          start + std::chrono::milliseconds(request["rest_ms"].get<int64_t>());
    }
    slices = request.value("dense", Json::array());
    return MakeWriter(request, options, pipeline, &writer);
  });
  if (status.ok()) {
    writer->Start(std::move(slices), dense);
    Drain(sequence, pipeline.get(), writer->pace(), options.writer_threads);
    pipeline->CloseWhenIdle();
    StopHurrying(sequence);
    drained_after = SecondsSince(start);
    for (const auto& group : groups_) {
      const Status captured = group->CheckCaptured(sequence);
      if (!captured.ok()) pipeline->Abort(captured);
    }
    status = writer->Finish(&objects);
    // Resolve(false) may have aborted it meanwhile.
    if (status.ok()) status = pipeline->status();
  }
  if (!status.ok()) pipeline->Abort(status);
  {
    std::lock_guard<std::mutex> lock(mu_);
    saving_ = 0;
  }
  saved_.notify_all();
  ADAPTCP_RETURN_IF_ERROR(status);
  const CaptureCounters& counters = pipeline->counters();
  Json stats = writer->Stats();
  stats.update({{"rows_by_drain", counters.rows_by_drain.load()},
                {"rows_by_lookup", counters.rows_by_lookup.load()},
                {"rows_by_update", counters.rows_by_update.load()},
                {"updates_delayed", counters.updates_delayed.load()},
                {"update_wait_seconds", counters.update_wait_ns.load() * 1e-9},
                {"capture_wait_seconds", counters.drain_wait_ns.load() * 1e-9},
                {"capture_peak_bytes", pipeline->peak_bytes()},
                {"rest_seconds", counters.rest_ns.load() * 1e-9},
                {"drain_seconds", drained_after},
                {"save_seconds", SecondsSince(start)}});
  *reply = {{"objects", objects},
            {"row_bytes", writer->row_bytes()},
            {"stats", stats}};
  return Status::Ok();
}

Status Session::MakeWriter(const Json& request, const SaveOptions& options,
                           const std::shared_ptr<SavePipeline>& pipeline,
                           std::shared_ptr<SaveWriter>* writer) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    writers_.erase(
        std::remove_if(writers_.begin(), writers_.end(),
                       [](const auto& life) { return life.expired(); }),
        writers_.end());
    if (writers_.size() >= kMostWriters) {
      return Status::Unavailable(
          "what " + std::to_string(writers_.size()) +
          " earlier saves and scans were writing hangs in " +
          request.value("root", "the store") + " still");
    }
  }
  ADAPTCP_RETURN_IF_ERROR(SaveWriter::Create(request, options,
                                             shared_from_this(), groups_,
                                             pipeline, room_, rate_, writer));
  std::lock_guard<std::mutex> lock(mu_);
  writers_.push_back((*writer)->life());
  return Status::Ok();
}

void Session::WaitCaptured(Seq sequence) const {
  std::shared_ptr<SavePipeline> pipeline;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (pending_ == sequence) pipeline = pipeline_;
  }
  if (pipeline != nullptr) pipeline->WaitClosed();
}

void Session::VoidScans() {
  decltype(scans_) running;
  {
    std::lock_guard<std::mutex> lock(mu_);
    running = scans_;
  }
  for (const auto& pipeline : running) {
    pipeline->Abort(Status::Cancelled("the scan of a base was given up"));
  }
}

Status Session::ScanGroups(tf::OpKernelContext* ctx, Seq start,
                           SavePipeline* pipeline, Pace* pace) {
  ADAPTCP_RETURN_IF_ERROR(pipeline->status());  // given up before it began
  Pace::Meter meter(pace, TimesOfThisThread(), uses());
  for (const auto& group : groups_) {
    // Rows of interval `start` may still be written otherwise.
    if (start == 0 || group->current_sequence() <= start) {
      return Status::FailedPrecondition(
          "a base can't start at cut " + std::to_string(start) +
          ", which was not taken here: writes belong to interval " +
          std::to_string(group->current_sequence()));
    }
    ScanCursor cursor;
    for (;;) {
      std::unique_ptr<CapturedBatch> batch;
      ADAPTCP_RETURN_IF_ERROR(group->ScanNext(ctx, start, &cursor, &batch));
      if (batch == nullptr) break;
      batch->reserved =
          batch->rows() * group->row_bytes() + batch->string_bytes();
      ADAPTCP_RETURN_IF_ERROR(
          pipeline->Reserve(batch->reserved, CaptureSource::kDrain));
      pipeline->Push(std::move(batch), CaptureSource::kDrain);
      pipeline->Rest(meter.Due(TimesOfThisThread(), uses()));
    }
  }
  return Status::Ok();
}

Status Session::Scan(tf::OpKernelContext* ctx, const Json& request,
                     Json* reply) {
  const Seq start = request.value("start", Seq{0});
  SaveOptions options;
  ParseCaptureOptions(request, &options);
  const auto pipeline = std::make_shared<SavePipeline>(
      options.capture_memory_bytes, options.update_wait);
  {
    // From here on it can be given up.
    std::lock_guard<std::mutex> lock(mu_);
    scans_.insert(pipeline);
  }
  Json objects;
  const Status status = CatchingJson([&]() -> Status {
    uint64_t bytes = 0;
    for (const auto& group : groups_) bytes += group->TotalBytes();
    ADAPTCP_RETURN_IF_ERROR(ParseSaveOptions(request, bytes, &options));
    std::shared_ptr<SaveWriter> writer;
    ADAPTCP_RETURN_IF_ERROR(MakeWriter(request, options, pipeline, &writer));
    writer->Start(Json::array(), {});
    const Status read = ScanGroups(ctx, start, pipeline.get(), writer->pace());
    if (!read.ok()) pipeline->Abort(read);
    pipeline->CloseWhenIdle();
    ADAPTCP_RETURN_IF_ERROR(writer->Finish(&objects));
    // The last rows may have been read from a table that was being emptied.
    return pipeline->status();
  });
  {
    std::lock_guard<std::mutex> lock(mu_);
    scans_.erase(pipeline);
  }
  ADAPTCP_RETURN_IF_ERROR(status);
  *reply = {{"objects", objects}};
  return Status::Ok();
}

}  // namespace adaptcp
