// Reads rows out of TFRA tables together with whether each is there.

#ifndef ADAPTCP_OPS_KERNELS_ROW_READER_H_
#define ADAPTCP_OPS_KERNELS_ROW_READER_H_

#include <cstdint>
#include <vector>

#include "ops/util/status.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace adaptcp {

// Fills `values` [n, dim] with the rows of `keys` [n] and present[i] with
// whether key i is in the table; values of absent rows are unspecified.
//
// LookupInterface has no FindWithExists. Find takes the row to return for
// absent keys: a key that returns marker A when A is the default, and marker B
// when B is, is absent; a stored row cannot equal both. The second Find is done
// for the keys that answered with A, which hardly any stored row does.
Status ReadRows(tensorflow::OpKernelContext* ctx,
                tensorflow::lookup::LookupInterface* table,
                const tensorflow::Tensor& keys, tensorflow::Tensor* values,
                std::vector<uint8_t>* present);

// keys[idx[0]], keys[idx[1]], ... as a new tensor. keys: int64, int32 or string.
tensorflow::Tensor GatherKeys(const tensorflow::Tensor& keys,
                              const std::vector<uint32_t>& idx);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_ROW_READER_H_
