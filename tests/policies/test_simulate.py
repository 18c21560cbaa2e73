"""`python -m benchmarks.simulate`: every table it has, from small traces, in a process without TensorFlow."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.side_by_side import totals
from benchmarks.side_by_side.results import Results

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
from benchmarks import simulate
for what in ("policies", "thresholds", "periods", "regret", "bias"):
    sys.argv = ["simulate", what, "--rows", "3000", "--checkpoints", "130", "--weights", "1,5", "--drifts", "none,jumps"]
    simulate.main()
assert "tensorflow" not in sys.modules
"""


def test_every_table_is_printed():
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, text=True, capture_output=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"^(.*):\n\n(\|.*\|)\n\|---\|[-:|]+\n((?:\|.*\|\n)+)", done.stdout, re.MULTILINE)
    # By weight and drift, or by drift; and one of known rates.
    assert len(tables) == 2 * 2 + 2 + 2 + 2 + 1 + 2
    for title, headings, rows in tables:
        assert "Zipf 1.2, 3,000 rows" in title or title.startswith("Mean estimate")
        assert all(row.count("|") == headings.count("|") for row in rows.splitlines())
    policies = tables[0][2]
    assert re.search(r"^\| adaptive dynamic, marginal, updates \| [\d.]+ \| [\d.]+ \| \d+ \| 1.000 \|$", policies, re.MULTILINE)
    full = re.search(r"^\| full \| ([\d.]+) \| ([\d.]+) \| 130 \|", policies, re.MULTILINE)
    assert [float(cell) for cell in full.groups()] == [0.612, 0.612], "3,000 rows of 204 bytes"


TOTALS = """
import sys
from benchmarks import simulate
sys.argv = ["simulate", "totals", "--rows", "3000", "--checkpoints", "130", "--weights", "1,5", "--results", sys.argv[1]]
simulate.main()
assert "tensorflow" not in sys.modules
"""


def test_totals_of_every_trace_are_kept(tmp_path):
    """What is written, and lambda / 43 of what a restore reads; and the report on all systems can read it."""
    done = subprocess.run([sys.executable, "-c", TOTALS, str(tmp_path)], cwd=ROOT, text=True, capture_output=True,
                          timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    kept = Results(str(tmp_path)).totals()
    assert len(kept) == len({trace["trace"] for trace in kept}) == 11
    for trace in kept:
        assert trace["rows"] == 3000 and [found["weight"] for found in trace["weights"]] == [1.0, 5.0]
        for found in trace["weights"]:
            full, native = found["policies"]["full"], found["policies"]["native_incremental"]
            assert full["written"] == full["read"] == 3000 * 204
            assert full["total"] == pytest.approx(3000 * 204 * (1 + found["weight"] / 43))
            # A base, and on average half of what 131 checkpoints write.
            assert native["read"] == pytest.approx(3000 * 204 + native["written"] * 131 / 2, rel=0.05)
            assert len(found["policies"]) == 10
    compared = {(total.trace, total.weight): total for total in totals.compare(kept)}
    assert len(compared) == 22
    found = compared["Zipf 1.2, 3,000 rows, 100 batches", 5.0]
    row, = re.findall(r"^\| Zipf 1.2, 3,000 rows, 100 batches \| .*", done.stdout, re.MULTILINE)
    assert f"| {found.ratio:.3f} ({found.unbounded_ratio:.3f}), {found.best_other} |" in row


def test_unknown_choices_are_named():
    done = subprocess.run([sys.executable, "-m", "benchmarks.simulate", "thresholds", "--rows", "10", "--drifts", "away"],
                          cwd=ROOT, text=True, capture_output=True, timeout=100, check=False)
    assert done.returncode != 0 and "drift: Received: 'away'. Expected: one of" in done.stderr
