// An object in memory that was read in ranges, each on its own, to be parsed
// once.

#ifndef ADAPTCP_OPS_IO_LOCAL_RANGE_BUFFER_H_
#define ADAPTCP_OPS_IO_LOCAL_RANGE_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ops/format/byte_io.h"
#include "ops/util/status.h"

namespace adaptcp {

// Different ranges may be filled at the same time; when all are, one thread
// reads from front to back: ranges that lie before what is read are let go.
class RangeBuffer final : public ByteSource {
 public:
  RangeBuffer(std::string name, uint64_t size, uint64_t range_bytes)
      : name_(std::move(name)),
        size_(size),
        range_bytes_(range_bytes),
        ranges_((size + range_bytes - 1) / range_bytes) {}

  size_t ranges() const { return ranges_.size(); }
  uint64_t range_size(size_t range) const {
    return std::min(range_bytes_, size_ - range * range_bytes_);
  }

  // Reads a range from a source; as often as it takes.
  Status Fill(size_t range, const ByteSource& source) {
    std::string& bytes = ranges_[range];
    bytes.resize(range_size(range));
    return source.ReadAt(range * range_bytes_, bytes.size(), &bytes[0]);
  }

  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Status ReadAt(uint64_t offset, size_t n, char* out) const override {
    if (offset > size_ || n > size_ - offset) {
      return Status::DataLoss(name_ + ": read past its end");
    }
    while (n > 0) {
      const size_t range = offset / range_bytes_;
      const size_t from = offset % range_bytes_;
      while (read_ < range) std::string().swap(ranges_[read_++]);
      if (ranges_[range].size() <= from) {
        return Status::Internal(name_ + ": not read in order");
      }
      const size_t part = std::min(n, ranges_[range].size() - from);
      std::memcpy(out, ranges_[range].data() + from, part);
      offset += part;
      out += part;
      n -= part;
    }
    return Status::Ok();
  }

 private:
  const std::string name_;
  const uint64_t size_;
  const uint64_t range_bytes_;
  mutable std::vector<std::string> ranges_;
  mutable size_t read_ = 0;  // ranges that were let go
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_IO_LOCAL_RANGE_BUFFER_H_
