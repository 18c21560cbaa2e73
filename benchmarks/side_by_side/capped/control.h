// What all processes that use a capped store share: the caps, and what they
// have moved. One page of a file, mapped by each; `control.py` knows the places.

#ifndef TFADAPTCP_BENCHMARKS_SIDE_BY_SIDE_CAPPED_CONTROL_H_
#define TFADAPTCP_BENCHMARKS_SIDE_BY_SIDE_CAPPED_CONTROL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace capped {

// Every field has 8 bytes and is changed by any process at any time.
struct Control {
  using Field = std::atomic<int64_t>;
  Field magic;
  // Set by the benchmark. 0: no cap, no latency.
  Field bytes_per_second_each, bytes_per_second_total, latency_us;
  // When, on the monotonic clock of the machine, all that was let through so far
  // has passed the total cap.
  Field write_free_ns, read_free_ns;
  // Counted by the file systems.
  Field bytes_written, bytes_read, objects_written, objects_opened, requests;
  Field open_now, open_most, longest_open_ns, most_bytes_of_a_connection;
  Field waited_ns, cpu_ns;
  // How long anybody was waiting for the line, and what is needed to know that.
  Field line_ns, line_lock, line_waiting, line_since_ns;
};
static_assert(sizeof(Control) == 21 * 8 && Control::Field::is_always_lock_free);

constexpr int64_t kMagic = 0x3144455050414331;  // "1CAPPED1"

// The mapped page that $ADAPTCP_BENCH_CAPS names; nullptr if it names none.
Control* SharedControl();

int64_t NowNs();

// Which direction of the store's line bytes take.
enum class Direction { kWrite, kRead };

// Returns after the time that `n` bytes take. `free_ns` is when what the
// connection has carried so far has passed its own cap.
void Pass(Control* control, Direction direction, size_t n, int64_t* free_ns);

// Returns after the time that the store takes to answer a request.
void Request(Control* control);

// A connection, from its opening to its end.
class Connection {
 public:
  explicit Connection(Control* control);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Carry(Direction direction, size_t n);

 private:
  Control* const control_;
  const int64_t opened_ns_;
  // A new one has saved up nothing: many short ones would pass the cap otherwise.
  int64_t free_ns_;
  std::atomic<int64_t> bytes_{0};
};

// Adds the CPU time that the calling thread uses in its scope to `cpu_ns`.
class CpuOfStore {
 public:
  explicit CpuOfStore(Control* control);
  ~CpuOfStore();

 private:
  Control* const control_;
  const int64_t start_ns_;
};

}  // namespace capped

#endif  // TFADAPTCP_BENCHMARKS_SIDE_BY_SIDE_CAPPED_CONTROL_H_
