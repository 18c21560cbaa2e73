"""Jobs that learn something: MovieLens-100k, and clicks in the manner of Criteo's logs with a model hidden behind them.

All rows are there before the first step, of stateless initial values, so that the same job twice is the same to the bit.
"""

import dataclasses
import pathlib
from typing import Dict

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

# Criteo's logs have 13 counts and 26 categories, with very different numbers of values.
COUNTS, CATEGORIES = 13, 26
Arrays = Dict[str, np.ndarray]


@dataclasses.dataclass
class Job:
    """Data and a model that is compiled with legacy Adam.

    Attributes:
        model: takes {"ids": int64 [batch, columns], "dense": float32 [batch, n]}.
        loss: mean loss of (labels, outputs), both [batch, 1].
        train: "ids", "dense", "labels" of the examples, in the order in which they are trained on.
        held_out: the same, of examples that are not.
        batch: examples of a step.
    """
    model: tf.keras.Model
    loss: tf.keras.losses.Loss
    train: Arrays
    held_out: Arrays
    batch: int

    @property
    def steps(self) -> int:
        return len(self.train["labels"]) // self.batch


def movielens(folder: pathlib.Path, epochs: int = 3, batch: int = 256, dim: int = 32, seed: int = 1) -> Job:
    """Predicts ratings from user, item and age of the rating; every tenth rating, chosen at random, is held out."""
    with open(folder / "ml-100k.inter", encoding="utf-8") as file:
        rows = np.array([[float(field) for field in line.split("\t")] for line in list(file)[1:]])
    rows = rows[np.argsort(rows[:, 3], kind="stable")]
    age = (rows[:, 3:] - rows[0, 3]) / (rows[-1, 3] - rows[0, 3])
    every = {"ids": np.stack([rows[:, 0], (1 << 40) + rows[:, 1]], axis=1).astype(np.int64),
             "dense": age.astype(np.float32), "labels": rows[:, 2:3].astype(np.float32)}
    held = np.random.default_rng(seed).random(len(rows)) < 0.1
    order = np.concatenate([np.random.default_rng([seed, epoch]).permutation(np.flatnonzero(~held))
                            for epoch in range(epochs)])
    loss = tf.keras.losses.MeanSquaredError()
    model = _model(2, 1, dim, np.unique(every["ids"]), activation=None, bias=3.5, rate=2e-3, seed=seed)
    return Job(model, loss, _take(every, order), _take(every, np.flatnonzero(held)), batch)


def clicks(steps: int = 800, rows: int = 100_000, batch: int = 512, dim: int = 16, seed: int = 1) -> Job:
    """Predicts clicks drawn from a hidden model: a weight for each category, products of latent vectors, and the counts.

    Categories have from 4 to some ten thousand values, `rows` altogether in one key space; few values are frequent, as
    P(rank) ~ 1 / (rank + 2)^1.1.
    """
    random = np.random.default_rng(seed)
    share = np.geomspace(1, 4000, CATEGORIES)
    sizes = np.maximum(4, (share / share.sum() * rows).astype(int))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    number = steps * batch + 40_000
    ids = np.empty((number, CATEGORIES), np.int64)
    for column, (start, size) in enumerate(zip(starts, sizes)):
        weights = np.cumsum((np.arange(size) + 2.0) ** -1.1)
        ids[:, column] = start + np.searchsorted(weights, random.random(number) * weights[-1])
    dense = np.log1p(random.exponential(3.0, (number, COUNTS))).astype(np.float32)
    weight, latent = random.normal(0, 0.25, sizes.sum()), random.normal(0, 0.35, (sizes.sum(), 4))
    score = weight[ids].sum(1) + (dense - dense.mean(0)) @ random.normal(0, 0.1, COUNTS) - 1.2
    for left in range(0, CATEGORIES, 2):
        score += (latent[ids[:, left]] * latent[ids[:, left + 1]]).sum(1)
    labels = (random.random(number) < 1 / (1 + np.exp(-score))).astype(np.float32)[:, None]
    every = {"ids": ids, "dense": dense, "labels": labels}
    model = _model(CATEGORIES, COUNTS, dim, np.arange(sizes.sum()), activation="sigmoid", bias=-1.0, rate=1e-3, seed=seed)
    cut = steps * batch
    return Job(model, tf.keras.losses.BinaryCrossentropy(), _take(every, slice(0, cut)), _take(every, slice(cut, None)), batch)


def _take(arrays: Arrays, chosen) -> Arrays:
    return {name: array[chosen] for name, array in arrays.items()}


def _model(columns: int, dense: int, dim: int, keys: np.ndarray, activation, bias: float, rate: float,
           seed: int) -> tf.keras.Model:
    """DLRM in small: rows, their products in pairs, the dense features, and two layers."""
    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    ids = tf.keras.Input((columns,), dtype=tf.int64, name="ids")
    features = tf.keras.Input((dense,), name="dense")
    table = de.keras.layers.Embedding(dim, name="table", init_capacity=2 * len(keys))
    rows = table(ids)
    products = layers.Flatten()(layers.Dot(axes=2)([rows, rows]))
    joined = layers.Concatenate()([layers.Flatten()(rows), products, features])
    hidden = layers.Dense(32, "relu", name="second")(layers.Dense(64, "relu", name="first")(joined))
    out = layers.Dense(1, activation, bias_initializer=tf.keras.initializers.Constant(bias), name="out")(hidden)
    model = tf.keras.Model({"ids": ids, "dense": features}, out)
    model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(rate)))
    model.optimizer._create_all_weights(model.trainable_variables)
    for part in np.array_split(keys, max(1, len(keys) // 50_000)):
        table.params.upsert(tf.constant(part), tf.random.stateless_normal([len(part), dim], [seed, int(part[0] % 2**31)],
                                                                          stddev=0.05))
    return model


def mean_loss(job: Job, arrays: Arrays, batch: int = 4096) -> float:
    """Loss of all examples."""
    outputs = []
    for start in range(0, len(arrays["labels"]), batch):
        some = {name: tf.constant(arrays[name][start:start + batch]) for name in ("ids", "dense")}
        outputs.append(job.model(some, training=False).numpy())
    return float(job.loss(arrays["labels"], np.concatenate(outputs)))
