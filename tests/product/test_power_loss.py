"""Loss of power at every file operation of a job; and that no fsync can be left out."""

import os
import shutil
import tempfile

import pytest

import tfadaptcp
from tests.support import fault_lives, faults, oracle, power_loss
from tfadaptcp.checkpoint import claims, commit, layout
from tfadaptcp.checkpoint.store import join


@pytest.fixture(scope="module")
def job():
    """(trace, {step: full copy}, model) of a job with restarts, renewals of the base and heads that pass out."""
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    directory = os.path.join(folder, "new", "checkpoints")
    os.mkdir(os.path.join(folder, "trace"))
    with pytest.MonkeyPatch.context() as patch:
        take, commit_it = claims.take, commit.commit

        def take_and_tell(store, root, *args, **kwargs):
            claim = take(store, root, *args, **kwargs)
            faults.announce("acknowledged", join(root, layout.CLAIMS, str(claim)))
            return claim

        def commit_and_tell(store, root, manifest, *args):
            commit_it(store, root, manifest, *args)
            faults.announce("acknowledged", join(root, layout.manifest_path(manifest.head)))

        patch.setattr(claims, "take", take_and_tell)
        patch.setattr(commit, "commit", commit_and_tell)
        with faults.plan(f"trace={folder}/trace"):
            life = fault_lives.Life(directory, os.path.join(folder, "unused"))
            for i in range(6):
                life.checkpoint()
            life.start()  # with heads to publish again
            life.checkpoint()
            # Two passes with no commit between them.
            life.collect(1)
            life.collect(1)
            life.checkpoint()
    trace = power_loss.Trace(os.path.join(folder, "trace"), directory)
    yield trace, life, folder
    shutil.rmtree(folder)


def test_the_acknowledged_head_survives_at_every_operation(job):
    trace, life, folder = job
    disk = power_loss.Disk(trace)
    seen, points = set(), 0
    for operation in trace.operations:
        fault = power_loss.fault_of(trace, disk)
        assert not fault, f"before operation {operation}: {fault}"
        owed = [path for path in disk.acknowledged if path.startswith("manifests/")][-1:]
        for mode in power_loss.MODES:
            left = disk.left(mode)
            state = frozenset(left.items())
            points += 1
            if state in seen:
                continue
            seen.add(state)
            copy = os.path.join(folder, "restored")
            power_loss.write_out(trace, left, copy)
            try:
                report = life.model.load_adaptcp(copy)
            except tfadaptcp.CheckpointNotFoundError:
                assert not owed
            else:
                assert f"manifests/{report.checkpoint}.json" >= max(owed, default="")
                oracle.check(life.copies[report.step], life.model, f"{operation}, {mode}")
            shutil.rmtree(copy)
        disk.make(operation)
    print(f"{points} losses of power at {len(trace.operations)} operations: {len(seen)} different disks restored")
    assert points > 3000 and len(seen) > 100


def test_no_fsync_can_be_left_out(job):
    """Each one of a file is needed; of a directory, at least that which is the last before a promise that rests on it."""
    trace, _, _ = job
    syncs = [operation for operation in trace.operations if operation.kind in power_loss.SYNCS]
    spare = [left_out for left_out in syncs if not fault_without(trace, [left_out])]
    print(f"{len(syncs)} syncs, {len(spare)} of them followed by another one in time:")
    for left_out in spare:
        again = [sync for sync in syncs if sync.path == left_out.path]
        print(" ", left_out.number, left_out.kind, trace.relative(left_out.path))
        if fault_lives.file_kind(left_out.path) == "probe":
            continue  # it is there to try whether syncing works
        assert left_out.kind == "fsync_dir", f"{left_out} is in vain"
        # One for each segment, or for each process that can't know whether the one before lived to sync it.
        assert len(again) > 1 and fault_without(trace, again), f"{left_out} is in vain"
    # Between two passes without a commit, only retention itself can make deleted manifests stay deleted.
    assert any(sync.path.endswith("manifests") and trace.operations[sync.number].kind == "delete"
               for sync in syncs if sync not in spare)


def fault_without(trace, left_out):
    disk = power_loss.Disk(trace)
    for operation in trace.operations:
        disk.make(operation, operation not in left_out)
        # Only then what is owed or what is there has changed for the worse.
        if operation.number >= left_out[0].number and operation.kind in ("acknowledged", "delete", "create", "write"):
            fault = power_loss.fault_of(trace, disk)
            if fault:
                return fault
    return ""
