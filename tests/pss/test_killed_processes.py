"""Coordinators and parameter servers of a real cluster, killed at file operations; see tests/support/crash_jobs.py.

The servers outlive the coordinators. Each life checks what the one before left: the acknowledged head equals its full copy.
"""

import signal

import pytest

from tests.support import forks
from tests.support.jobs import run_job
from tests.support.lives import Lives
from tfadaptcp.testing import LocalCluster, _server_process

pytestmark = pytest.mark.timeout(900)


def run(monkeypatch, tmp_path, chief_points, ps_points):
    """Returns how many coordinators and how many parameter servers were killed."""
    monkeypatch.setattr(_server_process, "subprocess", forks.SUBPROCESS)
    lives = Lives(tmp_path / "lives")
    killed = {"chief": 0, "ps": 0}
    cluster = LocalCluster(1, 2)
    try:
        def live(plan, early=False, may_fail=""):
            return lives.live(plan, early, cluster.cluster_spec, may_fail)

        for at, early in chief_points:
            killed["chief"] += live(f"kill@{at}", early)["signal"] == signal.SIGKILL
        for i, at in enumerate(ps_points):
            victim = i % 2
            # Its operations count from when it starts: writing, and reading what the life before left.
            cluster.kill("ps", victim)
            cluster._env["ADAPTCP_STORE_FAULTS"] = f"kill@{at}"
            cluster.restart("ps", victim)
            live("", may_fail="Error")
            del cluster._env["ADAPTCP_STORE_FAULTS"]
            if not cluster._servers["ps", victim].is_running():
                killed["ps"] += 1
                cluster.restart("ps", victim)
        assert live("")["signal"] == 0
    finally:
        cluster.stop()
    return killed


def test_killed_at_a_few_operations(monkeypatch, tmp_path):
    chief = [(5, True), (19, True), (2, False), (9, False), (15, False), (24, False), (31, False)]
    assert run(monkeypatch, tmp_path, chief, [2, 9, 16, 27, 44]) == {"chief": 7, "ps": 5}


def test_workers_are_killed_and_training_goes_on(tmp_path):
    (tmp_path / "oracle").mkdir()
    found = run_job("tests.support.cluster_jobs", "killed_workers_go_on", 280,
                    {"CHECKPOINTS": str(tmp_path / "checkpoints"), "ORACLE": str(tmp_path / "oracle")})
    # A step that died with its worker is made again, so the count may be ahead of the batches.
    assert len(found["steps"]) == 4 and all(step >= 60 * (i + 1) for i, step in enumerate(found["steps"]))
    assert len(found["wrong"]) == 4 and not any(found["wrong"].values()), found["wrong"]


def test_a_parameter_server_that_stands_still_is_named(tmp_path):
    """(orbax#392, pytorch#157781)"""
    (tmp_path / "oracle").mkdir()
    found = run_job("tests.support.cluster_jobs", "ps_that_hangs", 280,
                    {"CHECKPOINTS": str(tmp_path / "checkpoints"), "ORACLE": str(tmp_path / "oracle")})
    assert found["error"].startswith("SaveFailedError") and "No answer after 15 s from ps 1 (/job:ps/" in found["error"]
    assert len(found["wrong"]) == 2 and not any(found["wrong"].values()), found["wrong"]
    assert found["seconds"] < 29, "training waited twice for a server that does not answer"


@pytest.mark.slow
def test_killed_at_many_operations(monkeypatch, tmp_path):
    chief = [(at, True) for at in range(3, 33, 3)] + [(at, False) for at in range(1, 61, 5)]
    killed = run(monkeypatch, tmp_path, chief, range(1, 73, 4))
    assert killed["chief"] >= 20 and killed["ps"] >= 16, killed
