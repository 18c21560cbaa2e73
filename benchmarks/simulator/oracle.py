"""The best that can be done between two bases by somebody who knows the future."""

from typing import List

import numpy as np

from benchmarks.simulator.traces import Interval


class Oracle:
    """Decides hot and cold in the knowledge of each row's next update; a rule for `Replay`.

    Let a row be unsaved, its next update g intervals ahead, and let r restores, each of hazard h, be served by the
    present base from this checkpoint on. Cold now, it is written once and read r times: 1 + h r. Hot until its next
    update, it is written and read g times: g (1 + h). Hot for a while and cold then is never cheaper than cold at once.
    After the next update the row is unsaved in either case, and what comes then does not depend on the choice. So with
    the bases given, hot iff g (1 + h) < 1 + h r costs the least of all decisions, row by row.

    Args:
        trace: passed over once, for the times of updates.
        hazard: h, per interval.
    """

    def __init__(self, trace, hazard: float):
        self._hazard = hazard
        intervals = [interval.rows for interval in trace]
        self._next: List[np.ndarray] = []
        upcoming = np.full(trace.rows, np.iinfo(np.int32).max // 2, np.int32)
        self._of_row = upcoming.copy()
        for n in range(len(intervals), 0, -1):
            self._next.append(upcoming[intervals[n - 1]])
            upcoming[intervals[n - 1]] = n
        self._next.reverse()

    def update(self, n: int, interval: Interval) -> None:
        """Takes note of interval n, 1 for the first."""
        self._of_row[interval.rows] = self._next[n - 1]

    def __call__(self, rows: np.ndarray, n: int, left: int) -> np.ndarray:
        gap = (self._of_row[rows] - n).astype(np.float64)
        return gap * (1 + self._hazard) < 1 + self._hazard * left
