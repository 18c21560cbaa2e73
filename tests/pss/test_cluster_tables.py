"""Restrict policies and cleared tables on parameter servers."""

import pytest

from tests.support.jobs import run_job


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_restricted_and_cleared():
    found = run_job("tests.support.table_jobs", "restricted_and_cleared")
    assert found["differences"] == [None] * 3
    restricted, cleared, filled = found["rows"]
    assert restricted == dict.fromkeys(restricted, 500) and len(restricted) == 4
    assert cleared == {**restricted, "table-parameter": 0} and filled["table-parameter"] == 100
    # Every ps refuses a delta after the clear: the checkpoint is a base at once.
    assert found["written"][1] == ["base"] and "base" in found["written"][2] and len(found["written"][2]) == 2
