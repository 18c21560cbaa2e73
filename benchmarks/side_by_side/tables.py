"""The tables of the report, in Markdown."""

import collections
import statistics
from typing import Any, Callable, Dict, List

from benchmarks.side_by_side import longer, losses
from benchmarks.side_by_side.cells import INTERVALS, REGIMES, ROUNDS, Cell
from benchmarks.side_by_side.systems import SYSTEMS
from benchmarks.side_by_side.targets import Target

Result = Dict[str, Any]


def same_again(found: List[Result]) -> List[str]:
    """What the same job differs from itself: smaller differences than that say nothing."""
    compared = losses.throughput(found, losses.NONE[:1])
    again = [(conditions, systems["none_again"]) for conditions, systems in compared.items() if "none_again" in systems]
    return [f"The same job without checkpoints, twice in each round ({_conditions(conditions)}): the second time "
            f"{_relative(figures)} of the first.\n" for conditions, figures in again]


def failures(found: List[Result], aside: List[Result]) -> List[str]:
    """A line for each cell that failed and has not been measured since."""
    there = {Cell(**result["cell"]) for result in found}
    failed = {Cell(**result["cell"]): result["error"] for result in aside if "error" in result}
    lines = [f"- {SYSTEMS[cell.system].title}, {_conditions(cell)}, round {cell.round}: "
             f"`{error.strip().splitlines()[-1] if error.strip() else 'nothing said'}`"
             for cell, error in failed.items() if cell not in there]
    return ["Failed, and not measured since:", "", *lines, ""] if lines else []


def target_table(targets: List[Target]) -> List[str]:
    """Which targets are met."""
    lines = ["| target | wanted | measured | |", "|---|---|---|---|"]
    lines += [f"| {target.what} | {target.wanted} | {target.measured} | {target.verdict} |" for target in targets]
    return lines + [""]


def longer_table(found: List[Result]) -> List[str]:
    """Throughput of each system at each interval, measured or computed."""
    measured = losses.by_interval(losses.throughput(found))
    names = [name for name, system in SYSTEMS.items() if system.saves and name in measured]
    if not names:
        return []
    lines = ["**Longer intervals.** Throughput, of none, by batches between checkpoints; *in italics*: computed from "
             "the longest interval that was measured; in brackets: computed from 100, as a check.", "",
             "| system | " + " | ".join(map(str, INTERVALS)) + " |", "|---|" + "---|" * len(INTERVALS)]
    for name in names:
        medians = {interval: figures["median"] for interval, figures in measured[name].items()}
        cells = []
        for interval in INTERVALS:
            value, is_computed = longer.at(name, medians, interval)
            check = ""
            if not is_computed and interval > 100 and 100 in medians:
                check = f" ({longer.relative(name, 100, medians[100], interval):.3f})"
            cells.append(f"*{value:.3f}*" if is_computed else f"{value:.3f}{check}")
        lines.append(f"| {SYSTEMS[name].title} | " + " | ".join(cells) + " |")
    return lines + [""]


def training_table(conditions: Cell, results: List[Result]) -> List[str]:
    """All systems under the same conditions; medians over the rounds."""
    own = [result for result in results if Cell(**result["cell"]).conditions == conditions]
    compared = losses.throughput(own).get(conditions, {})
    lines = [f"**{_conditions(conditions)}**{_rounds(own)}", "",
             "| system | throughput, of none | between bases | loss, 95 % of the mean | ms per step p50 / p99 / max "
             "| CPU ms per step ps + workers + chief (store), between bases | MB per checkpoint, between bases (with "
             "its share of a base) | training waited, between bases | peak MB ps / worker / chief | checkpoints | |",
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
        # Where the line was faster than its caps, so were the waits.
        times = " / ".join("-" if name != "p50" and cells[0]["extrapolated"] else
                           f"{median(lambda cell: cell['step_milliseconds'][name]):.0f}"
                           for name in ("p50", "p99", "max"))
    saved = median(_written)
    megabytes = f"{median(lambda cell: cell['bytes_per_checkpoint'] / 1e6):.1f}"
    if any(_has_bases(cell) for cell in cells):
        megabytes += f" ({median(lambda cell: _with_bases(cell) / 1e6):.1f})"
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
        megabytes, f"{waited:.1%}", peaks, f"{saved:.0f}" + (f", {skipped:.0f} skipped" if skipped else ""),
        _computed(cells)])


def _written(cell: Result) -> int:
    return cell["saves"]["saves"] - cell["saves"]["skipped"]


def _has_bases(cell: Result) -> bool:
    return bool(cell["new_bases"] and cell["new_bases"]["every"])


def _with_bases(cell: Result) -> float:
    """Bytes per checkpoint, those of bases included."""
    usual, found = cell["bytes_per_checkpoint"], cell["new_bases"]
    if not _has_bases(cell):
        return usual
    in_place = 0 if found["how"] == "beside" else usual
    return usual + (found["bytes"] - in_place) / found["every"]


