// Spreads blocks over as many segment files as segment_bytes asks for.

#ifndef ADAPTCP_OPS_FORMAT_SEGMENT_FILES_H_
#define ADAPTCP_OPS_FORMAT_SEGMENT_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/format/segment_writer.h"

namespace adaptcp {

// One thread at a time; calls block as the sinks do. Several sets whose paths
// differ may be written in parallel.
class SegmentFiles {
 public:
  // Opens a sink for a name that has never been used.
  using OpenSink = std::function<Status(const std::string& path,
                                        std::unique_ptr<ByteSink>* sink)>;
  // A path that has never been used.
  using NextPath = std::function<std::string()>;

  // Files are opened when they get their first block: no block, no file. A file
  // is finished before it passes segment_bytes, unless its only block is larger
  // than that.
  SegmentFiles(SegmentHeader header, uint64_t segment_bytes, NextPath next_path,
               OpenSink open);

  Status Append(const EncodedBlock& block);

  // Finishes the file that is open, if any: the next block begins another one.
  Status Seal();

  // Finishes the last file. OK: every sink was closed, *infos has the files in
  // the order they were written. Call once.
  Status Finish(std::vector<SegmentInfo>* infos);

 private:
  Status FinishCurrent();

  const SegmentHeader header_;
  const uint64_t segment_bytes_;
  const NextPath next_path_;
  const OpenSink open_;
  std::unique_ptr<SegmentWriter> current_;
  std::string current_path_;
  std::vector<SegmentInfo> finished_;
  Status status_;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_FORMAT_SEGMENT_FILES_H_
