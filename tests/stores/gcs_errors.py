"""What users are told of a gs:// that can't be used: run in a process that can reach the server.

Whatever is wrong, it is never "no checkpoint": a job that starts afresh because a store was down loses what it had.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from unittest import mock

import tfadaptcp
from tests.stores.gcs_product import proxy
from tests.stores.product import build, command
from tests.support import oracle, rows
from tfadaptcp.checkpoint import remote_files
from tfadaptcp.checkpoint.store import Store


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Retries of Python's store take no time."""
    now = [0.0]
    with mock.patch.object(remote_files, "_clock", lambda: now[0]), \
            mock.patch.object(remote_files, "_sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)):
        yield


@contextlib.contextmanager
def down() -> Iterator[None]:
    """Nobody listens where the server was."""
    with mock.patch.dict(os.environ, {"https_proxy": "http://127.0.0.1:1"}):
        yield


@contextlib.contextmanager
def refusing(status: int, **rule) -> Iterator[None]:
    """Every request, or those that match, is answered with a status."""
    proxy().fault("status", status=status, times=None, **rule)
    try:
        yield
    finally:
        proxy().clear()


def raised_by(call: Callable[[], object]) -> BaseException:
    try:
        result = call()
    except Exception as error:
        return error
    raise AssertionError(f"answered {result!r}")


def _expect(kind: type, directory: str, call: Callable[[], object]) -> None:
    error = raised_by(call)
    assert type(error) is kind, repr(error)
    for text in (directory, "Received: " if kind is tfadaptcp.BucketNotFoundError else "could not",
                 "Expected: " if kind is not tfadaptcp.StoreUnavailableError else "within"):
        assert text in str(error), f"no {text!r} in: {error}"


def _check_everything(kind: type, directory: str, manager: tfadaptcp.CheckpointManager | None) -> None:
    model = build()
    for call in (lambda: tfadaptcp.CheckpointManager(model, directory),
                 lambda: model.load_adaptcp(directory),
                 lambda: model.load_adaptcp(directory, "0000000001-0000000001-c28ec6c01ce8"),
                 lambda: tfadaptcp.read_rows(directory, "emb0-parameter"),
                 lambda: model.fit(*oracle.batch(0), verbose=0, callbacks=[
                     tfadaptcp.AdaptCPCallback(directory, save_freq=1, restore=True)])):
        _expect(kind, directory, call)
    if manager is not None:
        for call in (manager.restore, lambda: manager.checkpoints, lambda: manager.latest_checkpoint):
            _expect(kind, directory, call)
    for name in ("ls", "verify"):
        code, said = command(name, directory)
        assert code == 2 and "there is no checkpoint" not in said and directory in said, said


def every_way_to_look_at_it(directory: str) -> None:
    model = build()
    manager = tfadaptcp.CheckpointManager(model, directory, "full")
    rows.write(model, range(20))
    manager.save()
    name = manager.wait().name
    copy = oracle.take(model)
    with no_waiting():
        with down():
            _check_everything(tfadaptcp.StoreUnavailableError, directory, manager)
        with refusing(503):
            _check_everything(tfadaptcp.StoreUnavailableError, directory, manager)
        with refusing(403):
            _check_everything(tfadaptcp.StorePermissionError, directory, manager)
        _check_everything(tfadaptcp.BucketNotFoundError, "gs://nobucket/dir", None)
    assert Store().list(directory + "-other") == []
    assert manager.restore().checkpoint == name
    oracle.check(copy, model)


def who_may_not_ask_for_the_bucket_may_use_it(directory: str) -> None:
    with refusing(403, path=r"^/storage/v1/b/[^/]*$"):
        assert Store().list(directory) == []


def segments_that_can_not_be_read(directory: str) -> None:
    """Not damaged: an older checkpoint is not restored in place of the newest."""
    model = build()
    manager = tfadaptcp.CheckpointManager(model, directory, "full")
    for step in range(2):
        rows.write(model, range(20), seed=step)
        manager.save()
        newest = manager.wait().name
    impatient = tfadaptcp.EngineOptions(timeout_seconds=2.0)  # of which a read may be retried for less
    for status, kind in ((403, tfadaptcp.StorePermissionError), (503, tfadaptcp.StoreUnavailableError)):
        fresh = build()
        with refusing(status, path=r"^/bucket/.*\.seg"):
            error = raised_by(lambda: fresh.load_adaptcp(directory, engine=impatient))
        assert type(error) is kind and newest in str(error) and "gs://" in str(error), repr(error)
        assert all(not rows for rows in oracle.take(fresh).rows().values())
    with refusing(403, path=r"^/bucket/.*\.seg"):
        code, said = command("verify", directory)
        assert code == 2 and "gs://" in said, (code, said)
