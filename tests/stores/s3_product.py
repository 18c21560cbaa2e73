"""The product on s3://, which is best effort: run in a process that can reach the server, on a new directory."""

from __future__ import annotations

import os

import tensorflow as tf

import tfadaptcp
from tests.servers.proxied import Proxied
from tests.stores.gcs_errors import no_waiting, raised_by
from tests.stores.gcs_product import build, command
from tests.support import oracle, rows
from tests.support.saving import Mixed, save
from tfadaptcp.checkpoint.store import Store


def save_restore_verify_read(directory: str) -> None:
    model = build()
    manager = tfadaptcp.CheckpointManager(model, directory, Mixed(), max_to_keep=2,
                                          engine=tfadaptcp.EngineOptions(segment_bytes=40_000, block_bytes=4096))
    copies: dict[str, oracle.Copy] = {}
    for step in range(3):
        rows.write(model, [*range(300 * step, 300 * step + 1000), *range(50)], seed=step)
        save(manager, model, copies)
    names = [info.name for info in manager.checkpoints]
    assert names == list(copies)[1:]
    fresh = build()
    for name in names:
        fresh.load_adaptcp(directory, name)
        oracle.check(copies[name], fresh, name)
    code, said = command("verify", directory)
    assert code == 0 and said.count("whole") == 2, said
    table, expected = next(iter(copies[names[-1]].tables.items()))
    found = {int(key): value.tobytes() for key, value in tfadaptcp.read_rows(directory, table).as_numpy_iterator()}
    assert found == {key: value for key, (_, value) in expected.items()}


def what_users_are_told(directory: str) -> None:
    model = build()
    rows.write(model, range(20))
    manager = tfadaptcp.CheckpointManager(model, directory, "full")
    manager.save()
    manager.wait()
    proxy = Proxied.connect(os.environ["S3_PROXY"])

    def check(kind: type, where: str) -> None:
        for call in (lambda: tfadaptcp.CheckpointManager(model, where), lambda: model.load_adaptcp(where),
                     lambda: tfadaptcp.read_rows(where, "emb0-parameter"), lambda: Store().list(where),
                     lambda: Store().read(where + "/o")):
            error = raised_by(call)
            assert type(error) is kind and where in str(error), repr(error)
        for name in ("ls", "verify"):
            code, said = command(name, where)
            assert code == 2 and "there is no checkpoint" not in said and where in said, said

    with no_waiting():
        check(tfadaptcp.BucketNotFoundError, "s3://nobucket/dir")
        proxy.fault("status", status=403, times=None)
        # What the plug-in itself says, which is why the bucket is asked.
        assert isinstance(raised_by(lambda: tf.io.gfile.stat(directory)), tf.errors.NotFoundError)
        check(tfadaptcp.StorePermissionError, directory)
    proxy.clear()
    manager.restore()
