// The result of an operation that may fail. The C++ below ops/kernels knows no
// TensorFlow, so that it can be built and tested alone; the kernels turn a
// Status into a tensorflow::Status at their boundary.

#ifndef ADAPTCP_OPS_UTIL_STATUS_H_
#define ADAPTCP_OPS_UTIL_STATUS_H_

#include <string>
#include <utility>

namespace adaptcp {

// Thread-compatible value type: copies are independent.
class [[nodiscard]] Status {
 public:
  enum class Code : int {
    kOk = 0,
    kInvalidArgument,
    kNotFound,
    kDataLoss,
    kFailedPrecondition,
    kResourceExhausted,
    kDeadlineExceeded,
    kCancelled,
    kUnavailable,
    kInternal,
    kUnimplemented,
    kPermissionDenied,
  };

  Status() = default;
  Status(Code code, std::string message)
      : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }
  static Status InvalidArgument(std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  }
  static Status NotFound(std::string message) {
    return Status(Code::kNotFound, std::move(message));
  }
  static Status DataLoss(std::string message) {
    return Status(Code::kDataLoss, std::move(message));
  }
  static Status FailedPrecondition(std::string message) {
    return Status(Code::kFailedPrecondition, std::move(message));
  }
  static Status ResourceExhausted(std::string message) {
    return Status(Code::kResourceExhausted, std::move(message));
  }
  static Status DeadlineExceeded(std::string message) {
    return Status(Code::kDeadlineExceeded, std::move(message));
  }
  static Status Cancelled(std::string message) {
    return Status(Code::kCancelled, std::move(message));
  }
  static Status Unavailable(std::string message) {
    return Status(Code::kUnavailable, std::move(message));
  }
  static Status Internal(std::string message) {
    return Status(Code::kInternal, std::move(message));
  }
  static Status Unimplemented(std::string message) {
    return Status(Code::kUnimplemented, std::move(message));
  }

  static Status PermissionDenied(std::string message) {
    return Status(Code::kPermissionDenied, std::move(message));
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  // Empty if ok().
  const std::string& message() const { return message_; }

  // "DATA_LOSS: segment 3 ends early", for logs and test failures.
  std::string ToString() const {
    return ok() ? "OK" : std::string(CodeName(code_)) + ": " + message_;
  }

  static const char* CodeName(Code code) {
    switch (code) {
      case Code::kOk: return "OK";
      case Code::kInvalidArgument: return "INVALID_ARGUMENT";
      case Code::kNotFound: return "NOT_FOUND";
      case Code::kDataLoss: return "DATA_LOSS";
      case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
      case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
      case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
      case Code::kCancelled: return "CANCELLED";
      case Code::kUnavailable: return "UNAVAILABLE";
      case Code::kInternal: return "INTERNAL";
      case Code::kUnimplemented: return "UNIMPLEMENTED";
      case Code::kPermissionDenied: return "PERMISSION_DENIED";
    }
    return "UNKNOWN";
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace adaptcp

// Returns the status of `expr` from the enclosing function unless it is ok.
#define ADAPTCP_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    ::adaptcp::Status adaptcp_status_ = (expr);        \
    if (!adaptcp_status_.ok()) return adaptcp_status_; \
  } while (0)

#endif  // ADAPTCP_OPS_UTIL_STATUS_H_
