"""AdaptCP's policy: rows updated often go into differentials, the others into increments."""

import dataclasses
import functools
import math

from tfadaptcp.policies import cost_model
from tfadaptcp.policies.base import NONE_HOT, PolicyStats

_SOLVERS = ("dynamic", "bisection")
_RENEWALS = ("period", "marginal")

_static_threshold = functools.lru_cache(maxsize=64)(cost_model.static_threshold)


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """Hot and cold by the cost model of `cost_model`.

    The hazard per interval is `restore_weight / first_period`. It does not follow the length of the periods that the
    policy itself chooses: a longer period would then seem to make restores rarer, and periods run away.

    Args:
        restore_weight: what restores matter, as expected restores per period of `first_period` checkpoints, times the
            cost of a row read by a restore over that of a row written. 0: nothing is ever hot.
        first_period: checkpoints per base; with `renewal="marginal"`, only the length assumed for the first period.
        max_restore_factor: a base is due when a restore reads more than this many times the bytes of the base.
        decay: of the update indicators, per interval: the nearer to 1, the longer the memory.
        solver: "dynamic" decides at each checkpoint with the intervals left until the next base; "bisection" uses
            the published threshold, the same for the whole period.
        renewal: "period" makes a base every `first_period` checkpoints; "marginal" when the cost of the last
            checkpoint (bytes written, and the hazard times bytes that a restore reads) exceeds the average cost per
            checkpoint since the base, the base's own bytes included. `max_restore_factor` bounds both.

    Raises:
        ValueError: a value is out of range.
    """

    restore_weight: float = 1.0
    first_period: int = 43
    max_restore_factor: float = 2.0
    decay: float = 0.9
    solver: str = "dynamic"
    renewal: str = "period"
    name = "adaptive"

    def __post_init__(self):
        def require(field, holds, expected):
            if not holds:
                raise ValueError(f"{field}: Received: {getattr(self, field)!r}. Expected: {expected}")

        for field in ("restore_weight", "max_restore_factor", "decay"):
            require(field, _is_number(getattr(self, field)), "a finite number")
        require("restore_weight", self.restore_weight >= 0, "at least 0")
        require("first_period", type(self.first_period) is int and self.first_period >= 1, "an integer of at least 1")
        require("max_restore_factor", self.max_restore_factor >= 1, "at least 1, which is the base alone")
        require("decay", 0 <= self.decay < 1, "at least 0, below 1")
        require("solver", self.solver in _SOLVERS, f"one of {_SOLVERS}")
        require("renewal", self.renewal in _RENEWALS, f"one of {_RENEWALS}")

    @property
    def hazard(self) -> float:
        """h: the weight of restores, per interval."""
        return self.restore_weight / self.first_period

    def hot_threshold(self, stats: PolicyStats) -> float:
        if not stats.has_base:
            return NONE_HOT
        period = self._period(stats)
        if self.solver == "bisection":
            return _static_threshold(period, self.hazard * period)
        # The checkpoint about to be made is number checkpoints_since_base + 1 of `period`.
        return cost_model.dynamic_threshold(period - stats.checkpoints_since_base, self.hazard)

    def base_due(self, stats: PolicyStats) -> bool:
        if not stats.has_base or stats.checkpoints_since_base < 1:
            return False
        if stats.bytes_restore > self.max_restore_factor * stats.bytes_in_base:
            return True
        if self.renewal == "period":
            return stats.checkpoints_since_base >= self.first_period
        marginal = stats.bytes_last_checkpoint + self.hazard * stats.bytes_restore
        total = (stats.bytes_in_base + stats.bytes_written_since_base
                 + self.hazard * stats.bytes_restore_since_base)
        return marginal * stats.checkpoints_since_base > total

    def _period(self, stats: PolicyStats) -> int:
        if self.renewal == "marginal" and stats.last_period is not None:
            return max(1, stats.last_period)
        return self.first_period


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
