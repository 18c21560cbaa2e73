#include "ops/io/local/object_readers.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace adaptcp {
namespace {

using Clock = std::chrono::steady_clock;

// Of waiting for pieces: then one more thread reads.
constexpr std::chrono::milliseconds kGrowAfter{10};
// Clocks are not asked to wait until the end of time.
constexpr std::chrono::hours kLongest{1};

}  // namespace

struct ObjectReaders::State {
  struct Entry {
    std::shared_ptr<ReadableObject> object;  // null once it is done
    std::string name;
    uint64_t bytes = 0;
    size_t level = 0;
    size_t parts = 0;
    size_t parts_read = 0;
    bool ready = false;
    size_t pieces = 0;
    size_t handed_out = 0;
    size_t given_back = 0;
  };

  ReadersOptions options;
  size_t levels = 0;
  StopFlag stop;

  mutable std::mutex mu;  // a leaf but for `stop`; guards what follows
  std::condition_variable changed;
  std::vector<Entry> entries;  // in the order of levels
  size_t done = 0;             // entries
  std::vector<size_t> left;    // by level, entries that are not done
  size_t level = 0;            // of those the first that is not 0
  // The part that is read next.
  size_t next_entry = 0;
  size_t next_part = 0;
  uint64_t used = 0;
  int threads = 0;
  int idle_threads = 0;
  int waiting = 0;  // in Next
  Clock::duration waited{0};  // since the last thread was started
  Clock::time_point last_use = Clock::now();
  ReadersStats stats;
  Status status;

  bool Claimable() const {
    if (next_entry == entries.size()) return false;
    return next_part > 0 || used == 0 ||
           (entries[next_entry].bytes <= options.memory_bytes &&
            used <= options.memory_bytes - entries[next_entry].bytes);
  }

  // Under mu, which it lets go of: what the object takes is free once it is
  // gone.
  void Done(Entry* entry, std::unique_lock<std::mutex>* lock) {
    std::shared_ptr<ReadableObject> object = std::move(entry->object);
    entry->object = nullptr;
    lock->unlock();
    object.reset();
    lock->lock();
    used -= entry->bytes;
    ++done;
    --left[entry->level];
    while (level < levels && left[level] == 0) ++level;
    changed.notify_all();
  }

  // Under mu.
  void Fail(const Status& error,
            std::vector<std::shared_ptr<ReadableObject>>* garbage) {
    if (!status.ok()) return;
    status = error;
    stop.Set();
    for (Entry& entry : entries) garbage->push_back(std::move(entry.object));
    changed.notify_all();
  }

  bool WantsThread() const {
    return options.threads == 0 && waited >= kGrowAfter && status.ok() &&
           threads < options.max_threads && idle_threads == 0 && Claimable();
  }

  // Under mu. With no thread left in the system those that there are go on; if
  // there is none, everything ends.
  static void StartThread(const std::shared_ptr<State>& state,
                          std::vector<std::shared_ptr<ReadableObject>>* garbage) {
    state->waited = Clock::duration::zero();
    try {
      // Detached: one that a store holds up must not hold up the restore.
      std::thread([state] { state->Read(); }).detach();
    } catch (const std::system_error&) {
      if (state->threads == 0) {
        state->Fail(Status::ResourceExhausted("no thread to read objects with"),
                    garbage);
      }
      return;
    }
    ++state->threads;
    state->stats.threads = std::max(state->stats.threads, state->threads);
  }

  void Read() {
    std::vector<std::shared_ptr<ReadableObject>> garbage;
    std::unique_lock<std::mutex> lock(mu);
    while (status.ok() && done < entries.size()) {
      if (!Claimable()) {
        const auto now = Clock::now();
        if (waiting == 0 && now - last_use > options.idle) {
          Fail(Status::Cancelled(
                   "reading was given up: nobody has asked for what is read"),
               &garbage);
          break;
        }
        ++idle_threads;
        changed.wait_for(lock, std::min<Clock::duration>(
                                   options.idle + kGrowAfter, kLongest));
        --idle_threads;
        continue;
      }
      Entry* const entry = &entries[next_entry];
      std::shared_ptr<ReadableObject> object = entry->object;
      const size_t part = next_part++;
      if (part == 0) {
        used += entry->bytes;
        stats.peak_bytes = std::max(stats.peak_bytes, used);
      }
      if (next_part == entry->parts) {
        ++next_entry;
        next_part = 0;
      }
      lock.unlock();
      Status read = object->Read(part, stop);
      const uint64_t bytes = object->part_bytes(part);
      // Whoever gives it back last frees it, which is when its memory counts as
      // free.
      object.reset();
      lock.lock();
      if (read.ok()) stats.bytes_read += bytes;
      const bool whole = read.ok() && ++entry->parts_read == entry->parts;
      if (whole && status.ok()) {
        object = entry->object;
        size_t pieces = 0;
        lock.unlock();
        read = object->Finish(&pieces);
        object.reset();
        lock.lock();
        if (read.ok() && status.ok()) {
          entry->pieces = pieces;
          entry->ready = true;
          if (pieces == 0) Done(entry, &lock);
          changed.notify_all();
        }
      }
      if (!read.ok()) Fail(read, &garbage);
      if (!garbage.empty()) {
        lock.unlock();
        garbage.clear();
        lock.lock();
      }
    }
    --threads;
    lock.unlock();
  }
};

