"""Saves and restores on gs:// while the server, or the way to it, fails: run in a process that can reach the server."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

import tfadaptcp
from tests.stores.gcs_errors import no_waiting, raised_by
from tests.stores.gcs_product import proxy
from tests.stores.product import build
from tests.support import oracle, rows
from tests.support.saving import Mixed
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store

# What is struck: the method and path of the requests.
PLACES = {
    "session": ("POST", r"uploadType=resumable.*\.seg"),
    "segment": ("PUT", r"name=.*\.seg"),
    "manifest": ("PUT", r"/manifests/"),
    "claim": ("PUT", r"/claims/"),
    "list": ("GET", r"delimiter=/"),
    "read": ("GET", r"^/bucket/.*\.seg"),
}

_STATUS = [{"kind": "status", "status": status} for status in (429, 500, 503)]
_UPLOAD = [*_STATUS, {"kind": "status", "at": "after"}, {"kind": "drop", "at": "request"}, {"kind": "drop", "at": "after"},
           {"kind": "hang", "at": "request"}]
_ANSWER = [*_STATUS, {"kind": "drop"}, {"kind": "drop", "at": "response"}, {"kind": "short"},
           {"kind": "hang", "at": "response"}]
# Each place meets each of its faults once, in as many checkpoints.
TRANSIENT = [{"session": _STATUS[i % 3], "segment": _UPLOAD[i], "manifest": _UPLOAD[(i + 3) % 7],
              "claim": _UPLOAD[(i + 1) % 6], "list": _ANSWER[i], "read": _ANSWER[(i + 2) % 7]} for i in range(7)]
OPTIONS = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=1024)


class Life:
    """A model that makes checkpoints, each with a full copy."""

    def __init__(self, directory: str, options: tfadaptcp.EngineOptions = OPTIONS, max_to_keep: int = 2):
        self.directory, self.options, self._max_to_keep = directory, options, max_to_keep
        self.model = build()
        self.copies: dict[str, oracle.Copy] = {}
        self.step = 0
        self.start()

    def start(self) -> None:
        """Another manager, which claims the directory at its first save."""
        self.manager = tfadaptcp.CheckpointManager(self.model, self.directory, Mixed(), engine=self.options,
                                                   max_to_keep=self._max_to_keep)

    def cut(self) -> str:
        self.step += 1
        rows.write(self.model, [*range(4), *range(20 + self.step % 7, 60, 7), 50 + self.step % 12], seed=self.step)
        rows.remove(self.model, [20 + self.step % 20])
        copy = oracle.take(self.model)
        name = self.manager.save().name
        self.copies[name] = copy
        rows.write(self.model, range(3), seed=self.step + 1_000_000)  # after the cut
        return name

    def save(self) -> str:
        name = self.cut()
        assert self.manager.wait().name == name
        return name

    def check(self, name: str | None = None, model: tf.keras.Model | None = None) -> None:
        """A checkpoint, the newest if none is named, restores to the bit, into this model or another one."""
        report = self.manager.restore(name) if model is None else model.load_adaptcp(self.directory, name)
        oracle.check(self.copies[report.checkpoint], model or self.model, report.checkpoint)
        assert name in (None, report.checkpoint)


def transient_faults(directory: str) -> None:
    """Several strike each checkpoint and each restore, and nobody hears of it."""
    life = Life(directory)
    life.save()
    for faults in TRANSIENT:
        life.start()
        struck = {place: strike(place, fault, times=1) for place, fault in faults.items()}
        try:
            name = life.save()
            life.check(name)
        except Exception as error:
            raise AssertionError(f"{faults}") from error
        missed = [place for place, rule in struck.items() if proxy().struck(rule) != 1]
        assert not missed, f"{faults}: nothing was struck at {missed}"
        proxy().clear()
        assert life.manager.stats()["failed"] == 0
    for _ in range(3):
        life.save()  # what failed attempts have left goes with the passes after them
    check_clean(life)


def lasting_faults(directory: str) -> None:
    """The save fails within its deadline, all is as it was, and the next one holds its rows."""
    life = Life(directory)
    life.save()
    kept = life.save()
    for place, fault, kind in (
            ("segment", _STATUS[2], tfadaptcp.StoreUnavailableError),
            ("segment", {"kind": "hang", "at": "request"}, (tfadaptcp.StoreUnavailableError, tfadaptcp.DeadlineError)),
            ("session", {"kind": "status", "status": 403}, tfadaptcp.StorePermissionError),
            ("manifest", _STATUS[2], tfadaptcp.SaveFailedError),
            ("manifest", {"kind": "status", "status": 403}, tfadaptcp.SaveFailedError),
            ("list", _STATUS[2], tfadaptcp.StoreUnavailableError),
            ("claim", {"kind": "drop"}, tfadaptcp.StoreUnavailableError)):
        what = f"{place}, {fault}"
        strike(place, fault, times=None)
        if place == "claim":
            life.start()
        failed = life.manager.stats()["failed"]
        with no_waiting(), impatient(life):
            error = raised_by(life.save)
        assert isinstance(error, kind) and ("gs://" in str(error) or "ps 0" in str(error)), f"{what}: {error!r}"
        assert life.manager.stats()["failed"] == failed + (place != "claim"), what
        proxy().clear()
        newest = life.manager.latest_checkpoint
        assert newest == kept, f"{what}: {newest} is the newest, expected {kept}"
        kept = life.save()
        life.check(kept, build())
    for _ in range(3):
        life.save()
    check_clean(life)


def failed_writes(directory: str) -> None:
    """Nothing of a write that has failed is sent later, when Python's collector comes across what it has left."""
    strike("manifest", _STATUS[2], times=None)
    with no_waiting():
        error = raised_by(lambda: Store().put(f"{directory}/manifests/late", b"12345678"))
    proxy().clear()
    assert isinstance(error, tfadaptcp.StoreUnavailableError), repr(error)
    del error
    gc.collect()
    assert Store().list(f"{directory}/manifests") == []


def strike(place: str, fault: dict[str, Any], **rule: Any) -> int:
    """Adds a rule for the requests of a place; returns its number."""
    method, path = PLACES[place]
    return proxy().fault(**fault, method=method, path=path, **rule)


@contextlib.contextmanager
def impatient(life: Life) -> Iterator[None]:
    """Only what is meant to fail has a short time-out: a loaded machine is slow."""
    manager = life.manager
    patient = manager._options, manager._store
    manager._options = dataclasses.replace(life.options, timeout_seconds=2.5)
    manager._store = Store(deadline_seconds=2.5)
    try:
        yield
    finally:
        manager._options, manager._store = patient


def check_clean(life: Life) -> None:
    """Nothing is there but what checkpoints need, or what a manifest needed that the last pass has removed."""
    heads, damaged = commit.list_heads(Store(), life.directory)
    assert not damaged
    needed = {ref.path for head in heads for ref in head.objects}
    store = Store()
    there = {f"data/{folder}/{name}" for folder in store.list(f"{life.directory}/data")
             for name in store.list(f"{life.directory}/data/{folder}")}
    left = {name for name in there - needed if "-try" in name or name.split("/")[1] not in life.copies}
    assert needed <= there and not left, sorted(left)
