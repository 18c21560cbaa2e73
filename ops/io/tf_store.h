// The remote half of ops/io/store.h: TensorFlow's file systems (gs:// built in;
// hdfs://, s3:// and others once tensorflow-io is imported).

#ifndef ADAPTCP_OPS_IO_TF_STORE_H_
#define ADAPTCP_OPS_IO_TF_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ops/format/byte_io.h"
#include "ops/util/status.h"

namespace adaptcp {
namespace remote {

Status NewSink(const std::string& path, std::unique_ptr<ByteSink>* sink);
Status NewSource(const std::string& path, std::unique_ptr<ByteSource>* source);
Status NewSource(const std::string& path, uint64_t size,
                 std::unique_ptr<ByteSource>* source);
uint64_t ReadAheadBytes(const std::string& path);
Status DeleteObject(const std::string& path);
Status ObjectSize(const std::string& path, uint64_t* size);

}  // namespace remote
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_TF_STORE_H_
