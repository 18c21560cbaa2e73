// What lies between those who capture rows for one checkpoint (the drain, on its
// own or hurried by lookups, and the updates) and the threads that encode them: a
// queue bounded in bytes.

#ifndef ADAPTCP_OPS_IO_LOCAL_SAVE_PIPELINE_H_
#define ADAPTCP_OPS_IO_LOCAL_SAVE_PIPELINE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "ops/format/row_block.h"
#include "ops/io/local/retry.h"
#include "ops/util/status.h"

namespace adaptcp {

enum class CaptureSource { kDrain, kLookup, kUpdate };

// Rows of one group, read together from all of its tables, with the class each
// got when it was claimed. Owned by the queue after Push.
class CapturedBatch {
 public:
  virtual ~CapturedBatch() = default;
  virtual uint32_t group_index() const = 0;
  virtual size_t rows() const = 0;
  // Of keys and values, beyond what a row takes however long they are.
  virtual size_t string_bytes() const = 0;
  virtual Status AppendTo(RowBlockBuilder* cold, RowBlockBuilder* hot) const = 0;

  // Bytes reserved for it; the writer gives them back.
  size_t reserved = 0;
};

struct CaptureCounters {
  std::atomic<uint64_t> rows_by_drain{0};
  std::atomic<uint64_t> rows_by_lookup{0};
  std::atomic<uint64_t> rows_by_update{0};
  std::atomic<uint64_t> update_wait_ns{0};
  std::atomic<uint64_t> updates_delayed{0};
  std::atomic<uint64_t> drain_wait_ns{0};
  std::atomic<uint64_t> rest_ns{0};
};

// Thread-safe. Its mutex is a leaf: no other lock is taken under it.
class SavePipeline {
 public:
  // `update_wait`: how long one update may wait for room before the checkpoint
  // is given up so that training goes on.
  SavePipeline(size_t memory_limit, std::chrono::milliseconds update_wait);

  std::chrono::milliseconds update_wait() const { return update_wait_; }

  // Brackets a capture. Begin returns false once every row is captured or the
  // save was aborted: there is nothing left to do. Between true and End the
  // pipeline does not close.
  bool Begin();
  void End();

  // Waits until `bytes` fit into the limit; one batch larger than the limit
  // passes alone. No stripe lock may be held. Fails with Cancelled after
  // Abort, with DeadlineExceeded if an update waited too long.
  // Only updates wait for a limited time, and room that gets free is theirs
  // first: a large one would never see enough of it otherwise.
  Status Reserve(size_t bytes, CaptureSource source);
  // Takes what is there already, and can't wait.
  void Charge(size_t bytes);
  void Release(size_t bytes);
  // Requires Begin and a reservation of batch->reserved bytes. After Abort the
  // batch is dropped.
  void Push(std::unique_ptr<CapturedBatch> batch, CaptureSource source);

  // Waits for running captures, while none begins any more, then closes: Pop ends
  // after what is queued.
  // The caller must have seen that no row is left uncaptured.
  void CloseWhenIdle();
  // Blocks until it is closed or aborted: until every row is captured, or none
  // will be any more.
  void WaitClosed();
  // Blocks; false when closed and empty, or aborted. Meanwhile `idle`, if there is
  // one, is called now and then, with no lock held.
  bool Pop(std::unique_ptr<CapturedBatch>* batch,
           const std::function<void()>& idle = nullptr);

  // Sleeps, for as long as there is room for captures: with less than half of it
  // left the work is urgent, since updates may have to wait.
  void Rest(std::chrono::nanoseconds time);

  // Whether those who encode have more to do than they can.
  bool is_crowded() const;
  // Whether they have less: the last few batches were all waited for.
  bool is_starved() const;

  // Makes all waits end. The first reason given stays. What is queued may be a
  // GiB, and who gives up may hold the gate, or a mutex that every write takes:
  // it is freed by a thread of its own.
  void Abort(const Status& why);
  Status status() const;
  // Set by Abort.
  const StopFlag& stop() const { return stop_; }

  const CaptureCounters& counters() const { return counters_; }
  size_t peak_bytes() const;

 private:
  const size_t limit_;
  const std::chrono::milliseconds update_wait_;
  mutable std::mutex mu_;
  std::condition_variable room_;      // it may fit now, or was aborted
  std::condition_variable urgent_;    // bytes were asked for, or aborted
  std::condition_variable work_;      // a batch came, closed, or aborted
  std::condition_variable idle_;      // running_ fell to 0, closed, or aborted
  std::deque<std::unique_ptr<CapturedBatch>> queue_;
  size_t used_ = 0;
  size_t peak_ = 0;
  int waiting_ = 0;  // threads that wait for room
  int updates_waiting_ = 0;  // for room
  int running_ = 0;
  int popping_ = 0;  // threads that wait for a batch
  int awaited_ = 0;  // batches in a row that somebody waited for
  bool closing_ = false;  // no capture begins any more
  bool closed_ = false;
  Status status_;
  CaptureCounters counters_;
  StopFlag stop_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_SAVE_PIPELINE_H_
