"""`fit` as it is used: every checkpoint holds what the model was at its cut, and says how far training had come."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle, rows
from tests.support.fitting import Watch, check_heads, data, places, step_of, unknown


def saving(directory, save_freq, policy="incremental", **kwargs):
    return tfadaptcp.AdaptCPCallback(directory, save_freq, policy, max_to_keep=99, on_pending="wait", on_failure="stop",
                                     **kwargs)


def test_several_steps_per_execution_with_validation(tmp_path):
    model = oracle.build()
    model.compile(model.optimizer, "mse", steps_per_execution=4)
    watch, callback = Watch(), saving(tmp_path, 8)
    model.fit(data(10), epochs=2, validation_data=data(4, 90), verbose=0, callbacks=[watch, callback])
    assert places(callback) == [(8, 0, 8), (18, 1, 8), (20, 2, 0)]
    before = callback.manager.checkpoints[-1]
    check_heads(callback, watch, model, tmp_path)
    model.load_adaptcp(tmp_path)
    # Looking at rows, at those of unknown keys too, changes none.
    unseen = oracle.batch(0)[0] + 10_000
    model.evaluate(unseen, oracle.batch(0)[1], verbose=0)
    model.predict(unseen, verbose=0)
    model(unseen)
    callback.manager.save()
    assert callback.manager.wait().rows == before.rows
    oracle.check(watch.at_step[20], model)


@pytest.mark.parametrize("steps_per_execution", [1, 5])
def test_data_that_ends_before_its_epoch(steps_per_execution, tmp_path):
    """The epoch counted as completed. Several steps to an execution: those of the last one were in no checkpoint."""
    model = oracle.build()
    model.compile(model.optimizer, "mse", steps_per_execution=steps_per_execution)
    callback = saving(tmp_path, 5)
    model.fit(unknown(data(13)), epochs=3, steps_per_epoch=5, verbose=0, callbacks=[callback])
    copy = oracle.take(model)
    # Keras counts the step that found nothing, too.
    assert places(callback) == [(5, 1, 0), (10, 2, 0), (14, 2, 3)]
    rows.write(model, range(9))
    assert model.load_adaptcp(tmp_path).batch == 3
    oracle.check(copy, model)


def test_the_step_that_finds_no_data_is_in_the_last_checkpoint(tmp_path):
    """Keras counts it in `iterations`, so that Adam's correction of its bias would be another after a restore."""
    model = oracle.build()
    callback = saving(tmp_path, 5)
    model.fit(unknown(data(5)), verbose=0, callbacks=[callback])
    assert step_of(model) == 6
    assert places(callback) == [(5, 0, 5), (6, 1, 0)]


def test_fits_with_one_callback_with_two_and_after_compiling_again(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    model = oracle.build()
    watch, first, second = Watch(), saving(one, 4), saving(two, 3)
    model.fit(data(4), verbose=0, callbacks=[watch, first])
    model.fit(data(6, 4), epochs=2, initial_epoch=1, verbose=0, callbacks=[watch, first, second])
    assert places(first) == [(4, 1, 0), (8, 1, 4), (10, 2, 0)]
    assert places(second) == [(7, 1, 3), (10, 2, 0)]
    check_heads(second, watch, model, two)
    check_heads(first, watch, model, one)
    model.load_adaptcp(two)

    # Another optimizer has other slots, and counts from 0.
    model.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adagrad"]()), "mse")
    watch = Watch()
    model.fit(data(5, 10), epochs=3, initial_epoch=2, verbose=0, callbacks=[watch, first])
    assert places(first)[-2:] == [(4, 2, 4), (5, 3, 0)]
    assert first.manager.checkpoints[-1].rows.keys() == {"base", "increment"}
    fresh = oracle.build("adagrad", seed=9)
    fresh.load_adaptcp(one)
    oracle.check(watch.at_step[5], fresh)


def test_callbacks_that_cannot_be_in_one_fit(tmp_path):
    """Both went on failing in the background, and trained a model that was not saved."""
    model = oracle.build()
    a, same = saving(tmp_path / "a", 2), saving(f"{tmp_path}/a/", 3)
    with pytest.raises(ValueError, match="Received: twice.*/a"):
        model.fit(data(2), verbose=0, callbacks=[a, same])
    other = saving(tmp_path / "b", 2, tfadaptcp.policies.Adaptive(decay=0.5))
    with pytest.raises(ValueError, match=r"decay by 0\.5 and .*decay by 0\.9.*the same decay"):
        model.fit(data(2), verbose=0, callbacks=[a, other])
    other = saving(tmp_path / "b", 2, tfadaptcp.policies.Adaptive(estimator="accesses"))
    with pytest.raises(ValueError, match="by accesses, .*and updates, .*the same estimator"):
        model.fit(data(2), verbose=0, callbacks=[a, other])
    # What was in a fit that failed is in the way of none.
    model.fit(data(2), verbose=0, callbacks=[same])
    assert places(same) == [(2, 1, 0)]


def test_beside_other_callbacks(tmp_path):
    kept = tf.keras.callbacks
    model = oracle.build()
    watch, callback = Watch(), saving(tmp_path / "ours", "epoch")

    def others():
        return [kept.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False),
                kept.ModelCheckpoint(tmp_path / "weights", save_weights_only=True, monitor="loss", save_best_only=True),
                kept.ReduceLROnPlateau(monitor="loss", min_delta=9, patience=1, factor=0.5),
                kept.EarlyStopping(monitor="loss", min_delta=9, patience=3),
                kept.LearningRateScheduler(lambda epoch, rate: rate * 0.75)]

    model.fit(data(4), epochs=9, verbose=0, callbacks=[*others(), watch, callback])
    assert places(callback) == [(4, 1, 0), (8, 2, 0), (12, 3, 0), (16, 4, 0)]
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02 * 0.75**4 * 0.5**3)
    copy = oracle.take(model)
    fresh = oracle.build(seed=9)
    again = saving(tmp_path / "ours", "epoch", restore=True)

    class AtBegin(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            oracle.check(copy, self.model, "after all were restored")

    fresh.fit(data(4), epochs=5, initial_epoch=4, verbose=0, callbacks=[*others()[:4], again, AtBegin()])
    assert again.report.epoch == 4 and places(again)[-1] == (20, 5, 0)
    assert float(fresh.optimizer.learning_rate) == float(model.optimizer.learning_rate)


class Lazy(tf.keras.Model):
    """Built by its first batch."""

    def __init__(self):
        super().__init__()
        self.rows = de.keras.layers.Embedding(oracle.DIM, name="rows")
        self.flat, self.out = tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)

    def call(self, ids):
        return self.out(self.flat(self.rows(ids)))


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("initial", [0, 2])
def test_epochs_that_fit_counts_anew_are_told(initial, is_lazy, tmp_path, caplog):
    def build():
        tf.keras.backend.clear_session()
        model = Lazy() if is_lazy else oracle.build(None)
        model.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adam"]()), "mse")
        return model

    build().fit(data(2), epochs=2, verbose=0, callbacks=[saving(tmp_path, "epoch")])
    model = build()
    again = saving(tmp_path, "epoch", restore=True)
    with caplog.at_level("WARNING", "tfadaptcp"):
        model.fit(data(2), epochs=initial + 3, initial_epoch=initial, verbose=0, callbacks=[again])
    told = [record.getMessage() for record in caplog.records if "counts from" in record.getMessage()]
    assert len(told) == (initial == 0)
    assert all("2 epochs were completed, but fit counts from 0" in text and "initial_epoch=2" in text for text in told)
    assert places(again)[-1] == (10, initial + 3, 0)


