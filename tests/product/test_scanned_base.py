"""Bases without a cut: read beside training and checkpoints, and used by the right heads only."""

import threading
import time

import pytest

import tfadaptcp
from tests.support import faults, oracle, rows
from tests.support.bases import end_scan
from tests.support.checkpoint_dirs import check_clean
from tfadaptcp import EngineOptions, policies, scanned_base
from tfadaptcp.checkpoint import commit, retention
from tfadaptcp.checkpoint.faults import set_fault_hook
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.policies.base import PolicyStats

pytestmark = pytest.mark.usefixtures("no_hook_stays")


class Job:
    """A model whose rows the test writes, checkpoints of it, and copies at their cuts."""

    def __init__(self, directory, policy=None, shards=2, **options):
        self.model = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2)
        self.directory = str(directory)
        self.policy = policy or policies.Incremental(full_every=1)
        self.options = EngineOptions(block_bytes=512, segment_bytes=4096, **options)
        self.manager = tfadaptcp.CheckpointManager(self.model, directory, self.policy, max_to_keep=100,
                                                   engine=self.options)
        self.copies = {}
        self.seed = 0

    def write(self, keys):
        self.seed += 1
        rows.write(self.model, keys, seed=self.seed)

    def save(self):
        copy = oracle.take(self.model)
        info = self.manager.save()
        self.write(range(0, 300, 7))  # after the cut
        self.manager.wait()
        self.copies[info.name] = copy
        return self.head()

    def begin_base(self, keys):
        """Three checkpoints of `keys`: at the third a new base is due, and its scan starts. Returns their heads."""
        self.write(keys)
        return [self.save() for _ in range(3)]

    def head(self):
        return commit.list_heads(Store(), self.directory)[0][-1]

    def check_all(self, shards=3):
        fresh = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2, seed=9)
        for name, copy in self.copies.items():
            fresh.load_adaptcp(self.directory, name)
            oracle.check(copy, fresh, name, shards=False)


class Held:
    """Stops the scans of an engine before they read, or after, until told to go on."""

    def __init__(self, engine, monkeypatch, before):
        self._scan, self._before = engine.scan_base, before
        self._go, self._reached = threading.Event(), threading.Event()
        monkeypatch.setattr(engine, "scan_base", self._held)

    def _held(self, request):
        replies = None if self._before else self._scan(request)
        self._reached.set()
        assert self._go.wait(60)
        return self._scan(request) if self._before else replies

    def reached(self):
        assert self._reached.wait(60)

    def go(self):
        self._go.set()


@pytest.mark.parametrize("before", [True, False], ids=["reads_late", "ends_late"])
def test_only_heads_cut_after_the_scan_go_by_it(before, tmp_path, monkeypatch):
    job = Job(tmp_path, policies.Adaptive(restore_weight=20.0, renewal="period", first_period=2, decay=0.5,
                                          max_restore_factor=50.0))
    held = Held(job.manager.engine, monkeypatch, before)
    job.write(range(200))
    first = job.save()
    job.write(range(40))
    job.save()
    job.write(range(60))
    job.save()
    started = job.save()  # due: the scan starts at this one
    held.reached()
    during = []
    for i in range(4):
        job.write([*range(20), 200 + i])
        rows.remove(job.model, [3 + i, 100 + i])
        during.append(job.save())
    # As of the chain that begins with the scan: what is cold now is read as long as that is.
    expected = [job.policy.hot_threshold(PolicyStats(has_base=True, checkpoints_since_base=k)) for k in range(4)]
    assert [head.policy["threshold"] for head in during] == expected and expected[0] < 1
    assert {head.base_sequence for head in [started, *during]} == {first.sequence}
    held.go()
    assert end_scan(job.manager)
    job.write([1, 2])
    adopted = job.save()
    assert adopted.base_sequence == started.sequence
    stats = job.manager.stats()
    assert stats["bases"] == 2 and stats["scan_seconds"] > 0
    assert stats["scan_bytes"] == sum(ref.bytes for ref in adopted.objects if ref.kind == "base")
    increments = {ref.sequence for ref in adopted.objects if ref.kind == "increment"}
    assert increments == {head.sequence for head in [*during, adopted]}
    # The base of a head is that of those after it, too, and rows not written since are clean: nothing was.
    last = job.manager.save()
    assert sum(job.manager.wait().rows["base"].values()) == sum(adopted.rows["base"].values())
    job.copies[last.name] = None
    written = {ref.kind: ref.rows for ref in job.head().objects if ref.sequence == last.sequence}
    assert sum(sum(groups.values()) for groups in written.values()) <= len(range(0, 300, 7)) + 200
    del job.copies[last.name]
    job.check_all()


