"""Check-N-Run (Eisenman et al., NSDI 2022): differentials, with a new base when it pays."""

import dataclasses

from tfadaptcp.options import EngineOptions
from tfadaptcp.policies.base import ALL_HOT, NONE_HOT, PolicyStats

VARIANTS = ("intermittent", "one_shot", "consecutive")


@dataclasses.dataclass(frozen=True)
class CheckNRun:
    """Check-N-Run's three kinds of incremental checkpoints.

    Its engine options are those it was published with: training stands still while the rows are copied, one thread
    copies them, and no checkpoint begins before the one before is stored. Its quantisation is the user's to add.

    Args:
        variant: "one_shot": each checkpoint has all rows updated since the first one, which is the only base.
            "consecutive": each has the rows updated since the one before; a restore replays them all. "intermittent": as
            "one_shot", with a new base as soon as one pays: see `base_due`.

    Raises:
        ValueError: there is no such variant.
    """

    variant: str = "intermittent"
    name = "check_n_run"
    snapshot_bases = True
    engine_options = EngineOptions(capture="snapshot", writer_threads=1)
    on_pending = "wait"

    def __post_init__(self):
        if self.variant not in VARIANTS:
            raise ValueError(f"variant: Received: {self.variant!r}. Expected: one of {VARIANTS}")

    def hot_threshold(self, stats: PolicyStats) -> float:
        return ALL_HOT if stats.has_base and self.variant != "consecutive" else NONE_HOT

    def base_due(self, stats: PolicyStats) -> bool:
        """Whether what the base and the differentials since have cost is not more than going on with them would cost.

        With sizes S_j of the differentials as fractions of the base, i of them so far: the last i + 1 checkpoints took
        F = 1 + S_1 + ... + S_i. Differentials do not shrink, so that the next i + 1 of them take at least
        I = (i + 1) S_i. If F <= I, beginning again with a base is no dearer.
        """
        since = stats.checkpoints_since_base
        if self.variant != "intermittent" or not stats.has_base or since < 1 or not stats.bytes_last_checkpoint:
            return False
        return stats.bytes_in_base + stats.bytes_written_since_base <= (since + 1) * stats.bytes_last_checkpoint
