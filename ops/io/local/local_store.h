// The local half of ops/io/store.h. Paths have no scheme. Nothing in this folder
// knows TensorFlow, so that it can be built and tested alone.

#ifndef ADAPTCP_OPS_IO_LOCAL_LOCAL_STORE_H_
#define ADAPTCP_OPS_IO_LOCAL_LOCAL_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/format/byte_io.h"
#include "ops/util/status.h"

namespace adaptcp {
namespace local {

Status NewSink(const std::string& path, std::unique_ptr<ByteSink>* sink);
// Of which the file is written when it is closed, but not durable before
// SyncObject has made it so, and its name.
Status NewUnsyncedSink(const std::string& path,
                       std::unique_ptr<ByteSink>* sink);
Status SyncObject(const std::string& path);
Status NewSource(const std::string& path, std::unique_ptr<ByteSource>* source);
Status DeleteObject(const std::string& path);
Status ObjectSize(const std::string& path, uint64_t* size);
// The names in a directory, sorted, without "." and "..". NotFound if it isn't
// there.
Status ListObjects(const std::string& directory,
                   std::vector<std::string>* names);
// Makes the directory and those above it, durably. OK if they exist.
Status MakeDirectories(const std::string& path);
// How many directories are remembered as durable, for tests.
size_t KnownDirectories();

// What an errno means to a caller of the store; the message has `what`, the path
// and the system's words.
Status ErrnoToStatus(int error, const char* what, const std::string& path);

}  // namespace local
}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_LOCAL_STORE_H_
