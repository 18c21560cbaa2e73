"""Traces of real logs: MovieLens-100k, and the samples of the Open Bandit data set."""

import csv
from pathlib import Path
from typing import Dict, Iterator

import numpy as np

from benchmarks.simulator.traces import Interval


class LogTrace:
    """Accesses in order of their time, cut into intervals of as many accesses each. A row is there from its first on.

    Args:
        keys: of the accesses.
        intervals: how many.
    """

    prefilled = False

    def __init__(self, keys: np.ndarray, intervals: int):
        known, self._accesses = np.unique(keys, return_inverse=True)
        self.rows, self.intervals = known.size, intervals

    def __iter__(self) -> Iterator[Interval]:
        for accesses in np.array_split(self._accesses, self.intervals):
            rows, counts = np.unique(accesses, return_counts=True)
            yield Interval(rows.astype(np.int32), counts.astype(np.float32))


def movielens(folder: Path) -> Dict[str, np.ndarray]:
    """Returns the users and the items of 100,000 ratings, in order of their time; `folder` as the fetch tool fills it."""
    table = np.loadtxt(folder / "ml-100k.inter", skiprows=1)
    table = table[np.argsort(table[:, 3], kind="stable")].astype(np.int64)
    return {"MovieLens users": table[:, 0], "MovieLens items": table[:, 1]}


def open_bandit(folder: Path) -> Dict[str, np.ndarray]:
    """Returns the crosses of user features and item, and the user features, of 60,000 impressions of six logs."""
    seen = []
    for path in sorted(folder.glob("*.csv")):
        campaign = path.stem.split("-")[-1]
        with open(path, newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                user = tuple(line[f"user_feature_{i}"] for i in range(4))
                seen.append((line["timestamp"], user, (campaign, line["item_id"], *user)))
    seen.sort(key=lambda line: line[0])
    return {"Open Bandit crosses": _numbered([line[2] for line in seen]),
            "Open Bandit users": _numbered([line[1] for line in seen])}


def _numbered(names) -> np.ndarray:
    numbers: Dict[object, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names])
