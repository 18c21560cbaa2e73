"""What every store must do for `tfadaptcp.checkpoint.store.Store`: run in a process that can reach it, on a new directory.

Each function of `CHECKS` takes the directory and raises what is not as it should be.
"""

from __future__ import annotations

import concurrent.futures

import pytest

import tfadaptcp  # noqa: F401 (with its operations, as in a job)
from tfadaptcp.checkpoint import faults
from tfadaptcp.checkpoint.store import Store, join

LARGE = bytes(range(256)) * (3 << 12)  # 3 MiB
# Heads, segments, further attempts at segments, manifests and claims, as `layout.py` makes them.
NAMES = ["0000000001-0000000002-c28ec6c01ce8", "base-ps0-00000.seg", "dense-ps12-00001-try2.seg", "A_b.c+d=e-f",
         "0000000001-0000000002-c28ec6c01ce8.json", "0000000001-c28ec6c01ce8"]


def put_read_size_list_delete(directory: str) -> None:
    store = Store()
    for name, data in (("empty", b""), ("one", b"x"), ("large", LARGE)):
        path = join(directory, "a", "b", name)
        store.put(path, data)
        assert store.read(path) == data and store.size(path) == len(data), name
    assert store.list(join(directory, "a", "b")) == ["empty", "large", "one"]
    assert store.list(join(directory, "a")) == ["b"]
    store.sync(join(directory, "a", "b", "one"))
    store.sync_names(join(directory, "a", "b"))
    for name in ("large", "empty"):
        store.delete(join(directory, "a", "b", name))
        store.delete(join(directory, "a", "b", name))
    assert store.list(join(directory, "a", "b")) == ["one"]


def an_object_can_be_put_again_after_its_deletion(directory: str) -> None:
    store, path = Store(), join(directory, "o")
    for data in (b"first", b"second one"):
        store.put(path, data)
        assert store.read(path) == data and store.size(path) == len(data)
        store.delete(path)
        with pytest.raises(FileNotFoundError):
            store.read(path)


def only_empty_directories_are_removed(directory: str) -> None:
    store, folder = Store(), join(directory, "a", "b")
    store.put(join(folder, "o"), b"1")
    store.remove_dir(folder)
    store.remove_dir(join(directory, "a"))
    assert store.list(folder) == ["o"] and store.read(join(folder, "o")) == b"1"
    store.delete(join(folder, "o"))
    store.remove_dir(folder)
    store.remove_dir(folder)
    assert store.list(join(directory, "a")) == [] and store.list(folder) == []


def what_comes_into_a_directory_while_it_is_removed_stays(directory: str) -> None:
    store, folder = Store(), join(directory, "a")
    store.put(join(folder, "o"), b"1")
    store.delete(join(folder, "o"))

    def hook(operation: str, path: str) -> None:
        if operation == "delete" and path == folder:
            faults.set_fault_hook(None)
            store.put(join(folder, "late"), b"2")

    faults.set_fault_hook(hook)
    try:
        store.remove_dir(folder)
    finally:
        faults.set_fault_hook(None)
    assert store.list(folder) == ["late"] and store.read(join(folder, "late")) == b"2"


def put_never_overwrites(directory: str) -> None:
    store = Store()
    store.put(join(directory, "o"), b"first")
    with pytest.raises(FileExistsError):
        store.put(join(directory, "o"), b"second")
    assert store.read(join(directory, "o")) == b"first"


def what_is_not_there(directory: str) -> None:
    store = Store()
    assert store.list(directory) == [] and store.list(join(directory, "x", "y")) == []
    for call in (store.read, store.size):
        with pytest.raises(FileNotFoundError):
            call(join(directory, "o"))
    store.delete(join(directory, "o"))
    store.remove_dir(join(directory, "x"))


def names_of_our_layout(directory: str) -> None:
    store = Store()
    for name in NAMES:
        store.put(join(directory, name, name), name.encode())
    assert store.list(directory) == sorted(NAMES)
    for name in NAMES:
        assert store.list(join(directory, name)) == [name]
        assert store.read(join(directory, name, name)) == name.encode()


def directories_named_by_users(directory: str) -> None:
    """Spaces, letters beyond ASCII, and what URLs give a meaning to."""
    store = Store()
    for name in ("run 7", "modèle", "a+b=c", "100%25", "x&y", "#1"):
        store.put(join(directory, name, "o"), name.encode())
        assert store.list(join(directory, name)) == ["o"]
        assert store.read(join(directory, name, "o")) == name.encode()
    assert store.list(directory) == sorted(("run 7", "modèle", "a+b=c", "100%25", "x&y", "#1"))


def a_neighbour_whose_name_goes_on_is_another(directory: str) -> None:
    """Object stores list by prefix."""
    store = Store()
    store.put(join(directory, "a", "o"), b"1")
    store.put(join(directory, "ab", "p"), b"2")
    assert store.list(join(directory, "a")) == ["o"]
    with pytest.raises(FileNotFoundError):
        store.read(join(directory, "a", "p"))
    store.delete(join(directory, "ab", "p"))
    assert store.list(join(directory, "a")) == ["o"]


def many_names(directory: str) -> None:
    """More than some stores list in one answer would take too long here; enough to be out of order."""
    store = Store()
    names = [f"{i * 7919 % 10007:05d}" for i in range(40)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(join(directory, name), name.encode()), names))
    assert store.list(directory) == sorted(names)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda name: store.read(join(directory, name)), names)) == [n.encode() for n in names]


def writers_of_different_names_at_once(directory: str) -> None:
    store = Store()

    def write(i: int) -> None:
        for j in range(4):
            store.put(join(directory, "data", str(i), str(j)), bytes([i]) * (100_000 * j + 1))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    for i in range(8):
        assert store.list(join(directory, "data", str(i))) == ["0", "1", "2", "3"]
        for j in range(4):
            assert store.read(join(directory, "data", str(i), str(j))) == bytes([i]) * (100_000 * j + 1)


def the_probe_leaves_nothing(directory: str) -> None:
    Store().check_supported(directory)
    Store().check_writable(directory)
    assert Store().list(join(directory, "data")) == []


CHECKS = [put_read_size_list_delete, an_object_can_be_put_again_after_its_deletion, only_empty_directories_are_removed,
          what_comes_into_a_directory_while_it_is_removed_stays, put_never_overwrites, what_is_not_there,
          names_of_our_layout, directories_named_by_users, a_neighbour_whose_name_goes_on_is_another, many_names,
          writers_of_different_names_at_once, the_probe_leaves_nothing]