def test_rows_that_the_base_holds_leave_the_differential(tmp_path):
    job = Job(tmp_path)
    job.manager.close()

    class HotRenewal(policies.Differential):
        def base_due(self, stats):
            return stats.checkpoints_since_base >= 2

    job.manager = tfadaptcp.CheckpointManager(job.model, tmp_path, HotRenewal(), max_to_keep=100, engine=job.options)
    job.write(range(1000, 1200))
    job.save()
    hot = []
    for i in range(7):
        job.write(range(1000 + 20 * i, 1010 + 20 * i))
        hot.append(sum(job.save().rows.get("differential", {}).values()))
        end_scan(job.manager)
    # The rows written after each cut aside, which come every time: 10 more each time, until a base holds them.
    extra = len(range(0, 300, 7))
    assert [count - extra for count in hot] == [10, 20, 30, 40, 20, 30, 40]
    job.check_all()


def test_a_checkpoint_that_fails_leaves_the_base_to_the_next(tmp_path):
    job = Job(tmp_path)
    *_, started = job.begin_base(range(100))
    assert end_scan(job.manager)
    job.write(range(30))
    with faults.plan("errno=5@1+;match=increment"):
        job.manager.save()
        with pytest.raises(tfadaptcp.SaveFailedError):
            job.manager.wait()
    assert job.head().name == started.name
    adopted = job.save()
    assert adopted.base_sequence == started.sequence
    job.check_all()


def test_a_scan_that_fails_is_tried_again_and_leaves_nothing(tmp_path):
    job = Job(tmp_path)
    job.write(range(300))
    first = job.save()
    job.save()
    with faults.plan("errno=28@1+;match=base-"):
        job.save()
        assert not end_scan(job.manager)
        assert job.save().base_sequence == first.sequence
        assert not end_scan(job.manager)
    job.save()
    assert job.manager._scan is None  # after two that failed a checkpoint without one
    started = job.save()
    assert end_scan(job.manager)
    assert job.save().base_sequence == started.sequence
    job.save()
    end_scan(job.manager)
    job.save()
    retention.collect(Store(), str(tmp_path), job.manager._claim, 100)
    check_clean(Store(), str(tmp_path))
    job.check_all()


def test_a_restore_voids_the_scan(tmp_path, monkeypatch):
    job = Job(tmp_path)
    held = Held(job.manager.engine, monkeypatch, before=False)
    _, second, _ = job.begin_base(range(200))
    held.reached()
    job.manager.restore(second.name)
    held.go()
    end_scan(job.manager)
    job.write(range(5))
    assert job.save().base_sequence == second.base_sequence
    job.check_all()


@pytest.mark.parametrize("policy,options", [
    (policies.Full(), {}), (policies.Incremental(full_every=1), {"capture": "blocking"}),
    (policies.Incremental(full_every=1), {"capture": "snapshot"})], ids=["full", "blocking", "snapshot"])
def test_snapshot_bases_stay(policy, options, tmp_path):
    job = Job(tmp_path, policy, **options)
    job.write(range(100))
    heads = [job.save() for _ in range(4)]
    assert job.manager._scan is None
    assert [head.base_sequence for head in heads][-1] == heads[-1 if policy.name == "full" else -2].sequence
    assert heads[-2].base_sequence == heads[-2].sequence
    job.check_all()


def test_a_replaced_table_voids_the_scan(tmp_path, monkeypatch):
    job = Job(tmp_path)
    held = Held(job.manager.engine, monkeypatch, before=False)
    job.begin_base(range(200))
    held.reached()
    for _, variable in oracle.tables_of(job.model):
        variable.clear()
    job.write(range(7))
    held.go()
    assert end_scan(job.manager)
    complete = job.save()
    assert complete.base_sequence == complete.sequence
    job.save()
    job.check_all()


