"""What Check-N-Run and the other baselines write, simulated with sets of keys: an oracle for the real ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

KEYS, INTERVALS, DIM = 300, 13, 16
FIRST_NEW = 10_000

# Kind of object -> {key: value of its rows, None for a tombstone}.
Written = dict[str, dict[int, int | None]]


@dataclasses.dataclass(frozen=True)
class Interval:
    """What training writes and removes between two checkpoints, in this order."""
    written: tuple[int, ...]
    removed: tuple[int, ...]
    value: int


def job(seed: int = 3) -> list[Interval]:
    """Intervals of a job: at first every key; then some keys often, most rarely, new ones, and a few that go."""
    random = np.random.default_rng(seed)
    intervals = [Interval(tuple(range(KEYS)), (), 1)]
    live = set(range(KEYS))
    for n in range(1, INTERVALS):
        keys = set((random.random(90) ** 2.5 * KEYS).astype(int).tolist()) | {FIRST_NEW + 2 * n, FIRST_NEW + 2 * n + 1}
        live |= keys
        gone = tuple(random.choice(sorted(live), 4, replace=False).tolist()) if n % 3 == 1 else ()
        live -= set(gone)
        intervals.append(Interval(tuple(sorted(keys)), gone, 1 + n))
    return intervals


class Rule:
    """One of the systems: whether all since the base are written again, and whether a base is due after these sizes."""

    def __init__(self, cumulative: bool, renew: Callable[[list[float]], bool]):
        self.cumulative, self.renew = cumulative, renew


def _published(sizes: list[float]) -> bool:
    """Check-N-Run's F <= I. It must not be a close thing: files are a little larger than their rows."""
    if not sizes:
        return False
    total, ahead = 1 + sum(sizes), (len(sizes) + 1) * sizes[-1]
    assert abs(total - ahead) > 0.06 * total, f"too close: {total} and {ahead}"
    return total <= ahead


RULES = {
    "intermittent": Rule(True, _published),
    "one_shot": Rule(True, lambda sizes: False),
    "consecutive": Rule(False, lambda sizes: False),
    "native_incremental": Rule(False, lambda sizes: False),
    "incr_ckpt_3": Rule(False, lambda sizes: len(sizes) >= 3),
    "differential": Rule(True, lambda sizes: False),
    "full": Rule(False, lambda sizes: True),
}


def simulate(rule: Rule, intervals: list[Interval]) -> list[Written]:
    """What each checkpoint writes."""
    table: dict[int, int] = {}
    pending: set[int] = set()  # rows to be written, since the last checkpoint or since the base
    base_rows, sizes, checkpoints = 0, [], []
    for n, interval in enumerate(intervals):
        for key in interval.written:
            table[key] = interval.value
        pending |= set(interval.written)
        for key in interval.removed:
            del table[key]
        dead = set(interval.removed)
        pending -= dead
        if n == 0 or rule.renew(sizes):
            checkpoints.append({"base": dict(table)})
            base_rows, sizes, pending = len(table), [], set()
            continue
        rows = {key: table[key] for key in pending}
        tombstones = dict.fromkeys(dead)
        if rule.cumulative:
            checkpoints.append({"differential": rows, "increment": tombstones})
        else:
            checkpoints.append({"increment": {**rows, **tombstones}})
            pending = set()
        sizes.append(len(rows) / base_rows)
    return [{kind: rows for kind, rows in written.items() if rows} for written in checkpoints]
