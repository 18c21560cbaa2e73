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

import math


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
    if period < 1:
        raise ValueError(f"period: Received: {period!r}. Expected: at least 1")
    if not 0.0 <= weight < math.inf:
        raise ValueError(f"weight: Received: {weight!r}. Expected: a finite number of at least 0")
    if weight == 0.0 or period == 1:
        return 1.0
    low, high = 0.0, 1.0
    # Until the two are neighbours: about 60 turns, more if the root is tiny.
    while True:
        middle = (low + high) / 2.0
        if not low < middle < high:
            return middle
        if advantage_of_cold(middle, period, weight) > 0.0:
            low = middle
        else:
            high = middle


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


def frequency(p: float) -> float:
    """Returns the updates per interval, under Poisson arrivals, of a row that is updated with probability p."""
    return math.inf if p >= 1.0 else -math.log1p(-p)