def _computed(cells: List[Result]) -> str:
    """What of a row was computed."""
    told = cells[0]["extrapolated"]
    if told:
        return (f"computed: written at {told['line_faster']:.1f} times the caps, "
                f"{told['seconds_added_to_each_save']:.0f} s added to each")
    found = [cell["new_bases"] for cell in cells if _has_bases(cell)]
    if not found:
        return ""
    every, seconds, cpu, factor = (statistics.median(told[name] for told in found)
                                   for name in ("every", "seconds", "cpu_seconds", "factor"))
    scaled = "" if factor == 1 else f"; others as if {factor:.2f} times as large as measured"
    share = statistics.median(told.get("share", 1.0) for told in found)
    scaled += "" if share == 1 else f"; *computed* from {share:.0%} of a base"
    return (f"of {every:g} checkpoints one is a base, {found[0]['how']}, {seconds:.1f} s and {cpu:.1f} s of CPU more"
            f"{scaled}")


def restore_table(conditions: Cell, results: List[Result]) -> List[str]:
    """Restores of all systems under the same conditions; medians over the rounds."""
    own = [result for result in results if Cell(**result["cell"]).conditions == conditions]
    lines = [f"**Restore after {conditions.checkpoints} checkpoints into {conditions.restore_ps} ps, "
             f"{_conditions(conditions)}**{_rounds(own)}", "",
             "| system | seconds | 95 % of the mean | MB read | readers | the line alone, s | times AdaptCP's | CPU s "
             "ps + workers + chief | peak MB ps | |", "|---|---|---|---|---|---|---|---|---|---|"]
    seconds = losses.by_round(own, "seconds").get(conditions, {})
    for name in sorted(seconds, key=list(SYSTEMS).index):
        cells = [result for result in own if result["cell"]["system"] == name]
        lines.append(f"| {SYSTEMS[name].title} | {_restore_row(cells, seconds[name], seconds.get('adaptcp', {}))} |")
    return lines + [""]


def _restore_row(cells: List[Result], seconds: Dict[int, float], ours: Dict[int, float]) -> str:
    def median(value: Callable[[Result], float]) -> float:
        return statistics.median(value(cell) for cell in cells)

    figures, times = losses.summary(list(seconds.values())), losses.ratios(seconds, ours)
    computed = cells[0]["extrapolated"]
    both, line = figures["interval"], median(lambda cell: cell["line_seconds"])
    is_local = cells[0]["cell"]["regime"] == "local"
    return " | ".join([
        f"{figures['median']:.1f} ({figures['least']:.1f} to {figures['greatest']:.1f})",
        "-" if both is None else f"{both[0]:.1f} to {both[1]:.1f}",
        f"{median(lambda cell: cell['bytes_read'] / 1e6):.0f}",
        "-" if is_local else f"{median(lambda cell: cell['connections']):.0f}", f"{line:.1f}" if line else "-",
        f"{statistics.median(times):.2f}" if times else "-",
        " + ".join(f"{median(lambda cell: cell['cpu_seconds'][role]):.1f}" for role in ("ps", "worker", "chief")),
        f"{median(lambda cell: cell['peak_bytes']['ps'] / 1e6):.0f}",
        f"computed: read at {computed['line_faster']:.1f} times the caps" if computed else ""])


def _rounds(cells: List[Result]) -> str:
    """How often each system was measured, and whether by one version of the code."""
    counts = collections.Counter(cell["cell"]["system"] for cell in cells).values()
    least, most = min(counts), max(counts)
    rounds = f"{least}" if least == most else f"{least} to {most}"
    text = f"; {rounds} rounds" + (f" of {ROUNDS}: not finished, and preliminary" if least < ROUNDS else "")
    codes = sorted({cell["facts"]["code"] for cell in cells} | {cell["made_by"] for cell in cells if "made_by" in cell})
    return text + (f"; **with several versions of the code: {', '.join(codes)}**" if len(codes) > 1 else "")


def _conditions(cell: Cell) -> str:
    each, total = (f"{cap / 1e6:g} MB/s" if cap else "not capped" for cap in REGIMES[cell.regime])
    return (f"every {cell.interval} batches, {cell.rows:,} rows, {cell.ps} ps, regime {cell.regime} (a connection: "
            f"{each}; in all: {total}), pending: {cell.pending}")


def _relative(figures: Dict[str, Any]) -> str:
    return f"{figures['median']:.3f} ({figures['least']:.3f} to {figures['greatest']:.3f})"


def _loss(figures: Dict[str, Any]) -> str:
    both = figures["interval"]
    return f"{figures['median']:.1%}" + ("" if both is None else f" ({both[0]:.1%} to {both[1]:.1%})")
