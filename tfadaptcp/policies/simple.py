"""The policies that look at no row: full, incremental, differential."""

import dataclasses
from typing import Optional

from tfadaptcp.policies.base import ALL_HOT, NONE_HOT, PolicyStats


@dataclasses.dataclass(frozen=True)
class Full:
    """Every checkpoint is complete: a new base each time. A restore reads one base."""

    name = "full"
    snapshot_bases = True

    def hot_threshold(self, stats: PolicyStats) -> float:
        return NONE_HOT

    def base_due(self, stats: PolicyStats) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Incremental:
    """Saves the rows updated since the last checkpoint; a restore replays all increments after the base.

    Args:
        full_every: a new base after that many increments ("Incr CKPT-N"), None for never (native incremental).

    Raises:
        ValueError: `full_every` is neither None nor an integer of at least 1.
    """

    full_every: Optional[int] = None
    name = "incremental"

    def __post_init__(self):
        every = self.full_every
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise ValueError(f"full_every: Received: {every!r}. Expected: None or an integer of at least 1")

    def hot_threshold(self, stats: PolicyStats) -> float:
        return NONE_HOT

    def base_due(self, stats: PolicyStats) -> bool:
        return self.full_every is not None and stats.has_base and stats.checkpoints_since_base >= self.full_every


@dataclasses.dataclass(frozen=True)
class Differential:
    """Saves all rows updated since the base, each time; a restore reads the base and one differential.

    The first checkpoint is the base. It asks for no other; a change of tables as wholes makes one all the same.
    """

    name = "differential"

    def hot_threshold(self, stats: PolicyStats) -> float:
        # Without a base there is nothing to differ from: a hot row would be written again each time, for ever.
        return ALL_HOT if stats.has_base else NONE_HOT

    def base_due(self, stats: PolicyStats) -> bool:
        return False
