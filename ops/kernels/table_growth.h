// Makes room in a table of TFRA for rows that are about to come.
//
// A table grows by doubling, and only when it is nearly full: then most inserts
// move other rows first, and more than half of a restore's time goes there. TFRA
// lets nobody reserve. But its hash map (libcuckoo) also doubles when the two
// buckets that a key may be in are full and so are all that their rows could be
// moved to, and nine keys that share both of their buckets are enough for that.

#ifndef ADAPTCP_OPS_KERNELS_TABLE_GROWTH_H_
#define ADAPTCP_OPS_KERNELS_TABLE_GROWTH_H_

#include <cstdint>
#include <vector>

#include "ops/util/status.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {

// Removes every row.
Status EmptyTable(tensorflow::OpKernelContext* ctx,
                  tensorflow::lookup::LookupInterface* table);

// What can be seen of a table from the order in which it exports its keys.
struct TableShape {
  int bits = 0;    // it has 2^bits buckets; 0: does not look like libcuckoo's
  int full = 0;    // buckets that hold four rows
  int fuller = 0;  // buckets that seem to hold more
};

// `keys`: all of a table that holds some thousands at least, as exported. K is
// int64_t or int32_t, here and below.
template <typename K>
TableShape ShapeOf(const K* keys, size_t n);

// Nine keys that have both of their buckets in common in a table of 2^bits
// buckets, and find room in one of 2^(bits+1); empty if none were found.
template <typename K>
std::vector<K> CrowdingKeys(int bits);

// Grows an empty table that nobody else uses to the number of slots that it would
// have when it held `rows` rows, or less far if that takes long, and leaves it
// empty. `ctx` is of an op whose first outputs are "keys" and "values", of the
// table's types, and which it does not set. *slots: what the table has then, 0 if
// unknown. Tables whose keys are no integers, whose values are strings, or that do
// not look as expected stay as they are. Rows that somebody writes meanwhile are
// removed: ask the tracker afterwards whether there were any. FailedPrecondition if
// the table is not empty, or somebody removes rows.
Status GrowTable(tensorflow::OpKernelContext* ctx,
                 tensorflow::lookup::LookupInterface* table, uint64_t rows,
                 uint64_t* slots);

}  // namespace adaptcp

#endif  // ADAPTCP_OPS_KERNELS_TABLE_GROWTH_H_
