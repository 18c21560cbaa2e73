// Reads objects ahead of those who use them: in parallel, level by level,
// within a bound of memory. Knows neither stores nor formats.

#ifndef ADAPTCP_OPS_IO_LOCAL_OBJECT_READERS_H_
#define ADAPTCP_OPS_IO_LOCAL_OBJECT_READERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/io/local/retry.h"
#include "ops/util/status.h"

namespace adaptcp {

// An object that is read in parts and, once verified, used in pieces.
class ReadableObject {
 public:
  virtual ~ReadableObject() = default;
  // For messages.
  virtual const std::string& name() const = 0;
  // What it takes in memory, at most, from its first Read to its end.
  virtual uint64_t memory_bytes() const = 0;
  // At least 1.
  virtual size_t parts() const = 0;
  virtual uint64_t part_bytes(size_t part) const = 0;
  // Each part once, several at a time by different threads. May block; `stop`
  // says that nobody wants it any more.
  virtual Status Read(size_t part, const StopFlag& stop) = 0;
  // Once, after every part: verifies it, and says in how many pieces it is
  // used.
  virtual Status Finish(size_t* pieces) = 0;
};

struct ReadersOptions {
  // 0: one to begin with, and more, up to max_threads, while somebody waits.
  int threads = 0;
  int max_threads = 16;
  // Of the objects between their first Read and the return of their last piece.
  // One that is larger passes alone.
  uint64_t memory_bytes = 1 << 30;
  std::chrono::steady_clock::time_point deadline =
      std::chrono::steady_clock::time_point::max();
  // Gives up when for so long nobody has asked for or given back a piece:
  // whoever did may be dead.
  std::chrono::milliseconds idle{600000};
};

struct ReadersStats {
  uint64_t bytes_read = 0;
  uint64_t peak_bytes = 0;
  int threads = 0;
};

// Thread-safe. Levels are used one after another: a piece of a level is handed
// out when all pieces of those before have been given back; within a level
// pieces come in any order. The first error ends everything, and so does the
// destructor, which waits for nobody: a thread that is held up in a store ends
// when that answers, and what it has read is dropped.
class ObjectReaders {
 private:
  struct State;

 public:
  using Level = std::vector<std::shared_ptr<ReadableObject>>;

  // Gives the piece back when it goes. May outlive the readers.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) = default;
    Piece& operator=(Piece&& other);
    ~Piece() { GiveBack(); }

    // Null: there is none.
    ReadableObject* object() const { return object_.get(); }
    size_t index() const { return index_; }

   private:
    friend class ObjectReaders;
    void GiveBack();

    std::shared_ptr<State> state_;
    std::shared_ptr<ReadableObject> object_;
    size_t entry_ = 0;
    size_t index_ = 0;
  };

  // Starts to read.
  ObjectReaders(std::vector<Level> levels, const ReadersOptions& options);
  ~ObjectReaders();
  ObjectReaders(const ObjectReaders&) = delete;
  ObjectReaders& operator=(const ObjectReaders&) = delete;

  // Blocks until there is a piece of that level, or it has no more, *piece
  // being empty then. The caller holds no piece of a level before. The error
  // that ended the readers; DeadlineExceeded names the object that was waited
  // for.
  Status Next(size_t level, Piece* piece);

  // Ends them with that error, unless they have one.
  void Stop(const Status& error);

  // Of what ended them, OK if nothing has.
  Status status() const;
  ReadersStats stats() const;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_OBJECT_READERS_H_
