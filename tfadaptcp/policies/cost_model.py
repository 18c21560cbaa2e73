"""The cost of keeping a row hot or cold, and the thresholds that follow from it.

Unit: rows moved. A row is updated in an interval with probability p, q = 1 - p. A period has a base at checkpoint 0
and checkpoints 1..K. `hazard` h is the expected number of restores per interval, times the cost of a row read by a
restore over that of a row written; `weight` lambda = h K is the same for a whole period. A failure is equally likely
after each checkpoint of the period, so that a restore replays (K + 1) / 2 of them on average.

| per row      | written over the period    | read by a restore                |
|--------------|----------------------------|----------------------------------|
| incremental  | K p                        | p (K + 1) / 2                    |
| differential | sum_{k=1..K} (1 - q^k)     | 1/K sum_{k=1..K} (1 - q^k)       |
"""

import dataclasses
import math
from typing import Iterable, Tuple

from tfadaptcp.policies.base import PHistogram


def differential_writes(p: float, period: int) -> float:
    """Returns sum_{k=1..K} (1 - (1-p)^k), the times a hot row is written in a period, exact for tiny p too.

    Summed term by term: the closed form K - q (1 - q^K) / p cancels, and is 57 % off at p = 1e-9.
    """
    if p >= 1.0:
        return float(period)
    log_q = math.log1p(-p)
    return math.fsum(-math.expm1(k * log_q) for k in range(1, period + 1))


def advantage_of_cold(p: float, period: int, weight: float) -> float:
    """Returns the cost of a hot row minus that of a cold one over a period; above 0, cold is cheaper."""
    hot = differential_writes(p, period)
    return hot * (1.0 + weight / period) - p * (period + weight * (period + 1) / 2.0)


def static_threshold(period: int, weight: float) -> float:
    """Returns the published threshold p*: a row is cold for a whole period below it, and hot above.

    The advantage of cold is concave in p, 0 at p = 0 and rising there; for lambda > 0 and K > 1 it is below 0 at
    p = 1. So it has exactly one root in (0, 1), found by bisection. For lambda = 0 or K = 1 being hot never pays, and
    the threshold is 1.

    Raises:
        ValueError: `period` is less than 1, or `weight` negative or not finite.
    """
    _check(period, weight)
    return _root(period, weight, 0.0, 1.0)


def best_threshold(histograms: Iterable[PHistogram], period: int, weight: float) -> float:
    """Returns the threshold of the least cost over a period for rows distributed like that: what `predict_period` gives.

    Moving the threshold past a bucket changes the total cost by that bucket's rows times their advantage of cold, which
    changes its sign once: the total falls up to the best threshold and rises after it. So buckets are bisected; then
    the gap between the last cold and the first hot one, where every threshold costs the same by the histogram, for the
    point where the advantage is 0. Rows and bytes weigh what a threshold costs, and have no part in which one is best.

    Raises:
        ValueError: `period` is less than 1, or `weight` negative or not finite.
    """
    _check(period, weight)
    points = sorted({p for histogram in histograms for p, rows in zip(histogram.p, histogram.rows) if rows > 0})
    cold, hot = -1, len(points)
    while hot - cold > 1:
        middle = (cold + hot) // 2
        if advantage_of_cold(points[middle], period, weight) >= 0.0:
            cold = middle
        else:
            hot = middle
    return _root(period, weight, points[cold] if cold >= 0 else 0.0, points[hot] if hot < len(points) else 1.0)


def dynamic_threshold(intervals_left: int, hazard: float) -> float:
    """Returns the threshold for one checkpoint, with r intervals left until the next base.

    Writing an unsaved row cold now costs later: its copy is read by every restore in the intervals left, even when it
    has been superseded. Writing it hot costs that it is written again next time, even when it was not touched. Hence
    hot if h (r-1) p > 1 - p, that is p > 1 / (1 + h (r-1)): low just after a base, and 1, nothing hot, just before
    the next.

    Raises:
        ValueError: `hazard` is negative or not finite.
    """
    if not 0.0 <= hazard < math.inf:
        raise ValueError(f"hazard: Received: {hazard!r}. Expected: a finite number of at least 0")
    return 1.0 / (1.0 + hazard * (max(1, intervals_left) - 1))


