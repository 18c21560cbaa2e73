// Registers the ops. Those named Adaptcp>CuckooHashTable* have, argument for
// argument and attribute for attribute, the signature of the TFRA op of the
// same name: renaming the op of a node is all it takes to get a graph without
// tfadaptcp (tfadaptcp/embeddings/export.py), and TFRA's own kernel can run on
// their OpKernelContext (tracked_table_ops.cc).

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tensorflow {
namespace {

Status UnknownShapes(shape_inference::InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) {
    c->set_output(i, c->UnknownShape());
  }
  return OkStatus();
}

Status ScalarOutput(shape_inference::InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return OkStatus();
}

// The shape TFRA infers for a lookup: that of the keys, then the row.
Status FindShape(shape_inference::InferenceContext* c) {
  shape_inference::ShapeHandle row;
  shape_inference::ShapeHandle defaults = c->input(2);
  shape_inference::ShapeHandle values = c->UnknownShape();
  if (c->RankKnown(defaults) && c->Rank(defaults) >= 1) {
    TF_RETURN_IF_ERROR(c->Subshape(defaults, -1, &row));
    TF_RETURN_IF_ERROR(c->Concatenate(c->input(1), row, &values));
  }
  c->set_output(0, values);
  if (c->num_outputs() > 1) c->set_output(1, c->input(1));
  return OkStatus();
}

}  // namespace

REGISTER_OP("Adaptcp>CuckooHashTableFind")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("default_value: Tout")
    .Output("values: Tout")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(FindShape)
    .Doc("TFRA's CuckooHashTableFind, known to the tracker.");

REGISTER_OP("Adaptcp>CuckooHashTableFindWithExists")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("default_value: Tout")
    .Output("values: Tout")
    .Output("exists: bool")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(FindShape)
    .Doc("TFRA's CuckooHashTableFindWithExists, known to the tracker.");

REGISTER_OP("Adaptcp>CuckooHashTableInsert")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("values: Tout")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("TFRA's CuckooHashTableInsert behind the gate: captures the rows a "
         "pending checkpoint still needs, marks the keys, then writes.");

REGISTER_OP("Adaptcp>CuckooHashTableAccum")
    .Input("table_handle: resource")
    .Input("keys: key_dtype")
    .Input("values_or_deltas: value_dtype")
    .Input("exists: bool")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("TFRA's CuckooHashTableAccum behind the gate, as Insert.");

REGISTER_OP("Adaptcp>CuckooHashTableRemove")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Attr("Tin: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("TFRA's CuckooHashTableRemove behind the gate, as Insert; keys that "
         "have no row are not marked.");

REGISTER_OP("Adaptcp>CuckooHashTableClear")
    .Input("table_handle: resource")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("TFRA's CuckooHashTableClear. On a tracked table under the closed "
         "gate: captures all that a pending checkpoint still needs, clears, "
         "marks every row. The next checkpoint is a base.");

REGISTER_OP("Adaptcp>CuckooHashTableImport")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("values: Tout")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("TFRA's CuckooHashTableImport, as Clear.");

REGISTER_OP("Adaptcp>CuckooHashTableLoadFromFileSystem")
    .Input("table_handle: resource")
    .Input("dirpath: string")
    .Input("file_name: string")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Attr("dirpath_env: string")
    .Attr("load_entire_dir: bool")
    .Attr("buffer_size: int >= 1")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("TFRA's CuckooHashTableLoadFromFileSystem, as Clear; an export under "
         "the closed gate lists the keys that were loaded.");

REGISTER_OP("Adaptcp>Info")
    .Output("info: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("JSON: versions this library was built for, the incarnation of this "
         "process (a random name it keeps for life), and the newest generation "
         "that has written through it, by directory.");

REGISTER_OP("Adaptcp>AttachGroup")
    .Input("table_handles: num_tables * resource")
    .Input("request: string")
    .Output("reply: string")
    .Attr("num_tables: int >= 0")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Puts the tables of one group shard (parameter first, then its "
         "slots) under the tracker of a session; without tables, opens the "
         "session for dense tensors alone. request: JSON {session, "
         "group, shard, num_shards, key_dtype, tables: [{name, dtype, dim}], "
         "decay, estimator}. reply: JSON {sizes: rows each table holds now}; "
         "tables that hold rows must be seeded or cleared before the first cut.");

REGISTER_OP("Adaptcp>SeedTable")
    .Input("request: string")
    .Input("table_handle: resource")
    .Output("keys: key_dtype")
    .Output("values: value_dtype")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Lists every row of an attached table as unsaved. Exports the table "
         "under the closed gate. request: JSON {session, restore}.");

REGISTER_OP("Adaptcp>GrowTable")
    .Input("request: string")
    .Input("table_handle: resource")
    .Output("keys: key_dtype")
    .Output("values: value_dtype")
    .Output("slots: int64")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Grows a table that a restore has emptied, and that nobody uses, to the "
         "number of slots that `rows` rows would make it have. request: JSON "
         "{session, restore, rows}. keys, values: empty. slots: how many it has, 0 "
         "if that could not be found out, and the table stayed as it was.");

REGISTER_OP("Adaptcp>Detach")
    .Input("session: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Ends a session: its tables are tracked no more.");

REGISTER_OP("Adaptcp>Cut")
    .Input("request: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Takes the cut of a checkpoint under the closed gate. Nothing is "
         "copied. reply: JSON {tables: {table: rows}, bytes: what the save may "
         "have to write, predicted, if asked for, incarnation}; or {replaced: "
         "[groups], ...}, and no cut was taken: tables were cleared, imported "
         "or loaded, so that it has to be a base.");

