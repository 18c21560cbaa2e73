// Gathers the small pieces of a segment (12-byte frame headers and the like)
// into writes that a file system likes.

#ifndef ADAPTCP_OPS_IO_LOCAL_BUFFERED_SINK_H_
#define ADAPTCP_OPS_IO_LOCAL_BUFFERED_SINK_H_

#include <string>
#include <string_view>
#include <utility>

#include "ops/format/byte_io.h"
#include "ops/io/local/local_store.h"
#include "ops/io/local/store_faults.h"

namespace adaptcp {

// One thread at a time. A subclass says how bytes are written and made durable;
// neither is called again after it has failed.
class BufferedSink : public ByteSink {
 public:
  explicit BufferedSink(std::string name) : name_(std::move(name)) {}

  Status Append(std::string_view data) final {
    if (!status_.ok()) return status_;
    if (closed_) {
      return Status::FailedPrecondition(name_ + ": a write after the close");
    }
    if (buffer_.size() + data.size() > kBufferBytes) {
      ADAPTCP_RETURN_IF_ERROR(WriteBuffer());
      if (data.size() >= kBufferBytes) return status_ = WriteOut(data);
    }
    buffer_.append(data);
    return Status::Ok();
  }

  Status Flush() final {
    if (!status_.ok()) return status_;
    ADAPTCP_RETURN_IF_ERROR(WriteBuffer());
    std::string().swap(buffer_);
    return Status::Ok();
  }

  Status SyncAndClose() final {
    if (!status_.ok()) return status_;
    if (closed_) return Status::FailedPrecondition(name_ + ": closed twice");
    ADAPTCP_RETURN_IF_ERROR(WriteBuffer());
    closed_ = true;
    return status_ = Close();
  }

  const std::string& name() const final { return name_; }

 protected:
  virtual Status Write(std::string_view data) = 0;
  virtual Status Close() = 0;

 private:
  static constexpr size_t kBufferBytes = 1 << 20;

  // Unless it is to fail instead, perhaps after half of the bytes.
  Status WriteOut(std::string_view data) {
    int half = 0;
    const int error = adaptcp_store_write_op(name_.c_str(), &half);
    if (error == 0) return Write(data);
    if (half != 0) {
      ADAPTCP_RETURN_IF_ERROR(Write(data.substr(0, data.size() / 2)));
    }
    return local::ErrnoToStatus(error, "write", name_);
  }

  Status WriteBuffer() {
    if (buffer_.empty()) return Status::Ok();
    status_ = WriteOut(buffer_);
    buffer_.clear();
    return status_;
  }

  const std::string name_;
  std::string buffer_;
  Status status_;
  bool closed_ = false;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_BUFFERED_SINK_H_
