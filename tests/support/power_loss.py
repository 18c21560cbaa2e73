"""What a loss of power leaves on the disk after any operation of a traced job, and whether it will do.

A trace (see ops/io/local/store_faults.h) has every operation of a job, native and Python alike, and keeps what was
deleted. `Disk` makes the operations again, in memory, and knows what has reached the platter by then: of a file, the
bytes before its last fsync, if there was one; of a directory, the names as of its last fsync. Whatever else was done may
have arrived or not, each directory and file for itself: `MODES` are the extremes. Directories that were there before the
job count as made a moment ago by a process that died, so that nobody has synced their names.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator

SYNCS = ("fsync", "fsync_dir")
# (names of claims and manifests, names of data, bytes of files): whether those that nobody waited for arrived.
MODES = [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]
ALL_ARRIVED = (True, True, True)  # what a process leaves that dies


@dataclasses.dataclass(frozen=True)
class Operation:
    number: int
    kind: str
    path: str
    size: int  # of the file before the operation


class Trace:
    """A job's operations, the bytes of all its files, and the objects that each of its manifests names."""

    def __init__(self, folder: str, directory: str):
        self.directory = directory
        with open(os.path.join(folder, "log"), encoding="utf-8") as file:
            parts = [line.rstrip("\n").split(" ", 3) for line in file]
        self.operations = [Operation(int(number), kind, path, int(size)) for number, kind, size, path in parts]
        self.content: dict[str, bytes] = {}
        for operation in self.operations:
            kept = os.path.join(folder, str(operation.number))
            if operation.kind == "create" and os.path.exists(operation.path):
                self.content[operation.path] = _read(operation.path)
            elif operation.kind == "delete" and os.path.exists(kept):
                self.content[operation.path] = _read(kept)
        self.size_after: dict[int, int] = {}
        last: dict[str, int] = {}
        for operation in reversed(self.operations):
            self.size_after[operation.number] = last.get(operation.path, len(self.content.get(operation.path, b"")))
            if operation.size >= 0:
                last[operation.path] = operation.size
        self.objects = {self.relative(path): [item["path"] for item in json.loads(data)["objects"]]
                        for path, data in self.content.items() if path.endswith(".json")}

    def relative(self, path: str) -> str:
        return os.path.relpath(path, self.directory)


class _File:
    def __init__(self, path: str):
        self.path, self.written, self.synced = path, 0, None


class _Directory:
    def __init__(self):
        self.names: dict[str, object] = {}
        self.durable: dict[str, object] = {}


class Disk:
    """The disk while the operations of a trace are made, one after the other."""

    def __init__(self, trace: Trace):
        self._trace = trace
        self._root = _Directory()
        self.acknowledged: list[str] = []  # relative paths of claims and manifests, oldest first
        made = {operation.path for operation in trace.operations if operation.kind == "mkdir"}
        for operation in trace.operations:
            folder = os.path.dirname(operation.path)
            if operation.kind == "mkdir" and folder not in made:
                self._find(folder, make=True)

    def make(self, operation: Operation, sync: bool = True) -> None:
        """Makes the next operation; `sync=False`: an fsync that is none."""
        folder, name = os.path.split(operation.path)
        if operation.kind == "acknowledged":
            self.acknowledged.append(self._trace.relative(operation.path))
        elif operation.kind == "mkdir":
            self._find(folder).names.setdefault(name, _Directory())
        elif operation.kind == "create":
            self._find(folder).names[name] = _File(operation.path)
        elif operation.kind == "write":
            self._find(folder).names[name].written = self._trace.size_after[operation.number]
        elif operation.kind == "delete":
            node = self._find(folder).names.get(name)
            if not (isinstance(node, _Directory) and node.names):
                self._find(folder).names.pop(name, None)
        elif operation.kind == "fsync" and sync:
            file = self._find(folder).names[name]
            file.synced = file.written
        elif operation.kind == "fsync_dir" and sync:
            node = self._find(operation.path)
            node.durable = dict(node.names)

    def left(self, mode: tuple[bool, bool, bool]) -> dict[str, int]:
        """{relative path: bytes of it that are there} of the checkpoint directory after a loss of power now."""
        node = self._root
        for part in self._trace.directory.strip("/").split("/"):
            node = (node.names if mode == ALL_ARRIVED else node.durable).get(part)
            if node is None:
                return {}
        found: dict[str, int] = {}
        for area, child in (node.names if mode == ALL_ARRIVED else node.durable).items():
            self._collect(child, area, mode[1] if area == "data" else mode[0], mode[2], found)
        return found

    def _collect(self, node, path: str, names: bool, content: bool, found: dict[str, int]) -> None:
        if isinstance(node, _File):
            if content:
                found[path] = node.written
            elif node.synced is not None or names:
                found[path] = node.synced or 0
            return
        for name, child in (node.names if names else node.durable).items():
            self._collect(child, f"{path}/{name}", names, content, found)

    def _find(self, path: str, make: bool = False) -> _Directory:
        node = self._root
        for part in path.strip("/").split("/"):
            if part:
                node = node.names.setdefault(part, _Directory()) if make else node.names[part]
        return node


def fault_of(trace: Trace, disk: Disk) -> str:
    """What a loss of power now would break, "" if nothing: see the promises in docs/crashes.md."""
    for mode in MODES:
        left = disk.left(mode)
        whole = {path for path, size in left.items()
                 if size == len(trace.content[os.path.join(trace.directory, path)])}
        for manifest in whole & trace.objects.keys():
            lacks = [path for path in trace.objects[manifest] if path not in whole]
            if lacks:
                return f"{manifest} is on offer without {lacks[0]}"
        for path in _still_owed(disk.acknowledged):
            if path not in whole:
                return f"{path} was acknowledged"
    return ""


def _still_owed(acknowledged: list[str]) -> Iterator[str]:
    """The last claim and the last manifest: the ones before may have gone since."""
    for area in ("claims/", "manifests/"):
        yield from [path for path in acknowledged if path.startswith(area)][-1:]


def write_out(trace: Trace, left: dict[str, int], directory: str) -> None:
    """Makes a directory as the loss of power left it."""
    os.makedirs(directory)
    for path, size in left.items():
        target = os.path.join(directory, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(trace.content[os.path.join(trace.directory, path)][:size])


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
