"""Ways of training under parameter servers."""

import pytest

from tests.support.jobs import run_job

JOBS = "tests.support.cluster_training_jobs"


def run(job, tmp_path, timeout=280, **environment):
    (tmp_path / "oracle").mkdir(exist_ok=True)
    return run_job(JOBS, job, timeout,
                   {"CHECKPOINTS": str(tmp_path / "checkpoints"), "ORACLE": str(tmp_path / "oracle"), **environment})


def test_several_steps_per_execution_and_data_that_ends(tmp_path):
    found = run("several_steps_per_execution_and_data_that_ends", tmp_path)
    assert found["places"] == [[40, 0, 40], [80, 1, 0]]
    assert found["rows"][0] == found["rows"][1], "lookups changed rows"
    assert found["ended"] and found["last"] == [2, 0]
    assert len(found["wrong"]) == found["heads"] == 4
    assert {name: wrong for name, wrong in found["wrong"].items() if wrong} == {}
    assert found["logs"] >= 2, "a file for each fit"


def test_fit_does_not_run_ahead_of_its_checkpoints(tmp_path):
    found = run("fit_runs_ahead", tmp_path)
    assert found["step"] == [["step", done, done] for done in (50, 100, 150, 200, 250)]
    # A batch that the position counts has been trained on, and the newest ones are not far behind.
    assert "row" in [consistency for consistency, _, _ in found["row"]], found
    assert all(0 <= step - batch <= 15 for _, step, batch in found["row"]), found
    assert found["row"][-1][1] > 220 and len(found["row"]) > 5, found
    # One last checkpoint: when the epoch ends no step is in flight.
    assert found["step, at the end"] == found["row, at the end"] == [[260, 0]], found


@pytest.mark.parametrize("job, size", [
    ("dense_of_60_mb", 60), pytest.param("dense_of_3_gb", 3072, marks=pytest.mark.slow)])
def test_large_dense_variables(job, size, tmp_path):
    found = run(job, tmp_path)
    assert found["wrong"] == [] and found["hosts"] == 2
    assert found["bytes"] > size << 20


def test_partitioned_dense_variables(tmp_path):
    """Parts on several servers, of a strategy that has a partitioner, with their slots. (tensorflow#6551)"""
    written = run("partitioned_dense_variables", tmp_path, PARTS="2")
    for name in ("wide/embeddings", "Adam/wide/embeddings/m", "Adam/wide/embeddings/v"):
        assert written[name] == [2, 2], f"{name} is not in two parts on two servers: {written}"
    same = run("partitioned_dense_variables", tmp_path, PARTS="2")
    assert same["wrong"] == [] and same["bytes_read"] == same["of"], "each reads what it has written, and no more"
    other = run("partitioned_dense_variables", tmp_path, PARTS="3")
    assert other["wrong"] == [] and other["parts"]["wide/embeddings"] == 3
    assert other["bytes_read"] > other["of"], "all that holds a part of them reads them all"
