"""What the whole product must do on gs://: run in a process that can reach the server, on a new directory.

Each function takes the directory and raises what is not as it should be, or returns what the test has to know.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

import tfadaptcp
from tests.servers import gcs
from tests.servers.proxied import Proxied, at_once
from tests.support import oracle, rows
from tests.support.saving import Mixed, save
from tfadaptcp import cli


def proxy() -> Proxied:
    return Proxied.connect(os.environ["GCS_PROXY"])


def build() -> tf.keras.Model:
    return oracle.build("momentum", devices=["/CPU:0", "/CPU:0"], dim=4)


def command(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command of `tfadaptcp`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = cli.main(list(arguments))
    return code, out.getvalue()


def save_restore_list_verify_read(directory: str) -> None:
    since = len(proxy().log())
    model = build()
    manager = tfadaptcp.CheckpointManager(model, directory, Mixed(), max_to_keep=3,
                                          engine=tfadaptcp.EngineOptions(segment_bytes=40_000, block_bytes=4096))
    copies: dict[str, oracle.Copy] = {}
    for step in range(4):
        rows.write(model, [*range(300 * step, 300 * step + 2000), *range(50)], seed=step)
        save(manager, model, copies)
    names = [info.name for info in manager.checkpoints]
    assert names == list(copies)[1:], "three are kept"
    written = gcs.written(proxy().log(since))
    assert len(written) == len(set(written)), sorted(name for name in written if written.count(name) > 1)
    assert at_once(proxy().log(since), gcs.is_upload) >= 2

    since = len(proxy().log())
    for name in names:
        fresh = build()
        report = fresh.load_adaptcp(directory, name)
        oracle.check(copies[name], fresh, name)
        assert report.checkpoint == name
    assert at_once(proxy().log(since), gcs.is_read) >= 2
    code, listed = command("ls", directory, "--json")
    assert code == 0 and [entry["name"] for entry in json.loads(listed)["checkpoints"]] == names
    code, verified = command("verify", directory)
    assert code == 0 and verified.count("whole") == len(names), verified
    table, expected = next(iter(copies[names[-1]].tables.items()))
    found = {int(key): value.tobytes() for key, value in tfadaptcp.read_rows(directory, table).as_numpy_iterator()}
    assert found == {key: value for key, (_, value) in expected.items()}
    assert all(isinstance(value, bytes) and np.frombuffer(value, np.float32).size == 4 for value in found.values())
