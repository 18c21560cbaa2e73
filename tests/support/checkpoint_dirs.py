"""Doubles for tests of the checkpoint directory: a store in memory, and a run that makes small checkpoints."""

from __future__ import annotations

import zlib
from typing import Callable, Iterable, Optional

from tfadaptcp.checkpoint import claims, commit, layout, retention
from tfadaptcp.checkpoint.manifest import (DenseSpec, GroupSpec, Manifest, ObjectRef, TableSpec, republish, sum_rows,
                                           utc_now)
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import CommitOutcomeUnknownError

GROUPS = (GroupSpec("emb", "int64", 2, "mod", (TableSpec("emb", "float32", 4), TableSpec("emb/m", "float32", 4))),)
DENSE = (DenseSpec("w", "float32", (3, 2)),)
FAILURES = (OSError, RuntimeError)  # StoreUnavailableError, SaveFailedError


class MemoryStore(Store):
    """Objects in a dict. `step(op, path)` is called before each primitive operation."""

    def __init__(self, step: Optional[Callable[[str, str], None]] = None):
        super().__init__()
        self.objects: dict[str, bytes] = {}
        self.step = step or (lambda op, path: None)

    def put(self, path, data):
        self.step("put", path)
        if path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = data

    def sync(self, path):
        self.read(path)

    def sync_names(self, directory):
        self.step("sync", directory)

    def read(self, path):
        self.step("read", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def list(self, directory):
        self.step("list", directory)
        start = directory + "/"
        return sorted({path[len(start):].split("/")[0] for path in self.objects if path.startswith(start)})

    def size(self, path):
        return len(self.read(path))

    def delete(self, path, durable=True):
        self.step("delete", path)
        self.objects.pop(path, None)

    def remove_dir(self, directory):
        pass


class Run:
    """A coordinator reduced to its files: claims, writes segments, commits and collects as the manager does."""

    def __init__(self, store: Store, directory: str, keep: int = 2, restore: bool | str = True,
                 run: str | None = None, base_every: int = 3):
        self.store, self.directory, self.keep, self.base_every = store, directory, keep, base_every
        self.held: set[str] = set()
        self.parsed: commit.Parsed = {}  # as a manager's passes have it
        self.head: Manifest | None = None
        self.committed: list[Manifest] = []
        self.claim = claims.take(store, directory, run)
        source = (commit.load(store, directory, restore) if isinstance(restore, str)
                  else commit.latest(store, directory) if restore else None)
        self.sequence = commit.next_sequence(store, directory)
        if source is not None:
            self._commit(republish(source, self.claim, self._next()))

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence - 1

    def checkpoint(self, collect: bool = True) -> Manifest:
        """Makes one checkpoint; raises what went wrong, after which another one may be tried."""
        sequence = self._next()
        name = layout.head_name(self.claim.generation, sequence, self.claim.run)
        self.held.add(str(name))
        try:
            manifest = self._commit(self._write(name))
        except CommitOutcomeUnknownError:
            raise  # the data stays held
        except BaseException:
            self.held.discard(str(name))
            raise
        self.held.discard(str(name))
        if collect:
            self.collect()
        return manifest

    def collect(self) -> retention.Collected:
        return retention.collect(self.store, self.directory, self.claim, self.keep, set(self.held), self.parsed)

    def _write(self, name: layout.HeadName) -> Manifest:
        parent = self.head
        if parent is not None:
            inherited = [ref for ref in parent.objects if ref.kind in ("base", "increment")]
            base = parent.base_sequence
            kinds = ("increment", "differential", "dense")
        if parent is None or len({ref.sequence for ref in inherited}) > self.base_every:
            inherited, base, kinds = [], name.sequence, ("base", "dense")
        objects = list(inherited)
        for kind in kinds:
            for ps in range(1 if kind == "dense" else 2):
                path = f"{layout.data_path(name)}/{kind}-ps{ps}-0.seg"
                data = f"{path} {kind}".encode()
                self.store.put(join(self.directory, path), data)
                rows = {} if kind == "dense" else {"emb": ps + 1}
                objects.append(ObjectRef(path, kind, name.sequence, ps, len(data), zlib.crc32(data), rows))
        return Manifest(
            run=name.run, generation=name.generation, sequence=name.sequence,
            parent=parent.name if parent else None, created=utc_now(), base_sequence=base, groups=GROUPS,
            dense=DENSE, objects=tuple(objects), rows=sum_rows(objects), step=10 * name.sequence)

    def _commit(self, manifest: Manifest) -> Manifest:
        parent = self.head if self.head is not None and manifest.parent == self.head.name else None
        commit.commit(self.store, self.directory, manifest, self.claim, parent)
        self.head = manifest
        self.committed.append(manifest)
        return manifest


def all_objects(store: Store, directory: str) -> set[str]:
    """Returns the relative paths of all data objects."""
    return {f"data/{name}/{file}" for name in store.list(join(directory, "data"))
            for file in store.list(join(directory, "data", name))}


def check_whole(store: Store, directory: str) -> list[Manifest]:
    """Asserts that every head on offer can be restored: each object there, whole and unchanged."""
    heads, _ = commit.list_heads(store, directory)
    for manifest in heads:
        for ref in manifest.objects:
            data = store.read(join(directory, ref.path))
            assert (len(data), zlib.crc32(data)) == (ref.bytes, ref.crc32c), (manifest.name, ref.path)
    return heads


def check_clean(store: Store, directory: str, held: Iterable[str] = ()) -> None:
    """Asserts that the directory holds nothing that no head needs, but the data of attempts in progress, `held`."""
    heads, damaged = commit.list_heads(store, directory)
    assert not damaged
    found = {path for path in all_objects(store, directory) if path.split("/")[1] not in set(held)}
    needed = {ref.path for manifest in heads for ref in manifest.objects}
    assert found - needed == set(), "left over"
    assert needed <= all_objects(store, directory)
    for name in store.list(join(directory, "data")):
        assert store.list(join(directory, "data", name)), f"{name} is empty"
