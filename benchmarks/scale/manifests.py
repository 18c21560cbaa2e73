"""What an object costs in a manifest: bytes, and seconds of the coordinator's Python, which training shares.

    python -m benchmarks.scale.manifests --objects 30000 --ps 100

Manifests of that many objects, made as `completing.complete` makes them, through what commits and reads them: `commit.commit`,
`commit.list_heads`, `retention.collect`, all in a store in memory.
"""

import argparse
import dataclasses
import json
import tracemalloc
from typing import Callable, Dict, Tuple

from benchmarks import without_tensorflow  # noqa: F401  (first)
from benchmarks.measuring import timed
from benchmarks.scale.inputs import Input, Inputs
from tfadaptcp.checkpoint import chain, claims, commit, layout, retention
from tfadaptcp.checkpoint.manifest import GroupSpec, Manifest, ObjectRef, TableSpec, sum_rows
from tfadaptcp.checkpoint.store import Store, join

_RUN = "0123456789ab"
_SEGMENT = 64 << 20
_KEPT = 3  # heads, as by default
_NAMES = ("emb-parameter", "emb-parameter/m", "emb-parameter/v")


class MemoryStore(Store):
    """Objects in a dictionary: what is measured is what the coordinator itself does."""

    def __init__(self):
        super().__init__()
        self.objects: Dict[str, bytes] = {}

    def put(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    def read(self, path: str) -> bytes:
        return self.objects[path]

    def size(self, path: str) -> int:
        return len(self.objects[path])

    def delete(self, path: str, durable: bool = True) -> None:
        self.objects.pop(path, None)

    def list(self, directory: str):
        start = directory + "/"
        return sorted({path[len(start):].split("/")[0] for path in self.objects if path.startswith(start)})

    def sync_names(self, directory: str) -> None:
        pass

    def remove_dir(self, directory: str) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=30_000)
    parser.add_argument("--ps", type=int, default=100)
    args = parser.parse_args()
    print(json.dumps(run(args.objects, args.ps)))


def measure(objects: int, ps: int) -> Inputs:
    """The inputs that `run` gives."""
    found = run(objects, ps)
    print(f"{objects} objects: {found}", flush=True)
    command = f"python -m benchmarks.scale.manifests --objects {objects} --ps {ps}"
    words = {"bytes": ("B", "an object in a manifest"), "commit_us": ("us", "CPU of a commit, for each object"),
             "read_us": ("us", "CPU of reading a manifest, for each object"),
             "collect_us": ("us", "CPU of retention after a commit, for each object of a head"),
             "memory": ("B", "of the coordinator's memory for an object, with the heads that retention keeps in mind")}
    return {f"manifest_{name}": Input(found[name], *words[name], command) for name in words}


def run(objects: int, ps: int) -> Dict[str, float]:
    """Commits and reads a base of so many objects, by so many servers: bytes and microseconds for each object."""
    store = MemoryStore()
    claim = claims.take(store, "d", _RUN)
    first = _head(1, objects, ps)
    # The next has the same base, and an increment that is nothing beside it.
    second = dataclasses.replace(first, sequence=2, parent=first.name)
    commit.commit(store, "d", first, claim)
    size = len(store.read(join("d", layout.manifest_path(first.head))))
    committed, _ = _cpu(lambda: commit.commit(store, "d", second, claim, first))
    for ref in first.objects:
        store.objects[join("d", ref.path)] = b""
    read, (heads, damaged) = _cpu(lambda: commit.list_heads(store, "d"))
    if len(heads) != 2 or damaged or heads[-1] != second:
        raise RuntimeError(f"Received: {len(heads)} heads, damaged: {damaged}. Expected: the 2 committed")
    parsed: commit.Parsed = {}
    tracemalloc.start()
    retention.collect(store, "d", claim, _KEPT, (), parsed)
    memory = tracemalloc.get_traced_memory()[0] / 2 + size  # of a head; its text is the store's here
    tracemalloc.stop()
    third = dataclasses.replace(second, sequence=3, parent=second.name)
    commit.commit(store, "d", third, claim, second)
    collected, done = _cpu(lambda: retention.collect(store, "d", claim, _KEPT, (), parsed))
    if done != retention.Collected() or len(parsed) != 3:
        raise RuntimeError(f"Received: {done} collected, {len(parsed)} heads. Expected: nothing, 3")
    return {"bytes": size / objects, "commit_us": 1e6 * committed / objects, "read_us": 1e6 * read / 2 / objects,
            "collect_us": 1e6 * collected / objects, "memory": _KEPT * memory / objects}


def _cpu(call: Callable) -> Tuple[float, object]:
    found = []
    return timed(lambda: found.append(call())).cpu, found[0]


def _head(sequence: int, objects: int, ps: int) -> Manifest:
    head = layout.head_name(1, sequence, _RUN)
    written = [ObjectRef(f"{layout.data_path(head)}/base-ps{i % ps}-{i // ps:05d}.seg", "base", sequence, i % ps, _SEGMENT,
                         (i * 2654435761) % (1 << 32), {_NAMES[0]: 85_000 + i % 1000}) for i in range(objects)]
    group = GroupSpec(_NAMES[0], "int64", ps, "floormod", tuple(TableSpec(name, "float32", 64) for name in _NAMES),
                      tuple(range(ps)))
    refs = chain.next_objects(None, True, written)
    return Manifest(_RUN, 1, sequence, base_sequence=sequence, groups=(group,), objects=refs, rows=sum_rows(refs),
                    stats=chain.chain_stats(None, True, refs, sequence, (group,)))


if __name__ == "__main__":
    main()
