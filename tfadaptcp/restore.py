"""Restores a checkpoint into a model: tables and slots, dense variables, the optimizer's settings."""

import collections
import contextlib
import errno
import logging
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, Union

import tensorflow as tf

from tfadaptcp import _ops, attaching, draining, errors, matching, measurements, progress, routing
from tfadaptcp.checkpoint import chain, commit, heads, objects
from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef
from tfadaptcp.checkpoint.store import Store, join, normalize
from tfadaptcp.embeddings import dense
from tfadaptcp.engine import Engine
from tfadaptcp.errors import (CheckpointCorruptError, CheckpointMismatchError, CheckpointNotFoundError, DeadlineError,
                              RestoreFailedError, StoreUnavailableError)
from tfadaptcp.hosts import Host
from tfadaptcp.info import RestoreReport
from tfadaptcp.matching import Plan, Selection
from tfadaptcp.options import EngineOptions, options_for
from tfadaptcp.policies.base import Estimation

_log = logging.getLogger("tfadaptcp")

# Rows by which TFRA's count of a table may be off, however small it is.
_DRIFT = 16
# What tells that a checkpoint is damaged, as against a model that doesn't fit it or a store that can't be reached; of what
# is not found, if it is one of its objects.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.UnimplementedError)
# A key of four bytes and an indicator.
_MIN_ROW_BYTES = 8
# Until the hosts have said themselves that the time is over.
_GRACE_SECONDS = 30.0


def load_adaptcp(self: tf.keras.Model, directory: Union[str, os.PathLike], checkpoint: Optional[str] = None,
                 strict: bool = True, *, tables: Union[None, str, Iterable[str]] = None,
                 rename: Optional[Mapping[str, str]] = None, optimizer: bool = True, cast: bool = False,
                 engine: Optional[EngineOptions] = None) -> RestoreReport:
    """Restores the newest checkpoint of a directory, or the one named, into this model, as a whole or in part.

    Tables, optimizer slots, dense variables and the optimizer's settings are replaced by those of the checkpoint, also in
    a freshly built model before its first step, and with any number of parameter servers. A model without an optimizer,
    its own or one told to its `CheckpointManager`, gets its weights alone. Reading only: the directory
    may be written to by another job meanwhile. Steps that are scheduled end first; the restore fails if others write to its
    tables meanwhile.

    What is not restored stays as it is, rows and all. After a restore in part (`tables`, `rename`, `optimizer=False`, a
    table cast, or one missing) the model doesn't continue that checkpoint: its next one is complete. To know its rows, the
    slots that stay beside a restored parameter are exported once, which takes the memory of a copy of them.

    Args:
        directory: the checkpoint directory, local path or URL; every parameter server must reach it by this name.
        checkpoint: the name of a checkpoint; None: the newest that is whole. If the newest is damaged, the one before it
            is taken, and the log says so.
        strict: False tolerates tables and dense variables that only the model or only the checkpoint has. Those that only
            the model has stay as they are.
        tables: names, as in `RestoreReport.rows`, of what to restore: groups (an embedding variable with its slots),
            single tables, dense variables; `*`, `?` and `[...]` as in `fnmatch`. None: everything. If names are given, the
            optimizer's settings stay as they are; so does its step, unless it is among them.
        rename: {name in the checkpoint: name in the model} of groups, single slot tables and dense variables; a group's
            slots go with it.
        optimizer: False: weights only, with what restrict policies know of their rows, if the checkpoint has it. Slots,
            step and settings of the optimizer stay as they are.
        cast: convert values between float16, bfloat16, float32 and float64 where the types differ; too large ones
            become infinite, subnormal ones may become zero. Keys and whole numbers are never converted.
        engine: `EngineOptions`: how many threads read, how much memory and time that may take, and whether to show how
            far it is.

    Returns:
        A `RestoreReport`.

    Raises:
        UnbuiltModelError: the model has no variables yet.
        CheckpointNotFoundError: there is no checkpoint, or none of that name.
        CheckpointMismatchError: names, dtypes or dimensions differ, or an argument names what isn't there; nothing was
            changed.
        ValueError: an argument is of the wrong kind.
        CheckpointCorruptError: the checkpoint named is damaged, or was removed while it was read, or all are; names file and
            offset.
        StoreUnavailableError: the directory can't be read, or a parameter server does not see what is there: never taken for
            "no checkpoint".
        ServerMismatchError: a parameter server runs without tfadaptcp, or with another version.
        UntrackableTableError, UnsupportedVariableError: the model holds what can't be tracked; named.
        UnsupportedStoreError: nothing here knows the scheme of the directory.
        RestoreFailedError: a parameter server was restarted, or lacks an op that a partition function needs, another manager
            took its tables over, or the model trained meanwhile: its tables are empty then.
        DeadlineError: scheduled steps, a checkpoint that is being written, a parameter server or the restore took too
            long.
    """
    selection = Selection.of(tables, rename, optimizer, cast, strict)
    options = EngineOptions() if engine is None else options_for(None, engine)
    attaching.require_built(self)
    _end_steps(self, options)
    current = getattr(self, attaching.ENGINE, None)
    if current is not None:
        # A checkpoint drained from trackers that are reset meanwhile would lack rows, and pass for whole.
        current.wait_for_writer(options.patience_seconds)
    store, directory, candidates = _find(directory, checkpoint, options)
    # That of the run that goes on, so that its manager finds these trackers fit.
    estimation = Estimation.of(candidates[0].policy) if current is None else current.estimation
    its_optimizer = None
    if getattr(self, "optimizer", None) is None:
        # It was told to a CheckpointManager, or the model is restored without one: for evaluation and serving.
        its_optimizer = False if current is None or current.optimizer is None else current.optimizer
    try:
        attached = attaching.attach(self, its_optimizer, estimation, options.timeout_seconds)
    except tf.errors.OpError as error:
        raise RestoreFailedError(f"Model {self.name!r} could not be tracked, and nothing was restored: "
                                 f"{errors.text_of(error)}") from error
    report = _restore(attached, store, directory, candidates, checkpoint, strict, selection, options)
    _finalize(self)
    return report


