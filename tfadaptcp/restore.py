"""Restores a checkpoint into a model: tables and slots, dense variables, the optimizer's settings."""

import difflib
import logging
import os
import time
from typing import Any, Dict, List, Optional, Tuple, Union

import tensorflow as tf

from tfadaptcp import _ops, manager, routing
from tfadaptcp.checkpoint import chain, commit
from tfadaptcp.checkpoint.manifest import GroupSpec, Manifest, ObjectRef
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.embeddings import dense
from tfadaptcp.engine import RESTORE_SECONDS, Engine, Host
from tfadaptcp.errors import (CheckpointCorruptError, CheckpointMismatchError, CheckpointNotFoundError)
from tfadaptcp.info import RestoreReport

_log = logging.getLogger("tfadaptcp")

# Rows by which TFRA's count of a table may be off, however small it is.
_DRIFT = 16
# What tells that a checkpoint is damaged, as against a model that doesn't fit it or a store that can't be reached.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.UnimplementedError)


def load_adaptcp(self: tf.keras.Model, directory: Union[str, os.PathLike], checkpoint: Optional[str] = None,
                 strict: bool = True) -> RestoreReport:
    """Restores the newest checkpoint of a directory, or the one named, into this model.

    Tables, optimizer slots, dense variables and the optimizer's settings are replaced by those of the checkpoint, also in
    a freshly built model before its first step, and with any number of parameter servers. Reading only: the directory
    may be written to by another job meanwhile. To be called while the model doesn't train.

    Args:
        directory: the checkpoint directory, local path or URL; every parameter server must reach it by this name.
        checkpoint: the name of a checkpoint; None: the newest that is whole. If the newest is damaged, the one before it
            is taken, and the log says so.
        strict: False tolerates tables and dense variables that only the model or only the checkpoint has.

    Returns:
        A `RestoreReport`.

    Raises:
        UnbuiltModelError: the model has no variables yet.
        CheckpointNotFoundError: there is no checkpoint, or none of that name.
        CheckpointMismatchError: names, dtypes or dimensions differ; nothing was changed.
        CheckpointCorruptError: the checkpoint named is damaged, or all are; names file and offset.
        StoreUnavailableError: the directory can't be read: never taken for "no checkpoint".
    """
    manager.require_built(self)
    current = getattr(self, manager.ENGINE, None)
    if current is not None:
        current.wait_for_writer()  # see `restore`
    directory, heads = _find(directory, checkpoint)
    # That of the run that goes on, so that its manager finds these trackers fit.
    decay = heads[0].policy.get("decay", manager.DECAY) if current is None else current.decay
    # A model that isn't compiled is restored without an optimizer: for evaluation and serving.
    optimizer = None if getattr(self, "optimizer", None) is not None else False
    return _restore(manager.attach(self, optimizer, decay), directory, heads, checkpoint, strict)


def restore(engine: Engine, directory: str, checkpoint: Optional[str], strict: bool) -> RestoreReport:
    """Restores into a model that is attached; see `load_adaptcp`."""
    # A checkpoint drained from trackers that are reset meanwhile would lack rows, and pass for whole.
    engine.wait_for_writer()
    directory, heads = _find(directory, checkpoint)
    return _restore(engine, directory, heads, checkpoint, strict)


def _find(directory: Union[str, os.PathLike], checkpoint: Optional[str]) -> Tuple[str, List[Manifest]]:
    directory = manager.normalize(directory)
    store = Store()
    store.check_supported(directory)
    return directory, _candidates(store, directory, checkpoint)


def _restore(engine: Engine, directory: str, heads: List[Manifest], checkpoint: Optional[str],
             strict: bool) -> RestoreReport:
    start = time.monotonic()
    for i, head in enumerate(heads):
        missing, unexpected = _compare(engine, head, strict)
        try:
            _apply(engine, directory, head)
        except _DAMAGE as error:
            message = f"checkpoint {head.name} of {directory} is damaged: {error.message}"
            if checkpoint is not None or i + 1 == len(heads):
                raise CheckpointCorruptError(message) from error
            _log.error("%s. Falling back to %s.", message, heads[i + 1].name)
            continue
        rows = dict(head.table_rows)
        _log.info("Restored checkpoint %s: step %d, %d rows.", head.name, head.step, sum(rows.values()))
        return RestoreReport(head.name, head.step, head.epoch, head.batch, rows, head.bytes,
                             time.monotonic() - start, missing, unexpected)
    raise AssertionError("unreachable")


