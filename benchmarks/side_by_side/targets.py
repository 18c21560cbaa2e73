"""What is to be reached, and whether it was."""

import dataclasses
import statistics
from typing import Any, Dict, List, Optional

from benchmarks.side_by_side import losses, totals
from benchmarks.side_by_side.cells import Cell

NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Target:
    """One of them, in words."""
    what: str
    wanted: str
    measured: str
    verdict: str


# Of the best other policy's bytes.
_MOST_BYTES = 1.01


def check(results: List[Dict[str, Any]], traces: List[Dict[str, Any]]) -> List[Target]:
    """All targets; those of training by the published regime, waiting, 2 ps, 5M rows.

    Args:
        results: of cells.
        traces: of simulated traces, see `totals`.
    """
    relative = losses.throughput(results)

    def figure(system: str, **conditions: Any) -> Optional[Dict[str, Any]]:
        return relative.get(Cell("any", **conditions), {}).get(system)

    checked = [_at_most(f"AdaptCP loses every {interval} batches", most, figure("adaptcp", interval=interval))
               for interval, most in ((100, 0.08), (1000, 0.02))]
    tracking = figure("tracking")
    checked.append(_target("tracking on, no checkpoints, of plain TFRA's throughput", "at least 97 %", tracking,
                           lambda found: found["median"] >= 0.97, lambda found: f"{found['median']:.1%}"))
    speeds = losses.by_round(results, "steps_per_second").get(Cell("any"), {})
    against = losses.ratios(speeds.get("adaptcp", {}), speeds.get("check_n_run", {}))
    checked.append(_target("throughput of AdaptCP every 100 batches, times Check-N-Run's", "at least 4.59",
                           against or None, lambda found: statistics.median(found) >= 4.59,
                           lambda found: f"{statistics.median(found):.2f}"))
    checked.append(_highest(relative))
    for system, title, least in (("check_n_run", "Check-N-Run", 9.41), ("incr_ckpt", "Incr CKPT-N", 12.70),
                                 ("native_incremental", "native incremental", 13.62)):
        times = [value for conditions, systems in losses.by_round(results, "seconds").items()
                 if conditions.regime == "published"
                 for value in losses.ratios(systems.get(system, {}), systems.get("adaptcp", {}))]
        checked.append(_target(f"restore of {title}, times AdaptCP's", f"at least {least}", times or None,
                               lambda found, least=least: statistics.median(found) >= least,
                               lambda found: f"{statistics.median(found):.2f}"))
    return [*checked, _fewest_bytes(totals.compare(traces))]


def _fewest_bytes(compared: List[totals.Total]) -> Target:
    """On every trace, with every lambda."""
    def text(found: List[totals.Total]) -> str:
        worst = max(found, key=lambda total: total.ratio)
        missed = sum(total.ratio > _MOST_BYTES for total in found)
        return (f"{worst.ratio:.3f} at worst ({worst.trace}, λ = {worst.weight:g}, {worst.best_other}); "
                f"above {_MOST_BYTES:g} in {missed} of {len(found)}")
    return _target("bytes written and λ times read, simulated, of AdaptCP, times those of the best other policy",
                   f"at most {_MOST_BYTES:g}, on every trace", compared or None,
                   lambda found: all(total.ratio <= _MOST_BYTES for total in found), text)


def _at_most(what: str, most: float, relative: Optional[Dict[str, Any]]) -> Target:
    return _target(what, f"at most {most:.0%}", relative, lambda found: 1 - found["median"] <= most,
                   lambda found: f"{1 - found['median']:.1%}")


def _highest(relative: Dict[Cell, Dict[str, Dict[str, Any]]]) -> Target:
    """Among the systems that make checkpoints, at every interval that was measured."""
    found = {}
    for conditions, systems in relative.items():
        if conditions == Cell("any", interval=conditions.interval) and "adaptcp" in systems:
            savers = {name: figures["median"] for name, figures in systems.items()
                      if name not in ("none", "none_again", "tracking") and not name.startswith("adaptcp_")}
            found[conditions.interval] = max(savers, key=savers.get)
    return _target("the highest throughput of all at every interval", "AdaptCP", found or None,
                   lambda found: set(found.values()) == {"adaptcp"},
                   lambda found: ", ".join(f"{interval}: {name}" for interval, name in sorted(found.items())))


def _target(what: str, wanted: str, found: Any, holds: Any, text: Any) -> Target:
    if found is None:
        return Target(what, wanted, NOT_MEASURED, "")
    return Target(what, wanted, text(found), "met" if holds(found) else "**missed**")
