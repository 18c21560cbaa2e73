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


@pytest.mark.parametrize("strict", [True, False])
def test_a_manager_of_weights_goes_on_after_a_restore_with_the_optimizer(strict, tmp_path):
    """The restore tracks the slots too, and finds that the checkpoint lacks them."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, optimizer=False)
    rows.write(model, range(50), seed=1)
    manager.save()
    manager.wait()
    if strict:
        with pytest.raises(tfadaptcp.CheckpointMismatchError):
            model.load_adaptcp(tmp_path)
    else:
        model.load_adaptcp(tmp_path, strict=False)
    rows.write(model, range(40, 60), seed=2)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    fresh = oracle.build("adam", seed=9)
    fresh.load_adaptcp(tmp_path, optimizer=False)
    weights = [table.name for group in manager.engine.groups for table in group.tables]
    assert weights and all(oracle.take(fresh).tables[name] == copy.tables[name] for name in weights)


def test_a_manager_that_lost_its_tables_before_its_first_save(tmp_path):
    """It failed with an error of TensorFlow's, for which `fit` ended, and had claimed the directory."""
    model = oracle.build("momentum")
    first = tfadaptcp.CheckpointManager(model, tmp_path / "a")
    part = tf.keras.Model(model.inputs, model.get_layer("emb0").output)
    tfadaptcp.CheckpointManager(part, tmp_path / "b", optimizer=False)
    for _ in range(2):
        with pytest.raises(tfadaptcp.SaveFailedError, match="took its tables over"):
            first.save()


def test_whoever_takes_tables_over_waits_for_the_checkpoint_that_is_written(tmp_path):
    """A model that was compiled anew killed its own checkpoint, when its next manager was made."""
    model = oracle.build("momentum")
    rows.write(model, range(50), seed=1)
    patient, impatient = (tfadaptcp.EngineOptions(timeout_seconds=seconds) for seconds in (30, 0.3))
    first = tfadaptcp.CheckpointManager(model, tmp_path / "a", engine=patient)
    copy = oracle.take(model)
    go = threading.Event()
    set_fault_hook(lambda op, path: go.wait(30) if op == "create" and "manifests" in path else None)
    first.save()
    model.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adam"]()), "mse")
    with pytest.raises(tfadaptcp.DeadlineError, match="pending checkpoint"):
        tfadaptcp.CheckpointManager(model, tmp_path / "b", engine=impatient)
    threading.Timer(0.3, go.set).start()
    second = tfadaptcp.CheckpointManager(model, tmp_path / "b", engine=patient)
    first.wait()
    second.save()
    second.wait()
    fresh = oracle.build("momentum", seed=9)
    fresh.load_adaptcp(tmp_path / "a")
    oracle.check(copy, fresh)


def test_a_policy_that_estimates_otherwise_after_a_restore(tmp_path, caplog):
    """Its first checkpoint is complete, and the log says why."""
    model = oracle.build("momentum")
    rows.write(model, range(50), seed=1)
    saved = tfadaptcp.CheckpointManager(model, tmp_path, tfadaptcp.policies.Adaptive(decay=0.9)).save
    saved()
    kinds = []
    for decay in (0.9, 0.5):
        fresh = oracle.build("momentum", seed=9)
        fresh.load_adaptcp(tmp_path)
        caplog.clear()
        manager = tfadaptcp.CheckpointManager(fresh, tmp_path, tfadaptcp.policies.Adaptive(decay=decay))
        rows.write(fresh, range(5), seed=2)
        copy = oracle.take(fresh)
        manager.save()
        kinds.append(("base" in manager.wait().rows and sum(manager.wait().rows["base"].values()) >= 50,
                      "another decay or estimator" in caplog.text))
        again = oracle.build("momentum", seed=11)
        again.load_adaptcp(tmp_path)
        oracle.check(copy, again)
    assert kinds[1] == (True, True) and kinds[0][1] is False
    assert manager.checkpoints[-1].rows["base"], "complete"


def test_servers_of_other_versions_are_named(tmp_path, monkeypatch):
    from tfadaptcp.engine import Engine
    infos = Engine._infos
    model = oracle.build("momentum")
    for name, version in (("tensorflow", "2.15.0"), ("tfadaptcp", "0.0.1")):
        def other(self, *args, name=name, version=version):
            found = infos(self, *args)
            found[0]["versions"][name] = version
            return found

        monkeypatch.setattr(Engine, "_infos", other)
        with pytest.raises(tfadaptcp.ServerMismatchError, match=f"ps 0 .*Received: .*'{name}': '{version}'.*Expected: "):
            tfadaptcp.CheckpointManager(model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_before_a_checkpoint_has_a_name(tmp_path, monkeypatch):
    model = oracle.build("momentum")
    manager = tfadaptcp.CheckpointManager(model, tmp_path)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(manager), "_next_name", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.save()
    manager.save()
    assert manager.wait().step == 0


def test_close_tells_of_a_failure_that_nobody_was_told_of(tmp_path, caplog):
    model = oracle.build("momentum")
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    manager.save()
    manager.wait()

    def refuse(op, path):
        if op == "create" and "manifests" in path:
            raise OSError(28, "no room", path)

    set_fault_hook(refuse)
    manager.save()
    manager.engine.wait_for_writer(30)
    set_fault_hook(None)
    manager.restore()  # takes notice of its end
    caplog.clear()
    manager.close()
    assert "The last checkpoint failed" in caplog.text
