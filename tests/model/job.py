"""A training job: shards, the coordinator with its pending checkpoint, the directory, and the oracle.

The methods that random sequences call are named as their steps are. Each takes whole numbers, any, and makes sense of
them; a step that makes no sense at its moment does nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tests.model.checkpoints import Directory, Head, Name, Rows, Violation, check_equal
from tests.model.shard import TABLES, Captured, Decay, Reading, Shard

# p of a row starts at 0.1 and is 0.19 after two intervals with writes.
THRESHOLDS = (-1.0, 0.05, 0.085, 0.12, 0.18, math.inf)
ALL = -1


@dataclasses.dataclass
class Pending:
    """A checkpoint between its cut and its outcome."""
    sequence: int
    is_base: bool
    copy: Rows
    scan: "Scan | None" = None


@dataclasses.dataclass
class Scan:
    """A base being read in the background, without a cut of its own: live rows, key by key."""
    start: int  # the last cut when it began
    left: list[list[int]]  # per shard; a row made later is in an increment after the start
    held: bool = False  # until scan_all
    rows: dict[int, Captured] = dataclasses.field(default_factory=dict)

    @property
    def done(self) -> bool:
        return not self.held and not any(self.left)


class Job:
    """A model of the product, obeying all rules but those in `broken`."""

    def __init__(self, broken: Sequence[str] = (), shards: int = 2, keep: int = 3, decay: float = 0.9):
        self.broken, self.decay = frozenset(broken), Decay(decay)
        self.directory = Directory(keep, self.broken)
        self.generation, self.claimed = 0, False
        self.sequence = 1  # of the next cut
        self.position: Head | None = None  # what the trackers call saved is in it
        self.came_from: Head | None = None  # the same, and still after the trackers were made anew
        self.pending: Pending | None = None
        self.last_committed, self._last_base = 0, 0
        self.scan: Scan | None = None
        self.readings: list[tuple[Shard, Reading]] = []
        self.shards = [self._new_shard() for _ in range(shards)]
        self.value = 0
        self._newest: Name | None = None  # the identity that the newest head must have

    def run(self, steps: Sequence[tuple]) -> None:
        """Runs a sequence. Raises Violation at the first thing that is wrong."""
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
        for head in self.directory.heads:
            self.directory.check(head)

    def live(self) -> Rows:
        """What the tables hold, whole."""
        return {key: row for shard in self.shards for key, row in shard.rows.items()}

    # ------------------------------------------------------------- training

    def write(self, first: int, count: int = 1, tables: int = 3, add: bool = False) -> None:
        """Tables: 1 the parameter, 2 the slot, 3 both, one op after the other."""
        for table in _tables(tables):
            self.value += 1
            for shard, keys in self._by_shard(range(first, first + count)):
                shard.write(keys, table, self.value, add)

    def add(self, first: int, count: int = 1, tables: int = 3) -> None:
        self.write(first, count, tables, add=True)

    def remove(self, first: int, count: int = 1, tables: int = 3) -> None:
        for table in _tables(tables):
            for shard, keys in self._by_shard(range(first, first + count)):
                shard.remove(keys, table)

    def clear(self, tables: int = 3) -> None:
        for table in _tables(tables):
            for shard in self.shards:
                shard.clear(table)

    def lookup(self, first: int, count: int = 1) -> None:
        """Reads rows that the pending cut needs; they are claimed later."""
        for shard, keys in self._by_shard(range(first, first + count)):
            self.readings.append((shard, shard.read(keys)))

    def drain(self, shard: int, count: int) -> None:
        self.readings.append((self._shard(shard), self._shard(shard).read_next(count)))

    def finish_readings(self) -> None:
        for shard, reading in self.readings:
            shard.claim(reading)
        self.readings = []

    def evict(self) -> None:
        for shard in self.shards:
            shard.evict()

    def attach(self, decay: float = 0.9, sequence: int = 0) -> None:
        """Trackers are made anew over the tables as they are. The next checkpoint goes on from no head."""
        self.decay = Decay(decay)
        self.sequence = sequence or self.sequence
        self._forget_pending()
        rows = [shard.rows for shard in self.shards]
        self.shards = [self._new_shard() for _ in rows]
        for shard, mine in zip(self.shards, rows):
            shard.rows = mine
            shard.seed()
        self.position, self.claimed = None, False

    # ------------------------------------------------------------- checkpoints

    def cut(self, threshold: int = 5, is_base: bool = False, gap: int = 0) -> None:
        """Begins a checkpoint; `gap`: sequences left out."""
        if self.pending is not None:
            return
        self.begin_lineage()
        self.take_cut(self.sequence + gap, THRESHOLDS[threshold % len(THRESHOLDS)], is_base)

    def begin_lineage(self) -> None:
        """Before the first cut of a run: the head it goes on from is published again, as the newest."""
        if self.claimed:
            return
        self.claimed = True
        self.generation += 1
        if self.came_from is not None:
            self._newest = self.came_from.identity
            if "not published again" not in self.broken:
                self.publish_again((self.generation, self.sequence))
                self.sequence += 1
        newest = self.directory.heads[-1].identity if self.directory.heads else None
        if newest != self._newest:
            raise Violation(f"the newest head is {newest}, expected {self._newest}")

    def publish_again(self, name: Name) -> None:
        again = dataclasses.replace(self.came_from, name=name, origin=self.came_from.identity)
        self.directory.publish(again)
        self.came_from = again
        if self.position is not None:
            self.position = again

    def tell(self) -> None:
        """Shards that missed the last outcome learn it with the next request."""
        for shard in self.shards:
            if "cuts over unresolved" in self.broken:
                shard.pending, shard.candidates = 0, {}
            committed = shard.pending == self.last_committed or "untold means committed" in self.broken
            shard.resolve(shard.pending, committed, self._last_base)

    def take_cut(self, n: int, threshold: float, is_base: bool) -> None:
        self.tell()
        is_base |= self.position is None or self.was_cleared()
        self.sequence = n + 1
        scan = self.scan
        if is_base or scan is not None and not scan.done and "early scan" not in self.broken:
            scan = None
        for shard in self.shards:
            shard.cut(n, is_base, threshold)
        self.pending = Pending(n, is_base, self.live(), scan)

    def was_cleared(self) -> bool:
        """Whether tables were cleared since the last base was cut: the next checkpoint is complete."""
        return any(shard.replaced > shard.base for shard in self.shards)

    def commit(self, told: int = ALL) -> None:
        """The manifest is durable; `told`: the shard that hears of it, ALL, or another number: none."""
        if self.pending is None:
            return
        self.position = self.came_from = self._publish()
        self.last_committed, self._last_base = self.pending.sequence, self._new_base()
        if self.pending.is_base or self.pending.scan is not None:
            self.scan = None
        self._finish(True, told)

    def collect(self) -> None:
        """One pass of retention."""
        if self.directory.heads:
            self.directory.collect()

    def unknown(self) -> None:
        """The manifest is there, but the coordinator can't tell and goes on as after a failure."""
        if self.pending is None:
            return
        head = self._publish()
        if "deletes the unknown" in self.broken:
            for item in (*head.increments[-1:], head.differential):
                self.directory.objects.pop(item, None)
        self._finish(False, ALL)

    def fail(self, told: int = ALL, late: bool = False) -> None:
        """There is no manifest; `late`: all rows had been captured."""
        if self.pending is None:
            return
        self.finish_readings()
        if late:
            for shard in self.shards:
                shard.drain()
        self._finish("told before durable" in self.broken, told)

    def restore(self, which: int = 0, shards: int = 2, sequence: int = 0) -> None:
        """A new job restores a head, 0 the newest; `sequence`: of its first interval, 0: the first unused one."""
        heads = self.directory.heads
        if not heads:
            return
        head = heads[-1 - which % len(heads)]
        self._forget_pending()
        old = self.live() if "restores onto old rows" in self.broken else {}
        self.sequence = sequence or max(self.sequence, heads[-1].sequence + 1)
        levels = self.directory.levels(head)
        self.shards = [self._new_shard(head.base_start) for _ in range(shards)]
        for i, shard in enumerate(self.shards):
            shard.rows = {key: row for key, row in old.items() if key % shards == i}
            shard.restore(levels, head.sequence, lambda key: key % shards == i)
        check_equal(self.live(), head.copy, f"head {head.name} restored to {shards} shards")
        self.position = heads[-1] if "goes on from the newest" in self.broken else head
        self.came_from = self.position
        self.claimed = False

    # ------------------------------------------------------------- bases in the background

    def begin_scan(self, held: bool = False) -> None:
        if self.scan is None and self.position is not None:
            self.scan = Scan(self.sequence - 1, [sorted(shard.entries) for shard in self.shards], held)

    def scan_rows(self, shard: int, count: int) -> None:
        """Reads the next rows, as they are now."""
        if self.scan is None:
            return
        left, shard = self.scan.left[shard % len(self.shards)], self._shard(shard)
        for key in left[:count]:
            row = shard.rows.get(key)
            if row is not None:
                entry = shard.entries[key]
                p = self.decay.idle(entry.p, max(0, self.scan.start - entry.last_update))
                self.scan.rows[key] = Captured(row, p)
        del left[:count]

    def scan_all(self) -> None:
        """Reads all rows there are at this moment."""
        self.scan.held = False
        self.scan.left = [list(shard.entries) for shard in self.shards]
        for i, keys in enumerate(self.scan.left):
            self.scan_rows(i, len(keys))

    # ------------------------------------------------------------- inside

    def _new_shard(self, base: int = 0) -> Shard:
        return Shard(self.decay, self.broken, self.sequence, base)

    def _shard(self, key: int) -> Shard:
        return self.shards[key % len(self.shards)]

    def _by_shard(self, keys: Sequence[int]) -> list[tuple[Shard, list[int]]]:
        count = len(self.shards)
        return [(shard, mine) for i, shard in enumerate(self.shards) if (mine := [k for k in keys if k % count == i])]

    def _forget_pending(self) -> None:
        self.pending = self.scan = None
        self.last_committed = 0
        self.readings = []

    def _publish(self) -> Head:
        """Drains the pending checkpoint and writes its manifest."""
        self.finish_readings()
        pending, cold, hot = self.pending, {}, {}
        for shard in self.shards:
            shard.drain()
            if shard.pending == pending.sequence and shard.uncaptured():
                raise Violation(f"checkpoint {pending.sequence}: rows are left after the drain")
            cold.update(shard.cold)
            hot.update(shard.hot)
        n, position, put = pending.sequence, self.position, self.directory.put
        if pending.is_base:
            base, start, increments = put(n, cold), n, ()
        else:
            base, start = position.base, position.base_start
            increments = (*position.increments, put(n, cold))
        if pending.scan is not None:
            scan = pending.scan
            base, start = put(scan.start, dict(scan.rows)), scan.start
            last = n - 1 if "scan drops increments" in self.broken else scan.start
            increments = tuple(i for i in increments if self.directory.objects[i].sequence > last)
        # A complete one too: the heads before it are to age out.
        head = Head((self.generation, n), self.came_from and self.came_from.name, None, base, start, increments, put(n, hot),
                    pending.copy)
        self.directory.publish(head)
        self.directory.check(head)
        self._newest = head.identity
        return head

    def _new_base(self) -> int:
        """Where the base begins that the pending checkpoint is the first to go by, 0 if it goes by an older one."""
        if self.pending.is_base:
            return self.pending.sequence
        if self.pending.scan is None:
            return 0
        return self.pending.sequence if "scan cleans to the head" in self.broken else self.pending.scan.start

    def _finish(self, committed: bool, told: int) -> None:
        n, base = self.pending.sequence, self._new_base()
        self.pending = None
        if not committed:
            self.last_committed = 0
        for i, shard in enumerate(self.shards):
            if told in (ALL, i):
                shard.resolve(n, committed, base)


def _tables(mask: int) -> list[int]:
    return [table for table in range(TABLES) if mask >> table & 1]
