#include "ops/io/local/local_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "ops/io/local/buffered_sink.h"
#include "ops/io/local/store_faults.h"

namespace adaptcp {
namespace local {
namespace {

// An errno to fail with instead of making the operation, or 0.
int Fault(const char* op, const std::string& path) {
  return adaptcp_store_op(op, path.c_str());
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  Fd& operator=(Fd&&) = delete;

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int OpenRetrying(const std::string& path, int flags) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::string Parent(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// "a//b/./c/" as "a/b/c": a path that Parent and the list of synced directories
// can work with.
std::string Clean(const std::string& path) {
  std::string out = !path.empty() && path[0] == '/' ? "/" : "";
  size_t start = 0;
  while (start <= path.size()) {
    size_t end = path.find('/', start);
    if (end == std::string::npos) end = path.size();
    const std::string part = path.substr(start, end - start);
    if (!part.empty() && part != ".") {
      if (!out.empty() && out.back() != '/') out += '/';
      out += part;
    }
    start = end + 1;
  }
  return out.empty() ? "." : out;
}

// `required`: the directory holds a name that was made just now. An older one
// that this user may not even read has been made by somebody else.
Status SyncDirectory(const std::string& path, bool required) {
  if (const int error = Fault("fsync_dir", path)) {
    return ErrnoToStatus(error, "sync directory", path);
  }
  const Fd fd(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) {
    if (!required && (errno == EACCES || errno == EPERM || errno == EROFS)) {
      return Status::Ok();
    }
    return ErrnoToStatus(errno, "open directory", path);
  }
  // EINVAL: this file system has no durability of directories to offer.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoToStatus(errno, "sync directory", path);
  }
  return Status::Ok();
}

// Directories whose names are known to be durable, by inode: they may have been
// made by another process which died before it synced their parent, so that
// finding one is not enough.
class SyncedDirectories {
 public:
  bool Has(const std::string& path, ino_t inode) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = inodes_.find(path);
    return it != inodes_.end() && it->second == inode;
  }
  void Add(const std::string& path, ino_t inode) {
    constexpr size_t kMost = 1024;  // each checkpoint has a directory of its own
    const std::lock_guard<std::mutex> lock(mutex_);
    if (inodes_.size() >= kMost) inodes_.clear();
    inodes_[path] = inode;
  }
  size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return inodes_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, ino_t> inodes_;
};

SyncedDirectories& Synced() {
  static auto* const synced = new SyncedDirectories;
  return *synced;
}

// Makes `path` and what is above it; returns with all their names durable.
Status MakeClean(const std::string& path) {
  struct stat info;
  bool made = false;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoToStatus(errno, "stat", path);
    if (path == "." || path == "/") {
      return ErrnoToStatus(ENOENT, "stat", path);
    }
    ADAPTCP_RETURN_IF_ERROR(MakeClean(Parent(path)));
    if (const int error = Fault("mkdir", path)) {
      return ErrnoToStatus(error, "make directory", path);
    }
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
      return ErrnoToStatus(errno, "make directory", path);
    }
    made = true;
    if (::stat(path.c_str(), &info) != 0) {
      return ErrnoToStatus(errno, "stat", path);
    }
  }
  if (!S_ISDIR(info.st_mode)) return ErrnoToStatus(ENOTDIR, "stat", path);
  if (path == "." || path == "/") return Status::Ok();
  if (!made && Synced().Has(path, info.st_ino)) return Status::Ok();
  if (!made) ADAPTCP_RETURN_IF_ERROR(MakeClean(Parent(path)));
  ADAPTCP_RETURN_IF_ERROR(SyncDirectory(Parent(path), made));
  Synced().Add(path, info.st_ino);
  return Status::Ok();
}

Status SyncFile(const Fd& fd, const std::string& path) {
  if (const int error = Fault("fsync", path)) {
    return ErrnoToStatus(error, "sync", path);
  }
  // Not tried again: after a failed fsync the kernel may have dropped the pages,
  // and a second one would succeed without them.
  if (::fsync(fd.get()) != 0) return ErrnoToStatus(errno, "sync", path);
  return Status::Ok();
}

class LocalSink final : public BufferedSink {
 public:
  LocalSink(std::string path, Fd fd, bool durable)
      : BufferedSink(std::move(path)), durable_(durable), fd_(std::move(fd)) {}

 protected:
  Status Write(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t n = ::write(fd_.get(), data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoToStatus(errno, "write", name());
      data.remove_prefix(static_cast<size_t>(n));
    }
    return Status::Ok();
  }

  Status Close() override {
    if (durable_) ADAPTCP_RETURN_IF_ERROR(SyncFile(fd_, name()));
    if (const int error = Fault("close", name())) {
      return ErrnoToStatus(error, "close", name());
    }
    if (::close(fd_.release()) != 0 && errno != EINTR) {
      return ErrnoToStatus(errno, "close", name());
    }
    return durable_ ? SyncDirectory(Parent(name()), /*required=*/true)
                    : Status::Ok();
  }

