#include "benchmarks/side_by_side/capped/control.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace capped {
namespace {

// An idle line does not save up more than this for later.
constexpr int64_t kBurstNs = 20'000'000;

int64_t Read(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

int64_t Nanoseconds(size_t n, int64_t bytes_per_second) {
  return static_cast<int64_t>(static_cast<double>(n) * 1e9 /
                              static_cast<double>(bytes_per_second));
}

void RaiseTo(Control::Field* field, int64_t value) {
  int64_t seen = field->load();
  while (seen < value && !field->compare_exchange_weak(seen, value)) {
  }
}

void SleepUntil(int64_t ns) {
  const timespec until = {ns / 1'000'000'000, ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) ==
         EINTR) {
  }
}

// While one lives, somebody waits for the line.
class Waiting {
 public:
  explicit Waiting(Control* control) : control_(control) {
    Lock();
    if (control_->line_waiting++ == 0) control_->line_since_ns = NowNs();
    control_->line_lock = 0;
  }
  ~Waiting() {
    Lock();
    if (--control_->line_waiting == 0) {
      control_->line_ns += NowNs() - control_->line_since_ns;
    }
    control_->line_lock = 0;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void Lock() {
    while (control_->line_lock.exchange(1) != 0) sched_yield();
  }

  Control* const control_;
};

}  // namespace

Control* SharedControl() {
  static Control* const control = []() -> Control* {
    const char* path = std::getenv("ADAPTCP_BENCH_CAPS");
    if (path == nullptr) return nullptr;
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE,
                      MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) return nullptr;
    Control* mapped = static_cast<Control*>(page);
    return mapped->magic == kMagic ? mapped : nullptr;
  }();
  return control;
}

int64_t NowNs() { return Read(CLOCK_MONOTONIC); }

void Pass(Control* control, Direction direction, size_t n, int64_t* free_ns) {
  const int64_t now = NowNs();
  int64_t until = 0;
  if (const int64_t rate = control->bytes_per_second_each; rate > 0) {
    *free_ns = std::max(*free_ns, now - kBurstNs) + Nanoseconds(n, rate);
    until = *free_ns;
  }
  if (const int64_t rate = control->bytes_per_second_total; rate > 0) {
    Control::Field& line = direction == Direction::kWrite
                               ? control->write_free_ns
                               : control->read_free_ns;
    int64_t before = line, after = 0;
    do {
      after = std::max(before, now - kBurstNs) + Nanoseconds(n, rate);
    } while (!line.compare_exchange_weak(before, after));
    until = std::max(until, after);
  }
  (direction == Direction::kWrite ? control->bytes_written
                                  : control->bytes_read) += n;
  if (until > now) {
    const Waiting waiting(control);
    control->waited_ns += until - now;
    SleepUntil(until);
  }
}

void Request(Control* control) {
  control->requests += 1;
  const int64_t us = control->latency_us;
  if (us > 0) SleepUntil(NowNs() + us * 1000);
}

Connection::Connection(Control* control)
    : control_(control), opened_ns_(NowNs()), free_ns_(opened_ns_) {
  RaiseTo(&control_->open_most, ++control_->open_now);
}

Connection::~Connection() {
  control_->open_now -= 1;
  RaiseTo(&control_->longest_open_ns, NowNs() - opened_ns_);
  RaiseTo(&control_->most_bytes_of_a_connection, bytes_);
}

void Connection::Carry(Direction direction, size_t n) {
  bytes_ += n;
  Pass(control_, direction, n, &free_ns_);
}

CpuOfStore::CpuOfStore(Control* control)
    : control_(control), start_ns_(Read(CLOCK_THREAD_CPUTIME_ID)) {}

CpuOfStore::~CpuOfStore() {
  control_->cpu_ns += Read(CLOCK_THREAD_CPUTIME_ID) - start_ns_;
}

}  // namespace capped
