"""Retention: which heads stay, and that nothing that one of them needs ever goes."""

import random
import threading
import time
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.checkpoint_dirs import FAILURES, MemoryStore, Run, all_objects, check_clean, check_whole
from tfadaptcp import leftovers
from tfadaptcp.checkpoint import at_once, commit, layout, retention
from tfadaptcp.checkpoint.faults import set_fault_hook
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.errors import FencedError, StoreUnavailableError


def names(store, directory="d"):
    return [manifest.name for manifest in commit.list_heads(store, directory)[0]]


def sequences(store, directory="d"):
    return [manifest.sequence for manifest in commit.list_heads(store, directory)[0]]


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_newest_heads_of_a_lineage_stay(keep):
    store = MemoryStore()
    run = Run(store, "d", keep=keep)
    for done in range(1, 12):
        run.checkpoint()
        assert sequences(store) == list(range(1, done + 1))[-keep:]
        check_whole(store, "d")
    run.collect()
    check_clean(store, "d")


def test_manifests_go_first_and_their_data_one_pass_later():
    store = MemoryStore()
    run = Run(store, "d", keep=1)
    first = run.checkpoint(collect=False)
    second = run.checkpoint(collect=False)
    third = run.checkpoint(collect=False)
    before = all_objects(store, "d")
    done = run.collect()
    assert done.heads == (first.name, second.name) and done.objects == ()
    assert all_objects(store, "d") == before
    done = run.collect()
    assert done.heads == () and set(done.objects) == before - {ref.path for ref in third.objects} != set()
    assert run.collect() == retention.Collected()


def test_a_differential_goes_with_its_head_while_the_increment_beside_it_stays():
    store = MemoryStore()
    run = Run(store, "d", keep=1, base_every=99)
    old = [run.checkpoint() for _ in range(3)][1]
    run.collect()
    kinds = {ref.kind: ref.path in all_objects(store, "d") for ref in old.objects if ref.sequence == old.sequence}
    assert kinds == {"increment": True, "differential": False, "dense": False}


def test_ancestors_of_other_runs_count():
    store = MemoryStore()
    first = Run(store, "d", keep=3)
    [first.checkpoint() for _ in range(3)]
    second = Run(store, "d", keep=3)  # re-publishes 3 as 4: counts once
    second.collect()
    assert sequences(store) == [1, 2, 3, 4]
    second.checkpoint()
    assert sequences(store) == [2, 3, 4, 5]
    second.checkpoint()
    assert sequences(store) == [3, 4, 5, 6]
    second.checkpoint()
    assert sequences(store) == [5, 6, 7]
    second.collect()
    check_clean(store, "d")


def test_heads_of_other_lineages_stay_for_ever():
    store = MemoryStore()
    other = Run(store, "d", keep=2)
    [other.checkpoint() for _ in range(3)]
    kept = names(store)
    fresh = Run(store, "d", keep=1, restore=False)
    for _ in range(8):
        fresh.checkpoint()
        check_whole(store, "d")
    assert names(store) == kept + [fresh.head.name]
    fresh.collect()
    check_clean(store, "d")


def test_an_abandoned_branch_ages_out():
    store = MemoryStore()
    first = Run(store, "d", keep=3)
    heads = [first.checkpoint() for _ in range(5)]  # 3, 4 and 5 are left
    second = Run(store, "d", keep=3, restore=heads[2].name)  # 6 is 3 again
    second.collect()
    assert sequences(store) == [3, 4, 5, 6], "the branch stays while the new lineage is short"
    second.checkpoint()
    assert sequences(store) == [3, 4, 5, 6, 7]
    second.checkpoint()
    assert sequences(store) == [3, 6, 7, 8], "3 and 6 are one"
    second.collect()
    check_clean(store, "d")


def test_a_branch_whose_fork_is_gone_still_belongs_to_the_family():
    store = MemoryStore()
    first = Run(store, "d", keep=3)
    heads = [first.checkpoint() for _ in range(5)]
    second = Run(store, "d", keep=3, restore=heads[2].name)
    del store.objects[f"d/manifests/{heads[2].name}.json"]
    [second.checkpoint() for _ in range(4)]
    second.collect()
    assert sequences(store) == [8, 9, 10]
    check_clean(store, "d")


def test_restarts_without_progress_do_not_pile_up():
    store = MemoryStore()
    Run(store, "d").checkpoint()
    for _ in range(6):
        last = Run(store, "d")
        last.collect()
    assert sequences(store) == [1, 7]
    last.checkpoint()
    assert sequences(store) == [1, 7, 8]
    check_whole(store, "d")


