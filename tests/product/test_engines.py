"""Whose trackers a model's tables have: other models with the same tables, other managers, restores without one."""

import threading
import types

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle, rows
from tests.support.checkpoint_dirs import check_clean
from tfadaptcp.checkpoint.faults import set_fault_hook
from tfadaptcp.checkpoint.store import Store

pytestmark = pytest.mark.usefixtures("no_hook_stays")


def test_tables_that_another_model_has_taken_over_are_taken_back(tmp_path):
    """No manager could be made of the first model any more."""
    model = oracle.build("momentum")
    rows.write(model, range(50), seed=1)
    first = tfadaptcp.CheckpointManager(model, tmp_path / "a", "incremental")
    first.save()
    first.wait()
    part = tf.keras.Model(model.inputs, model.get_layer("emb0").output)
    second = tfadaptcp.CheckpointManager(part, tmp_path / "b", optimizer=False)
    rows.write(model, range(20), seed=2)
    second.save()
    second.wait()
    with pytest.raises(tfadaptcp.SaveFailedError, match="took its tables over"):
        first.save()
    with pytest.raises(tfadaptcp.RestoreFailedError, match="took its tables over"):
        first.restore()
    first.close()
    rows.write(model, range(40, 60), seed=3)
    again = tfadaptcp.CheckpointManager(model, tmp_path / "a", "incremental")
    again.save()
    copy = oracle.take(model)
    rows.write(model, range(10), seed=4)
    again.wait()
    fresh = oracle.build("momentum", seed=9)
    fresh.load_adaptcp(tmp_path / "a")
    oracle.check(copy, fresh)


class CustomLoop:
    """A model that is not compiled: its optimizer is told to those who need it."""

    def __init__(self, seed=5):
        self.model = oracle.build(None, seed=seed)
        self.optimizer = de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["momentum"]())

    def tables(self):
        view = types.SimpleNamespace(optimizer=self.optimizer, _flatten_layers=self.model._flatten_layers)
        return {name: variable for name, variable in oracle.tables_of(view)}

    def copy(self):
        return {name: oracle._rows(variable) for name, variable in self.tables().items()}


@pytest.mark.parametrize("manager_first", [True, False])
def test_a_restore_into_a_custom_loop(manager_first, tmp_path, caplog):
    """`load_adaptcp` took the trackers away from the manager, and restored no slots, without a word."""
    loop = CustomLoop()
    manager = tfadaptcp.CheckpointManager(loop.model, tmp_path, optimizer=loop.optimizer)
    for i, variable in enumerate(loop.tables().values()):
        variable.upsert(rows.keys_of(variable, range(30)), rows.values_of(variable, 30, i))
    manager.save()
    manager.wait()
    manager.close()
    copy = loop.copy()
    assert len(copy) == 2 and all(len(table) == 30 for table in copy.values())

    loop = CustomLoop(seed=9)
    caplog.clear()
    if manager_first:
        manager = tfadaptcp.CheckpointManager(loop.model, tmp_path, optimizer=loop.optimizer)
        loop.model.load_adaptcp(tmp_path)
        assert loop.copy() == copy
        manager.save()
        assert len(manager.wait().rows["base"]) == 1 and "without its optimizer" not in caplog.text
    else:
        loop.model.load_adaptcp(tmp_path)
        tfadaptcp.CheckpointManager(loop.model, tmp_path, optimizer=loop.optimizer)
        assert "without its optimizer" in caplog.text


def test_a_checkpoint_is_left_alone_by_a_manager_that_meets_new_trackers(tmp_path):
    """The second manager waited for the checkpoint of the trackers it knew, and cut into that of the new ones."""
    model = oracle.build("momentum")
    managers = [tfadaptcp.CheckpointManager(model, tmp_path / name, "incremental") for name in "ab"]
    rows.write(model, range(20), seed=1)
    for manager in managers:
        manager.save()
        manager.wait()
    added = tf.Variable([1.0, 2.0], name="added")
    model.get_layer("hidden").added = added
    go = threading.Event()
    set_fault_hook(lambda op, path: op == "create" and "/a/manifests/" in path and go.wait(30) and None)
    managers[0].save()
    copies = [oracle.take(model)]
    assert managers[1].save("skip") is None
    rows.write(model, range(10), seed=2)
    threading.Timer(0.3, go.set).start()
    managers[1].save()
    copies.append(oracle.take(model))
    for name, manager, copy in zip("ab", managers, copies):
        manager.wait()
        fresh = oracle.build("momentum", seed=9)
        fresh.get_layer("hidden").added = tf.Variable([0.0, 0.0], name="added")
        fresh.load_adaptcp(tmp_path / name)
        oracle.check(copy, fresh)
        check_clean(Store(), str(tmp_path / name))
