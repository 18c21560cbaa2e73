"""Cells, the store of their results, and going on where a run was interrupted."""

import pytest

from benchmarks.side_by_side import cells, results, runner, watching
from benchmarks.side_by_side.cells import Cell


def result(speed: float = 40.0, others: float = 0.0) -> dict:
    return {"steps_per_second": speed, "others_share": others}


def test_rounds_are_interleaved_and_their_order_turns():
    planned = cells.plan(["a", "b", "c"], [Cell("any")], rounds=4)
    assert [(cell.round, cell.system) for cell in planned] == [
        (0, "a"), (0, "b"), (0, "c"), (1, "b"), (1, "c"), (1, "a"), (2, "c"), (2, "a"), (2, "b"),
        (3, "a"), (3, "b"), (3, "c")]
    assert len({cell.key for cell in planned}) == 12


def test_what_is_there_is_not_measured_again(tmp_path):
    planned = cells.plan(["a", "b"], [Cell("any")], rounds=2)
    measured = []

    def measure(cell):
        measured.append(cell)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return result()

    with pytest.raises(KeyboardInterrupt):
        runner.run(results.Results(str(tmp_path)), planned, measure=measure)
    assert runner.run(results.Results(str(tmp_path)), planned, measure=measure) == 0
    assert measured == [*planned[:3], *planned[2:]]
    assert runner.run(results.Results(str(tmp_path)), planned, measure=None) == 0


def test_what_fails_or_is_rejected_is_tried_once_more_and_stays_missing(tmp_path):
    planned = cells.plan(["good", "fails", "disturbed", "fails_once"], [Cell("any")], rounds=1)
    tried = []

    def measure(cell):
        tried.append(cell.system)
        if cell.system == "fails" or (cell.system == "fails_once" and tried.count("fails_once") == 1):
            raise RuntimeError("it broke")
        return result(others=0.5 if cell.system == "disturbed" else 0.01)

    store = results.Results(str(tmp_path))
    assert runner.run(store, planned, measure=measure) == 2
    assert tried == ["good", "fails", "fails", "disturbed", "disturbed", "fails_once", "fails_once"]
    assert [found["cell"]["system"] for found in store.all()] == ["fails_once", "good"]
    aside = store.aside()
    assert sorted((found["cell"]["system"], found.get("rejected") or found.get("error")) for found in aside) == [
        ("disturbed", "others took 50.0% of the machine"), ("disturbed", "others took 50.0% of the machine"),
        ("fails", "it broke"), ("fails", "it broke"), ("fails_once", "it broke")]


def test_a_result_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    store = results.Results(str(tmp_path))
    monkeypatch.setattr(results.os, "replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.put(Cell("a"), result())
    assert not store.has(Cell("a")) and store.all() == []


def test_no_cell_is_begun_when_the_time_is_over(tmp_path):
    planned = cells.plan(["a", "b"], [Cell("any")], rounds=1)
    assert runner.run(results.Results(str(tmp_path)), planned, minutes=-1, measure=lambda cell: result()) == 2


def test_unknown_conditions_are_refused():
    with pytest.raises(ValueError, match="regime: Received: 'fast'"):
        Cell("a", regime="fast")


def test_a_job_that_has_not_the_memory_does_not_begin():
    with pytest.raises(MemoryError, match=r"GB of memory available. Expected: 1000000.0 GB"):
        watching.require_memory(1e15)
    watching.require_memory(1e6)
