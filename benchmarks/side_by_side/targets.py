"""What is to be reached, and whether it was."""

import dataclasses
from typing import Any, Callable, Dict, List, Optional

from benchmarks.side_by_side import longer, losses, totals
from benchmarks.side_by_side.cells import INTERVALS, ROWS, Cell
from benchmarks.side_by_side.systems import SYSTEMS

NOT_MEASURED = "not measured"
# Of fewer rounds nothing is said to be met or missed.
LEAST_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Target:
    """One of them, in words."""
    what: str
    wanted: str
    measured: str
    verdict: str


# Of the best other policy's bytes.
_MOST_BYTES = 1.01
_LEAST_TIMES = 4.59
# Of the fastest restore from a local disk.
_MOST_LOCAL = 1.05


def check(results: List[Dict[str, Any]], traces: List[Dict[str, Any]]) -> List[Target]:
    """All targets: of training in the published regime, waiting, 2 ps, 5M rows; of restores after 100 checkpoints.

    Args:
        results: of cells.
        traces: of simulated traces, see `totals`.
    """
    relative = losses.throughput(results)

    def figure(system: str, **conditions: Any) -> Optional[Dict[str, Any]]:
        return relative.get(Cell("any", **conditions), {}).get(system)

    checked = []
    for interval, most in ((100, 0.08), (1000, 0.02)):
        found = figure("adaptcp", interval=interval)
        checked.append(_of_rounds(f"AdaptCP loses every {interval} batches", f"at most {most:.0%}",
                                  found and losses.loss(found), lambda lost, most=most: lost <= most, _percent))
    checked.append(_of_rounds("tracking on, no checkpoints, of plain TFRA's throughput", "at least 97 %",
                              figure("tracking"), lambda share: share >= 0.97, _percent))
    speeds = losses.by_round(results, "steps_per_second")
    for system in ("check_n_run", "check_n_run_parallel"):
        checked.append(_of_rounds(
            f"throughput of AdaptCP every 100 batches, times that of {SYSTEMS[system].title}",
            f"at least {_LEAST_TIMES}", _times(speeds.get(Cell("any"), {}), "adaptcp", system),
            lambda times: times >= _LEAST_TIMES, _number))
    return [*checked, _growing(speeds), _highest(relative), *_restores(results), _fewest_bytes(totals.compare(traces))]


def _times(systems: Dict[str, Dict[int, float]], of: str, to: str) -> Optional[Dict[str, Any]]:
    found = losses.ratios(systems.get(of, {}), systems.get(to, {}))
    return losses.summary(found) if found else None


def _growing(speeds: Dict[Cell, Any]) -> Target:
    """With the tables, over Check-N-Run."""
    found = {rows: _times(speeds.get(Cell("any", rows=rows), {}), "adaptcp", "check_n_run") for rows in ROWS}
    known = {rows: times for rows, times in found.items() if times}
    medians = [times["median"] for times in known.values()]
    enough = len(known) == len(ROWS) and min(times["rounds"] for times in known.values()) >= LEAST_ROUNDS
    return _target(f"that, by the rows of the tables ({SYSTEMS['check_n_run'].title})", "growing towards 13.87",
                   ", ".join(f"{rows / 1e6:g}M: {times['median']:.2f}, {_rounds(times['rounds'])}"
                             for rows, times in known.items()), enough, medians == sorted(set(medians)))


def _highest(relative: Dict[Cell, Dict[str, Dict[str, Any]]]) -> Target:
    """Among the systems that make checkpoints, at every interval; those not measured are computed from the longest."""
    measured = losses.by_interval(relative)
    others = [name for name, system in SYSTEMS.items()
              if system.saves and not (system.is_ablation or system.only_restored or name == "adaptcp")]
    enough = all(name in measured and min(figures["rounds"] for figures in measured[name].values()) >= LEAST_ROUNDS
                 for name in ("adaptcp", *others))
    texts, holds = [], True
    for interval in INTERVALS:
        found = {name: longer.at(name, {at: figures["median"] for at, figures in measured[name].items()}, interval)
                 for name in ("adaptcp", *others) if name in measured}
        own = found.pop("adaptcp", None)
        if own is None or not found:
            continue
        best = max(found, key=lambda name: found[name][0])
        computed = own[1] or any(is_computed for _, is_computed in found.values())
        texts.append(f"{interval}: {found[best][0]:.3f} ({SYSTEMS[best].title}) against {own[0]:.3f}"
                     + (", *computed*" if computed else ""))
        holds = holds and found[best][0] < own[0]
    return _target("the highest throughput of the other systems, at every interval", "below AdaptCP's",
                   "; ".join(texts), enough, holds)


