"""A small model that makes checkpoints while file operations fail, in one process, and what must hold after each fault.

`Life` keeps a full copy of the model for each checkpoint, and the bytes of the files of those that were acknowledged. A
fault that lasts from an operation on (`errno=5@N+`) leaves on the disk exactly what a process leaves that dies there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable

import tfadaptcp
from tests.support import faults, oracle, rows
from tests.support.checkpoint_dirs import check_clean
from tests.support.saving import Eager
from tfadaptcp import errors, policies
from tfadaptcp.checkpoint import commit, retention
from tfadaptcp.checkpoint.store import Store

KEEP = 2
POLICY = Eager(restore_weight=8.0, renewal="period", first_period=3, decay=0.5, max_restore_factor=20.0)


class WithSnapshotBases(Eager):
    """Renews bases at a cut: one that is written beside never gets ready between restores that come one after another."""

    snapshot_bases = True


SNAPSHOTS = WithSnapshotBases(restore_weight=8.0, renewal="period", first_period=3, decay=0.5, max_restore_factor=20.0)
OPTIONS = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=1024)
# How a checkpoint, a start or a restore may fail. Anything else is a bug.
EXPECTED = (errors.AdaptCPError, OSError)
WRITES = ("mkdir", "create", "write", "fsync", "fsync_dir", "close", "delete")


def file_kind(path: str) -> str:
    """What a path of a checkpoint directory is: of which kind of file or directory the operation was."""
    name = os.path.basename(path)
    for kind in ("base", "increment", "differential", "dense", "probe"):
        if name.startswith(kind + "-"):
            return kind
    if name.endswith(".json"):
        return "manifest"
    if os.path.basename(os.path.dirname(path)) == "claims":
        return "claim"
    return {"data": "data/", "manifests": "manifests/", "claims": "claims/"}.get(
        name, "data/<head>/" if os.path.basename(os.path.dirname(path)) == "data" else "above")


class Life:
    """One model and its directory. `programs` are what is interrupted."""

    def __init__(self, directory: str, trace: str, policy: policies.Policy = POLICY):
        self.directory, self._trace, self.options, self._policy = directory, trace, OPTIONS, policy
        self.model = oracle.build("momentum", devices=["/CPU:0", "/CPU:0"], dim=2)
        self.copies: dict[int, oracle.Copy] = {}
        self.files: dict[str, bytes] = {}  # of the acknowledged head
        self.acknowledged = 0
        self.step = 0
        self.start()

    # ------------------------------------------------------------- programs

    def start(self) -> None:
        """A coordinator starts: probe; then claim, listing, and the head published again, with the first checkpoint."""
        self.manager = tfadaptcp.CheckpointManager(self.model, self.directory, self._policy, engine=self.options,
                                                   max_to_keep=KEEP)
        self.checkpoint()

    def checkpoint(self) -> None:
        self.step += 1
        self.model.optimizer.iterations.assign(self.step)
        rows.write(self.model, [*range(4), *range(20 + self.step % 7, 40, 7), 50 + self.step % 12], seed=self.step)
        rows.remove(self.model, [20 + self.step % 20])
        self.copies[self.step] = oracle.take(self.model)
        assert self.manager.save().step == self.step
        rows.write(self.model, range(3), seed=self.step + 1_000_000)  # after the cut
        try:
            self.manager.wait()
        finally:
            if self.manager._scan is not None:  # a base that is written beside
                self.manager._scan._thread.join(60)
            # Not all servers may have been told after the commit, which is raised too.
            if self.manager._last_head is not None and self.manager._last_head.step == self.step:
                self.acknowledged = self.step
        self.files = self.files_of(self.step)

    def restore(self) -> None:
        self.manager.restore()

    def in_progress(self) -> list[str]:
        """Names of attempts whose data has to stay, as the manager has them."""
        scan = self.manager._scan
        return self.manager._leftovers.kept + ([] if scan is None else [scan.name])

    def collect(self, keep: int = KEEP) -> None:
        retention.collect(Store(), self.directory, self.manager._claim, keep, self.in_progress())

    # ------------------------------------------------------------- faults

    def run(self, program: Callable[[], None], plan: str = "") -> tuple[list[tuple[str, str]], BaseException | None]:
        """Runs a program under a plan; returns its operations as (kind, path), and the error it ended with."""
        shutil.rmtree(self._trace, ignore_errors=True)
        os.mkdir(self._trace)
        error = None
        faults.set_plan(f"match={self.directory};trace={self._trace};{plan}")
        try:
            program()
        except EXPECTED as raised:
            error = raised
        finally:
            faults.set_plan("")
        with open(os.path.join(self._trace, "log"), encoding="utf-8") as file:
            return [(parts[1], parts[3]) for parts in map(str.split, file)], error

    # ------------------------------------------------------------- what must hold

    def check_untouched(self) -> None:
        """The acknowledged head is on offer, its files are as they were, and nothing newer but the attempt is offered."""
        heads, _ = commit.list_heads(Store(), self.directory)
        steps = [head.step for head in heads]
        assert self.acknowledged in steps, f"step {self.acknowledged} was acknowledged, there are {steps}"
        assert max(steps) <= self.step
        for path, content in self.files.items():
            with open(path, "rb") as file:
                assert file.read() == content, path

    def check_restore(self) -> None:
        """The newest head restores and equals the full copy of its step."""
        report = self.manager.restore()
        assert report.step >= self.acknowledged
        oracle.check(self.copies[report.step], self.model, report.checkpoint)

    def check_goes_on(self) -> None:
        """The next checkpoint succeeds, has what the failed one was to save, and what was broken is gone."""
        self.checkpoint()
        heads, _ = commit.list_heads(Store(), self.directory)
        assert heads[-1].step == self.step
        # Data of manifests deleted by one pass goes with the next.
        self.collect()
        if self.manager._leftovers.kept:
            self.start()  # its data stays while this manager lives
            self.collect()
        check_clean(Store(), self.directory, self.in_progress())
        self.check_restore()

    def files_of(self, step: int) -> dict[str, bytes]:
        """{path: bytes} of the newest head of a step, read without tfadaptcp's store."""
        heads, _ = commit.list_heads(Store(), self.directory)
        head = [head for head in heads if head.step == step][-1]
        found = {}
        for name in (f"manifests/{head.name}.json", *(ref.path for ref in head.objects)):
            path = os.path.join(self.directory, name)
            with open(path, "rb") as file:
                found[path] = file.read()
        return found


FAULTS = {
    "EIO": (f"errno={errno.EIO}@%d", None),
    "ENOSPC": (f"errno={errno.ENOSPC}@%d", ("mkdir", "create", "write", "fsync", "close", "fsync_dir")),
    "EACCES": (f"errno={errno.EACCES}@%d", ("mkdir", "create", "open", "list", "delete", "fsync_dir")),
    "short write": ("short@%d", ("write",)),
    "death": (f"errno={errno.EIO}@%d+", WRITES),
}
