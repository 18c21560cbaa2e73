"""A store that hangs: nothing waits for ever, errors say for whom they waited, and what arrives late does no harm."""

import contextlib
import dataclasses
import re
import threading
import time

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import fault_lives, faults, oracle, rows
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.engine import Engine

pytestmark = pytest.mark.usefixtures("no_plan_stays")


# Threads that were there before: tests of other files have left some waiting.
_others = set()


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    _others.update(threading.enumerate())
    folder = tmp_path_factory.mktemp("hung")
    made = fault_lives.Life(str(folder / "checkpoints"), str(folder / "trace"))
    for _ in range(2):
        made.checkpoint()
    return made


@contextlib.contextmanager
def impatient(life):
    """Only what is meant to hang has a short time-out: a loaded machine is slow."""
    options = life.options
    life.options = dataclasses.replace(options, timeout_seconds=4.0)
    manager = life.manager
    manager._options, manager._store = life.options, Store(deadline_seconds=4.0)
    yield
    life.options = options
    for patient in (manager, life.manager):
        patient._options, patient._store = options, Store()


def hang(life, match, at, program):
    """Runs a program whose `at`-th operation on a path with `match` hangs; returns what it raised."""
    before = time.monotonic()
    with faults.hanging(f"match={match};hang@{at}"), impatient(life):
        with pytest.raises(fault_lives.EXPECTED) as raised:
            program()
        assert time.monotonic() - before < 60, "no wait without an end"
        life.check_untouched()
    return str(raised.value)


@pytest.mark.parametrize("match, at", [("dense-ps0", 1), ("dense-ps0", 3), ("increment-ps0", 2)])
def test_segments(life, match, at):
    error = hang(life, match, at, life.checkpoint)
    assert "ps 0" in error and "No answer" in error
    settle()
    life.check_goes_on()


def test_a_cut_while_the_one_before_has_not_ended(life):
    """It says which one, also when nothing is pending any more: that was "checkpoint 0"."""
    life.checkpoint()  # the first one after a restore looks at objects that are there
    engine, raised = life.manager.engine, []

    def cut():
        with pytest.raises(tf.errors.FailedPreconditionError) as refused:
            engine.cut({"root": "elsewhere", "generation": 1, "sequence": 1000})
        return str(refused.value)

    def checkpoint():
        try:
            life.checkpoint()
        except Exception as error:
            raised.append(error)

    with faults.hanging("match=increment-ps0;hang@2"):
        saving = threading.Thread(target=checkpoint)
        saving.start()
        while faults.count() < 2:
            assert saving.is_alive(), raised
            time.sleep(0.01)
        number = life.manager._pending.draft.sequence
        assert f"checkpoint {number} is still being saved" in cut()
        assert life.manager.stats()["pending_seconds"] > 0
        giving_up = threading.Thread(target=engine.resolve, args=(number, False))
        giving_up.start()  # and it waits until the save has left behind what hangs
        while "is still being saved" in (refused := cut()):
            pass
        assert f"checkpoint {number} was given up, and its save has not ended" in refused
        giving_up.join()
        saving.join()
    assert isinstance(raised[0], fault_lives.EXPECTED), raised
    settle()
    life.check_goes_on()


@pytest.mark.parametrize("match, at, names", [("/claims", 1, "list"), (".json", 1, "manifest"), (".json", 4, "manifest"),
                                              ("/data", 1, "")])
def test_claims_manifests_and_retention(life, match, at, names):
    error = hang(life, match, at, life.checkpoint)
    assert names in error
    settle()
    life.check_goes_on()


def test_a_manifest_that_arrives_after_the_next_checkpoint(life):
    """It is whole, and older than the newest; nothing that it names has been deleted meanwhile."""
    life.checkpoint()  # the first one after a restore looks at the manifest that was restored
    faults.set_plan("match=.json;hang@1")
    with impatient(life), pytest.raises(tfadaptcp.AdaptCPError, match="may yet be written"):
        life.checkpoint()
    late = life.step
    # The fault strikes once: the others go through while it hangs.
    life.checkpoint()
    life.checkpoint()
    newest = life.step
    faults.set_plan("")
    settle()
    heads, damaged = commit.list_heads(Store(), life.directory)
    assert [head.step for head in heads][-1] == newest and not damaged
    if late in [head.step for head in heads]:
        report = life.manager.restore([head.name for head in heads if head.step == late][0])
        oracle.check(life.copies[late], life.model, report.checkpoint)
    life.check_restore()
    life.check_goes_on()


def test_a_start_and_a_claim_that_arrives_late(life):
    assert re.search("start-up probe.*No answer.*could not write", hang(life, "probe-", 1, life.start))
    faults.set_plan("match=/claims/;hang@1")
    with impatient(life), pytest.raises(tfadaptcp.AdaptCPError, match="No answer after .*claims"):
        life.start()
    manager = life.manager
    life.checkpoint()
    faults.set_plan("")
    settle()
    life.checkpoint()  # its own ghost doesn't fence it off
    assert life.manager is manager


