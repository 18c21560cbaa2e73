"""Many calls to a store at a time: no more than there may be, each item once, and an error ends it."""

import threading
import time

import pytest

from tests.support.checkpoint_dirs import MemoryStore, Run, all_objects, check_clean, check_whole
from tfadaptcp import background
from tfadaptcp.checkpoint import at_once, commit, retention
from tfadaptcp.errors import StoreUnavailableError

REMOTE = "gs://bucket/d"


@pytest.mark.parametrize("calls", [1, 3, 100])
def test_each_item_once_and_no_more_at_a_time(calls):
    lock, now, most, done = threading.Lock(), [0], [0], []

    def call(item):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        with lock:
            done.append(item)
            now[0] -= 1

    at_once.each(call, iter(range(50)), calls)
    assert sorted(done) == list(range(50)) and most[0] <= calls
    at_once.each(call, [], calls)
    assert len(done) == 50


def test_calls_are_made_at_a_time():
    together = threading.Barrier(4, timeout=60)
    at_once.each(lambda item: together.wait(), range(12), 4)


def test_one_at_a_time_keeps_the_order_and_the_thread():
    done = []
    at_once.each(lambda item: done.append((item, threading.get_ident())), range(5), 1)
    assert done == [(item, threading.get_ident()) for item in range(5)]


@pytest.mark.parametrize("calls", [1, 4])
def test_an_error_ends_it_once_the_others_have_ended(calls):
    items, begun, ended = 300_000, [], []
    together = threading.Barrier(calls, timeout=60)

    def call(item):
        begun.append(item)
        if item < calls:
            together.wait()
        if item == 0:
            raise StoreUnavailableError("item 0")
        ended.append(item)

    with pytest.raises(StoreUnavailableError, match="item 0"):
        at_once.each(call, range(items), calls)
    assert 0 in begun and len(begun) < items and sorted(ended) == sorted(set(begun) - {0})


def test_nothing_goes_on_when_there_are_no_more_threads(monkeypatch):
    """The pass that it belongs to has ended then, and may have been replaced by another job's."""
    start, started, begun, ended = background.start, [], [], []

    def start_two(call, name):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(name)
        return start(call, name)

    def call(item):
        begun.append(item)
        time.sleep(0.001)
        ended.append(item)

    monkeypatch.setattr(background, "start", start_two)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        at_once.each(call, range(1000), 4)
    assert sorted(begun) == sorted(ended) and len(ended) < 1000


def test_retention_deletes_remote_objects_at_a_time_and_nothing_else():
    waiting = [None]

    def step(op, path):
        if op == "delete" and "/data/" in path and waiting[0] is not None:
            waiting[0].wait()

    store = MemoryStore(step)
    run = Run(store, REMOTE, keep=1)
    for _ in range(5):
        last = run.checkpoint(collect=False)
    run.collect()  # manifests
    garbage = all_objects(store, REMOTE) - {ref.path for ref in last.objects}
    assert len(garbage) >= 4
    waiting[0] = threading.Barrier(2, timeout=60)
    if len(garbage) % 2:  # one that has no other to wait for
        store.objects.pop(f"{REMOTE}/{garbage.pop()}")
    assert set(run.collect().objects) == garbage
    check_whole(store, REMOTE)
    check_clean(store, REMOTE)


def test_a_deletion_that_fails_is_told_and_made_by_the_next_pass():
    broken = set()

    def step(op, path):
        if op == "delete" and path in broken:
            raise StoreUnavailableError(path)

    store = MemoryStore(step)
    run = Run(store, REMOTE, keep=1)
    for _ in range(4):
        last = run.checkpoint(collect=False)
    run.collect()
    stays = min(all_objects(store, REMOTE) - {ref.path for ref in last.objects})
    broken.add(f"{REMOTE}/{stays}")
    with pytest.raises(StoreUnavailableError):
        run.collect()
    assert stays in all_objects(store, REMOTE)
    broken.clear()
    check_whole(store, REMOTE)
    run.collect()
    check_clean(store, REMOTE)
    assert run.collect() == retention.Collected()


@pytest.mark.parametrize("directory", [REMOTE, "d"])
def test_a_head_is_found_by_listings_or_by_sizes(directory):
    ops = []
    store = MemoryStore(lambda op, path: ops.append(op))
    run = Run(store, directory, keep=2)
    run.checkpoint()
    head = run.checkpoint()
    assert len({ref.sequence for ref in head.objects}) == 2
    ops.clear()
    assert commit.is_there(store, directory, head)
    assert ops == (["list"] * 2 if directory == REMOTE else ["read"] * len(head.objects))  # of sizes, in this store
    assert commit.is_whole(store, directory, head)
    path = f"{directory}/{head.objects[0].path}"
    data = store.objects[path]
    store.objects[path] = data + b"x"
    assert commit.is_there(store, directory, head) == (directory == REMOTE)
    assert not commit.is_whole(store, directory, head)
    del store.objects[path]
    assert not commit.is_there(store, directory, head) and not commit.is_whole(store, directory, head)
