// The two interfaces between the file format and where the bytes live. The
// format knows no file system; ops/io has sinks and sources for local files and
// for TensorFlow's file systems, tests have them for strings.

#ifndef ADAPTCP_OPS_FORMAT_BYTE_IO_H_
#define ADAPTCP_OPS_FORMAT_BYTE_IO_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ops/util/status.h"

namespace adaptcp {

// One new object, written once from front to back. One thread at a time; every
// call may block for as long as the store does. After the first error all
// further calls return an error.
class ByteSink {
 public:
  // Abandons the object if SyncAndClose was not called: what was written of it
  // may stay behind, under its name, and is never valid.
  virtual ~ByteSink() = default;
  virtual Status Append(std::string_view data) = 0;
  // Writes out, and frees, what was gathered of it: nothing is appended any
  // more, and it may be long until the close. Need not be called.
  virtual Status Flush() { return Status::Ok(); }
  // OK: the object is complete, and survives a crash of the machine.
  virtual Status SyncAndClose() = 0;
  // For messages.
  virtual const std::string& name() const = 0;
};

// One existing, immutable object. Any thread; every call may block.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Reads exactly n bytes at `offset` into `out`, or fails: DataLoss where the
  // object ends before offset + n.
  virtual Status ReadAt(uint64_t offset, size_t n, char* out) const = 0;
  virtual const std::string& name() const = 0;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_BYTE_IO_H_
