"""Trains through intervals with a checkpoint at the end of each, and says what that took."""

import statistics
import time
from typing import Any, Callable, Dict, List, Tuple


def run(train: Any, save: Any, interval: int, seconds: float, least: int,
        goes_on: Callable[[], bool] = lambda: False, clock: Any = time.monotonic) -> List[Dict[str, float]]:
    """Trains and saves for at least `seconds` and `least` intervals. Returns of each its seconds and those of its save.

    Args:
        goes_on: whether there is to be another one, whatever there has been.
    """
    windows = []
    began = clock()
    while len(windows) < least or clock() - began < seconds or goes_on():
        start = clock()
        train(interval)
        trained = clock()
        save()
        ended = clock()
        windows.append({"steps": interval, "seconds": ended - start, "save_seconds": ended - trained})
    return windows


def steps_per_second(windows: List[Dict[str, float]]) -> float:
    """Over all windows together."""
    return sum(window["steps"] for window in windows) / sum(window["seconds"] for window in windows)


def step_times(stamps: List[Tuple[float, float, float]]) -> Dict[str, float]:
    """Milliseconds that a worker took for a step, all waits included: from the end of the one before to its own.

    Args:
        stamps: for each step (worker, when it began, when it ended), in any order.
    """
    gaps: List[float] = []
    for worker in {stamp[0] for stamp in stamps}:
        ends = sorted(stamp[2] for stamp in stamps if stamp[0] == worker)
        gaps += [1000 * (after - before) for before, after in zip(ends, ends[1:])]
    running = [1000 * (ended - began) for _, began, ended in stamps]
    if not gaps:
        return {}
    return {**{name: value for name, value in _percentiles(gaps).items()},
            **{f"running_{name}": value for name, value in _percentiles(running).items()}}


def _percentiles(values: List[float]) -> Dict[str, float]:
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
            "max": ordered[-1]}


def seconds_on_the_line(most_bytes_of_a_connection: float, total_bytes: float, caps: Tuple[float, float]) -> float:
    """The least that a store with these caps (each, total) takes for one checkpoint. 0 without caps."""
    each, total = caps
    return max(most_bytes_of_a_connection / each if each else 0.0, total_bytes / total if total else 0.0)


def slowed(windows: List[Dict[str, float]], seconds: float) -> List[Dict[str, float]]:
    """The windows, had each save, for which training stands still, taken so much longer."""
    return [{**window, "seconds": window["seconds"] + seconds, "save_seconds": window["save_seconds"] + seconds}
            for window in windows]


def scaled(windows: List[Dict[str, float]], factor: float, waits: bool) -> List[Dict[str, float]]:
    """The windows, had their checkpoints been `factor` times as large.

    Args:
        waits: a save waits for the checkpoint before: an interval lasts as long as that takes to be stored, unless
            training takes longer. Otherwise the save alone, which copies rows, takes as many times as long.
    """
    found = []
    for window in windows:
        trained = window["seconds"] - window["save_seconds"]
        seconds = max(trained, factor * window["seconds"]) if waits else trained + factor * window["save_seconds"]
        found.append({**window, "seconds": seconds, "save_seconds": seconds - trained})
    return found


def mean(windows: List[Dict[str, float]], value: str) -> float:
    """Of "seconds", or "save_seconds", over the windows."""
    return statistics.fmean(window[value] for window in windows)
