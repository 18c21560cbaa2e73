"""Which rows are updated in each interval between two checkpoints: drawn at random, as independent Poisson arrivals.

A trace is an iterable of `Interval`, the same at each iteration.
"""

import dataclasses
from typing import Callable, Dict, Iterator, Optional

import numpy as np


@dataclasses.dataclass(frozen=True)
class Interval:
    """One interval.

    Attributes:
        rows: int32 [n], the rows updated, all different.
        counts: float32 [n], the accesses of each.
        p: float32 [rows of the trace], the probability of each row to be updated in this interval; None if unknown. The
            same memory in each interval: copy what is to be kept.
    """
    rows: np.ndarray
    counts: np.ndarray
    p: Optional[np.ndarray] = None


class ZipfTrace:
    """Rows accessed with probabilities ~ rank^-exponent.

    Args:
        rows: of the table; all of them are there before the first interval.
        exponent: of the distribution.
        accesses: mean number per interval.
        intervals: how many.
        drift: changes in which row has which rank: a key of `DRIFTS`.
        clump: occurrences of a row for each time that it comes up; the accesses stay what they are.
        seed: of everything that is random.
    """

    def __init__(self, rows: int, exponent: float, accesses: float, intervals: int, drift: str = "none",
                 clump: int = 1, seed: int = 1):
        if drift not in DRIFTS:
            raise ValueError(f"drift: Received: {drift!r}. Expected: one of {sorted(DRIFTS)}")
        self.rows, self.intervals, self.prefilled = rows, intervals, True
        self._drift, self._clump, self._seed = drift, clump, seed
        share = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
        self._mean = (share / share.sum() * accesses / clump).astype(np.float32)  # by rank
        self._p = -np.expm1(-self._mean)

    def __iter__(self) -> Iterator[Interval]:
        random = np.random.default_rng(self._seed)
        row_of = random.permutation(self.rows).astype(np.int32)
        start = row_of.copy()
        moves = DRIFTS[self._drift]
        p = np.empty(self.rows, np.float32)
        p[row_of] = self._p
        for n in range(self.intervals):
            if moves(row_of, start, n / self.intervals, random):
                p[row_of] = self._p
            ranks = np.flatnonzero(random.random(self.rows, dtype=np.float32) < self._p)
            # Poisson counts that are not 0: one arrival, the first, and those of the time that is left after it.
            first = -np.log1p(-random.random(ranks.size) * self._p[ranks])
            counts = 1 + random.poisson(np.maximum(self._mean[ranks] - first, 0.0))
            yield Interval(row_of[ranks], (counts * self._clump).astype(np.float32), p)


# The share of the ranks that moves: with a Zipf exponent of 1.2, a thousandth of the rows takes most accesses.
_MOVING = 0.01


def _swap(row_of: np.ndarray, ranks: np.ndarray, random: np.random.Generator) -> None:
    """Gives these ranks to rows that had any others, and these rows the ranks that those had."""
    others = random.choice(row_of.size, ranks.size, replace=False)
    for a, b in zip(ranks, others):  # one after the other: some are in both
        row_of[a], row_of[b] = row_of[b], row_of[a]


def _none(row_of, start, time, random) -> bool:
    return False


class _AtOnce:
    """The hot set moves at given shares of the time: to other rows, and with `back` to where it was."""

    def __init__(self, *times: float, back: bool = False):
        self._times, self._back = times, back

    def __call__(self, row_of, start, time, random) -> bool:
        if time == 0:
            self._done = 0
        if self._done == len(self._times) or time < self._times[self._done]:
            return False
        self._done += 1
        if self._back and self._done % 2 == 0:
            row_of[:] = start
        else:
            _swap(row_of, np.arange(int(row_of.size * _MOVING)), random)
        return True


def _slowly(row_of, start, time, random) -> bool:
    """One of fifty hot rows becomes another one in each interval: none is hot for much longer than 100 intervals."""
    hot = int(row_of.size * _MOVING)
    _swap(row_of, random.choice(hot, max(1, hot // 50), replace=False), random)
    return True


DRIFTS: Dict[str, Callable[..., bool]] = {
    "none": _none, "jump": _AtOnce(0.4), "jumps": _AtOnce(0.2, 0.4, 0.6, 0.8), "slow": _slowly,
    "back": _AtOnce(0.35, 0.65, back=True)}
