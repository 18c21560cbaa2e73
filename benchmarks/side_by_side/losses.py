"""Statistics over rounds: a system is only ever compared with another in the same round."""

import random
import statistics
from typing import Any, Dict, List, Optional, Sequence, Tuple

from benchmarks.side_by_side.cells import Cell

RESAMPLES, CONFIDENCE = 10_000, 0.95


def by_round(results: List[Dict[str, Any]], value: str) -> Dict[Cell, Dict[str, Dict[int, float]]]:
    """Returns {conditions: {system: {round: value}}}, of the results that have this value."""
    found: Dict[Cell, Dict[str, Dict[int, float]]] = {}
    for result in (result for result in results if value in result):
        cell = Cell(**result["cell"])
        found.setdefault(cell.conditions, {}).setdefault(cell.system, {})[cell.round] = result[value]
    return found


def ratios(of: Dict[int, float], to: Dict[int, float]) -> List[float]:
    """Quotients of the rounds that both have, in their order."""
    return [of[number] / to[number] for number in sorted(set(of) & set(to))]


def interval(values: Sequence[float]) -> Optional[Tuple[float, float]]:
    """The 95 % interval of the median, by bootstrap over the rounds; None of fewer than 3. The same each time."""
    if len(values) < 3:
        return None
    draws = random.Random(0)
    medians = sorted(statistics.median(draws.choices(values, k=len(values))) for _ in range(RESAMPLES))
    aside = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[aside], medians[-1 - aside]


def summary(values: Sequence[float]) -> Dict[str, Any]:
    """Median, least, greatest, the 95 % interval of the median, and the number of rounds."""
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values),
            "interval": interval(values), "rounds": len(values)}


def throughput(results: List[Dict[str, Any]], reference: str = "none",
               value: str = "steps_per_second") -> Dict[Cell, Dict[str, Dict[str, Any]]]:
    """For each conditions and system, a summary of its throughput over that of the reference in the same rounds.

    A reference that was measured at another interval, regime or way of waiting would do as well, as it saves nothing:
    but one of the same round and conditions is near in time, and only that counts.
    """
    compared: Dict[Cell, Dict[str, Dict[str, Any]]] = {}
    for conditions, systems in by_round(results, value).items():
        for system, rounds in systems.items():
            found = ratios(rounds, systems.get(reference, {}))
            if found:
                compared.setdefault(conditions, {})[system] = summary(found)
    return compared


def loss(relative: Dict[str, Any]) -> Dict[str, Any]:
    """What is lost, from a summary of relative throughput."""
    both = relative["interval"]
    return {"median": 1 - relative["median"], "least": 1 - relative["greatest"], "greatest": 1 - relative["least"],
            "interval": None if both is None else (1 - both[1], 1 - both[0]), "rounds": relative["rounds"]}
