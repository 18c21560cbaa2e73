"""Faults at every file operation of a start, a checkpoint with its retention pass, and a restore, in one process.

After each: the acknowledged head is as it was, the next checkpoint has what the failed one was to save, the newest head
equals the full copy of its step, and what was broken is not on offer and soon gone. docs/crashes.md has the table.
"""

import itertools
import logging
import os
import shutil
import tempfile

import pytest

from tests.support import direct_store, fault_lives


@pytest.fixture
def life(monkeypatch):
    direct_store.install(monkeypatch)
    # In memory where there is such a place: nothing here depends on the disk.
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    made = fault_lives.Life(os.path.join(folder, "checkpoints"), os.path.join(folder, "trace"),
                            fault_lives.SNAPSHOTS)
    for _ in range(3):
        made.checkpoint()
    yield made
    shutil.rmtree(folder)


def points_hit(life, program, fault, caplog):
    """Returns the points at which `fault` struck, as (program, number, operation, kind of file, fault)."""
    plan, kinds = fault_lives.FAULTS[fault]
    hit = set()
    caplog.clear()
    operations, _ = life.run(program)
    assert not warnings(caplog)
    for at in itertools.count(1):
        if at <= len(operations) and kinds is not None and operations[at - 1][0] not in kinds:
            continue
        caplog.clear()
        made, error = life.run(program, plan % at)
        if len(made) < at:  # how many there are depends a little on what there is to tidy
            return hit
        op, path = made[at - 1]
        kind = fault_lives.file_kind(path)
        # A directory above ours may well be one that this user can't open. What is durable is not given up because nobody
        # can say whether it came too late.
        # What does not cost a checkpoint, as a retention pass that has failed, is in the log.
        told = error is not None or warnings(caplog) or (op, fault) == ("fsync_dir", "EACCES") or (op, kind) == ("list", "claims/")
        assert told, (program.__name__, at, op, path, fault)
        hit.add((program.__name__, at, op, kind, fault))
        life.check_untouched()
        if fault == "death" or program == life.restore:
            life.check_restore()  # as the next process does
        life.check_goes_on()


def warnings(caplog):
    return [record for record in caplog.records if record.name == "tfadaptcp" and record.levelno >= logging.WARNING]


def check(hit, at_least, operations, kinds):
    print(f"{len(hit)} points:", *sorted({f"{op} {kind}" for _, _, op, kind, _ in hit}), sep="\n  ")
    assert len(hit) >= at_least
    # Which files a checkpoint has, and in which order, depends on its policy and its threads: a few pairs may be missed.
    assert operations <= {op for _, _, op, _, _ in hit}
    assert kinds <= {kind for _, _, _, kind, _ in hit}


def test_a_checkpoint(life, caplog):
    hit = set().union(*(points_hit(life, life.checkpoint, fault, caplog) for fault in fault_lives.FAULTS))
    check(hit, 210, {"mkdir", "create", "write", "fsync", "close", "fsync_dir", "list", "open", "read", "delete"},
          {"base", "increment", "differential", "dense", "data/<head>/", "claims/", "manifest", "manifests/"})


def test_a_start_and_a_restore(life, caplog):
    hit = points_hit(life, life.restore, "EIO", caplog) | points_hit(life, life.restore, "EACCES", caplog)
    hit = hit.union(*(points_hit(life, life.start, fault, caplog) for fault in fault_lives.FAULTS))
    check(hit, 250, {"mkdir", "create", "write", "fsync", "close", "fsync_dir", "list", "open", "read", "size", "delete"},
          {"probe", "claim", "base", "increment", "differential", "dense", "manifest", "manifests/", "claims/", "data/"})