def _candidates(store: Store, directory: str, checkpoint: Optional[str]) -> List[Manifest]:
    """The heads to try, newest first."""
    if checkpoint is not None:
        return [commit.load(store, directory, checkpoint)]
    heads, damaged = commit.list_heads(store, directory)
    for item in damaged:
        _log.warning("Passing over a manifest: %s", item.reason)
    if not heads:
        if any(not item.torn and item.head is not None for item in damaged):
            raise CheckpointCorruptError(f"{directory}: every manifest is damaged: "
                                         f"{'; '.join(item.reason for item in damaged)}")
        raise CheckpointNotFoundError(f"There is no checkpoint in {directory}.")
    return heads[::-1]


def _compare(engine: Engine, head: Manifest, strict: bool) -> Tuple[List[str], List[str]]:
    """Returns what only the model has and what only the checkpoint has, before anything is changed."""
    ours = {group.name: group for group in engine.group_specs()}
    theirs = {group.name: group for group in head.groups}
    problems = []
    for name in sorted(ours.keys() & theirs.keys()):
        problems += _differences(ours[name], theirs[name])
    dense_ours = {spec.name: spec for spec in engine.dense_specs()}
    dense_theirs = {spec.name: spec for spec in head.dense}
    for name in sorted(dense_ours.keys() & dense_theirs.keys()):
        if dense_ours[name] != dense_theirs[name]:
            problems.append(f"dense variable {name}: Received: {_show(dense_theirs[name])} in the checkpoint. "
                            f"Expected: {_show(dense_ours[name])}")
    tables_ours = {table.name for group in ours.values() for table in group.tables} | set(dense_ours)
    tables_theirs = {table.name for group in theirs.values() for table in group.tables} | set(dense_theirs)
    missing, unexpected = sorted(tables_ours - tables_theirs), sorted(tables_theirs - tables_ours)
    # Slots of a checkpoint that a model without an optimizer has no use for.
    if engine.optimizer is None:
        unexpected = [name for name in unexpected if name not in _slots_of(theirs, ours) and name not in dense_theirs]
    if strict and (missing or unexpected):
        problems.append(f"missing in the checkpoint: {_with_nearest(missing, unexpected)}; "
                        f"unexpected in it: {_with_nearest(unexpected, missing)}")
    if problems:
        raise CheckpointMismatchError(f"checkpoint {head.name} does not fit the model: {'. '.join(problems)}")
    return missing, unexpected


def _differences(ours: GroupSpec, theirs: GroupSpec) -> List[str]:
    found = []
    if ours.key_dtype != theirs.key_dtype:
        found.append(f"table {ours.name}: Received: keys of {theirs.key_dtype} in the checkpoint. "
                     f"Expected: {ours.key_dtype}")
    specs = {table.name: table for table in theirs.tables}
    for table in ours.tables:
        other = specs.get(table.name, table)
        if other != table:
            found.append(f"table {table.name}: Received: {other.dtype} of dim {other.dim} in the checkpoint. "
                         f"Expected: {table.dtype} of dim {table.dim}")
    return found


def _slots_of(theirs: Dict[str, GroupSpec], ours: Dict[str, GroupSpec]) -> set:
    return {table.name for name in theirs.keys() & ours.keys() for table in theirs[name].tables[1:]}


def _show(spec: Any) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _with_nearest(names: List[str], others: List[str]) -> str:
    shown = []
    for name in names:
        nearest = difflib.get_close_matches(name, others, n=1)
        shown.append(f"{name} (nearest: {nearest[0]})" if nearest else name)
    return "[" + ", ".join(shown) + "]"


def _apply(engine: Engine, directory: str, head: Manifest) -> None:
    ops = _ops.lib()
    engine.move_to(directory, None)
    engine.last_sequence = max(engine.last_sequence, head.sequence)
    begin = {"next_sequence": engine.last_sequence + 1, "base_sequence": head.base_sequence}
    engine.on_all(lambda host: engine.call(host, ops.adaptcp_restore_begin, begin))
    try:
        levels = _levels(directory, head)
        if _same_sharding(engine, head):
            _restore_in_place(engine, head, levels)
        else:
            routing.restore(engine, head, levels)
        sizes: Dict[str, int] = {}
        received: Dict[str, int] = {}
        for reply in engine.on_all(
                lambda host: engine.call_named(host, ops.adaptcp_restore_end)).values():
            for total, part in ((sizes, reply["sizes"]), (received, reply["received"])):
                for name, rows in part.items():
                    total[name] = total.get(name, 0) + rows
        _check_received(head, received)
        _check_rows(head, sizes)
        _restore_dense(engine, directory, head)
    except BaseException:
        # Half restored is worse than empty: nobody may take it for the checkpoint.
        engine.on_all(lambda host: engine.call(host, ops.adaptcp_restore_begin, begin))
        raise
    dense.write_scalars(engine.optimizer, head.scalars)
    engine.move_to(directory, head)