def test_attempts_in_progress_stay_and_failed_ones_go():
    store = MemoryStore()
    run = Run(store, "d")
    run.checkpoint()
    pending, failed = (layout.head_name(1, n, run.claim.run) for n in (50, 51))
    dead = layout.head_name(0, 3, "e" * 12)
    above = layout.head_name(2, 4, "e" * 12)
    for name in (pending, failed, dead, above):
        store.objects[f"d/{layout.data_path(name)}/x.seg"] = b"x"
    run.held.add(str(pending))
    done = run.collect()
    assert set(done.objects) == {f"{layout.data_path(name)}/x.seg" for name in (failed, dead)}
    run.held.clear()
    assert run.collect().objects == (f"{layout.data_path(pending)}/x.seg",)


def test_a_checkpoint_that_begins_or_commits_during_a_pass_is_safe():
    """Another thread of the coordinator makes a checkpoint between any two operations of the pass."""
    at = 0
    while True:
        at += 1
        store = MemoryStore()
        run = Run(store, "d", keep=1)
        [run.checkpoint(collect=False) for _ in range(3)]
        count = [0]

        def step(op, path):
            count[0] += 1
            if count[0] == at:
                run.checkpoint(collect=False)

        store.step = step
        run.collect()
        store.step = lambda op, path: None
        if count[0] < at:
            break
        check_whole(store, "d")
        assert names(store)[-1] == run.head.name
    assert at > 10


def test_the_start_up_probes_of_killed_processes_go():
    store = MemoryStore()
    run = Run(store, "d")
    run.checkpoint()
    store.objects["d/data/probe-0123456789ab"] = b"x"
    store.objects["d/data/mine/x"] = b"x"
    run.collect()
    assert "d/data/probe-0123456789ab" not in store.objects and "d/data/mine/x" in store.objects


def test_a_torn_manifest_goes_first_and_its_data_one_pass_later():
    store = MemoryStore()
    run = Run(store, "d", keep=1)
    [run.checkpoint() for _ in range(3)]
    torn = layout.head_name(1, 60, run.claim.run)
    above = layout.head_name(2, 61, run.claim.run)
    for name in (torn, above):
        store.objects[f"d/{layout.manifest_path(name)}"] = b'{"base'
        store.objects[f"d/{layout.data_path(name)}/x.seg"] = b"x"
    run.held.add(str(torn))
    run.collect()
    assert f"d/{layout.manifest_path(torn)}" in store.objects, "a commit of unknown outcome"
    run.held.clear()
    done = run.collect()
    assert done.heads == (str(torn),) and f"{layout.data_path(torn)}/x.seg" not in done.objects
    assert run.collect().objects == (f"{layout.data_path(torn)}/x.seg",)
    assert f"d/{layout.manifest_path(above)}" in store.objects and f"d/{layout.data_path(above)}/x.seg" in store.objects


def damage(store, manifest):
    path = f"d/{layout.manifest_path(manifest.head)}"
    store.objects[path] = store.objects[path].replace(b'"step"', b'"stop"')


def test_what_was_parsed_before_is_damaged_all_the_same_when_its_file_is():
    store = MemoryStore()
    run = Run(store, "d", keep=5)
    heads = [run.checkpoint() for _ in range(3)]
    parsed = dict(run.parsed)
    assert [item for _, item in parsed.values()] == heads
    whole = dict(store.objects)
    damage(store, heads[1])
    listed, damaged = commit.list_heads(store, "d", parsed)
    assert listed == [heads[0], heads[2]] and [item.head for item in damaged] == [heads[1].head]
    assert listed[0] is run.parsed[f"{heads[0].name}.json"][1], "it was parsed again"
    store.objects = whole
    assert commit.list_heads(store, "d", parsed) == (heads, [])


def test_a_rotten_manifest_keeps_what_it_may_need_until_it_is_old():
    store = MemoryStore()
    run = Run(store, "d", keep=2, base_every=99)
    heads = [run.checkpoint() for _ in range(4)]
    damage(store, heads[3])
    needed = {ref.path for ref in heads[3].objects}
    run.checkpoint()
    run.collect()
    assert needed <= all_objects(store, "d")
    run.checkpoint()
    run.collect()
    run.collect()
    assert sequences(store) == [5, 6]
    check_clean(store, "d")