def restore(model: tf.keras.Model, engine: Engine, directory: str, checkpoint: Optional[str], strict: bool, selection: Selection,
            options: EngineOptions) -> RestoreReport:
    """Restores into a model that is attached, and of which no checkpoint is being written; see `load_adaptcp`."""
    _end_steps(model, options)
    store, directory, candidates = _find(directory, checkpoint, options)
    report = _restore(engine, store, directory, candidates, checkpoint, strict, selection, options)
    _finalize(model)
    return report


def _end_steps(model: tf.keras.Model, options: EngineOptions) -> None:
    """Waits for the steps that are scheduled: what they write is to be replaced, and not to come in between."""
    try:
        ended = draining.drain(model, options.drain_timeout_seconds)
    except Exception as error:  # all have ended, this one otherwise than it was to
        _log.warning("A step that was scheduled before a restore failed: %s", error)
        return
    if not ended:
        raise DeadlineError(f"Scheduled steps hang: none has ended within {options.drain_timeout_seconds:g} s; nothing was "
                            "restored.")


def _finalize(model: tf.keras.Model) -> None:
    """Makes layers derive what they compute from their variables, as Keras does after loading weights.

    Those with statistics that `adapt` has learnt, for one, compute with tensors made of their variables.
    """
    layers = [layer for layer in model._flatten_layers()
              if type(layer).finalize_state is not tf.keras.layers.Layer.finalize_state]
    if not layers:
        return
    with model.distribute_strategy.scope():
        for layer in layers:
            layer.finalize_state()
        # What was traced has the tensors that there were.
        for owner in (layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.Model)):
            for kind in ("train", "test", "predict"):
                if getattr(owner, f"{kind}_function") is not None:
                    setattr(owner, f"{kind}_function", None)
                    getattr(owner, f"make_{kind}_function")()


def _find(directory: Union[str, os.PathLike], checkpoint: Optional[str],
          options: EngineOptions) -> Tuple[Store, str, List[Manifest]]:
    directory = normalize(directory)
    store = Store(deadline_seconds=options.timeout_seconds)
    store.check_supported(directory)
    return store, directory, heads.candidates(store, directory, checkpoint)


