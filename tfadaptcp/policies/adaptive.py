"""AdaptCP's policy: rows updated often go into differentials, the others into increments."""

import dataclasses
import math
from typing import Any, Dict, Optional

from tfadaptcp.policies import cost_model
from tfadaptcp.policies.base import ESTIMATORS, NONE_HOT, PolicyStats

_SOLVERS = ("dynamic", "bisection")
_RENEWALS = ("period", "marginal")
# What a chain may have of files, whatever its base has: 9 MB of each manifest, and 2 s of Python at each checkpoint.
_FEW_OBJECTS = 50_000


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """Hot and cold by the cost model of `cost_model`.

    What restores matter is a hazard per interval, given in one of two ways: `restore_weight / first_period`, or what
    follows from `mtbf_seconds`. It does not follow the length of the periods that the policy itself chooses: a longer
    period would then seem to make restores rarer, and periods run away.

    Args:
        restore_weight: what restores matter, as expected restores per period of `first_period` checkpoints, times the
            cost of a row read by a restore over that of a row written. 0: nothing is ever hot. None: 1, unless
            `mtbf_seconds` is given.
        first_period: checkpoints per base with `renewal="period"`; otherwise only the length assumed for the first period,
            after which each is taken to be as long as the last. It gives `restore_weight` its scale either way.
        max_restore_factor: a base is due when a restore reads more than this many times what it would read right after a
            new one; or when base and increments are more than 50,000 files, and more than this many times those of the base.
        mtbf_seconds: mean time between failures of the whole job, instead of `restore_weight`. The hazard is then the
            mean time between checkpoints over this, times `restore_cost_ratio`; that time is measured, and until it is
            known the hazard is that of the default weight.
        restore_cost_ratio: with `mtbf_seconds`: cost of a byte read by a restore, for which the whole job stands still, over
            that of a byte written, which training hides. None: as the speeds of writing and reading that were measured
            are to one another, or 1 while one is unknown.
        decay: of the estimates of p, per interval: the nearer to 1, the longer the memory.
        estimator: "updates": p is the share of the intervals in which the row was updated. "accesses": p follows from how
            often it was looked up in an interval (f), as 1 - exp(-f); lookups are counted then, those of an evaluation
            too, and need a decay above 0.
        solver: "dynamic" decides at each checkpoint with the intervals left until the next base; "bisection" uses
            the published threshold: that of the least cost for the rows as they are distributed, were all of them hot or
            cold for a whole period.
        renewal: "marginal" makes a base when the cost of the last checkpoint (bytes written, and the hazard times bytes that
            a restore reads) exceeds the average cost per checkpoint since the base, the bytes of a new one included;
            "period" every `first_period` checkpoints. `max_restore_factor` bounds both.

    Raises:
        ValueError: a value is out of range.
    """

    restore_weight: Optional[float] = None
    first_period: int = 43
    max_restore_factor: float = 2.0
    decay: float = 0.9
    solver: str = "dynamic"
    renewal: str = "marginal"
    estimator: str = "updates"
    mtbf_seconds: Optional[float] = None
    restore_cost_ratio: Optional[float] = None
    name = "adaptive"
    predicts = True

    def __post_init__(self):
        def require(field, holds, expected):
            if not holds:
                raise ValueError(f"{field}: Received: {getattr(self, field)!r}. Expected: {expected}")

        for field in ("max_restore_factor", "decay"):
            require(field, _is_number(getattr(self, field)), "a finite number")
        for field in ("restore_weight", "mtbf_seconds", "restore_cost_ratio"):
            require(field, getattr(self, field) is None or _is_number(getattr(self, field)), "None or a finite number")
        require("restore_weight", self.restore_weight is None or self.restore_weight >= 0, "at least 0")
        require("mtbf_seconds", self.mtbf_seconds is None or self.mtbf_seconds > 0, "above 0")
        require("mtbf_seconds", self.mtbf_seconds is None or self.restore_weight is None,
                f"None beside restore_weight, which is {self.restore_weight!r}: one of them says what restores matter")
        require("restore_cost_ratio", self.restore_cost_ratio is None or self.restore_cost_ratio >= 0, "at least 0")
        require("restore_cost_ratio", self.restore_cost_ratio is None or self.mtbf_seconds is not None,
                "None without mtbf_seconds")
        require("first_period", type(self.first_period) is int and self.first_period >= 1, "an integer of at least 1")
        require("max_restore_factor", self.max_restore_factor >= 1, "at least 1, which is the base alone")
        require("decay", 0 <= self.decay < 1, "at least 0, below 1")
        require("estimator", self.estimator in ESTIMATORS, f"one of {ESTIMATORS}")
        require("decay", self.decay > 0 or self.estimator != "accesses", "above 0 with estimator='accesses'")
        require("solver", self.solver in _SOLVERS, f"one of {_SOLVERS}")
        require("renewal", self.renewal in _RENEWALS, f"one of {_RENEWALS}")

    @property
    def wants_histogram(self) -> bool:
        """Whether it decides by the distribution of p."""
        return self.solver == "bisection"

    def hazard(self, stats: PolicyStats) -> float:
        """h: the weight of restores, per interval."""
        if self.mtbf_seconds is None or stats.seconds_per_interval is None:
            return (1.0 if self.restore_weight is None else self.restore_weight) / self.first_period
        ratio = self.restore_cost_ratio
        if ratio is None:
            write, read = stats.write_bytes_per_second, stats.read_bytes_per_second
            ratio = write / read if write and read else 1.0
        return stats.seconds_per_interval / self.mtbf_seconds * ratio

    def hot_threshold(self, stats: PolicyStats) -> float:
        if not stats.has_base:
            return NONE_HOT
        period, hazard = self._period(stats), self.hazard(stats)
        if self.solver == "bisection":
            threshold = cost_model.best_threshold(stats.p_histogram.values(), period, hazard * period)
        else:  # The checkpoint about to be made is number checkpoints_since_base + 1 of `period`.
            threshold = cost_model.dynamic_threshold(period - stats.checkpoints_since_base, hazard)
        return cost_model.reading(threshold, self.decay, self.estimator)

    def describe(self, stats: PolicyStats) -> Dict[str, Any]:
        """How `hot_threshold(stats)` comes about, for the manifest."""
        return {"solver": self.solver, "hazard": self.hazard(stats), "period": self._period(stats)}

    def base_due(self, stats: PolicyStats) -> bool:
        if not stats.has_base or stats.checkpoints_since_base < 1:
            return False
        if stats.bytes_restore > self.max_restore_factor * (stats.bytes_of_new_base + stats.bytes_dense):
            return True
        if stats.objects_in_chain > max(_FEW_OBJECTS, self.max_restore_factor * stats.objects_in_base):
            return True
        if self.renewal == "period":
            return stats.checkpoints_since_base >= self.first_period
        hazard = self.hazard(stats)
        marginal = stats.bytes_last_checkpoint + hazard * stats.bytes_restore
        total = stats.bytes_of_new_base + stats.bytes_written_since_base + hazard * stats.bytes_restore_since_base
        return marginal * stats.checkpoints_since_base > total

    def _period(self, stats: PolicyStats) -> int:
        # One of 0 or 1 was not this policy's: a table was replaced, or each checkpoint was complete.
        if self.renewal == "marginal" and (stats.last_period or 0) > 1:
            return stats.last_period
        return self.first_period


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
