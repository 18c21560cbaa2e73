"""Death and failure at every file operation of put, commit and collect, on a real disk.

Afterwards the last committed head is there and whole, nothing broken is on offer, and what was left over goes with the
next passes.
"""

import errno
import os
import shutil
import signal

import pytest

from tests.support import direct_store
from tests.support.checkpoint_dirs import FAILURES, Run, check_clean, check_whole
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.faults import set_fault_hook
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.errors import FencedError


@pytest.fixture(autouse=True)
def fault_hook(monkeypatch):
    # A killed process loses nothing that it has written, so syncing shows nothing here; test_store.py sees to it.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    direct_store.install(monkeypatch)
    yield
    set_fault_hook(None)


def history(directory, acknowledge):
    """The work that is interrupted: a run with a history behind it restarts, makes checkpoints and collects.

    Has a base renewal, a restart and a passing out of heads in it. `acknowledge` is told of each commit that returned.
    """
    run = Run(Store(), directory, keep=1, base_every=2)
    for manifest in run.committed:
        acknowledge(manifest.name)
    for _ in range(3):
        acknowledge(run.checkpoint(collect=False).name)
        run.collect()


def prepare(directory):
    run = Run(Store(), directory, keep=1, base_every=2)
    [run.checkpoint() for _ in range(2)]
    return run.head.name


def check_after(directory, acknowledged):
    """`acknowledged`: names whose commit returned, oldest first; one that didn't return may have been made too."""
    store = Store()
    heads = check_whole(store, directory)
    names = [manifest.name for manifest in heads]
    assert acknowledged[-1] in names
    newer = names[names.index(acknowledged[-1]) + 1:]
    assert len(newer) <= 1, f"only the commit that was interrupted can have come after: {newer}"
    # The next coordinator goes on from there and sweeps up.
    run = Run(store, directory, keep=1, base_every=2)
    assert run.head.identity == heads[-1].identity
    for _ in range(3):
        run.checkpoint()
        check_whole(store, directory)
    run.collect()
    check_clean(store, directory)
    assert commit.latest(store, directory) == run.head


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("prepared") / "dir"
    return directory, prepare(str(directory))


def count_operations(prepared, directory):
    shutil.copytree(prepared[0], directory)
    ops = []
    set_fault_hook(lambda op, path: ops.append((op, path)))
    history(str(directory), lambda name: None)
    set_fault_hook(None)
    return ops


def test_killed_at_every_file_operation(prepared, tmp_path):
    operations = count_operations(prepared, tmp_path / "count")
    # Reads and listings change nothing on the disk: dying before one is dying after the change before it.
    changing = [n for n, (op, _) in enumerate(operations, 1) if op not in ("open", "read", "list", "size")]
    assert {"create", "write", "fsync", "close", "fsync_dir", "delete", "mkdir"} <= {op for op, _ in operations}
    torn = 0
    for at in changing:
        directory = tmp_path / str(at)
        shutil.copytree(prepared[0], directory)
        acknowledged = [prepared[1]] + in_child(str(directory), at)
        torn += bool(commit.list_heads(Store(), str(directory))[1])
        check_after(str(directory), acknowledged)
        shutil.rmtree(directory)
    print(f"killed at {len(changing)} of {len(operations)} operations; {torn} times a torn manifest was left")
    assert len(changing) >= 30 and torn >= 4


def in_child(directory, at):
    """Runs `history` in a forked process that kills itself before operation `at`; returns what it acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        count = [0]

        def hook(op, path):
            count[0] += 1
            if count[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            set_fault_hook(hook)
            history(directory, lambda name: os.write(writer, name.encode() + b"\n"))
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader) as file:
        names = file.read().split()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return names


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("lasting", [False, True])
def test_failing_at_every_file_operation(prepared, tmp_path, code, lasting):
    operations = count_operations(prepared, tmp_path / "count")
    # A fault that stays leaves little to tell apart; one in three of its points is enough. A full disk fails no reads.
    points = [at for at, (op, _) in enumerate(operations, 1)
              if (at % 3 == 1 if lasting else code == errno.EIO or op not in ("open", "read", "list", "size", "delete"))]
    assert len(points) > 60
    for at in points:
        directory = tmp_path / str(at)
        shutil.copytree(prepared[0], directory)
        count = [0]

        def hook(op, path):
            count[0] += 1
            if count[0] == at or lasting and count[0] > at and (code == errno.EIO or op in ("create", "write", "mkdir")):
                raise OSError(code, os.strerror(code), path)

        acknowledged = [prepared[1]]
        set_fault_hook(hook)
        try:
            survive(str(directory), acknowledged.append)
        finally:
            set_fault_hook(None)
        check_after_failure(str(directory), acknowledged)
        shutil.rmtree(directory)


def survive(directory, acknowledge):
    """`history` as a manager lives it: what fails is given up, and the next checkpoint is tried."""
    try:
        run = Run(Store(), directory, keep=1, base_every=2)
    except (*FAILURES, FencedError):
        return
    for manifest in run.committed:
        acknowledge(manifest.name)
    for _ in range(3):
        try:
            acknowledge(run.checkpoint(collect=False).name)
        except FAILURES:
            continue
        try:
            run.collect()
        except FAILURES:
            pass


def check_after_failure(directory, acknowledged):
    store = Store()
    names = [manifest.name for manifest in check_whole(store, directory)]
    # Commits that failed for certain made no head; one of unknown outcome may have made one, never a broken one.
    assert acknowledged[-1] in names
    check_after(directory, [names[-1]])
