"""Keys and values of every type come back to the bit; so do rows that some tables of a group lack."""

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows

SPECIAL = [-2**63, -1, 0, 2**63 - 1]


def round_trip(model, directory, make_fresh, policy="adaptive"):
    """A base, an increment and a removal; every head into a fresh model and into the live one."""
    manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=10)
    copies = {}
    for i in range(3):
        rows.write(model, range(i * 20, i * 20 + 50), seed=i)
        rows.remove(model, [i * 20 + 1])
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        rows.write(model, range(30), seed=100 + i)
        manager.wait()
    for name in copies:
        model.load_adaptcp(directory, name)
        oracle.check(copies[name], model, name)
    fresh = make_fresh()
    fresh.load_adaptcp(directory)
    oracle.check(list(copies.values())[-1], fresh)
    return copies


@pytest.mark.parametrize("key_dtype", [tf.int64, tf.int32, tf.string])
@pytest.mark.parametrize("shards", [1, 2])
def test_keys(key_dtype, shards, tmp_path):
    def make():
        if key_dtype == tf.string:
            return _free_tables(tf.string, tf.float32, shards)
        return oracle.build("adam", key_dtype=key_dtype, devices=["/CPU:0"] * shards)

    copies = round_trip(make(), tmp_path, make)
    assert len(list(copies.values())[-1].tables["emb0-parameter" if key_dtype != tf.string else "free"]) > 50


@pytest.mark.parametrize("key_dtype,value_dtype", [
    (tf.int64, tf.float16), (tf.int64, tf.bfloat16), (tf.int64, tf.float64), (tf.int64, tf.int64),
    (tf.int64, tf.int32), (tf.int64, tf.int8), (tf.int64, tf.string), (tf.string, tf.int64), (tf.string, tf.float16),
    (tf.int32, tf.float64)])
def test_values(key_dtype, value_dtype, tmp_path):
    """Random bits: NaNs of every kind, infinities, denormals."""
    try:
        model = _free_tables(key_dtype, value_dtype)
        model.layers[-1].params.size()
    except (tf.errors.OpError, TypeError, ValueError) as error:
        _check_not_a_type_of_tfra(error)
        print(f"TFRA's CPU table does not take {key_dtype.name} -> {value_dtype.name}: {error}")
        return
    round_trip(model, tmp_path, lambda: _free_tables(key_dtype, value_dtype))


def _check_not_a_type_of_tfra(error):
    text = str(error)
    assert "No OpKernel" in text or "not supported" in text or "not in the list" in text or "Could not find" in text, text


@pytest.mark.parametrize("value_dtype", [tf.float16, tf.float64])
def test_trained_values_with_slots(value_dtype, tmp_path):
    def make():
        return oracle.build("adam", value_dtype=value_dtype)

    round_trip(make(), tmp_path, make)


def test_special_keys(tmp_path):
    """(HierarchicalKV#191)"""
    model = oracle.build("adam")
    rows.write(model, SPECIAL)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    first = oracle.take(model)
    manager.save()
    manager.wait()
    rows.write(model, SPECIAL[1:], seed=1)
    rows.remove(model, SPECIAL[:1])
    second = oracle.take(model)
    manager.save()
    manager.wait()
    assert sorted(first.tables["emb0-parameter"]) == SPECIAL
    for copy, info in zip((first, second), manager.checkpoints):
        fresh = oracle.build("adam", seed=3)
        fresh.load_adaptcp(tmp_path, info.name)
        oracle.check(copy, fresh)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("policy", ["incremental", "differential"])
def test_rows_that_some_tables_lack(policy, shards, tmp_path):
    """Keys in the parameter without slots, in one slot alone, and in none any more."""
    def make():
        return oracle.build("adam", devices=["/CPU:0"] * shards)

    model = make()
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, max_to_keep=10)
    copies = {}
    steps = [lambda: rows.write(model, range(30), tables=slice(1)),
             lambda: rows.write(model, range(10, 20), tables=slice(1, 2)),
             lambda: rows.write(model, range(40, 50), tables=slice(2, 3)),
             lambda: rows.remove(model, range(5, 15), tables=slice(1)),
             lambda: rows.remove(model, range(12, 18), tables=slice(1, 2)),
             lambda: rows.remove(model, range(60))]
    for step in steps:
        step()
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        manager.wait()
    counts = [list(copy.rows().values()) for copy in copies.values()]
    assert counts == [[30, 0, 0], [30, 10, 0], [30, 10, 10], [20, 10, 10], [20, 4, 10], [0, 0, 0]]
    for name in copies:
        for target in (model, make()) if name == list(copies)[3] else (model,):
            target.load_adaptcp(tmp_path, name)
            oracle.check(copies[name], target, name)


def test_rows_equal_to_any_constant(tmp_path):
    """Whether a row is there is told by looking it up with defaults; no row may look like one."""
    model = oracle.build("adam", dim=2)
    _, variable = next(oracle.tables_of(model))
    patterns = np.array([[0x5a] * 8, [0xa5] * 8, [0] * 8, [255] * 8, [0x5a] * 4 + [0xa5] * 4], np.uint8)
    variable.upsert(tf.range(5, dtype=tf.int64), patterns.view(np.float32))
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    fresh = oracle.build("adam", dim=2, seed=3)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


class _Holder(tf.keras.layers.Layer):
    """Holds a TFRA variable of any type without training it."""

    def __init__(self, key_dtype, value_dtype, shards):
        super().__init__(name="holder")
        import tensorflow_recommenders_addons.dynamic_embedding as de
        self.params = de.get_variable("free", key_dtype=key_dtype, value_dtype=value_dtype, dim=2, trainable=False,
                                      devices=["/CPU:0"] * shards,
                                      initializer="" if value_dtype == tf.string else 0)
        self.shadow = self.params

    def call(self, inputs):
        return inputs


def _free_tables(key_dtype, value_dtype, shards=1):
    tf.keras.backend.clear_session()
    inputs = tf.keras.Input((1,), name="x")
    return tf.keras.Model(inputs, _Holder(key_dtype, value_dtype, shards)(inputs))
