"""A small recommendation model over TFRA embeddings, its data, and what its tables hold."""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

from tests.support import quick_tracing  # noqa: F401

KEYS = 4000
DIM = 8
COLUMNS = 4


def row_values(keys: np.ndarray, dim: int = DIM) -> np.ndarray:
    """The known row of each key: no two components of two rows are alike."""
    return (keys[:, None] * dim + np.arange(dim)).astype(np.float32) / 1024 + 1


def fill(layer, keys: int = KEYS) -> None:
    """Writes the known row of every key."""
    all_keys = np.arange(keys)
    layer.params.upsert(tf.constant(all_keys, tf.int64), row_values(all_keys))


def wrong_rows(layer, keys: int = KEYS) -> int:
    """How many of the keys do not have their known row any more."""
    all_keys = np.arange(keys)
    found, exists = layer.params.lookup(tf.constant(all_keys, tf.int64), return_exists=True)
    same = np.all(found.numpy() == row_values(all_keys), axis=1) & exists.numpy()
    return int(keys - same.sum())


def embedding(name: str, devices=None, **kwargs):
    return de.keras.layers.Embedding(
        DIM,
        devices=devices,
        name=name,
        initializer=tf.keras.initializers.Constant(-1.0),
        **kwargs,
    )


def ps_devices(num_ps: int) -> list[str]:
    return [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(num_ps)]


def functional_model(layers) -> tf.keras.Model:
    """A dense head on one or several embedding layers, all fed with the same ids."""
    ids = tf.keras.Input((COLUMNS,), dtype=tf.int64)
    rows = [layer(ids) for layer in layers]
    joined = tf.keras.layers.Concatenate()(rows) if len(rows) > 1 else rows[0]
    out = tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(joined))
    return tf.keras.Model(ids, out)


def adam(learning_rate: float, bp_v2: bool = False):
    return de.DynamicEmbeddingOptimizer(
        tf.keras.optimizers.legacy.Adam(learning_rate), bp_v2=bp_v2
    )


def batches(batch_size: int = 128, seed: int = 1, varying: bool = False) -> tf.data.Dataset:
    """Endless (ids, labels), many ids twice, made by TensorFlow alone as remote workers need.

    Every worker gets the same stream: that gives the most overlap. ``varying``: the number of
    rows changes from batch to batch. The number of distinct ids always does.
    """

    def make(step):
        size = batch_size
        if varying:
            size = tf.random.stateless_uniform([], [seed + 1, step], 1, batch_size, tf.int64)
        shape = tf.stack([size, COLUMNS])
        uniform = tf.random.stateless_uniform(shape, [seed, step])
        ids = tf.cast(uniform * uniform * KEYS, tf.int64)
        return tf.ensure_shape(ids, [None, COLUMNS]), tf.cast(ids[:, :1] % 2, tf.float32)

    return tf.data.Dataset.range(1 << 40).map(make)
