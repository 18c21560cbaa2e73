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

#include "ops/util/status.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace adaptcp {

// Removes every row.
Status EmptyTable(tensorflow::OpKernelContext* ctx,
                  tensorflow::lookup::LookupInterface* table);

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
