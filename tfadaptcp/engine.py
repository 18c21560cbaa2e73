"""The coordinator's end of the ops: one model's tables and dense variables, on all hosts that hold them."""

import contextlib
import dataclasses
import json
import logging
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np
import tensorflow as tf

from tfadaptcp import _ops
from tfadaptcp.checkpoint import format_types, layout, manifest
from tfadaptcp.embeddings import dense, discovery, unsupported
from tfadaptcp.embeddings.parts import Parts
from tfadaptcp.errors import DeadlineError, SaveFailedError, ServerMismatchError
from tfadaptcp.hosts import CALL_SECONDS, LONG_SECONDS, Calls, Host, Shard, here, hosts_of, is_on, on
from tfadaptcp.lineage import Lineage
from tfadaptcp.policies.base import Estimation, PHistogram

_log = logging.getLogger("tfadaptcp")
# Rows for which it is not worth while to make room beforehand: they are inserted at once.
_WORTH_ROOM = 1 << 16
# Tables of a host. A thread waits for each, here and there.
_GROWN_AT_ONCE = 4


class Engine(Calls):
    """Tracks one built model. Attaching is done at construction; several threads may call the other methods.

    An engine belongs to a model and lives in it: what a restore left in the trackers is what the next checkpoint goes
    on from, whoever makes it.
    """

    def __init__(self, model: tf.keras.Model, optimizer: Any, estimation: Estimation):
        """Creates slots that do not exist yet, attaches the trackers; rows that exist count as unsaved.

        Raises:
            UntrackableTableError, UnsupportedVariableError, CheckpointMismatchError: see `discovery` and `dense`; nothing
                was attached.
            ServerMismatchError: a host runs without tfadaptcp, or with another version; nothing was attached.
        """
        self.optimizer = optimizer
        parts = Parts(model)
        self.groups, variables = _find(model, optimizer, parts)
        unsupported.check_dense(variables, format_types.DTYPES.values())
        self.dense = dense.slices(variables, optimizer, parts)
        # The names of those that are the optimizer's.
        self.dense_of_optimizer = dense.of_optimizer(self.dense, optimizer, parts)
        super().__init__(hosts_of(self.groups, self.dense), layout.new_run())
        self.estimation = estimation
        self.lineage = Lineage()
        self._other_slots: Set[str] = set()  # that somebody was told of
        # Whether its trackers lack rows, and nobody may save by them any more.
        self.is_given_up = False
        # The number of the restore that may write rows; ops of one that was given up may still come.
        self.restore = 0
        # Bytes per second of the last restore, None if there was none, or too small a one.
        self.read_speed: Optional[float] = None
        # That which writes the pending checkpoint, whichever manager took it: there is one at a time.
        self.writer: Optional[threading.Thread] = None
        self.writer_more_seconds = 0.0  # that it may take, for all that it has to write
        self._ops = _ops.lib()
        self.incarnations = {str(index): info["incarnation"] for index, info in self._infos_of_fit_servers().items()}
        self._attach()

    # ------------------------------------------------------------- what there is

    def tracks(self, model: tf.keras.Model, optimizer: Any) -> bool:
        """Whether this engine tracks all that an engine made now for the model and the optimizer would."""
        parts = Parts(model)
        groups, variables = _find(model, optimizer, parts)
        if optimizer is not None and optimizer is self.optimizer:
            self._tell_of_other_slots(discovery.other_slots(groups, parts))
        return (not self.is_given_up and optimizer is self.optimizer and groups == self.groups
                and {id(variable) for variable in variables} == {id(item.variable) for item in self.dense})

    def _tell_of_other_slots(self, names: List[str]) -> None:
        if set(names) - self._other_slots:
            self._other_slots |= set(names)
            _log.warning("Tables of the model have slots of an optimizer that is not in its checkpoints: %s. If it still "
                         "trains, hold it in the place of the one that is told, or give each optimizer a model of its own.",
                         names)

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is between its cut and its end, whichever manager took it."""
        return self.writer is not None and self.writer.is_alive()

    def wait_for_writer(self, timeout_seconds: float) -> None:
        """Waits until no checkpoint is being written: its outcome moves what the trackers and the position say.

        Raises:
            DeadlineError: it has not ended in time.
        """
        if self.writer is not None:
            timeout_seconds += self.writer_more_seconds
            self.writer.join(timeout_seconds)
            if self.writer.is_alive():
                raise DeadlineError(f"The pending checkpoint, thread {self.writer.name}, has not ended within "
                                    f"{timeout_seconds:g} s")

    def group_specs(self) -> Tuple[manifest.GroupSpec, ...]:
        """The groups as a manifest has them."""
        placement = {}
        for host in self.hosts:
            for shard in host.shards:
                placement[shard.group.name, shard.index] = host.index
        return tuple(
            manifest.GroupSpec(group.name, group.key_dtype, group.num_shards, group.partition,
                               tuple(manifest.TableSpec(table.name, table.dtype, table.dim) for table in group.tables),
                               tuple(placement[group.name, i] for i in range(group.num_shards)))
            for group in self.groups)

    def dense_specs(self) -> Tuple[manifest.DenseSpec, ...]:
        """The dense variables as a manifest has them; parts of one variable count once."""
        unique = {item.name: manifest.DenseSpec(item.name, item.dtype, item.shape) for item in self.dense}
        return tuple(unique[name] for name in sorted(unique))

    # ------------------------------------------------------------- a checkpoint

    def cut(self, request: Dict[str, Any],
            timeout_seconds: float = CALL_SECONDS) -> Tuple[Dict[int, Dict[str, Any]], dense.Copies]:
        """Takes the cut on every host, and copies what is dense there right after it; returns the replies, and the copies.

        If that fails on one host, others may have the cut: `resolve` it.

        Raises:
            SaveFailedError: a host was restarted.
        """
        numbers = dense.numbers(self.optimizer)
        found = self.on_all(lambda host: (self.call(host, self._ops.adaptcp_cut, request),
                                          self.copy_dense(host, numbers)), timeout_seconds)
        changed = [index for index, (reply, _) in found.items() if reply["incarnation"] != self.incarnations[str(index)]]
        if changed:
            names = ", ".join(self.hosts[index].name for index in changed)
            raise SaveFailedError(f"checkpoint {request['sequence']}: {names} was restarted since the model was "
                                  "attached, and has lost its rows. Restart the coordinator, and restore a checkpoint.")
        there = {name: number for _, (_, there) in found.values() for name, number in there.items()}
        # What is no variable, or lies where nothing else of the model does.
        rest = dense.plain({name: value for name, value in numbers.items() if name not in there})
        return ({index: reply for index, (reply, _) in found.items()},
                dense.Copies({index: copies for index, (_, (copies, _)) in found.items()}, {**rest, **there}))

    def copy_dense(self, host: Host, numbers: Dict[str, Any]) -> Tuple[List[tf.Tensor], Dict[str, Any]]:
        """Copies the dense variables of a host there, in one call, as training stands still.

        Args:
            numbers: see `dense.numbers`.

        Returns:
            The copies, and those of the numbers that are there.
        """
        handles = [dense.handle_of(item.variable) for item in host.dense]
        scalars = {name: handle for name, handle in
                   ((name, dense.handle_of(value)) for name, value in numbers.items() if is_on(host, value))
                   if handle is not None}
        with on(host):
            copied, found = self._ops.adaptcp_copy_variables(
                [handle for handle in handles if handle is not None], list(scalars.values()),
                dtypes=[item.variable.dtype.base_dtype for item, handle in zip(host.dense, handles) if handle is not None])
            found = found.numpy() if scalars else []
        copied = iter(copied)
        copies = [item.read() if handle is None else next(copied) for item, handle in zip(host.dense, handles)]
        return copies, {name: int(number) if numbers[name].dtype.is_integer else float(number)
                        for name, number in zip(scalars, found)}

    def save(self, request: Dict[str, Any], copies: Dict[int, List[tf.Tensor]],
             timeout_seconds: float) -> Dict[int, Dict[str, Any]]:
        """Drains the cut into segments on every host. Blocks; fails as a whole.

        Raises:
            DeadlineError: names the hosts that did not answer. Their saves are told to end.
        """
        def save_on(host: Host) -> Dict[str, Any]:
            slices = [{"name": item.name, "shape": item.shape, "offset": item.offset} for item in host.dense]
            return self.call(host, self._ops.adaptcp_save, {**request, "ps": host.index, "dense": slices},
                             copies[host.index])
        return self.on_all(save_on, timeout_seconds)

    def probe_buffer(self, host: Host, buffer_dir: str) -> Dict[str, Any]:
        """Tries a buffer directory on a host, and tidies it up; returns its "path", "free_bytes" and "removed"."""
        return self.call(host, self._ops.adaptcp_probe_buffer, {"buffer_dir": buffer_dir})

    def wait_captured(self, sequence: int, timeout_seconds: float) -> None:
        """Blocks until every host has captured the rows of a cut that is being saved, or its checkpoint has ended.

        Whatever goes wrong the save meets too, and tells.
        """
        with contextlib.suppress(Exception):
            self.on_all(lambda host: self.call(host, self._ops.adaptcp_wait_captured, {"sequence": sequence}),
                        timeout_seconds)

    def scan_base(self, request: Dict[str, Any]) -> Dict[int, Dict[str, Any]]:
        """Writes all rows, read beside training and checkpoints, into segments on every host. Blocks, for as long as it
        takes, up to hours; fails as a whole."""
        def scan_on(host: Host) -> Dict[str, Any]:
            return self.call(host, self._ops.adaptcp_scan_base, {**request, "ps": host.index})
        return self.on_all(scan_on, LONG_SECONDS)

    def void_scans(self, timeout_seconds: float) -> None:
        """Makes `scan_base` fail, on every host that answers in time."""
        with contextlib.suppress(Exception):
            self.on_all(lambda host: self.text(host, self._ops.adaptcp_void_scans, self.session), timeout_seconds)

    def resolve(self, sequence: int, committed: bool, scanned_base: int = 0, best_effort: bool = False,
                timeout_seconds: float = CALL_SECONDS) -> None:
        """Tells every host how checkpoint `sequence` ended. One that misses it learns it at the next cut.

        Args:
            scanned_base: the start of the scanned base that the head goes by from now on, 0 if that is none.
        """
        with contextlib.suppress(*((Exception,) if best_effort else ())):
            self.on_all(lambda host: self.call(host, self._ops.adaptcp_resolve,
                                               {"sequence": sequence, "committed": committed,
                                                "scanned_base": scanned_base}), timeout_seconds)

    def newest_generation(self, directory: str, timeout_seconds: float) -> int:
        """The newest generation that has written to a directory through these hosts, 0 if none has.

        They refuse lower ones, also when the directory was emptied since.
        """
        return max(info["generations"].get(directory, 0) for info in self._infos(timeout_seconds).values())

    def _infos(self, timeout_seconds: float = CALL_SECONDS) -> Dict[int, Dict[str, Any]]:
        return self.on_all(lambda host: json.loads(self.text(host, self._ops.adaptcp_info)), timeout_seconds)

    def _infos_of_fit_servers(self) -> Dict[int, Dict[str, Any]]:
        try:
            found = self._infos()
        except tf.errors.NotFoundError as error:  # the op: it reads nothing
            raise ServerMismatchError("A server runs without tfadaptcp. Expected: `import tfadaptcp` in its script, or "
                                      f"`python -m tfadaptcp.server`. Received: {error.message}") from error
        ours = json.loads(self._ops.adaptcp_info().numpy())
        for index, info in found.items():
            versions = info.get("versions", {})
            if versions != ours["versions"]:
                raise ServerMismatchError(f"{self.hosts[index].name} runs with other versions than the coordinator. Received: "
                                          f"{versions}. Expected: {ours['versions']}")
        return found

    def stats(self) -> List[Dict[str, Any]]:
        """Per host: counts and memory of its groups."""
        return list(self.on_all(lambda host: self.call_named(host, self._ops.adaptcp_stats)).values())

    def histograms(self, sequence: int, timeout_seconds: float) -> Dict[str, PHistogram]:
        """How the update probabilities of the rows of each group would be distributed at a cut `sequence` taken now."""
        sums: Dict[str, np.ndarray] = {}
        for reply in self.on_all(lambda host: self.call(host, self._ops.adaptcp_histograms, {"sequence": sequence}),
                                 timeout_seconds).values():
            for group in reply["groups"]:
                part = np.array([group["rows"], group["sum_of_p"], group["unsaved"]])
                sums[group["name"]] = sums.get(group["name"], 0) + part
        return {name: PHistogram(*(tuple(part.tolist())
                                   for part in (np.minimum(p / np.maximum(rows, 1e-9), 1.0), rows, unsaved)))
                for name, (rows, p, unsaved) in sums.items()}

    def is_attached(self, timeout_seconds: float) -> bool:
        """Whether the hosts still know of it: the engine of another model with the same tables takes them over."""
        try:
            self.resolve(0, committed=False, timeout_seconds=timeout_seconds)  # does nothing
            return True
        except tf.errors.FailedPreconditionError:
            return False

    def detach(self) -> None:
        """Stops tracking, on every host that still answers."""
        with contextlib.suppress(Exception):
            self.on_all(lambda host: self.text(host, self._ops.adaptcp_detach, self.session), timeout_seconds=30)

    def give_up(self) -> None:
        """Detaches for good: its trackers lack rows. Another engine lists them when it is attached."""
        self.is_given_up = True
        self.detach()

    # ------------------------------------------------------------- tables and tensors

    def read_dense(self, host: Host, request: Dict[str, Any], dtypes: List[tf.DType]) -> List[tf.Tensor]:
        """Reads parts of dense tensors out of objects, on a host; those that it has written first, as they may be enough."""
        text = here(json.dumps({**request, "session": self.session, "ps": host.index}))
        with on(host):
            return self._ops.adaptcp_read_dense(text, Tdense=dtypes)

    def grow_tables(self, rows: Dict[str, int], timeout_seconds: float,
                    files: Optional[Dict[str, Dict[int, int]]] = None) -> Dict[Tuple[str, int], int]:
        """Makes room for so many rows, over all shards, in tables that a restore has emptied.

        Args:
            files: see `rows_of_shard`; by group.

        Returns:
            {(table, shard): the slots that it has now; 0: it would not say}, for those that were worth it.
        """
        def expected(host: Host, shard: Shard, table: discovery.Table) -> int:
            return rows_of_shard(rows.get(table.name, 0), host, shard, (files or {}).get(shard.group.name))

        def grow(host: Host, shard: Shard, table: discovery.Table, handle: tf.Tensor, count: int) -> int:
            request = here(json.dumps({"session": self.session, "restore": self.restore, "rows": count}))
            with on(host):
                return int(self._ops.adaptcp_grow_table(request, handle, key_dtype=table.variable.key_dtype,
                                                        value_dtype=table.variable.value_dtype).slots)

        def grow_each(chosen: List[Tuple[Any, ...]]) -> Dict[Tuple[str, int], int]:
            return {(table.name, shard.index): grow(host, shard, table, handle, count)
                    for host, shard, table, handle, count in chosen}

        calls = {}
        for host in self.hosts:
            chosen = [(host, shard, table, handle, count) for shard in host.shards
                      for table, handle in zip(shard.group.tables, shard.handles)
                      if (count := expected(host, shard, table)) >= _WORTH_ROOM]
            for i in range(min(_GROWN_AT_ONCE, len(chosen))):
                calls[host.index, i] = lambda part=chosen[i::_GROWN_AT_ONCE]: grow_each(part)
        return {key: slots for found in self.parallel(calls, timeout_seconds).values() for key, slots in found.items()}

    def list_rows(self, tables: List[str]) -> None:
        """Lists the rows of tables that their trackers don't know, as unsaved. Costs an export of each."""
        def list_on(host: Host) -> None:
            for shard in host.shards:
                for table, handle in zip(shard.group.tables, shard.handles):
                    if table.name in tables:
                        self._seed(host, table, handle)
        self.on_all(list_on, LONG_SECONDS)

    def _attach(self) -> None:
        # Seeding goes through whole tables.
        self.on_all(self._attach_to, LONG_SECONDS)

    def _attach_to(self, host: Host) -> None:
        if not host.shards:  # dense variables alone
            self.text(host, self._ops.adaptcp_attach_group, [], json.dumps({"session": self.session}))
        for shard in host.shards:
            group = shard.group
            request = {"session": self.session, "group": group.name, "shard": shard.index,
                       "num_shards": group.num_shards, "key_dtype": group.key_dtype,
                       **dataclasses.asdict(self.estimation),
                       "tables": [{"name": table.name, "dtype": table.dtype, "dim": table.dim}
                                  for table in group.tables]}
            sizes = json.loads(self.text(host, self._ops.adaptcp_attach_group, shard.handles,
                                         json.dumps(request)))["sizes"]
            for table, size, handle in zip(group.tables, sizes, shard.handles):
                if size:
                    start = time.monotonic()
                    self._seed(host, table, handle)
                    _log.info("Listed %d rows of table %s that were there before it was tracked: %.2f s.", size,
                              table.name, time.monotonic() - start)

    def _seed(self, host: Host, table: discovery.Table, handle: tf.Tensor) -> None:
        request = here(json.dumps({"session": self.session, "restore": self.restore}))
        with on(host):
            self._ops.adaptcp_seed_table(request, handle, key_dtype=table.variable.key_dtype,
                                         value_dtype=table.variable.value_dtype)


def rows_of_shard(count: int, host: Host, shard: Shard, files: Optional[Dict[int, int]]) -> int:
    """About how many of a table's `count` rows are in a shard.

    Args:
        files: {ps: rows, of whatever age, in the files of a checkpoint whose shards were where these are}: those that there
            are now are spread likewise. None: all shards are taken for equal, as those of one ps are in any case.
    """
    if files is None:
        return count // shard.group.num_shards
    beside = sum(other.group.name == shard.group.name for other in host.shards)
    return count * files.get(host.index, 0) // max(1, sum(files.values())) // beside


def _find(model: tf.keras.Model, optimizer: Any, parts: Parts) -> Tuple[List[discovery.Group], List[tf.Variable]]:
    """The groups of a model, whose slots are created if need be, and its dense variables."""
    if optimizer is not None:
        discovery.create_slots(model, optimizer, parts)
    return discovery.find_groups(parts, optimizer), discovery.find_dense(model, optimizer, parts)
