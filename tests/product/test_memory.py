"""What a checkpoint costs in memory, measured in processes of their own."""

import pytest

from tests.support.jobs import run_job

JOBS = "tests.support.memory_jobs"
MB = 1 << 20
# Blocks that are being encoded, buffers of files, lists of keys, threads, and what the allocator keeps.
SLACK = 32 * MB
SECOND_ENCODER = 8 * MB  # and reader: their blocks and lists


def test_tables(tmp_path):
    """(recommenders-addons#371, PR#257; tensorflow#54105; orbax#1640)"""
    # One arena: with one for each thread the allocator keeps more, by chance, than was ever asked for at a time.
    found = run_job(JOBS, "tables", env={"CHECKPOINTS": str(tmp_path), "MALLOC_ARENA_MAX": "1"})
    assert found["payload"] > 3 * (found["buffers"] + SLACK + SECOND_ENCODER), "or the bounds mean nothing"
    assert found["first"] <= found["buffers"] + SLACK + SECOND_ENCODER, found
    assert found["restore"] <= found["segments"] + SLACK, found  # one is read while one is applied
    assert found["after_50"] <= 1.05 * found["after_5"], found
    assert found["by_update"] > 0


@pytest.mark.parametrize("job", ["dense_of_300_mb", pytest.param("dense_of_3_gb", marks=pytest.mark.slow)])
def test_dense_variables(job, tmp_path):
    """Larger than a message of a protocol buffer, and than 32 bits can count."""
    found = run_job(JOBS, job, env={"CHECKPOINTS": str(tmp_path)})
    assert found["wrong"] == []
    assert sum(found["files"]) > 2 * found["bytes"] and max(found["files"]) <= 9 * MB
    # Unchanged values are not copied.
    assert found["still"] <= SLACK, found
    assert found["training"] <= found["bytes"] + SLACK, found
    # The values read, beside those that are replaced; measured: 3 % above.
    assert found["restore"] <= 1.05 * found["bytes"] + SLACK, found
