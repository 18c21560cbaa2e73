"""A stale coordinator that is still alive, and the one that came after it, at every interleaving of a few switches.

Each schedule hands over between the two before some operation of the store: the stale one hangs there, and goes on
later. Whatever the schedule, the one with the higher claim keeps all it needs, the other stops.
"""

import copy
import functools
import itertools
import threading

import pytest

from tests.support.checkpoint_dirs import MemoryStore, Run, check_clean, check_whole
from tfadaptcp.checkpoint import claims, commit
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.errors import FencedError, SaveFailedError

OLD, NEW = "b" * 12, "a" * 12  # by generation, not by run, is the new one above


class Switches:
    """Runs two jobs, one at a time; hands over to the other after a number of operations, given for each turn."""

    def __init__(self, store, jobs, turns, visible_only):
        self.store, self.turns, self.visible_only = store, list(turns), visible_only
        self.gates = [threading.Semaphore(0) for _ in jobs]
        self.done = [False, False]
        self.counts = [0, 0]
        self.me = {}
        self.left = self.turns.pop(0) if self.turns else None
        self.threads = [threading.Thread(target=self._run, args=(i, job), daemon=True) for i, job in enumerate(jobs)]

    def step(self, op, path):
        me = self.me.get(threading.get_ident())
        if me is None or self.visible_only and not _is_visible(op, path):
            return
        if self.left == 0 and not self.done[1 - me]:
            self._next_turn()
            self.gates[1 - me].release()
            assert self.gates[me].acquire(timeout=20)
        elif self.left == 0:
            self._next_turn()
        self.counts[me] += 1
        if self.left is not None:
            self.left -= 1

    def _next_turn(self):
        self.left = self.turns.pop(0) if self.turns else None

    def go(self):
        self.store.step = self.step
        for thread in self.threads:
            thread.start()
        self.gates[0].release()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        self.store.step = lambda op, path: None
        return self.counts

    def _run(self, me, job):
        assert self.gates[me].acquire(timeout=20)
        self.me[threading.get_ident()] = me
        job()
        self.done[me] = True
        self.gates[1 - me].release()


def _is_visible(op, path):
    if op == "read" or op == "list" and path.startswith("d/data/"):
        return False
    # Of the objects of one attempt only the first: nobody can tell it from the others.
    return op != "sync" and not (op == "put" and path.startswith("d/data/") and "dense" not in path)


@pytest.fixture(autouse=True)
def manifests_parsed_once(monkeypatch):
    monkeypatch.setattr(Manifest, "from_json", staticmethod(functools.lru_cache(None)(Manifest.from_json)))


@functools.cache
def _history():
    store = MemoryStore()
    old = Run(store, "d", keep=1, base_every=1, run=OLD)
    for _ in range(2):
        old.checkpoint()
    return store, old


def history():
    first_store, first = _history()
    store, old = MemoryStore(), copy.copy(first)
    store.objects = dict(first_store.objects)
    old.store, old.held, old.committed = store, set(), []
    return store, old


def interleave(turns, visible_only=False, old_first=True, restore=True):
    """Runs a schedule; returns the operations that each made, and what went wrong, "" if nothing did."""
    store, old = history()
    errors, new = [], []

    def stale():
        try:
            old.checkpoint()
        except (FencedError, SaveFailedError, FileNotFoundError, FileExistsError) as error:
            errors.append(error)

    def fresh():
        try:
            new.append(Run(store, "d", keep=1, base_every=1, run=NEW, restore=restore))
            new[0].checkpoint()
        except Exception as error:
            errors.append(error)
            new.append(error)

    jobs = [stale, fresh] if old_first else [fresh, stale]
    counts = Switches(store, jobs, turns, visible_only).go()
    if isinstance(new[-1], Exception):
        return counts, f"the new coordinator stopped: {new[-1]!r}"
    if any(not isinstance(error, FencedError) for error in errors):
        return counts, f"the stale one stopped for the wrong reason: {errors}"
    if commit.latest(store, "d") != new[0].head:
        return counts, "the newest head is not the new coordinator's"
    try:
        check_whole(store, "d")
    except FileNotFoundError as error:
        return counts, f"on offer without {error}"
    before = dict(store.objects)
    for write in (old.checkpoint, old.collect):
        try:
            write()
            return counts, "the stale one goes on"
        except FencedError:
            pass
    if before.keys() - store.objects.keys():
        return counts, "the stale one has deleted something"
    new[0].checkpoint()
    check_whole(store, "d")
    new[0].collect()
    if restore:
        check_clean(store, "d")
    return counts, ""


def faults_of(switches, **options):
    """Runs all schedules with up to so many switches; returns how many, and what went wrong in which."""
    counts, fault = interleave([], **{**options, "old_first": True})
    assert not fault
    counts = counts if options.get("old_first", True) else counts[::-1]
    run, faults = 0, {}
    for turns in itertools.product(*(range(counts[i % 2] + 1) for i in range(switches))):
        # A job's turns add up to at most all its operations.
        if all(sum(turns[i::2]) <= counts[i] for i in range(2)):
            run += 1
            fault = interleave(turns, **options)[1]
            if fault:
                faults[turns] = fault
    print(f"{counts} operations, {run} schedules, {len(faults)} faults")
    return run, faults


@pytest.mark.parametrize("old_first", [True, False])
def test_a_stale_coordinator_that_hangs_at_any_operation(old_first):
    """A[:i], B[:j], A[i:], B[j:], for all i and j, and the other way round."""
    run, faults = faults_of(2, old_first=old_first)
    assert not faults and run > 780


def test_three_switches_where_they_matter():
    run, faults = faults_of(3, visible_only=True)
    assert not faults and run > 1850


def test_a_new_lineage_beside_a_stale_coordinator():
    run, faults = faults_of(2, visible_only=True, restore=False)
    assert not faults and run > 240


def without_check(monkeypatch):
    monkeypatch.setattr(claims, "ensure_current", lambda store, directory, claim: None)


def without_withdrawal(monkeypatch):
    monkeypatch.setattr(commit, "_withdraw_if_fenced", lambda *args: None)


@pytest.mark.parametrize("broken, fault", [(without_check, "the stale one goes on"),
                                           (without_withdrawal, "on offer without")])
def test_each_rule_is_needed(monkeypatch, broken, fault):
    _history()
    broken(monkeypatch)
    found = {interleave(turns, visible_only=True)[1] for turns in itertools.product(range(14), range(0, 30, 3))}
    assert any(fault in text for text in found), found
