#include "ops/io/local/segment_transfer.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

#include "ops/format/crc32c.h"
#include "ops/io/local/crew.h"
#include "ops/io/local/local_store.h"

namespace adaptcp {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChunkBytes = 1 << 20;
// Direct files that wait to be synced, each with a descriptor. On a disk that
// is slower than the encoders nearly all of a large checkpoint waits; an encoder
// that waited with it would hold rows, and then updates, for as long.
constexpr size_t kMostUnsynced = 64;

// The bytes of one segment until they are in the store. One thread at a time.
class Staged {
 public:
  explicit Staged(std::shared_ptr<StagingRoom> room) : room_(std::move(room)) {}
  virtual ~Staged() { room_->Remove(bytes_); }

  Status Append(std::string_view data) {
    room_->Add(data.size());
    bytes_ += data.size();
    return Keep(data);
  }
  // No more is appended. Many may wait in this state: no file is open.
  virtual Status Close() = 0;
  // Durable, if that is what it is for.
  virtual Status Sync() { return Status::Ok(); }
  // All of it, a chunk at a time, as often as wanted.
  virtual Status Read(
      const std::function<Status(std::string_view)>& take) const = 0;
  uint64_t bytes() const { return bytes_; }

 protected:
  virtual Status Keep(std::string_view data) = 0;

 private:
  const std::shared_ptr<StagingRoom> room_;
  uint64_t bytes_ = 0;
};

class StagedInMemory final : public Staged {
 public:
  using Staged::Staged;
  Status Close() override { return Status::Ok(); }
  Status Read(const std::function<Status(std::string_view)>& take)
      const override {
    for (const std::string& chunk : chunks_) {
      ADAPTCP_RETURN_IF_ERROR(take(chunk));
    }
    return Status::Ok();
  }

 protected:
  Status Keep(std::string_view data) override {
    while (!data.empty()) {
      if (chunks_.empty() || chunks_.back().size() == kChunkBytes) {
        chunks_.emplace_back();
      }
      std::string& last = chunks_.back();
      const size_t n = std::min(data.size(), kChunkBytes - last.size());
      // Room for all of a chunk, but not for a small segment.
      if (last.capacity() < last.size() + n && chunks_.size() > 1) {
        last.reserve(kChunkBytes);
      }
      last.append(data.substr(0, n));
      data.remove_prefix(n);
    }
    return Status::Ok();
  }

 private:
  std::deque<std::string> chunks_;
};

class StagedInFile final : public Staged {
 public:
  static Status Create(std::shared_ptr<StagingRoom> room, std::string path,
                       std::unique_ptr<Staged>* staged) {
    std::unique_ptr<ByteSink> sink;
    ADAPTCP_RETURN_IF_ERROR(local::NewUnsyncedSink(path, &sink));
    staged->reset(new StagedInFile(std::move(room), std::move(path),
                                   std::move(sink)));
    return Status::Ok();
  }
  ~StagedInFile() override {
    sink_ = nullptr;
    (void)local::DeleteObject(path_);  // if not, the next process does
  }
  Status Close() override {
    ADAPTCP_RETURN_IF_ERROR(sink_->SyncAndClose());
    sink_ = nullptr;
    return Status::Ok();
  }
  Status Sync() override { return local::SyncObject(path_); }
  Status Read(const std::function<Status(std::string_view)>& take)
      const override {
    std::unique_ptr<ByteSource> source;
    ADAPTCP_RETURN_IF_ERROR(local::NewSource(path_, &source));
    std::string chunk;
    uint32_t crc = 0;
    for (uint64_t at = 0; at < bytes(); at += chunk.size()) {
      chunk.resize(std::min<uint64_t>(kChunkBytes, bytes() - at));
      ADAPTCP_RETURN_IF_ERROR(source->ReadAt(at, chunk.size(), chunk.data()));
      crc = ExtendCrc32c(crc, chunk.data(), chunk.size());
      ADAPTCP_RETURN_IF_ERROR(take(chunk));
    }
    // Here the rows can still be saved again; when a restore finds it, they can't.
    if (crc == crc_) return Status::Ok();
    return Status::DataLoss(path_ + ": the disk of the buffer returned other "
                                    "bytes than were written to it");
  }

 protected:
  Status Keep(std::string_view data) override {
    crc_ = ExtendCrc32c(crc_, data.data(), data.size());
    return sink_->Append(data);
  }

 private:
  StagedInFile(std::shared_ptr<StagingRoom> room, std::string path,
               std::unique_ptr<ByteSink> sink)
      : Staged(std::move(room)), path_(std::move(path)), sink_(std::move(sink)) {}

  const std::string path_;
  std::unique_ptr<ByteSink> sink_;
  uint32_t crc_ = 0;  // of what was appended
};

}  // namespace

