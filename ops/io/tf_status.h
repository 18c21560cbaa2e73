// Between adaptcp::Status and TensorFlow's.

#ifndef ADAPTCP_OPS_IO_TF_STATUS_H_
#define ADAPTCP_OPS_IO_TF_STATUS_H_

#include "ops/util/status.h"
#include "tensorflow/core/platform/status.h"

namespace adaptcp {

tensorflow::Status ToTensorFlow(const Status& status);

// Codes we have no name for become Internal; the text is kept.
Status FromTensorFlow(const tensorflow::Status& status);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_TF_STATUS_H_
