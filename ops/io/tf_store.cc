#include "ops/io/tf_store.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "ops/io/local/buffered_sink.h"
#include "ops/io/local/local_store.h"
#include "ops/io/local/store_faults.h"
#include "ops/io/tf_status.h"
#include "tensorflow/core/platform/env.h"

namespace adaptcp {
namespace remote {
namespace {

// A remote store that fails says Unknown or Internal where it means that it
// can't be reached (hdfs and s3 do), so what has no clearer code is Unavailable.
Status::Code CodeOf(const tensorflow::Status& status, Status::Code code) {
  const auto says = [&status](const char* text) {
    return status.message().find(text) != absl::string_view::npos;
  };
  // A process without the file system, or hdfs's without its client library, which
  // "does not find" the file at its first use. Nothing is wrong with the object.
  if (code == Status::Code::kUnimplemented ||
      (code == Status::Code::kNotFound && says("Library (")) ||
      (code == Status::Code::kInternal &&
       says("HadoopFileSystem is not initialized"))) {
    return Status::Code::kFailedPrecondition;
  }
  // A name node in safe mode, as after its start.
  if (absl::IsPermissionDenied(status) && says("Read-only file system")) {
    return Status::Code::kUnavailable;
  }
  // gs takes a name server that does not answer for a failure that stays.
  if (says("libcurl code 5 ") || says("libcurl code 6 ")) {
    return Status::Code::kUnavailable;
  }
  return code == Status::Code::kInternal ? Status::Code::kUnavailable : code;
}

Status Convert(const tensorflow::Status& status, const char* what,
               const std::string& path) {
  const Status ours = FromTensorFlow(status);
  if (ours.ok()) return ours;
  std::string text =
      ours.message().empty() ? "the store gave no reason" : ours.message();
  // What libhdfs makes of most exceptions in Java.
  const std::string unknown = "Unknown error 255";
  if (const size_t at = text.find(unknown); at != std::string::npos) {
    text.replace(at, unknown.size(),
                 "HDFS failed; libhdfs wrote why to the standard error of this "
                 "process");
  }
  return Status(CodeOf(status, ours.code()),
                std::string("can't ") + what + " " + path + ": " + text);
}

Status Fault(const char* op, const std::string& path) {
  const int error = adaptcp_store_op(op, path.c_str());
  return error == 0 ? Status::Ok() : local::ErrnoToStatus(error, op, path);
}

class RemoteSink final : public BufferedSink {
 public:
  RemoteSink(std::string path, std::unique_ptr<tensorflow::WritableFile> file)
      : BufferedSink(std::move(path)), file_(std::move(file)) {}

 protected:
  Status Write(std::string_view data) override {
    written_ += data.size();
    return Convert(
        file_->Append(absl::string_view(data.data(), data.size())), "write",
        name());
  }

  Status Close() override {
    // s3 makes no object when nothing was written.
    if (written_ == 0) ADAPTCP_RETURN_IF_ERROR(Write({}));
    ADAPTCP_RETURN_IF_ERROR(Fault("fsync", name()));
    ADAPTCP_RETURN_IF_ERROR(Convert(file_->Sync(), "sync", name()));
    ADAPTCP_RETURN_IF_ERROR(Fault("close", name()));
    ADAPTCP_RETURN_IF_ERROR(Convert(file_->Close(), "close", name()));
    // An object that is not what was sent would be found out by its readers, too
    // late to write it again.
    uint64_t size = 0;
    ADAPTCP_RETURN_IF_ERROR(ObjectSize(name(), &size));
    if (size == written_) return Status::Ok();
    return Status::Unavailable("can't write " + name() + ": it has " +
                               std::to_string(size) + " bytes of the " +
                               std::to_string(written_) + " written");
  }

 private:
  const std::unique_ptr<tensorflow::WritableFile> file_;
  uint64_t written_ = 0;
};

class RemoteSource final : public ByteSource {
 public:
  RemoteSource(std::string path,
               std::unique_ptr<tensorflow::RandomAccessFile> file,
               uint64_t size)
      : name_(std::move(path)), file_(std::move(file)), size_(size) {}

  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }

  Status ReadAt(uint64_t offset, size_t n, char* out) const override {
    ADAPTCP_RETURN_IF_ERROR(Fault("read", name_));
    absl::string_view result;
    // s3 refuses ranges that begin at the end.
    const tensorflow::Status status =
        offset < size_ ? file_->Read(offset, n, &result, out)
                       : tensorflow::Status();
    // OutOfRange: the file ended, `result` is what there was.
    if (!status.ok() && !absl::IsOutOfRange(status)) {
      return Convert(status, "read", name_);
    }
    if (result.size() != n && offset + n <= size_) {
      // Damage would have shown in the size: the connection ended early.
      return Status::Unavailable(
          "can't read " + name_ + ": " + std::to_string(result.size()) +
          " bytes arrived of the " + std::to_string(n) + " from byte " +
          std::to_string(offset));
    }
    if (result.size() != n) {
      return Status::DataLoss(name_ + ": the file ends at byte " +
                              std::to_string(offset + result.size()) + ", " +
                              std::to_string(n - result.size()) +
                              " bytes early");
    }
    // A file system may answer with memory of its own.
    if (result.data() != out) std::copy(result.begin(), result.end(), out);
    return Status::Ok();
  }