struct SegmentTransfer::State
    : public std::enable_shared_from_this<SegmentTransfer::State> {
  // Makes a segment durable; *name is what it is called then.
  using Task = std::function<Status(std::string* name)>;

  void Add(const std::string& path, Task task);
  // The same in this thread, with the outcome, if many wait already.
  Status AddOrDo(const std::string& path, Task task);
  // Takes note of how a task has ended.
  void Note(const std::string& path, const std::string& name,
            const Status& done);
  void Work();
  // *name says what the segment is called in the end.
  Status Upload(const std::string& path, Staged* staged, std::string* name);
  void NoteStaged();

  TransferOptions options;
  OpenSink open;
  std::shared_ptr<StagingRoom> room;
  std::shared_ptr<RateLimit> rate;
  std::shared_ptr<const StopFlag> stop;
  OnFailure on_failure;
  const Clock::time_point start = Clock::now();
  Crew crew;

  std::mutex mu;  // a leaf
  std::deque<std::pair<std::string, Task>> queue;
  int workers = 0;  // that will look into the queue again
  std::map<std::string, std::string> names;  // of what is durable
  size_t added = 0;
  Status status;
  TransferStats stats;
};

void SegmentTransfer::State::Add(const std::string& path, Task task) {
  {
    std::lock_guard<std::mutex> lock(mu);
    ++added;
    queue.emplace_back(path, std::move(task));
    if (workers >= options.upload_threads) return;
    ++workers;
    stats.upload_threads = std::max(stats.upload_threads, workers);
  }
  if (crew.Start([self = shared_from_this()] { self->Work(); })) return;
  Status failure;
  {
    std::lock_guard<std::mutex> lock(mu);
    if (--workers > 0) return;
    failure = Status::ResourceExhausted("no thread for the upload of " + path);
    if (status.ok()) status = failure;
  }
  on_failure(failure);
}

Status SegmentTransfer::State::AddOrDo(const std::string& path, Task task) {
  {
    std::unique_lock<std::mutex> lock(mu);
    if (queue.size() < kMostUnsynced) {
      lock.unlock();
      Add(path, std::move(task));
      return Status::Ok();
    }
    ++added;
  }
  std::string name = path;
  const Status done = task(&name);
  Note(path, name, done);
  return done;
}

void SegmentTransfer::State::Note(const std::string& path,
                                  const std::string& name,
                                  const Status& done) {
  {
    std::lock_guard<std::mutex> lock(mu);
    if (done.ok()) {
      names[path] = name;
      ++stats.uploads;
      return;
    }
    if (status.ok()) status = done;
  }
  on_failure(done);
}

void SegmentTransfer::State::Work() {
  for (;;) {
    std::pair<std::string, Task> next;
    {
      std::lock_guard<std::mutex> lock(mu);
      if (queue.empty() || !status.ok() || stop->IsSet()) {
        --workers;
        return;
      }
      next = std::move(queue.front());
      queue.pop_front();
    }
    std::string name = next.first;
    const Status done = next.second(&name);
    next.second = nullptr;  // its staging room
    Note(next.first, name, done);
  }
}

void SegmentTransfer::State::NoteStaged() {
  const uint64_t used = room->used();
  std::lock_guard<std::mutex> lock(mu);
  stats.staged_peak_bytes = std::max(stats.staged_peak_bytes, used);
}

Status SegmentTransfer::State::Upload(const std::string& path, Staged* staged,
                                      std::string* name) {
  ADAPTCP_RETURN_IF_ERROR(staged->Sync());
  if (options.buffer != nullptr) {
    std::lock_guard<std::mutex> lock(mu);
    stats.buffered_after = Clock::now() - start;
  }
  RetryLimits limits;
  limits.deadline = Clock::now() + options.retry_for;
  return Retry(limits, stop.get(), [&](int attempt) {
    if (attempt > 1) {
      std::lock_guard<std::mutex> lock(mu);
      ++stats.retries;
    }
    *name = NameOfAttempt(path, attempt);
    std::unique_ptr<ByteSink> sink;
    ADAPTCP_RETURN_IF_ERROR(open(*name, &sink));
    ADAPTCP_RETURN_IF_ERROR(staged->Read([&](std::string_view chunk) {
      if (!rate->Take(chunk.size(), *stop)) {
        return Status::Cancelled("the upload of " + *name + " was given up");
      }
      return sink->Append(chunk);
    }));
    return sink->SyncAndClose();
  });
}

namespace {

using State = SegmentTransfer::State;

// Until it is closed a segment is its encoder's, then the uploads'.
class StagedSink final : public ByteSink {
 public:
  StagedSink(std::string path, std::unique_ptr<Staged> staged,
             std::shared_ptr<State> state)
      : path_(std::move(path)),
        staged_(std::move(staged)),
        state_(std::move(state)) {}

  Status Append(std::string_view data) override {
    if (staged_ == nullptr) return Closed();
    const Status status = staged_->Append(data);
    state_->NoteStaged();
    return status;
  }
  Status SyncAndClose() override {
    if (staged_ == nullptr) return Closed();
    // A task has to be copyable.
    std::shared_ptr<Staged> staged = std::move(staged_);
    ADAPTCP_RETURN_IF_ERROR(staged->Close());
    state_->Add(path_, [state = state_.get(), path = path_,
                        staged](std::string* name) {
      return state->Upload(path, staged.get(), name);
    });
    return Status::Ok();
  }
  const std::string& name() const override { return path_; }

