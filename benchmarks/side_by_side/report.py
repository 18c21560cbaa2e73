"""Makes of the results a summary, tables, plots, and the generated section of a document."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from benchmarks.side_by_side import losses, tables, targets, totals
from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.results import MOST_OF_OTHERS, Results

BEGIN, END = "<!-- side by side: generated, begin -->", "<!-- side by side: generated, end -->"

PLOTS, SUMMARY = "side_by_side.png", "side_by_side.json"


def write(results: Results, directory: str, document: Optional[str] = None) -> str:
    """Writes the report, its plots and its summary into `directory`/report; returns the report, and prints it.

    Args:
        document: its section between `BEGIN` and `END` is replaced by the report; plots and summary go beside it.

    Raises:
        ValueError: the document has no such section.
    """
    folder = Path(directory) / "report"
    folder.mkdir(exist_ok=True)
    found, traces = results.all(), results.totals()
    text = markdown(found, results.aside(), traces)
    try:
        from benchmarks.side_by_side import plots
        if found:
            plots.draw(found, folder / PLOTS)
            text += f"\n![What is measured, as plots]({PLOTS})\n"
    except ImportError as error:
        print(f"No plots: {error}. They need requirements-bench.txt.")
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / SUMMARY).write_text(json.dumps(summary(found, traces), indent=1), encoding="utf-8")
    print(text)
    if document is not None:
        path = Path(document)
        path.write_text(replaced(path.read_text(encoding="utf-8"), text), encoding="utf-8")
        for name in (PLOTS, SUMMARY):
            if (folder / name).exists():
                shutil.copy(folder / name, path.parent / name)
    return text


def replaced(document: str, section: str) -> str:
    """The document with its generated section replaced."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"Received: a document without a generated section. Expected: {BEGIN} and {END} in it")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def summary(found: List[Dict[str, Any]], traces: List[Dict[str, Any]]) -> Dict[str, Any]:
    """All figures of the tables, what each was measured on, and what was simulated."""
    relative = losses.throughput(found)
    return {
        "machines": sorted({result["facts"]["machine"].split(", load")[0] for result in found}),
        "commits": sorted({result["facts"]["commit"] for result in found}),
        "codes": sorted({result["facts"]["code"] for result in found}),
        "versions": [dict(items) for items in
                     sorted({tuple(sorted(result["facts"]["versions"].items())) for result in found})],
        "throughput": [{"conditions": vars(conditions), "system": system, "relative": figures,
                        "loss": losses.loss(figures)}
                       for conditions, systems in relative.items() for system, figures in systems.items()],
        "restores": [{"conditions": vars(conditions), "system": system,
                      "seconds": losses.summary(list(rounds.values()))}
                     for conditions, systems in losses.by_round(found, "seconds").items()
                     for system, rounds in systems.items()],
        "totals": traces,
        "targets": [vars(target) for target in targets.check(found, traces)]}


def markdown(found: List[Dict[str, Any]], aside: List[Dict[str, Any]], traces: List[Dict[str, Any]]) -> str:
    """The report."""
    if not found:  # but failures, perhaps
        simulated = tables.target_table(targets.check(found, traces)) + totals.table(traces) if traces else []
        more = tables.failures(found, aside) + simulated
        return "\n".join(["Nothing was measured yet.", *([""] if more else []), *more])
    rejected = sum(result.get("rejected") is not None for result in aside)
    measured = summary(found, traces)
    lines = [
        f"{len(found)} measurements count, {rejected} were rejected (others took more than {MOST_OF_OTHERS:.0%} of the "
        f"machine meanwhile), {len(aside) - rejected} failed. Machine: {'; '.join(measured['machines'])}. "
        f"Commits: {', '.join(measured['commits'])}. Versions of the code: {', '.join(measured['codes'])}.", ""]
    lines += tables.failures(found, aside)
    lax = sum(result["most_of_others"] > MOST_OF_OTHERS for result in found)
    if lax:
        lines += [f"**{lax} of the measurements were made with a laxer rule, and prove nothing.**", ""]
    lines += tables.same_again(found)
    lines += tables.target_table(targets.check(found, traces))
    lines += totals.table(traces)
    lines += tables.longer_table(found)
    for kind, table in (("train", tables.training_table), ("restore", tables.restore_table)):
        own = [result for result in found if result["cell"]["kind"] == kind]
        for conditions in sorted({Cell(**result["cell"]).conditions for result in own}, key=lambda cell: cell.key):
            lines += table(conditions, own)
    return "\n".join(lines)
