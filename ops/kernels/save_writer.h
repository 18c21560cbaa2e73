// All that comes after the capture of a save or a scan: encoders, staging,
// uploads, each in threads of their own.

#ifndef ADAPTCP_OPS_KERNELS_SAVE_WRITER_H_
#define ADAPTCP_OPS_KERNELS_SAVE_WRITER_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/io/local/crew.h"
#include "ops/io/local/save_pipeline.h"
#include "ops/io/local/segment_transfer.h"
#include "ops/kernels/save_options.h"
#include "ops/kernels/segment_encoder.h"
#include "ops/kernels/tf_util.h"
#include "ops/util/pace.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

class Session;

// How long a save that has failed waits for threads that the store may hang.
constexpr std::chrono::milliseconds kWriterGrace(2000);

// Thread-safe. Whatever fails aborts the pipeline, and an aborted pipeline ends
// everything here. Threads that a store hangs are left behind; they keep the
// writer, and through it the session, until the store lets go of them.
class SaveWriter : public std::enable_shared_from_this<SaveWriter> {
 public:
  // request: see SegmentPlan. `session` owns `groups`.
  static Status Create(const Json& request, const SaveOptions& options,
                       std::shared_ptr<const Session> session,
                       const std::vector<std::unique_ptr<Group>>& groups,
                       std::shared_ptr<SavePipeline> pipeline,
                       std::shared_ptr<StagingRoom> room,
                       std::shared_ptr<RateLimit> rate,
                       std::shared_ptr<SaveWriter>* writer);

  // Begins to write what comes through the pipeline, and dense tensors: `slices`
  // as for SegmentEncoder.
  void Start(Json slices, std::vector<tensorflow::Tensor> dense);

  // Blocks until all that came before the pipeline was closed is durable in the
  // store, or the pipeline was aborted: then returns why. *objects: see
  // SegmentEncoder.
  Status Finish(Json* objects);

  // Of all who read and encode for this save.
  Pace* pace() { return pace_.get(); }

  // Once finished: {group: bytes}.
  const std::map<std::string, uint64_t>& row_bytes() const {
    return row_bytes_;
  }
  Json Stats() const;
  // Expires when no thread works, or hangs, for this save any more, be it an
  // encoder or one that syncs or uploads.
  std::weak_ptr<const void> life() const { return transfer_->life(); }

 private:
  SaveWriter() = default;
  void StartEncoder();
  // Whether one more encoder would help: rows wait, and not for the store.
  bool WantsEncoder() const;
  Status Encode(SegmentEncoder* encoder);
  // The last a thread of the crew does.
  void End(Status status, SegmentEncoder* encoder);

  std::shared_ptr<const Session> session_;
  std::shared_ptr<SavePipeline> pipeline_;
  std::unique_ptr<SegmentTransfer> transfer_;
  std::unique_ptr<SegmentPlan> plan_;
  int most_encoders_ = 1;
  std::unique_ptr<Pace> pace_;
  std::atomic<int> encoders_{0};  // started
  Crew crew_;

  std::mutex mu_;  // a leaf; guards what follows
  Json objects_ = Json::array();
  std::map<std::string, uint64_t> row_bytes_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_SAVE_WRITER_H_
