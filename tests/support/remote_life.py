"""A small model that makes checkpoints in a remote store, driven step by step by a test that takes the servers away.

For a process in the store's environment (`tests.support.child.Child`), which has one model at a time. A full copy of the
model is kept of every cut, whatever becomes of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import time
from typing import Any

import tfadaptcp
from tests.support import oracle, rows
from tests.support.saving import Eager
from tfadaptcp import cli
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store

POLICY = Eager(restore_weight=8.0, renewal="period", first_period=3, decay=0.5, max_restore_factor=20.0)


class Life:
    """The model and its directory. A checkpoint may fail; nothing else may."""

    def __init__(self, directory: str, timeout_seconds: float, dim: int):
        options = tfadaptcp.EngineOptions(segment_bytes=1 << 16, block_bytes=1 << 12, timeout_seconds=timeout_seconds)
        self.directory = directory
        self.model = oracle.build("momentum", devices=["/CPU:0", "/CPU:0"], dim=dim)
        self.manager = tfadaptcp.CheckpointManager(self.model, directory, POLICY, engine=options, max_to_keep=3)
        self.copies: dict[int, oracle.Copy] = {}
        self.step = self.acknowledged = 0

    def checkpoint(self, count: int) -> dict[str, Any]:
        """Writes `count` rows and more, and saves; says how it went."""
        self.step += 1
        self.model.optimizer.iterations.assign(self.step)
        first = 37 * self.step
        rows.write(self.model, [*range(4), *range(first, first + count), 50 + self.step % 12], seed=self.step)
        rows.remove(self.model, [first - self.step % 20])
        self.copies[self.step] = oracle.take(self.model)
        start, error = time.monotonic(), None
        try:
            info = self.manager.save()
            rows.write(self.model, range(3), seed=self.step + 1_000_000)  # after the cut
            assert info.step == self.step
            self.manager.wait()
        except (tfadaptcp.AdaptCPError, OSError) as raised:
            error = raised
        # Not all servers may have been told after the commit, which is raised too.
        head = self.manager._last_head
        if head is not None and head.step == self.step:
            self.acknowledged = self.step
        return {"step": self.step, "committed": self.acknowledged == self.step, "error": type(error).__name__,
                "message": str(error), "seconds": time.monotonic() - start}

    def check(self) -> int:
        """The newest head is that acknowledged last, or newer, and restores to the bit; returns its step."""
        if self.manager._scan is not None:
            self.manager._scan._thread.join(60)
        report = self.manager.restore()
        assert report.step >= self.acknowledged, f"step {self.acknowledged} was acknowledged, {report.step} restored"
        oracle.check(self.copies[report.step], self.model, f"step {report.step}")
        self.acknowledged = report.step
        return report.step


_life: Life | None = None


def begin(directory: str, timeout_seconds: float = 60.0, retry_seconds: float = 60.0, dim: int = 2) -> None:
    """Forgets the model before, and makes a new one. `retry_seconds`: of all stores in this process from now on."""
    global _life
    be_patient(retry_seconds)
    _life = Life(directory, timeout_seconds, dim)


def be_patient(retry_seconds: float) -> None:
    """Sets for how long stores in this process retry what failed, where nothing else is said."""
    Store.__init__.__defaults__ = (retry_seconds, *Store.__init__.__defaults__[1:])


def give_up_after(seconds: float) -> None:
    """Sets for how long a checkpoint is tried, and its manager waits for an answer of the store."""
    manager = _life.manager
    manager._options = dataclasses.replace(manager._options, timeout_seconds=seconds)
    manager._store._deadline_seconds = seconds


def checkpoint(count: int = 40) -> dict[str, Any]:
    return _life.checkpoint(count)


def check() -> int:
    return _life.check()


def check_all() -> list[int]:
    """Every head on offer restores to the bit; returns their steps, oldest first."""
    heads = commit.list_heads(Store(), _life.directory)[0]
    for head in heads:
        _life.manager.restore(head.name)
        oracle.check(_life.copies[head.step], _life.model, f"step {head.step}")
    return [head.step for head in heads]


def steps(directory: str) -> list[int]:
    """Of the heads on offer in a directory, oldest first."""
    return [head.step for head in commit.list_heads(Store(), directory)[0]]


def check_commands() -> None:
    """`ls`, `verify` and `read_rows` say what the copies say."""
    directory, copies = _life.directory, _life.copies
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["ls", directory, "--json"]) == 0
        listed = [entry["step"] for entry in json.loads(out.getvalue())["checkpoints"]]
        assert listed == steps(directory)
        assert cli.main(["verify", directory]) == 0, out.getvalue()
    assert out.getvalue().count("whole") == len(listed), out.getvalue()
    for table, expected in copies[listed[-1]].tables.items():
        found = {int(key): value.tobytes() for key, value in tfadaptcp.read_rows(directory, table).as_numpy_iterator()}
        assert found == {key: row for key, (_, row) in expected.items()}, table
    fresh = oracle.build("momentum", devices=["/CPU:0"] * 3, dim=2)
    fresh.load_adaptcp(directory)
    oracle.check(copies[listed[-1]], fresh, "in another number of shards", shards=False)


def put(path: str, text: str) -> str:
    """Puts an object, and reads it back; the name of the error, "" if there was none."""
    try:
        Store().put(path, text.encode())
    except OSError as error:
        return type(error).__name__
    assert Store().read(path) == text.encode()
    return ""


def removal_of_directory(directory: str) -> str:
    """The reason why a directory could not be removed, "" if there was none."""
    try:
        Store().remove_dir(directory)
        return ""
    except OSError as error:
        return "Permission denied" if "ermission denied" in str(error) else str(error)


def outcome_of_manager(directory: str) -> str:
    """What making a manager ends with: "made", or the error."""
    try:
        tfadaptcp.CheckpointManager(oracle.build("momentum", dim=2), directory)
        return "made"
    except (tfadaptcp.AdaptCPError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def outcome_of_restore(directory: str) -> str:
    try:
        oracle.build("momentum", dim=2).load_adaptcp(directory)
        return "restored"
    except (tfadaptcp.AdaptCPError, OSError) as error:
        return f"{type(error).__name__}: {error}"
