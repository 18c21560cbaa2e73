"""What the whole product must do on a remote store: run in a process that can reach it, on a new directory."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tests.support.saving import Mixed, save
from tfadaptcp import cli


def build() -> tf.keras.Model:
    return oracle.build("momentum", devices=["/CPU:0", "/CPU:0"], dim=4)


def command(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command of `tfadaptcp`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = cli.main(list(arguments))
    return code, out.getvalue()


def save_all(directory: str, checkpoints: int, updated: int) -> dict[str, oracle.Copy]:
    """Saves so many checkpoints, of which all but the first are kept; returns full copies of those, by name."""
    model = build()
    manager = tfadaptcp.CheckpointManager(model, directory, Mixed(), max_to_keep=checkpoints - 1,
                                          engine=tfadaptcp.EngineOptions(segment_bytes=40_000, block_bytes=4096))
    copies: dict[str, oracle.Copy] = {}
    for step in range(checkpoints):
        rows.write(model, [*range(300 * step, 300 * step + updated), *range(50)], seed=step)
        save(manager, model, copies)
    copies.pop(next(iter(copies)))
    assert [info.name for info in manager.checkpoints] == list(copies), "all but the first are kept"
    return copies


def restore_all(directory: str, copies: dict[str, oracle.Copy]) -> None:
    for name, copy in copies.items():
        fresh = build()
        report = fresh.load_adaptcp(directory, name)
        oracle.check(copy, fresh, name)
        assert report.checkpoint == name


def list_verify_read(directory: str, copies: dict[str, oracle.Copy]) -> None:
    code, listed = command("ls", directory, "--json")
    assert code == 0 and [entry["name"] for entry in json.loads(listed)["checkpoints"]] == list(copies)
    code, verified = command("verify", directory)
    assert code == 0 and verified.count("whole") == len(copies), verified
    table, expected = next(iter(list(copies.values())[-1].tables.items()))
    found = {int(key): value.tobytes() for key, value in tfadaptcp.read_rows(directory, table).as_numpy_iterator()}
    assert found == {key: value for key, (_, value) in expected.items()}
    assert all(np.frombuffer(value, np.float32).size == 4 for value in found.values())
