"""Jobs under ``ParameterServerStrategy`` for the tests of the per-worker shadow fix.

Each function runs in a process of its own (``run_job``) and returns what the test compares.
"""

from __future__ import annotations

import os
import threading
import time

from tests.support import embedding_model as em

import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

from tfadaptcp.embeddings import shadow
from tfadaptcp.testing import LocalCluster

# To see that the tests can fail: TFADAPTCP_TEST_NO_SHADOW_FIX=1 runs the jobs on stock TFRA.
if not os.environ.get("TFADAPTCP_TEST_NO_SHADOW_FIX"):
    shadow.install()


def _two_by_two() -> LocalCluster:
    return LocalCluster(num_workers=2, num_ps=2)


def rows_stay_at_learning_rate_zero():
    with _two_by_two() as cluster:
        with cluster.strategy().scope():
            layers = [em.embedding(name, em.ps_devices(2)) for name in ("one", "two")]
            model = em.functional_model(layers)
            model.compile(em.adam(0.0), "mse")
        for layer in layers:
            em.fill(layer)
        model.fit(em.batches(), steps_per_epoch=150, epochs=2, verbose=0)
        wrong = [em.wrong_rows(layer) for layer in layers]
        evaluation = model.evaluate(em.batches(seed=5), steps=20, verbose=0)
        prediction = model.predict(em.batches(seed=6).map(lambda ids, _: ids), steps=4, verbose=0)
        return {
            "wrong": wrong,
            "wrong_after_evaluation": [em.wrong_rows(layer) for layer in layers],
            "sizes": [int(layer.params.size()) for layer in layers],
            "steps": int(model.optimizer.iterations),
            "evaluated": evaluation > 0,
            "predicted": list(prediction.shape),
        }


def adam_by_fit_with_varying_batches():
    losses = []
    with _two_by_two() as cluster:
        # One model after another, of the same names, with clear_session in between.
        for bp_v2 in (False, True):
            with cluster.strategy().scope():
                layer = em.embedding("table", em.ps_devices(2), bp_v2=bp_v2)
                model = em.functional_model([layer])
                model.compile(em.adam(0.02, bp_v2), "mse")
            history = model.fit(
                em.batches(varying=True), steps_per_epoch=100, epochs=2, verbose=0
            )
            losses.append(history.history["loss"])
            del model, layer, history
            tf.keras.backend.clear_session()
        return losses


def custom_loop_with_loops_and_nested_functions():
    with _two_by_two() as cluster:
        strategy, coordinator = cluster.strategy(), cluster.coordinator()
        with strategy.scope():
            layer = em.embedding("table", em.ps_devices(2))
            model = em.functional_model([layer])
            optimizer = em.adam(0.0)
            em.fill(layer)
        model.build((None, em.COLUMNS))

        @tf.function
        def forward(ids):
            return model(ids, training=True)

        def replica_step(ids, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(forward(ids) - labels))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            assert all(gradient is not None for gradient in gradients)
            optimizer.apply_gradients(zip(gradients, variables))
            return loss

        @tf.function
        def steps(iterator):
            loss = 0.0
            for _ in tf.range(5):
                loss = strategy.run(replica_step, args=next(iterator))
            return loss

        per_worker = iter(
            coordinator.create_per_worker_dataset(
                lambda: strategy.distribute_datasets_from_function(
                    lambda _: em.batches(varying=True)
                )
            )
        )
        losses = [coordinator.schedule(steps, args=(per_worker,)) for _ in range(40)]
        coordinator.join()
        return {
            "wrong": em.wrong_rows(layer),
            "size": int(layer.params.size()),
            "steps": int(optimizer.iterations),
            "finite": all(loss.fetch() < 1e6 for loss in losses),
        }


def fit_several_steps_per_execution():
    with _two_by_two() as cluster, cluster.strategy().scope():
        layer = em.embedding("table", em.ps_devices(2))
        model = em.functional_model([layer])
        model.compile(em.adam(0.0), "mse", steps_per_execution=5)
        em.fill(layer)
        model.fit(em.batches(), steps_per_epoch=100, verbose=0)
        return {"wrong": em.wrong_rows(layer), "steps": int(model.optimizer.iterations)}


class _CountingModel(tf.keras.Model):
    """Counts, in ``steps_by_worker``, the steps each worker executed."""

    def train_step(self, data):
        logs = super().train_step(data)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        self.steps_by_worker.assign_add(tf.one_hot(worker, 2, dtype=tf.int64))
        return logs


class _StopOnEvent(tf.keras.callbacks.Callback):
    def __init__(self, event: threading.Event):
        super().__init__()
        self._supports_tf_logs = True  # or Keras refuses batch hooks under this strategy
        self._event = event

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.03)  # a server is about to start, and needs the cores
        if self._event.is_set():
            self.model.stop_training = True


