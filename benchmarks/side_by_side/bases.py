"""New bases: none comes by chance while the clock runs; one is made after that, and its time laid on all intervals."""

import dataclasses
import math
from typing import Any, Dict, List, Optional

# No period is longer.
_MOST_CHECKPOINTS = 100_000


class Switch:
    """Decides in a policy's place whether a new base is due, once it has been turned to "never" or "now"."""

    def __init__(self):
        self.turned_to: Optional[str] = None

    def put_into(self, policy: Any) -> Any:
        """Returns a policy of the same rules that asks this switch first."""
        switch = self

        class Switched(type(policy)):
            def base_due(self, stats: Any) -> bool:
                if switch.turned_to is None or not stats.has_base:
                    return super().base_due(stats)
                return switch.turned_to == "now"

        return Switched(**vars(policy))


def differentials_before_a_base(first: float, later: float, age: int, base: float, steps: float = 1.0) -> int:
    """After how many differentials Check-N-Run makes a base, by its rule and two of them.

    Args:
        first, later: bytes of the first differential and of that number `age`; between them, and on, a power law holds.
        base: bytes of the base, which no differential exceeds.
        steps: length of an interval, in those of the two.
    """
    power = math.log(later / first) / math.log(age)
    sizes: List[float] = []
    while True:
        sizes.append(min(1.0, first / base * ((len(sizes) + 1) * steps) ** power))
        if 1 + sum(sizes) <= (len(sizes) + 1) * sizes[-1]:
            return len(sizes)


@dataclasses.dataclass(frozen=True)
class Growth:
    """What a checkpoint adds.

    Attributes:
        written: bytes that it writes.
        restore: bytes that a restore reads more than before it.
        rows: that the tables have more.
    """
    written: float
    restore: float
    rows: float


def checkpoints_before_a_base(policy: Any, base: float, rows: float, growth: Growth) -> Optional[int]:
    """After how many checkpoints a policy makes a base, all of which add as much; None: never.

    Args:
        base: bytes of the last one.
        rows: in it.
    """
    from tfadaptcp.policies import PolicyStats
    for since in range(1, _MOST_CHECKPOINTS):
        if policy.base_due(PolicyStats(
                has_base=True, checkpoints_since_base=since, bytes_in_base=round(base),
                bytes_of_new_base=base * (1 + since * growth.rows / rows), bytes_last_checkpoint=round(growth.written),
                bytes_written_since_base=round(since * growth.written),
                bytes_restore=round(base + since * growth.restore),
                bytes_restore_since_base=round(since * base + growth.restore * since * (since + 1) / 2))):
            return since
    return None


def seconds_beside(beside: List[Dict[str, float]], usual: List[Dict[str, float]]) -> float:
    """How much longer intervals beside a base took than as many usual ones."""
    mean = sum(window["seconds"] for window in usual) / len(usual)
    return max(0.0, sum(window["seconds"] for window in beside) - len(beside) * mean)
