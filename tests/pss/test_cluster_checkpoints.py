"""Checkpoints of real clusters: every cut restores, on as many parameter servers or on others, equal to its copy."""

import os
from pathlib import Path

import pytest

from tests.support.jobs import run_job

JOBS = "tests.support.cluster_jobs"
pytestmark = pytest.mark.timeout(900)


def run(job: str, checkpoints, oracle: Path, timeout: float = 280):
    oracle.mkdir(parents=True, exist_ok=True)
    return run_job(JOBS, job, timeout, {"CHECKPOINTS": str(checkpoints), "ORACLE": str(oracle)})


def test_every_cut_restores_on_any_number_of_ps(tmp_path):
    """Directories written by 1, 2 and 3 parameter servers under three policies, a copy of each cut, all into each other."""
    infos = {n: run(f"train_on_{n}_ps", tmp_path / f"ps{n}", tmp_path / "oracle" / f"ps{n}") for n in (1, 2, 3)}
    for heads in infos.values():
        assert [head["step"] for head in heads] == [40, 80, 120, 160, 200, 240]
        assert [(head["epoch"], head["batch"]) for head in heads] == [
            (0, 40), (0, 80), (1, 0), (1, 40), (1, 80), (2, 0)]
    assert [head["base"] for head in infos[2]] == [1, 1, 1, 1, 1, 5], "the last goes by a base read beside training"
    kinds = {kind for head in infos[2] for kind, rows in head["rows"].items() if any(rows.values())}
    assert kinds == {"base", "increment", "differential"}
    assert all("differential" not in head["rows"] for head in infos[1])
    assert all("increment" not in head["rows"] for head in infos[3])
    directories = ":".join(str(tmp_path / f"ps{n}") for n in infos)
    for num_ps in infos:
        wrong = run(f"restore_on_{num_ps}_ps", directories, tmp_path / "oracle")
        assert len(wrong) == sum(len(heads) for heads in infos.values())
        assert {name: found for name, found in wrong.items() if found} == {}, f"on {num_ps} ps"


def test_one_two_three_and_five_ps_into_each_other(tmp_path):
    """All 16 pairs, each pair on some of the servers of one cluster."""
    found = run_job("tests.support.shard_count_jobs", "every_number_into_every_other", 200, {"CHECKPOINTS": str(tmp_path)})
    assert len(found) == 16 and not any(found.values()), found


def test_a_lazy_model_is_restored_before_its_first_step(tmp_path):
    trained_lazily = run("train_a_lazy_model", tmp_path / "checkpoints", tmp_path / "oracle")
    assert trained_lazily["built"] is False and trained_lazily["restored"] is False
    found = run("go_on_with_a_lazy_model", tmp_path / "checkpoints", tmp_path / "oracle")
    assert found == {"built": False, "restored": trained_lazily["name"], "wrong": [], "learning_rates": [0.0] * 3,
                     "scaled_by": [0.0, 1.0, 2.0, 3.0],
                     "steps": 3}


@pytest.mark.slow
def test_new_style_adam(tmp_path):
    heads = run("train_with_new_style_adam", tmp_path / "new", tmp_path / "oracle" / "new")
    wrong = run("restore_new_style_adam", tmp_path / "new", tmp_path / "oracle")
    assert len(wrong) == len(heads) == 6
    assert {name: found for name, found in wrong.items() if found} == {}


def test_accumulated_updates(tmp_path):
    heads = run("train_with_accumulated_updates", tmp_path / "sums", tmp_path / "oracle" / "sums")
    wrong = run("restore_accumulated_updates", tmp_path / "sums", tmp_path / "oracle")
    assert len(wrong) == len(heads) == 6
    assert {name: found for name, found in wrong.items() if found} == {}


def test_custom_coordinator_loop(tmp_path):
    found = run("custom_loop", tmp_path / "checkpoints", tmp_path / "oracle")
    assert found["steps"] == [60, 150, 240, 330]
    assert len(found["wrong"]) == 5 and not any(found["wrong"].values())
    assert "jit_compile" in found["refused"]
    # Each ps has buffered in a directory of its own, and nothing stays there.
    assert found["left"] == [["lock"], ["lock"]] and found["buffered_seconds"] > 0


def test_a_restarted_ps_blocks_saves(tmp_path):
    found = run("restarted_ps_blocks_saves", tmp_path / "checkpoints", tmp_path / "oracle")
    save, *restores = found["errors"]
    assert save.startswith("SaveFailedError: ") and "ps 1 (/job:ps/replica:0/task:1/" in save, found
    assert [error.split(":")[0] for error in restores] == ["RestoreFailedError"] * 2, found
    assert all("ps 1 (/job:ps/replica:0/task:1/" in error for error in restores), found
    assert all("restart the coordinator" in error for error in restores), found
    assert found["heads"] == [found["before"]]


def test_servers_without_tfadaptcp_are_named(tmp_path):
    manager, _, left = run_job(JOBS, "servers_without_tfadaptcp", 200, {"CHECKPOINTS": str(tmp_path)}, fresh=True)
    assert manager.startswith("ServerMismatchError: ") and "without tfadaptcp" in manager and "/job:ps" in manager, manager
    assert left == []


def test_cuts_wait_for_steps_unless_they_are_frequent(tmp_path):
    found = run("cuts_that_wait_and_cuts_that_do_not", tmp_path / "checkpoints", tmp_path / "oracle")
    # The first knows of no interval. The last of a fit has nothing to wait for.
    assert found["frequent"][0] == "step" and "row" in found["frequent"][1:], found
    assert found["last"] == "step" and found["wrong"] == []
    # One short interval, at the end of a fit, does not make the next one's cuts inconsistent.
    assert found["rare"] == [["step", 155], ["step", 255], ["step", 265]], found
    assert found["skipped"] == [None, 1] and found["beside"] == "row" and found["restore"].startswith("DeadlineError: Scheduled steps hang"), found
    assert found["unchanged"] and found["after"] == "step"
    assert found["held"] == [True, True, False], "fit waits, and says so, until steps end"


def test_a_second_coordinator_inherits_no_rows_and_restores(tmp_path):
    found = run("coordinators_one_after_another", tmp_path / "checkpoints", tmp_path / "oracle")
    assert found["sizes"] == [0, 0]
    assert found["wrong"] == []
    assert found["generation"] == 2
    assert found["step"] == found["restored"] + 40


def test_a_ps_is_killed_and_all_is_restored_on_three(tmp_path):
    found = run("killed_ps_then_restore", tmp_path / "checkpoints", tmp_path / "oracle" / "checkpoints")
    assert found["error"]
    assert len(os.listdir(tmp_path / "oracle" / "checkpoints")) >= 3
    wrong = run("restore_on_3_ps", tmp_path / "checkpoints", tmp_path / "oracle")
    assert wrong and not any(wrong.values())