ObjectReaders::Piece& ObjectReaders::Piece::operator=(Piece&& other) {
  if (this != &other) {
    GiveBack();
    state_ = std::move(other.state_);
    object_ = std::move(other.object_);
    entry_ = other.entry_;
    index_ = other.index_;
  }
  return *this;
}

void ObjectReaders::Piece::GiveBack() {
  if (state_ == nullptr) return;
  object_.reset();
  {
    std::unique_lock<std::mutex> lock(state_->mu);
    state_->last_use = Clock::now();
    State::Entry* const entry = &state_->entries[entry_];
    if (++entry->given_back == entry->pieces && state_->status.ok()) {
      state_->Done(entry, &lock);
    }
  }
  state_.reset();
}

ObjectReaders::ObjectReaders(std::vector<Level> levels,
                             const ReadersOptions& options)
    : state_(std::make_shared<State>()) {
  state_->options = options;
  state_->levels = levels.size();
  for (size_t level = 0; level < levels.size(); ++level) {
    state_->left.push_back(levels[level].size());
    for (auto& object : levels[level]) {
      State::Entry entry;
      entry.name = object->name();
      entry.bytes = object->memory_bytes();
      entry.level = level;
      entry.parts = object->parts();
      entry.object = std::move(object);
      state_->entries.push_back(std::move(entry));
    }
  }
  std::vector<std::shared_ptr<ReadableObject>> garbage;
  std::lock_guard<std::mutex> lock(state_->mu);
  while (state_->level < state_->levels && state_->left[state_->level] == 0) {
    ++state_->level;
  }
  const int threads =
      state_->entries.empty() ? 0 : std::max(1, options.threads);
  for (int i = 0; i < threads; ++i) State::StartThread(state_, &garbage);
}

ObjectReaders::~ObjectReaders() {
  Stop(Status::Cancelled("reading was given up"));
}

Status ObjectReaders::Next(size_t level, Piece* piece) {
  *piece = Piece();
  State* const state = state_.get();
  std::vector<std::shared_ptr<ReadableObject>> garbage;
  std::unique_lock<std::mutex> lock(state->mu);
  ++state->waiting;
  for (;;) {
    if (!state->status.ok()) break;
    if (level >= state->levels) break;
    bool more = level > state->level;
    const std::string* awaited = nullptr;
    if (level == state->level) {
      for (size_t i = 0; i < state->entries.size(); ++i) {
        State::Entry& entry = state->entries[i];
        if (entry.level != level || entry.object == nullptr) continue;
        if (entry.ready && entry.handed_out < entry.pieces) {
          piece->state_ = state_;
          piece->object_ = entry.object;
          piece->entry_ = i;
          piece->index_ = entry.handed_out++;
          break;
        }
        more = more || !entry.ready;
        if (awaited == nullptr && !entry.ready) awaited = &entry.name;
      }
    }
    if (piece->object_ != nullptr || !more) break;
    const auto now = Clock::now();
    if (now >= state->options.deadline) {
      state->Fail(Status::DeadlineExceeded(
                      "the deadline passed while " +
                      (awaited == nullptr ? "rows of a newer level were applied"
                                          : *awaited + " was being read")),
                  &garbage);
      break;
    }
    state->changed.wait_for(
        lock, std::min<Clock::duration>(kGrowAfter,
                                        state->options.deadline - now));
    state->waited += Clock::now() - now;
    if (state->WantsThread()) State::StartThread(state_, &garbage);
  }
  --state->waiting;
  state->last_use = Clock::now();
  return state->status;
}

void ObjectReaders::Stop(const Status& error) {
  std::vector<std::shared_ptr<ReadableObject>> garbage;
  std::lock_guard<std::mutex> lock(state_->mu);
  state_->Fail(error, &garbage);
}

Status ObjectReaders::status() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return state_->status;
}

ReadersStats ObjectReaders::stats() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return state_->stats;
}

}  // namespace adaptcp