def restarted_worker_takes_steps_again():
    finished = threading.Event()
    found = {}

    def steps_of(worker):
        return int(model.steps_by_worker.numpy()[worker])

    def wait_for_steps(worker, number):
        target = steps_of(worker) + number
        deadline = time.monotonic() + 60
        while steps_of(worker) < target:
            if time.monotonic() > deadline:
                raise TimeoutError(f"worker {worker} stands at {steps_of(worker)} steps")
            time.sleep(0.05)

    def disturb():
        try:
            wait_for_steps(1, 10)
            cluster.kill("worker", 1)
            wait_for_steps(0, 20)
            before = steps_of(1)
            cluster.restart("worker", 1)
            wait_for_steps(1, 20)
            found["steps_after_restart"] = steps_of(1) - before
        except Exception as error:  # the job must end, and say why
            found["error"] = repr(error)
        finished.set()

    with _two_by_two() as cluster, cluster.strategy().scope():
        layer = em.embedding("table", em.ps_devices(2))
        inner = em.functional_model([layer])
        model = _CountingModel(inner.inputs, inner.outputs)
        model.steps_by_worker = tf.Variable([0, 0], dtype=tf.int64, trainable=False)
        model.compile(em.adam(0.0), "mse")
        em.fill(layer)
        thread = threading.Thread(target=disturb)
        thread.start()
        model.fit(
            em.batches(),
            steps_per_epoch=100_000,
            verbose=0,
            callbacks=[_StopOnEvent(finished)],
        )
        thread.join()
        return {**found, "wrong": em.wrong_rows(layer)}


def user_made_shadows():
    """A shadow made and used outside any strategy scope, and one with a buffer of the user's."""
    with _two_by_two() as cluster:
        coordinator = cluster.coordinator()
        params = de.get_variable(
            "mine", dim=em.DIM, devices=em.ps_devices(2), initializer=0.0
        )
        user_made = de.shadow_ops.ShadowVariable(params, name="mine-shadow")
        wrong_buffer = de.shadow_ops.ShadowVariable(
            params,
            name="shared",
            ids=tf.Variable(tf.zeros([0], tf.int64), shape=[None]),
        )
        keys = tf.range(em.KEYS, dtype=tf.int64)
        params.upsert(keys, em.row_values(keys.numpy()))

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def lookup(step):
            ids = tf.random.stateless_uniform([64 + step], [1, step], 0, em.KEYS, tf.int64)

            def rows_are_right():
                rows = de.shadow_ops.embedding_lookup(user_made, ids)
                user_made.update_op()
                return tf.reduce_all(rows == params.lookup(ids))

            return tf.cond(step >= 0, rows_are_right, lambda: False)

        results = [coordinator.schedule(lookup, args=(tf.constant(i),)) for i in range(150)]
        coordinator.join()
        all_right = all(bool(result.fetch()) for result in results)

        try:
            tf.function(
                lambda: de.shadow_ops.embedding_lookup(wrong_buffer, keys)
            ).get_concrete_function()
            refused = ""
        except ValueError as error:
            refused = str(error)

        all_keys = keys.numpy()
        wrong = int((params.lookup(keys).numpy() != em.row_values(all_keys)).any(1).sum())
        stock = user_made.__dict__["_handle"]
        return {
            "all_right": all_right,
            "refused": refused,
            "wrong": wrong,
            "eager_on_coordinator_is_stock": user_made.handle is stock,
            "called_on_coordinator": bool(lookup(tf.constant(3))),
        }


def export_after_training():
    """Saves a function that was traced, with call-time captures, before the export."""
    path = os.environ["EXPORT_PATH"]
    # The sums that are compared are made op by op here and by fused kernels where it is loaded: an
    # ulp of their terms apart. With weights that happen to cancel, that is much of the sum.
    tf.keras.utils.set_random_seed(7)
    with _two_by_two() as cluster:
        with cluster.strategy().scope():
            layer = em.embedding("table", em.ps_devices(2))
            model = em.functional_model([layer])
            model.compile(em.adam(0.0), "mse")
        em.fill(layer)
        model.fit(em.batches(), steps_per_epoch=20, verbose=0)

        @tf.function(input_signature=[tf.TensorSpec([None, em.COLUMNS], tf.int64)])
        def serve(ids):
            return {"out": model(ids, training=False)}

        captures = len(serve.get_concrete_function().graph.deferred_external_captures)
        options = tf.saved_model.SaveOptions(namespace_whitelist=["TFRA"])
        tf.saved_model.save(model, path, signatures=serve, options=options)
        ids = tf.reshape(tf.range(64, dtype=tf.int64), [-1, em.COLUMNS])
        return {"captures": captures, "out": model(ids).numpy().tolist()}
