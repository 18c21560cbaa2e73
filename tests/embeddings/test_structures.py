"""Models of every structure: nested, sharing tables, with tables of their own making; and what is refused by name."""

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle, rows

OPTIMIZERS = ["adam", "new_adam"]
ONES = tf.keras.initializers.Constant(1.0)


class Direct(tf.keras.layers.Layer):
    """Looks rows up in a TFRA variable of its own, or of somebody else. Keras doesn't know that it can be trained."""

    def __init__(self, name, params=None, hold=True, place="{}_lookup"):
        super().__init__(name=name)
        self.place = place.format(name)
        params = params or de.get_variable(f"{name}_table", dim=oracle.DIM, initializer=0.1)
        self._get = lambda: params
        if hold:
            self.table = params

    params = property(lambda self: self._get())
    shadow = property(lambda self: self.params.trainable_store[self.place])

    def call(self, ids):
        found = de.embedding_lookup(self.params, ids, name=self.place)
        return tf.reshape(tf.reduce_sum(found, axis=1), [-1, oracle.DIM])


def functional(make_rows, optimizer="adam"):
    """A model of one output over rows that are made of ids."""
    ids = tf.keras.Input((oracle.COLUMNS,), dtype=tf.int64)
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1, name="out")(make_rows(ids)))
    model.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS[optimizer]()), "mse")
    return model


def train(model, steps, first=0):
    """Eager steps on all that can be trained, what Keras doesn't know of included."""
    for step in range(first, first + steps):
        ids, labels = oracle.batch(step)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ids, training=True) - labels) ** 2)
        hidden = [layer.shadow for layer in model._flatten_layers(include_self=False) if isinstance(layer, Direct)]
        variables = model.trainable_variables + hidden
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


def round_trip(make, directory, expected):
    """Saves while it trains; restores into the live model and a fresh one, which goes on."""
    model = make()
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", max_to_keep=9)
    copies = {}
    for i in range(3):
        train(model, 2, first=2 * i)
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        train(model, 1, first=50 + i)
        manager.wait()
    assert {name: count > 0 for name, count in copy.rows().items()} == dict.fromkeys(expected, True)
    fresh = make()
    for name, copy in copies.items():
        model.load_adaptcp(directory, name)
        oracle.check(copy, model, name)
        report = fresh.load_adaptcp(directory, name)
        oracle.check(copy, fresh, f"{name} into a fresh model")
        assert report.rows == copy.rows()
    for target in (model, fresh):
        train(target, 2, first=80)
    assert oracle.difference(oracle.take(model), oracle.take(fresh)) is None, "they train alike"


def slots(*names):
    return [name + slot for name in names for slot in ("", "/m", "/v")]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_variable_held_by_a_layer(optimizer, tmp_path):
    def make():
        tf.keras.backend.clear_session()
        return functional(Direct("direct"), optimizer)

    round_trip(make, tmp_path, slots("direct_table"))


@pytest.mark.parametrize("place", ["{}_lookup", "{}/lookup"])
def test_one_variable_in_two_layers(place, tmp_path):
    """TFRA makes slots for each. Of places whose names end alike those of one were in no checkpoint."""
    def make():
        tf.keras.backend.clear_session()
        params = de.get_variable("both", dim=oracle.DIM, initializer=0.1)
        layers = Direct("a", params, place=place), Direct("b", params, place=place)
        return functional(lambda ids: layers[0](ids) + layers[1](ids))

    round_trip(make, tmp_path, ["both", *(f"both/{place.format(name)}/{slot}" for name in "ab" for slot in "mv")])


def test_one_layer_used_twice_and_a_model_in_a_model(tmp_path):
    def make():
        tf.keras.backend.clear_session()
        flat = tf.keras.layers.Flatten()
        twice = de.keras.layers.Embedding(oracle.DIM, name="twice", initializer=ONES)
        x = tf.keras.Input((oracle.COLUMNS,), dtype=tf.int64)
        inner = tf.keras.Model(x, flat(de.keras.layers.Embedding(oracle.DIM, name="inner", initializer=ONES)(x)))
        return functional(lambda ids: tf.concat([flat(twice(ids)) + flat(twice(ids)), inner(ids)], axis=1))

    round_trip(make, tmp_path, slots("inner-parameter", "twice-parameter"))


