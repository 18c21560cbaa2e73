"""A policy with one threshold for ever: what adaptive ones are compared with, in hindsight."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Hot above `threshold`; a new base every `first_period` checkpoints."""

    threshold: float
    first_period: int = 43
    name = "fixed"

    def hot_threshold(self, stats) -> float:
        return self.threshold if stats.has_base else float("inf")

    def base_due(self, stats) -> bool:
        return stats.has_base and stats.checkpoints_since_base >= self.first_period
