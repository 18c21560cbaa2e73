// capped:///absolute/path: a store behind a line of limited bandwidth, kept in
// local files. It is a TensorFlow file system, loaded into every process of a
// benchmark, and no part of the product. Objects appear, as in object stores,
// when they are synced or closed. A written object is a connection, and so is
// each read, as range requests are.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "benchmarks/side_by_side/capped/control.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/file_statistics.h"
#include "tensorflow/core/platform/null_file_system.h"

namespace capped {
namespace {

using tensorflow::Status;

// So large are the pieces that take turns on the line.
constexpr size_t kPiece = 64 << 10;
constexpr char kUnfinished[] = ".unfinished-object-";

Status Error(int error, const std::string& name) {
  const std::string text = name + ": " + std::strerror(error);
  switch (error) {
    case 0:
      return Status();
    case ENOENT:
      return absl::NotFoundError(text);
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case ENOTEMPTY:
    case ENOTDIR:
    case EISDIR:
      return absl::FailedPreconditionError(text);
    case ENOSPC:
      return absl::ResourceExhaustedError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    default:
      return absl::UnknownError(text);
  }
}

std::string Local(const std::string& name) {
  const size_t scheme = name.find("://");
  return scheme == std::string::npos ? name : name.substr(scheme + 3);
}

class CappedWritableFile final : public tensorflow::WritableFile {
 public:
  CappedWritableFile(Control* control, std::string path)
      : control_(control), path_(std::move(path)), connection_(control) {
    static std::atomic<int> number{0};
    const size_t slash = path_.rfind('/') + 1;
    unfinished_ = path_.substr(0, slash) + kUnfinished +
                  std::to_string(getpid()) + "-" + std::to_string(++number);
    file_ = open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                 0666);
    error_ = file_ < 0 ? errno : 0;
  }

  ~CappedWritableFile() override { Close().IgnoreError(); }

  Status status() const { return Error(error_, path_); }

  Status Append(absl::string_view data) override {
    const CpuOfStore cpu(control_);
    while (!data.empty() && error_ == 0) {
      const size_t piece = std::min(kPiece, data.size());
      size_t done = 0;
      while (done < piece && error_ == 0) {
        const ssize_t n = write(file_, data.data() + done, piece - done);
        if (n >= 0) {
          done += static_cast<size_t>(n);
        } else if (errno != EINTR) {
          error_ = errno;
        }
      }
      connection_.Carry(Direction::kWrite, done);
      data.remove_prefix(done);
    }
    return status();
  }

  Status Flush() override { return status(); }

  Status Sync() override {
    if (error_ == 0 && !visible_) {
      Request(control_);
      error_ = rename(unfinished_.c_str(), path_.c_str()) == 0 ? 0 : errno;
      visible_ = error_ == 0;
      if (visible_) control_->objects_written += 1;
    }
    return status();
  }

  Status Close() override {
    if (file_ < 0) return status();
    const Status synced = Sync();
    if (close(file_) != 0 && error_ == 0) error_ = errno;
    file_ = -1;
    return status();
  }

  Status Name(absl::string_view* name) const override {
    *name = path_;
    return Status();
  }

 private:
  Control* const control_;
  const std::string path_;
  Connection connection_;
  std::string unfinished_;
  int file_ = -1;
  int error_ = 0;
  bool visible_ = false;
};

class CappedRandomAccessFile final : public tensorflow::RandomAccessFile {
 public:
  CappedRandomAccessFile(Control* control, std::string path)
      : control_(control), path_(std::move(path)) {
    file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    error_ = file_ < 0 ? errno : 0;
    if (file_ >= 0) control_->objects_opened += 1;
  }

  ~CappedRandomAccessFile() override {
    if (file_ >= 0) close(file_);
  }

  Status status() const { return Error(error_, path_); }

  Status Name(absl::string_view* name) const override {
    *name = path_;
    return Status();
  }

  Status Read(uint64_t offset, size_t n, absl::string_view* result,
              char* scratch) const override {
    const CpuOfStore cpu(control_);
    Request(control_);
    Connection connection(control_);
    size_t done = 0;
    int error = 0;
    while (done < n) {
      const size_t piece = std::min(kPiece, n - done);
      const ssize_t got = pread(file_, scratch + done, piece,
                                static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) error = errno;
      if (got <= 0) break;
      connection.Carry(Direction::kRead, static_cast<size_t>(got));
      done += static_cast<size_t>(got);
    }
    *result = absl::string_view(scratch, done);
    if (error != 0) return Error(error, path_);
    return done == n ? Status() : absl::OutOfRangeError(path_ + ": its end");
  }