def test_a_listing(life):
    with faults.hanging("match=/manifests;hang@1"), impatient(life):
        with pytest.raises(tfadaptcp.AdaptCPError, match="No answer after .* list .*manifests"):
            life.manager.checkpoints
    settle()
    life.check_goes_on()


def settle():
    """Waits until what hung has ended."""
    deadline = time.monotonic() + 30
    while any(thread.name.startswith("tfadaptcp-") for thread in set(threading.enumerate()) - _others):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def test_a_checkpoint_has_more_time_for_what_it_has_to_write(tmp_path, monkeypatch):
    """A bound that knows nothing of its size would give a large base up, and each one after it."""
    told = []

    def save(self, request, copies, timeout_seconds):
        told.append(timeout_seconds)
        return inner(self, request, copies, timeout_seconds)

    inner = Engine.save
    monkeypatch.setattr(Engine, "save", save)
    model = oracle.build("adam", dim=8)
    dense = sum(variable.shape.num_elements() * variable.dtype.size for variable in model.variables
                if variable.name.startswith(("hidden", "out"))) * 3  # with Adam's m and v
    assert 0 < dense < 100 * 3 * 8 * 4
    # Where files are written directly nothing is slowed by this.
    options = tfadaptcp.EngineOptions(timeout_seconds=100.0, upload_bytes_per_second=100)
    manager = tfadaptcp.CheckpointManager(model, tmp_path / "checkpoints", "incremental", engine=options)
    for count in (1000, 100, 1):
        rows.write(model, range(count), seed=count)
        manager.save()
        more = manager.engine.writer_more_seconds
        manager.wait()
        size = dense + count * 3 * 8 * 4  # parameter, m and v
        assert size / 100 <= more <= 1.5 * size / 100, "of one row nearly all is dense"
        assert told.pop() == 100 + more
    assert tfadaptcp.EngineOptions().seconds_for(16 << 20) == 1
    assert tfadaptcp.EngineOptions(upload_bytes_per_second=1 << 30).seconds_for(16 << 20) == 1


def save_again(manager):
    """Saves as soon as the save before, which was given up, has left behind what hangs."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return manager.save()
        except tfadaptcp.SaveFailedError as error:
            assert "has not ended" in str(error) and time.monotonic() < deadline
            time.sleep(0.05)


# The third of four operations on a file is its sync, by a thread that is no encoder; the next save removes it.
@pytest.mark.parametrize("each, hangs", [(1, "hang@1+"), (4, ";".join(f"hang@{4 * i + 3}" for i in range(8)))])
def test_what_a_hung_mount_holds_is_bounded(tmp_path, each, hangs):
    """Each save left values and rows, or threads and files behind, however many had done so before it."""
    model = oracle.build("adam")
    rows.write(model, range(50))
    options = tfadaptcp.EngineOptions(timeout_seconds=1.0)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", engine=options)
    manager.save()
    manager.wait()
    told = []
    with faults.plan(f"match=dense-ps0;{hangs}"):
        for _ in range(8):
            save_again(manager)
            with pytest.raises(tfadaptcp.AdaptCPError) as raised:
                manager.wait()
            told.append(str(raised.value))
        assert ["earlier saves and scans" in text for text in told] == [False] * 6 + [True] * 2, told
        assert all("No answer" in text for text in told[:6]) and faults.count() == 6 * each
    settle()
    time.sleep(1)
    copy = oracle.take(model)
    save_again(manager)
    manager.wait()
    fresh = oracle.build("adam", seed=3)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


def test_a_save_that_can_not_begin_ends_the_capture(tmp_path, monkeypatch):
    """Its rows went on being captured, with nobody to write them: updates waited for room, training for the end."""
    model = oracle.build("adam")
    rows.write(model, range(3000))
    options = tfadaptcp.EngineOptions(capture_memory_bytes=1 << 20, update_wait_seconds=600.0)
    manager = tfadaptcp.CheckpointManager(model, tmp_path / "run", "incremental", buffer_dir=tmp_path / "buffer",
                                          engine=options)
    (tmp_path / "buffer").rename(tmp_path / "away")
    (tmp_path / "buffer").write_text("no directory")
    save, ended = Engine.save, threading.Event()

    def save_here_and_elsewhere(self, *args, **kwargs):
        try:
            return save(self, *args, **kwargs)
        finally:
            ended.wait(60)  # for other servers, which go on

    monkeypatch.setattr(Engine, "save", save_here_and_elsewhere)
    manager.save()
    engine = manager.engine
    engine.wait_captured(manager._pending.draft.sequence, 60)
    rows.write(model, range(3000), seed=1)  # no update waits
    ended.set()
    with pytest.raises(tfadaptcp.AdaptCPError, match="buffer"):
        manager.wait()