def _restore(engine: Engine, store: Store, directory: str, candidates: List[Manifest], checkpoint: Optional[str],
             strict: bool, selection: Selection, options: EngineOptions) -> RestoreReport:
    start = time.monotonic()
    removed = 0
    damage = ""
    emptied: Set[str] = set()  # tables that a head was to fill, and did not
    while True:
        head, *candidates = candidates
        try:
            plan = matching.match(engine, head, selection, strict)
        except CheckpointMismatchError as error:
            if not damage:
                raise
            # Not the mismatch that it is to the caller, who may take it that nothing was changed.
            raise CheckpointCorruptError(f"{damage}, and the one before it does not fit the model: {error}") from error
        lost = sorted(emptied & set(plan.missing))
        if lost:
            raise CheckpointCorruptError(f"{damage}, and the one before it lacks {lost}, which are empty now")
        try:
            rows, read = _apply(engine, directory, head, plan, options)
        except _DAMAGE as error:
            if isinstance(error, tf.errors.NotFoundError) and _object_in(head, error) is None:
                # No file, but an op, say, that a partition function needs and a server has not loaded: so with all heads.
                raise errors.of_restore(head.name, directory, error) or errors.RestoreFailedError(
                    f"could not restore checkpoint {head.name} of {directory}: {errors.text_of(error)}") from error
            message = f"checkpoint {head.name} of {directory} is damaged: {errors.text_of(error)}"
            emptied.update(_tables(plan, restored=True))
            if engine.is_given_up:
                raise CheckpointCorruptError(message) from error
            if removed < heads.REMOVALS and commit.is_removed(store, directory, head):
                # By retention, under our eyes; and those before it too. There is a newer one.
                removed += 1
                damage = damage or f"checkpoint {head.name} of {directory} was removed while it was read"
                _log.warning("Checkpoint %s of %s was removed while it was read. Looking again.", head.name, directory)
                try:
                    candidates = heads.candidates(store, directory, checkpoint)
                except CheckpointNotFoundError as gone:
                    # Not what it is to the caller: that there is none, and all is as it was.
                    raise CheckpointCorruptError(f"{damage}, and there is none to take its place. Tables that it was to fill "
                                                 "are empty.") from gone
                continue
            unseen = _unseen_by_host(store, directory, head, error)
            if unseen is not None:
                raise unseen from error
            if checkpoint is not None or not candidates:
                raise CheckpointCorruptError(message) from error
            _log.error("%s. Falling back to %s.", message, candidates[0].name)
            damage = message
            continue
        except tf.errors.OpError as error:
            told = errors.of_restore(head.name, directory, error)
            if told is None:
                raise
            raise told from error
        seconds = time.monotonic() - start
        _log.info("Restored checkpoint %s: step %d, %d rows, %d bytes in %.1f s; up to %d readers and %d bytes of files in "
                  "memory on a parameter server.", head.name, head.step, sum(rows.values()), read.bytes, seconds,
                  read.threads, read.peak_bytes)
        engine.read_speed = measurements.speed(read.bytes, seconds)
        return RestoreReport(head.name, head.step, head.epoch, head.batch, rows, read.bytes, seconds, plan.missing,
                             plan.unexpected, read.peak_bytes, read.threads)


def _object_in(head: Manifest, error: tf.errors.OpError) -> Optional[ObjectRef]:
    """The object of a head that an error names."""
    message = errors.text_of(error)
    return next((ref for ref in head.objects if ref.path in message), None)


def _unseen_by_host(store: Store, directory: str, head: Manifest, error: tf.errors.OpError) -> Optional[StoreUnavailableError]:
    """What the user is told if a host lacks a file that is here: its mount is wrong then, and not the checkpoint."""
    ref = _object_in(head, error)
    if not isinstance(error, tf.errors.NotFoundError) or ref is None:
        return None
    path = join(directory, ref.path)
    if not store.have_sizes({path: ref.bytes}):
        return None
    return StoreUnavailableError(
        errno.ENOENT, f"could not read checkpoint {head.name} of {directory}: {errors.text_of(error)}. The coordinator sees "
        "that file. Expected: a store that every parameter server reaches by this name", path)


