"""What table ops leave in a checkpoint: additions, duplicates, removals of keys that are not there, lookups."""

import threading

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store


@pytest.fixture(scope="module")
def model():
    """A model whose tables add (`bp_v2`), for all tests."""
    return oracle.build("adam", bp_v2=True, devices=["/CPU:0"] * 2)


@pytest.fixture
def history(model, tmp_path):
    for _, variable in oracle.tables_of(model):
        variable.clear()
    return History(model, tmp_path)


class History:
    def __init__(self, model, directory):
        self.model, self.directory = model, directory
        self.manager = tfadaptcp.CheckpointManager(model, directory, "incremental", max_to_keep=100)
        self.copies = {}

    def save(self):
        """Returns {kind: rows written for it}."""
        copy = oracle.take(self.model)
        name = self.manager.save().name
        self.copies[name] = copy
        self.manager.wait()
        head = commit.list_heads(Store(), str(self.directory))[0][-1]
        written = {}
        for ref in head.objects:
            if ref.sequence == head.sequence and ref.kind != "dense":
                written[ref.kind] = written.get(ref.kind, 0) + sum(ref.rows.values())
        return written

    def entries(self):
        """How many keys the trackers know."""
        return sum(group["keys"] for host in self.manager.engine.stats() for group in host["groups"])

    def check(self):
        for name, copy in reversed(self.copies.items()):
            self.model.load_adaptcp(self.directory, name)
            oracle.check(copy, self.model, name)


def keys_of(*keys):
    return tf.constant(keys, tf.int64)


def test_training_by_addition(history):
    trainer = oracle.Trainer(history.model)
    for _ in range(3):
        trainer.train(2)
        copy = oracle.take(history.model)
        history.copies[history.manager.save().name] = copy
        trainer.train(3)
        history.manager.wait()
    history.check()


def test_additions(history):
    """New keys, keys that are there, both with a wrong idea of it, which TFRA ignores, and keys twice in one batch."""
    params = oracle.layer_of(history.model).params
    old = rows.values_of(params, 6, 1, value=1.0)

    def add(keys, exists, amount):
        params.accum(keys, old, old + amount, tf.constant(exists))

    params.upsert(keys_of(*range(6)), old)
    assert history.save() == {"base": 6}
    add(keys_of(0, 1, 2, 10, 11, 12), [True, True, False, False, False, True], 0.5)
    history.save()
    add(keys_of(0, 0, 0, 20, 20, 1), [True, True, True, False, False, True], 0.25)
    history.save()
    found = params.lookup(keys_of(0, 1, 2, 12), return_exists=True)
    assert found[0].numpy()[:3, 0].tolist() == [2.25, 1.75, 1.0] and found[1].numpy().tolist() == [True] * 3 + [False]
    history.check()


def test_a_key_many_times_in_one_batch(history, monkeypatch):
    """Its row is captured once, as it was at the cut."""
    params = oracle.layer_of(history.model).params
    batch = keys_of(*[5, 6, 5, 5, 7, 6] * 40)
    params.upsert(batch, rows.values_of(params, 240, 1))
    assert history.save() == {"base": 3}
    params.upsert(batch, rows.values_of(params, 240, 2))
    go, save = threading.Event(), history.manager.engine.save
    with monkeypatch.context() as patch:
        patch.setattr(history.manager.engine, "save", lambda *arguments: go.wait(30) and save(*arguments))
        copy = oracle.take(history.model)
        history.copies[history.manager.save().name] = copy
        params.upsert(batch, rows.values_of(params, 240, 3))
        params.remove(batch[:100])
        go.set()
        history.manager.wait()
    assert history.manager.stats()["rows"]["increment"] == {"emb0-parameter": 3}
    assert history.save() == {"increment": 3}
    history.check()


def test_a_key_that_is_not_there_is_no_tombstone(history):
    rows.write(history.model, range(10))
    rows.remove(history.model, range(100, 200))
    assert history.save() == {"base": 10} and history.entries() == 10
    rows.remove(history.model, list(range(8, 30)) + [9, 9])
    # Two tombstones, which are all there is; their entries go with the commit.
    assert history.save() == {"increment": 2} and history.entries() == 8
    rows.remove(history.model, range(8, 30))
    assert history.save().get("increment", 0) == 0 and history.entries() == 8
    # Made and removed between two cuts: the base may have it, for all the tracker knows.
    rows.write(history.model, [50])
    rows.remove(history.model, [50])
    assert history.save() == {"increment": 1} and history.entries() == 8
    history.check()


def test_lookups_change_nothing(history):
    rows.write(history.model, range(10))
    history.save()
    for _, variable in oracle.tables_of(history.model):
        values, exists = variable.lookup(keys_of(*range(5, 15)), return_exists=True)
        assert exists.numpy().tolist() == [True] * 5 + [False] * 5
        assert variable.lookup(keys_of(3, 77)).shape == values[:2].shape
    assert history.entries() == 10 and history.save().get("increment", 0) == 0
    history.check()


def test_ops_on_keys_of_another_type_or_shape(history):
    """TFRA refuses them; nothing is marked, and nothing lost."""
    rows.write(history.model, range(10))
    history.save()
    table = oracle.layer_of(history.model).params.tables[0]
    with pytest.raises((tf.errors.OpError, TypeError, ValueError)):
        table.remove(tf.constant([1], tf.int32))
    with pytest.raises((tf.errors.OpError, TypeError, ValueError)):
        table.insert(keys_of(2, 4), tf.zeros([3, oracle.DIM]))
    table.insert(tf.zeros([0], tf.int64), tf.zeros([0, oracle.DIM]))
    table.remove(tf.zeros([0], tf.int64))
    assert history.save().get("increment", 0) <= 2
    history.check()