def test_a_rotten_manifest_of_another_lineage_is_left_alone_with_its_data():
    store = MemoryStore()
    other = Run(store, "d", keep=2)
    heads = [other.checkpoint() for _ in range(4)]
    other.collect()
    before = all_objects(store, "d")
    damage(store, heads[3])
    damage(store, heads[2])
    fresh = Run(store, "d", keep=1, restore=False)
    for _ in range(6):
        fresh.checkpoint()
    assert before <= all_objects(store, "d")
    assert len(commit.list_heads(store, "d")[1]) == 2
    fresh.collect()
    assert all_objects(store, "d") - before == {ref.path for ref in fresh.head.objects}, \
        "what it can't have referenced goes all the same"


def test_the_newest_head_never_goes():
    """Even when the caller's own lineage is not the newest, and however few are to be kept."""
    store = MemoryStore()
    first = Run(store, "d", keep=1, run="a" * 12)
    first.checkpoint()
    head = first.head
    for _ in range(3):
        retention.collect(store, "d", first.claim, 1)
        assert names(store) == [head.name]
    check_whole(store, "d")


def test_a_fenced_coordinator_deletes_nothing():
    store = MemoryStore()
    old = Run(store, "d", keep=1)
    [old.checkpoint(collect=False) for _ in range(3)]
    new = Run(store, "d", keep=9)
    before = dict(store.objects)
    with pytest.raises(FencedError):
        old.collect()
    assert store.objects == before and new.head.origin == old.head.name


def test_the_claim_is_checked_again_before_data_goes():
    store = MemoryStore()
    run = Run(store, "d", keep=1)
    [run.checkpoint(collect=False) for _ in range(3)]
    run.collect()
    [run.checkpoint(collect=False) for _ in range(2)]
    before = all_objects(store, "d")

    def step(op, path):
        if op == "delete" and "/manifests/" in path:
            store.step = lambda op, path: None
            store.objects[f"d/claims/{layout.claim_name(9, 'c' * 12)}"] = b""

    store.step = step
    with pytest.raises(FencedError):
        run.collect()
    assert all_objects(store, "d") == before


def test_an_unreachable_store_deletes_nothing():
    store = MemoryStore()
    run = Run(store, "d", keep=1)
    [run.checkpoint(collect=False) for _ in range(3)]
    before = dict(store.objects)
    at = 0
    while True:
        at += 1
        count = [0]

        def step(op, path):
            count[0] += 1
            if op != "delete" and count[0] == at:
                raise StoreUnavailableError("down")
            if op == "delete":
                raise InterruptedError("reached the first deletion")

        store.step = step
        try:
            run.collect()
        except StoreUnavailableError:
            pass
        except InterruptedError:
            break
        assert store.objects == before
    assert at > 6


def test_empty_directories_go_too(tmp_path):
    store = Store()
    run = Run(store, str(tmp_path), keep=1)
    for _ in range(6):
        run.checkpoint()
    (tmp_path / "data" / str(layout.head_name(0, 1, "e" * 12))).mkdir()
    run.collect()
    check_clean(store, str(tmp_path))


@given(seed=st.integers(0, 10**9))
@settings(max_examples=30, deadline=None)
def test_random_lives_of_a_directory(seed):
    """Restarts, rollbacks, fresh starts, failed writes and torn manifests in any order, against simple rules."""
    rng = random.Random(seed)
    store = MemoryStore()
    keep = rng.randint(1, 3)
    run = None
    for _ in range(40):
        action = rng.random()
        if run is None or action < 0.15:
            heads = names(store)
            restore = rng.choice([True, True, False] + heads)
            run = Run(store, "d", keep=keep, restore=restore, base_every=rng.randint(1, 4))
        elif action < 0.25:
            countdown = [rng.randint(1, 12)]

            def step(op, path):
                countdown[0] -= 1
                if countdown[0] == 0:
                    if op == "put":
                        store.objects.setdefault(path, b"{")
                    raise StoreUnavailableError("failed")

            store.step = step
            try:
                run.checkpoint()
            except FAILURES:
                pass
            store.step = lambda op, path: None
        else:
            run.checkpoint(collect=rng.random() < 0.8)
        heads = check_whole(store, "d")
        if run.head is not None:
            assert heads[-1].name == run.head.name, "the newest head is the last one committed"
    run.checkpoint()
    run.held.clear()
    for _ in range(3):
        run.collect()
    check_whole(store, "d")
    check_clean(store, "d")
    lineage = []
    by_name = {manifest.name: manifest for manifest in commit.list_heads(store, "d")[0]}
    step_back = by_name[run.head.name]
    while step_back is not None:
        lineage.append(step_back.identity)
        step_back = by_name.get(step_back.parent)
    assert len(lineage) <= keep


