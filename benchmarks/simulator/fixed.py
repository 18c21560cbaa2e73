"""Policies that Adaptive is compared with."""

import dataclasses

from tfadaptcp.policies import Adaptive


@dataclasses.dataclass(frozen=True)
class Fixed:
    """One threshold for ever, to be chosen in hindsight: hot above `threshold`; a new base every `first_period` checkpoints."""

    threshold: float
    first_period: int = 43
    name = "fixed"

    def hot_threshold(self, stats) -> float:
        return self.threshold if stats.has_base else float("inf")

    def base_due(self, stats) -> bool:
        return stats.has_base and stats.checkpoints_since_base >= self.first_period


class Uncorrected(Adaptive):
    """Takes the estimate of a row that has just been updated for its p."""

    def hot_threshold(self, stats) -> float:
        threshold = super().hot_threshold(stats)  # b p + (1 - b)
        return threshold if threshold > 1 else (threshold - (1 - self.decay)) / self.decay
