"""The product on a real HDFS, in one process and in a cluster; every checkpoint is compared with its full copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.hdfs import HdfsServer
from tests.support.jobs import run_job

LIFE = "tests.support.remote_life"
pytestmark = pytest.mark.timeout(400)


def test_save_restore_list_verify_read(backend):
    hdfs, directory = backend("hdfs"), backend("hdfs").new_directory()
    hdfs.child.call(LIFE, "begin", directory)
    for step in range(1, 6):
        outcome = hdfs.child.call(LIFE, "checkpoint", 40 * step)
        assert outcome["committed"] and outcome["error"] == "NoneType", outcome
    assert hdfs.child.call(LIFE, "check_all") == [3, 4, 5], "three are kept"
    hdfs.child.call(LIFE, "check_commands")


def test_a_cluster(hdfs: HdfsServer, backend, tmp_path: Path):
    """Two parameter servers write; each gets what the store needs in its environment from the process that starts it."""
    directory = backend("hdfs").new_directory()
    found = run_job("tests.support.cluster_jobs", "train_and_restore", 280,
                    {**hdfs.served.env, "CHECKPOINTS": directory, "ORACLE": str(tmp_path)})
    assert found["steps"] == [20, 40, 60] and len(found["wrong"]) == 3
    assert not any(found["wrong"].values()), found