def test_a_scan_that_nobody_wants_any_more_ends(tmp_path, monkeypatch):
    """Another manager of the model has saved elsewhere meanwhile, and the next head here is complete."""
    job = Job(tmp_path / "checkpoints")
    job.write(range(300))
    job.save()
    started, hung = job.head().sequence, f"match={tmp_path / 'buffer'};hang@1"
    with faults.hanging(hung):
        job.manager._scan = scan = scanned_base.ScannedBase(
            job.manager.engine, job.directory, job.manager._next_name(), started,
            job.manager._options.for_hosts(str(tmp_path / "buffer")))
        other = tfadaptcp.CheckpointManager(job.model, tmp_path / "other")
        other.save()
        other.wait()
        voided = []
        void_scans = job.manager.engine.void_scans
        monkeypatch.setattr(job.manager.engine, "void_scans", lambda seconds: voided.append(void_scans(seconds)))
        monkeypatch.setattr(scanned_base, "_ANSWER_SECONDS", 1.0)
        head = job.save()
    assert head.base_sequence == head.sequence and voided and job.manager._scan is None
    scan._thread.join(30)
    assert scan.has_failed
    job.check_all()


def test_bases_there_is_no_room_for_do_not_keep_checkpoints_from_being_written(tmp_path):
    """What a scan, or a checkpoint, had written before the store was full stayed, as nothing was committed any more."""
    job = Job(tmp_path)
    job.write(range(300))
    first = job.save()
    job.save()
    set_fault_hook(lambda op, path: None)  # Python's operations, deletions among them, go on
    with faults.plan("errno=28@3+;match=base-"):
        for _ in range(9):
            job.save()
            end_scan(job.manager)
        # Again after 0, 1 and 3 more: not beside every checkpoint.
        assert job.manager._scan_tries._failures <= 4
    with faults.plan("errno=28@3+;match=increment-"):
        job.write(range(300))
        job.manager.save()
        with pytest.raises(tfadaptcp.SaveFailedError):
            job.manager.wait()
    set_fault_hook(None)
    head = job.head()
    referenced = {ref.path.split("/")[1] for ref in head.objects} | set(job.copies)
    assert {path.name for path in (tmp_path / "data").iterdir()} == referenced and head.base_sequence == first.sequence
    job.check_all()


def test_a_scan_is_given_up_beside_which_a_checkpoint_ran_out_of_time(tmp_path, monkeypatch):
    """Its hung uploads may be what fills the room of all that is to be uploaded: each checkpoint would fail, for hours."""
    job = Job(tmp_path)
    held = Held(job.manager.engine, monkeypatch, before=True)
    job.begin_base(range(100))
    held.reached()
    voided = []
    monkeypatch.setattr(scanned_base, "_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(job.manager.engine, "void_scans", voided.append)

    for error, calls in ((OSError("other"), 0), (tfadaptcp.DeadlineError("No answer"), 1)):
        with monkeypatch.context() as patch:
            patch.setattr(job.manager.engine, "save", lambda *unused, error=error: (_ for _ in ()).throw(error))
            job.manager.save()
            with pytest.raises(type(error)):
                job.manager.wait()
        assert len(voided) == calls
    held.go()
    end_scan(job.manager)
    job.write(range(5))
    job.save()
    job.check_all()


def test_a_scan_that_ends_with_a_reply_that_makes_no_sense(tmp_path, monkeypatch):
    """It was neither ready nor failed, and no other base was ever begun."""
    job = Job(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(scanned_base, "refs_of", lambda *_: 1 / 0)
        job.begin_base(range(300))
        end_scan(job.manager)
    bases = job.manager.stats()["bases"]
    for i in range(3):
        job.write(range(i, i + 50))
        job.save()
        end_scan(job.manager)
    assert job.manager.stats()["bases"] == bases + 1
    job.check_all()


def test_a_scan_that_is_given_up_before_it_reads(tmp_path):
    """What voided it found no scan yet, and it read all tables for nobody."""
    job = Job(tmp_path / "checkpoints")
    job.write(range(300))
    job.save()
    manager, buffer_dir = job.manager, tmp_path / "buffer"
    started = job.head().sequence
    job.write(range(5))
    with faults.hanging(f"match={buffer_dir};hang@1"):
        scan = scanned_base.ScannedBase(manager.engine, job.directory, manager._next_name(), started,
                                        {**job.options.for_hosts(str(buffer_dir)), "quantization": {}})
        while faults.count() < 1:
            assert scan.is_running
            time.sleep(0.01)
        manager.engine.void_scans(10)
    scan._thread.join(60)
    assert scan.has_failed
    assert not (tmp_path / "checkpoints" / "data" / scan.name).exists()