 private:
  Control* const control_;
  const std::string path_;
  int file_ = -1;
  int error_ = 0;
};

class CappedFileSystem final : public tensorflow::NullFileSystem {
 public:
  TF_USE_FILESYSTEM_METHODS_WITH_NO_TRANSACTION_SUPPORT;

  Status NewRandomAccessFile(
      const std::string& name, tsl::TransactionToken*,
      std::unique_ptr<tensorflow::RandomAccessFile>* result) override {
    return Open<CappedRandomAccessFile>(name, result);
  }

  Status NewWritableFile(
      const std::string& name, tsl::TransactionToken*,
      std::unique_ptr<tensorflow::WritableFile>* result) override {
    return Open<CappedWritableFile>(name, result);
  }

  Status FileExists(const std::string& name, tsl::TransactionToken*) override {
    return Do([](const char* path) { return access(path, F_OK); }, name);
  }

  Status GetChildren(const std::string& directory, tsl::TransactionToken*,
                     std::vector<std::string>* names) override {
    TF_RETURN_IF_ERROR(Ready());
    names->clear();
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(Local(directory), error)) {
      const std::string name = entry.path().filename();
      if (name.rfind(kUnfinished, 0) != 0) names->push_back(name);
    }
    return Error(error.value(), directory);
  }

  Status DeleteFile(const std::string& name, tsl::TransactionToken*) override {
    return Do([](const char* path) { return unlink(path); }, name);
  }

  Status CreateDir(const std::string& name, tsl::TransactionToken*) override {
    return Do([](const char* path) { return mkdir(path, 0777); }, name);
  }

  Status RecursivelyCreateDir(const std::string& name,
                              tsl::TransactionToken*) override {
    TF_RETURN_IF_ERROR(Ready());
    std::error_code error;
    std::filesystem::create_directories(Local(name), error);
    return Error(error.value(), name);
  }

  Status DeleteDir(const std::string& name, tsl::TransactionToken*) override {
    return Do([](const char* path) { return rmdir(path); }, name);
  }

  Status RenameFile(const std::string& from, const std::string& to,
                    tsl::TransactionToken*) override {
    const std::string target = Local(to);
    return Do([&target](const char* path) {
      return rename(path, target.c_str());
    }, from);
  }

  Status GetFileSize(const std::string& name, tsl::TransactionToken* token,
                     tensorflow::uint64* size) override {
    tensorflow::FileStatistics found;
    TF_RETURN_IF_ERROR(Stat(name, token, &found));
    *size = static_cast<tensorflow::uint64>(found.length);
    return Status();
  }

  Status Stat(const std::string& name, tsl::TransactionToken*,
              tensorflow::FileStatistics* found) override {
    struct stat raw;
    TF_RETURN_IF_ERROR(
        Do([&raw](const char* path) { return stat(path, &raw); }, name));
    *found = {raw.st_size, raw.st_mtim.tv_sec * 1'000'000'000 +
                               raw.st_mtim.tv_nsec,
              S_ISDIR(raw.st_mode)};
    return Status();
  }

  Status HasAtomicMove(const std::string&, bool* has_atomic_move) override {
    *has_atomic_move = false;
    return Status();
  }

 private:
  static Status Ready() {
    if (SharedControl() == nullptr) {
      return absl::FailedPreconditionError(
          "capped:// needs ADAPTCP_BENCH_CAPS, a file made by control.py");
    }
    Request(SharedControl());
    return Status();
  }

  template <typename File, typename Result>
  static Status Open(const std::string& name, std::unique_ptr<Result>* result) {
    TF_RETURN_IF_ERROR(Ready());
    auto file = std::make_unique<File>(SharedControl(), Local(name));
    TF_RETURN_IF_ERROR(file->status());
    *result = std::move(file);
    return Status();
  }

  template <typename Call>
  static Status Do(const Call& call, const std::string& name) {
    TF_RETURN_IF_ERROR(Ready());
    return Error(call(Local(name).c_str()) == 0 ? 0 : errno, name);
  }
};

REGISTER_FILE_SYSTEM("capped", CappedFileSystem);

}  // namespace
}  // namespace capped
