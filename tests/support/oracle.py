"""What a model holds, copied whole by means of its own, and small models to hold it.

Tests compare copies of a model bit for bit. Nothing here asks tfadaptcp what there is: tables are
found through the layers, slots through the optimizer, rows through TFRA's own export.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

from tests.support import quick_tracing  # noqa: F401

COLUMNS = 3
DIM = 4


@dataclasses.dataclass
class Copy:
    """A model at one moment.

    Attributes:
      tables: {table: {key: (shard, bytes of the row)}}, slots included.
      dense: {variable: (dtype, shape, bytes)}.
      scalars: the optimizer's settings.
    """

    tables: dict[str, dict[Any, tuple[int, bytes]]]
    dense: dict[str, tuple[str, tuple[int, ...], bytes]]
    scalars: dict[str, float]

    def rows(self) -> dict[str, int]:
        return {name: len(table) for name, table in self.tables.items()}


def tables_of(model: tf.keras.Model) -> Iterator[tuple[str, Any]]:
    """Yields every TFRA variable of a model, parameters and slots, by its name in a checkpoint."""
    optimizer = getattr(model, "optimizer", None)
    variables = [] if optimizer is None else optimizer.variables
    variables = list(variables() if callable(variables) else variables)
    shadows: dict[int, tuple[Any, list[Any], list[int]]] = {}
    for layer in model._flatten_layers(include_self=False):
        if hasattr(layer, "shadow"):
            _, places, depths = shadows.setdefault(id(layer.params), (layer.params, [], []))
            places.append(layer.shadow)
            depths.append(getattr(layer, "place", "").count("/"))
    for params, places, depths in shadows.values():
        yield params.name, params
        if params.restrict_policy is not None:
            status = params.restrict_policy.status
            yield f"{params.name}/{status.name.split('/')[-1]}", status
        # Where there are several places their names come between those of the variable and the slot.
        parts = 1 if len(places) == 1 else 2 + max(depths)
        for slot in variables:
            if isinstance(slot, de.TrainableWrapper) and any(slot.ids is shadow.ids for shadow in places):
                yield f"{params.name}/{'/'.join(slot.params.name.split('/')[-parts:])}", slot.params


def take(model: tf.keras.Model) -> Copy:
    """Copies a model that nobody writes to meanwhile."""
    tables = {}
    for name, variable in tables_of(model):
        assert name not in tables, f"two tables are named {name}"
        tables[name] = _rows(variable)
    optimizer = getattr(model, "optimizer", None)
    found = list(model.variables)
    if optimizer is not None:
        found += list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
        scale = getattr(optimizer, "_loss_scale", None)  # of mixed precision; a number if it is fixed
        found += [scale.current_loss_scale, scale.counter] if hasattr(scale, "counter") else []
    dense = {}
    for variable in found:
        # A trained table shows itself as a variable that holds the rows of the last batch.
        if isinstance(variable, de.TrainableWrapper) or "DEResource" in type(variable).__name__:
            continue
        value = variable.numpy()
        # The scope that the optimizer's first step puts around its variables says nothing.
        name = re.sub(f"^(cond(_[0-9]+)?/)?{_scope_of(optimizer)}", "", variable.name)
        if model._is_graph_network:
            assert name not in dense, f"two variables are named {name}"
        while name in dense:  # as the totals of metrics: told apart by their order
            name += "'"
        dense[name] = (str(value.dtype), tuple(value.shape), _bytes(value))
    return Copy(tables, dense, _scalars(optimizer))


def difference(expected: Copy, found: Copy, shards: bool = True) -> str | None:
    """Names the first thing that differs, table and key; None if the copies are equal to the bit.

    Args:
      shards: whether a row in another shard counts as a difference.
    """
    if expected.tables.keys() != found.tables.keys():
        return f"tables {sorted(found.tables)}, expected {sorted(expected.tables)}"
    for name in sorted(expected.tables):
        want, have = expected.tables[name], found.tables[name]
        for key in sorted(want.keys() | have.keys()):
            if key not in have:
                return f"table {name}, key {key!r}: the row is missing"
            if key not in want:
                return f"table {name}, key {key!r}: there is a row, expected none"
            if want[key][1] != have[key][1]:
                return f"table {name}, key {key!r}: {have[key][1].hex()}, expected {want[key][1].hex()}"
            if shards and want[key][0] != have[key][0]:
                return f"table {name}, key {key!r}: in shard {have[key][0]}, expected {want[key][0]}"
    if expected.dense.keys() != found.dense.keys():
        return f"dense variables {sorted(found.dense)}, expected {sorted(expected.dense)}"
    for name in sorted(expected.dense):
        if expected.dense[name] != found.dense[name]:
            return f"dense variable {name}: {found.dense[name]}, expected {expected.dense[name]}"
    if expected.scalars != found.scalars:
        return f"settings {found.scalars}, expected {expected.scalars}"
    return None


def check(expected: Copy, model: tf.keras.Model, what: str = "", shards: bool = True) -> None:
    """Asserts that a model is what it was when `expected` was taken."""
    differs = difference(expected, take(model), shards)
    assert differs is None, f"{what}: {differs}"


def check_placement(model: tf.keras.Model) -> None:
    """Asserts that every row is in the shard where a lookup searches for it, and in no other."""
    for name, variable in tables_of(model):
        for key, (shard, _) in _rows(variable).items():
            expected = int(variable.partition_fn(tf.constant([key], variable.key_dtype), variable.shard_num)[0])
            assert shard == expected, f"table {name}, key {key!r}: in shard {shard}, looked up in {expected}"


def _rows(variable: Any) -> dict[Any, tuple[int, bytes]]:
    rows: dict[Any, tuple[int, bytes]] = {}
    for shard, table in enumerate(variable.tables):
        keys, values = (tensor.numpy() for tensor in table.export())
        # TFRA's count of a table drifts upwards under concurrent inserts and removals; its export has that many rows,
        # and the last ones are whatever was in memory there. What a lookup finds, once, is what is in the table.
        there = table.lookup(tf.constant(keys, variable.key_dtype), return_exists=True)[1].numpy() if len(keys) else []
        seen = set()
        for key, value, exists in zip(keys.tolist(), values, there):
            if not exists or key in seen:
                continue
            seen.add(key)
            assert key not in rows, f"{variable.name}: key {key!r} is in two shards"
            rows[key] = (shard, _bytes(value))
    return rows


def _scope_of(optimizer: Any) -> str:
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return (getattr(optimizer, "_name", None) or getattr(optimizer, "name", "")) + "/"


def _bytes(value: np.ndarray) -> bytes:
    return b"\0".join(value.ravel().tolist()) if value.dtype == object else value.tobytes()


def _scalars(optimizer: Any) -> dict[str, float]:
    found = {}
    for name in ("learning_rate", "beta_1", "beta_2", "momentum", "decay"):
        value = getattr(optimizer, name, None)
        if hasattr(value, "numpy"):
            value = value.numpy()
        if value is not None and not callable(value):
            found[name] = float(value)
    return found


# --------------------------------------------------------------------------- models

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: tf.keras.optimizers.legacy.Adam(0.02),
    "adagrad": lambda: tf.keras.optimizers.legacy.Adagrad(0.1),
    "sgd": lambda: tf.keras.optimizers.legacy.SGD(0.1),
    "momentum": lambda: tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9),
    "new_adam": lambda: tf.keras.optimizers.Adam(0.02, jit_compile=False),
}


def build(optimizer: str | None = "adam", tables: int = 1, devices: Sequence[str] | None = None, dim: int = DIM,
          seed: int = 5, names: Sequence[str] = (), clear: bool = True, **layer: Any) -> tf.keras.Model:
    """A compiled model whose columns of ids go to embedding layers in turn; the old session is cleared.

    Args:
      optimizer: a key of `OPTIMIZERS`; None: not compiled.
      tables: embedding layers; 0: a dense model.
      names: of the layers, "emb0" and so on if not given.
      clear: False in the scope of a strategy, where sessions can't be cleared.
      layer: further arguments of the embedding layers.
    """
    if clear:
        tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(seed)
    ids = tf.keras.Input((COLUMNS,), dtype=layer.get("key_dtype", tf.int64), name="ids")
    rows = []
    for i in range(tables):
        options = {"initializer": tf.keras.initializers.RandomNormal(0.0, 0.1, seed=seed + i), **layer}
        embedding = de.keras.layers.Embedding(dim + i, devices=devices, name=names[i] if names else f"emb{i}",
                                              **options)
        rows.append(tf.keras.layers.Flatten(name=f"flat{i}")(embedding(ids)))
    if not rows:
        rows = [tf.keras.layers.Lambda(lambda x: tf.cast(x, tf.float32) / 50, name="cast")(ids)]
    joined = tf.keras.layers.Concatenate(name="join")(rows) if len(rows) > 1 else rows[0]
    hidden = tf.keras.layers.Dense(3, activation="tanh", name="hidden")(joined)
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1, name="out")(hidden))
    if optimizer is not None:
        wrapped = de.DynamicEmbeddingOptimizer(OPTIMIZERS[optimizer]())
        model.compile(wrapped, "mse")
    return model


def layer_of(model: tf.keras.Model, i: int = 0) -> Any:
    """The i-th embedding layer."""
    return [layer for layer in model.layers if hasattr(layer, "shadow")][i]


def batch(step: int, keys: int = 200, size: int = 24, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """(ids, labels) of a step: few keys come often, as in real data, most rarely."""
    random = np.random.default_rng([seed, step])
    ids = (random.random((size, COLUMNS)) ** 3 * keys).astype(np.int64)
    return tf.constant(ids), tf.constant((ids[:, :1] % 2).astype(np.float32))


class Trainer:
    """Steps of a model by a traced function; counts them itself."""

    def __init__(self, model: tf.keras.Model, first: int = 0):
        self.model, self.step = model, first
        loss = tf.keras.losses.MeanSquaredError()

        @tf.function(reduce_retracing=True, autograph=False)
        def run(ids, labels):
            with tf.GradientTape() as tape:
                value = loss(labels, model(ids, training=True))
            variables = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
            return value

        self._run = run

    def train(self, steps: int) -> list[float]:
        """Returns the loss of each step."""
        losses = []
        for _ in range(steps):
            losses.append(float(self._run(*batch(self.step))))
            self.step += 1
        return losses
