"""Restores in part: some tables, under other names, without the optimizer, into other types. The rest stays, rows and all.

What must come out is put together from full copies of the checkpoint and of the model before the restore.
"""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import restore

SLOTS = ("", "/m", "/v")
POLICY = tfadaptcp.policies.Adaptive(restore_weight=8.0, renewal="period", first_period=10, max_restore_factor=50.0)


def group(i, name=None):
    return [f"{name or f'emb{i}'}-parameter{slot}" for slot in SLOTS]


def build(shards=2, **kwargs):
    """A model of Adam with rows and dense values of its own."""
    seed = kwargs.pop("seed", 77)
    model = oracle.build("adam", devices=["/CPU:0"] * shards, seed=seed, **{"tables": 2, **kwargs})
    oracle.Trainer(model, first=seed).train(2)
    model.optimizer.learning_rate = 0.5
    rows.write(model, range(30, 60), seed=seed)
    rows.remove(model, [33])
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with a base, an increment, a differential and tombstones; the copy at its newest cut."""
    directory = tmp_path_factory.mktemp("saved")
    model = oracle.build("adam", devices=["/CPU:0"] * 2, tables=2)
    manager = tfadaptcp.CheckpointManager(model, directory, POLICY)
    trainer = oracle.Trainer(model)
    for i in range(3):
        trainer.train(3)
        rows.write(model, range(40 + 10 * i, 70 + 10 * i), seed=i)
        rows.remove(model, range(45, 47 + i))
        copy = oracle.take(model)
        manager.save()
        manager.wait()
    return directory, copy


def expected(before, copy, tables=None, dense=(), scalars=None):
    """`before`, with {table: table of `copy`} and the dense variables of `copy` in it."""
    if tables is not None and not isinstance(tables, dict):
        tables = {name: name for name in tables}
    found = dataclasses.replace(before, tables=dict(before.tables), dense=dict(before.dense))
    found.tables.update({name: copy.tables[source] for name, source in (tables or {}).items()})
    found.dense.update({name: copy.dense[name] for name in dense})
    return found if scalars is None else dataclasses.replace(found, scalars=scalars)


def check_next_is_complete(model, directory, shards):
    """What is in the tables now, rows that stayed and rows restored, is in the next checkpoint, and nothing else."""
    manager = tfadaptcp.CheckpointManager(model, directory, POLICY)
    for step in range(2):
        copy = oracle.take(model)
        info = manager.save()
        manager.wait()
        assert ("base" in manager.stats()["rows"]) == (step == 0), "the first is complete, the second continues it"
        fresh = oracle.build("adam", devices=["/CPU:0"] * shards, tables=len(oracle_layers(model)), seed=3,
                             names=[layer.name for layer in oracle_layers(model)])
        fresh.load_adaptcp(directory, info.name)
        oracle.check(copy, fresh, f"checkpoint {step} after a restore in part", shards=False)
        rows.write(model, [41, 42, 9000 + step], seed=50 + step)
        rows.remove(model, [48, 50])


def oracle_layers(model):
    return [layer for layer in model.layers if hasattr(layer, "shadow")]


@pytest.mark.parametrize("shards", [2, 3])
def test_one_group(saved, tmp_path, shards):
    directory, copy = saved
    # Goes on where it restored from: a chain that went on there would lack the rows that stayed.
    directory = shutil.copytree(directory, tmp_path / "run")
    model = build(shards)
    before = oracle.take(model)
    report = model.load_adaptcp(directory, tables=["emb1-parameter"])
    oracle.check(expected(before, copy, group(1)), model, shards=False)
    oracle.check_placement(model)
    assert report.rows == {name: len(copy.tables[name]) for name in group(1)}
    assert not report.missing and not report.unexpected
    check_next_is_complete(model, directory, shards)


@pytest.mark.parametrize("shards", [2, 3])
def test_weights_only(saved, tmp_path, shards):
    directory, copy = saved
    model = build(shards)
    before = oracle.take(model)
    report = model.load_adaptcp(directory, optimizer=False)
    weights = ["emb0-parameter", "emb1-parameter"]
    dense = [name.removesuffix(":0") + ":0" for name in copy.dense if name.startswith(("hidden", "out"))
             and not name.split(":")[0].endswith(("/m", "/v"))]
    assert len(dense) == 4
    oracle.check(expected(before, copy, weights, dense), model, shards=False)
    assert sorted(report.rows) == weights
    if shards == 3:
        check_next_is_complete(model, tmp_path, shards)


def test_single_tables_and_dense_variables_by_pattern(saved, tmp_path):
    directory, copy = saved
    model = build()
    before = oracle.take(model)
    model.load_adaptcp(directory, tables=["emb?-parameter/m", "out/*"])
    dense = [name for name in copy.dense if name.startswith("out/")]
    found = oracle.take(model)
    want = expected(before, copy, ["emb0-parameter/m", "emb1-parameter/m"], ["out/kernel:0", "out/bias:0"])
    assert set(dense) >= {"out/kernel:0", "out/bias:0"}
    assert found.tables == expected(before, copy, ["emb0-parameter/m", "emb1-parameter/m"]).tables
    assert {name: found.dense[name] for name in ("out/kernel:0", "out/bias:0", "hidden/kernel:0")} == \
        {name: want.dense[name] for name in ("out/kernel:0", "out/bias:0", "hidden/kernel:0")}
    assert found.scalars == before.scalars
    check_next_is_complete(model, tmp_path, 2)


@pytest.mark.parametrize("shards", [2, 3])
def test_other_names(saved, tmp_path, shards):
    """(recommenders-addons#114, torchrec#2394)"""
    directory, copy = saved
    model = build(shards, names=["users", "emb1"])
    model.load_adaptcp(directory, rename={"emb0-parameter": "users-parameter"})
    found = oracle.take(model)
    sources = dict(zip(group(0, "users") + group(1), group(0) + group(1)))
    assert {name: plain(found.tables[name]) for name in sources} == \
        {name: plain(copy.tables[source]) for name, source in sources.items()}
    assert found.dense == copy.dense and found.scalars == copy.scalars
    if shards == 2:
        check_next_is_complete(model, tmp_path, shards)


def test_names_exchanged(saved):
    """Equal specs, so nothing but the names tells that the rows are others: the chain must not go on."""
    directory, copy = saved
    model = build(tables=2, dim=4)
    swap = {"emb0-parameter/m": "emb0-parameter/v", "emb0-parameter/v": "emb0-parameter/m"}
    model.load_adaptcp(directory, rename=swap)
    found = oracle.take(model)
    assert found.tables["emb0-parameter/v"] == copy.tables["emb0-parameter/m"]
    assert found.tables["emb0-parameter/m"] == copy.tables["emb0-parameter/v"]
    assert model._tfadaptcp_engine.lineage.position_in(str(directory)) is None


def test_what_only_the_model_has_stays(saved, tmp_path):
    """strict=False: a table that the checkpoint lacks, and its slots, with their rows."""
    directory, copy = saved
    model = build(names=["emb0", "other"])
    before = oracle.take(model)
    report = model.load_adaptcp(directory, strict=False)
    found = oracle.take(model)
    want = expected(before, copy, group(0))
    assert found.tables == want.tables and len(found.tables["other-parameter"]) > 20
    assert report.missing == group(1, "other") and report.unexpected == group(1)
    check_next_is_complete(model, tmp_path, 2)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_cast(saved, dtype):
    directory, copy = saved
    model = build(value_dtype=tf.as_dtype(dtype))
    before = oracle.take(model)
    for kwargs in ({}, {"optimizer": False}, {"strict": False}):
        with pytest.raises(tfadaptcp.CheckpointMismatchError, match=f"float32 .*Expected: {dtype}.*cast=True"):
            model.load_adaptcp(directory, **kwargs)
    oracle.check(before, model, "nothing was changed")
    model.load_adaptcp(directory, cast=True)
    found = oracle.take(model)
    for name, table in copy.tables.items():
        with np.errstate(over="ignore", invalid="ignore"):
            want = {key: flushed(np.frombuffer(row, np.float32)).astype(dtype) for key, (_, row) in table.items()}
        have = {key: np.frombuffer(row, dtype) for key, (_, row) in found.tables[name].items()}
        assert have.keys() == want.keys()
        for key in want:
            np.testing.assert_array_equal(have[key], want[key], f"{name}, key {key}")


@pytest.mark.parametrize("arguments,match", [
    ({"tables": ["emb1-paramter"]}, r"tables: Received: 'emb1-paramter'.*nearest.*'emb1-parameter'"),
    ({"tables": ["emb0-parameter", "nothing*"]}, "tables: Received: 'nothing\\*'"),
    ({"rename": {"emb7-parameter": "emb0-parameter"}}, "rename: Received: 'emb7-parameter'.*the checkpoint, the nearest"),
    ({"rename": {"emb0-parameter": "user"}}, "rename: Received: 'user'.*the model, the nearest"),
    ({"rename": {"emb0-parameter": "emb1-parameter", "hidden/bias": "emb1-parameter"}}, "for several names"),
    ({"rename": {"emb0-parameter/m": "emb1-parameter/m"}}, "Expected: a table of emb0-parameter"),
    ({"rename": {"emb0-parameter": "emb1-parameter"}}, "emb1-parameter: Received: float32 of dim 4.*dim 5"),
    ({"rename": {"hidden/bias": "out/bias"}}, r"out/bias: Received: float32\[3\].*Expected: float32\[1\]"),
])
def test_what_does_not_fit_changes_nothing(saved, arguments, match):
    directory, _ = saved
    model = shared_model()
    before = oracle.take(model)
    for strict in (True, False):
        with pytest.raises(tfadaptcp.CheckpointMismatchError, match=match):
            model.load_adaptcp(directory, strict=strict, **arguments)
    oracle.check(before, model)


@pytest.mark.parametrize("arguments", [
    {"tables": []}, {"tables": [3]}, {"rename": ["a"]}, {"rename": {"a": 3}}, {"optimizer": None}, {"cast": "yes"}])
def test_arguments_of_the_wrong_kind(saved, arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}: Received: .*Expected: "):
        shared_model().load_adaptcp(saved[0], **arguments)


def test_the_manager_restores_in_part_too(saved, tmp_path):
    directory, copy = saved
    model = build()
    before = oracle.take(model)
    manager = tfadaptcp.CheckpointManager(model, directory)
    manager.restore(tables="emb0-parameter")
    oracle.check(expected(before, copy, group(0)), model)
    with pytest.raises(tfadaptcp.CheckpointMismatchError, match="nearest"):
        manager.restore(tables="emb9-parameter")


def test_damage_leaves_the_restored_table_empty_and_the_others_as_they_were(saved, tmp_path):
    directory, _ = saved
    shutil.copytree(directory, tmp_path / "copy")
    for file in (tmp_path / "copy" / "data").glob("*/base-*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    model = build()
    before = oracle.take(model)
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="base-ps0.*byte"):
        model.load_adaptcp(tmp_path / "copy", tables=["emb1-parameter/m"])
    want = expected(before, before)
    want.tables["emb1-parameter/m"] = {}
    oracle.check(want, model)
    check_next_is_complete(model, tmp_path / "next", 2)


_SHARED = []


def shared_model():
    """One model for the tests that must not change it; another model may have cleared its session since."""
    if not _SHARED:
        _SHARED.append(build())
    return _SHARED[0]


def flushed(values):
    """TensorFlow computes without subnormal numbers."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, 0 * values, values)


def plain(table):
    """{key: row}, whatever the shard."""
    return {key: row for key, (_, row) in table.items()}


@pytest.mark.parametrize("fails", ["begin", "list_rows"])
def test_rows_that_stay_are_saved_after_a_restore_that_failed(saved, tmp_path, monkeypatch, fails):
    """The tracker of the group was emptied, and what stayed was never listed again: the next base lacked it."""
    directory, _ = saved
    model = build(1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    begin = restore._begin

    def begun_and_unanswered(*args):
        begin(*args)
        raise tfadaptcp.DeadlineError("No answer from ps 1")

    def unlisted(*unused):
        raise tfadaptcp.DeadlineError("No answer from ps 1")

    with monkeypatch.context() as patch:
        if fails == "begin":
            patch.setattr(restore, "_begin", begun_and_unanswered)
        else:
            patch.setattr("tfadaptcp.engine.Engine.list_rows", unlisted)
        with pytest.raises(tfadaptcp.DeadlineError):
            model.load_adaptcp(directory, tables=["emb0-parameter/m"])
    kept = dict(oracle.take(model).tables)
    assert kept["emb0-parameter"] and kept["emb0-parameter/v"]
    manager.save()
    manager.wait()
    fresh = oracle.build("adam", tables=2, seed=3)
    fresh.load_adaptcp(tmp_path)
    oracle.check(oracle.take(model), fresh)


def test_a_fallback_that_lacks_what_the_damaged_one_had(tmp_path):
    """`strict=False` leaves alone what a checkpoint lacks. What the damaged one has emptied is not left alone."""
    small = oracle.build("adam", tables=1)
    rows.write(small, range(20))
    manager = tfadaptcp.CheckpointManager(small, tmp_path)
    manager.save()
    manager.close()
    large = oracle.build("adam", tables=2)
    rows.write(large, range(20))
    manager = tfadaptcp.CheckpointManager(large, tmp_path)
    manager.save()
    manager.wait()
    base, = (tmp_path / "data" / manager.latest_checkpoint).glob("base-*")
    base.write_bytes(base.read_bytes()[:-1])
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="the one before it lacks.*emb1-parameter"):
        oracle.build("adam", tables=2, seed=4).load_adaptcp(tmp_path, strict=False, tables=["emb*"])
