#include "ops/io/local/buffer_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "ops/io/local/local_store.h"

namespace adaptcp {
namespace {

constexpr char kPrefix[] = "adaptcp-buffer-";
constexpr char kLock[] = "/lock";

// Opens the lock file of a process directory and locks it; *fd is -1 if another
// process has it, or removes the directory at this moment.
Status Lock(const std::string& path, int flags, int* fd) {
  *fd = ::open((path + kLock).c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
  if (*fd < 0) {
    if (errno == ENOENT) return Status::Ok();
    return local::ErrnoToStatus(errno, "open", path + kLock);
  }
  struct stat info;
  const int error =
      ::flock(*fd, LOCK_EX | LOCK_NB) != 0 || ::fstat(*fd, &info) != 0 ? errno
                                                                       : 0;
  if (error == 0 && info.st_nlink > 0) return Status::Ok();
  ::close(*fd);
  *fd = -1;
  if (error == EWOULDBLOCK || error == 0) return Status::Ok();
  return local::ErrnoToStatus(error, "lock", path + kLock);
}

// Removes what a dead process has left. The lock goes last, and is held until
// then: two who do this at once are one after the other.
Status Remove(const std::string& path, bool* removed) {
  *removed = false;
  int fd = -1;
  ADAPTCP_RETURN_IF_ERROR(Lock(path, 0, &fd));
  if (fd < 0) {
    // In use; or made by a process that died before it had a lock, when it is
    // empty and goes away like this.
    *removed = ::rmdir(path.c_str()) == 0;
    return Status::Ok();
  }
  std::vector<std::string> names;
  Status status = local::ListObjects(path, &names);
  for (const std::string& name : names) {
    if (!status.ok()) break;
    if (name != kLock + 1) status = local::DeleteObject(path + "/" + name);
  }
  if (status.ok()) status = local::DeleteObject(path + kLock);
  if (status.ok() && ::rmdir(path.c_str()) != 0) {
    status = local::ErrnoToStatus(errno, "remove", path);
  }
  ::close(fd);
  *removed = status.ok();
  return status;
}

std::string RandomName() {
  std::random_device random;
  char text[32];
  std::snprintf(text, sizeof(text), "%08x%08x", random(), random());
  return text;
}

struct Opened {
  std::mutex mu;
  std::map<std::string, std::shared_ptr<BufferDirectory>> by_root;
};

}  // namespace

Status BufferDirectory::Open(const std::string& root,
                             std::shared_ptr<BufferDirectory>* directory) {
  static auto* const opened = new Opened;
  std::lock_guard<std::mutex> lock(opened->mu);
  std::shared_ptr<BufferDirectory>& own = opened->by_root[root];
  ADAPTCP_RETURN_IF_ERROR(local::MakeDirectories(root));
  struct stat info;
  if (own != nullptr && ::stat((own->path_ + kLock).c_str(), &info) != 0) {
    own = nullptr;  // somebody has emptied the root
  }
  // Between the directory and its lock another process may take it for one that
  // was left.
  for (int tries = 0; own == nullptr; ++tries) {
    const std::string path = root + "/" + kPrefix + RandomName();
    const Status made = local::MakeDirectories(path);
    if (made.code() == Status::Code::kNotFound && tries < 10) continue;
    ADAPTCP_RETURN_IF_ERROR(made);
    int fd = -1;
    ADAPTCP_RETURN_IF_ERROR(Lock(path, O_CREAT, &fd));
    if (fd >= 0) {
      own.reset(new BufferDirectory(path, fd));
    } else if (tries == 10) {
      return Status::Unavailable("can't lock " + path + kLock);
    }
  }
  std::vector<std::string> names;
  ADAPTCP_RETURN_IF_ERROR(local::ListObjects(root, &names));
  int others = 0;
  for (const std::string& name : names) {
    const std::string path = root + "/" + name;
    if (name.rfind(kPrefix, 0) != 0 || path == own->path_) continue;
    // What can't be removed, as of another user, keeps nobody from his own.
    bool removed = false;
    (void)Remove(path, &removed);
    own->removed_ += removed;
    others += !removed;
  }
  own->others_ = others;
  *directory = own;
  return Status::Ok();
}

BufferDirectory::~BufferDirectory() { ::close(lock_); }

std::string BufferDirectory::NewName() {
  return path_ + "/" + std::to_string(next_++) + ".seg";
}

Status BufferDirectory::FreeBytes(uint64_t* bytes) const {
  struct statvfs info;
  if (::statvfs(path_.c_str(), &info) != 0) {
    return local::ErrnoToStatus(errno, "measure", path_);
  }
  *bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  return Status::Ok();
}

}  // namespace adaptcp
