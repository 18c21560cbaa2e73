"""Cells, the store of their results, and going on where a run was interrupted."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.side_by_side import __main__ as main
from benchmarks.side_by_side import cells, restoring, results, runner, systems, training, watching
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


def test_what_was_measured_for_too_short_or_by_a_laxer_rule_is_measured_again(tmp_path):
    results.Results(str(tmp_path), 0.5, seconds=10).put(Cell("a"), result())
    restored = Cell("a", kind="restore", checkpoints=1, restore_ps=2)
    results.Results(str(tmp_path), 0.06, seconds=10).put(restored, result())
    for most, seconds, there in ((0.5, 10, True), (0.6, 5, True), (0.5, 20, False), (0.4, 10, False)):
        assert results.Results(str(tmp_path), most, seconds).has(Cell("a")) == there
    assert results.Results(str(tmp_path), 0.06, seconds=60).has(restored)
    # Of before that was noted.
    (tmp_path / f"{Cell('b').key}.json").write_text('{"cell": {}, "most_of_others": 0.06}')
    assert not results.Results(str(tmp_path)).has(Cell("b"))
    assert len(results.Results(str(tmp_path)).all()) == 2


def planned(*arguments):
    return runner.planned(main.arguments(["run", *arguments]))


def test_without_arguments_a_star_is_planned():
    found = planned("--rounds", "2")
    own = [cell for cell in found if cell.system == "adaptcp" and cell.round == 0]
    core = Cell("adaptcp")
    assert own == [core, *(dataclasses.replace(core, **other) for other in (
        {"interval": 300}, {"interval": 1000}, {"interval": 3000}, {"interval": 10_000}, {"rows": 1_000_000},
        {"rows": 20_000_000}, {"regime": "equal"}, {"regime": "none"}, {"pending": "skip"}, {"ps": 1}))]
    # All rounds of a group before the next.
    numbers = [(cell.conditions == Cell("any"), cell.round) for cell in found]
    assert list(dict.fromkeys(numbers))[:3] == [(True, 0), (True, 1), (False, 0)]
    intervals = [cell.round for cell in found if cell.interval > 100]
    assert intervals == sorted(intervals) and {cell.interval for cell in found[-10:]} == {100}
    ablations = {cell.conditions for cell in found if systems.SYSTEMS[cell.system].is_ablation}
    assert ablations == {Cell("any")} and not any(cell.system == "adaptcp_quantized" for cell in found)


def test_what_is_given_is_planned_as_a_product():
    found = planned("--rows", "1000", "2000", "--pending", "skip", "--systems", "adaptcp_no_lookup", "--rounds", "1")
    assert found == [Cell("adaptcp_no_lookup", rows=rows, pending="skip") for rows in (1000, 2000)]
    assert {cell.conditions for cell in planned("--core")} == {Cell("any")}
    restores = planned("--restores", "--rounds", "1")
    assert {(cell.regime, cell.restore_ps, cell.rows) for cell in restores} == {
        (regime, ps, 5_000_000) for regime in ("published", "local") for ps in (2, 1)}
    assert {cell.system for cell in restores} == set(runner.RESTORED)


def test_who_saves_nothing_trains_a_thousand_steps_in_a_piece():
    for name, interval, seconds, piece in (
            ("none", 100, 60, 1000), ("none_again", 100, 5, 100), ("tracking", 3000, 60, 3000), ("none", 10, 0.1, 10),
            ("adaptcp", 100, 60, 100)):
        assert training._piece(Cell(name, interval=interval), systems.SYSTEMS[name], seconds) == piece


def test_check_n_run_uploads_one_object_at_a_time_or_as_many_as_the_engine_does(monkeypatch):
    monkeypatch.setattr(systems, "Ours", lambda *unused, **given: given)
    made = {name: systems.SYSTEMS[name].make(None, "", "wait") for name in systems.SYSTEMS if "check_n_run" in name}
    assert all(given["engine"]["capture_memory_bytes"] == 2 << 30 for given in made.values())
    assert {name: given["engine"].get("upload_threads") for name, given in made.items()} == {
        "check_n_run": 1, "check_n_run_parallel": None, "check_n_run_quantized": 1}


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_nothing_is_left_of_a_cell_that_hangs(tmp_path, monkeypatch, error):
    said = tmp_path / "said"
    # A child of its own, as the one that makes checkpoints.
    code = (f"import os, subprocess, sys, time; os.mkdir({str(tmp_path)!r} + f'/partial-{{os.getsid(0)}}');"
            "from pathlib import Path; child = subprocess.Popen(['sleep', '1000']);"
            f"Path({str(said)!r} + '.new').write_text(str(child.pid));"
            f"os.rename({str(said)!r} + '.new', {str(said)!r}); time.sleep(1000)")
    if error is not None:
        def interrupted(*unused):
            while not said.exists():
                time.sleep(0.01)
            raise error
        wait = subprocess.Popen.wait
        monkeypatch.setattr(runner.subprocess.Popen, "wait", lambda *given, **named: (
            interrupted() if len(given) > 1 else wait(*given, **named)))
    run = lambda: runner._in_a_session([sys.executable, "-c", code], subprocess.DEVNULL,  # noqa: E731
                                       lambda leader: tmp_path / f"partial-{leader}", timeout=3)
    if error is None:
        assert run() == "none after 3 s"
    else:
        with pytest.raises(error):
            run()
    stat = Path(f"/proc/{said.read_text()}/stat")
    deadline = time.monotonic() + 5
    while stat.exists() and stat.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not stat.exists() or stat.read_text().split()[2] == "Z"
    assert not list(tmp_path.glob("partial-*"))


def test_a_restore_with_other_rows_does_not_count():
    restoring.check_rows("a", [10_000, 10_010], [10_000, 10_001])
    for rows in ([10_011, 10_000], [9_989, 10_000]):
        with pytest.raises(RuntimeError, match="as at the last checkpoint"):
            restoring.check_rows("a", rows, [10_000, 10_000])


def test_the_code_of_a_measurement_is_that_which_measures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tfadaptcp/a.py", "ops/b.cc", "benchmarks/side_by_side/job.py", "benchmarks/side_by_side/tables.py",
                 "docs/c.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    for command in ("init -q", "add -A"):
        subprocess.run(["git", *command.split()], check=True, stdout=subprocess.DEVNULL)
    before = watching.code()
    for name, changes in (("docs/c.md", False), ("benchmarks/side_by_side/tables.py", False), ("ops/b.cc", True),
                          ("tfadaptcp/a.py", True), ("benchmarks/side_by_side/job.py", True)):
        (tmp_path / name).write_text("two")
        assert (watching.code() != before) == changes
        before = watching.code()


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
