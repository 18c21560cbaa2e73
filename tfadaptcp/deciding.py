"""What a policy is told before a cut, what it decides, what that is expected to cost, and what it has cost."""

import dataclasses
import json
import math
import numbers
from typing import Any, Callable, Dict, Optional

import numpy as np

from tfadaptcp.policies.base import ALL_HOT, PHistogram, Policy, PolicyStats

# p is at most 1: above this nothing is hot. JSON has no infinity.
_NONE_HOT = 2.0


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a policy says of one checkpoint.

    Attributes:
        threshold: a row is hot if its p is above; at most 2.
        stats: what the policy was told.
        record: how it came to that, for the manifest: plain JSON values.
    """
    threshold: float
    stats: PolicyStats
    record: Dict[str, Any]

    def costs(self, hot_rows: float, cold_rows: float, written: Optional[float], restore: float) -> Dict[str, float]:
        """What a checkpoint costs that writes so many rows, in so many bytes if that is known, and of which a restore
        reads so many: "cost" weighs both as the policy does, in bytes written."""
        found = {"hot_rows": hot_rows, "cold_rows": cold_rows}
        if written is not None:
            found.update(bytes_written=written, bytes_restore=restore)
            if "hazard" in self.record:
                found["cost"] = written + self.record["hazard"] * restore
        return found


def decide(policy: Policy, stats: PolicyStats, histograms: Callable[[], Dict[str, PHistogram]]) -> Decision:
    """Asks a policy for the threshold of the next checkpoint.

    Args:
        histograms: returns `PolicyStats.p_histogram`, if the policy wants it.

    Raises:
        ValueError: the policy returned something else than its protocol says.
    """
    if stats.has_base and getattr(policy, "wants_histogram", False):
        found = histograms()
        sizes = stats.group_bytes_per_row
        found = {name: dataclasses.replace(histogram, bytes_per_row=sizes.get(name, stats.bytes_per_row or 1.0))
                 for name, histogram in found.items()}
        unsaved = sum(sum(histogram.unsaved) for histogram in found.values())
        stats = dataclasses.replace(stats, p_histogram=found, rows_unsaved=round(unsaved))
    threshold = policy.hot_threshold(stats)
    if not _is_number(threshold):
        raise _wrong(policy, "hot_threshold", threshold, "a number, ALL_HOT or NONE_HOT")
    record = policy.describe(stats) if hasattr(policy, "describe") else {}
    try:
        json.dumps(record, allow_nan=False)
        record = dict(record)
    except (TypeError, ValueError) as error:
        raise _wrong(policy, "describe", record, f"a dictionary of plain JSON values ({error})") from None
    if not _is_number(record.get("hazard", 0)):
        raise _wrong(policy, "describe", record, "a number as \"hazard\"")
    return Decision(max(ALL_HOT, min(float(threshold), _NONE_HOT)), stats, record)


def base_due(policy: Policy, stats: PolicyStats) -> bool:
    """Asks a policy whether a new base is due."""
    due = policy.base_due(stats)
    if not isinstance(due, (bool, np.bool_)):
        raise _wrong(policy, "base_due", due, "True or False")
    return bool(due)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)


def _wrong(policy: Policy, method: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"policy {policy.name}: {method} returned what it may not. Received: {value!r}. Expected: {expected}")


def predicted(decision: Decision, replies: Dict[int, Dict[str, Any]], kept: int) -> Dict[str, float]:
    """What a checkpoint will cost, by the rows that the hosts have counted just before its cut.

    Removed rows count as if they were there, though all of them are cold, and not in a base.

    Args:
        replies: of the hosts to the cut; without a count, nothing is predicted.
        kept: bytes of the objects that a restore reads beside those that the checkpoint will write.
    """
    counts: Dict[str, list] = {}
    for reply in replies.values():
        for group, rows in reply.get("predicted", {}).items():
            counts[group] = [a + b for a, b in zip(counts.get(group, (0, 0)), rows)]
    if not counts:
        return {}
    hot, cold = (sum(rows[i] for rows in counts.values()) for i in (0, 1))
    sizes = decision.stats.group_bytes_per_row
    written = None
    if all(group in sizes for group, rows in counts.items() if any(rows)):
        written = sum(sum(rows) * sizes.get(group, 0) for group, rows in counts.items())
    return decision.costs(hot, cold, written, kept + (written or 0))
