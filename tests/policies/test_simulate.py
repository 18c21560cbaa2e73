"""`python -m benchmarks.simulate`: every table it has, from small traces, in a process without TensorFlow."""

import re
import subprocess
import sys
from pathlib import Path

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


def test_unknown_choices_are_named():
    done = subprocess.run([sys.executable, "-m", "benchmarks.simulate", "thresholds", "--rows", "10", "--drifts", "away"],
                          cwd=ROOT, text=True, capture_output=True, timeout=100, check=False)
    assert done.returncode != 0 and "drift: Received: 'away'. Expected: one of" in done.stderr
