"""What a tracker knows of each row, as `ops/tracker` keeps it, with either estimate of p."""

import numpy as np

from benchmarks.simulator.traces import Interval
from tfadaptcp.policies.cost_model import reading

ESTIMATORS = ("updates", "accesses", "truth")


class Tracker:
    """The last update and the estimate of p of each row, brought up to date at updates only.

    Args:
        rows: of the trace.
        estimator: "updates": a decayed indicator "updated in the interval"; "accesses": a decayed count f of accesses,
            of which p = 1 - exp(-f); "truth": what "updates" reads on average of a row that was just updated, by
            the trace's own p.
        decay: b, per interval.
    """

    def __init__(self, rows: int, estimator: str = "updates", decay: float = 0.9):
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator: Received: {estimator!r}. Expected: one of {ESTIMATORS}")
        self.estimator, self.decay = estimator, decay
        self.last_update = np.zeros(rows, np.int32)
        self._value = np.zeros(0 if estimator == "truth" else rows, np.float32)
        self._truth = None
        self.p_updated = np.empty(0, np.float32)  # of the rows updated in the last interval, in their order there

    def update(self, n: int, interval: Interval) -> None:
        """Takes note of interval n, 1 for the first."""
        rows = interval.rows
        if self.estimator == "truth":
            self._truth = interval.p
        else:
            amount = np.float32(1 - self.decay) * (interval.counts if self.estimator == "accesses" else np.float32(1))
            self._value[rows] = self._decayed(rows, n) + amount
        self.last_update[rows] = n
        self.p_updated = self.p(rows, n)

    def p(self, rows: np.ndarray, n: int) -> np.ndarray:
        """Returns float32 [len(rows)]: the estimates as of the end of interval n."""
        if self.estimator == "truth":
            return reading(self._truth[rows], self.decay)
        value = self._decayed(rows, n)
        return -np.expm1(-value) if self.estimator == "accesses" else value

    def _decayed(self, rows: np.ndarray, n: int) -> np.ndarray:
        return self._value[rows] * np.float32(self.decay) ** (n - self.last_update[rows]).astype(np.float32)