REGISTER_OP("Adaptcp>CopyVariables")
    .Input("variables: num_variables * resource")
    .Input("scalars: num_scalars * resource")
    .Output("copies: dtypes")
    .Output("numbers: double")
    .Attr("num_variables: int >= 0")
    .Attr("num_scalars: int >= 0")
    .Attr("dtypes: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Copies the values of resource variables, and reads those of scalar "
         "ones as numbers.");

REGISTER_OP("Adaptcp>Save")
    .Input("request: string")
    .Input("dense: Tdense")
    .Output("reply: string")
    .Attr("Tdense: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Drains the pending cut into segments, with the given dense tensors "
         "(named in the request). Asynchronous: it holds no thread of the op "
         "pool. reply: JSON {objects, row_bytes, stats}.");

REGISTER_OP("Adaptcp>ProbeBuffer")
    .Input("request: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Writes to, syncs and tidies up the buffer directory `buffer_dir` of "
         "this host. Asynchronous. reply: JSON {path, free_bytes, removed}.");

REGISTER_OP("Adaptcp>WaitCaptured")
    .Input("request: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Returns when every row of the cut `sequence` is captured, or its "
         "checkpoint has ended. Asynchronous.");

REGISTER_OP("Adaptcp>ScanBase")
    .Input("request: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Writes all rows into segments of a base that starts at the cut "
         "`start`, while training and checkpoints go on. Asynchronous. reply: "
         "JSON {objects}.");

REGISTER_OP("Adaptcp>VoidScans")
    .Input("session: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Makes the running ScanBase of a session fail.");

REGISTER_OP("Adaptcp>Resolve")
    .Input("request: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Tells a session whether checkpoint `sequence` was committed.");

REGISTER_OP("Adaptcp>Stats")
    .Input("session: string")
    .Output("stats: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("JSON: counts and memory of each group.");

REGISTER_OP("Adaptcp>Histograms")
    .Input("request: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("JSON: how the update probabilities of the rows of each group would be "
         "distributed at a cut `sequence` taken now; of a sample, scaled.");

REGISTER_OP("Adaptcp>RestoreBegin")
    .Input("request: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Clears the tables of a session, all or those in the request, and "
         "starts to restore.");

REGISTER_OP("Adaptcp>RestoreSegments")
    .Input("request: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Applies segments, newest level first, to the shards they were "
         "written from. Asynchronous.");

REGISTER_OP("Adaptcp>OpenStream")
    .Input("request: string")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Starts to read the objects of a restore whose rows are to be routed, "
         "ahead of NextPiece and within a bound of memory.");

REGISTER_OP("Adaptcp>NextPiece")
    .Input("request: string")
    .Output("group: int32")
    .Output("piece: int64")
    .SetIsStateful()
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return OkStatus();
    })
    .Doc("Waits for the next piece of a level of the stream: of which of its "
         "groups, and the piece's number; group -1: there is no more. "
         "Asynchronous.");

REGISTER_OP("Adaptcp>PieceRows")
    .Input("request: string")
    .Input("piece: int64")
    .Output("keys: Tkeys")
    .Output("p: float")
    .Output("present: bool")
    .Output("values: Tvalues")
    .Attr("Tkeys: type")
    .Attr("Tvalues: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("The rows of a piece, once: keys [n], indicators [n], presence [n, "
         "tables], values [n, dim] per table (zeros where absent).");

REGISTER_OP("Adaptcp>VerifySegment")
    .Input("request: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Reads one segment and verifies every checksum and count in it. reply: "
         "JSON {dense: {tensor: elements}}. Asynchronous.");

REGISTER_OP("Adaptcp>SegmentTable")
    .Input("request: string")
    .Output("keys: Tkey")
    .Output("present: bool")
    .Output("values: Tvalue")
    .Attr("Tkey: type")
    .Attr("Tvalue: type")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Reads one segment, verifies every checksum, and returns the rows of "
         "one table of it: keys [n] of its group, whether each has a row in the "
         "table [n], and those rows [present, dim]. Asynchronous.");

REGISTER_OP("Adaptcp>RestoreRows")
    .Input("request: string")
    .Input("keys: Tkeys")
    .Input("p: float")
    .Input("present: bool")
    .Input("values: Tvalues")
    .Attr("Tkeys: type")
    .Attr("Tvalues: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Applies routed rows to one group shard; keys seen in a newer level "
         "are skipped.");

REGISTER_OP("Adaptcp>RestoreEnd")
    .Input("request: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Ends a restore; fails if anybody wrote to its tables meanwhile. "
         "request: JSON {session, restore}. reply: JSON {sizes: {table: rows}, "
         "inserted: {table: rows that came}, received: {group: rows handed "
         "over, superseded ones too}}.");

REGISTER_OP("Adaptcp>RestoreProgress")
    .Input("session: string")
    .Output("reply: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("JSON, of the restore that began last: {bytes, rows} read and applied "
         "here, {peak_bytes, threads} of its readers.");

REGISTER_OP("Adaptcp>ReadDense")
    .Input("request: string")
    .Output("tensors: Tdense")
    .Attr("Tdense: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn(UnknownShapes)
    .Doc("Reads dense tensors, by name, out of segments, joined from their "
         "slices. Asynchronous.");

}  // namespace tensorflow