 private:
  Status Closed() const {
    return Status::FailedPrecondition(path_ + ": used after the close");
  }

  const std::string path_;
  std::unique_ptr<Staged> staged_;
  const std::shared_ptr<State> state_;
};

// Written where it belongs; made durable beside the encoder, unless many wait
// for that already: each has a file open.
class DirectSink final : public ByteSink {
 public:
  DirectSink(std::unique_ptr<ByteSink> sink, std::string path,
             std::shared_ptr<State> state)
      : sink_(std::move(sink)),
        path_(std::move(path)),
        state_(std::move(state)) {}

  Status Append(std::string_view data) override { return sink_->Append(data); }
  Status SyncAndClose() override {
    ADAPTCP_RETURN_IF_ERROR(sink_->Flush());
    return state_->AddOrDo(
        path_, [sink = sink_](std::string*) { return sink->SyncAndClose(); });
  }
  const std::string& name() const override { return path_; }

 private:
  const std::shared_ptr<ByteSink> sink_;
  const std::string path_;
  const std::shared_ptr<State> state_;
};

}  // namespace

SegmentTransfer::SegmentTransfer(TransferOptions options, OpenSink open,
                                 std::shared_ptr<StagingRoom> room,
                                 std::shared_ptr<RateLimit> rate,
                                 std::shared_ptr<const StopFlag> stop,
                                 OnFailure on_failure)
    : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  state_->open = std::move(open);
  state_->room = std::move(room);
  state_->rate = std::move(rate);
  state_->stop = std::move(stop);
  state_->on_failure = std::move(on_failure);
}

SegmentTransfer::~SegmentTransfer() { Drop(); }

void SegmentTransfer::Drop() {
  std::deque<std::pair<std::string, State::Task>> dropped;
  std::lock_guard<std::mutex> lock(state_->mu);
  dropped.swap(state_->queue);
}

Status SegmentTransfer::Open(const std::string& path,
                             std::unique_ptr<ByteSink>* sink) {
  if (state_->options.direct) {
    std::unique_ptr<ByteSink> direct;
    ADAPTCP_RETURN_IF_ERROR(state_->open(path, &direct));
    *sink = std::make_unique<DirectSink>(std::move(direct), path, state_);
    return Status::Ok();
  }
  std::unique_ptr<Staged> staged;
  if (state_->options.buffer == nullptr) {
    staged = std::make_unique<StagedInMemory>(state_->room);
  } else {
    ADAPTCP_RETURN_IF_ERROR(StagedInFile::Create(
        state_->room, state_->options.buffer->NewName(), &staged));
  }
  *sink = std::make_unique<StagedSink>(path, std::move(staged), state_);
  return Status::Ok();
}

bool SegmentTransfer::IsFull() const {
  return !state_->options.direct && state_->room->IsFull();
}

bool SegmentTransfer::IsStuck() const {
  if (!IsFull()) return false;
  std::lock_guard<std::mutex> lock(state_->mu);
  return state_->names.size() == state_->added;
}

Status SegmentTransfer::WaitForRoom(
    const std::function<Status()>& close_sinks) {
  // Neither the flag nor the end of the last upload wakes up who waits for room;
  // nothing hangs on some milliseconds.
  constexpr std::chrono::milliseconds kLook(20);
  const auto given_up = [&] {
    return state_->stop->IsSet() ? Status::Cancelled("the segments were given up")
                                 : Status::Ok();
  };
  if (!IsFull()) return given_up();
  const auto start = Clock::now();
  Status status;
  while (status.ok() && state_->room->IsFull()) {
    if (IsStuck()) status = close_sinks();
    if (status.ok()) status = given_up();
    if (status.ok()) state_->room->WaitForRoom(kLook);
  }
  std::lock_guard<std::mutex> lock(state_->mu);
  state_->stats.room_wait += Clock::now() - start;
  return status;
}

Status SegmentTransfer::Finish(std::chrono::milliseconds grace,
                               std::map<std::string, std::string>* names) {
  constexpr std::chrono::milliseconds kLook(20);
  const auto gone = [&] {
    std::lock_guard<std::mutex> lock(state_->mu);
    return !state_->status.ok() || state_->stop->IsSet();
  };
  while (!state_->crew.JoinFor(kLook)) {
    if (!gone()) continue;
    (void)state_->crew.JoinFor(grace);
    break;
  }
  std::lock_guard<std::mutex> lock(state_->mu);
  ADAPTCP_RETURN_IF_ERROR(state_->status);
  if (state_->names.size() != state_->added) {
    return Status::Cancelled("the upload of segments was given up");
  }
  *names = state_->names;
  return Status::Ok();
}

TransferStats SegmentTransfer::stats() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return state_->stats;
}

std::weak_ptr<const void> SegmentTransfer::life() const { return state_; }

std::string SegmentTransfer::NameOfAttempt(const std::string& path,
                                           int attempt) {
  if (attempt == 1) return path;
  const size_t dot = path.rfind('.');
  return path.substr(0, dot) + "-try" + std::to_string(attempt) +
         path.substr(dot);
}

}  // namespace adaptcp
