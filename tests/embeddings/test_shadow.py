"""TFRA under ``ParameterServerStrategy`` with two workers: nothing is mixed up between them.

The oracle is arithmetic: at learning rate 0 every step writes back what it read, so each row must
keep the known value it was filled with, whatever the workers do. On stock TFRA these jobs fail
(``TFADAPTCP_TEST_NO_SHADOW_FIX=1``).
"""

import math

import numpy as np
import pytest

from tests.support.jobs import run_job

_JOBS = "tests.support.pss_jobs"


@pytest.mark.timeout(240)
def test_rows_stay_at_learning_rate_zero():
    found = run_job(_JOBS, "rows_stay_at_learning_rate_zero")
    assert found == {
        "wrong": [0, 0],
        "wrong_after_evaluation": [0, 0],
        "sizes": [4000, 4000],
        "steps": 300,
        "evaluated": True,
        "predicted": [512, 1],
    }


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_adam_learns_from_batches_of_varying_size():
    for losses in run_job(_JOBS, "adam_by_fit_with_varying_batches"):
        assert all(math.isfinite(loss) for loss in losses)
        assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_custom_loop_with_loops_and_nested_functions():
    found = run_job(_JOBS, "custom_loop_with_loops_and_nested_functions")
    assert found == {"wrong": 0, "size": 4000, "steps": 200, "finite": True}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_several_steps_per_execution():
    found = run_job(_JOBS, "fit_several_steps_per_execution")
    assert found == {"wrong": 0, "steps": 100}


@pytest.mark.timeout(300)
def test_restarted_worker_takes_steps_again():
    found = run_job(_JOBS, "restarted_worker_takes_steps_again", timeout=240)
    assert "error" not in found, found
    assert found["steps_after_restart"] >= 20
    assert found["wrong"] == 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_user_made_shadows():
    found = run_job(_JOBS, "user_made_shadows")
    refused = found.pop("refused")
    assert "would be shared by all workers" in refused and "'shared:0'" in refused
    assert found == {
        "all_right": True,
        "wrong": 0,
        "eager_on_coordinator_is_stock": True,
        "called_on_coordinator": True,
    }


@pytest.mark.timeout(300)
def test_saved_model_loads_on_one_host_without_tfadaptcp(tmp_path):
    path = str(tmp_path / "model")
    exported = run_job(_JOBS, "export_after_training", env={"EXPORT_PATH": path})
    assert exported["captures"] > 0
    found = run_job("tests.support.stock_jobs", "load_exported", env={"EXPORT_PATH": path}, fresh=True)
    assert found["tfadaptcp_loaded"] is False
    np.testing.assert_allclose(found["out"], exported["out"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_parameter_servers_nothing_changes():
    patched = run_job("tests.support.stock_jobs", "train_patched", fresh=True)
    stock = run_job("tests.support.stock_jobs", "train_stock", fresh=True)
    assert patched.pop("patched") and not stock.pop("patched")
    assert patched == stock
    assert patched["call_time_captures"] == 0
