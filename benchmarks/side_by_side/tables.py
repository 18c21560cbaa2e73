"""The tables of the report, in Markdown."""

import collections
import statistics
from typing import Any, Callable, Dict, List

from benchmarks.side_by_side import losses
from benchmarks.side_by_side.cells import REGIMES, ROUNDS, Cell
from benchmarks.side_by_side.systems import SYSTEMS
from benchmarks.side_by_side.targets import Target

Result = Dict[str, Any]


def same_again(found: List[Result]) -> List[str]:
    """What the same job differs from itself: smaller differences than that say nothing."""
    again = [(conditions, systems["none_again"]) for conditions, systems in losses.throughput(found, losses.NONE[:1]).items()
             if "none_again" in systems]
    return [f"The same job without checkpoints, twice in each round ({_conditions(conditions)}): the second time "
            f"{_relative(figures)} of the first.\n" for conditions, figures in again]


def target_table(targets: List[Target]) -> List[str]:
    """Which targets are met."""
    lines = ["| target | wanted | measured | |", "|---|---|---|---|"]
    lines += [f"| {target.what} | {target.wanted} | {target.measured} | {target.verdict} |" for target in targets]
    return lines + [""]


def training_table(conditions: Cell, results: List[Result]) -> List[str]:
    """All systems under the same conditions; medians over the rounds."""
    own = [result for result in results if Cell(**result["cell"]).conditions == conditions]
    compared = losses.throughput(own).get(conditions, {})
    lines = [f"**{_conditions(conditions)}**{_rounds(own)}", "",
             "| system | throughput, of none | between bases | loss, 95 % | ms per step p50 / p99 / max | CPU ms "
             "per step ps + workers + chief (store) | MB per checkpoint | training waited | "
             "peak MB ps / worker / chief | checkpoints | |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    between = losses.throughput(own, value="between_bases").get(conditions, {})
    for name in sorted({result["cell"]["system"] for result in own}, key=list(SYSTEMS).index):
        cells = [result for result in own if result["cell"]["system"] == name]
        lines.append(f"| {SYSTEMS[name].title} | {_training_row(cells, compared.get(name), between.get(name))} |")
    return lines + [""]


def _training_row(cells: List[Result], relative: Any, between: Any) -> str:
    def median(value: Callable[[Result], float]) -> float:
        return statistics.median(value(cell) for cell in cells)

    def per_step(role: str) -> float:
        return median(lambda cell: 1000 * cell["cpu_seconds_per_step"][role])

    times = "-"
    if all(cell["step_milliseconds"] for cell in cells):
        times = " / ".join(f"{median(lambda cell: cell['step_milliseconds'][name]):.0f}"
                           for name in ("p50", "p99", "max"))
    saved = median(_written)
    megabytes = median(lambda cell: cell["bytes_written"] / 1e6 / max(1, _written(cell)))
    waited = median(lambda cell: cell["waited_seconds"] / sum(window["seconds"] for window in cell["windows"]))
    peaks = " / ".join(f"{median(lambda cell: cell['peak_bytes'][role] / 1e6):.0f}"
                       for role in ("ps", "worker", "chief"))
    skipped = median(lambda cell: cell["saves"]["skipped"])
    loss = None if relative is None else losses.loss(relative)
    return " | ".join([
        "-" if relative is None else _relative(relative), "-" if between is None else f"{between['median']:.3f}",
        "-" if loss is None else _loss(loss), times,
        f"{per_step('ps'):.1f} + {per_step('worker'):.1f} + {per_step('chief'):.1f} "
        f"({median(lambda cell: 1000 * cell['store_cpu_seconds_per_step']):.1f})",
        f"{megabytes:.1f}", f"{waited:.1%}", peaks, f"{saved:.0f}" + (f", {skipped:.0f} skipped" if skipped else ""),
        _extrapolated(cells)])


def _written(cell: Result) -> int:
    return cell["saves"]["saves"] - cell["saves"]["skipped"]


def _extrapolated(cells: List[Result]) -> str:
    """What of a row was computed."""
    told, found = cells[0]["extrapolated"], cells[0]["new_bases"]
    if told:
        return (f"computed: written at {told['line_faster']:.1f} times the caps, "
                f"{told['seconds_added_to_each_save']:.0f} s added to each")
    if found and found["every"]:
        seconds = statistics.median(cell["new_bases"]["seconds"] for cell in cells)
        return f"of {found['every']} checkpoints one is a base, {found['how']}, {seconds:.1f} s longer"
    return ""


def restore_table(conditions: Cell, results: List[Result]) -> List[str]:
    """Restores of all systems under the same conditions; medians over the rounds."""
    own = [result for result in results if Cell(**result["cell"]).conditions == conditions]
    lines = [f"**Restore after {conditions.checkpoints} checkpoints into {conditions.restore_ps} ps, "
             f"{_conditions(conditions)}**{_rounds(own)}", "",
             "| system | seconds | MB read | readers | times AdaptCP's | |", "|---|---|---|---|---|---|"]
    seconds = losses.by_round(own, "seconds").get(conditions, {})
    for name in sorted(seconds, key=list(SYSTEMS).index):
        cells = [result for result in own if result["cell"]["system"] == name]
        times = losses.ratios(seconds[name], seconds.get("adaptcp", {}))
        computed = cells[0]["extrapolated"]
        lines.append(" | ".join([
            f"| {SYSTEMS[name].title}", f"{statistics.median(seconds[name].values()):.1f}",
            f"{statistics.median(cell['bytes_read'] for cell in cells) / 1e6:.0f}", str(cells[0]["connections"]),
            f"{statistics.median(times):.2f}" if times else "-",
            f"computed: read at {computed['line_faster']:.1f} times the caps |" if computed else "|"]))
    return lines + [""]


def _rounds(cells: List[Result]) -> str:
    """How often each system was measured."""
    counts = collections.Counter(cell["cell"]["system"] for cell in cells).values()
    least, most = min(counts), max(counts)
    rounds = f"{least}" if least == most else f"{least} to {most}"
    return f"; {rounds} rounds" + (f" of {ROUNDS}: not finished, and preliminary" if least < ROUNDS else "")


def _conditions(cell: Cell) -> str:
    each, total = (f"{cap / 1e6:g} MB/s" if cap else "not capped" for cap in REGIMES[cell.regime])
    return (f"every {cell.interval} batches, {cell.rows:,} rows, {cell.ps} ps, regime {cell.regime} (a connection: "
            f"{each}; in all: {total}), pending: {cell.pending}")


def _relative(figures: Dict[str, Any]) -> str:
    return f"{figures['median']:.3f} ({figures['least']:.3f} to {figures['greatest']:.3f})"


def _loss(figures: Dict[str, Any]) -> str:
    both = figures["interval"]
    return f"{figures['median']:.1%}" + ("" if both is None else f" ({both[0]:.1%} to {both[1]:.1%})")
