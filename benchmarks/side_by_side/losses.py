"""Statistics over rounds: a system is only ever compared with another in the same round."""

import math
import statistics
from typing import Any, Dict, List, Optional, Sequence, Tuple

from benchmarks.side_by_side.cells import Cell

# Student's t of 95 % by the number of rounds; of more than these, the last, which is a little too much.
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
# What saves nothing: the mean of them is the reference of a round.
NONE = ("none", "none_again")


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
    """Student's 95 % interval of the mean over rounds; None of fewer than 3."""
    if len(values) < min(STUDENT):
        return None
    mean = statistics.fmean(values)
    aside = STUDENT[min(len(values), max(STUDENT))] * statistics.stdev(values) / math.sqrt(len(values))
    return mean - aside, mean + aside


def summary(values: Sequence[float]) -> Dict[str, Any]:
    """Median, least, greatest, the 95 % interval of the mean, and the number of rounds."""
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values),
            "interval": interval(values), "rounds": len(values)}


def throughput(results: List[Dict[str, Any]], reference: Sequence[str] = NONE,
               value: str = "steps_per_second") -> Dict[Cell, Dict[str, Dict[str, Any]]]:
    """For each conditions and system, a summary of its throughput over the mean of the references in the same rounds.

    A reference that was measured at another interval, regime or way of waiting would do as well, as it saves nothing:
    but one of the same round and conditions is near in time, and only that counts.
    """
    compared: Dict[Cell, Dict[str, Dict[str, Any]]] = {}
    for conditions, systems in by_round(results, value).items():
        known = [systems[name] for name in reference if name in systems]
        means = {number: statistics.fmean(rounds[number] for rounds in known if number in rounds)
                 for number in sorted({number for rounds in known for number in rounds})}
        for system, rounds in systems.items():
            found = ratios(rounds, means)
            if found:
                compared.setdefault(conditions, {})[system] = summary(found)
    return compared


def loss(relative: Dict[str, Any]) -> Dict[str, Any]:
    """What is lost, from a summary of relative throughput."""
    both = relative["interval"]
    return {"median": 1 - relative["median"], "least": 1 - relative["greatest"], "greatest": 1 - relative["least"],
            "interval": None if both is None else (1 - both[1], 1 - both[0]), "rounds": relative["rounds"]}


def by_interval(relative: Dict[Cell, Dict[str, Dict[str, Any]]]) -> Dict[str, Dict[int, Dict[str, Any]]]:
    """{system: {interval: summary}} of what differs from the core in nothing else.

    Args:
        relative: what `throughput` returns.
    """
    found: Dict[str, Dict[int, Dict[str, Any]]] = {}
    for conditions, systems in relative.items():
        if conditions == Cell("any", interval=conditions.interval):
            for system, figures in systems.items():
                found.setdefault(system, {})[conditions.interval] = figures
    return found
