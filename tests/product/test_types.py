"""Keys and values of every type come back to the bit; so do rows that some tables of a group lack."""

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tests.support.saving import Mixed

# Every pair that TFRA's CPU table is registered for.
VALUES = {
    tf.int64: [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int64, tf.int32, tf.int8, tf.string],
    tf.int32: [tf.float32, tf.float64, tf.bfloat16, tf.int32],
    tf.string: [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int64, tf.int32, tf.int8, tf.bool],
}
SPECIAL = {
    tf.int64: [-2**63, -1, 0, 2**63 - 1],
    tf.int32: [-2**31, -1, 0, 2**31 - 1],
    tf.string: [b"", b"\0", b"a\0b", b"a", b"\xff\xfe", "\u00fc\u4e2d".encode(), b"x" * 5000],
}


def round_trip(model, directory, make_fresh):
    """A base, changes hot and cold, and removals; every head into the live model, the last into a fresh one."""
    manager = tfadaptcp.CheckpointManager(model, directory, Mixed(), max_to_keep=10)
    copies = {}
    for i in range(3):
        rows.write(model, range(i * 20, i * 20 + 50), seed=i)
        rows.remove(model, [i * 20 + 1])
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        rows.write(model, range(30), seed=100 + i)
        manager.wait()
    written = manager.checkpoints[-1].rows
    assert all(sum(written[kind].values()) > 10 for kind in ("base", "increment", "differential"))
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


@pytest.mark.parametrize("key_dtype,value_dtype", [(key, value) for key in VALUES for value in VALUES[key]],
                         ids=lambda dtype: dtype.name)
def test_values(key_dtype, value_dtype, tmp_path):
    """Random bits: NaNs of every kind, infinities, denormals."""
    model = _free_tables(key_dtype, value_dtype)
    round_trip(model, tmp_path, lambda: model)


@pytest.mark.parametrize("value_dtype", [tf.float16, tf.float64])
def test_trained_values_with_slots(value_dtype, tmp_path):
    def make():
        return oracle.build("adam", value_dtype=value_dtype)

    round_trip(make(), tmp_path, make)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("key_dtype", SPECIAL, ids=lambda dtype: dtype.name)
def test_special_keys(key_dtype, shards, tmp_path):
    """(HierarchicalKV#191)"""
    model = _free_tables(key_dtype, tf.float32, shards)
    params = model.layers[-1].params
    special = SPECIAL[key_dtype]
    keys = tf.constant(special, key_dtype)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, Mixed(), max_to_keep=10)
    copies = []
    for i in range(4):
        params.upsert(keys, rows.values_of(params, len(special), i))
        if i == 2:
            params.remove(keys[:2])
        if i == 3:
            params.remove(keys)
        copies.append(oracle.take(model))
        manager.save()
        manager.wait()
    assert sorted(copies[0].tables["free"]) == sorted(special) and copies[3].tables["free"] == {}
    fresh = _free_tables(key_dtype, tf.float32, 3 - shards)
    for copy, info in zip(copies, manager.checkpoints):
        for target in (model, fresh):
            target.load_adaptcp(tmp_path, info.name)
            oracle.check(copy, target, shards=target is model)


def test_special_strings_as_values(tmp_path):
    """Also those that a row which is not there is told by."""
    model = _free_tables(tf.int64, tf.string)
    params = model.layers[-1].params
    values = SPECIAL[tf.string] + [b"\x01 absent a", b"\x01 absent b"]
    params.upsert(tf.range(len(values), dtype=tf.int64), tf.constant([[value] * 2 for value in values]))
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    manager.save()
    manager.wait()
    params.clear()
    model.load_adaptcp(tmp_path)
    keys, found = params.export()
    assert {int(key): list(row) for key, row in zip(keys, found.numpy())} == {
        i: [value] * 2 for i, value in enumerate(values)}


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


def test_the_memory_of_strings_counts(tmp_path):
    """Only what holds them counted, so that capture memory took many times what it was allowed."""
    for key_dtype, value_dtype in ((tf.string, tf.float32), (tf.int64, tf.string)):
        model = _free_tables(key_dtype, value_dtype)
        params = model.layers[-1].params
        text = [b"%04d" % i + b"x" * 2000 for i in range(300)]
        if key_dtype == tf.string:
            params.upsert(tf.constant(text), rows.values_of(params, 300, 1))
        else:
            params.upsert(tf.range(300, dtype=tf.int64), tf.constant([[value] * 2 for value in text]))
        manager = tfadaptcp.CheckpointManager(model, tmp_path / key_dtype.name)
        manager.save()
        manager.wait()
        assert 300 * 2000 <= manager.stats()["capture_peak_bytes"] <= 3 * 300 * 2000
        manager.close()
