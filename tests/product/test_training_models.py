"""Models of one's own, mixed precision, loss scales, constraints: what they hold is in a checkpoint, or they are refused."""

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle
from tests.support.fitting import data, step_of
from tfadaptcp.manager import CheckpointManager

keras = tf.keras
LossScaleOptimizer = keras.mixed_precision.LossScaleOptimizer


class Accumulating(keras.Model):
    """Gathers the gradients of dense variables over two batches; has metrics, a generator and variables of its own."""

    def __init__(self):
        super().__init__()
        self.embedding = de.keras.layers.Embedding(4, name="rows", max_norm=0.5,
                                                   initializer=keras.initializers.Constant(0.1))
        self.hidden = keras.layers.Dense(3, kernel_constraint=keras.constraints.MaxNorm(0.7),
                                         kernel_regularizer=keras.regularizers.L2(0.01))
        self.norm = keras.layers.BatchNormalization()
        self.out = keras.layers.Dense(1)
        self.noise = tf.random.Generator.from_seed(3)
        self.batches = tf.Variable(0, trainable=False)
        self.loss_total, self.error_total = keras.metrics.Mean("loss"), keras.metrics.MeanAbsoluteError("error")

    def build(self, shape):
        super().build(shape)
        self.gathered = [tf.Variable(tf.zeros_like(v), trainable=False, name=f"gathered{i}")
                         for i, v in enumerate(self.dense_variables())]

    def dense_variables(self):
        return [v for v in self.trainable_variables if not isinstance(v, de.TrainableWrapper)]

    def call(self, ids, training=False):
        rows = tf.reshape(self.embedding(tf.cast(ids, tf.int64)), [-1, oracle.COLUMNS * 4])
        hidden = self.norm(self.hidden(rows), training=training)
        return self.out(hidden + self.noise.normal([3], stddev=0.01))

    def train_step(self, batch):
        ids, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            found = self(ids, training=True)
            loss = self.compiled_loss(labels, found, weights, regularization_losses=self.losses)
        variables = self.trainable_variables
        pairs = list(zip(tape.gradient(loss, variables), variables))
        self.optimizer.apply_gradients([pair for pair in pairs if isinstance(pair[1], de.TrainableWrapper)])
        for sum_, (gradient, _) in zip(self.gathered, [p for p in pairs if not isinstance(p[1], de.TrainableWrapper)]):
            sum_.assign_add(gradient)
        tf.cond(self.batches.assign_add(1) % 2 == 0, self.apply_gathered, lambda: None)
        self.loss_total.update_state(loss)
        self.error_total.update_state(labels, found)
        return {"loss": self.loss_total.result(), "error": self.error_total.result()}

    def apply_gathered(self):
        self.optimizer.apply_gradients(list(zip(self.gathered, self.dense_variables())))
        for sum_ in self.gathered:
            sum_.assign(tf.zeros_like(sum_))


def accumulating(run_eagerly):
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    model = Accumulating()
    model(oracle.batch(0)[0])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.legacy.Adam(0.02)), "mse", run_eagerly=run_eagerly)
    return model


def weighted(batches):
    return batches.map(lambda ids, labels: (ids, labels, tf.cast(ids[:, 0] % 3, tf.float32)))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_model_of_ones_own(run_eagerly, tmp_path):
    """Two metrics were refused for their variables' names; the state of a generator was not saved."""
    model = accumulating(run_eagerly)
    callback = tfadaptcp.AdaptCPCallback(tmp_path, 3, on_failure="stop")
    model.fit(weighted(data(5)), verbose=0, callbacks=[callback])
    # Loops of one's own go on with the same manager.
    callback.manager.save()
    for step in (5, 6):
        ids, labels = oracle.batch(step)
        model.train_on_batch(ids, labels, sample_weight=labels[:, 0] + 1)
    copy, noise = oracle.take(model), model.noise.state.numpy()
    info = callback.manager.save()
    expected = [model.train_on_batch(*oracle.batch(step)) for step in (7, 8, 9)]
    after = oracle.take(model)
    assert callback.manager.wait().name == info.name

    fresh = accumulating(False)
    fresh.noise.reset_from_seed(77)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)
    assert (fresh.noise.state.numpy() == noise).all() and int(fresh.batches) == 7
    if not run_eagerly:
        assert [fresh.train_on_batch(*oracle.batch(step)) for step in (7, 8, 9)] == expected
        oracle.check(after, fresh)


def scaled(new_style):
    model = oracle.build()
    inner = keras.optimizers.Adam(0.02, jit_compile=False) if new_style else keras.optimizers.legacy.Adam(0.02)
    model.compile(LossScaleOptimizer(de.DynamicEmbeddingOptimizer(inner), initial_scale=8.0, dynamic_growth_steps=2),
                  "mse")
    return model


@pytest.mark.parametrize("new_style", [False, True])
def test_loss_scale(new_style, tmp_path):
    """It was in no checkpoint, and slots had other names when the first step had made them."""
    model = scaled(new_style)
    model.fit(data(5), verbose=0)
    manager = CheckpointManager(model, tmp_path)
    copy = oracle.take(model)
    assert float(model.optimizer.loss_scale) == 32.0 and int(model.optimizer.dynamic_counter) == 1
    manager.save()
    manager.wait()
    fresh = scaled(new_style)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)
    assert float(fresh.optimizer.loss_scale) == 32.0
    for each in (model, fresh):
        each.fit(data(2, 5), verbose=0)
    oracle.check(oracle.take(model), fresh)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy, tmp_path):
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = oracle.build()
        callback = tfadaptcp.AdaptCPCallback(tmp_path, 3, on_failure="stop")
        model.fit(data(4), verbose=0, callbacks=[callback])
        assert isinstance(model.optimizer, LossScaleOptimizer) == (policy == "mixed_float16")
        copy = oracle.take(model)
        fresh = oracle.build(seed=9)
        assert fresh.load_adaptcp(tmp_path).step == step_of(fresh) == 4
        oracle.check(copy, fresh)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_optimizers_whose_state_would_be_lost(tmp_path):
    model = oracle.build()
    model.compile(de.DynamicEmbeddingOptimizer(LossScaleOptimizer(keras.optimizers.legacy.Adam(0.02))), "mse")
    with pytest.raises(ValueError, match="Received: DynamicEmbeddingOptimizer.*Expected: LossScaleOptimizer"):
        model.fit(data(1), callbacks=[tfadaptcp.AdaptCPCallback(tmp_path)], verbose=0)
    model = oracle.build()
    model.second = keras.optimizers.legacy.Ftrl(0.1, name="Wide")
    with pytest.raises(ValueError, match=r"Received: \['Wide'\] beside 'Adam'"):
        CheckpointManager(model, tmp_path)
    with pytest.raises(ValueError, match="Expected: one Keras optimizer"):
        CheckpointManager(model, tmp_path, optimizer=[model.optimizer, model.second])
    CheckpointManager(model, tmp_path, optimizer=False).save()
