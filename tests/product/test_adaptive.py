"""The adaptive policy in the product: its estimates against a plain map, its predictions, what it has measured."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tests.support.estimates import Estimates, written
from tests.support.saving import heads_of
from tfadaptcp import manager as manager_module, measurements, policies
from tfadaptcp.policies import cost_model

GROUP = "emb0-parameter"
KEYS = 300
DECAY = 0.7
HAZARD = 4.0 / 12


@dataclasses.dataclass(frozen=True)
class WithSnapshots(policies.Adaptive):
    """Makes a complete checkpoint each time, at a cut of its own."""
    snapshot_bases = True

    def base_due(self, stats):
        return True


def adaptive(make=policies.Adaptive, **options):
    return make(**{"restore_weight": 4.0, "first_period": 12, "renewal": "period", "max_restore_factor": 99.0,
                   "decay": DECAY, **options})


def build(shards=2, seed=5):
    model = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2, seed=seed)
    model.optimizer._create_all_weights(model.trainable_variables)
    return model


class Job:
    """A model whose rows are looked up and written as in training, with the estimates that these uses should lead to."""

    def __init__(self, model, estimator):
        self.model, self.estimates = model, Estimates(estimator, DECAY)
        self._random = np.random.default_rng(3)

    def run(self, interval):
        for step in range(3):
            # Few come often; some come twice in a batch; some are only read.
            keys = (self._random.random(60) ** 3 * KEYS).astype(np.int64).tolist()
            self.look_up(keys)
            self.write(sorted(set(keys[:45])), seed=10 * interval + step)

    def write(self, keys, seed):
        rows.write(self.model, keys, seed=seed)
        self.estimates.write(keys)

    def look_up(self, keys):
        next(oracle.tables_of(self.model))[1].lookup(tf.constant(keys, tf.int64))
        self.estimates.look_up(keys)

    def copy(self):
        """Of everything, by lookups that count as all do."""
        self.estimates.look_up(list(self.estimates.values))
        return oracle.take(self.model)


@pytest.mark.parametrize("solver", ["dynamic", "bisection"])
@pytest.mark.parametrize("estimator", ["updates", "accesses"])
def test_estimates_decide_and_survive(estimator, solver, tmp_path):
    model = build()
    policy = adaptive(solver=solver, estimator=estimator)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, max_to_keep=20)
    job = Job(model, estimator)
    saved, seen = {}, set()
    for interval in range(7):
        job.run(interval)
        copy = job.copy() if interval == 6 else None
        info = manager.save()
        p = job.estimates.cut(info.sequence)
        manager.wait()
        head = heads_of(tmp_path)[-1]
        threshold = head.policy["threshold"]
        assert head.policy.items() >= {"name": "adaptive", "decay": DECAY, "estimator": estimator, "solver": solver,
                                       "hazard": HAZARD, "period": 12}.items()
        found = written(tmp_path, head, GROUP)
        for kind, group in found.items():
            expected = {key: p[key] for key in group}
            assert group == pytest.approx(expected, abs=1e-5), (interval, kind)
            saved.update({key: (value, info.sequence) for key, value in group.items()})
            assert all((value > threshold) == (kind == "differential") for value in group.values())
        if interval:
            seen |= found.keys()
            if solver == "bisection":
                of_p = cost_model.static_threshold(12, 4.0)
            else:
                of_p = cost_model.dynamic_threshold(12 - interval + 1, HAZARD)
            assert threshold == pytest.approx(cost_model.reading(of_p, DECAY, estimator))
        # With so few rows nothing was sampled.
        predicted, actual = head.stats["predicted"], head.stats["actual"]
        for kind, name in (("differential", "hot_rows"), ("increment", "cold_rows")):
            if interval:
                assert predicted[name] == actual[name] == len(found.get(kind, {}))
        if interval:
            # What a row takes is known from those before; each block adds its frame.
            assert predicted["bytes_written"] == pytest.approx(actual["bytes_written"], rel=0.5)
            assert predicted["bytes_restore"] == pytest.approx(actual["bytes_restore"], rel=0.3)
        if "cost" in predicted:
            assert predicted["cost"] == predicted["bytes_written"] + HAZARD * predicted["bytes_restore"]
        assert actual["cost"] == actual["bytes_written"] + HAZARD * actual["bytes_restore"]
        assert actual["bytes_restore"] == head.bytes
        assert actual["bytes_written"] == sum(ref.bytes for ref in head.objects
                                              if ref.sequence == head.sequence and ref.kind != "dense")
        stats = manager.stats()
        assert stats["predicted"] == predicted and stats["actual"] == actual and stats["hazard"] == HAZARD
    assert seen == {"increment", "differential"}
    accesses = sum(group["accesses"] for stats in manager.engine.stats() for group in stats["groups"])
    assert (accesses > 0) == (estimator == "accesses"), "an estimator that asks nothing of lookups notes none"
    manager.close()

    # Whatever the shards, rows go on from the estimates that they had when they were saved.
    for shards in (1, 3):
        fresh = build(shards, seed=8)
        other = tfadaptcp.CheckpointManager(fresh, tmp_path, adaptive(WithSnapshots, estimator=estimator), max_to_keep=20)
        other.restore(head.name)
        other.save()
        other.wait()
        base = heads_of(tmp_path)[-1]
        expected = {}
        for key, (p, sequence) in saved.items():
            idle = DECAY ** (base.sequence - sequence)
            p = min(p, 1 - 2.0 ** -24)  # of a float at 1 nobody knows how near
            expected[key] = p * idle if estimator == "updates" else 1 - (1 - p) ** idle
        assert written(tmp_path, base, GROUP) == {"base": pytest.approx(expected, abs=1e-5)}
        other.close()
        oracle.check(copy, fresh, f"{shards} shards", shards=False)


def test_restored_with_the_other_estimator(tmp_path):
    """p is what files hold, whatever it was estimated by."""
    model = build(1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, adaptive(estimator="accesses"), max_to_keep=9)
    job = Job(model, "accesses")
    job.run(0)
    p = job.estimates.cut(manager.save().sequence)
    manager.wait()
    manager.close()
    head = heads_of(tmp_path)[-1]
    # A restore without a manager takes the estimator of the checkpoint; a manager's is that of its policy.
    fresh = build(1, seed=8)
    fresh.load_adaptcp(tmp_path)
    assert getattr(fresh, "_tfadaptcp_engine").estimation == policies.Estimation(DECAY, "accesses")
    fresh = build(1, seed=8)
    other = tfadaptcp.CheckpointManager(fresh, tmp_path, adaptive(WithSnapshots), max_to_keep=9)
    other.restore()
    other.save()
    other.wait()
    base = heads_of(tmp_path)[-1]
    idle = DECAY ** (base.sequence - head.sequence)
    assert written(tmp_path, base, GROUP) == {"base": pytest.approx({key: value * idle for key, value in p.items()})}
    # Trackers estimate in one way: a manager that wants another takes the tables over, and the one before says so.
    tfadaptcp.CheckpointManager(fresh, tmp_path / "b", adaptive(estimator="accesses"))
    with pytest.raises(tfadaptcp.SaveFailedError, match="a newer manager took its tables over"):
        other.save()


class Clock:
    """What the manager takes for the time."""

    def __init__(self, monkeypatch, now):
        self.now = now
        monkeypatch.setattr(manager_module, "time", types.SimpleNamespace(monotonic=lambda: self.now))


def test_what_was_measured_survives_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "_ENOUGH_BYTES", 1)
    policy = adaptive(restore_weight=None, mtbf_seconds=1000.0)
    model = build(1)
    clock = Clock(monkeypatch, 500.0)

    def save(manager, seconds):
        clock.now += seconds
        rows.write(model, range(KEYS), seed=int(clock.now))
        manager.save()
        manager.wait()
        return heads_of(tmp_path)[-1]

    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, max_to_keep=20)
    heads = [save(manager, seconds) for seconds in (70.0, 10.0, 10.0, 18.0)]
    intervals = [head.stats["measured"].get("seconds_per_interval") for head in heads]
    assert intervals == [None, 10.0, 10.0, 12.0], "the first is from the start of the process to its first cut"
    # Nothing was restored yet: as dear as writing. Unknown intervals: the default weight.
    assert [head.policy["hazard"] for head in heads] == [1 / 12, 1 / 12, 0.01, 0.01]
    assert heads[3].policy["threshold"] == pytest.approx(cost_model.reading(cost_model.dynamic_threshold(12 - 2, 0.01), DECAY))
    assert manager.stats()["seconds_per_interval"] == 12.0
    manager.close()

    clock.now = 3.0  # another process, another clock
    model = build(2, seed=8)
    model.load_adaptcp(tmp_path)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, max_to_keep=20)
    heads = [save(manager, seconds) for seconds in (60.0, 20.0, 20.0)]
    measured = [head.stats["measured"] for head in heads]
    assert [item["seconds_per_interval"] for item in measured] == [12.0, 14.0, 15.5]
    assert heads[0].policy["hazard"] == 0.012
    for before, head, seconds in zip(measured, heads[1:], (12.0, 14.0)):
        ratio = before["write_bytes_per_second"] / before["read_bytes_per_second"]
        assert head.policy["hazard"] == pytest.approx(seconds / 1000 * ratio)
    assert measured[0]["read_bytes_per_second"] == measured[2]["read_bytes_per_second"] > 0
    # A restore in between leaves out the interval that it ends.
    manager.restore()
    assert save(manager, 5000.0).stats["measured"]["seconds_per_interval"] == 15.5
    assert save(manager, 15.5).stats["measured"]["seconds_per_interval"] == 15.5
    assert measured[0]["bytes_per_row"].keys() == {GROUP}
    manager.close()
    given = dataclasses.replace(policy, restore_cost_ratio=50.0)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, given, max_to_keep=20)
    assert save(manager, 1.0).policy["hazard"] == pytest.approx(15.5 / 1000 * 50)


def test_a_pause_is_no_interval():
    """One validation of half an hour made restores matter 46 times more."""
    replies = {0: {"stats": {"save_seconds": 1.0}, "row_bytes": {}}}

    def after(mean, *intervals):
        for interval in intervals:
            mean = measurements.smoothed({} if mean is None else {"seconds_per_interval": mean}, interval, None, [],
                                         replies).get("seconds_per_interval")
        return mean

    assert after(10.0, 1800.0) == 17.5 and after(10.0, 1800.0, *[10.0] * 10) < 10.5
    # What lasts is followed.
    assert 90.0 < after(10.0, *[100.0] * 12) < 100.0
    assert after(10.0, 2.0) == 8.0 and after(10.0, None) == 10.0 and after(None, 1800.0) == 1800.0
    assert after(0.0, 8.0) == 2.0, "as a clock may say that does not tell two cuts apart"


def test_a_cut_that_cannot_be_predicted_fails_as_a_cut(tmp_path, monkeypatch):
    model = build(1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, adaptive(solver="bisection"))
    for seed in range(2):
        rows.write(model, range(50), seed=seed)
        manager.save()
        manager.wait()

    def gone(*arguments):
        raise tf.errors.UnavailableError(None, None, "ps 0 is gone")

    rows.write(model, range(20), seed=2)
    copy = oracle.take(model)
    with monkeypatch.context() as patch:
        patch.setattr(manager.engine, "histograms", gone)
        with pytest.raises(tfadaptcp.SaveFailedError, match="the cut failed: .*ps 0 is gone"):
            manager.save()
    manager.save()
    manager.wait()
    fresh = build(1, seed=8)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


class Mine:
    """A user's policy, whose answers are given."""

    name = "mine"

    def __init__(self):
        self.threshold, self.due, self.record = 0.5, False, {}

    def hot_threshold(self, stats):
        return self.threshold

    def base_due(self, stats):
        return self.due

    def describe(self, stats):
        return self.record


