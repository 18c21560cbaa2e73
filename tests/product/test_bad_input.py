"""Each wrong input has its own error, which names what came and what was expected; nothing is changed."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import faults, oracle, rows
from tfadaptcp import EngineOptions, policies


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with one checkpoint of an Adam model with two tables, and the copy at its cut."""
    directory = tmp_path_factory.mktemp("saved")
    model = oracle.build("adam", tables=2)
    manager = tfadaptcp.CheckpointManager(model, directory)
    rows.write(model, range(20))
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    return directory, copy


def refused(model, error, match, call):
    """Asserts that the call raises, and changes nothing of the model."""
    rows.write(model, [7, 8, 9])
    before = oracle.take(model)
    with pytest.raises(error, match=match) as caught:
        call()
    assert isinstance(caught.value, tfadaptcp.AdaptCPError) or error in (ValueError, TypeError, RuntimeError)
    after = oracle.take(model)
    # Slots may have been made, empty.
    for name in list(after.tables):
        if name not in before.tables and not after.tables[name]:
            del after.tables[name]
    for name in list(after.dense):
        if name not in before.dense:
            del after.dense[name]
    assert oracle.difference(before, after) is None


def listing(directory):
    return sorted(str(path) for path in directory.rglob("*"))


# ------------------------------------------------------------------ construction


@pytest.mark.parametrize("keywords,match", [
    ({"policy": "adaptve"}, r"policy: Received: 'adaptve'.*adaptive"),
    ({"policy": policies.Adaptive}, "policy: Received"),
    ({"policy": 3}, "policy: Received: 3"),
    ({"max_to_keep": 0}, "max_to_keep: Received: 0"),
    ({"max_to_keep": True}, "max_to_keep: Received: True"),
    ({"max_to_keep": 2.0}, "max_to_keep: Received: 2.0"),
    ({"engine": {"writer_threads": 2}}, "engine: Received"),
    ({"buffer_dir": "gs://bucket/x"}, "buffer_dir: Received"), ({"buffer_dir": 3}, "buffer_dir: Received"),
    ({"buffer_dir": ""}, "buffer_dir: Received"),
    ({"quantization": 8}, "quantization: Received: 8"),
    ({"directory": ""}, "directory: Received: ''"),
    ({"directory": pathlib.Path("gs://bucket/run")}, "a URL with one slash. Expected: 'gs://bucket/run', as a str"),
    ({"directory": "hdfs:/run"}, "a URL with one slash. Expected: 'hdfs:///run'"),
    ({"directory": "hdfs:///"}, "Received: 'hdfs:///'. Expected: a directory behind the scheme"),
    ({"directory": "gs://"}, "Received: 'gs://'. Expected: a directory behind the scheme"),
    ({"directory": "file://"}, "Received: 'file://'. Expected: a directory behind the scheme"),
    ({"directory": "file:///"}, "Received: 'file:///'. Expected: a directory behind the scheme"),
    ({"directory": None}, "directory: Received: None"), ({"directory": b"/run"}, "directory: Received: b'/run'"),
    ({"directory": "gsx://bucket/run"}, "gsx"),
])
def test_arguments_of_the_manager(keywords, match, tmp_path):
    model = oracle.build("adam")
    arguments = {"directory": tmp_path / "new", **keywords}
    refused(model, ValueError, match, lambda: tfadaptcp.CheckpointManager(model, **arguments))
    assert not listing(tmp_path)


@pytest.mark.parametrize("keywords,match", [
    ({"save_freq": 0}, "save_freq: Received: 0"), ({"save_freq": "batch"}, "save_freq: Received: 'batch'"),
    ({"save_freq": True}, "save_freq"), ({"save_freq": 1.5}, "save_freq"),
    ({"on_pending": "drop"}, "on_pending: Received: 'drop'"),
    ({"restore": "c1"}, "restore: Received: 'c1'. Expected: True or False"), ({"save_at_end": 1}, "save_at_end: Received: 1"),
    ({"on_failure": "ignore"}, "on_failure: Received: 'ignore'"), ({"policy": "none"}, "policy: Received: 'none'")])