def test_two_models_take_turns(tmp_path):
    """Tables of equal sizes and keys, each with a manager and a directory of its own."""
    models = {}
    tf.keras.backend.clear_session()
    for name in ("one", "two"):
        flat, layer = tf.keras.layers.Flatten(), de.keras.layers.Embedding(oracle.DIM, name=name, initializer=ONES)
        models[name] = functional(lambda ids, flat=flat, layer=layer: flat(layer(ids)))
    managers = {name: tfadaptcp.CheckpointManager(model, tmp_path / name) for name, model in models.items()}
    copies = {}
    for i in range(3):
        for name, model in models.items():
            train(model, 2, first=10 * i + len(name))
            copies[name] = oracle.take(model)
            managers[name].save()
    for name, model in models.items():
        managers[name].wait()
        train(model, 1)
        model.load_adaptcp(tmp_path / name)
        oracle.check(copies[name], model, name)


class Growing(tf.keras.Model):
    """May get another layer when it has been trained already."""

    def __init__(self):
        super().__init__()
        self.early, self.out = Direct("early"), tf.keras.layers.Dense(1, name="out")
        self.late = None
        self(oracle.batch(0)[0])
        self.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adam"]()), "mse")

    def grow(self, params=None):
        self.late = Direct("late", params)
        self(oracle.batch(0)[0])

    def call(self, ids):
        found = self.early(ids)
        return self.out(found if self.late is None else found + self.late(ids))


@pytest.mark.parametrize("what", ["a table", "slots"])
def test_tables_that_came_after_the_manager(what, tmp_path):
    """The checkpoint after they came is complete and has them."""
    def make(grown=False):
        tf.keras.backend.clear_session()
        model = Growing()
        if grown:
            model.grow(None if what == "a table" else model.early.params)
        return model

    model = make()
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=9)
    train(model, 2)
    manager.save()
    manager.wait()
    model.grow(None if what == "a table" else model.early.params)
    copies = {}
    for i in range(2):
        train(model, 2, first=5 + i)
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        manager.wait()
    assert len(copy.tables) == (6 if what == "a table" else 5) and min(copy.rows().values()) > 0
    kinds = [sorted(info.rows) for info in manager.checkpoints]
    assert kinds == [["base"], ["base"], ["base", "increment"]]
    fresh = make(grown=True)
    for name, copy in copies.items():
        fresh.load_adaptcp(tmp_path, name)
        oracle.check(copy, fresh, name)


# ------------------------------------------------------------------ refused


def test_a_table_that_only_the_optimizer_knows(tmp_path):
    tf.keras.backend.clear_session()
    model = functional(Direct("hidden", hold=False))
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    train(model, 1)
    for refused in (manager.save, lambda: tfadaptcp.CheckpointManager(model, tmp_path)):
        with pytest.raises(tfadaptcp.UntrackableTableError, match="slots 'hidden_table/.*m'.*Hold the variable"):
            refused()


class Holder(tf.keras.layers.Layer):
    def __init__(self, held):
        super().__init__(name="holder")
        self.held = held

    def call(self, inputs):
        return tf.cast(inputs, tf.float32)


@pytest.mark.parametrize("make, match", [
    (lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, name="words"),
     "MutableHashTable 'words'"),
    (lambda: tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -2, -3), "DenseHashTable"),
    (lambda: tf.Variable(tf.bitcast(tf.constant([1], tf.int8), tf.qint8), name="quantised"),
     "'quantised.*Received: qint8. Expected: .*float32"),
])
def test_what_no_checkpoint_can_hold(make, match, tmp_path):
    tf.keras.backend.clear_session()
    model = functional(Holder(make()))
    with pytest.raises(tfadaptcp.UnsupportedVariableError, match=match):
        tfadaptcp.CheckpointManager(model, tmp_path)


def test_a_vocabulary_that_was_given_is_part_of_the_code(tmp_path):
    tf.keras.backend.clear_session()
    words = tf.keras.Input((oracle.COLUMNS,), dtype=tf.string)
    ids = tf.keras.layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    embedded = de.keras.layers.Embedding(oracle.DIM, name="words", initializer=ONES)(ids)
    model = tf.keras.Model(words, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(embedded)))
    model.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adam"]()), "mse")
    assert model(tf.constant([["a", "b", "x"]])).shape == [1, 1]
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    rows.write(model, range(3))
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    rows.write(model, range(5))
    model.load_adaptcp(tmp_path)
    oracle.check(copy, model)
    holder = functional(Holder(tf.keras.layers.StringLookup()))  # to be adapted
    with pytest.raises(tfadaptcp.UnsupportedVariableError, match="MutableHashTable.*adapt"):
        tfadaptcp.CheckpointManager(holder, tmp_path)
