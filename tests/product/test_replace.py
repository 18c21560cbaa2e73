"""Clear, import and load of tracked tables: what was at the cut is saved, and what came after is in the next base."""

import contextlib
import os
import threading

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import cuckoo_hashtable_ops

import tfadaptcp
from tests.product.test_race import KEYS, POLICY, Writers, fill
from tests.support import faults, oracle, rows
from tests.support.saving import heads_of, save
from tfadaptcp import EngineOptions


@pytest.fixture(scope="module")
def models():
    """A model to work on and one to restore into, of two shards, for all tests."""
    made = []
    for seed in (1, 2):
        model = oracle.build("adam", devices=["/CPU:0"] * 2, seed=seed)
        model.optimizer._create_all_weights(model.trainable_variables)
        made.append(model)
    return made


def variables(model, tables=slice(None)):
    return [variable for _, variable in oracle.tables_of(model)][tables]


def clear(model, tables=slice(None), directory=None):
    for variable in variables(model, tables):
        variable.clear()


def import_rows(model, tables=slice(None), directory=None):
    """As a restore by tf.train.Checkpoint does; keys that are there, and new ones."""
    for variable in variables(model, tables):
        for shard, table in enumerate(variable.tables):
            keys = tf.constant([shard, 10 + shard, 1000 + shard], tf.int64)
            cuckoo_hashtable_ops.cuckoo_ops.tfra_cuckoo_hash_table_import(
                table.resource_handle, keys, rows.values_of(variable, 3, [shard, 77]))


def load(model, tables=slice(None), directory=None):
    """Rows that another table has saved; TFRA adds them: keys that are there, and new ones."""
    for i, variable in enumerate(variables(model, tables)):
        for shard, table in enumerate(variable.tables):
            source = de.CuckooHashTable(tf.int64, tf.float32, tf.zeros([oracle.DIM]), name="source", checkpoint=False)
            keys = tf.constant([shard, 10 + shard, 3000 + shard], tf.int64)
            source.insert(keys, rows.values_of(variable, 3, [i, shard]))
            source.save_to_file_system(str(directory), file_name=f"{i}-{shard}", buffer_size=16)
            table.load_from_file_system(str(directory), file_name=f"{i}-{shard}", buffer_size=16)
            assert table.lookup(tf.constant([3000 + shard], tf.int64), return_exists=True)[1]


OPS = [clear, import_rows, load]


def start(model, directory, policy="incremental", **options):
    """A manager with a base of 50 rows behind it, and changes since."""
    clear(model)
    rows.write(model, range(50))
    manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=100, **options)
    copies = {}
    save(manager, model, copies)
    rows.write(model, range(10, 30), seed=1)
    rows.remove(model, range(5))
    return manager, copies


def check_all(directory, copies, target):
    for head in reversed(heads_of(directory)):
        target.load_adaptcp(directory, head.name)
        oracle.check(copies[head.name], target, head.name)
    assert {head.name for head in heads_of(directory)} == set(copies)


@pytest.mark.parametrize("policy", ["incremental", "differential"])
@pytest.mark.parametrize("tables", [slice(None), slice(1), slice(1, 2)], ids=["all", "parameter", "slot"])
@pytest.mark.parametrize("replace", OPS)
def test_the_next_checkpoint_is_complete(replace, tables, policy, models, tmp_path):
    model, target = models
    manager, copies = start(model, tmp_path / "run", policy)
    replace(model, tables, tmp_path)
    rows.write(model, [7, 500], seed=2)
    save(manager, model, copies)
    rows.write(model, [8, 501], seed=3)
    save(manager, model, copies)
    bases = [head.base_sequence == head.sequence for head in heads_of(tmp_path / "run")]
    assert bases == [True, True, False]
    check_all(tmp_path / "run", copies, target)


def hold_saves(manager, monkeypatch):
    """Makes save ops begin only when the function returned is called; the cut is taken at once."""
    save, go = manager.engine.save, threading.Event()
    monkeypatch.setattr(manager.engine, "save", lambda *arguments: go.wait(30) and save(*arguments))
    return go.set


@pytest.mark.parametrize("outcome", ["committed", "failed"])
@pytest.mark.parametrize("replace", OPS)
def test_while_a_checkpoint_is_pending(replace, outcome, models, tmp_path, monkeypatch):
    model, target = models
    directory = tmp_path / "run"
    manager, copies = start(model, directory)
    copy = oracle.take(model)
    with monkeypatch.context() as patch:
        go = hold_saves(manager, patch)
        name = manager.save().name
        rows.write(model, [11, 400], seed=4)
        replace(model, slice(None), tmp_path)
        rows.write(model, [12, 401], seed=5)
        with faults.plan("" if outcome == "committed" else "errno=28@1+"):
            go()
            if outcome == "committed":
                manager.wait()
                copies[name] = copy
            else:
                with pytest.raises((tfadaptcp.SaveFailedError, OSError)):
                    manager.wait()
    for seed in (6, 7):
        rows.write(model, [13, 402], seed=seed)
        save(manager, model, copies)
    newest = heads_of(directory)
    assert newest[-2].base_sequence == newest[-2].sequence == newest[-1].base_sequence
    check_all(directory, copies, target)