def reading(p: float, decay: float, estimator: str = "updates") -> float:
    """Returns what the estimate of a row of that p reads on average when the row has just been updated.

    Policies see rows that are unsaved: nearly all of them were updated in the interval that ends, and their estimates
    contain that. It says nothing about the intervals to come: the mean over the rows that are updated anyway. So a row of
    p reads b p + (1 - b), and one of p = 0 not 0 but 1 - b; the threshold for p is to be compared as what it reads.
    """
    if estimator == "updates":
        return decay * p + (1.0 - decay)
    return 1.0 if p >= 1.0 else -math.expm1(decay * math.log1p(-p) - (1.0 - decay))


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a threshold makes checkpoints write and a restore read, base not included.

    Attributes:
        rows_hot, rows_cold: written into differentials, into increments.
        bytes_hot, bytes_cold: of those rows.
        rows_read, bytes_read: read by a restore.
        cost: bytes written, and the weight times the bytes read.
    """
    rows_hot: float = 0.0
    rows_cold: float = 0.0
    bytes_hot: float = 0.0
    bytes_cold: float = 0.0
    rows_read: float = 0.0
    bytes_read: float = 0.0
    cost: float = 0.0


def predict_period(histograms: Iterable[PHistogram], threshold: float, period: int, weight: float) -> Prediction:
    """Returns what the K checkpoints after a base write in all, and what a restore after one of them reads on average.

    Every row is hot or cold for the whole period, by the mean p of its bucket.

    Raises:
        ValueError: `period` is less than 1, or `weight` negative or not finite.
    """
    _check(period, weight)
    parts = []
    for histogram in histograms:
        for p, rows in zip(histogram.p, histogram.rows):
            if rows <= 0:
                continue
            hot = p > threshold
            written = rows * (differential_writes(p, period) if hot else p * period)
            read = written / period if hot else rows * p * (period + 1) / 2.0
            parts.append((hot, written, read, histogram.bytes_per_row))
    return _total(parts, weight)


def _total(parts: Iterable[Tuple[bool, float, float, float]], weight: float) -> Prediction:
    """Sums parts of (hot, rows written, rows read, bytes per row)."""
    parts = list(parts)
    rows_hot, rows_cold = (math.fsum(rows for is_hot, rows, _, _ in parts if is_hot == hot) for hot in (True, False))
    bytes_hot, bytes_cold = (math.fsum(rows * size for is_hot, rows, _, size in parts if is_hot == hot)
                             for hot in (True, False))
    bytes_read = math.fsum(read * size for _, _, read, size in parts)
    return Prediction(rows_hot, rows_cold, bytes_hot, bytes_cold, math.fsum(read for _, _, read, _ in parts), bytes_read,
                      bytes_hot + bytes_cold + weight * bytes_read)


def _check(period: int, weight: float) -> None:
    if period < 1:
        raise ValueError(f"period: Received: {period!r}. Expected: at least 1")
    if not 0.0 <= weight < math.inf:
        raise ValueError(f"weight: Received: {weight!r}. Expected: a finite number of at least 0")


def _root(period: int, weight: float, low: float, high: float) -> float:
    """The root of `advantage_of_cold` in (low, high), found by bisection; 1 where being hot never pays."""
    if weight == 0.0 or period == 1:
        return 1.0
    # Until the two are neighbours: about 60 turns, more if the root is tiny.
    while True:
        middle = (low + high) / 2.0
        if not low < middle < high:
            return middle
        if advantage_of_cold(middle, period, weight) > 0.0:
            low = middle
        else:
            high = middle
