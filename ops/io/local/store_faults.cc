#include "ops/io/local/store_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Fault {
  enum Kind { kKill, kErrno, kShort, kHang } kind;
  int error;
  uint64_t at;
  bool and_after;
};

struct Plan {
  std::vector<Fault> faults;
  std::string match;
  std::string log;
  std::string trace;
};

// A whole decimal number.
bool ParseNumber(const std::string& text, uint64_t* value) {
  if (text.empty() || text.size() > 18) return false;
  *value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

bool ParseDirective(const std::string& text, Plan* plan) {
  if (text.rfind("match=", 0) == 0) {
    plan->match = text.substr(6);
    return !plan->match.empty();
  }
  if (text.rfind("log=", 0) == 0) {
    plan->log = text.substr(4);
    return !plan->log.empty();
  }
  if (text.rfind("trace=", 0) == 0) {
    plan->trace = text.substr(6);
    return !plan->trace.empty();
  }
  const size_t at = text.find('@');
  if (at == std::string::npos) return false;
  const std::string what = text.substr(0, at);
  std::string number = text.substr(at + 1);
  Fault fault{};
  uint64_t error = 0;
  if (what == "kill") {
    fault.kind = Fault::kKill;
  } else if (what == "hang") {
    fault.kind = Fault::kHang;
  } else if (what == "short") {
    fault.kind = Fault::kShort;
    error = ENOSPC;
  } else if (what.rfind("errno=", 0) == 0 &&
             ParseNumber(what.substr(6), &error) && error > 0 &&
             error < 4096) {
    fault.kind = Fault::kErrno;
  } else {
    return false;
  }
  if ((fault.kind == Fault::kErrno || fault.kind == Fault::kHang) &&
      !number.empty() && number.back() == '+') {
    fault.and_after = true;
    number.pop_back();
  }
  fault.error = static_cast<int>(error);
  if (!ParseNumber(number, &fault.at) || fault.at == 0) return false;
  plan->faults.push_back(fault);
  return true;
}

bool ParsePlan(const char* text, Plan* plan) {
  const std::string all = text == nullptr ? "" : text;
  size_t start = 0;
  while (start < all.size()) {
    size_t end = all.find(';', start);
    if (end == std::string::npos) end = all.size();
    if (!ParseDirective(all.substr(start, end - start), plan)) return false;
    start = end + 1;
  }
  return true;
}

bool IsArmed(const Plan& plan) {
  return !plan.faults.empty() || !plan.log.empty() || !plan.trace.empty() ||
         !plan.match.empty();
}

// Process-wide and never destroyed, so that threads which still write while the
// process exits find it alive.
struct State {
  State() {
    const char* text = std::getenv("ADAPTCP_STORE_FAULTS");
    malformed = !ParsePlan(text, &plan);
    if (malformed) {
      std::fprintf(stderr,
                   "ADAPTCP_STORE_FAULTS can't be understood, every store "
                   "operation will fail. Received: %s\n",
                   text);
    }
    armed = malformed || IsArmed(plan);
  }

  std::atomic<uint64_t> count{0};
  std::atomic<bool> armed{false};
  std::mutex mutex;  // guards the rest; held while an operation is logged
  std::condition_variable replaced;
  uint64_t plans = 0;  // how often the plan was replaced
  Plan plan;
  bool malformed = false;
};

State& GetState() {
  static State* const state = new State;
  return *state;
}

const char* BaseName(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// One write, so that the lines of several processes don't mix.
void Append(const std::string& log, const std::string& line) {
  const int fd =
      open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return;
  if (write(fd, line.data(), line.size()) < 0) std::perror("store log");
  close(fd);
}

void Trace(const std::string& folder, uint64_t n, const char* op,
           const char* path) {
  struct stat info;
  const bool is_file = stat(path, &info) == 0 && S_ISREG(info.st_mode);
  const std::string number = std::to_string(n);
  Append(folder + "/log",
         number + " " + op + " " +
             std::to_string(is_file ? static_cast<int64_t>(info.st_size) : -1) +
             " " + path + "\n");
  if (is_file && std::strcmp(op, "delete") == 0 &&
      link(path, (folder + "/" + number).c_str()) != 0) {
    std::perror("store trace");
  }
}

int Check(const char* op, const char* path, int* half) {
  *half = 0;
  State& state = GetState();
  if (!state.armed.load(std::memory_order_acquire)) {
    state.count.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  std::unique_lock<std::mutex> lock(state.mutex);
  if (state.malformed) return EINVAL;
  if (std::strstr(path, state.plan.match.c_str()) == nullptr) return 0;
  const uint64_t n = state.count.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!state.plan.log.empty()) {
    Append(state.plan.log,
           std::to_string(n) + " " + op + " " + BaseName(path) + "\n");
  }
  if (!state.plan.trace.empty()) Trace(state.plan.trace, n, op, path);
  for (const Fault& fault : state.plan.faults) {
    if (n != fault.at && !(fault.and_after && n > fault.at)) continue;
    if (fault.kind == Fault::kKill) raise(SIGKILL);
    if (fault.kind == Fault::kHang) {
      const uint64_t plan = state.plans;
      state.replaced.wait(lock, [&] { return state.plans != plan; });
      return 0;
    }
    *half = fault.kind == Fault::kShort ? 1 : 0;
    return fault.error;
  }
  return 0;
}

}  // namespace

extern "C" {

int adaptcp_store_op(const char* op, const char* path) {
  int half;
  return Check(op, path, &half);
}

int adaptcp_store_write_op(const char* path, int* half) {
  return Check("write", path, half);
}

int adaptcp_store_faults(const char* plan) {
  Plan parsed;
  if (!ParsePlan(plan, &parsed)) return EINVAL;
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.plan = parsed;
  state.malformed = false;
  state.count.store(0, std::memory_order_relaxed);
  state.armed.store(IsArmed(parsed), std::memory_order_release);
  ++state.plans;
  state.replaced.notify_all();
  return 0;
}

uint64_t adaptcp_store_op_count(void) {
  return GetState().count.load(std::memory_order_relaxed);
}

}  // extern "C"
