"""Checkpointed jobs under ``ParameterServerStrategy``, each for a process of its own (`run_job`).

Directories come in the environment: CHECKPOINTS, and ORACLE for the full copies of every cut.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import tfadaptcp

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

from tests.support import embedding_model as em
from tests.support import forks
from tests.support.bases import end_scan
from tfadaptcp import draining, manager as manager_module, policies
from tfadaptcp.attaching import ENGINE
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.testing import LocalCluster

CHECKPOINTS = os.environ.get("CHECKPOINTS", "")
ORACLE = Path(os.environ.get("ORACLE", "."))
# Hot and cold files, and a base that is read beside training, within a few checkpoints.
ADAPTIVE = policies.Adaptive(renewal="period", first_period=3, max_restore_factor=8.0, decay=0.5, solver="bisection",
                             estimator="accesses")


def full_copy(model) -> dict[str, np.ndarray]:
    """Every table, sorted by key, and every dense variable. For use while nobody trains."""
    engine = getattr(model, ENGINE)
    copy = {}
    for group in engine.groups:
        for table in group.tables:
            keys, values = (part.numpy() for part in table.variable.export())
            order = np.argsort(keys)
            copy[f"{table.name} keys"] = keys[order]
            copy[f"{table.name} values"] = values[order]
    for item in engine.dense:
        copy[f"dense {item.name} {item.offset}"] = item.variable.numpy()
    return copy


def differences(expected, found) -> list[str]:
    """Names of what is not equal, bit for bit."""
    names = set(expected) ^ set(found)
    for name in set(expected) & set(found):
        a, b = np.asarray(expected[name]), np.asarray(found[name])
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            names.add(name)
    return sorted(names)


class AfterBatch(tf.keras.callbacks.Callback):
    """Calls a function after each batch was scheduled."""

    def __init__(self, function):
        super().__init__()
        self._supports_tf_logs = True
        self._function = function

    def on_train_batch_end(self, batch, logs=None):
        self._function(batch)


class CopyEachCut(tf.keras.callbacks.Callback):
    """Stores a full copy beside each checkpoint. Steps wait while it copies: none is scheduled."""

    def __init__(self, checkpoints: tfadaptcp.AdaptCPCallback):
        super().__init__()
        self._supports_tf_logs = True
        self._checkpoints = checkpoints
        self._seen = 0

    def on_train_batch_end(self, batch, logs=None):
        manager = self._checkpoints.manager
        if manager.stats()["saves"] > self._seen:
            self._seen = manager.stats()["saves"]
            info = manager.wait()
            end_scan(manager)
            np.savez(ORACLE / info.name, **full_copy(self.model))


def two_tables(num_ps: int, optimizer, bp_v2: bool = False) -> tf.keras.Model:
    layers = [em.embedding("user", em.ps_devices(num_ps), bp_v2=bp_v2),
              em.embedding("item", em.ps_devices(num_ps), bp_v2=bp_v2)]
    model = em.functional_model(layers)
    model.compile(optimizer, "mse")
    return model


def adam() -> object:
    return em.adam(0.01)


def train(num_workers: int, num_ps: int, policy, optimizer=adam, **kwargs):
    """Trains and saves at each 40th batch; returns what the checkpoints say of themselves."""
    with LocalCluster(num_workers, num_ps) as cluster:
        with cluster.strategy().scope():
            model = two_tables(num_ps, optimizer(), **kwargs)
        checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 40, policy, max_to_keep=100, on_failure="stop",
                                                save_at_end=False)
        model.fit(em.batches(), steps_per_epoch=120, epochs=2, verbose=0,
                  callbacks=[checkpoints, CopyEachCut(checkpoints)])
        bases = [head.base_sequence for head in commit.list_heads(Store(), CHECKPOINTS)[0]]
        return [{"name": info.name, "step": info.step, "epoch": info.epoch, "batch": info.batch, "rows": info.rows,
                 "base": base} for info, base in zip(checkpoints.manager.checkpoints, bases)]


def train_on_1_ps():
    return train(1, 1, "incremental")


def train_on_2_ps():
    return train(2, 2, ADAPTIVE)


def train_on_3_ps():
    return train(2, 3, "differential")


def train_with_new_style_adam():
    return train(2, 2, ADAPTIVE, lambda: de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(0.01)))


def train_with_accumulated_updates():
    return train(2, 2, ADAPTIVE, lambda: em.adam(0.01, bp_v2=True), bp_v2=True)


def restore_all(num_ps: int, optimizer=adam, **kwargs):
    """Restores every checkpoint of every directory named, and compares it with its copy."""
    found = {}
    with LocalCluster(1, num_ps) as cluster:
        with cluster.strategy().scope():
            model = two_tables(num_ps, optimizer(), **kwargs)
        for directory in CHECKPOINTS.split(":"):
            for copy in sorted(ORACLE.glob(Path(directory).name + "/*.npz")):
                model.load_adaptcp(directory, copy.stem)
                found[str(copy)] = differences(np.load(copy), full_copy(model))
        model.fit(em.batches(), steps_per_epoch=5, verbose=0)  # it can train
        return found


def restore_on_1_ps():
    return restore_all(1)


def restore_on_2_ps():
    return restore_all(2)


def restore_on_3_ps():
    return restore_all(3)


def restore_new_style_adam():
    return restore_all(2, lambda: de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(0.01)))


def restore_accumulated_updates():
    return restore_all(2, lambda: em.adam(0.01, bp_v2=True), bp_v2=True)


def compiled_optimizer_is_refused(strategy) -> str:
    with strategy.scope():
        model = two_tables(2, de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(0.01)))
    model.optimizer.jit_compile = True  # as on a machine with a GPU
    try:
        tfadaptcp.CheckpointManager(model, CHECKPOINTS)
        return ""
    except ValueError as error:
        return str(error)


def custom_loop():
    """A ClusterCoordinator loop with a manager: cuts between schedules, saves written while steps run, by way of a buffer."""
    buffer_dir = f"{ORACLE}-buffer"
    with LocalCluster(2, 2) as cluster:
        strategy, coordinator = cluster.strategy(), cluster.coordinator()
        refused = compiled_optimizer_is_refused(strategy)
        tf.keras.backend.clear_session()
        with strategy.scope():
            model = two_tables(2, adam())
        manager = tfadaptcp.CheckpointManager(model, CHECKPOINTS, ADAPTIVE, max_to_keep=100, buffer_dir=buffer_dir)
        data = iter(coordinator.create_per_worker_dataset(lambda: em.batches()))

        @tf.function
        def step(iterator):
            def replica(ids, labels):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(ids, training=True) - labels))
                gradients = tape.gradient(loss, model.trainable_variables)
                model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            strategy.run(replica, args=next(iterator))

        steps = []
        for _ in range(4):
            for _ in range(60):
                coordinator.schedule(step, args=(data,))
            info = manager.save()  # the cut: all that was scheduled is in
            steps.append(info.step)
            np.savez(ORACLE / info.name, **full_copy(model))
            for _ in range(30):  # while it is being written
                coordinator.schedule(step, args=(data,))
            manager.wait()
        coordinator.join()
        wrong = {}
        for copy in sorted(ORACLE.glob("*.npz")):
            model.load_adaptcp(CHECKPOINTS, copy.stem)
            wrong[copy.stem] = differences(np.load(copy), full_copy(model))
        for _ in range(60):
            coordinator.schedule(step, args=(data,))
        name = manager.restore().checkpoint  # after all of them
        wrong["steps were scheduled"] = differences(np.load(ORACLE / f"{name}.npz"), full_copy(model))
        left = {name: os.listdir(os.path.join(buffer_dir, name)) for name in os.listdir(buffer_dir)}
        return {"steps": steps, "wrong": wrong, "refused": refused, "left": list(left.values()),
                "buffered_seconds": manager.stats()["buffered_seconds"]}


def train_and_restore():
    """On two parameter servers; every checkpoint is restored and compared with its copy."""
    with LocalCluster(1, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 20, ADAPTIVE, max_to_keep=100, on_failure="stop",
                                                save_at_end=False)
        model.fit(em.batches(), steps_per_epoch=60, verbose=0, callbacks=[checkpoints, CopyEachCut(checkpoints)])
        wrong = {}
        for copy in sorted(ORACLE.glob("*.npz")):
            model.load_adaptcp(CHECKPOINTS, copy.stem)
            wrong[copy.stem] = differences(np.load(copy), full_copy(model))
        return {"steps": [info.step for info in checkpoints.manager.checkpoints], "wrong": wrong}


SCALED_BY = [float(column) for column in range(em.COLUMNS)]


class LazyModel(tf.keras.Model):
    """Makes its variables while its first step is traced."""

    def __init__(self, num_ps):
        super().__init__()
        self._layers_of = [em.embedding(name, em.ps_devices(num_ps)) for name in ("user", "item")]
        self._out = tf.keras.layers.Dense(1, name="dense")
        self.scaled = tf.keras.layers.Normalization(name="scaled")

    def call(self, ids):
        rows = [tf.reshape(layer(ids), [-1, em.COLUMNS * em.DIM]) for layer in self._layers_of]
        return self._out(tf.concat([*rows, self.scaled(tf.cast(ids, tf.float32))], 1))


def _fit_lazy_model(cluster, learning_rate, steps):
    with cluster.strategy().scope():
        model = LazyModel(2)
        model.compile(em.adam(learning_rate), "mse")
    callback = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 40, restore=True)
    built = model.built
    seen = []

    def set_rate(batch):
        seen.append(float(model.optimizer.learning_rate))

    model.fit(em.batches(), steps_per_epoch=steps, verbose=0, callbacks=[callback, AfterBatch(set_rate)])
    return model, callback, built, seen


def train_a_lazy_model():
    """Starts fresh, there being nothing to restore, and saves at learning rate 0 what it has learned at 0.01."""
    with LocalCluster(1, 2) as cluster:
        model, callback, built, _ = _fit_lazy_model(cluster, 0.01, 60)
        model.optimizer.learning_rate = 0.0
        model.scaled.adapt_mean.assign(SCALED_BY)
        callback.manager.save()
        info = callback.manager.wait()
        np.savez(ORACLE / info.name, **full_copy(model))
        return {"built": built, "restored": callback.report is not None, "name": info.name}


def go_on_with_a_lazy_model():
    """The first step runs on restored rows and at the restored learning rate, 0: it leaves every row as it was."""
    with LocalCluster(1, 2) as cluster:
        model, callback, built, seen = _fit_lazy_model(cluster, 0.01, 3)
        expected = np.load(ORACLE / (callback.report.checkpoint + ".npz"))
        rows = full_copy(model)
        wrong = [table for table in ("user-parameter", "item-parameter") if not _holds_rows_of(rows, expected, table)]
        return {"built": built, "restored": callback.report.checkpoint, "wrong": wrong, "learning_rates": seen,
                "scaled_by": np.ravel(model.scaled.mean).tolist(),
                "steps": int(model.optimizer.iterations) - callback.report.step}


def _holds_rows_of(found, expected, table) -> bool:
    rows = dict(zip(found[f"{table} keys"].tolist(), found[f"{table} values"].tolist()))
    return all(rows.get(key) == value for key, value in zip(expected[f"{table} keys"].tolist(),
                                                            expected[f"{table} values"].tolist()))


def restarted_ps_blocks_saves():
    """A ps that comes back empty: the save names it, and commits nothing."""
    with LocalCluster(1, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        manager = tfadaptcp.CheckpointManager(model, CHECKPOINTS)
        model.fit(em.batches(), steps_per_epoch=5, verbose=0)
        manager.save()
        before = manager.wait().name
        cluster.kill("ps", 1)
        cluster.restart("ps", 1)
        errors = [_error_of(lambda: manager.save() and manager.wait()), _error_of(manager.restore),
                  _error_of(lambda: model.load_adaptcp(CHECKPOINTS))]
        return {"errors": errors, "before": before, "heads": [info.name for info in manager.checkpoints]}


def _error_of(call) -> str:
    try:
        call()
        return ""
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"


def servers_without_tfadaptcp():
    """Servers that know TFRA alone are named before anything is tracked."""
    with LocalCluster(1, 1, module="tests.support.stock_server") as cluster:
        with cluster.strategy().scope():
            model = two_tables(1, adam())
        return [_error_of(lambda: tfadaptcp.CheckpointManager(model, CHECKPOINTS)),
                _error_of(lambda: model.load_adaptcp(CHECKPOINTS)) if os.listdir(CHECKPOINTS) else "nothing there",
                sorted(os.listdir(CHECKPOINTS))]


def _strategy_of(spec: dict):
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(spec), rpc_layer="grpc")
    return tf.distribute.ParameterServerStrategy(resolver)


def coordinator_that_dies():
    """Trains on servers that outlive it, until it is killed."""
    with _strategy_of(json.loads(os.environ["CLUSTER"])).scope():
        model = two_tables(2, adam())
    checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 40, max_to_keep=100)

    def die(batch):
        if checkpoints.manager.stats()["committed"] >= 2:
            os.kill(os.getpid(), signal.SIGKILL)

    model.fit(em.batches(), steps_per_epoch=4000, verbose=0,
              callbacks=[checkpoints, CopyEachCut(checkpoints), AfterBatch(die)])


def second_coordinator():
    """Comes after it to the same servers: an empty model, that restores what was saved."""
    with _strategy_of(json.loads(os.environ["CLUSTER"])).scope():
        model = two_tables(2, adam())
    layers = [layer for layer in model.layers if hasattr(layer, "params")]
    sizes = [int(layer.params.size()) for layer in layers]
    report = model.load_adaptcp(CHECKPOINTS)
    wrong = differences(np.load(ORACLE / (report.checkpoint + ".npz")), full_copy(model))
    checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 20, on_failure="stop")
    model.fit(em.batches(seed=3), steps_per_epoch=40, verbose=0, callbacks=[checkpoints])
    return {"sizes": sizes, "wrong": wrong, "generation": checkpoints.manager.checkpoints[-1].generation,
            "step": checkpoints.manager.checkpoints[-1].step, "restored": report.step}


def coordinators_one_after_another():
    with LocalCluster(1, 2) as cluster:
        env = {**os.environ, "CLUSTER": json.dumps(cluster.cluster_spec)}
        results = []
        for job in ("coordinator_that_dies", "second_coordinator"):
            command = [sys.executable, "-m", "tests.support.jobs", "tests.support.cluster_jobs", job]
            results.append(forks.run(command, env, 150))
        (killed, why), (ended, printed) = results
        assert killed == -signal.SIGKILL, why[-3000:]
        assert ended == 0, printed[-3000:]
        return json.loads(printed.split("JOB RESULT ")[-1].splitlines()[0])


def killed_ps_then_restore():
    """A ps is killed in mid-training: fit raises, and what was committed last is whole."""
    with LocalCluster(2, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 40, ADAPTIVE, max_to_keep=100)

        def kill(batch):
            if batch == 150:
                cluster.kill("ps", 1)

        start = time.monotonic()
        try:
            model.fit(em.batches(), steps_per_epoch=4000, verbose=0,
                      callbacks=[checkpoints, CopyEachCut(checkpoints), AfterBatch(kill)])
            error = ""
        except Exception as raised:
            error = type(raised).__name__
        return {"error": error, "seconds": time.monotonic() - start}


def killed_workers_go_on():
    """One worker dies and comes back, then the other one dies: training goes on, and every cut is whole."""
    with LocalCluster(2, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        options = tfadaptcp.EngineOptions(drain_timeout_seconds=250)
        checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 60, ADAPTIVE, max_to_keep=100, on_failure="stop",
                                                save_at_end=False, engine=options)
        deaths = {30: (cluster.kill, 0), 62: (cluster.restart, 0), 185: (cluster.kill, 1)}

        def strike(batch):
            if batch in deaths:
                act, worker = deaths[batch]
                act("worker", worker)

        model.fit(em.batches(), steps_per_epoch=240, verbose=0,
                  callbacks=[AfterBatch(strike), checkpoints, CopyEachCut(checkpoints)])
        names = [info.name for info in checkpoints.manager.checkpoints]
        wrong = {}
        for name in names:
            model.load_adaptcp(CHECKPOINTS, name)
            wrong[name] = differences(np.load(ORACLE / f"{name}.npz"), full_copy(model))
        return {"steps": [info.step for info in checkpoints.manager.checkpoints], "wrong": wrong}


def directory_that_one_ps_sees_elsewhere():
    """A path that means another directory in every process: its own working directory."""
    os.makedirs(os.path.join(CHECKPOINTS, "elsewhere"))
    os.chdir(os.path.join(CHECKPOINTS, "elsewhere"))
    with LocalCluster(1, 2) as cluster:
        os.chdir(CHECKPOINTS)
        cluster.kill("ps", 0)
        cluster.restart("ps", 0)  # it starts here, ps 1 stays where it was
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        errors = []
        for directory in ("/proc/self/cwd/here", "/proc/self/none/here", CHECKPOINTS):
            errors.append(_error_of(lambda: tfadaptcp.CheckpointManager(model, directory)))
        left = sorted(os.listdir(os.path.join(CHECKPOINTS, "data")))
        manager = tfadaptcp.CheckpointManager(model, os.path.join(CHECKPOINTS, "here"))
        for _ in range(2):
            model.fit(em.batches(), steps_per_epoch=5, verbose=0)
            manager.save()
            manager.wait()
        return {"errors": errors, "left": left,
                "restore": _error_of(lambda: model.load_adaptcp("/proc/self/cwd/here"))}


def ps_that_hangs():
    """A ps stands still during a cut and goes on later: the save names it, and the next one is whole."""
    with LocalCluster(1, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        manager = tfadaptcp.CheckpointManager(model, CHECKPOINTS, ADAPTIVE,
                                              engine=tfadaptcp.EngineOptions(timeout_seconds=40))
        model.fit(em.batches(), steps_per_epoch=10, verbose=0)
        manager.save()
        manager.wait()
        # Long enough for the one that runs, on a loaded machine.
        manager._options = dataclasses.replace(manager._options, timeout_seconds=15)
        manager_module._GIVE_UP_SECONDS = 1.0
        os.kill(cluster.pid("ps", 1), signal.SIGSTOP)
        start = time.monotonic()
        try:
            manager.save()
            error = ""
        except tfadaptcp.AdaptCPError as raised:
            error = f"{type(raised).__name__}: {raised}"
        seconds = time.monotonic() - start
        os.kill(cluster.pid("ps", 1), signal.SIGCONT)
        manager._options = dataclasses.replace(manager._options, timeout_seconds=40)
        wrong = {}
        for _ in range(2):
            model.fit(em.batches(), steps_per_epoch=10, verbose=0)
            expected = full_copy(model)
            manager.save()
            info = manager.wait()
            wrong[info.name] = (info, expected)
        found = {}
        for name, (info, expected) in wrong.items():
            model.load_adaptcp(CHECKPOINTS, name)
            found[name] = differences(expected, full_copy(model))
        return {"error": error, "seconds": seconds, "wrong": found}


def cuts_that_wait_and_cuts_that_do_not():
    """Cuts of every tenth step of two workers do not wait for steps; of every hundredth do; and not for ever."""
    with LocalCluster(2, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
            released = tf.Variable(0.0)
        frequent = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 10, max_to_keep=99, on_pending="wait", on_failure="stop")
        model.fit(em.batches(), steps_per_epoch=45, verbose=0, callbacks=[frequent])
        found = {"frequent": [info.consistency for info in frequent.manager.checkpoints],
                 "last": frequent.manager.checkpoints[-1].consistency}
        expected = full_copy(model)
        model.load_adaptcp(CHECKPOINTS)
        found["wrong"] = differences(expected, full_copy(model))
        before = {info.name for info in frequent.manager.checkpoints}
        rare = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 100, max_to_keep=99, on_pending="wait", on_failure="stop")
        rare.manager = frequent.manager
        for _ in range(2):
            model.fit(em.batches(), steps_per_epoch=110, verbose=0, callbacks=[rare])
        found["rare"] = [(info.consistency, info.step) for info in rare.manager.checkpoints if info.name not in before][-3:]

        @tf.function
        def until_released():
            turns = 0
            while released.read_value() < 1.0:
                turns += 1
            return turns

        impatient = tfadaptcp.EngineOptions(drain_timeout_seconds=0.5)
        manager = tfadaptcp.CheckpointManager(model, CHECKPOINTS, engine=impatient)
        coordinator = cluster.coordinator()
        coordinator.schedule(until_released)
        expected = full_copy(model)
        found["skipped"] = [manager.save(), manager.stats()["skipped"]]
        found["beside"] = manager.save().consistency
        manager.wait()
        found["restore"] = _error_of(lambda: model.load_adaptcp(CHECKPOINTS, engine=impatient))
        found["unchanged"] = differences(expected, full_copy(model)) == []
        for _ in range(2 * draining._AHEAD):
            coordinator.schedule(until_released)
        held = threading.Thread(target=draining.hold_back, args=(model, 0.5))
        log = io.StringIO()
        logging.getLogger("tfadaptcp").addHandler(logging.StreamHandler(log))
        held.start()
        held.join(2.0)
        found["held"] = [held.is_alive(), "Training stands still" in log.getvalue()]
        released.assign(1.0)
        coordinator.join()
        held.join(10.0)
        found["held"].append(held.is_alive())
        found["after"] = manager.save().consistency
        manager.wait()
        return found
