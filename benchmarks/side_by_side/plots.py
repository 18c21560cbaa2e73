"""The figures, in the form that published ones have. Needs matplotlib (requirements-bench.txt), and alone here."""

import statistics
from pathlib import Path
from typing import Any, Dict, List

from benchmarks.side_by_side import losses
from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.systems import SYSTEMS


def draw(results: List[Dict[str, Any]], path: Path) -> None:
    """Draws throughput by interval, throughput over Check-N-Run by rows, and restore time by system where measured."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    restored = any(result["cell"]["kind"] == "restore" for result in results)
    panels = 2 + restored
    figure, (left, right, *more) = pyplot.subplots(1, panels, figsize=(5 * panels, 4.5), layout="constrained")
    left.set_prop_cycle(color=pyplot.get_cmap("tab20").colors)
    _against_interval(left, losses.throughput(results))
    _against_rows(right, losses.throughput(results, ("check_n_run",)))
    for axes in more:
        _restores(axes, results)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _against_interval(axes: Any, relative: Dict[Cell, Dict[str, Dict[str, Any]]]) -> None:
    for system in (name for name in SYSTEMS if name not in ("none", "none_again")):
        points = sorted((conditions.interval, systems[system]) for conditions, systems in relative.items()
                        if system in systems and conditions == Cell("any", interval=conditions.interval))
        if points:
            medians = [figures["median"] for _, figures in points]
            below = [figures["median"] - figures["least"] for _, figures in points]
            above = [figures["greatest"] - figures["median"] for _, figures in points]
            axes.errorbar([interval for interval, _ in points], medians, [below, above], marker="o", capsize=3,
                          label=SYSTEMS[system].title)
    axes.set(xscale="log", xlabel="batches between checkpoints", ylabel="throughput, of no checkpoints", ylim=(0, 1.1))
    axes.invert_xaxis()
    if axes.lines:
        axes.legend(fontsize=6)


def _restores(axes: Any, results: List[Dict[str, Any]]) -> None:
    """In the published regime: of the largest tables, after the most checkpoints."""
    found = {conditions: systems for conditions, systems in losses.by_round(results, "seconds").items()
             if conditions.regime == "published" and conditions.interval == 100}
    rows, checkpoints = max(((conditions.rows, conditions.checkpoints) for conditions in found), default=(0, 0))
    found = {conditions: systems for conditions, systems in found.items()
             if (conditions.rows, conditions.checkpoints) == (rows, checkpoints)}
    names = [name for name in SYSTEMS if any(name in systems for systems in found.values())]
    for place, (conditions, systems) in enumerate(sorted(found.items(), key=lambda item: item[0].restore_ps)):
        known = [number for number, name in enumerate(names) if name in systems]
        axes.barh([number + 0.4 * place for number in known],
                  [statistics.median(systems[names[number]].values()) for number in known], height=0.38,
                  label=f"into {conditions.restore_ps} ps")
    axes.set_yticks([number + 0.2 for number in range(len(names))], [SYSTEMS[name].title for name in names], fontsize=7)
    axes.set(xlabel=f"seconds of a restore after {checkpoints} checkpoints, {rows:,} rows")
    if names:
        axes.legend()


def _against_rows(axes: Any, relative: Dict[Cell, Dict[str, Dict[str, Any]]]) -> None:
    points = sorted((conditions.rows, systems["adaptcp"]["median"]) for conditions, systems in relative.items()
                    if "adaptcp" in systems and conditions == Cell("any", rows=conditions.rows))
    axes.plot([rows for rows, _ in points], [ratio for _, ratio in points], marker="o")
    axes.set(xscale="log", xlabel="rows", ylabel="AdaptCP's throughput, times Check-N-Run's", ylim=(0, None))
