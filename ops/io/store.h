// Where objects live: local files, or whatever TensorFlow's file systems reach.
// Every operation passes ops/io/local/store_faults.h.
//
// A path with a scheme ("gs://...", "hdfs://...") goes to TensorFlow's Env; one
// without, or with "file://", to POSIX, because TensorFlow's Sync() on a local
// file only flushes it to the kernel and a crash of the machine would lose it.
//
// All functions may block for as long as the store does, and may be called from
// any thread. A missing object is NotFound; a store that can't be reached is
// Unavailable, never "not there".

#ifndef ADAPTCP_OPS_IO_STORE_H_
#define ADAPTCP_OPS_IO_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ops/format/byte_io.h"
#include "ops/util/status.h"

namespace adaptcp {

// Creates the object, and the directories above it. No name is ever written
// twice: FailedPrecondition if a local object exists; remote stores can't refuse
// that in one step, there the names themselves are unique. SyncAndClose makes
// the bytes, the name and the directories durable.
Status NewSink(const std::string& path, std::unique_ptr<ByteSink>* sink);

Status NewSource(const std::string& path, std::unique_ptr<ByteSource>* source);
// Of an object whose size is known: a remote store isn't asked for it.
Status NewSource(const std::string& path, uint64_t size,
                 std::unique_ptr<ByteSource>* source);

// A read of less costs as much as one of so many bytes: the file system reads
// ahead, in every source anew.
uint64_t ReadAheadBytes(const std::string& path);

// NotFound if there is none (some remote stores answer OK to that).
Status DeleteObject(const std::string& path);

Status ObjectSize(const std::string& path, uint64_t* size);

// Whether the path goes to POSIX, and what of it then.
bool IsLocalPath(const std::string& path, std::string* local);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_STORE_H_
