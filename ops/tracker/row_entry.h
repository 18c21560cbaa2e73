// What the tracker knows about one row, and the sequence numbers it counts in.

#ifndef ADAPTCP_OPS_TRACKER_ROW_ENTRY_H_
#define ADAPTCP_OPS_TRACKER_ROW_ENTRY_H_

#include <cstdint>

namespace adaptcp {

// The number of a checkpoint. They start at 1 and are never reused; the writes
// between the cuts n-1 and n form interval n. 0 means none.
using Seq = uint32_t;
// Marks keep 30 bits of a sequence.
constexpr Seq kMaxSequence = (Seq{1} << 30) - 2;

// How the row was captured for the checkpoint its mark names.
enum class MarkClass : uint32_t {
  kCold = 0,       // into the increment (or the base)
  kHot = 1,        // into the differential
  kTombstone = 2,  // into the increment, all tables lacking the key
  kResolved = 3,   // the outcome of that checkpoint has been applied
};

constexpr uint32_t MakeMark(Seq sequence, MarkClass c) {
  return sequence << 2 | static_cast<uint32_t>(c);
}
constexpr Seq MarkSequence(uint32_t mark) { return mark >> 2; }
constexpr MarkClass ClassOfMark(uint32_t mark) {
  return static_cast<MarkClass>(mark & 3);
}

// 24 bytes for int64 keys, 20 for int32. All zero is an empty slot: a row that
// is tracked has last_update >= 1, so no key value is reserved.
template <typename K>
struct RowEntry {
  K key{};
  Seq last_update = 0;  // interval of the last write
  Seq last_saved = 0;   // last committed checkpoint that saved it cold
  uint32_t mark = 0;    // MakeMark(checkpoint, class) of the last capture
  float estimate = 0;   // as of last_update; what of, says Decay

  // The invariant: `base` is the start of the newest committed base.
  bool Unsaved(Seq base) const {
    return last_update > (last_saved > base ? last_saved : base);
  }
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_ROW_ENTRY_H_
