"""The models whose checkpoints are kept in tests/golden/, built anew by make.py and by the tests that read them."""

import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de
from tensorflow.python.distribute import sharded_variable

from tests.support import oracle

# (keys, values) of the tables of `types`.
TYPES = (("string", "int64"), ("int32", "float64"), ("int64", "string"), ("int64", "bfloat16"), ("int64", "float16"),
         ("int64", "int8"), ("string", "float32"))


class Holder(tf.keras.layers.Layer):
    """Holds a table of any type without training it, where `oracle.tables_of` looks for it."""

    def __init__(self, key_dtype, value_dtype, shards):
        name = f"{key_dtype}_{value_dtype}"
        super().__init__(name=name)
        self.params = de.get_variable(name, key_dtype=tf.as_dtype(key_dtype), value_dtype=tf.as_dtype(value_dtype), dim=2,
                                      trainable=False, devices=["/CPU:0"] * shards,
                                      initializer="" if value_dtype == "string" else 0)
        self.shadow = self.params

    def call(self, inputs):
        return inputs


class Wide(tf.keras.layers.Layer):
    """Multiplies by the mean of a weight of [7, 3] that is cut into parts, as a partitioner of a strategy cuts it."""

    def __init__(self, parts):
        super().__init__(name="wide")
        whole = tf.random.stateless_normal([7, 3], [parts, 5])
        rows = [7 * (i + 1) // parts - 7 * i // parts for i in range(parts)]
        self.parts = [tf.Variable(part, name=f"wide/part_{i}" if parts > 1 else "wide")
                      for i, part in enumerate(tf.split(whole, rows))]
        if parts > 1:
            # Says of each which part it is. Not tracked by Keras, which has the parts already.
            object.__setattr__(self, "whole", sharded_variable.ShardedVariable(self.parts, name="wide"))

    def call(self, inputs):
        return inputs * tf.reduce_mean(tf.concat(self.parts, 0))


def types(shards=1, seed=5, parts=3):
    """Tables of every kind of key and value, a dense variable in parts, and no optimizer."""
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(seed)
    inputs = outputs = tf.keras.Input((1,), name="x")
    for key_dtype, value_dtype in TYPES:
        outputs = Holder(key_dtype, value_dtype, shards)(outputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="out")(Wide(parts)(outputs)))


def adaptive(shards=2, seed=5):
    return oracle.build("adam", tables=2, devices=["/CPU:0"] * shards, dim=2, seed=seed, names=["users", "items"])


def renewed(shards=1, seed=5):
    return oracle.build("momentum", tables=1, devices=["/CPU:0"] * shards, dim=3, seed=seed)


def two_ps(shards=2, seed=5, devices=None):
    return oracle.build("adagrad", tables=2, devices=devices or ["/CPU:0"] * shards, dim=2, seed=seed)


def quantized(shards=1, seed=5):
    return oracle.build("momentum", tables=1, devices=["/CPU:0"] * shards, dim=6, seed=seed)


MODELS = {"types": types, "adaptive": adaptive, "renewed": renewed, "two_ps": two_ps, "quantized": quantized}
