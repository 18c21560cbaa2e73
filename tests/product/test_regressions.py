"""What once lost or mixed up state without a word."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle, rows
from tests.support.fitting import data, step_of, unknown
from tests.support.jobs import ROOT
from tfadaptcp import _ops, policies
from tfadaptcp.checkpoint.faults import set_fault_hook

pytestmark = pytest.mark.usefixtures("no_hook_stays")


def hold_manifests(directory):
    """Keeps manifests of a directory from being written until the event returned is set."""
    go = threading.Event()

    def hook(op, path):
        if op == "create" and path.startswith(f"{directory}/manifests/"):
            go.wait(30)

    set_fault_hook(hook)
    return go


def restored(directory):
    model = oracle.build(seed=9)
    model.load_adaptcp(directory)
    return model


# ------------------------------------------------------------------ two managers, one model


def test_checkpoints_of_two_managers_do_not_overlap(tmp_path):
    """The first one's commit came after the second one's cut, and moved the position back to a head of the first."""
    model = oracle.build()
    first = tfadaptcp.CheckpointManager(model, tmp_path / "a", "incremental")
    second = tfadaptcp.CheckpointManager(model, tmp_path / "b", "incremental")
    rows.write(model, range(20), seed=1)
    first.save()
    first.wait()
    rows.write(model, range(5), seed=2)
    go = hold_manifests(tmp_path / "a")
    first.save()
    rows.write(model, range(5, 10), seed=3)
    assert second.save(on_pending="skip") is None
    threading.Timer(0.3, go.set).start()
    copy = oracle.take(model)
    second.save()
    first.wait()
    second.wait()
    oracle.check(copy, restored(tmp_path / "b"), "b")
    rows.write(model, range(10, 12), seed=4)
    copy = oracle.take(model)
    first.save()
    first.wait()
    oracle.check(copy, restored(tmp_path / "a"), "a")


@pytest.mark.parametrize("by", ["load_adaptcp", "manager.restore", "another manager"])
def test_restore_waits_for_the_pending_checkpoint(by, tmp_path, monkeypatch):
    """Its trackers were reset before they were drained: it was committed without the rows it had cut."""
    model = oracle.build()
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    rows.write(model, range(20), seed=1)
    before = oracle.take(model)
    name = manager.save().name
    manager.wait()
    rows.write(model, range(20), seed=2)
    copy = oracle.take(model)
    go = threading.Event()
    save = manager.engine.save
    monkeypatch.setattr(manager.engine, "save", lambda *args: go.wait(30) and save(*args))
    manager.save()
    threading.Timer(0.3, go.set).start()
    if by == "load_adaptcp":
        model.load_adaptcp(tmp_path, name)
    elif by == "manager.restore":
        manager.restore(name)
    else:
        tfadaptcp.CheckpointManager(model, tmp_path).restore(name)
    oracle.check(before, model, "restored")
    newest = manager.wait().name
    assert newest != name
    oracle.check(copy, restored(tmp_path), newest)


# ------------------------------------------------------------------ a directory that changed hands


@pytest.mark.parametrize("lost", ["all", "data"])
def test_no_checkpoint_goes_on_from_one_whose_files_are_gone(lost, tmp_path):
    """The head the trackers stand for was published again without a look at its objects."""
    directory = tmp_path / "run"
    model = oracle.build()
    with contextlib.closing(tfadaptcp.CheckpointManager(model, directory, "incremental")) as manager:
        rows.write(model, range(20), seed=1)
        manager.save()
    if lost == "all":
        shutil.rmtree(directory)
    else:
        for file in (directory / "data").glob("*/base-*"):
            file.unlink()
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental")
    rows.write(model, range(3), seed=2)
    copy = oracle.take(model)
    name = manager.save().name
    assert manager.wait().name == name
    oracle.check(copy, restored(directory))


@pytest.mark.parametrize("restores", [True, False])
def test_a_head_is_published_again_though_its_trackers_are_gone(restores, tmp_path, monkeypatch):
    """After a rollback a policy of another decay made new trackers: the abandoned head stayed the newest."""
    model = oracle.build()
    with contextlib.closing(tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=1)) as manager:
        rows.write(model, range(20), seed=1)
        names = [manager.save().name]
        if restores:
            rows.write(model, range(20), seed=2)
            manager.wait()
            manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
            names.append(manager.save().name)
            manager.wait()
    if restores:
        model.load_adaptcp(tmp_path, names[0])
    copy = oracle.take(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policies.Adaptive(decay=0.5), max_to_keep=1)

    def full(*unused):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(manager.engine, "save", full)
        manager.save()
        with pytest.raises(OSError, match="no space"):
            manager.wait()
    oracle.check(copy, restored(tmp_path), "after a crash now")
    rows.write(model, range(20), seed=3)
    manager.save()
    manager.wait()
    assert len(manager.checkpoints) == 1, "older ones age out as ever"


# ------------------------------------------------------------------ the callback


def test_a_restore_that_failed_is_made_by_the_next_fit(tmp_path):
    """The second fit, of a loop that tries again, started fresh."""
    model = oracle.build()
    model.fit(data(4), callbacks=[tfadaptcp.AdaptCPCallback(tmp_path)], verbose=0)
    callback = tfadaptcp.AdaptCPCallback(tmp_path, restore=True)
    fresh = oracle.build(seed=9)

    def hook(op, path):
        if op == "list" and path.endswith("manifests"):
            raise OSError(errno.EIO, "unplugged", path)

    set_fault_hook(hook)
    with pytest.raises(tfadaptcp.StoreUnavailableError):
        fresh.fit(data(1), callbacks=[callback], verbose=0)
    set_fault_hook(None)
    fresh.fit(data(2, first=4), callbacks=[callback], verbose=0)
    assert callback.report.step == 4 and step_of(fresh) == 6
    fresh.fit(data(1, first=6), callbacks=[callback], verbose=0)
    assert step_of(fresh) == 7, "it goes on"

    # A job that lost its servers builds the model anew and goes on with its callbacks.
    other = oracle.build(seed=10)
    other.fit(data(1, first=7), callbacks=[callback], verbose=0)
    assert callback.report.step == 7 and step_of(other) == 8


@pytest.mark.parametrize("failures", [1, 2])
def test_the_end_of_fit_saves_what_the_last_checkpoint_failed_to(failures, tmp_path):
    """It counted as saved once it was cut."""
    model = oracle.build()
    callback = tfadaptcp.AdaptCPCallback(tmp_path, save_freq=2, on_pending="wait")
    commits = []

    def hook(op, path):
        if op == "create" and path.startswith(f"{tmp_path}/manifests/"):
            commits.append(path)
            if 1 < len(commits) <= 1 + failures:
                raise OSError(errno.ENOSPC, "full", path)

    set_fault_hook(hook)
    model.fit(data(4), callbacks=[callback], verbose=0)
    assert callback.manager.checkpoints[-1].step == (4 if failures == 1 else 2)
    assert callback.manager.stats()["failed"] == failures
    model.fit(data(1, first=4), callbacks=[callback], verbose=0)
    assert callback.manager.checkpoints[-1].step == 5
    oracle.check(oracle.take(model), restored(tmp_path))


class StopAfter(tf.keras.callbacks.Callback):
    """Stops training as a handler of SIGTERM would."""

    def __init__(self, batches):
        super().__init__()
        self._batches = batches

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self._batches:
            self.model.stop_training = True


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("batches, expected", [(3, (0, 3)), (5, (1, 0))])
def test_an_epoch_that_was_stopped_in_the_middle_is_not_completed(known, batches, expected, tmp_path):
    """The checkpoint at the end said (1, 0): going on from there left out the rest of the epoch's data."""
    model = oracle.build()
    callback = tfadaptcp.AdaptCPCallback(tmp_path, save_freq=100)
    batch_data = data(5) if known else unknown(data(5))
    model.fit(batch_data, epochs=3, callbacks=[StopAfter(batches), callback], verbose=0)
    info = callback.manager.checkpoints[-1]
    assert info.step == batches
    # The last batch of an epoch of unknown length can't be told from another.
    assert (info.epoch, info.batch) == (expected if known or batches < 5 else (0, 5))
    assert model.load_adaptcp(tmp_path).batch == info.batch


