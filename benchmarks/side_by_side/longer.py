"""Throughput at intervals that were not measured, from one that was."""

from typing import Dict, Optional, Tuple

from benchmarks.side_by_side import zipf
from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.job import BATCH, CATEGORIES
from benchmarks.side_by_side.systems import SYSTEMS
from benchmarks.side_by_side.training import MIDDLE_AGE


def relative(system: str, measured: int, throughput: float, interval: int, rows: int = Cell("any").rows) -> float:
    """What a system's throughput, over that of no checkpoints, is at `interval` if it is `throughput` at `measured`.

    A checkpoint of a system that writes everything costs the same time at any interval. One of another costs more by
    as much as more rows are updated in the time that it covers: its interval, or with Check-N-Run, whose differentials
    are from the base on, as many as in the measurement. New bases come as often per byte, and so cost as much of it.

    Args:
        system: a name of `systems.SYSTEMS`.
        measured, interval: batches between checkpoints.
        rows: of the tables; the key space has twice as many.
    """
    lost = measured * (1 / throughput - 1)  # by a checkpoint, in steps of training without
    if not SYSTEMS[system].is_full:
        covered = MIDDLE_AGE if system.startswith("check_n_run") else 1
        lost *= _updated(covered * interval, rows) / _updated(covered * measured, rows)
    return interval / (interval + lost)


def at(system: str, measured: Dict[int, float], interval: int) -> Optional[Tuple[float, bool]]:
    """The throughput at an interval, and whether it is computed, from that at the longest interval; None: from nothing.

    Args:
        measured: throughput by interval.
    """
    if not measured or interval in measured:
        return (measured[interval], False) if measured else None
    longest = max(measured)
    return relative(system, longest, measured[longest], interval), True


def _updated(batches: int, rows: int) -> float:
    """Rows updated by so many batches, on average."""
    return zipf.distinct(batches * BATCH * CATEGORIES, 2 * rows)
