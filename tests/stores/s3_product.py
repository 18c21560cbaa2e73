"""The product on s3://, which is best effort: run in a process that can reach the server, on a new directory."""

from __future__ import annotations

import os

import tensorflow as tf

import tfadaptcp
from tests.servers.proxied import Proxied
from tests.stores.gcs_errors import no_waiting, raised_by
from tests.stores.product import build, command, list_verify_read, restore_all, save_all
from tests.support import rows
from tfadaptcp.checkpoint.store import Store


def save_restore_list_verify_read(directory: str) -> None:
    copies = save_all(directory, checkpoints=3, updated=1000)
    restore_all(directory, copies)
    list_verify_read(directory, copies)


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
