"""The product and its model, taken through the same steps.

After every checkpoint the files are compared with what the model says must be in them, key by key; after every restore
the tables with the copy taken at the cut. What only the product can know, the model is told: sequence numbers, and how
a checkpoint ended into which a fault was put.

A checkpoint is held after its cut, and again when its rows are drained, so that the steps in between are between.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

import tfadaptcp
from tests.model import written
from tests.model.checkpoints import Head, check_equal
from tests.model.holding import WAIT_SECONDS, Dice, Hold
from tests.model.job import ALL, THRESHOLDS, Job
from tests.model.shard import Decay
from tests.support import faults, oracle
from tests.support.checkpoint_dirs import check_clean
from tfadaptcp import EngineOptions
from tfadaptcp.checkpoint import commit, retention
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import AdaptCPError, CommitOutcomeUnknownError
from tfadaptcp.attaching import ENGINE

# The options of a manager, and whether it has a buffer directory.
OPTIONS = ((EngineOptions(), False), (EngineOptions(block_bytes=256, segment_bytes=1024, writer_threads=2), False),
           (EngineOptions(capture="blocking"), False),
           (EngineOptions(block_bytes=256, segment_bytes=1024, upload_threads=3, buffer_bytes=4096), True))
FAULTS = ("errno=5@{}", "errno=28@{}+", "short@{}")
# The write of a manifest fails, and so does looking whether it is there.
UNKNOWN = "match=.json;errno=5@{}+"
DECAYS = (0.9, 0.5)
NONE_TOLD = 99


class SideBySide:
    """One directory, the model that is live, and the model of it all.

    Args:
        models: by number of shards: Keras models alike, with empty tables that nobody tracks.
        thorough: whether to restore all heads at the end.
    """

    def __init__(self, models: dict[int, tf.keras.Model], directory: str, thorough: bool):
        self._models, self._directory, self._thorough = models, directory, thorough
        self._store = Store()
        self._model = models[1]
        self._job = Job(shards=1)
        self._copies: dict[tuple[int, int], oracle.Copy] = {}
        self._copy: oracle.Copy | None = None  # of the pending checkpoint
        self._manager: Any = None
        self._compared: set[int] = set()  # objects
        self._pending_name = ""
        self._held: list[str] = []  # checkpoints that may exist, as far as this manager can tell
        self.seen: collections.Counter[str] = collections.Counter()  # what has happened, for who wants to know
        self._dense = 0
        self._make_manager(DECAYS[0], 3, 0)

    def run(self, steps: tuple) -> None:
        """Runs a sequence; raises AssertionError or Violation at the first thing that is wrong."""
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
        # The steps before may have ended with a failure.
        self.commit()
        self.cut()
        self.commit()
        if self._thorough:
            self._check_clean()
            for i in range(len(self._job.directory.heads)):
                self.restore(i, 1 + i % 3)

    def close(self) -> None:
        self._hold.let_go(held=False)
        self._end_scan()
        self._manager.close()

    # ------------------------------------------------------------- training

    def write(self, first: int, count: int, tables: int) -> None:
        value = self._job.value
        self._job.write(first, count, tables)
        for _, variable in self._tables(tables):
            value += 1
            variable.upsert(_keys(first, count), _rows(variable, count, value))

    def add(self, first: int, count: int, tables: int) -> None:
        """As an optimizer with bp_v2 does: by the difference to what it has read."""
        value = self._job.value
        self._job.add(first, count, tables)
        for _, variable in self._tables(tables):
            value += 1
            old, exists = variable.lookup(_keys(first, count), return_exists=True)
            old = tf.where(exists[:, None], old, tf.zeros_like(old))
            variable.accum(_keys(first, count), old, old + _rows(variable, count, value), exists)

    def remove(self, first: int, count: int, tables: int) -> None:
        self._job.remove(first, count, tables)
        for _, variable in self._tables(tables):
            variable.remove(_keys(first, count))

    def clear(self, tables: int) -> None:
        self.seen["cleared" + (" while pending" if self._job.pending else "")] += 1
        self._job.clear(tables)
        for _, variable in self._tables(tables):
            variable.clear()

    def lookup(self, first: int, count: int) -> None:
        self._job.lookup(first, count)
        self._job.finish_readings()
        for _, variable in self._tables(3):
            variable.lookup(_keys(first, count))

    def dense(self) -> None:
        self._dense += 1
        self._model.optimizer.iterations.assign_add(1)
        kernel = self._model.layers[-1].kernel
        kernel.assign(tf.fill(kernel.shape, float(self._dense)))

    # ------------------------------------------------------------- checkpoints

    def cut(self, threshold: int = 5, base: int = 0, fault: int = 0, at: int = 0) -> None:
        """`base`: 1 a snapshot, 2 a scan. `fault`: 0 for none, otherwise one that meets the preparations of the cut."""
        if self._job.pending is not None:
            return
        self._policy.threshold = THRESHOLDS[threshold]
        self._policy.is_base, self._policy.snapshot_bases = base != 0, base != 2
        blocking = self._manager._options.capture == "blocking"
        self._hold.let_go(held=not blocking)
        self._copy = oracle.take(self._model)
        info = error = None
        before = self._job.came_from
        with faults.plan(FAULTS[fault - 1].format(at + 1) if fault else ""):
            try:
                info = self._manager.save()
            except (AdaptCPError, OSError) as raised:
                error = raised
            if blocking:
                error = self._wait() or error
        assert fault or error is None, error
        again = self._published_again() if not blocking or info is None else []
        if info is not None:
            self._job.tell()
        # While a base is being scanned, or waits for its head, no other is begun.
        base = base if self._job.scan is None else 0
        is_base = base == 1 or blocking and base == 2
        must_be_base = self._job.position is None or self._job.was_cleared()
        # A delta that has to be a base is begun anew.
        twice = not is_base and self._job.position is not None and self._job.was_cleared()
        if not self._job.claimed and before is not None:
            if info is not None:  # retention may have taken the head already
                expected = (info.generation, info.sequence - 1 - twice)
                assert blocking or again == [expected], f"published again: {again}, expected {expected}"
                again = [expected]
            for name in again:
                self.seen["published again"] += 1
                self._job.publish_again(name)
                self._job.claimed = True
                self._copies[name] = self._copies[before.name]
        else:
            assert not again, f"published again: {again}"
        if info is None:
            self.seen["no cut"] += 1
            return
        self._pending_name = info.name
        self._job.claimed = True
        self._job.generation, n = info.generation, info.sequence
        self._job.take_cut(n, self._policy.threshold, is_base)
        if base == 2 and not is_base and not must_be_base:
            self._job.begin_scan(held=True)
        if blocking:
            self._settle(error, faulty=bool(fault), told=ALL)

    def drain(self) -> None:
        """All rows that the pending checkpoint needs are captured and written, and it goes no further."""
        if self._job.pending is not None:
            self._hold.may_drain.set()
            assert self._hold.is_drained.wait(WAIT_SECONDS)

    def commit(self) -> None:
        self._finish("", ALL)

    def commit_untold(self) -> None:
        self._finish("", NONE_TOLD)

    def fail(self, fault: int, at: int) -> None:
        self._finish(FAULTS[fault].format(at + 1), ALL)

    def fail_untold(self, fault: int, at: int) -> None:
        self._finish(FAULTS[fault].format(at + 1), NONE_TOLD)

    def unknown(self, at: int) -> None:
        self._finish(UNKNOWN.format(at + 1), ALL)

    def _finish(self, plan: str, told: int) -> None:
        if self._job.pending is None:
            return
        self._hold.deaf = told != ALL
        with faults.plan(plan):
            self._hold.let_go(held=False)
            error = self._wait()
        self._hold.deaf = False
        assert plan or error is None, error
        self._settle(error, bool(plan), told)

    def _count_captures(self) -> None:
        stats = self._manager.stats()
        for source in ("drain", "update", "lookup"):
            self.seen[f"rows captured by {source}"] += stats[f"rows_by_{source}"]

    def _wait(self) -> BaseException | None:
        try:
            self._manager.wait()
        except (AdaptCPError, OSError) as error:
            return error
        finally:
            assert not self._manager.is_saving
        return None

    def _settle(self, error: BaseException | None, faulty: bool, told: int) -> None:
        """Tells the model how the pending checkpoint ended, and compares."""
        name = (self._job.generation, self._job.pending.sequence)
        manifests = {written.name_of(manifest.head): manifest for manifest in self._manifests()}
        job = self._job
        told_nobody = ", nobody told" if told != ALL else ""
        if isinstance(error, CommitOutcomeUnknownError):
            self.seen["outcome unknown, " + ("there" if name in manifests else "not there")] += 1
            self._held.append(self._pending_name)
            job.unknown() if name in manifests else job.fail(late=True)
        elif name in manifests:
            kind = "snapshot" if job.pending.is_base else "delta" if job.pending.scan is None else "scanned base"
            self.seen[f"{kind} committed{told_nobody}"] += 1
            self._count_captures()
            job.commit(told)
            if not faulty:
                job.collect()
        else:
            self.seen["failed" + told_nobody] += 1
            job.fail(told, late=True)
            assert error is not None, f"checkpoint {name} has disappeared"
        if name in manifests:
            self._copies[name] = self._copy
            head = self._head(name)
            if head.base_start < head.sequence and any(job.directory.objects[i].rows for i in head.increments[:-1]):
                self.seen["increments kept above a scanned base"] += head.base not in self._compared
            self._compare_rows(self._head(name), manifests[name])
        if faulty:  # retention may have got stuck anywhere
            job.directory.heads = [head for head in job.directory.heads if head.name in manifests]
        self._compare_heads(manifests.values())
        listed = {str(manifest.head) for manifest in manifests.values()}
        self._held = [held for held in self._held if held not in listed]  # then it is its manifest that keeps the data
        for held in self._held:
            assert self._store.list(join(self._directory, "data", held)), f"{held} may exist, but its data is gone"

    def _compare_heads(self, manifests: Iterable[Any]) -> None:
        found = [written.name_of(manifest.head) for manifest in manifests]
        expected = [head.name for head in self._job.directory.heads]
        assert found == expected, f"there are heads {found}, expected {expected}"

    def _compare_rows(self, head: Head, manifest: Any) -> None:
        """The objects of a head are those they should be, and what is in those that are new."""
        levels = set()
        for kind, items in (("base", [head.base]), ("increment", head.increments),
                            ("differential", [head.differential])):
            for item in items:
                rows, sequence = self._job.directory.objects[item].rows, self._job.directory.objects[item].sequence
                levels |= {(kind, sequence)} if rows else set()
                if item not in self._compared:
                    self._compared.add(item)
                    check_equal(written.rows_of(self._store, self._directory, manifest, kind, sequence), rows,
                                f"checkpoint {head.name}, {kind} {sequence}")
        found = written.levels_of(manifest)
        assert found == levels, f"checkpoint {head.name} has {sorted(found)}, expected {sorted(levels)}"
        assert manifest.base_sequence == head.base_start

    # ------------------------------------------------------------- bases in the background

    def scan(self, fault: int, at: int) -> None:
        """The scan that was begun reads all rows, now. `fault`: 0 for none."""
        if self._job.scan is None or self._job.scan.done:
            return
        with faults.plan(FAULTS[fault - 1].format(at + 1) if fault else ""):
            self._hold.may_scan.set()
            self._manager._scan._thread.join(WAIT_SECONDS)
        if self._manager._scan.is_ready:
            self._job.scan_all()
        else:
            assert fault
            self.seen["scan failed"] += 1
            self._job.scan = None

    def _end_scan(self) -> None:
        scan = self._manager._scan
        if scan is not None and scan._thread.is_alive():
            self._hold.give_up_scans = True
            self._hold.may_scan.set()
            scan._thread.join(WAIT_SECONDS)
            self._hold.give_up_scans = False
        self._hold.may_scan.clear()
        self._job.scan = None

    # ------------------------------------------------------------- restores and managers

    def restore(self, which: int, shards: int) -> None:
        self.commit()
        heads = self._job.directory.heads
        if not heads:
            try:
                self._models[shards].load_adaptcp(self._directory)
            except tfadaptcp.CheckpointNotFoundError:
                return
            raise AssertionError("restored what is not there")
        self._end_scan()
        self._model = self._models[shards]
        head = heads[-1 - which % len(heads)]
        manifest, = [item for item in self._manifests() if written.name_of(item.head) == head.name]
        report = self._model.load_adaptcp(self._directory, None if which % len(heads) == 0 else manifest.name)
        assert report.checkpoint == manifest.name
        engine = getattr(self._model, ENGINE)
        oracle.check(self._copies[head.name], self._model, f"{head.name} into {shards} shards", shards=False)
        oracle.check_placement(self._model)
        self.seen[f"restored, {'newest' if which % len(heads) == 0 else 'older'}, "
                  f"{'same' if shards == len(self._job.shards) else 'other'} shards"] += 1
        if self._job.directory.objects[head.differential].rows:
            way = "in place" if manifest.groups[0].num_shards == shards else "routed"
            self.seen[f"restored a differential, {way}"] += 1
        self._job.decay = Decay(engine.estimation.decay)
        self._job.restore(which, shards, engine.lineage.last_sequence + 1)
        self._make_manager(engine.estimation.decay, self._job.directory.keep, self._options)

    def manager(self, decay: int, keep: int, options: int) -> None:
        """Another policy, other options; another decay makes new trackers over the rows that are there."""
        self.commit()
        self._make_manager(DECAYS[decay], keep, options)

    def _make_manager(self, decay: float, keep: int, options: int) -> None:
        if self._manager is not None:
            self._end_scan()
            self._manager.close()
        before = getattr(self._model, ENGINE, None)
        self._policy, self._options = Dice(decay), options
        engine_options, buffered = OPTIONS[options]
        self._manager = tfadaptcp.CheckpointManager(self._model, self._directory, self._policy, max_to_keep=keep,
                                                    engine=engine_options,
                                                    buffer_dir=self._directory + "-buffer" if buffered else None)
        if buffered:
            self.seen["staged in a buffer directory"] += 1
        engine = self._manager.engine
        job = self._job
        job.directory.keep, job.claimed, job.last_committed = keep, False, 0
        self._held = []
        if engine is not before:
            self.seen["trackers made anew"] += 1
            job.attach(decay, sequence=1)
        self._hold = getattr(engine, "hold", None)
        if self._hold is None:
            engine.hold = self._hold = Hold(engine)

    # ------------------------------------------------------------- inside

    def _check_clean(self) -> None:
        """Nothing is left over, once data of manifests that one pass deletes has gone with the next."""
        manager = self._manager
        unknown = manager._leftovers.kept
        retention.collect(self._store, self._directory, manager._claim, self._job.directory.keep, unknown)
        self._job.collect()
        self._compare_heads(self._manifests())
        if not unknown:
            check_clean(self._store, self._directory)

    def _tables(self, mask: int) -> list[tuple[str, Any]]:
        return [item for i, item in enumerate(oracle.tables_of(self._model)) if mask >> i & 1]

    def _manifests(self) -> list[Any]:
        heads, damaged = commit.list_heads(self._store, self._directory)
        return heads

    def _published_again(self) -> list[tuple[int, int]]:
        known = {head.name for head in self._job.directory.heads}
        return [name for item in self._manifests()
                if (name := written.name_of(item.head)) not in known and item.origin is not None]

    def _head(self, name: tuple[int, int]) -> Head:
        head, = [head for head in self._job.directory.heads if head.name == name]
        return head


def _keys(first: int, count: int) -> tf.Tensor:
    return tf.range(first, first + count, dtype=tf.int64)


def _rows(variable: Any, count: int, value: int) -> tf.Tensor:
    return tf.fill((count, int(variable.dim)), float(value))
