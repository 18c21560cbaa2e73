#include "ops/io/tf_status.h"

#include <string>

namespace adaptcp {
namespace {

absl::StatusCode TensorFlowCode(Status::Code code) {
  switch (code) {
    case Status::Code::kOk: return absl::StatusCode::kOk;
    case Status::Code::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case Status::Code::kNotFound: return absl::StatusCode::kNotFound;
    case Status::Code::kDataLoss: return absl::StatusCode::kDataLoss;
    case Status::Code::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
    case Status::Code::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case Status::Code::kDeadlineExceeded:
      return absl::StatusCode::kDeadlineExceeded;
    case Status::Code::kCancelled: return absl::StatusCode::kCancelled;
    case Status::Code::kUnavailable: return absl::StatusCode::kUnavailable;
    case Status::Code::kInternal: return absl::StatusCode::kInternal;
    case Status::Code::kUnimplemented: return absl::StatusCode::kUnimplemented;
    case Status::Code::kPermissionDenied:
      return absl::StatusCode::kPermissionDenied;
  }
  return absl::StatusCode::kInternal;
}

Status::Code OurCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk: return Status::Code::kOk;
    case absl::StatusCode::kInvalidArgument:
      return Status::Code::kInvalidArgument;
    case absl::StatusCode::kNotFound: return Status::Code::kNotFound;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kOutOfRange: return Status::Code::kDataLoss;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return Status::Code::kFailedPrecondition;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return Status::Code::kPermissionDenied;
    case absl::StatusCode::kResourceExhausted:
      return Status::Code::kResourceExhausted;
    case absl::StatusCode::kDeadlineExceeded:
      return Status::Code::kDeadlineExceeded;
    case absl::StatusCode::kCancelled: return Status::Code::kCancelled;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted: return Status::Code::kUnavailable;
    case absl::StatusCode::kUnimplemented: return Status::Code::kUnimplemented;
    default: return Status::Code::kInternal;
  }
}

}  // namespace

tensorflow::Status ToTensorFlow(const Status& status) {
  if (status.ok()) return tensorflow::Status();
  return tensorflow::Status(TensorFlowCode(status.code()), status.message());
}

Status FromTensorFlow(const tensorflow::Status& status) {
  if (status.ok()) return Status::Ok();
  return Status(OurCode(status.code()), std::string(status.message()));
}

}  // namespace adaptcp
