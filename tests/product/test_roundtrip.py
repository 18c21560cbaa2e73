"""Every head of every policy and optimizer restores to what the model was at its cut, bit for bit."""

import dataclasses

import pytest

import tfadaptcp
from tests.support import oracle, rows
from tests.support.bases import end_scan
from tests.support.saving import heads_of
from tfadaptcp import policies

POLICIES = {
    "full": policies.Full(),
    "incremental": policies.Incremental(),
    "incremental_2": policies.Incremental(full_every=2),
    "differential": policies.Differential(),
    "adaptive": policies.Adaptive(),
    "adaptive_short": policies.Adaptive(restore_weight=8.0, renewal="period", first_period=3, decay=0.5,
                                        max_restore_factor=20.0),
    "bisection_short": policies.Adaptive(restore_weight=8.0, renewal="period", first_period=3, decay=0.5,
                                         max_restore_factor=20.0, solver="bisection"),
    "marginal": policies.Adaptive(restore_weight=8.0, first_period=4, decay=0.5, renewal="marginal"),
}
# Every policy with one optimizer, every optimizer with the policies that differ most; the rest takes longer.
FAST = [("adam", policy) for policy in POLICIES] + [
    (optimizer, policy) for optimizer in oracle.OPTIMIZERS if optimizer != "adam"
    for policy in ("incremental_2", "differential", "adaptive_short")]
ALL = [(optimizer, policy) for optimizer in oracle.OPTIMIZERS for policy in POLICIES]
CASES = [pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow]) for case in ALL]

_trained = {}


def trained(optimizer):
    """A model with two tables and its trainer, traced once for all policies."""
    if optimizer not in _trained:
        _trained.clear()
        model = oracle.build(optimizer, tables=2)
        _trained[optimizer] = oracle.Trainer(model)
    return _trained[optimizer].model, _trained[optimizer]


def make_history(manager, model, trainer, saves=6):
    """Trains and saves; training goes on while a checkpoint is written. Returns {head: copy at its cut}."""
    copies = {}
    for i in range(saves):
        trainer.train(2)
        if i in (2, 4):
            rows.remove(model, [0, 1, 7 * i, 100 + i, 5000])
        copy = oracle.take(model)
        info = manager.save()
        trainer.train(2)
        assert manager.wait().name == info.name
        end_scan(manager)
        copies[info.name] = copy
    return copies


@pytest.mark.parametrize("optimizer,policy", CASES)
def test_every_head_restores_as_it_was_cut(optimizer, policy, tmp_path):
    model, trainer = trained(optimizer)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, POLICIES[policy], max_to_keep=100)
    copies = make_history(manager, model, trainer)
    assert [info.name for info in manager.checkpoints] == list(copies)
    check_kinds(policy, heads_of(tmp_path))
    # Into the live model, the oldest last: what came later must go.
    for name in reversed(copies):
        report = model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, f"{name}, into the live model")
        assert report.checkpoint == name and report.rows == copies[name].rows()
    # Into a fresh one, before its first step.
    fresh = oracle.build(optimizer, tables=2, seed=99)
    newest = list(copies)[-1]
    report = fresh.load_adaptcp(tmp_path)
    assert report.checkpoint == newest
    oracle.check(copies[newest], fresh, "newest, into a fresh model")
    oracle.check_placement(fresh)
    continue_chain(fresh, tmp_path, POLICIES[policy], copies)
    trainer.model.load_adaptcp(tmp_path, newest)  # what the next case starts from is whole


def continue_chain(model, directory, policy, copies):
    """What was not touched since a restore is still there after further checkpoints.

    (recommenders-addons#107, Flink FLINK-6964)
    """
    before = len(heads_of(directory))
    manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=100)
    for i in range(3):
        rows.write(model, [3, 4, 300 + i], seed=i)
        copies = {**copies, manager.save().name: oracle.take(model)}
        manager.wait()
    heads = heads_of(directory)
    again = heads[before]
    assert again.origin == heads[before - 1].name, "the restored head is published again"
    assert [head.parent for head in heads[before + 1:]] == [head.name for head in heads[before:-1]]
    due = policy.name in ("full", "adaptive") or getattr(policy, "full_every", None)
    assert due or heads[-1].base_sequence == heads[before - 1].base_sequence
    for head in reversed(heads[before + 1:]):
        model.load_adaptcp(directory, head.name)
        oracle.check(copies[head.name], model, f"{head.name}, after a restore")
    model.load_adaptcp(directory, again.name)
    oracle.check(copies[heads[before - 1].name], model, "the head published again")


