"""Jobs that build a lazily built model by tracing, for the tests of ``lazy_build``."""

from __future__ import annotations

from tests.support import embedding_model as em

import tensorflow as tf

from tfadaptcp.embeddings import lazy_build, shadow
from tfadaptcp.testing import LocalCluster

shadow.install()


class _LazyModel(tf.keras.Model):
    """Makes its variables, and on one host its embedding too, while its first step is traced."""

    def __init__(self, devices=None):
        super().__init__()
        self.traces = 0
        # TFRA 0.8.1 can't make an embedding layer inside a step under parameter servers.
        self.embedding = em.embedding("lazy", devices) if devices else None

    def build(self, shape):
        self.embedding = self.embedding or em.embedding("lazy")
        self.dense = tf.keras.layers.Dense(1)
        self.built = True  # Model.build would call the model, with floats for ids

    def call(self, ids):
        return self.dense(tf.reshape(self.embedding(ids), [-1, em.COLUMNS * em.DIM]))

    def train_step(self, data):
        self.traces += 1
        return super().train_step(data)


class _ActAtBuild(tf.keras.callbacks.Callback):
    """Notes what is there before the first step, then fills the table as a restore would."""

    def __init__(self, error=None):
        super().__init__()
        self.found = {}
        self.calls = 0
        self._error = error

    def on_train_begin(self, logs=None):
        if self.calls:
            return
        self._cancel = lazy_build.before_first_step(self.model, self._act)

    def on_train_end(self, logs=None):
        self._cancel()

    def _act(self):
        self.calls += 1
        if self._error is not None:
            raise self._error
        model = self.model
        slots = model.embedding.shadow._optimizer_vars.value
        self.found = {
            "iterations": int(model.optimizer.iterations),
            "rows": int(model.embedding.params.size()),
            "slot_rows": [int(slot.size()) for slot in slots],
            "dense": [list(v.shape) for v in model.dense.trainable_variables],
            "eager": tf.executing_eagerly(),
        }
        em.fill(model.embedding)


def _fit(model, **compile_options):
    model.compile(em.adam(0.0), "mse", **compile_options)
    callback = _ActAtBuild()
    for _ in range(2):
        model.fit(em.batches(), steps_per_epoch=20, verbose=0, callbacks=[callback])
    return {
        **callback.found,
        "calls": callback.calls,
        "traces": model.traces,
        "steps": int(model.optimizer.iterations),
        "wrong": em.wrong_rows(model.embedding),
        "size": int(model.embedding.params.size()),
    }


def default_strategy():
    found = _fit(_LazyModel())
    tf.keras.backend.clear_session()
    stock = _LazyModel()
    stock.compile(em.adam(0.0), "mse")
    stock.fit(em.batches(), steps_per_epoch=2, verbose=0)
    return {**found, "stock_traces": stock.traces}


def default_strategy_several_steps_per_execution():
    return _fit(_LazyModel(), steps_per_execution=5)


def run_eagerly():
    return _fit(_LazyModel(), run_eagerly=True)


def parameter_servers():
    with LocalCluster(2, 2) as cluster:
        found = []
        for options in ({}, {"steps_per_execution": 5}):
            with cluster.strategy().scope():
                model = _LazyModel(em.ps_devices(2))
                found.append(_fit(model, **options))
            tf.keras.backend.clear_session()
        return found


def failures():
    found = {}
    for error in (ValueError("broken"), tf.errors.OutOfRangeError(None, None, "end")):
        tf.keras.backend.clear_session()
        model = _LazyModel()
        model.compile(em.adam(0.0), "mse")
        try:
            model.fit(
                em.batches(), steps_per_epoch=3, verbose=0, callbacks=[_ActAtBuild(error)]
            )
        except Exception as raised:
            found[type(error).__name__] = f"{type(raised).__name__}: {raised}"
        found["steps"] = int(model.optimizer.iterations)

    tf.keras.backend.clear_session()
    model = _LazyModel()
    model.compile(em.adam(0.0), "mse")
    callback = _ActAtBuild()
    model.fit(em.batches(), epochs=1, initial_epoch=1, callbacks=[callback])  # no step at all
    model.fit(em.batches(), steps_per_epoch=3, verbose=0)
    found["calls after a fit without steps"] = callback.calls

    class Broken(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise ValueError("broken")

    tf.keras.backend.clear_session()
    model = _LazyModel()
    model.compile(em.adam(0.0), "mse")
    callbacks = [_ActAtBuild(), _ActAtBuild()]
    for others in ([callbacks[0], Broken()], [], [callbacks[0], Broken()], [callbacks[1]]):
        try:
            model.fit(em.batches(), steps_per_epoch=3, verbose=0, callbacks=others)
        except ValueError as raised:
            assert str(raised) == "broken"
        if callbacks[1].calls == 0 and others == []:  # a lazily built model once more
            tf.keras.backend.clear_session()
            model = _LazyModel()
            model.compile(em.adam(0.0), "mse")
    found["calls of a fit that ended before its first step, and of the one after it"] = [item.calls for item in callbacks]

    tf.keras.backend.clear_session()

    class OwnFunction(_LazyModel):
        def make_train_function(self, force=False):
            self.train_function = lambda iterator: {}
            return self.train_function

    model = OwnFunction()
    model.compile(em.adam(0.0), "mse")
    try:
        model.fit(em.batches(), steps_per_epoch=3, verbose=0, callbacks=[_ActAtBuild()])
    except ValueError as raised:
        found["own function"] = str(raised)
    return found