@pytest.mark.parametrize("directory, most", [("d", 1), ("gs://bucket/d", at_once.REMOTE_CALLS)])
def test_a_pass_whose_time_is_over_leaves_the_rest_to_the_next(directory, most):
    store = MemoryStore()
    run = Run(store, directory, keep=1, base_every=20)
    for _ in range(17):
        run.checkpoint(collect=False)
    run.collect()  # manifests
    found = all_objects(store, directory)
    garbage = found - {ref.path for ref in run.head.objects}
    assert len(garbage) > most
    gone = set()
    while gone != garbage:
        done = retention.collect(store, directory, run.claim, 1, (), run.parsed, seconds=0.0)
        assert 0 < len(done.objects) <= most and gone.isdisjoint(done.objects)
        gone |= set(done.objects)
        assert found - all_objects(store, directory) == gone
        # What is left of a checkpoint that is half removed is none, for anybody.
        assert [manifest.name for manifest in check_whole(store, directory)] == [run.head.name]
    assert retention.collect(store, directory, run.claim, 1, (), run.parsed) == retention.Collected()
    check_clean(store, directory)


def test_checkpoints_go_on_beside_what_is_left_to_remove(tmp_path, monkeypatch):
    """A pass took as long as it took, and every checkpoint that came meanwhile was skipped."""
    slow = 0.02
    monkeypatch.setattr(leftovers, "_PASS_SECONDS", slow / 2)
    store, directory = Store(), str(tmp_path)
    run = Run(store, directory, keep=1, base_every=4)
    passes = leftovers.Leftovers(store, directory, max_to_keep=1)
    for _ in range(9):
        run.checkpoint(collect=False)
    assert passes.tidy(run.claim, None)  # manifests
    deleted = []

    def delete_slowly(op, path):
        if op == "delete" and path.endswith(".seg"):
            deleted.append(path)
            time.sleep(slow)

    set_fault_hook(delete_slowly)
    try:
        passes.collect(run.claim, None)
        assert len(deleted) == 1
        for turn in range(200):
            if turn < 4:
                run.checkpoint(collect=False)
            before = len(deleted)
            passes.collect(run.claim, None)
            assert check_whole(store, directory)[-1].name == run.head.name
            if turn > 5 and len(deleted) == before:
                break
        check_clean(store, directory)
        # And where there is no room there is no limit, and no half of an attempt.
        for _ in range(6):
            run.checkpoint(collect=False)
        assert passes.tidy(run.claim, None) and passes.tidy(run.claim, None)
    finally:
        set_fault_hook(None)
    assert sequences(store, directory) == [run.head.sequence]
    check_clean(store, directory)


def test_a_pass_may_take_a_part_of_the_time_since_the_one_before(monkeypatch):
    """With less, a store that is slow to delete would have more and more to be removed."""
    store, now, told = MemoryStore(), [1000.0], []
    run = Run(store, "d")
    monkeypatch.setattr(leftovers, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(retention, "collect", lambda *args: told.append(args[-1]))
    passes = leftovers.Leftovers(store, "d", 1)
    for seconds in (0, 10, 600):
        now[0] += seconds
        passes.collect(run.claim, None)
    assert passes.tidy(run.claim, None)
    assert told == [5.0, 5.0, 150.0, None]


def test_directories_of_a_remote_store_are_removed_at_a_time():
    class Together(MemoryStore):
        two = threading.Barrier(2, timeout=60)
        removed = []

        def remove_dir(self, directory):
            self.two.wait()
            self.removed.append(directory)

    store = Together()
    directories = [f"gs://bucket/d/data/{i}" for i in range(6)]
    store.remove_dirs(directories)
    assert sorted(store.removed) == directories


def test_what_is_left_alone_is_told_once(tmp_path, caplog):
    run = Run(Store(), str(tmp_path), keep=99)
    rotten = tmp_path / layout.manifest_path(run.checkpoint().head)
    rotten.write_bytes(rotten.read_bytes().replace(b'"step"', b'"stop"'))
    strays = [tmp_path / "claims" / "mine", tmp_path / "data" / "mine"]
    for stray in strays:
        stray.write_bytes(b"")
    for _ in range(5):
        run.checkpoint()
    for told in (f"Ignoring {strays[0]}", f"Leaving {strays[1]} alone",
                 f"Keeping all data that a damaged manifest may need: {rotten}"):
        assert caplog.text.count(told) == 1
