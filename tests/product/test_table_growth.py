"""Tables are grown before the rows of a restore come: by as much as they will need, and nothing stays in them."""

import threading
import types

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import engine
from tfadaptcp.engine import Engine
from tfadaptcp.hosts import Host, Shard

ROWS = 90_000


def growing(directory, **model):
    """A model with empty tables, and a call that makes room in its parameter as a restore does."""
    model = oracle.build("adam", **model)
    engine = tfadaptcp.CheckpointManager(model, directory).engine
    name = next(oracle.tables_of(model))[0]
    return model, lambda count: list(engine.grow_tables({name: count}, 60).values())


@pytest.mark.parametrize("key_dtype,dim,init_capacity", [
    (tf.int64, 2, 0), (tf.int64, 1, 1), (tf.int64, 1, 60_000), (tf.int64, 3, 300_000), (tf.int32, 2, 0), (tf.int64, 220, 0)])
def test_slots_are_there(key_dtype, dim, init_capacity, tmp_path):
    """What was found of a table is what it was made to be: the second call sees in its export what the first did."""
    model, grow = growing(tmp_path, key_dtype=key_dtype, dim=dim, init_capacity=init_capacity)
    first = max(2**17, 2 ** int(np.ceil(np.log2(max(init_capacity, 1)))))
    for count, slots in ((ROWS, first), (ROWS, first), (300_000, 2**19), (510_000, 2**20), (70_000, 2**20)):
        assert grow(count) == [slots]
        assert not any(oracle.take(model).rows().values())
    # It is a table as others are.
    rows.write(model, range(-2000, 7000), seed=1)
    rows.remove(model, range(0, 4000, 3))
    grown, (plain, _) = oracle.take(model), growing(tmp_path / "plain", key_dtype=key_dtype, dim=dim)
    rows.write(plain, range(-2000, 7000), seed=1)
    rows.remove(plain, range(0, 4000, 3))
    assert grown.tables == oracle.take(plain).tables


def test_few_rows_are_inserted_at_once(tmp_path):
    _, grow = growing(tmp_path)
    assert grow(60_000) == []


def test_keys_of_four_bytes_crowd_no_larger_tables(tmp_path):
    """There are not enough of them with both buckets in common; the rest of the way such a table grows by itself."""
    _, grow = growing(tmp_path, key_dtype=tf.int32, dim=1)
    assert 2**22 <= grow(10**18)[0] <= 2**25


def test_rows_are_never_taken_for_room(tmp_path):
    model, grow = growing(tmp_path)
    rows.write(model, [5])
    copy = oracle.take(model)
    with pytest.raises(tf.errors.FailedPreconditionError, match="a table of 1 rows to be grown. Expected: an empty one"):
        grow(ROWS)
    oracle.check(copy, model)


def test_growth_of_an_older_restore_is_refused(tmp_path):
    model, grow = growing(tmp_path)
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    manager.save()
    manager.wait()
    model.load_adaptcp(tmp_path)
    manager.engine.restore -= 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="growth of restore 0 came too late: restore 1 has begun"):
        grow(ROWS)


@pytest.mark.parametrize("write", [lambda table: table.upsert(rows.keys_of(table, [5]), rows.values_of(table, 1, 0)),
                                   lambda table: table.remove(rows.keys_of(table, range(ROWS)))], ids=["a row", "removals"])
def test_whoever_writes_meanwhile(write, tmp_path, monkeypatch):
    """Removals would leave libcuckoo too few rows to double, for which it ends the process. A row would go with those that
    made it double, and pass for newer than the checkpoint's."""
    model = oracle.build("adam")
    table = next(variable for _, variable in oracle.tables_of(model))
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    rows.write(model, range(ROWS))
    manager.save() and manager.wait()
    copy, grow_tables = oracle.take(model), Engine.grow_tables

    def while_others_write(self, wanted, *args):
        grown = threading.Event()

        def write_when_it_grows():
            while not grown.is_set():
                if int(table.size()) > 0:
                    write(table)

        writer = threading.Thread(target=write_when_it_grows)
        writer.start()
        try:
            return grow_tables(self, {name: 30 * count for name, count in wanted.items()}, *args)
        finally:
            grown.set()
            writer.join()

    with monkeypatch.context() as patch, pytest.raises(tfadaptcp.RestoreFailedError, match="removed from a table|writes to"):
        patch.setattr(Engine, "grow_tables", while_others_write)
        for _ in range(50):
            model.load_adaptcp(tmp_path)
    model.load_adaptcp(tmp_path)
    oracle.check(copy, model)


def test_room_is_made_where_the_rows_were():
    group = types.SimpleNamespace(name="emb", num_shards=4)
    shards = [Shard(group, i) for i in range(4)]
    hosts = [Host(0, "", tuple(shards[:1]), ()), Host(1, "", tuple(shards[1:3]), ()), Host(2, "", tuple(shards[3:]), ())]
    places = list(zip((hosts[0], hosts[1], hosts[1], hosts[2]), shards))
    assert [engine.rows_of_shard(4000, *place, None) for place in places] == [1000] * 4
    # Of 5000 rows in the files 1000 have been written once more since.
    assert [engine.rows_of_shard(4000, *place, {0: 500, 1: 4500}) for place in places] == [400, 1800, 1800, 0]
    assert [engine.rows_of_shard(0, *place, {}) for place in places] == [0] * 4


@pytest.mark.parametrize("devices", [1, 2])
def test_a_restore_makes_room(devices, tmp_path, monkeypatch):
    """In place and routed, for as many rows as each table had; slots of the optimizer may have fewer."""
    model = oracle.build("adam", devices=["/CPU:0"] * 2)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    rows.write(model, range(2 * ROWS))
    rows.remove(model, range(1000, 2 * ROWS), tables=slice(1, 2))
    manager.save() and manager.wait()
    rows.write(model, range(100), seed=1)
    manager.save() and manager.wait()
    copy, grown, grow_tables = oracle.take(model), [], Engine.grow_tables
    monkeypatch.setattr(Engine, "grow_tables", lambda self, *args: grown.append(grow_tables(self, *args)))
    fresh = oracle.build("adam", devices=["/CPU:0"] * devices, seed=3)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh, shards=devices == 2)
    names = [name for name, _ in oracle.tables_of(fresh)]
    assert grown == [{(name, shard): 2**(19 - devices) for name in (names[0], names[2]) for shard in range(devices)}]