def check_kinds(policy, heads):
    kinds = [{ref.kind for ref in head.objects if ref.sequence == head.sequence} - {"dense"} for head in heads]
    assert kinds[0] == {"base"}
    expected = {"full": [{"base"}] * 5, "incremental": [{"increment"}] * 5, "differential": [{"differential"}] * 5,
                "incremental_2": [{"increment"}] * 5}
    if policy == "differential":
        # A tombstone is never hot.
        kinds = [kind - {"increment"} for kind in kinds]
    if policy in expected:
        assert kinds[1:] == expected[policy]
    if policy == "incremental_2":
        # Due at the fourth, which the scan starts at; the next one goes by it.
        assert [head.base_sequence for head in heads] == [heads[0].sequence] * 4 + [heads[3].sequence] * 2
    if policy.endswith("_short"):
        # Before the renewal, files of both; after it, a new base.
        assert {"increment", "differential"} in kinds[1:4]
        assert heads[-1].base_sequence > heads[0].sequence


def test_three_tables(tmp_path):
    model = oracle.build("adagrad", tables=3)
    trainer = oracle.Trainer(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    copies = make_history(manager, model, trainer, saves=3)
    assert len(list(copies.values())[-1].tables) == 6
    fresh = oracle.build("adagrad", tables=3, seed=1)
    report = fresh.load_adaptcp(tmp_path)
    assert report.rows == copies[report.checkpoint].rows() and min(report.rows.values()) > 0
    oracle.check(copies[report.checkpoint], fresh)


@pytest.mark.parametrize("tables", [0, 1, 3])
def test_untrained_model(tables, tmp_path):
    """Empty tables, and none at all."""
    model = oracle.build("adam", tables=tables)
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    copy = oracle.take(model)
    info = manager.save() and manager.wait()
    assert info.step == 0 and set(copy.rows().values()) <= {0}
    fresh = oracle.build("adam", tables=tables, seed=1)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)
    # And on from there.
    trainer = oracle.Trainer(fresh)
    trainer.train(2)
    manager = tfadaptcp.CheckpointManager(fresh, tmp_path)
    copy = oracle.take(fresh)
    manager.save() and manager.wait()
    trainer.train(1)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


@pytest.mark.parametrize("policy", ["incremental", "differential", "adaptive", "full"])
def test_save_with_nothing_changed_makes_a_head(policy, tmp_path):
    model = oracle.build("adam")
    rows.write(model, range(50))
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, max_to_keep=10)
    rows.write(model, range(20, 60))
    copy = oracle.take(model)
    for _ in range(3):
        manager.save()
        info = manager.wait()
    assert len(manager.checkpoints) == 3
    written = heads_of(tmp_path)[-1].rows
    assert written.get("increment", {}) == written.get("differential", {}) == {}, "nothing was written again"
    assert written["base"] == {"emb0-parameter": 60}
    for info in manager.checkpoints:
        fresh = oracle.build("adam", seed=3)
        fresh.load_adaptcp(tmp_path, info.name)
        oracle.check(copy, fresh, info.name)


def test_table_emptied_after_a_base(tmp_path):
    model = oracle.build("adam")
    rows.write(model, range(30))
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    manager.save()
    rows.remove(model, range(30))
    copy = oracle.take(model)
    manager.save() and manager.wait()
    assert copy.rows()["emb0-parameter"] == 0
    fresh = oracle.build("adam", seed=3)
    rows.write(fresh, [1, 77])
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


def test_saving_into_another_directory_starts_a_complete_chain(tmp_path):
    model = oracle.build("adam")
    rows.write(model, range(30))
    tfadaptcp.CheckpointManager(model, tmp_path / "a", "incremental").save()
    rows.write(model, range(5))
    other = tfadaptcp.CheckpointManager(model, tmp_path / "b", "incremental")
    copy = oracle.take(model)
    other.save() and other.wait()
    assert heads_of(tmp_path / "b")[-1].rows == {"base": {"emb0-parameter": 30}}
    fresh = oracle.build("adam", seed=3)
    fresh.load_adaptcp(tmp_path / "b")
    oracle.check(copy, fresh)


def test_settings_of_blocks_and_segments_change_nothing(tmp_path):
    """Many small blocks in many small files."""
    model = oracle.build("adam", tables=2)
    rows.write(model, range(9000))
    options = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=512, writer_threads=3)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", engine=options)
    manager.save()
    rows.write(model, range(100, 5000))
    copy = oracle.take(model)
    manager.save() and manager.wait()
    head = heads_of(tmp_path)[-1]
    assert len(head.objects) > 8
    assert all((tmp_path / ref.path).stat().st_size == ref.bytes for ref in head.objects)
    fresh = oracle.build("adam", tables=2, seed=3)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


def test_blocking_capture(tmp_path):
    model = oracle.build("adam")
    rows.write(model, range(100))
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "adaptive",
                                          engine=dataclasses.replace(tfadaptcp.EngineOptions(), capture="blocking"))
    copy = oracle.take(model)
    manager.save()
    assert manager.stats()["committed"] == 1 and len(manager.checkpoints) == 1
    rows.write(model, range(100))
    model.load_adaptcp(tmp_path)
    oracle.check(copy, model)
