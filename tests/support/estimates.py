"""How likely a row is to be written, by the definition, and what the files of a checkpoint say of it."""

from __future__ import annotations

import math
from pathlib import Path

from tfadaptcp.checkpoint import format as segment_format
from tfadaptcp.checkpoint.manifest import ROW_KINDS, Manifest


class Estimates:
    """Both estimators for one group: a number for each row, decayed at every cut, for the rows that there are."""

    def __init__(self, estimator: str, decay: float):
        self.estimator, self.decay = estimator, decay
        self.values: dict[int, float] = {}
        self._written: set[int] = set()
        self._current = 1  # the interval

    def write(self, keys) -> None:
        for key in keys:
            counts = key not in self._written if self.estimator == "updates" else key not in self.values
            self.values[key] = self.values.get(key, 0.0) + (1 - self.decay) * counts
            self._written.add(key)

    def look_up(self, keys) -> None:
        for key in keys:
            if key in self.values and self.estimator == "accesses":
                self.values[key] += 1 - self.decay

    def cut(self, sequence: int) -> dict[int, float]:
        """{key: p} at a cut of that number, after which another interval begins."""
        self._pass_to(sequence)
        found = {key: self._p(value) for key, value in self.values.items()}
        self._pass_to(sequence + 1)
        return found

    def _p(self, value: float) -> float:
        return value if self.estimator == "updates" else 1 - math.exp(-value)

    def _pass_to(self, interval: int) -> None:
        factor = self.decay ** (interval - self._current)
        if interval > self._current:
            self._written.clear()
        self.values = {key: value * factor for key, value in self.values.items()}
        self._current = interval


def written(directory: Path, head: Manifest, group: str) -> dict[str, dict[int, float]]:
    """{kind: {key: p}} of the rows of a group that a checkpoint wrote itself, tombstones left out."""
    found: dict[str, dict[int, float]] = {}
    for ref in head.objects:
        if ref.kind not in ROW_KINDS or ref.sequence != head.sequence:
            continue
        segment = segment_format.read_segment((Path(directory) / ref.path).read_bytes(), ref.path, ref.crc32c)
        for block in segment.row_blocks:
            if segment.header.groups[block.group].name != group:
                continue
            for key, p, is_gone in zip(block.keys.tolist(), block.p.tolist(), block.tombstones.tolist()):
                if not is_gone:
                    found.setdefault(ref.kind, {})[key] = p
    return found
