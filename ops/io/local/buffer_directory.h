// A directory on a disk of this machine where segments wait for their upload.

#ifndef ADAPTCP_OPS_IO_LOCAL_BUFFER_DIRECTORY_H_
#define ADAPTCP_OPS_IO_LOCAL_BUFFER_DIRECTORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/util/status.h"

namespace adaptcp {

// What one process has below a directory that users name, and may name to several
// processes and jobs: <root>/adaptcp-buffer-<random>/, with a file "lock" that it
// keeps locked for life. Of a process that died the lock is free: whoever opens
// the root next removes what that process has left. Thread-safe.
class BufferDirectory {
 public:
  // That of this process, made at the first call. Also removes what dead
  // processes have left in `root`. Blocks as the disk does.
  static Status Open(const std::string& root,
                     std::shared_ptr<BufferDirectory>* directory);

  BufferDirectory(const BufferDirectory&) = delete;
  BufferDirectory& operator=(const BufferDirectory&) = delete;
  ~BufferDirectory();

  const std::string& path() const { return path_; }
  // The path of a file that there has not been yet.
  std::string NewName();
  Status FreeBytes(uint64_t* bytes) const;
  // Directories of dead processes that were removed, with what was in them.
  int removed() const { return removed_; }
  // Those of other processes, as far as anybody can tell, at the last Open.
  int others() const { return others_; }

 private:
  BufferDirectory(std::string path, int lock)
      : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // file descriptor
  std::atomic<int> removed_{0};
  std::atomic<int> others_{0};
  std::atomic<uint64_t> next_{0};
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_BUFFER_DIRECTORY_H_
