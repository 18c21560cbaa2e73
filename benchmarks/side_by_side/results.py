"""The store of results: one JSON file for each cell, and for each simulated trace, complete or not there."""

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from benchmarks.side_by_side.cells import Cell

# A result counts only if others took less of the machine than this while it was measured.
MOST_OF_OTHERS = 0.06


def rejection(result: Dict[str, Any], most_of_others: float = MOST_OF_OTHERS) -> Optional[str]:
    """Why a result does not count; None if it does. Fixed before anything was measured."""
    others = result["others_share"]
    return f"others took {others:.1%} of the machine" if others > most_of_others else None


class Results:
    """Files of results in a directory, made if missing. Several processes may read it, one writes.

    Args:
        most_of_others: see `MOST_OF_OTHERS`; a greater value is for trying things out, and is noted in each result.
        seconds: of training that are asked for in each cell, noted too.
    """

    def __init__(self, directory: str, most_of_others: float = MOST_OF_OTHERS, seconds: float = 0.0):
        self._most_of_others, self._seconds = most_of_others, seconds
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def has(self, cell: Cell) -> bool:
        """Whether it was measured, for as long as is asked for at least, by a rule at most as lax, and counts."""
        if not self._path(cell).exists():
            return False
        found = json.loads(self._path(cell).read_text(encoding="utf-8"))
        long_enough = cell.kind == "restore" or found.get("asked_seconds", -1.0) >= self._seconds
        return long_enough and found["most_of_others"] <= self._most_of_others

    def put(self, cell: Cell, result: Dict[str, Any]) -> Optional[str]:
        """Keeps a result. One that does not count is kept aside, and its cell stays to be measured; returns why."""
        why = rejection(result, self._most_of_others)
        path = self._path(cell) if why is None else self._aside(cell, "rejected")
        self._write(path, {"cell": vars(cell), "rejected": why, "most_of_others": self._most_of_others,
                           "asked_seconds": self._seconds, **result})
        return why

    def put_failure(self, cell: Cell, error: str) -> None:
        """Records that it could not be measured; it stays to be."""
        self._write(self._aside(cell, "failed"), {"cell": vars(cell), "error": error})

    def all(self) -> List[Dict[str, Any]]:
        """The results that count, but for those of before `asked_seconds` was noted, which had another form."""
        found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._directory.glob("*.json"))]
        return [result for result in found if "asked_seconds" in result]

    def aside(self) -> List[Dict[str, Any]]:
        """Those that don't, and failures."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._directory.glob("aside/*.json"))]

    def put_totals(self, totals: Dict[str, Any]) -> None:
        """Keeps what `benchmarks.simulator.totals` found on a trace, in place of what it found there before."""
        folder = self._directory / "totals"
        folder.mkdir(exist_ok=True)
        self._write(folder / (re.sub(r"[^a-z0-9.]+", "-", totals["trace"].lower()) + ".json"), totals)

    def totals(self) -> List[Dict[str, Any]]:
        """What is kept of traces."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._directory.glob("totals/*.json"))]

    def _path(self, cell: Cell) -> Path:
        return self._directory / f"{cell.key}.json"

    def _aside(self, cell: Cell, why: str) -> Path:
        folder = self._directory / "aside"
        folder.mkdir(exist_ok=True)
        number = 1
        while (folder / f"{cell.key}-{why}{number}.json").exists():
            number += 1
        return folder / f"{cell.key}-{why}{number}.json"

    @staticmethod
    def _write(path: Path, content: Dict[str, Any]) -> None:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
        os.replace(partial, path)
