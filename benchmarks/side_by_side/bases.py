"""New bases: none comes by chance while the clock runs; one is made after that, and its time laid on all intervals."""

import dataclasses
import math
import statistics
from typing import Any, List, Optional, Sequence

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


@dataclasses.dataclass(frozen=True)
class Differentials:
    """How Check-N-Run's differentials grow: by a power law through two of them, up to the size of the base.

    Attributes:
        first, later: bytes of the first differential and of that number `age`.
        base: bytes of the base.
    """
    first: float
    later: float
    age: int
    base: float

    @property
    def power(self) -> float:
        """The exponent of the law."""
        return math.log(self.later / self.first) / math.log(self.age)

    def size(self, age: float) -> float:
        """Bytes of the differential of that age; the first one's is 1."""
        return min(self.base, self.first * age ** self.power)

    def before_a_base(self, steps: float = 1.0) -> int:
        """After how many a base is due, by Check-N-Run's rule, in intervals of `steps` times the first one's age."""
        sizes: List[float] = []
        while True:
            sizes.append(self.size((len(sizes) + 1) * steps) / self.base)
            if 1 + sum(sizes) <= (len(sizes) + 1) * sizes[-1]:
                return len(sizes)

    def factor(self, measured: Sequence[float], steps: float = 1.0) -> float:
        """The mean size of all between two bases, over that of those that were measured, given by their ages."""
        ages = [number * steps for number in range(1, self.before_a_base(steps) + 1)]
        return statistics.fmean(map(self.size, ages)) / statistics.fmean(map(self.size, measured))


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
