"""What is measured: a number, and the command that gave it."""

import dataclasses
import json
import pathlib
from typing import Dict, Iterable, Sequence, Tuple


@dataclasses.dataclass(frozen=True)
class Input:
    """One number.

    Attributes:
        value: the number.
        unit: of it.
        what: it is, in words.
        command: that measures it alone.
    """
    value: float
    unit: str
    what: str
    command: str


Inputs = Dict[str, Input]


def values(inputs: Inputs) -> Dict[str, float]:
    """The numbers alone, by name."""
    return {name: item.value for name, item in inputs.items()}


def write(inputs: Inputs, path: pathlib.Path) -> None:
    """Keeps inputs in a file, beside those it has under other names."""
    known = read(path) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: dataclasses.asdict(item) for name, item in {**known, **inputs}.items()}, indent=1)
    path.write_text(text, encoding="utf-8")


def read(path: pathlib.Path) -> Inputs:
    """Reads what `write` has kept."""
    return {name: Input(**item) for name, item in json.loads(path.read_text(encoding="utf-8")).items()}


def line(points: Iterable[Tuple[float, float]]) -> Tuple[float, float]:
    """Least squares: (y at 0, slope) of the line through points (x, y); one point is a constant."""
    points = list(points)
    n = len(points)
    mean_x, mean_y = (sum(point[i] for point in points) / n for i in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return mean_y - slope * mean_x, slope


def median(numbers: Sequence[float]) -> float:
    """The middle one, the lower of two."""
    return sorted(numbers)[(len(numbers) - 1) // 2]
