"""The benchmark of quantised restores: what it compares is the same run, but for the restores."""

import numpy as np
import pytest

import tfadaptcp
from benchmarks import learning_jobs, quantized_restores


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jobs")
    job = learning_jobs.clicks(steps=12, rows=1500, batch=64)
    manager = tfadaptcp.CheckpointManager(job.model, directory / "start", "full")
    manager.save()
    manager.wait()
    return job, quantized_restores.step_of(job), str(directory / "start"), directory


def test_restores_of_raw_checkpoints_change_nothing(case):
    job, step, start, directory = case
    plain = quantized_restores.run(job, step, start, None, 0, None)
    restored = quantized_restores.run(job, step, start, str(directory / "raw"), 3, None)
    assert (restored.trained, restored.held_out) == (plain.trained, plain.held_out)
    assert plain.bytes == 0 and restored.bytes > 1500 * 3 * 16 * 4
    manager = tfadaptcp.CheckpointManager(job.model, directory / "raw")
    assert [info.step for info in manager.checkpoints][-1] == 9


def test_there_is_something_to_learn(case):
    job = case[0]
    labels = job.held_out["labels"]
    assert 0.1 < labels.mean() < 0.45 and len(labels) == 40_000
    assert job.train["ids"].shape == (12 * 64, 26)
    # One key space; of the large columns most values are rare.
    assert len(set(map(tuple, job.held_out["ids"][:, :2]))) > 10
    counts = np.unique(job.held_out["ids"][:, -1], return_counts=True)[1]
    assert len(counts) > 100 and counts.max() > 10 * np.median(counts)
