"""The estimates of p against the rate at which rows really are updated."""

from typing import Sequence

import numpy as np

from benchmarks.simulator.report import Table
from benchmarks.simulator.tracker import Tracker
from benchmarks.simulator.traces import Interval

# Bounds of the buckets of true p.
BOUNDS = (0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


class BernoulliTrace:
    """Rows of one p, independent in each interval, with `clump` occurrences on average in each that they are in.

    The occurrences are geometrically distributed: at least one, and sometimes many more.

    Args:
        p: of each row.
        rows: how many.
        intervals: how many.
        clump: mean occurrences per interval with any.
        seed: of the draws.
    """

    prefilled = True

    def __init__(self, p: float, rows: int, intervals: int, clump: int = 1, seed: int = 1):
        self.rows, self.intervals, self._p, self._clump, self._seed = rows, intervals, p, clump, seed

    def __iter__(self):
        random = np.random.default_rng(self._seed)
        truth = np.full(self.rows, self._p, np.float32)
        for _ in range(self.intervals):
            rows = np.flatnonzero(random.random(self.rows) < self._p).astype(np.int32)
            yield Interval(rows, random.geometric(1 / self._clump, rows.size).astype(np.float32), truth)


def mean_estimate(trace, estimator: str, decay: float = 0.9) -> float:
    """Returns the mean estimate over all rows, as of the end of the trace."""
    tracker = Tracker(trace.rows, estimator, decay)
    for n, interval in enumerate(trace, 1):
        tracker.update(n, interval)
    return float(tracker.p(np.arange(trace.rows), trace.intervals).mean())


def clumped(values: Sequence[float] = (0.01, 0.1, 0.3, 0.6, 0.9), clumps: Sequence[int] = (1, 3, 10),
            rows: int = 20_000, intervals: int = 100) -> Table:
    """What rows of a known p read, with 1, 3 or 10 occurrences on average in each interval in which they are updated."""
    found = Table("Mean estimate, by mean occurrences per interval that a row is in",
                  ["true p", "updates", *(f"accesses, {clump}" for clump in clumps)])
    for p in values:
        found.add(f"{p:g}", mean_estimate(BernoulliTrace(p, rows, intervals), "updates"),
                  *(mean_estimate(BernoulliTrace(p, rows, intervals, clump), "accesses") for clump in clumps))
    return found


def by_bucket(trace, title: str, estimators: Sequence[str] = ("updates", "accesses")) -> Table:
    """Estimates by buckets of true p: mean over all rows of a bucket, and over those just updated, as policies see them.

    Where a trace does not know its p, the truth is each row's share of the intervals that it was updated in.
    """
    trackers = {name: Tracker(trace.rows, name) for name in estimators}
    truth, updates, last = None, np.zeros(trace.rows, np.int32), None
    for n, interval in enumerate(trace, 1):
        updates[interval.rows] += 1
        truth, last = interval.p, interval.rows
        for tracker in trackers.values():
            tracker.update(n, interval)
    if truth is None:
        truth = updates / trace.intervals
    bucket = np.clip(np.searchsorted(BOUNDS, truth, side="right") - 1, 0, len(BOUNDS) - 2)
    rows = np.arange(trace.rows)
    found = Table(title, ["true p", "rows", "mean", *(f"{name}{which}" for name in estimators
                                                      for which in (", all rows", ", just updated"))])
    p = {name: tracker.p(rows, trace.intervals) for name, tracker in trackers.items()}
    for b, (low, high) in enumerate(zip(BOUNDS, BOUNDS[1:])):
        inside = np.flatnonzero(bucket == b)
        if inside.size == 0:
            continue
        updated = last[bucket[last] == b]
        found.add(f"{low:g} to {high:g}", int(inside.size), float(truth[inside].mean()), *(
            float(p[name][which].mean()) if which.size else "" for name in estimators for which in (inside, updated)))
    return found