def test_averages_that_replace_the_weights_at_the_end_are_saved(tmp_path):
    """Keras does that before callbacks are told of the end."""
    def build():
        model = oracle.build(None, tables=0)
        model.compile(tf.keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5, jit_compile=False), "mse")
        return model

    model, watch, callback = build(), Watch(), saving(tmp_path, 1)
    model.fit(data(3), verbose=0, callbacks=[watch, callback])
    copy = oracle.take(model)
    assert oracle.difference(copy, watch.at_step[3]) is not None
    fresh = build()
    assert fresh.load_adaptcp(tmp_path).step == 3
    oracle.check(copy, fresh)


def test_the_last_checkpoint_is_no_mixture_of_epochs(tmp_path):
    """At the end of training Keras puts the dense weights of the best epoch in their place, and leaves all else."""
    model = oracle.build("adam", tables=0)
    stop = tf.keras.callbacks.EarlyStopping(monitor="loss", min_delta=9, patience=2, restore_best_weights=True)
    callback, copies = tfadaptcp.AdaptCPCallback(tmp_path, 100), {}
    watch = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: copies.update({step_of(model): [v.numpy() for v in model.trainable_variables]}))
    model.fit(data(4), epochs=9, verbose=0, callbacks=[stop, callback, watch])
    assert step_of(model) == 12 and np.any(model.trainable_variables[0].numpy() != copies[12][0]), "Keras has restored none"
    info, = callback.manager.checkpoints
    assert (info.step, info.epoch, info.batch) == (12, 3, 0)
    model.load_adaptcp(tmp_path)
    for variable, value in zip(model.trainable_variables, copies[12]):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_count_of_steps_that_another_callback_has_set(tmp_path):
    """As `BackupAndRestore` does, which restores Keras's own count."""
    model = oracle.build("adam")

    class Restore(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model._train_counter.assign(8)

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    callback = tfadaptcp.AdaptCPCallback(tmp_path)
    model.fit(data(4), epochs=3, initial_epoch=2, verbose=0, callbacks=[Restore(), callback])
    assert places(callback) == [(2, 2, 2)]


def test_a_train_function_that_counts_no_steps(tmp_path):
    model = oracle.build("adam")

    def make(force=False):
        def train(iterator):
            return model.train_step(next(iterator))
        model.train_function = tf.function(train)
        return model.train_function

    object.__setattr__(model, "make_train_function", make)
    callback = tfadaptcp.AdaptCPCallback(tmp_path, "epoch", on_pending="wait")
    model.fit(data(4), epochs=2, verbose=0, callbacks=[callback])
    assert places(callback) == [(4, 1, 0), (8, 2, 0)]
