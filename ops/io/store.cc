#include "ops/io/store.h"

#include "ops/io/local/local_store.h"
#include "ops/io/tf_store.h"

namespace adaptcp {

bool IsLocalPath(const std::string& path, std::string* local) {
  const size_t scheme = path.find("://");
  if (scheme == std::string::npos) {
    *local = path;
    return true;
  }
  if (path.compare(0, scheme, "file") != 0) return false;
  *local = path.substr(scheme + 3);
  return true;
}

Status NewSink(const std::string& path, std::unique_ptr<ByteSink>* sink) {
  std::string local;
  return IsLocalPath(path, &local) ? local::NewSink(local, sink)
                                   : remote::NewSink(path, sink);
}

Status NewSource(const std::string& path,
                 std::unique_ptr<ByteSource>* source) {
  std::string local;
  return IsLocalPath(path, &local) ? local::NewSource(local, source)
                                   : remote::NewSource(path, source);
}

Status NewSource(const std::string& path, uint64_t size,
                 std::unique_ptr<ByteSource>* source) {
  std::string local;
  return IsLocalPath(path, &local) ? local::NewSource(local, source)
                                   : remote::NewSource(path, size, source);
}

uint64_t ReadAheadBytes(const std::string& path) {
  std::string local;
  return IsLocalPath(path, &local) ? 0 : remote::ReadAheadBytes(path);
}

Status DeleteObject(const std::string& path) {
  std::string local;
  return IsLocalPath(path, &local) ? local::DeleteObject(local)
                                   : remote::DeleteObject(path);
}

Status ObjectSize(const std::string& path, uint64_t* size) {
  std::string local;
  return IsLocalPath(path, &local) ? local::ObjectSize(local, size)
                                   : remote::ObjectSize(path, size);
}

}  // namespace adaptcp
