"""Restrict policies: what they evict stays away, and what they know of keys is saved with the rows."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle
from tests.support.saving import save

POLICIES = [de.TimestampRestrictPolicy, de.FrequencyRestrictPolicy]


def build(policy, optimizer, shards=2, seed=5, **layer):
    return oracle.build(optimizer, devices=["/CPU:0"] * shards, restrict_policy=policy, seed=seed, **layer)


def params_of(model):
    return oracle.layer_of(model).params


def age(model):
    """Makes every key's status another one, so that which keys go is no matter of chance."""
    status = params_of(model).restrict_policy.status
    keys, _ = status.export()
    status.upsert(keys, tf.cast(keys, tf.int32)[:, None] % 97 + tf.ones([1, 1], tf.int32))


@pytest.mark.parametrize("policy,optimizer,shards", [
    (de.TimestampRestrictPolicy, "new_adam", 1), (de.FrequencyRestrictPolicy, "adam", 3)])
def test_evicted_rows_stay_away(policy, optimizer, shards, tmp_path, monkeypatch):
    """Trained, restricted and restored, on as many shards and on another number. (recsys-examples#450)"""
    model = build(policy, optimizer)
    trainer = oracle.Trainer(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "adaptive", max_to_keep=100)
    copies = {}
    trainer.train(4)
    age(model)
    save(manager, model, copies)
    trainer.train(2)
    params_of(model).restrict(40)
    save(manager, model, copies)
    before, after = (copy.tables for copy in copies.values())
    kept = set(after["emb0-parameter"])
    name, = [table for table in after if table.split("/")[-1] in ("timestamp", "frequency")]
    assert name.startswith("emb0-parameter/") and len(after) == 4
    assert all(set(table) == kept for table in after.values()) and len(kept) <= 40 < len(before["emb0-parameter"])

    # Evictions while a checkpoint is written, after its cut. (DeepRec PR#808)
    save_segments, go = manager.engine.save, threading.Event()
    monkeypatch.setattr(manager.engine, "save", lambda *arguments: go.wait(30) and save_segments(*arguments))
    trainer.train(2)
    copy = oracle.take(model)
    copies[manager.save().name] = copy
    params_of(model).restrict(20)
    trainer.train(1)
    go.set()
    params_of(model).restrict(10)
    manager.wait()
    monkeypatch.undo()
    save(manager, model, copies)

    for name in reversed(copies):
        model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, name)
    newest = list(copies)[-1]
    fresh = build(policy, optimizer, shards, seed=9)
    assert fresh.load_adaptcp(tmp_path).rows == copies[newest].rows()
    oracle.check(copies[newest], fresh, f"into {shards} shards", shards=False)
    oracle.check_placement(fresh)
    # The policy goes on from there; a restriction before the first step takes slots along.
    params_of(fresh).restrict(9)
    left, = set(oracle.take(fresh).rows().values())
    assert left <= 9 < max(copies[newest].rows().values())
    oracle.Trainer(fresh, first=50).train(2)
    copy = oracle.take(fresh)
    again = tfadaptcp.CheckpointManager(fresh, tmp_path, "adaptive", max_to_keep=100)
    again.save()
    again.wait()
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


@pytest.mark.parametrize("key_dtype", [tf.int32, tf.string])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_variable_of_its_own(policy, key_dtype, tmp_path):
    """Without an optimizer, updated and restricted by hand; keys of other types."""
    tf.keras.backend.clear_session()

    class Holder(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__(name="holder")
            self.params = de.get_variable("free", key_dtype=key_dtype, dim=2, trainable=False, restrict_policy=policy)
            self.shadow = self.params

        def call(self, inputs):
            return inputs

    inputs = tf.keras.Input((1,))
    model = tf.keras.Model(inputs, Holder()(inputs))
    params = model.layers[-1].params
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=100)
    copies = {}
    for i in range(3):
        numbers = np.arange(i * 10, i * 10 + 30)
        keys = tf.constant([str(n) for n in numbers]) if key_dtype == tf.string else tf.constant(numbers, key_dtype)
        params.upsert(keys, tf.random.normal([30, 2]))
        params.restrict_policy.apply_update(keys)
        if i:
            params.restrict(25, trigger=28)
        save(manager, model, copies)
    assert [copy.rows()["free"] for copy in copies.values()] == [30, 25, 25]
    for name in reversed(copies):
        model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, name)


def test_weights_alone_are_restored_with_their_status(tmp_path):
    """Rows without one could not be restricted any more: the table would only grow."""
    model = build(de.FrequencyRestrictPolicy, "momentum")
    keys = tf.range(40, dtype=tf.int64)
    params_of(model).upsert(keys, tf.random.normal([40, oracle.DIM]))
    params_of(model).restrict_policy.apply_update(keys)
    age(model)
    copy = oracle.take(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    manager.save()
    manager.wait()
    fresh = build(de.FrequencyRestrictPolicy, "momentum", shards=3, seed=9)
    fresh.load_adaptcp(tmp_path, optimizer=False)
    found = oracle.take(fresh)
    for name in (params_of(fresh).name, f"{params_of(fresh).name}/frequency"):
        assert {key: row for key, (_, row) in found.tables[name].items()} == {
            key: row for key, (_, row) in copy.tables[name].items()}
    params_of(fresh).restrict(30, trigger=30)
    assert int(params_of(fresh).size()) == 30
    # A checkpoint made without a policy has none.
    plain = oracle.build("momentum", names=["emb0"])
    params_of(plain).upsert(keys, tf.random.normal([40, oracle.DIM]))
    manager = tfadaptcp.CheckpointManager(plain, tmp_path / "plain")
    manager.save()
    manager.wait()
    build(de.FrequencyRestrictPolicy, "momentum", seed=9).load_adaptcp(tmp_path / "plain", optimizer=False)
