"""Makes tables of what was measured, what is published, what is simulated, and what follows."""

import dataclasses
import pathlib
from typing import Dict, Iterable, List, Optional

from benchmarks.scale import inputs as measured
from benchmarks.scale import paper, simulated
from benchmarks.scale.setting import ASSUMED, PUBLISHED, Setting

BEGIN, END = "<!-- scale: generated, begin -->", "<!-- scale: generated, end -->"
# Rows, and batches between checkpoints for a table of 10^7 rows.
_TRACES, _QUICK = ((10**5, 100), (10**6, 100), (10**6, 1000)), ((20_000, 100),)
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def write(setting: Setting, inputs: measured.Inputs, quick: bool, document: Optional[pathlib.Path] = None) -> None:
    """Prints the report; with a document, replaces its generated section."""
    text = markdown(setting, inputs, quick)
    print(text)
    if document is not None:
        before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"Received: {document} without a generated section. Expected: {BEGIN} and {END} in it")
        document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def markdown(setting: Setting, inputs: measured.Inputs, quick: bool) -> str:
    """The report."""
    values = measured.values(inputs)
    base = paper.of_a_base(setting, values)
    hdfs = paper.of_a_base(dataclasses.replace(setting, replication=int(PUBLISHED["hdfs_replication"].value)), values)
    runs = [run for size, batches in (_QUICK if quick else _TRACES)
            for run in simulated.simulate(size, batches, 20 if quick else 177)]
    head = max(paper.objects_of_head(setting, values, run.delta, run.chain) for run in runs
               if run.policy == simulated.ADAPTIVE)
    lines: List[str] = []
    lines += _table(f"{number(setting.keys)} keys on {setting.ps} ps, dim {setting.dim}, {setting.tables} tables: what breaks "
                    "first", ["what", "here", "limit", "meets it at", "then"],
                    ([item.what, number(item.value, item.unit), number(item.limit, item.unit), f"{number(item.at)} keys",
                      item.why] for item in paper.breaks(setting, values, head)))
    lines += _table("And with more parameter servers", ["what", "here", "limit", "meets it at", "then"],
                    ([item.what, number(item.value, item.unit), number(item.limit, item.unit), f"{number(item.at)} ps",
                      item.why] for item in paper.breaks_by_servers(setting, values)))
    lines += _figures("A parameter server", paper.on_a_server(setting, values))
    lines += _figures("A base, Google Cloud Storage", base)
    lines += _figures("A base, HDFS (what differs)", {name: hdfs[name] for name in ("store", "seconds", "touched", "creates")})
    lines += _name_node(base["bytes"].value, base["objects"].value)
    lines += _figures("The coordinator, when the head is a base",
                      paper.of_the_coordinator(setting, values, base["objects"].value))
    lines += _figures("The coordinator, before a new base: the largest head of AdaptCP below",
                      {name: figure for name, figure in paper.of_the_coordinator(setting, values, head).items()
                       if name in ("manifest", "memory", "commit", "retention", "read", "list")})
    lines += _policies(setting, values, runs)
    lines += _table("Measured on this machine", ["input", "is", "value", "command"],
                    ([f"`{name}`", item.what, number(item.value, item.unit), f"`{item.command}`"]
                     for name, item in sorted(inputs.items())))
    lines += _table("Published", ["limit", "value", "source"],
                    ([item.what, number(item.value, item.unit), item.source] for item in PUBLISHED.values()))
    lines += _table("Assumed", ["option", "value", "is"],
                    ([f"`--{name.replace('_', '-')}`", number(getattr(setting, name)), what]
                     for name, what in ASSUMED.items()))
    return "\n".join(lines).rstrip("\n")


def _name_node(size: float, objects: float) -> List[str]:
    blocks = max(objects, size / PUBLISHED["hdfs_block_bytes"].value)
    memory = (objects + blocks) * PUBLISHED["hdfs_bytes_per_object"].value
    return [f"A base is {number(objects)} files and {number(blocks)} blocks of HDFS: {number(memory, 'B')} of the name node's "
            "memory.", ""]


def _policies(setting: Setting, values: Dict[str, float], runs: List[simulated.Simulated]) -> List[str]:
    rows = []
    for run in runs:
        delta = paper.of_a_base(setting, values, run.delta)
        objects = paper.objects_of_head(setting, values, run.delta, run.chain)
        rows.append([f"{number(run.rows)}, {run.batches}", run.policy, f"{run.delta:.3f}", f"{run.written:.3f}",
                     f"{run.restore:.2f}", run.period or "none", number(delta["bytes"].value, "B"),
                     number(delta["seconds"].value, "s"), number(delta["objects"].value), number(objects),
                     number(objects * values["manifest_bytes"], "B"),
                     number(paper.of_a_base(setting, values, run.restore)["restore"].value, "s")])
    return _table("Policies, simulated on Zipf 1.2 with as many accesses per row, and what follows on Google Cloud Storage",
                  ["trace: rows, batches", "policy", "a checkpoint writes, x table", "with new bases", "a restore reads",
                   "checkpoints per base", "bytes of a checkpoint", "seconds", "files", "files of a head, at most", "manifest",
                   "restore"], rows)


def _figures(title: str, figures: paper.Figures) -> List[str]:
    return _table(title, ["what", "value", "from"],
                  ([item.what, number(item.value, item.unit), item.of] for item in figures.values()))


def _table(title: str, headings: List[str], rows: Iterable[List[object]]) -> List[str]:
    lines = [f"### {title}", "", "| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def number(value: float, unit: str = "") -> str:
    """Three digits, with a prefix where the unit takes one."""
    if unit == "s" and value >= 120:
        return f"{value:,.0f} s" if value < 7200 else f"{value / 3600:.1f} h"
    if unit == "s" and 0 < value < 0.1:
        return f"{1e3 * value:.3g} ms"
    if unit in ("B", "B/s"):
        for size, prefix in _PREFIXES:
            if value >= size:
                return f"{value / size:.3g} {prefix}{unit}"
    text = f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()