 private:
  const std::string name_;
  const std::unique_ptr<tensorflow::RandomAccessFile> file_;
  const uint64_t size_;
};

// Object stores have no directories; making one would write a marker object, and
// its name once for each server.
bool HasDirectories(const std::string& path) {
  const std::string scheme = path.substr(0, path.find("://"));
  return scheme != "gs" && scheme != "s3" && scheme != "s3e" &&
         scheme != "az" && scheme != "oss";
}

std::string Parent(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

Status MakeDirectories(const std::string& path) {
  ADAPTCP_RETURN_IF_ERROR(Fault("mkdir", path));
  return Convert(tensorflow::Env::Default()->RecursivelyCreateDir(path),
                 "make directory", path);
}

}  // namespace

Status NewSink(const std::string& path, std::unique_ptr<ByteSink>* sink) {
  if (HasDirectories(path)) {
    ADAPTCP_RETURN_IF_ERROR(MakeDirectories(Parent(path)));
  }
  ADAPTCP_RETURN_IF_ERROR(Fault("create", path));
  std::unique_ptr<tensorflow::WritableFile> file;
  ADAPTCP_RETURN_IF_ERROR(
      Convert(tensorflow::Env::Default()->NewWritableFile(path, &file),
              "create", path));
  *sink = std::make_unique<RemoteSink>(path, std::move(file));
  return Status::Ok();
}

Status NewSource(const std::string& path,
                 std::unique_ptr<ByteSource>* source) {
  uint64_t size = 0;
  ADAPTCP_RETURN_IF_ERROR(ObjectSize(path, &size));
  return NewSource(path, size, source);
}

Status NewSource(const std::string& path, uint64_t size,
                 std::unique_ptr<ByteSource>* source) {
  ADAPTCP_RETURN_IF_ERROR(Fault("open", path));
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  ADAPTCP_RETURN_IF_ERROR(
      Convert(tensorflow::Env::Default()->NewRandomAccessFile(path, &file),
              "open", path));
  *source = std::make_unique<RemoteSource>(path, std::move(file), size);
  return Status::Ok();
}

uint64_t ReadAheadBytes(const std::string& path) {
  if (path.compare(0, 5, "gs://") != 0) return 0;
  // As TensorFlow's gs reads it when it is loaded; the newer name has precedence.
  if (const char* text = std::getenv("GCS_READ_CACHE_BLOCK_SIZE_MB")) {
    return std::min(std::strtoull(text, nullptr, 10), 1ull << 20) << 20;
  }
  if (const char* text = std::getenv("GCS_READAHEAD_BUFFER_SIZE_BYTES")) {
    return std::min(std::strtoull(text, nullptr, 10), 1ull << 40);
  }
  return uint64_t{64} << 20;
}

Status DeleteObject(const std::string& path) {
  ADAPTCP_RETURN_IF_ERROR(Fault("delete", path));
  const Status status =
      Convert(tensorflow::Env::Default()->DeleteFile(path), "delete", path);
  // hdfs has no code of its own for an object that is not there.
  tensorflow::uint64 size = 0;
  if (status.code() == Status::Code::kUnavailable &&
      absl::IsNotFound(tensorflow::Env::Default()->GetFileSize(path, &size))) {
    return Status::NotFound(path);
  }
  return status;
}

Status ObjectSize(const std::string& path, uint64_t* size) {
  ADAPTCP_RETURN_IF_ERROR(Fault("size", path));
  tensorflow::uint64 bytes = 0;
  tensorflow::Status found =
      tensorflow::Env::Default()->GetFileSize(path, &bytes);
  if (absl::IsNotFound(found) && path.compare(0, 5, "s3://") == 0) {
    // It says so, too, where it may not look, or when nobody answers: but not
    // of the bucket.
    const std::string bucket = path.substr(0, path.find('/', 5)) + "/";
    tensorflow::FileStatistics unused;
    ADAPTCP_RETURN_IF_ERROR(
        Convert(tensorflow::Env::Default()->Stat(bucket, &unused),
                "reach the bucket of", path));
    found = tensorflow::Env::Default()->GetFileSize(path, &bytes);
  }
  ADAPTCP_RETURN_IF_ERROR(Convert(found, "stat", path));
  *size = bytes;
  return Status::Ok();
}

}  // namespace remote
}  // namespace adaptcp
