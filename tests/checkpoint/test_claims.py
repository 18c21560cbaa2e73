"""Claims: two coordinators on one directory, in every order of their operations that chance finds."""

import random
import threading

import pytest

from tests.support.checkpoint_dirs import MemoryStore, Run, check_whole
from tfadaptcp.checkpoint import claims, commit, layout
from tfadaptcp.checkpoint.claims import Claim
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import FencedError

RUN_A, RUN_B, RUN_C = "a" * 12, "b" * 12, "c" * 12


def test_generations_count_up_and_runs_break_ties():
    store = MemoryStore()
    first = claims.take(store, "d", RUN_B)
    assert first == Claim(1, RUN_B)
    second = claims.take(store, "d", RUN_A)
    assert second == Claim(2, RUN_A) and first < second
    assert Claim(2, RUN_A) < Claim(2, RUN_B) < Claim(10, RUN_A)
    claims.ensure_current(store, "d", second)
    with pytest.raises(FencedError, match=f"0000000002-{RUN_A}.*Expected: none above 0000000001-{RUN_B}"):
        claims.ensure_current(store, "d", first)


def test_manifests_and_data_count_when_claims_were_not_copied():
    store = MemoryStore()
    store.objects[f"d/manifests/{layout.head_name(7, 1, RUN_A)}.json"] = b"x"
    assert claims.take(store, "d").generation == 8
    store.objects.clear()
    store.objects[f"d/data/{layout.head_name(9, 1, RUN_A)}/o"] = b"x"
    assert claims.take(store, "d").generation == 10


def test_a_vanished_claim_stops_the_writer():
    store = MemoryStore()
    claim = claims.take(store, "d")
    store.objects.clear()
    with pytest.raises(FencedError, match="vanished"):
        claims.ensure_current(store, "d", claim)


def test_foreign_names_are_passed_over():
    store = MemoryStore()
    for name in (".DS_Store", "1-aaaaaaaaaaaa", f"0000000001-{RUN_A}.tmp", "99999999999-" + RUN_A):
        store.objects[f"d/claims/{name}"] = b""
    claim = claims.take(store, "d", RUN_A)
    assert claim.generation == 1 and claims.list_claims(store, "d") == [claim]


def test_on_a_disk(tmp_path):
    store = Store()
    claim = claims.take(store, str(tmp_path / "new" / "dir"))
    assert (tmp_path / "new" / "dir" / "claims" / str(claim)).is_file()


def test_two_that_start_at_the_same_time_do_not_both_go_on():
    """Both have seen an empty directory; the second claim arrives before the first looks again."""
    for other, wins in ((RUN_C, False), (RUN_A, True)):
        store = MemoryStore()

        def step(op, path):
            if op == "put":
                store.objects[f"d/claims/{Claim(1, other)}"] = b""

        store.step = step
        if wins:
            assert claims.take(store, "d", RUN_B) == Claim(1, RUN_B)
        else:
            with pytest.raises(FencedError, match=f"none above 0000000001-{RUN_B}"):
                claims.take(store, "d", RUN_B)


@pytest.mark.parametrize("run", ["", "A" * 12, "a" * 11, "a" * 33, "../../etc/passwd", 5])
def test_bad_runs_are_refused(run):
    with pytest.raises(ValueError, match="run.*Expected"):
        claims.take(MemoryStore(), "d", run)


class Turns:
    """Lets exactly one of several threads run at a time and draws, before each operation, which one goes on."""

    def __init__(self, seed: int, jobs):
        self.random = random.Random(seed)
        self.gates = [threading.Semaphore(0) for _ in jobs]
        self.alive = list(range(len(jobs)))
        self.local = threading.local()
        self.threads = [threading.Thread(target=self._run, args=(i, job), daemon=True) for i, job in enumerate(jobs)]
        self.errors = []

    def step(self, op, path):
        me = getattr(self.local, "me", None)
        if me is None:
            return
        other = self.random.choice(self.alive)
        if other != me:
            self.gates[other].release()
            self.gates[me].acquire()

    def go(self):
        for thread in self.threads:
            thread.start()
        self.gates[self.random.choice(self.alive)].release()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        assert not self.errors, self.errors

    def _run(self, me, job):
        self.local.me = me
        self.gates[me].acquire()
        try:
            job()
        except Exception as error:  # reported by the main thread
            self.errors.append(error)
        self.alive.remove(me)
        if self.alive:
            self.gates[self.random.choice(self.alive)].release()


def two_coordinators(seed: int) -> str:
    """Runs two coordinators on a directory with a history; returns what went wrong, "" if nothing did."""
    store = MemoryStore()
    Run(store, "d", run=RUN_C).checkpoint()
    rng = random.Random(seed)
    finished, fenced = [], []

    def coordinator(run, restore):
        me = None
        try:
            me = Run(store, "d", keep=1, restore=restore, run=run)
            for _ in range(3):
                me.checkpoint()
            finished.append(me)
        except FencedError:
            fenced.append(run)
        except (FileNotFoundError, FileExistsError) as error:
            fenced.append(error)

    turns = Turns(seed, [lambda: coordinator(RUN_A, rng.random() < 0.7), lambda: coordinator(RUN_B, True)])
    store.step = turns.step
    turns.go()
    store.step = lambda op, path: None

    if not finished:
        return "both stopped"
    if any(isinstance(item, Exception) for item in fenced):
        return "a file was taken away or written twice"
    newest = commit.latest(store, "d")
    winner = max(finished, key=lambda run: run.claim)
    if newest is None or newest.name != winner.head.name:
        return "the newest head is not that of the coordinator that went on"
    try:
        check_whole(store, "d")
    except FileNotFoundError:
        return "a head on offer lacks an object"
    if {path for path in store.objects if "/manifests/" in path} != {
            f"d/manifests/{manifest.name}.json" for manifest in commit.list_heads(store, "d")[0]}:
        return "a damaged manifest"
    return ""


def test_random_interleavings_of_two_coordinators_are_safe():
    faults = {seed: fault for seed in range(200) if (fault := two_coordinators(seed))}
    assert not faults


def test_without_claims_the_same_interleavings_go_wrong(monkeypatch):
    # The generation is then just one above the manifests that a coordinator finds.
    monkeypatch.setattr(claims, "take",
                        lambda store, directory, run: Claim(claims._highest_generation(store, directory) + 1, run))
    monkeypatch.setattr(claims, "ensure_current", lambda store, directory, claim: None)
    faults = [fault for seed in range(60) if (fault := two_coordinators(seed))]
    print(f"{len(faults)} of 60 interleavings failed: {sorted(set(faults))}")
    assert len(faults) > 5


def test_a_check_that_comes_once_only_is_not_enough(monkeypatch):
    monkeypatch.setattr(claims, "ensure_current", lambda store, directory, claim: None)
    faults = [fault for seed in range(60) if (fault := two_coordinators(seed))]
    print(f"{len(faults)} of 60 interleavings failed: {sorted(set(faults))}")
    assert len(faults) > 5
