#include "ops/kernels/save_writer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "ops/io/store.h"
#include "ops/kernels/session.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// Checkpoints of a hundred thousand rows are over sooner than that.
constexpr std::chrono::milliseconds kFreeCpu(100);
// What a long save takes of a machine that others want to use, too.
constexpr double kMachineShare = 0.07;

}  // namespace

Status SaveWriter::Create(const Json& request, const SaveOptions& options,
                          std::shared_ptr<const Session> session,
                          const std::vector<std::unique_ptr<Group>>& groups,
                          std::shared_ptr<SavePipeline> pipeline,
                          std::shared_ptr<StagingRoom> room,
                          std::shared_ptr<RateLimit> rate,
                          std::shared_ptr<SaveWriter>* writer) {
  std::shared_ptr<SaveWriter> made(new SaveWriter());
  made->session_ = std::move(session);
  made->pipeline_ = pipeline;
  made->most_encoders_ = options.encoders;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  made->pace_ = std::make_unique<Pace>(kMachineShare * cores, kFreeCpu,
                                       options.rest_until.time_since_epoch());
  room->SetLimit(options.buffer_bytes);
  rate->SetRate(options.upload_bytes_per_second);
  TransferOptions transfer;
  transfer.direct = options.direct;
  transfer.buffer = options.buffer;
  transfer.upload_threads = options.upload_threads;
  transfer.retry_for = options.retry_for;
  made->transfer_ = std::make_unique<SegmentTransfer>(
      std::move(transfer), NewSink, std::move(room), std::move(rate),
      std::shared_ptr<const StopFlag>(pipeline, &pipeline->stop()),
      [pipeline](const Status& why) { pipeline->Abort(why); });
  ADAPTCP_RETURN_IF_ERROR(SegmentPlan::Create(
      request, options, groups, made->transfer_.get(), &made->plan_));
  *writer = std::move(made);
  return Status::Ok();
}

void SaveWriter::Start(Json slices, std::vector<tf::Tensor> dense) {
  StartEncoder();
  if (dense.empty()) return;
  const bool started = crew_.Start([self = shared_from_this(),
                                    slices = std::move(slices),
                                    dense = std::move(dense)] {
    SegmentEncoder encoder(self->plan_.get());
    self->End(CatchingJson([&] { return encoder.AddDense(slices, dense); }),
              &encoder);
  });
  if (!started) pipeline_->Abort(Status::ResourceExhausted("no more threads"));
}

void SaveWriter::StartEncoder() {
  int others = encoders_;
  do {
    if (others >= most_encoders_) return;  // another one was faster
  } while (!encoders_.compare_exchange_weak(others, others + 1));
  const bool started = crew_.Start([self = shared_from_this()] {
    SegmentEncoder encoder(self->plan_.get());
    self->End(self->Encode(&encoder), &encoder);
  });
  if (started) return;
  --encoders_;
  if (others == 0) {
    pipeline_->Abort(Status::ResourceExhausted("no more threads"));
  }
}

bool SaveWriter::WantsEncoder() const {
  return encoders_ < most_encoders_ && pipeline_->is_crowded() &&
         !transfer_->IsFull();
}

Status SaveWriter::Encode(SegmentEncoder* encoder) {
  Pace::Meter meter(pace_.get(), TimesOfThisThread(), session_->uses());
  std::unique_ptr<CapturedBatch> batch;
  while (pipeline_->Pop(&batch, [&] {
    const Status status = encoder->MakeRoom();
    if (!status.ok()) pipeline_->Abort(status);
  })) {
    if (WantsEncoder()) StartEncoder();
    const Status status = encoder->Add(*batch);
    pipeline_->Release(batch->reserved);
    batch.reset();
    ADAPTCP_RETURN_IF_ERROR(status);
    pipeline_->Rest(meter.Due(TimesOfThisThread(), session_->uses()));
  }
  return pipeline_->status();
}

void SaveWriter::End(Status status, SegmentEncoder* encoder) {
  Json objects = Json::array();
  if (status.ok()) status = encoder->Finish(&objects);
  if (!status.ok()) return pipeline_->Abort(status);
  std::lock_guard<std::mutex> lock(mu_);
  objects_.insert(objects_.end(), objects.begin(), objects.end());
  for (const auto& [group, bytes] : encoder->row_bytes()) {
    row_bytes_[group] += bytes;
  }
}

Status SaveWriter::Finish(Json* objects) {
  constexpr std::chrono::milliseconds kLook(20);
  while (!crew_.JoinFor(kLook)) {
    if (pipeline_->status().ok()) continue;
    (void)crew_.JoinFor(kWriterGrace);
    break;
  }
  std::map<std::string, std::string> names;
  const Status transferred = transfer_->Finish(kWriterGrace, &names);
  if (!transferred.ok() || !pipeline_->status().ok()) {
    // A mount may hang even who closes a file: he keeps the writer, as others do.
    Crew closing;
    (void)closing.Start([self = shared_from_this()] { self->transfer_->Drop(); });
    (void)closing.JoinFor(kWriterGrace);
  }
  // The first reason, of whatever stage.
  ADAPTCP_RETURN_IF_ERROR(pipeline_->status());
  ADAPTCP_RETURN_IF_ERROR(transferred);
  std::lock_guard<std::mutex> lock(mu_);
  for (Json& object : objects_) {
    object["path"] = names.at(object["path"].get<std::string>());
  }
  *objects = std::move(objects_);
  return Status::Ok();
}

Json SaveWriter::Stats() const {
  const TransferStats stats = transfer_->stats();
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  return {{"encoder_threads", encoders_.load()},
          {"upload_threads", stats.upload_threads},
          {"uploads", stats.uploads},
          {"upload_retries", stats.retries},
          {"staged_peak_bytes", stats.staged_peak_bytes},
          {"staging_wait_seconds", seconds(stats.room_wait)},
          {"buffered_seconds", seconds(stats.buffered_after)}};
}

}  // namespace adaptcp
