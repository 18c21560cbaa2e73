"""One shard of a group: its tables, and the tracker that knows which of its rows are unsaved.

Mirrors ops/tracker, without stripes and threads: what two threads would interleave is a reading that begins and
finishes with other steps in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Optional

import numpy as np

TABLES = 2
Row = tuple[Optional[int], ...]  # a value per table, None where the table lacks the key


class Decay:
    """The update indicator p in the precision of the tracker: single, from double powers."""

    def __init__(self, factor: float = 0.9):
        self.factor = factor
        power, self._powers = 1.0, []
        for _ in range(64):
            self._powers.append(np.float32(power))
            power *= factor

    def idle(self, p: np.float32, intervals: int) -> np.float32:
        return p * (self._powers[intervals] if intervals < 64 else np.float32(self.factor ** intervals))

    def written(self, p: np.float32, intervals: int) -> np.float32:
        return min(self.idle(p, intervals) + np.float32(1 - self.factor), np.float32(1))

    def restored(self, p: np.float32, age: int) -> np.float32:
        return p * np.float32(self.factor ** age)


class Entry:
    """What the tracker knows of a row; see ops/tracker/row_entry.h."""

    __slots__ = ("last_update", "last_saved", "mark", "hot", "gone", "p")

    def __init__(self, last_update: int = 0, last_saved: int = 0, p: np.float32 = np.float32(0)):
        self.last_update, self.last_saved, self.p = last_update, last_saved, p
        self.mark, self.hot, self.gone = 0, False, False  # of the last capture


class Captured(NamedTuple):
    """A row as a checkpoint has it; row None is a tombstone."""
    row: Row | None
    p: np.float32


class Reading(NamedTuple):
    """Rows that a lookup or a drain thread has read for a cut and not claimed yet."""
    cut: int
    rows: list[tuple[int, Row | None]]


class Shard:
    """Tables and tracker. `broken`: names of breakages (see rules.py)."""

    def __init__(self, decay: Decay, broken: frozenset[str] = frozenset(), current: int = 1, base: int = 0):
        self.decay, self.broken = decay, broken
        self.rows: dict[int, Row] = {}  # what the tables hold; no row is absent from all
        self.entries: dict[int, Entry] = {}
        self.unsaved: dict[int, None] = {}  # a set that keeps the order
        self.current, self.base = current, base
        self.pending, self.is_base, self.threshold = 0, False, 0.0
        self.candidates: dict[int, None] = {}
        self.cold: dict[int, Captured] = {}
        self.hot: dict[int, Captured] = {}
        self.replaced = 0  # interval of the last clear
        self._deleted: set[int] = set()

    # ------------------------------------------------------------- capture

    def is_unsaved(self, entry: Entry) -> bool:
        return entry.last_update > max(entry.last_saved, self.base)

    def needs(self, entry: Entry) -> bool:
        """Whether the pending cut still has to capture the row."""
        if not self.pending:
            return False
        if entry.mark if "mark is boolean" in self.broken else entry.mark == self.pending:
            return False
        if entry.last_update > self.pending and "captures new rows" not in self.broken:
            return False
        return self.is_base or self.is_unsaved(entry)

    def read(self, keys: Iterable[int]) -> Reading:
        """Begins a lookup's capture: reads those of the rows that the pending cut needs."""
        return Reading(self.pending, [(key, self._row(key)) for key in keys
                                      if key in self.entries and self.needs(self.entries[key])])

    def read_next(self, count: int) -> Reading:
        """Begins a drain thread's capture."""
        keys = [key for key in self._walk() if key in self.entries and self.needs(self.entries[key])]
        return self.read(keys[:count])

    def claim(self, reading: Reading) -> None:
        """Captures the rows of a reading that the cut it was made for still needs."""
        if reading.cut != self.pending and "claims for any cut" not in self.broken:
            return
        for key, row in reading.rows:
            entry = self.entries.get(key)
            if entry is None or not self.needs(entry):
                continue
            p = self.decay.idle(entry.p, max(0, self.pending - entry.last_update))
            entry.mark, entry.gone = self.pending, row is None
            entry.hot = not self.is_base and (row is not None or "hot tombstones" in self.broken) \
                and float(p) > self.threshold
            if entry.hot and entry.last_update != self.pending and "only this interval" in self.broken:
                continue
            if self.is_base and row is None:
                continue  # a base has nothing to take back
            (self.hot if entry.hot else self.cold)[key] = Captured(row, p)

    def drain(self) -> None:
        self.claim(self.read(list(self._walk())))

    def uncaptured(self) -> int:
        return sum(self.needs(self.entries[key]) for key in self._walk() if key in self.entries)

    def _walk(self) -> Iterable[int]:
        return self.entries if self.is_base else self.candidates

    def _row(self, key: int) -> Row | None:
        if "deleted flag" in self.broken and key in self._deleted:
            return None
        return self.rows.get(key)

    # ------------------------------------------------------------- changes

    def write(self, keys: Iterable[int], table: int, value: int, add: bool = False) -> None:
        """One op on one table: `value` is put there, or added to what is there."""
        for key in keys:
            if "captures after the write" not in self.broken:
                self._before_change(key)
            row = list(self.rows.get(key, (None,) * TABLES))
            row[table] = value + (row[table] or 0) if add else value
            self.rows[key] = tuple(row)
            self._deleted.discard(key)
            if "captures after the write" in self.broken:
                self._before_change(key)
            elif "captures new rows" in self.broken:
                self.claim(self.read([key]))

    def remove(self, keys: Iterable[int], table: int) -> None:
        """One op on one table. A key in neither index nor tables stays unknown."""
        for key in keys:
            if key not in self.entries and key not in self.rows:
                continue
            self._before_change(key, capture="removal captures nothing" not in self.broken)
            if key in self.rows:
                self._put(key, table, None)
            self._deleted.add(key)
            entry = self.entries[key]
            if key not in self.rows and entry.last_saved == 0 and (
                    "elides tombstones" in self.broken
                    or "elides uncaptured tombstones" in self.broken
                    and not (self.pending and entry.mark == self.pending)):
                del self.entries[key]

    def clear(self, table: int) -> None:
        """One op on one table, under the closed gate. Every row counts as changed."""
        if "clear captures nothing" not in self.broken:
            self.drain()
        for key in list(self.rows):
            self._put(key, table, None)
        if "clear is not noticed" in self.broken:
            return
        self.replaced = self.current
        for key, entry in self.entries.items():
            entry.p = self.decay.idle(entry.p, self.current - entry.last_update)
            entry.last_update = self.current
            self.unsaved[key] = None

    def seed(self) -> None:
        """The rows that are there become tracked, unsaved."""
        if "forgets rows made before" not in self.broken:
            for key in self.rows:
                self.entries[key] = Entry(self.current)
                self.unsaved[key] = None

    def evict(self) -> None:
        """Memory is short. The index must not forget live rows, so this does nothing."""
        if "evicts clean entries" in self.broken:
            for key in [key for key, entry in self.entries.items()
                        if not self.is_unsaved(entry) and not self.pending]:
                del self.entries[key]

    def _put(self, key: int, table: int, value: int | None) -> None:
        row = list(self.rows[key])
        row[table] = value
        if any(item is not None for item in row):
            self.rows[key] = tuple(row)
        else:
            del self.rows[key]

    def _before_change(self, key: int, capture: bool = True) -> None:
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry()
        elif capture:
            self.claim(self.read([key]))
        stamp = self.current
        if self.pending and "stamps the old interval" in self.broken:
            stamp = self.pending
        if entry.last_update != stamp:
            entry.p = self.decay.written(entry.p, max(0, stamp - entry.last_update))
            entry.last_update = stamp
            self.unsaved[key] = None

    # ------------------------------------------------------------- control

    def cut(self, n: int, is_base: bool, threshold: float) -> None:
        assert not self.pending and n >= self.current
        self.pending, self.is_base, self.threshold = n, is_base, threshold
        self.candidates, self.unsaved = self.unsaved, {}
        self.current = n + 1
        self.cold, self.hot = {}, {}

    def resolve(self, n: int, committed: bool, base: int = 0) -> None:
        """Applies the outcome of checkpoint n; `base`: where the base of its head begins."""
        if n == 0 or self.pending != n:
            return
        walk = list(self._walk())
        for key in walk:
            entry = self.entries.get(key)
            if entry is not None:
                self._resolve_row(key, entry, n, committed)
        self.pending, self.is_base, self.candidates = 0, False, {}
        if committed:
            self.base = max(self.base, base)

    def _resolve_row(self, key: int, entry: Entry, n: int, committed: bool) -> None:
        captured = bool(entry.mark) if "mark is boolean" in self.broken else entry.mark == n
        hot = entry.hot
        if "class at commit" in self.broken:
            now = self.decay.idle(entry.p, self.current - entry.last_update)
            hot = not self.is_base and float(now) > self.threshold
        if committed and captured and entry.gone and (not hot or "hot tombstones" in self.broken):
            if entry.last_update <= n or "drops rewritten tombstones" in self.broken:
                del self.entries[key]
                return
        if committed and captured and not hot:
            entry.last_saved = self.current if "saved now" in self.broken else n
        if "mark is boolean" in self.broken and committed:
            entry.mark = 0
        if entry.last_update > n or not self.is_unsaved(entry):
            return
        if ("hot rows are forgotten" if committed else "failure forgets rows") not in self.broken:
            self.unsaved[key] = None

    def restore(self, objects: Iterable[tuple[dict[int, Captured], int, bool]], head: int,
                mine: Callable[[int], bool]) -> None:
        """Applies the levels of a head, newest first: (rows, sequence written at, whether it is the differential)."""
        seen = set()
        for rows, written, from_differential in objects:
            for key, (row, p) in rows.items():
                if key in seen or not mine(key):
                    continue
                if row is not None or "tombstones aren't seen" not in self.broken:
                    seen.add(key)
                if row is None:
                    continue
                self.rows[key] = row
                hot = from_differential and "restored hot rows are clean" not in self.broken
                self.entries[key] = Entry(head, 0 if hot else head, self.decay.restored(p, head - written))
                if hot:
                    self.unsaved[key] = None