def _restores(results: List[Dict[str, Any]]) -> List[Target]:
    computed = {(Cell(**result["cell"]).conditions, result["cell"]["system"])
                for result in results if result["cell"]["kind"] == "restore" and result["extrapolated"]}
    seconds, checked = losses.by_round(results, "seconds"), []

    def restore(regime: str, ps: int) -> Cell:
        return Cell("any", kind="restore", regime=regime, checkpoints=100, restore_ps=ps)

    for system, least in (("check_n_run", 9.41), ("incr_ckpt", 12.70), ("native_incremental", 13.62)):
        for ps in (2, 1):
            conditions = restore("published", ps)
            found = _times(seconds.get(conditions, {}), system, "adaptcp")
            checked.append(_of_rounds(f"restore of {SYSTEMS[system].title} into {ps} ps, times AdaptCP's",
                                      f"at least {least}", found, lambda times, least=least: times >= least, _number,
                                      (conditions, system) in computed))
    for ps in (2, 1):
        systems = {name: rounds for name, rounds in seconds.get(restore("local", ps), {}).items()
                   if not name.endswith("_quantized")}
        medians = {name: losses.summary(list(rounds.values()))["median"] for name, rounds in systems.items()}
        fastest = min(medians, key=medians.get, default="")
        found = _times(systems, "adaptcp", fastest) if len(systems) > 1 else None
        title = f" ({SYSTEMS[fastest].title})" if found else ""
        checked.append(_of_rounds(
            f"restore of AdaptCP from local disks into {ps} ps, times the fastest's at full precision",
            f"at most {_MOST_LOCAL}", found, lambda times: times <= _MOST_LOCAL,
            lambda times, title=title: f"{times:.2f}{title}"))
    return checked


def _fewest_bytes(compared: List[totals.Total]) -> Target:
    """On every trace, with every lambda."""
    text = ""
    if compared:
        worst = max(compared, key=lambda total: total.ratio)
        missed = sum(total.ratio > _MOST_BYTES for total in compared)
        text = (f"{worst.ratio:.3f} at worst ({worst.trace}, λ = {worst.weight:g}, {worst.best_other}); "
                f"above {_MOST_BYTES:g} in {missed} of {len(compared)}")
    there = {(total.trace, total.weight) for total in compared}
    return _target("bytes written and λ/43 times read, simulated, of AdaptCP, times those of the best other policy",
                   f"at most {_MOST_BYTES:g}, on every trace", text, totals.expected() <= there,
                   all(total.ratio <= _MOST_BYTES for total in compared))


def _of_rounds(what: str, wanted: str, found: Optional[Dict[str, Any]], holds: Callable[[float], bool],
               text: Callable[[float], str], computed: bool = False) -> Target:
    """One that the median of the rounds decides."""
    if not found:
        return _target(what, wanted, "", False, False)
    measured = f"{text(found['median'])}; {_rounds(found['rounds'])}"
    if found["interval"] is not None:
        measured += ", 95 %: {} to {}".format(*(_percent(end) if text is _percent else _number(end)
                                                for end in found["interval"]))
    target = _target(what, wanted, measured + (", *computed*" if computed else ""), found["rounds"] >= LEAST_ROUNDS,
                     holds(found["median"]))
    if target.verdict and len(set(map(holds, found["interval"]))) > 1:
        return dataclasses.replace(target, verdict=f"{target.verdict}, within the noise")
    return target


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _number(times: float) -> str:
    return f"{times:.2f}"


def _rounds(number: int) -> str:
    return f"{number} round" + "s" * (number != 1)


def _target(what: str, wanted: str, measured: str, enough: bool, holds: bool) -> Target:
    if not measured:
        return Target(what, wanted, NOT_MEASURED, "")
    return Target(what, wanted, measured, ("met" if holds else "**missed**") if enough else "")
