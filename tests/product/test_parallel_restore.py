"""Restores of many objects: read in parallel within a bound of memory, given up in time, whole or not at all."""

import io
import json
import os
import re
import threading
import time

import pytest

import tfadaptcp
from tests.support import faults, oracle, rows
from tfadaptcp import _ops, progress
from tfadaptcp.attaching import ENGINE
from tfadaptcp.checkpoint import commit, objects
from tfadaptcp.checkpoint.store import Store

pytestmark = pytest.mark.usefixtures("no_plan_stays")
SHARDS = 24  # each with objects of its own
OPTIONS = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=512)
WAYS = pytest.mark.parametrize("shards", [SHARDS, 3], ids=["in_place", "routed"])


def build(shards=SHARDS, seed=5):
    return oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2, seed=seed)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A directory with two complete checkpoints of many small objects, a third of increments, and copies by name."""
    directory = tmp_path_factory.mktemp("written")
    return directory, write(str(directory))


def write(directory):
    model = build()
    copies = {}
    for policy, keys in (("full", range(4000)), ("full", range(1000, 5000)), ("incremental", range(0, 6000, 3))):
        manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=9, engine=OPTIONS)
        rows.write(model, keys, seed=len(copies))
        rows.remove(model, range(100 * len(copies), 100 * len(copies) + 50))
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        manager.wait()
        manager.close()
    return copies


def objects_of(directory, name=None):
    """Paths and sizes of the objects with rows of a head, the newest if none is named, newest level first."""
    head = commit.load(Store(), str(directory), name or commit.latest(Store(), str(directory)).name)
    refs = [ref for ref in head.objects if ref.kind != "dense"]
    refs.sort(key=lambda ref: (-ref.sequence, ref.path))
    return [(f"{directory}/{ref.path}", ref.bytes) for ref in refs]


@WAYS
def test_the_bound_of_memory_and_the_number_of_readers(written, shards):
    directory, copies = written
    name = list(copies)[-1]
    sizes = [size for _, size in objects_of(directory)]
    assert len(sizes) >= 2 * SHARDS
    model = build(shards, seed=9)
    # One that is larger than the bound passes alone.
    for bound, threads in ((3 * max(sizes), 3), (1, 2), (None, None)):
        options = tfadaptcp.EngineOptions(restore_memory_bytes=bound, restore_threads=threads)
        report = model.load_adaptcp(directory, engine=options)
        oracle.check(copies[name], model, f"{bound} bytes, {threads} threads", shards=shards == SHARDS)
        assert max(sizes) // 2 < report.peak_bytes <= max(bound or 256 << 20, max(sizes)), (bound, report)
        assert report.reader_threads == threads or threads is None and 1 <= report.reader_threads <= 16
        assert report.bytes_read > sum(sizes)


@WAYS
@pytest.mark.parametrize("memory", [1, None], ids=["one_by_one", "ahead"])
def test_damage_that_is_found_when_rows_have_been_applied(written, shards, memory):
    """In the middle of a level: the head before is restored, and nothing stays of the rows that were applied."""
    directory, copies = written
    names = list(copies)
    model = build(shards, seed=9)
    rows.write(model, [1, 77777])
    paths = [path for path, _ in objects_of(directory, names[1])]
    path = paths[len(paths) // 2]
    with open(path, "r+b") as file:
        file.seek(200)
        good = file.read(1)
        file.seek(200)
        file.write(bytes([good[0] ^ 1]))
    try:
        options = tfadaptcp.EngineOptions(restore_memory_bytes=memory, restore_threads=memory)
        with pytest.raises(tfadaptcp.CheckpointCorruptError, match=f"is damaged: {re.escape(path)}: .*wrong CRC"):
            model.load_adaptcp(directory, names[1], engine=options)
        assert not any(oracle.take(model).rows().values()), "empty, never half full"
        model.load_adaptcp(directory, engine=options)  # the newest goes by the damaged base
        oracle.check(copies[names[0]], model, "the head before", shards=shards == SHARDS)
    finally:
        with open(path, "r+b") as file:
            file.seek(200)
            file.write(good)
    assert model.load_adaptcp(directory).checkpoint == names[2]
    oracle.check(copies[names[2]], model, shards=shards == SHARDS)


@WAYS
def test_a_store_that_hangs_in_the_middle(written, shards):
    """The restore is given up in time and says what it waited for; what arrives then changes nothing."""
    directory, copies = written
    names = list(copies)
    model = build(shards, seed=9)
    options = tfadaptcp.EngineOptions(restore_timeout_seconds=1.5, restore_threads=2, restore_memory_bytes=30000)
    hung = objects_of(directory)[-3][0]
    with faults.hanging(f"match={os.path.basename(hung)};hang@1"):
        with pytest.raises(tfadaptcp.DeadlineError, match=os.path.basename(hung)):
            model.load_adaptcp(directory, engine=options)
        assert not any(oracle.take(model).rows().values())
        assert model.load_adaptcp(directory, names[0], engine=options).checkpoint == names[0]
    deadline = time.monotonic() + 5
    while any("ps0" in thread.name for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    oracle.check(copies[names[0]], model, "after what hung has gone on", shards=shards == SHARDS)


@WAYS
def test_a_remote_store_that_fails_for_a_while(shards):
    """Reads are made again, until the patience ends; then it is the store that is to blame, and the tables are empty."""
    directory = f"ram://parallel-{os.getpid()}-{shards}/run"
    copies = write(directory)
    name = list(copies)[-1]
    paths = [path for path, _ in objects_of(directory)]
    model = build(shards, seed=9)
    for operation in (1, 2, 3):  # its size, open, read
        with faults.plan(f"match={paths[1].split('/data/')[1]};errno=5@{operation}"):
            assert model.load_adaptcp(directory).checkpoint == name
            assert faults.count() > 3
        oracle.check(copies[name], model, f"operation {operation} failed", shards=shards == SHARDS)
    with faults.plan(f"match={paths[-1].split('/data/')[1]};errno=5@1+"):
        with pytest.raises(tfadaptcp.StoreUnavailableError, match=os.path.basename(paths[-1])):
            model.load_adaptcp(directory, engine=tfadaptcp.EngineOptions(timeout_seconds=1.0))
    assert not any(oracle.take(model).rows().values())


def test_progress_is_shown_while_it_goes_on(written, monkeypatch):
    directory, copies = written
    model = build(seed=9)
    total = sum(size for _, size in objects_of(directory))
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.05)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def shown(progress_option, terminal):
        text = Terminal() if terminal else io.StringIO()
        monkeypatch.setattr("sys.stderr", text)
        hung = objects_of(directory)[-2][0]
        with faults.plan(f"match={os.path.basename(hung)};hang@1"):
            waits = threading.Thread(target=lambda: (_until(text, progress_option, terminal), faults.set_plan("")))
            waits.start()
            options = tfadaptcp.EngineOptions(progress=progress_option, restore_threads=1, restore_memory_bytes=1)
            report = model.load_adaptcp(directory, engine=options)
            waits.join()
        oracle.check(copies[report.checkpoint], model)
        return report, text.getvalue()

    for option, terminal in ((None, True), (True, False)):
        report, text = shown(option, terminal)
        line = re.split("[\r\n]", text.strip("\r\n"))[-1]
        found = re.fullmatch(r"Restoring (\S+) \[(=*)(\.*)\] +(\d+)% ([\d.]+) KB of ([\d.]+) KB, [\d.]+ [KM]?B/s, "
                             r"([\d,]+) rows", line)
        assert found and found[1] == report.checkpoint, text
        assert 50 < int(found[4]) <= 100 and 0.5 * total / 1000 < float(found[5]) <= float(found[6]), line
        assert float(found[6]) > total / 1000, "dense variables too"
        assert int(found[7].replace(",", "")) > 3000
        assert ("\r" in text) == terminal
    assert shown(None, False)[1] == shown(False, True)[1] == ""


def _until(text, option, terminal):
    """Until something is shown of the object before last, or for long enough to show it."""
    deadline = time.monotonic() + (10 if option or (option is None and terminal) else 0.3)
    while time.monotonic() < deadline:
        lines = re.findall(r"(\d+)%", text.getvalue())
        if lines and int(lines[-1]) > 50:
            return
        time.sleep(0.01)


def test_hosts_that_hang_are_asked_less_and_less(monkeypatch):
    """Each question that nobody answers leaves a thread behind."""
    waits = []

    class Ended:
        def wait(self, seconds):
            waits.append(seconds)

        def is_set(self):
            return len(waits) >= 20

    def hang(*_):
        raise tfadaptcp.DeadlineError("no answer")

    monkeypatch.setattr(progress, "of_hosts", hang)
    progress._show(None, "c", 1, io.StringIO(), False, Ended())
    assert waits[1:5] == [1.0, 2.0, 4.0, 8.0] and waits[-1] == 600.0


def test_another_restore_ends_the_readers_of_one_that_was_left(written):
    """As of a coordinator that has gone: its stream is full, and nobody asks for what is in it."""
    directory, copies = written
    model = build(3, seed=9)
    model.load_adaptcp(directory)
    engine = getattr(model, ENGINE)
    head = commit.latest(Store(), str(directory))
    ops, host = _ops.lib(), engine.hosts[0]
    common = {"restore": engine.restore, "level": 0}
    engine.call(host, ops.adaptcp_open_stream, {
        **common, "specs": objects.specs(head), "groups": [group.name for group in head.groups],
        "limits": {"memory_bytes": 1}, "levels": objects.levels(str(directory), head)})
    next_piece = json.dumps({**common, "session": engine.session})
    assert ops.adaptcp_next_piece(next_piece)[0].numpy() == 0
    model.load_adaptcp(directory)
    with pytest.raises(Exception, match="came too late"):
        ops.adaptcp_next_piece(next_piece)
    oracle.check(copies[head.name], model, shards=False)