def test_arguments_of_the_callback(keywords, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        tfadaptcp.AdaptCPCallback(tmp_path, **keywords)


@pytest.mark.parametrize("keywords", [
    {"capture": "copy"}, {"consistency": "batch"}, {"writer_threads": 0}, {"segment_bytes": 0}, {"block_bytes": -1},
    {"capture_memory_bytes": 0}, {"capture_memory_bytes": 1.5}, {"upload_threads": 0}, {"upload_threads": 1 << 20},
    {"buffer_bytes": "1 GB"}, {"upload_bytes_per_second": 0}, {"upload_bytes_per_second": 1e6}, {"writer_threads": True}, {"timeout_seconds": 0},
    {"drain_timeout_seconds": -1}, {"update_wait_seconds": 0}, {"update_wait_seconds": float("nan")},
    {"timeout_seconds": "1"}])
def test_engine_options(keywords):
    (name, value), = keywords.items()
    with pytest.raises(ValueError, match=f"{name}: Received: .*Expected: "):
        EngineOptions(**keywords)


@pytest.mark.parametrize("policy,keywords", [
    (policies.Incremental, {"full_every": 0}), (policies.Incremental, {"full_every": 1.5}),
    (policies.Adaptive, {"restore_weight": -1}), (policies.Adaptive, {"decay": 1.0}),
    (policies.Adaptive, {"first_period": 0}), (policies.Adaptive, {"solver": "newton"}),
    (policies.Adaptive, {"renewal": "never"}), (policies.Adaptive, {"max_restore_factor": 0.5})])
def test_arguments_of_policies(policy, keywords):
    (name, value), = keywords.items()
    with pytest.raises(ValueError, match=f"(?s){name}.*Received: .*Expected: "):
        policy(**keywords)


def test_unwritable_directory(tmp_path):
    model = oracle.build("adam")
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below", "/proc/self/none"):
        refused(model, tfadaptcp.StoreUnavailableError, str(directory),
                lambda directory=directory: tfadaptcp.CheckpointManager(model, directory))
    assert listing(tmp_path) == [str(tmp_path / "file")]


def test_unbuilt_model(tmp_path, saved):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    for call in (lambda: tfadaptcp.CheckpointManager(model, tmp_path), lambda: model.load_adaptcp(saved[0])):
        with pytest.raises(tfadaptcp.UnbuiltModelError, match="not built"):
            call()
    assert not listing(tmp_path)


def test_tables_that_train_and_no_optimizer(tmp_path):
    model = oracle.build(None)
    refused(model, ValueError, "optimizer", lambda: tfadaptcp.CheckpointManager(model, tmp_path))
    tfadaptcp.CheckpointManager(model, tmp_path, optimizer=False)


class OtherTable(de.CuckooHashTable):
    """As a table of another kind would be: TFRA finds it, tracking doesn't."""


class OtherCreator(de.CuckooHashTableCreator):
    def create(self, *args, **kwargs):
        table = super().create(*args, **kwargs)
        table.__class__ = OtherTable
        return table


def test_table_of_another_kind(tmp_path):
    model = oracle.build("adam", kv_creator=OtherCreator())
    refused(model, tfadaptcp.UntrackableTableError, "emb0-parameter, shard 0.*OtherTable.*CuckooHashTable on a CPU",
            lambda: tfadaptcp.CheckpointManager(model, tmp_path))
    assert not listing(tmp_path)


def test_redis_table(tmp_path, monkeypatch):
    """No server is there: the real class, never connected."""
    model = oracle.build("adam")
    table, = oracle.layer_of(model).params.tables
    monkeypatch.setattr(table, "__class__", type("RedisTable", (type(table),), {}))
    with pytest.raises(tfadaptcp.UntrackableTableError, match="emb0-parameter, shard 0.*RedisTable"):
        tfadaptcp.CheckpointManager(model, tmp_path)


def test_table_on_a_gpu(tmp_path, monkeypatch):
    model = oracle.build("adam")
    table, = oracle.layer_of(model).params.tables

    class Handle:
        device = "/job:localhost/replica:0/task:0/device:GPU:0"

    monkeypatch.setattr(table, "_resource_handle", Handle())
    with pytest.raises(tfadaptcp.UntrackableTableError, match="emb0-parameter, shard 0.*GPU:0"):
        tfadaptcp.CheckpointManager(model, tmp_path)


def test_table_made_before_the_import(tmp_path, monkeypatch):
    model = oracle.build("adam")
    table, = oracle.layer_of(model).params.tables
    monkeypatch.setattr(table, "_shared_name", "table_1")
    with pytest.raises(tfadaptcp.UntrackableTableError, match="emb0-parameter.*before tfadaptcp was imported"):
        tfadaptcp.CheckpointManager(model, tmp_path)


# ------------------------------------------------------------------ restore


def test_no_checkpoint(tmp_path):
    model = oracle.build("adam")
    for directory in (tmp_path, tmp_path / "none"):
        refused(model, tfadaptcp.CheckpointNotFoundError, str(directory), lambda: model.load_adaptcp(directory))
    assert not listing(tmp_path)


@pytest.mark.parametrize("name", ["0000000009-0000000009-aaaaaaaaaaaa", "latest", "../etc", "", 3])
def test_unknown_checkpoint(name, saved):
    model = oracle.build("adam", tables=2)
    refused(model, tfadaptcp.CheckpointNotFoundError, "Received: .*Expected: one of ",
            lambda: model.load_adaptcp(saved[0], name))


def test_unreachable_store_is_not_no_checkpoint(saved, tmp_path):
    model = oracle.build("adam")
    (tmp_path / "manifests").write_text("")
    refused(model, tfadaptcp.StoreUnavailableError, "manifests", lambda: model.load_adaptcp(tmp_path))


@pytest.mark.parametrize("keywords,match", [
    ({"dim": 5}, r"table emb0-parameter: Received: float32 of dim 4 .*Expected: float32 of dim 5"),
    ({"value_dtype": tf.float64}, r"table emb0-parameter: Received: float32 .*Expected: float64 "),
    ({"key_dtype": tf.int32}, r"table emb0-parameter: Received: keys of int64.*Expected: int32"),
    ({"names": ["emb0", "emb_1"]}, r"missing.*emb_1-parameter \(nearest: emb1-parameter.*unexpected.*"
                                   r"emb1-parameter \(nearest: emb_1-parameter"),
    ({"tables": 3}, "missing in the checkpoint: .*emb2-parameter"),
    ({"tables": 1}, "unexpected in it: .*emb1-parameter"),
    ({"optimizer": "adagrad"}, "missing.*emb0-parameter/accumulator.*unexpected.*emb0-parameter/m"),
])
def test_model_that_does_not_fit(keywords, match, saved, tmp_path):
    arguments = {"optimizer": "adam", "tables": 2, **keywords}
    model = oracle.build(**arguments)
    with faults.plan(f"match=.seg;log={tmp_path / 'log'}"):
        refused(model, tfadaptcp.CheckpointMismatchError, match, lambda: model.load_adaptcp(saved[0]))
        if "dtype" in str(keywords) or "dim" in keywords:
            refused(model, tfadaptcp.CheckpointMismatchError, match, lambda: model.load_adaptcp(saved[0], strict=False))
    assert not (tmp_path / "log").exists() or "open" not in (tmp_path / "log").read_text(), "before a row is read"


def test_missing_and_unexpected_tables_tolerated(saved):
    directory, copy = saved
    model = oracle.build("adam", tables=2, names=["emb0", "other"], seed=6)
    rows.write(model, range(5))
    report = model.load_adaptcp(directory, strict=False)
    assert {"other-parameter", "other-parameter/m", "other-parameter/v"} <= set(report.missing)
    assert {"emb1-parameter", "emb1-parameter/m", "emb1-parameter/v"} <= set(report.unexpected)
    found = oracle.take(model)
    for table in ("emb0-parameter", "emb0-parameter/m", "emb0-parameter/v"):
        assert found.tables[table] == copy.tables[table]


def test_weights_alone_into_a_model_with_an_optimizer(tmp_path):
    """Slots are missing; tolerated, they come back empty, and the next checkpoints are whole."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", optimizer=False)
    rows.write(model, range(20), tables=slice(1))
    parameter = oracle.take(model).tables["emb0-parameter"]
    manager.save()
    manager.wait()
    fresh = oracle.build("adam", seed=2)
    refused(fresh, tfadaptcp.CheckpointMismatchError, "missing.*emb0-parameter/m", lambda: fresh.load_adaptcp(tmp_path))
    report = fresh.load_adaptcp(tmp_path, strict=False)
    assert {"emb0-parameter/m", "emb0-parameter/v"} <= set(report.missing)
    found = oracle.take(fresh)
    assert found.tables["emb0-parameter"] == parameter and not found.tables["emb0-parameter/m"]
    manager = tfadaptcp.CheckpointManager(fresh, tmp_path, "incremental")
    rows.write(fresh, [1, 30])
    for _ in range(2):
        copy = oracle.take(fresh)
        manager.save()
        manager.wait()
        again = oracle.build("adam", seed=3)
        again.load_adaptcp(tmp_path)
        oracle.check(copy, again)
        rows.write(fresh, [2, 31])


def test_a_checkpoint_with_slots_into_a_model_without_an_optimizer(saved):
    """For serving: its slots are of no use, and no mistake."""
    directory, copy = saved
    model = oracle.build(None, tables=2, seed=4)
    report = model.load_adaptcp(directory)
    assert not report.missing and not report.unexpected
    found = oracle.take(model)
    assert found.tables == {name: copy.tables[name] for name in ("emb0-parameter", "emb1-parameter")}
    assert all(copy.dense[name] == value for name, value in found.dense.items())


# ------------------------------------------------------------------ use


def test_save_after_close_and_wrong_arguments(tmp_path):
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    refused(model, ValueError, "on_pending: Received: 'later'", lambda: manager.save("later"))
    manager.save()
    manager.close()
    manager.close()
    assert len(manager.checkpoints) == 1, "the pending one was finished"
    refused(model, RuntimeError, "closed", manager.save)


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), tf.Variable(3, dtype=tf.int64), tf.constant(3)],
                         ids=["int64", "uint8", "variable", "tensor"])
def test_numbers_that_a_save_is_given(number, tmp_path):
    """`optimizer.iterations.numpy()` made every checkpoint fail when it was committed."""
    manager = tfadaptcp.CheckpointManager(oracle.build("adam"), tmp_path)
    manager.save(epoch=number, batch=number)
    info = manager.wait()
    assert (info.epoch, info.batch) == (3, 3)
    manager.save(epoch_start_step=number)
    assert manager.wait().batch == 0
    for name in ("epoch", "batch", "epoch_start_step"):
        for wrong in (-1, 1.5, "1", np.float32(1)):
            with pytest.raises(ValueError, match=f"{name}: Received: .* Expected: an integer of at least 0"):
                manager.save(**{name: wrong})
    assert manager.stats()["saves"] == 2


def test_two_tables_of_one_name(tmp_path):
    """(tensorflow#19528)"""
    model = oracle.build("adam", tables=2)
    oracle.layer_of(model, 1).params.name = oracle.layer_of(model, 0).params.name
    with pytest.raises(tfadaptcp.CheckpointMismatchError, match="Two embedding variables.*'emb0-parameter'"):
        tfadaptcp.CheckpointManager(model, tmp_path)
    assert not listing(tmp_path)
