"""Lazily built models are complete before their first step, and no step runs before that."""

import pytest

from tests.support.jobs import run_job

_JOBS = "tests.support.lazy_jobs"
_BUILT_AND_UNTOUCHED = {
    "iterations": 0,
    "rows": 0,
    "slot_rows": [0, 0],  # both slot tables of Adam are there
    "dense": [[32, 1], [1]],
    "eager": True,
    "calls": 1,
    "steps": 40,  # 2 x 20, of which the first is the one that was traced
    "wrong": 0,
    "size": 4000,
}


@pytest.mark.timeout(240)
def test_default_strategy():
    found = run_job(_JOBS, "default_strategy")
    assert found.pop("traces") == found.pop("stock_traces")
    assert found == _BUILT_AND_UNTOUCHED


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("job", ["default_strategy_several_steps_per_execution", "run_eagerly"])
def test_other_ways_to_run(job):
    found = run_job(_JOBS, job)
    found.pop("traces")
    assert found == _BUILT_AND_UNTOUCHED


@pytest.mark.timeout(300)
def test_parameter_servers():
    for found in run_job(_JOBS, "parameter_servers", timeout=240):
        found.pop("traces")
        assert found == _BUILT_AND_UNTOUCHED


@pytest.mark.timeout(240)
def test_failures():
    found = run_job(_JOBS, "failures")
    assert found["ValueError"] == "ValueError: broken"
    # Keras would take this one for the end of the data and train on.
    assert found["OutOfRangeError"].startswith("RuntimeError: Failed before the first step")
    assert found["steps"] == 0
    assert found["calls after a fit without steps"] == 0
    assert found["calls of a fit that ended before its first step, and of the one after it"] == [0, 1]
    assert "can't be traced" in found["own function"]