def test_early_stopping_at_the_end_of_an_epoch_completes_it(tmp_path):
    model = oracle.build()
    callback = tfadaptcp.AdaptCPCallback(tmp_path, save_freq="epoch", on_pending="wait")
    stop = tf.keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=1e9)
    model.fit(unknown(data(5)), epochs=9, callbacks=[stop, callback], verbose=0)
    info = callback.manager.checkpoints[-1]
    assert (info.epoch, info.batch) == (info.step // 5, 0)


# ------------------------------------------------------------------ the manager


def test_a_manager_refuses_a_model_that_was_compiled_anew(tmp_path):
    """Checkpoints went on with the slots of the old optimizer, and lacked those that were trained."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    oracle.Trainer(model).train(2)
    manager.save()
    manager.wait()
    optimizer = de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adagrad"]())
    model.compile(optimizer, "mse")
    oracle.Trainer(model).train(2)
    for call in (manager.save, manager.restore):
        with pytest.raises(tfadaptcp.SaveFailedError, match="another optimizer"):
            call()
    again = tfadaptcp.CheckpointManager(model, tmp_path)
    again.save()
    again.wait()
    copy = oracle.take(model)
    fresh = oracle.build("adagrad", seed=9)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


def test_an_interrupt_between_cut_and_save_gives_the_checkpoint_up(tmp_path, monkeypatch):
    """The cut stayed pending: updates captured rows for nobody until the memory for them was used up."""
    model = oracle.build()
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    rows.write(model, range(20), seed=1)

    def interrupted(*unused):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(manager.engine, "copy_dense", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.save()
    with pytest.raises(tf.errors.FailedPreconditionError, match="Pending: none"):
        manager.engine.save({"sequence": manager.engine.lineage.last_sequence, "directory": str(tmp_path),
                             "segment_bytes": 1 << 20, "block_bytes": 1 << 20}, {0: []}, 10)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    oracle.check(copy, restored(tmp_path))


BAD_REQUESTS = {
    "cut": [{"sequence": "x"}, {"sequence": (1 << 32) + 5}, {"thresholds": [1]}, {"thresholds": {"a": "x"}},
            {"capture_memory_bytes": []}, {"session": 3}, {"root": 3}],
    "attach_group": [{"tables": "x"}, {"tables": [3]}, {"shard": "x"}, {"group": 3}],
    "resolve": [{"sequence": "x"}, {"committed": 3}],
    "save": [{"writer_threads": "x"}, {"buffer_dir": 3}, {"upload_threads": "x"}, {"dense": [3]}, {"dense": [{"name": 3}]}, {"directory": 3}, {"ps": "x"}],
    "restore_segments": [{"levels": [3]}, {"levels": [{"objects": [{"path": 3}]}]}, {"limits": 3},
                         {"limits": {"threads": "x"}}, {"groups": {"a": 3}}, {"restore": 7}],
    "open_stream": [{"levels": [3]}, {"levels": [{"objects": [{"path": 3}]}]}, {"groups": 3}, {"restore": 7}],
    "next_piece": [{"level": "x"}, {"restore": 7}, {}],
    "verify_segment": [{"object": {"path": "/nowhere", "rows": 3}}, {"object": 3}, {"specs": 3}],
    "restore_begin": [{"next_sequence": "x"}, {"session": 3}],
    "restore_rows": [{"shard": "x"}, {"head": []}],
    "read_dense": [{"specs": None, **request} for request in (
        {"slices": [3]}, {"slices": [{"name": "x", "offset": [], "shape": []}], "objects": 3},
        {"slices": [{"name": "x", "offset": [0], "shape": []}]}, {"slices": [{"name": "x", "offset": ["x"], "shape": [1]}]},
        {"slices": []}, {"slices": [{"name": "x", "offset": [0], "shape": [1 << 62]}]}, {})],
}


def test_no_request_ends_the_process(tmp_path):
    """JSON of another type than expected threw out of an op, or a thread of it, and ended the parameter server."""
    model = oracle.build()
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    rows.write(model, range(20))
    engine, lib = manager.engine, _ops.lib()
    good = {"session": engine.session, "sequence": 1, "kind": "delta", "root": "r", "generation": 1,
            "directory": str(tmp_path / "x"), "segment_bytes": 1 << 20, "block_bytes": 1 << 20}
    inputs = {"attach_group": [engine.hosts[0].shards[0].handles]}
    row = [tf.constant([1], tf.int64), tf.ones(1), tf.ones([1, 3], tf.bool), [tf.zeros([1, oracle.DIM])] * 3]
    of = {"group": engine.groups[0].name, "shard": 0, "head": 1}
    for op, requests in BAD_REQUESTS.items():
        if op == "save":
            lib.adaptcp_cut(json.dumps(good))
        for request in requests:
            text = json.dumps({**good, **request})
            with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError, tf.errors.NotFoundError,
                                tf.errors.ResourceExhaustedError)):
                if op == "save":
                    lib.adaptcp_save(text, [tf.zeros(2)] * len(request.get("dense", [])))
                elif op == "restore_rows":
                    lib.adaptcp_restore_rows(json.dumps({**good, **of, **request}), *row)
                elif op == "read_dense":
                    lib.adaptcp_read_dense(text, Tdense=[tf.float32])
                else:
                    getattr(lib, f"adaptcp_{op}")(*inputs.get(op, []), text)
    for i, other in enumerate([tf.constant([1], tf.int32), tf.ones(2), tf.ones(3, tf.bool),
                               [tf.zeros([1, 1])] * 3, [tf.zeros([1, oracle.DIM], tf.float64)] * 3]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit one another"):
            lib.adaptcp_restore_rows(json.dumps({**good, **of}), *row[:min(i, 3)], other, *row[min(i, 3) + 1:])
    for op in (lib.adaptcp_stats, lib.adaptcp_detach, lib.adaptcp_restore_end, lib.adaptcp_restore_progress):
        with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
            op(tf.constant(["a", "b"]))
    copy = oracle.take(model)
    engine.lineage.last_sequence = 5
    manager.save()
    manager.wait()
    oracle.check(copy, restored(tmp_path))


@pytest.mark.parametrize("field", ["timeout_seconds", "drain_timeout_seconds", "update_wait_seconds"])
def test_no_time_that_overflows_is_accepted(field):
    """With a timeout of infinity every checkpoint failed."""
    for value in (float("inf"), float("nan"), 1e12):
        with pytest.raises(ValueError, match=f"{field}: Received: .*at most"):
            tfadaptcp.EngineOptions(**{field: value})


# ------------------------------------------------------------------ Keras


@pytest.mark.parametrize("first, legacy, module", [
    ("tfadaptcp", None, "tf_keras"), ("tensorflow", "1", "tf_keras"), ("tensorflow", None, None),
    ("tfadaptcp", "0", None)])
def test_keras_3_is_refused(first, legacy, module):
    """After `import tensorflow` it was chosen, and the first embedding layer failed with a riddle."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    if legacy is not None:
        environment["TF_USE_LEGACY_KERAS"] = legacy
    code = f"import {first}, tfadaptcp, tensorflow as tf\nprint('found', tf.keras.Model.__module__)"
    done = subprocess.run([sys.executable, "-c", code], env={**environment, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False)
    if module is None:
        assert "ImportError: tfadaptcp needs Keras 2" in done.stderr
    else:
        assert f"found {module}" in done.stdout, done.stderr[-2000:]


# ------------------------------------------------------------------ a directory used again


def test_a_directory_that_was_emptied_can_be_used_again(tmp_path):
    """The new claim began at generation 1, which servers that had seen a later one refused."""
    model = oracle.build()
    for _ in range(2):
        manager = tfadaptcp.CheckpointManager(model, tmp_path / "run", "incremental")
        rows.write(model, range(10), seed=1)
        manager.save()
        newest = manager.wait().generation
        manager.close()
    assert newest == 2
    shutil.rmtree(tmp_path / "run")
    manager = tfadaptcp.CheckpointManager(model, tmp_path / "run", "incremental")
    copy = oracle.take(model)
    manager.save()
    assert manager.wait().generation == 3
    oracle.check(copy, restored(tmp_path / "run"), "run")


# ------------------------------------------------------------------ errors that are not ours


def test_the_error_of_a_step_is_not_taken_for_that_of_a_checkpoint(tmp_path, monkeypatch):
    """A cut waits for scheduled steps. What they raise ended up as a warning, and training went on without them."""
    def failed_step(model, timeout_seconds):
        raise tf.errors.UnavailableError(None, None, "a parameter server is gone")

    monkeypatch.setattr("tfadaptcp.draining.drain", failed_step)
    model = oracle.build()
    callback = tfadaptcp.AdaptCPCallback(tmp_path, 2, on_failure="continue")
    with pytest.raises(tf.errors.UnavailableError, match="is gone"):
        model.fit(data(6), callbacks=[callback], verbose=0)