def test_a_checkpoint_without_room_is_given_up(models, tmp_path, monkeypatch):
    """It can't be captured before the clear: it fails, training goes on, and nothing is lost."""
    model, target = models
    options = EngineOptions(capture_memory_bytes=1000, update_wait_seconds=0.05)
    manager, copies = start(model, tmp_path, engine=options)
    rows.write(model, range(9000))
    with monkeypatch.context() as patch:
        go = hold_saves(manager, patch)
        manager.save()
        clear(model)
        rows.write(model, range(3))
        go()
        with pytest.raises(tfadaptcp.SaveFailedError, match="an update waited 50 ms|took longer than 50 ms"):
            manager.wait()
    save(manager, model, copies)
    assert copies[manager.latest_checkpoint].rows()["emb0-parameter"] == 3
    check_all(tmp_path, copies, target)


def test_a_load_that_fails_loses_nothing(models, tmp_path):
    model, target = models
    manager, copies = start(model, tmp_path / "run")
    params = variables(model)[0]
    with pytest.raises(tf.errors.OpError):
        params.tables[0].load_from_file_system(str(tmp_path), file_name="missing", buffer_size=16)
    with pytest.raises(tf.errors.OpError):
        cuckoo_hashtable_ops.cuckoo_ops.tfra_cuckoo_hash_table_import(
            params.tables[0].resource_handle, tf.constant([1], tf.int64), tf.zeros([2, oracle.DIM]))
    save(manager, model, copies)
    check_all(tmp_path / "run", copies, target)


def test_empty_tables_and_a_base_that_is_pending(models, tmp_path, monkeypatch):
    """A clear after the cut of a base needs another one; a clear of nothing does no harm."""
    model, target = models
    clear(model)
    clear(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=100)
    copies = {}
    save(manager, model, copies)
    clear(model)
    with monkeypatch.context() as patch:
        go = hold_saves(manager, patch)
        rows.write(model, range(9))
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        clear(model, slice(1))
        go()
        manager.wait()
    for _ in range(2):
        save(manager, model, copies)
    assert [head.base_sequence == head.sequence for head in heads_of(tmp_path)] == [True, True, True, False]
    check_all(tmp_path, copies, target)


def test_a_restore_forgets_that_tables_were_replaced(models, tmp_path):
    model, target = models
    manager, copies = start(model, tmp_path)
    clear(model)
    manager.restore()
    oracle.check(list(copies.values())[-1], model)
    rows.write(model, [1])
    name = manager.save().name
    manager.wait()
    assert heads_of(tmp_path)[-1].base_sequence < heads_of(tmp_path)[-1].sequence
    copy = oracle.take(model)
    target.load_adaptcp(tmp_path, name)
    oracle.check(copy, target)


def test_keras_checkpoint_restored_into_a_tracked_model(models, tmp_path):
    model, target = models
    manager, copies = start(model, tmp_path / "run")
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "stock"))
    before = oracle.take(model)
    rows.write(model, range(40, 90), seed=8)
    save(manager, model, copies)
    tf.train.Checkpoint(model=model).restore(path)
    oracle.check(before, model)
    save(manager, model, copies)
    check_all(tmp_path / "run", copies, target)


def test_clears_race_with_writers_and_the_drain(models, tmp_path):
    model, target = models
    clear(model)
    options = EngineOptions(block_bytes=64 << 10, writer_threads=2)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, POLICY, engine=options, max_to_keep=100)
    copies = {}
    with Writers(model) as writers:
        for i in range(5):
            writers.pause()
            fill(model)
            copy = oracle.take(model)
            copies[manager.save().name] = copy
            writers.resume()
            OPS[i % 2](model, slice(None) if i < 3 else slice(1))
            manager.wait()
    assert max(copy.rows()["emb0-parameter"] for copy in copies.values()) >= KEYS
    check_all(tmp_path, copies, target)


class HeldLoad:
    """Loads a file that is not there yet into a table: the op waits for it."""

    def __init__(self, table, directory, keys):
        source = de.CuckooHashTable(tf.int64, tf.float32, tf.zeros([oracle.DIM]), name="source", checkpoint=False)
        source.insert(keys, tf.random.normal([len(keys), oracle.DIM]))
        source.save_to_file_system(str(directory), file_name="held", buffer_size=16)
        self._path = str(next(path for path in directory.iterdir() if "keys" in path.name))
        with open(self._path, "rb") as file:
            self._content = file.read()
        os.remove(self._path)
        os.mkfifo(self._path)
        self._thread = threading.Thread(target=table.load_from_file_system, args=(str(directory),),
                                        kwargs={"file_name": "held", "buffer_size": 16}, daemon=True)
        self._thread.start()

    def let_go(self):
        # As soon as the op has opened it. TFRA may end without reading, as the file has no size.
        with contextlib.suppress(BrokenPipeError), open(self._path, "wb") as file:
            file.write(self._content)
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_load_into_a_table_that_nobody_tracks_holds_no_cut_up(models, tmp_path):
    """It held the gate of the process, so that every cut failed, and updates waited with it."""
    model = models[0]
    manager, copies = start(model, tmp_path / "checkpoints")
    table = de.CuckooHashTable(tf.int64, tf.float32, tf.zeros([oracle.DIM]), name="untracked", checkpoint=False)
    (tmp_path / "files").mkdir()
    load_of = HeldLoad(table, tmp_path / "files", tf.range(40, dtype=tf.int64))
    save(manager, model, copies)
    load_of.let_go()
    check_all(tmp_path / "checkpoints", copies, models[1])
