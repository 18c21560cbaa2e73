// Zeroed memory for the slots of one stripe.

#ifndef ADAPTCP_OPS_TRACKER_SLOT_ARRAY_H_
#define ADAPTCP_OPS_TRACKER_SLOT_ARRAY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace adaptcp {

// Owns `size` value-initialised slots. Not thread-safe. Large arrays of plain
// slots are mapped by themselves: growth gives the old ones back to the system
// at once instead of leaving holes in the heap. Throws std::bad_alloc.
template <typename Slot>
class SlotArray {
 public:
  SlotArray() = default;
  explicit SlotArray(size_t size) : size_(size) {
    if (size == 0) return;
    if constexpr (kPlain) {
      const size_t bytes = size * sizeof(Slot);
      void* memory;
      if (Mapped(bytes)) {
        memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        madvise(memory, bytes, MADV_HUGEPAGE);  // advice: a refusal is fine
#endif
      } else {
        memory = std::calloc(size, sizeof(Slot));
        if (memory == nullptr) throw std::bad_alloc();
      }
      slots_ = static_cast<Slot*>(memory);  // all zero is an empty slot
    } else {
      slots_ = new Slot[size]();
    }
  }
  ~SlotArray() {
    if (slots_ == nullptr) return;
    if constexpr (kPlain) {
      const size_t bytes = size_ * sizeof(Slot);
      if (Mapped(bytes)) {
        munmap(slots_, bytes);
      } else {
        std::free(slots_);
      }
    } else {
      delete[] slots_;
    }
  }
  SlotArray(SlotArray&& other) noexcept { swap(other); }
  SlotArray& operator=(SlotArray&& other) noexcept {
    swap(other);
    return *this;
  }

  Slot* data() const { return slots_; }
  size_t size() const { return size_; }

 private:
  static constexpr bool kPlain = std::is_trivially_copyable<Slot>::value &&
                                 std::is_trivially_destructible<Slot>::value;
  static bool Mapped(size_t bytes) { return bytes >= (size_t{256} << 10); }
  void swap(SlotArray& other) {
    std::swap(slots_, other.slots_);
    std::swap(size_, other.size_);
  }

  Slot* slots_ = nullptr;
  size_t size_ = 0;
};

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_TRACKER_SLOT_ARRAY_H_
