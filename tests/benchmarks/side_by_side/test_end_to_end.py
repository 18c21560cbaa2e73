"""Cells on real clusters, from the command line to the report."""

import json
import subprocess
import sys

from tests.support.jobs import ROOT, run_job
from tests.support.side_by_side_jobs import ROWS

RUN = ["run", "--systems", "adaptcp", "--rows", "3000", "--intervals", "10", "--regimes", "published", "--ps", "1",
       "--pending", "wait", "--rounds", "1", "--seconds", "0.1", "--most-of-others", "1"]


def command(results, *arguments):
    done = subprocess.run([sys.executable, "-m", "benchmarks.side_by_side", *arguments, "--results", str(results)],
                          cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250,
                          check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_cell_is_measured_once_and_reported(tmp_path):
    said = command(tmp_path, *RUN, "--directory", str(tmp_path))
    assert "1 cells, 1 of them to be measured" in said and "steps/s" in said
    assert "1 cells, 0 of them to be measured" in command(tmp_path, *RUN)
    found = json.loads(next(tmp_path.glob("train-*.json")).read_text())
    assert found["saves"] == {"saves": len(found["windows"]), "skipped": 0}
    assert found["steps"] == 10 * len(found["windows"]) >= 30 and found["steps_per_second"] > 0
    # The base: every row with its key, indicator and slots; then what changed.
    assert found["first_save_bytes"] > 3000 * (3 * 64 + 12) and found["bytes_written"] > 0
    assert all(found["peak_bytes"][role] > 1e8 and found["cpu_seconds_per_step"][role] > 0
               for role in ("ps", "worker", "chief"))
    # A base was made, with its own watch.
    base = found["new_bases"]
    assert base["bytes"] > 3000 * (3 * 64 + 12) and base["how"] == "beside" and base["every"] > 1
    assert found["others_share"] >= base["others_share"] and found["asked_seconds"] == 0.1
    assert found["step_milliseconds"]["max"] >= found["step_milliseconds"]["p50"] > 0
    assert "AdaptCP |" in command(tmp_path, "report") and (tmp_path / "report" / "side_by_side.json").exists()
    assert not list(tmp_path.glob("side-by-side-*"))  # the store, and what clusters leave


def test_a_restore_is_measured_with_checkpoints_made_once(tmp_path):
    arguments = ["run", "--restores", "--systems", "check_n_run", "--checkpoints", "1", "--rows", "3000", "--ps", "1",
                 "--regimes", "published", "--most-of-others", "1"]
    command(tmp_path, *arguments, "--rounds", "1")
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "made").rglob("*.seg")}
    found = json.loads(next(tmp_path.glob("restore-*.json")).read_text())
    assert made and found["seconds"] > 0 and min(found["rows"]) > 3000
    # Base and differential: what is read is what a checkpoint of that many rows has at least.
    assert found["bytes_read"] > 3000 * (3 * 64 + 12) and found["connections"] >= 1
    assert found["peak_bytes"]["ps"] > 1e8 and found["cpu_seconds"]["ps"] > 0


def test_stock_systems_save_everything_through_the_store(tmp_path):
    found = run_job("tests.support.side_by_side_jobs", "stock_savers", env={"STORE": str(tmp_path)}, fresh=True)
    assert found["ops"] and all(op.startswith("TFRA>") for op in found["ops"])
    assert found["workers"] == [0.0, 1.0] and found["steps"] == 14 and found["forward"]
    for name in ("tfra_files", "tf_checkpoint"):
        told = found[name]
        assert min(told["rows"]) >= ROWS and told["equal"] == [True] * 3 and told["weights"] == [True] * 2
        assert told["bytes"] > 2 * 3 * ROWS * (64 + 8) and told["kept"] == ["2"]
        assert told["stats"] == {"saves": 2, "committed": 2, "skipped": 0}
    # Keys and values of three tables on two servers, all at once.
    assert found["tfra_files"]["connections"] == 12