def _apply(engine: Engine, directory: str, head: Manifest, plan: Plan,
           options: EngineOptions) -> Tuple[Dict[str, int], progress.Readers]:
    """Restores what the plan says; returns {table: its rows}, and what was read. If that fails, the tables it restores are
    empty."""
    ops = _ops.lib()
    engine.lineage.move_to(directory, None)
    engine.lineage.last_sequence = max(engine.lineage.last_sequence, head.sequence)
    begin = {"next_sequence": engine.lineage.last_sequence + 1, "base_sequence": head.base_sequence,
             "tables": {group.ours.name: [i is not None for i in group.take] for group in plan.groups}}
    kept = _tables(plan, restored=False)
    try:
        _begin(engine, begin, options)
        # Of a head that is not restored as a whole only what has rows for it.
        levels = objects.levels(directory, head, None if plan.continues else [group.theirs.name for group in plan.groups])
        bytes_rows = sum(level["bytes"] for level in levels)
        # No more rows than fit into the files, whatever the manifest says.
        most = bytes_rows // _MIN_ROW_BYTES
        in_place = _same_sharding(head, plan)
        engine.grow_tables({name: min(rows, most) for name, rows in plan.rows(head).items()},
                           options.restore_timeout_seconds + _GRACE_SECONDS,
                           _rows_of_files(levels, plan) if in_place else None)
        bytes_dense = sum(ref.bytes for ref in head.objects if ref.kind == "dense") if plan.dense else 0
        with progress.shown(engine, head.name, bytes_rows + bytes_dense, options.progress):
            if in_place:
                _restore_in_place(engine, head, levels, plan, options)
            else:
                routing.restore(engine, head, levels, plan, options, options.restore_timeout_seconds + _GRACE_SECONDS)
            found = {what: collections.Counter() for what in ("received", "inserted", "sizes")}
            for reply in engine.on_all(lambda host: engine.call(host, ops.adaptcp_restore_end, {"restore": engine.restore}),
                                       options.timeout_seconds).values():
                for what, total in found.items():
                    total.update(reply[what])
            _check_received(head, plan, found["received"])
            rows = {table: found["inserted"][table] for table in _tables(plan, restored=True)}
            _check_rows(rows, found["sizes"], plan.rows(head))
            _restore_dense(engine, directory, head, plan, options)
            read = progress.of_hosts(engine, options.timeout_seconds)
    except BaseException:
        # Half restored is worse than empty: nobody may take it for the checkpoint. What still reads or applies ends.
        with contextlib.suppress(Exception), _given_up(engine, "could not be emptied again"):
            _begin(engine, begin, options)
        raise
    finally:
        if kept and not engine.is_given_up:
            with _given_up(engine, "could not be listed"):
                engine.list_rows(kept)
    if plan.scalars:
        dense.write_scalars(engine.optimizer, head.scalars)
    if plan.continues:
        engine.lineage.restored(directory, head)
    return rows, read


def _tables(plan: Plan, restored: bool) -> List[str]:
    """The tables that are restored, or those that stay in groups which are restored in part."""
    return [table.name for group in plan.groups for i, table in zip(group.take, group.ours.tables)
            if (i is not None) == restored]


@contextlib.contextmanager
def _given_up(engine: Engine, what: str) -> Iterator[None]:
    """Gives trackers up if that fails which is to make them know all rows: who saves next has the rows listed anew."""
    try:
        yield
    except BaseException as error:
        _log.error("In a restore that failed tables %s: %s. The next checkpoint is complete.", what, error)
        engine.give_up()
        raise


def _begin(engine: Engine, request: Dict[str, Any], options: EngineOptions) -> None:
    """Empties the tables; rows of restores before this one are refused from now on, and their readers end."""
    engine.restore += 1
    request = {**request, "restore": engine.restore}
    engine.on_all(lambda host: engine.call(host, _ops.lib().adaptcp_restore_begin, request), options.timeout_seconds)


def _same_sharding(head: Manifest, plan: Plan) -> bool:
    """Whether every host may simply read what the ps of the same index wrote."""
    def where(group):
        return group.num_shards, group.partition, group.placement
    return not chain.is_mixed(head) and all(
        where(group.ours) == where(group.theirs) and not group.casts
        # A custom function may place keys otherwise than it did, under the same name.
        and not group.theirs.partition.startswith("custom:") for group in plan.groups)