@pytest.mark.parametrize("answers", [
    {"threshold": float("nan")}, {"threshold": None}, {"threshold": True}, {"due": None}, {"due": 1},
    {"record": {"hazard": None}}, {"record": {"mean": float("nan")}}, {"record": {"rows": {1, 2}}}, {"record": [1]}])
def test_a_policy_that_answers_amiss_is_named_and_costs_one_checkpoint(answers, tmp_path):
    model, policy = build(1), Mine()
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, engine=tfadaptcp.EngineOptions(capture_memory_bytes=1))
    rows.write(model, range(50), seed=1)
    manager.save()
    manager.wait()
    rows.write(model, range(20), seed=2)
    for name, value in answers.items():
        setattr(policy, name, value)
    with pytest.raises(tfadaptcp.SaveFailedError, match="the cut failed: policy mine: .*Received: .*Expected: "):
        manager.save()
    # No cut is left pending: it would have this update wait for room, and give a checkpoint up.
    rows.write(model, range(10), seed=3)
    copy = oracle.take(model)
    policy.__init__()
    policy.threshold, policy.record = np.float32(0.5), {"committed": 77}
    manager.save()
    manager.wait()
    stats = manager.stats()
    assert (stats["failed"], stats["committed"], stats["rows_by_update"]) == (1, 2, 0)
    fresh = build(1, seed=8)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


@pytest.mark.parametrize("wrong", [{"name": None}, {"estimator": "access"}, {"decay": 1.5}, {"decay": "x"}])
def test_policies_that_are_none(wrong, tmp_path):
    policy = Mine()
    for name, value in wrong.items():
        setattr(policy, name, value)
    with pytest.raises(ValueError, match="policy: Received: .*Expected: "):
        tfadaptcp.CheckpointManager(build(1), tmp_path, policy)