 private:
  const bool durable_;
  Fd fd_;
};

class LocalSource final : public ByteSource {
 public:
  LocalSource(std::string path, Fd fd, uint64_t size)
      : name_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }

  Status ReadAt(uint64_t offset, size_t n, char* out) const override {
    if (const int error = Fault("read", name_)) {
      return ErrnoToStatus(error, "read", name_);
    }
    while (n > 0) {
      const ssize_t got =
          ::pread(fd_.get(), out, n, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoToStatus(errno, "read", name_);
      if (got == 0) {
        return Status::DataLoss(name_ + ": the file ends at byte " +
                                std::to_string(offset) + ", " +
                                std::to_string(n) + " bytes early");
      }
      out += got;
      offset += static_cast<uint64_t>(got);
      n -= static_cast<size_t>(got);
    }
    return Status::Ok();
  }

 private:
  const std::string name_;
  const Fd fd_;
  const uint64_t size_;
};

}  // namespace

Status ErrnoToStatus(int error, const char* what, const std::string& path) {
  const std::string message = std::string("can't ") + what + " " + path + ": " +
                              std::generic_category().message(error) +
                              " (errno " + std::to_string(error) + ")";
  switch (error) {
    case ENOENT: return Status::NotFound(message);
    case EACCES:
    case EPERM:
    case EROFS: return Status::PermissionDenied(message);
    case EEXIST:
    case ENOTDIR:
    case EISDIR: return Status::FailedPrecondition(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Status::ResourceExhausted(message);
    case EINVAL:
    case ENAMETOOLONG: return Status::InvalidArgument(message);
    case EIO:
    case EAGAIN:
    case EBUSY:
    case ENODEV:
    case ENXIO:
    case ESTALE:
    case ETIMEDOUT:
    case ENOTCONN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ECONNREFUSED:
    case ECONNRESET: return Status::Unavailable(message);
    default: return Status::Internal(message);
  }
}

namespace {

Status MakeSink(const std::string& raw_path, bool durable,
                std::unique_ptr<ByteSink>* sink) {
  const std::string path = Clean(raw_path);
  ADAPTCP_RETURN_IF_ERROR(MakeClean(Parent(path)));
  if (const int error = Fault("create", path)) {
    return ErrnoToStatus(error, "create", path);
  }
  Fd fd(OpenRetrying(path, O_WRONLY | O_CREAT | O_EXCL));
  if (fd.get() < 0) return ErrnoToStatus(errno, "create", path);
  *sink = std::make_unique<LocalSink>(path, std::move(fd), durable);
  return Status::Ok();
}

}  // namespace

Status NewSink(const std::string& path, std::unique_ptr<ByteSink>* sink) {
  return MakeSink(path, /*durable=*/true, sink);
}

Status NewUnsyncedSink(const std::string& path,
                       std::unique_ptr<ByteSink>* sink) {
  return MakeSink(path, /*durable=*/false, sink);
}

Status SyncObject(const std::string& raw_path) {
  const std::string path = Clean(raw_path);
  Fd fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoToStatus(errno, "open", path);
  ADAPTCP_RETURN_IF_ERROR(SyncFile(fd, path));
  return SyncDirectory(Parent(path), /*required=*/true);
}

Status NewSource(const std::string& path,
                 std::unique_ptr<ByteSource>* source) {
  if (const int error = Fault("open", path)) {
    return ErrnoToStatus(error, "open", path);
  }
  Fd fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoToStatus(errno, "open", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoToStatus(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) {
    return Status::FailedPrecondition(path + " is not a file");
  }
  *source = std::make_unique<LocalSource>(path, std::move(fd),
                                          static_cast<uint64_t>(info.st_size));
  return Status::Ok();
}

Status DeleteObject(const std::string& path) {
  if (const int error = Fault("delete", path)) {
    return ErrnoToStatus(error, "delete", path);
  }
  if (::unlink(path.c_str()) != 0) return ErrnoToStatus(errno, "delete", path);
  return Status::Ok();
}

Status ObjectSize(const std::string& path, uint64_t* size) {
  if (const int error = Fault("size", path)) {
    return ErrnoToStatus(error, "stat", path);
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoToStatus(errno, "stat", path);
  }
  *size = static_cast<uint64_t>(info.st_size);
  return Status::Ok();
}

Status ListObjects(const std::string& directory,
                   std::vector<std::string>* names) {
  if (const int error = Fault("list", directory)) {
    return ErrnoToStatus(error, "list", directory);
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(
      ::opendir(directory.c_str()), ::closedir);
  if (stream == nullptr) return ErrnoToStatus(errno, "list", directory);
  names->clear();
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
  if (errno != 0) return ErrnoToStatus(errno, "list", directory);
  std::sort(names->begin(), names->end());
  return Status::Ok();
}

size_t KnownDirectories() { return Synced().size(); }

Status MakeDirectories(const std::string& path) {
  return MakeClean(Clean(path));
}

}  // namespace local
}  // namespace adaptcp