def _rows_of_files(levels: List[Dict[str, Any]], plan: Plan) -> Dict[str, Dict[int, int]]:
    """{group of the model: {ps: rows that its files hold}}."""
    found: Dict[str, Dict[int, int]] = {}
    for item in (item for level in levels for item in level["objects"]):
        for group in plan.groups:
            on = found.setdefault(group.ours.name, {})
            on[item["ps"]] = on.get(item["ps"], 0) + item["rows"].get(group.theirs.name, 0)
    return found


def _restore_in_place(engine: Engine, head: Manifest, levels: List[Dict[str, Any]], plan: Plan,
                      options: EngineOptions) -> None:
    groups = {group.theirs.name: {"group": group.ours.name, "take": [-1 if i is None else i for i in group.take]}
              for group in plan.groups}

    def request(host: Host) -> Dict[str, Any]:
        return {"restore": engine.restore, "head": head.sequence, "specs": objects.specs(head), "groups": groups,
                "limits": options.for_restores(),
                "levels": [{"sequence": level["sequence"], "differential": level["differential"],
                            "objects": [item for item in level["objects"] if item["ps"] == host.index]}
                           for level in levels]}
    engine.on_all(lambda host: engine.call(host, _ops.lib().adaptcp_restore_segments, request(host)),
                  options.restore_timeout_seconds + _GRACE_SECONDS, at_once=True)


def _check_received(head: Manifest, plan: Plan, received: Dict[str, int]) -> None:
    """Every row of every object has reached a shard, whichever way it went."""
    for group in plan.groups:
        rows = received.get(group.ours.name, 0)
        expected = sum(groups.get(group.theirs.name, 0) for groups in head.rows.values())
        if rows != expected:
            raise tf.errors.DataLossError(
                None, None, f"group {group.ours.name}: Received: {rows} rows from the files. Expected: {expected}, as in "
                "the manifest")


def _check_rows(inserted: Dict[str, int], sizes: Mapping[str, int], at_the_cut: Dict[str, int]) -> None:
    """Compares tables as wholes with the rows that were inserted; those are compared exactly, object by object, as they are
    read.

    Not for equality, nor with TFRA's count at the cut but for a log line: that drifts upwards under concurrent inserts and
    removals, by one in some thousands of them, which in a small table adds up to any part of it, and an error here would
    make a good checkpoint useless.
    """
    for table, rows in inserted.items():
        if abs(sizes[table] - rows) > rows // 100 + _DRIFT:
            raise tf.errors.DataLossError(
                None, None, f"table {table}: Received: {sizes[table]} rows after the restore. Expected: the {rows} that were "
                "inserted")
        counted = at_the_cut.get(table, rows)
        if rows != counted:
            _log.log(logging.WARNING if abs(rows - counted) > counted // 10 + _DRIFT else logging.INFO,
                     "Table %s has %d rows, all that the checkpoint has of it. At the cut TFRA counted %d.", table, rows,
                     counted)


def _restore_dense(engine: Engine, directory: str, head: Manifest, plan: Plan, options: EngineOptions) -> None:
    refs = [ref for ref in head.objects if ref.kind == "dense"]
    request = {"restore": engine.restore, "objects": [objects.request(directory, ref) for ref in refs],
               "specs": objects.specs(head), "limits": options.for_restores()}
    theirs = {spec.name: spec for spec in head.dense}

    def restore_on(host: Host) -> None:
        wanted = [item for item in host.dense if item.name in plan.dense]
        if not wanted:
            return
        slices = [{"name": plan.dense[item.name], "offset": item.offset, "shape": item.variable.shape.as_list()}
                  for item in wanted]
        dtypes = [tf.as_dtype(theirs[part["name"]].dtype) for part in slices]
        for item, value in zip(wanted, engine.read_dense(host, {**request, "slices": slices}, dtypes)):
            item.assign(value)

    engine.on_all(restore_on, options.restore_timeout_seconds + _GRACE_SECONDS, at_once=True)
