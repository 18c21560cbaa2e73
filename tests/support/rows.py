"""Writes to the tables of a model by TFRA's own API, parameters and slots alike."""

import numpy as np
import tensorflow as tf

from tests.support import oracle


def values_of(variable, count, seed, value=None):
    """Rows of a variable's dtype: random bits of every kind a float can have, or one value."""
    random = np.random.default_rng(seed)
    dtype = variable.value_dtype
    shape = (count, int(variable.dim))
    if dtype == tf.string:
        return tf.constant([[f"{a:x}" for a in row] for row in random.integers(0, 1 << 20, shape)])
    if value is not None:
        return tf.cast(np.full(shape, value), dtype)
    if dtype == tf.bool:
        return tf.constant(random.integers(0, 2, shape) == 1)
    bits = random.integers(0, 256, (*shape, dtype.size), dtype=np.uint8)
    return tf.constant(bits.reshape(count, -1).view(dtype.as_numpy_dtype).reshape(shape), dtype)


def keys_of(variable, keys):
    """Whole numbers as keys of the variable."""
    if variable.key_dtype == tf.string:
        return tf.constant([f"key {key}" for key in keys], tf.string)
    return tf.constant(list(keys), variable.key_dtype)


def write(model, keys, value=None, seed=0, tables=slice(None)):
    """Writes rows of all tables, or of those of the slice."""
    keys = list(keys)
    for i, (_, variable) in list(enumerate(oracle.tables_of(model)))[tables]:
        variable.upsert(keys_of(variable, keys), values_of(variable, len(keys), [i, seed, len(keys)], value))


def remove(model, keys, tables=slice(None)):
    """Removes rows from all tables, or from those of the slice."""
    for _, variable in list(oracle.tables_of(model))[tables]:
        variable.remove(keys_of(variable, list(keys)))
