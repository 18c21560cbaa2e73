"""One policy on one trace: the chain of checkpoints that a manager would make, in rows."""

import dataclasses
from typing import Callable, List, Optional, Tuple

import numpy as np

from benchmarks.simulator.tracker import Tracker
from tfadaptcp.policies import Policy, PolicyStats

BYTES_PER_ROW = 204  # dim 16 with two optimizer slots, key and update indicator


@dataclasses.dataclass
class Result:
    """What the checkpoints of a run wrote, and what restores of them read, in rows. Lists have an entry per checkpoint.

    Attributes:
        written: increment and differential, or a base that was cut; not the first base.
        bases: read beside training.
        restore: read by a restore of the checkpoint: base, increments, differential.
        base_read: the part of `restore` that is the base.
        begun: whether a base was cut or begun there.
        periods: checkpoints that each base served which is not in use any more.
    """
    written: List[int] = dataclasses.field(default_factory=list)
    bases: List[int] = dataclasses.field(default_factory=list)
    restore: List[int] = dataclasses.field(default_factory=list)
    base_read: List[int] = dataclasses.field(default_factory=list)
    begun: List[bool] = dataclasses.field(default_factory=list)
    periods: List[int] = dataclasses.field(default_factory=list)

    def cost(self, hazard: float) -> float:
        """Returns the mean over checkpoints of rows written, and the hazard times the rows that a restore reads."""
        written, restore = self.means()
        return written + hazard * restore

    def means(self) -> Tuple[float, float]:
        """Returns the rows written, bases among them, and the rows read by a restore, both per checkpoint.

        Up to the last base begun, it included, as the first base is not; all checkpoints if there was none. Else the
        end of the run would weigh, which finds one policy just before a base, the other just after.
        """
        end = self._end()
        return (sum(self.written[:end]) + sum(self.bases[:end])) / end, sum(self.restore[:end]) / end

    def bases_cost(self, hazard: float) -> float:
        """Returns the part of `cost` that bases have: written, and read by restores."""
        end = self._end()
        return (sum(self.bases[:end]) + hazard * sum(self.base_read[:end])) / end

    def _end(self) -> int:
        bases = np.flatnonzero(self.begun)
        return int(bases[-1]) + 1 if bases.size else len(self.restore)


# Which of the unsaved rows are hot, in place of the policy's threshold: (rows, interval, checkpoints that the
# present base has still to serve, this one included) -> bool [rows].
HotRule = Callable[[np.ndarray, int, int], np.ndarray]


class Replay:
    """Makes a checkpoint after each interval, and asks the policy what a manager would ask it.

    A new base is read between the checkpoint it starts at, which is an ordinary one, and the next, which goes by it; with
    `snapshot_bases` of the policy it is a cut of its own. A table that has no rows yet gets its first base, which is not
    counted, from the first checkpoint.

    Args:
        policy: what is hot, and when a base is due.
        tracker: what it sees of the rows; updated by the caller, and shared by replays that see the same.
        rows: live rows before the first interval.
        hot_rule: in place of the policy's threshold.
    """

    def __init__(self, policy: Policy, tracker: Tracker, rows: int, hot_rule: Optional[HotRule] = None):
        self.policy, self.result = policy, Result()
        self._tracker, self._rule = tracker, hot_rule
        self._hot = np.empty(0, np.int32)  # in the last differential, unsaved still
        self._live = self._in_base = rows
        self._has_base = rows > 0
        self._in_increments: List[int] = []  # since the base
        self._since = self._written = self._restored = self._last = 0
        self._differential, self._last_period = 0, None
        self._scan: Optional[int] = None  # the checkpoint at which the base was begun that the next one goes by

    def stats(self, unsaved: int) -> PolicyStats:
        """What the policy is told before the next cut."""
        size = BYTES_PER_ROW
        restore = self._in_base + sum(self._in_increments) + self._differential
        return PolicyStats(
            has_base=self._has_base, checkpoints_since_base=self._since, last_period=self._last_period,
            rows_total=self._live, rows_unsaved=unsaved, bytes_per_row=size, rows_in_base=self._in_base,
            bytes_in_base=self._in_base * size, bytes_of_new_base=self._live * size,
            bytes_written_since_base=self._written * size, bytes_last_checkpoint=self._last * size,
            bytes_differential=self._differential * size, bytes_restore=restore * size, bytes_restore_since_base=self._restored * size)

    def checkpoint(self, n: int, updated: np.ndarray, live: int) -> None:
        """Checkpoint n, at the end of interval n; `updated` rows in it, `live` rows in all."""
        self._live = live
        carried = self._hot[self._tracker.last_update[self._hot] != n]
        unsaved = np.concatenate([updated, carried])
        if not self._has_base:
            self._base(live)
            return
        scan, self._scan = self._scan, None
        stats = self.stats(unsaved.size)
        begins = None
        if scan is not None:
            stats = dataclasses.replace(stats, checkpoints_since_base=0, bytes_written_since_base=0,
                                        bytes_restore_since_base=0)
        elif self.policy.base_due(stats):
            if getattr(self.policy, "snapshot_bases", False):
                self._base(live)
                return
            begins = n
        hot = self._is_hot(unsaved, n, stats)
        rows_hot = int(np.count_nonzero(hot))
        rows_cold = unsaved.size - rows_hot
        if scan is not None:
            self.result.periods.append(self._since)
            self._last_period, self._since = self._since, 0
            self._in_increments, self._in_base = [], self.result.bases[-1]
            self._written = self._restored = 0
        self._in_increments.append(rows_cold)
        self._differential, self._last = rows_hot, unsaved.size
        restore = self._in_base + sum(self._in_increments) + rows_hot
        self._since, self._written, self._restored = (
            self._since + 1, self._written + unsaved.size, self._restored + restore)
        self._hot = unsaved[hot]
        if scan is not None:  # what was not written since the base's start is in the base
            self._hot = self._hot[self._tracker.last_update[self._hot] > scan]
        self._scan = begins
        self._note(unsaved.size, live if begins is not None else 0, restore)

    def _is_hot(self, unsaved: np.ndarray, n: int, stats: PolicyStats) -> np.ndarray:
        if self._rule is not None:
            # One more than the period: the checkpoint at which a base is begun goes by the one before.
            return self._rule(unsaved, n, self.policy.first_period + 1 - stats.checkpoints_since_base)
        threshold = self.policy.hot_threshold(stats)
        if not 0 <= threshold < 1:
            return np.full(unsaved.size, threshold < 0)
        known = self._tracker.p_updated  # the updated rows come first
        return np.concatenate([known, self._tracker.p(unsaved[known.size:], n)]) > threshold

    def _base(self, live: int) -> None:
        """A base that is a cut. The first one is what every policy begins with, and not counted as written."""
        is_first = not self._has_base
        if not is_first:
            self.result.periods.append(self._since)
            self._last_period = self._since
        self._has_base, self._in_base, self._in_increments = True, live, []
        self._differential, self._last = 0, live
        self._since = self._written = self._restored = 0
        self._hot = np.empty(0, np.int32)
        self._note(0 if is_first else live, 0, live, is_base=not is_first)

    def _note(self, written: int, base: int, restore: int, is_base: bool = False) -> None:
        self.result.written.append(written)
        self.result.bases.append(base)
        self.result.base_read.append(self._in_base)
        self.result.begun.append(base > 0 or is_base)
        self.result.restore.append(restore)
