// One shard of a group: an embedding variable's table with those of its
// optimizer slots, and the tracker they share.

#ifndef ADAPTCP_OPS_KERNELS_GROUP_H_
#define ADAPTCP_OPS_KERNELS_GROUP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/format/segment_header.h"
#include "ops/io/local/save_pipeline.h"
#include "ops/kernels/restored_rows.h"
#include "ops/kernels/tf_util.h"
#include "ops/tracker/group_tracker.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

// Which level rows come from.
struct RestoreLevel {
  Seq head = 0;                    // the checkpoint being restored
  Seq written = 0;                 // the one that wrote these rows
  bool from_differential = false;
  uint64_t restore = 0;            // the number its session was told
};

class Group {
 public:
  using Tables = std::vector<tensorflow::core::RefCountPtr<
      tensorflow::lookup::LookupInterface>>;

  // `tables`: parameter first, then slots, in the order of spec.tables. The
  // group holds a reference to each for life, so that no other table can come
  // to have its address. Fails if key or value types do not fit the spec, or
  // the options make no sense.
  static Status Make(GroupSpec spec, uint32_t index, Tables tables,
                     const TrackerOptions& options,
                     std::unique_ptr<Group>* group);

  virtual ~Group() = default;

  const GroupSpec& spec() const { return spec_; }
  const Tables& tables() const { return tables_; }

  // Inside the gate, shared or closed: an op is about to write to a table.
  void CountWrite() { writes_.fetch_add(1, std::memory_order_relaxed); }

  // Writers, inside the gate, before they write `keys` to any table: captures
  // the rows that the pending cut still needs (`pipeline` may be null when
  // none is pending), then marks the keys. If a row could not be captured the
  // pipeline is aborted, and training goes on.
  virtual void BeforeWrite(tensorflow::OpKernelContext* ctx,
                             const tensorflow::Tensor& keys,
                             SavePipeline* pipeline) = 0;

  // Those of `keys` that a removal has to be announced for: the others have no
  // row in any table.
  virtual tensorflow::Tensor KeysWithEntries(
      const tensorflow::Tensor& keys) const = 0;

  // Before an op that changes a table as a whole, gate closed: captures all that
  // the pending cut still needs. It waits, for a bounded time, for room in
  // `pipeline` (null: none is pending); what can't be captured aborts it.
  virtual void BeforeReplace(tensorflow::OpKernelContext* ctx,
                             SavePipeline* pipeline) = 0;
  // After it, still closed: every row is unsaved, those of `keys` too, which
  // name at least all the rows that are new.
  virtual void AfterReplace(const tensorflow::Tensor& keys) = 0;
  // Gate closed. Whether the next checkpoint has to be a base for that reason.
  virtual bool NeedsBase() const = 0;

  // Lookups, inside the gate: those of `keys` that the pending cut still needs
  // are captured next, as they are likely to be written soon. Never waits, and
  // promises nothing: what is hurried beyond a bound is left to the drain.
  virtual void Hurry(const tensorflow::Tensor& keys) = 0;
  // Lookups in the parameter, inside the gate: counted if the estimator is of
  // accesses.
  virtual void RecordAccesses(const tensorflow::Tensor& keys) = 0;

  // Drain, any thread. CaptureHurried captures what was hurried, if anything;
  // CaptureNext the next rows of a cut, *done when none is left.
  virtual Status CaptureHurried(tensorflow::OpKernelContext* ctx, Seq cut,
                                SavePipeline* pipeline) = 0;
  virtual Status CaptureNext(tensorflow::OpKernelContext* ctx, Seq cut,
                             SavePipeline* pipeline, bool* done) = 0;

  // One thread per cursor: reads the next rows of a base that starts at cut
  // `start` and has no cut of its own; null at the end. No gate.
  virtual Status ScanNext(tensorflow::OpKernelContext* ctx, Seq start,
                          ScanCursor* cursor,
                          std::unique_ptr<CapturedBatch>* batch) = 0;
  virtual Seq current_sequence() const = 0;
  // About what a captured row takes in memory.
  virtual size_t row_bytes() const = 0;
  // The same for all rows of the pending cut, or all there are: an upper bound.
  virtual uint64_t CutBytes() const = 0;
  virtual uint64_t TotalBytes() const = 0;
  // Rows that the tracker knows of, tombstones too.
  virtual uint64_t keys() const = 0;
  // After the drain and the updates: Internal if a row was left out.
  virtual Status CheckCaptured(Seq cut) const = 0;

  // Gate closed.
  virtual Status Cut(const CutRequest& request) = 0;
  virtual Status Resolve(Seq sequence, bool committed, Seq scanned_base) = 0;
  virtual void Seed(const tensorflow::Tensor& keys) = 0;

  // Restore; nobody trains. Begin empties the tracker, and table t if empty[t];
  // the rows of other tables are to be seeded when the restore has ended.
  virtual Status RestoreBegin(tensorflow::OpKernelContext* ctx,
                              uint64_t number, Seq next_sequence,
                              Seq base_sequence,
                              const std::vector<bool>& empty) = 0;
  // How many rows are about to come, roughly.
  virtual void ExpectRows(uint64_t rows) = 0;
  // Tables without a present row need no values.
  virtual Status RestoreRows(tensorflow::OpKernelContext* ctx,
                             const RestoredRows& rows,
                             const RestoreLevel& level) = 0;
  // Inside the gate. FailedPrecondition if anybody else has written since the
  // RestoreBegin of that number, if there was one: what he wrote before its row
  // came has kept that out.
  virtual Status RestoreEnd(uint64_t number) = 0;
  // Rows, tombstones and superseded ones too, handed over since RestoreBegin.
  virtual uint64_t received() const = 0;
  // Those of them that went into table t: newer ones of their keys had not come.
  virtual uint64_t inserted(size_t t) const = 0;

  virtual Json Stats() const = 0;
  // Of a sample of about `enough` rows, as of a cut that were taken now.
  virtual PHistogram HistogramOfP(Seq as_of, double threshold,
                                  uint64_t enough) const = 0;

 protected:
  Group(GroupSpec spec, uint32_t index, Tables tables)
      : spec_(std::move(spec)), index_(index), tables_(std::move(tables)) {}

  const GroupSpec spec_;
  const uint32_t index_;
  const Tables tables_;
  std::atomic<uint64_t> writes_{0};
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_GROUP_H_