def _levels(directory: str, head: Manifest) -> List[Dict[str, Any]]:
    """The objects with rows, by level, newest first: within a level no key occurs twice."""
    by_level: Dict[Tuple[int, int], List[ObjectRef]] = {}
    rank = {"base": 0, "increment": 1, "differential": 2}
    for ref in head.objects:
        if ref.kind in rank:
            by_level.setdefault((rank[ref.kind], ref.sequence), []).append(ref)
    return [{"sequence": sequence, "differential": kind == rank["differential"],
             "objects": [object_request(directory, ref) for ref in refs], "refs": refs}
            for (kind, sequence), refs in sorted(by_level.items(), reverse=True)]


def object_request(directory: str, ref: ObjectRef) -> Dict[str, Any]:
    """An object as the ops want it."""
    return {"path": join(directory, ref.path), "kind": ref.kind, "bytes": ref.bytes, "crc32c": ref.crc32c,
            "rows": ref.rows, "ps": ref.ps}


def _same_sharding(engine: Engine, head: Manifest) -> bool:
    """Whether every host may simply read what the ps of the same index wrote."""
    # A custom function may place keys otherwise than it did, under the same name.
    return engine.group_specs() == head.groups and not chain.is_mixed(head) and not any(
        group.partition.startswith("custom:") for group in head.groups)


def _restore_in_place(engine: Engine, head: Manifest, levels: List[Dict[str, Any]]) -> None:
    def request(host: Host) -> Dict[str, Any]:
        return {"head": head.sequence,
                "levels": [{"sequence": level["sequence"], "differential": level["differential"],
                            "objects": [item for item in level["objects"] if item["ps"] == host.index]}
                           for level in levels]}
    engine.on_all(lambda host: engine.call(host, _ops.lib().adaptcp_restore_segments, request(host)), RESTORE_SECONDS)


def _check_received(head: Manifest, received: Dict[str, int]) -> None:
    """Every row of every object has reached a shard, whichever way it went."""
    for group, rows in received.items():
        expected = sum(groups.get(group, 0) for groups in head.rows.values())
        if rows != expected:
            raise tf.errors.DataLossError(
                None, None, f"group {group}: Received: {rows} rows from the files. Expected: {expected}, as in the manifest")


def _check_rows(head: Manifest, sizes: Dict[str, int]) -> None:
    """Compares tables as wholes with what they were; rows are compared exactly, object by object, as they are read.

    Not for equality: TFRA's own count, which the manifest has to go by, drifts upwards under concurrent inserts and
    removals, by one in some thousands of them, and an error here would make a good checkpoint useless.
    """
    for table, rows in head.table_rows.items():
        if table not in sizes or sizes[table] == rows:
            continue
        text = (f"table {table}: Received: {sizes[table]} rows after the restore. Expected: about {rows}, TFRA's count at "
                "the cut")
        if sizes[table] < rows - rows // 10 - _DRIFT or sizes[table] > rows + rows // 100 + _DRIFT:
            raise tf.errors.DataLossError(None, None, text)
        _log.info("%s", text)


def _restore_dense(engine: Engine, directory: str, head: Manifest) -> None:
    objects = [object_request(directory, ref) for ref in head.objects if ref.kind == "dense"]
    there = {spec.name for spec in head.dense}

    def restore_on(host: Host) -> None:
        wanted = [item for item in host.dense if item.name in there]
        if not wanted:
            return
        names = sorted({item.name for item in wanted})
        dtypes = {item.name: item.variable.dtype.base_dtype for item in wanted}
        whole = dict(zip(names, engine.read_dense(host, objects, names, [dtypes[name] for name in names])))
        for item in wanted:
            item.assign_part_of(whole[item.name])

    engine.on_all(restore_on, RESTORE_SECONDS)
