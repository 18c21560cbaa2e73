"""The example that `make demo` runs, on fewer batches, and the parts of it that give the verdict."""

from __future__ import annotations

import copy
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.jobs import ROOT

EXAMPLES = ROOT / "examples"
DATA = ROOT / ".cache" / "ml-100k"


def _load(name: str):
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        if text.encode() in environment and path.parent.name != str(os.getpid()):
            found.append(path.parent.name)
    return found


@pytest.mark.timeout(600)
def test_everything_comes_back_after_a_kill(tmp_path):
    if not (DATA / "ml-100k.inter").exists():
        pytest.skip("MovieLens-100k is not there. To fetch it: make data")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / "movielens_ps.py"), "--data", str(DATA), "--small"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout
    assert "bit for bit" in done.stdout and "NO " not in done.stdout
    assert "Traceback" not in done.stdout and "tensorflow" not in done.stdout.lower()
    lines = done.stdout.splitlines()
    table = [line.split() for line in lines if re.match(r"\d{10}-\d{10}-[0-9a-f]{12} ", line)]
    assert [int(row[1]) for row in table][-2:] == [400, 500]
    step = int(re.search(r"restored checkpoint \S+, step (\d+)", done.stdout)[1])
    assert step in (200, 300)
    assert any(row[5] != "-" and int(row[7]) > 0 for row in table), "no differential"
    # Rows captured, by source, are those written.
    for row in table:
        assert int(row[6]) + int(row[7]) == int(row[8]) + int(row[9]) + int(row[10])
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith("tfadaptcp-ports-")]
    assert left == [] and _processes_with(f"TMPDIR={tmp_path}") == []


def test_data_that_is_missing_is_named(tmp_path):
    command = [sys.executable, str(EXAMPLES / "movielens_ps.py"), "--data", str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and f"Received: {tmp_path}" in done.stderr


def test_copies_are_compared_bit_for_bit(tmp_path):
    full_copy = _load("full_copy")
    state = {"user/keys": np.array([1, 5]), "user/rows": np.array([[0.0, 1.0], [np.nan, 2.0]], np.float32),
             "dense/step": np.array(7, np.int64), "empty": np.zeros((0, 3), np.float32)}
    full_copy.save(state, tmp_path / "copy.npz")
    assert full_copy.differences(full_copy.load(tmp_path / "copy.npz"), state) == []
    for name, index, value in [("user/keys", 1, 6), ("user/rows", (0, 0), -0.0), ("dense/step", (), 8)]:
        other = copy.deepcopy(state)
        other[name][index] = value
        difference, = full_copy.differences(other, state)
        assert difference.startswith(f"{name}: 1 of ")
    less = {name: array for name, array in state.items() if name != "user/rows"}
    assert full_copy.differences(less, state) == ["user/rows: only in the copy"]
    shorter = {**state, "user/keys": state["user/keys"][:1]}
    assert "Received: int64(1,). Expected: int64(2,)" in full_copy.differences(shorter, state)[0]


def _jobs():
    def checkpoint(step, rows):
        return {"name": f"c{step}", "step": step, "rows": rows, "bytes": dict.fromkeys(rows, 10_000), "rows_by_drain": 5,
                "rows_by_lookup": 0, "rows_by_update": 1, "update_wait_seconds": 0.0, "drain_wait_seconds": 0.0, "blocked_seconds": 0.0,
                "save_seconds": 0.0}
    first = {"failed": True, "losses": {"100": 1.2, "200": 1.1}, "drain_wait": 0.0,
             "checkpoints": [checkpoint(100, {"base": 6}), checkpoint(200, {"increment": 4, "differential": 2})]}
    second = {"checkpoint": "c200", "step": 200, "restore_seconds": 1.0, "bytes_read": 10, "rows": 12, "tables": 3,
              "dense": 2, "differences": [], "losses": {"300": 1.0}, "drain_wait": 0.0,
              "checkpoints": [checkpoint(300, {"increment": 6})]}
    return first, second


def _drop_kind(kind):
    def drop(first, second):
        for item in first["checkpoints"] + second["checkpoints"]:
            item["rows"].pop(kind, None)
    return drop


def _zero(key):
    def zero(first, second):
        for item in first["checkpoints"] + second["checkpoints"]:
            item[key] = 0
    return zero


def test_other_policies_need_no_hot_rows(capsys):
    first, second = _jobs()
    _drop_kind("differential")(first, second)
    assert _load("movielens_report").show(first, second, policy="check_n_run") == 0
    assert "policy check_n_run" in capsys.readouterr().out
    second["differences"].append("user/rows: 1 of 4 values differ")
    assert _load("movielens_report").show(first, second, policy="check_n_run") == 1


@pytest.mark.parametrize(("spoil", "complaint"), [
    (lambda first, second: first.pop("failed"), "death"),
    (lambda first, second: second["differences"].append("user/rows: 1 of 4 values differ"), "bit for bit"),
    (lambda first, second: second.update(step=100), "durable"),
    (_drop_kind("increment"), "increments"), (_drop_kind("differential"), "differentials"),
    (_zero("rows_by_drain"), "in the background"), (_zero("rows_by_update"), "by lookups or updates")])
def test_verdict_needs_everything(spoil, complaint, capsys):
    report = _load("movielens_report")
    assert report.show(*_jobs()) == 0
    assert "NO " not in capsys.readouterr().out
    first, second = _jobs()
    spoil(first, second)
    assert report.show(first, second) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NO ")]
    assert len(wrong) == 1 and complaint in wrong[0]
