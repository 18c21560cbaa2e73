// Counts every operation that this process makes on a store, and lets tests
// make any of them fail or kill the process before it. C++ and Python go through
// the same counter.
//
// A plan is a list of directives separated by ';', from the environment variable
// ADAPTCP_STORE_FAULTS at the first operation, or from adaptcp_store_faults():
//
//   kill@N      raise SIGKILL before the N-th operation (the first is 1)
//   errno=E@N   the N-th operation is not made and fails with errno E
//   errno=E@N+  so does every one from the N-th on
//   short@N     the N-th operation, if it is a write, writes half and then fails
//               with ENOSPC; any other just fails with it
//   hang@N      the N-th operation waits until the plan is replaced, and is made then
//   hang@N+     so does every one from the N-th on
//   match=TEXT  only operations whose path contains TEXT are counted
//   log=PATH    appends "N operation basename" for each counted one
//   trace=DIR   appends "N operation size path" for each counted one to DIR/log,
//               size being that of the file as it is (-1: there is none), and
//               keeps what is about to be deleted by a link named DIR/N: enough
//               to tell what a loss of power after any operation would leave
//
// Without a plan an operation costs one atomic increment.

#ifndef ADAPTCP_OPS_IO_LOCAL_STORE_FAULTS_H_
#define ADAPTCP_OPS_IO_LOCAL_STORE_FAULTS_H_

#include <cstdint>

extern "C" {

// To be called before each operation: "create", "write", "fsync", "close",
// "fsync_dir", "mkdir", "open", "read", "size", "list", "delete". Returns 0, or
// the errno that the operation shall fail with instead of being made (EINVAL for
// all of them if the plan in the environment can't be understood). Any thread.
int adaptcp_store_op(const char* op, const char* path);

// As adaptcp_store_op("write", path). If it fails and *half is 1, half of the
// bytes are to be written first.
int adaptcp_store_write_op(const char* path, int* half);

// Replaces the plan and starts counting at 0; "" or null ends all faults.
// Returns 0, or EINVAL and changes nothing if the plan can't be understood.
int adaptcp_store_faults(const char* plan);

// Operations counted since the start or the last adaptcp_store_faults.
uint64_t adaptcp_store_op_count(void);

}  // extern "C"

#endif  // ADAPTCP_OPS_IO_LOCAL_STORE_FAULTS_H_
