"""Which keys a batch accesses: Zipf's law, with the exponent at which 0.1 % of the keys take 90 % of the accesses."""

import functools
from typing import Any

HOT_KEYS, HOT_ACCESSES = 0.001, 0.9
# A prime: multiplying by it scatters ranks over any space of keys that is no multiple of it.
SCATTER = 2654435761


def share(exponent: float, keys: int, first: float) -> float:
    """The share of the accesses that the first `first` (a fraction) of the ranks take, as they are drawn."""
    a = 1 - exponent
    return ((first * keys + 1) ** a - 1) / ((keys + 1.0) ** a - 1)


def exponent(keys: int) -> float:
    """The exponent for a space of that many keys, by bisection."""
    low, high = 1.01, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle, keys, HOT_KEYS) < HOT_ACCESSES else (low, middle)
    return high


def key_of(rank: Any, keys: int) -> Any:
    """The key of a rank, int64; the most frequent is 0. Works on tensors and arrays."""
    return rank * SCATTER % keys


@functools.lru_cache(maxsize=None)
def distinct(accesses: int, keys: int) -> float:
    """How many keys so many accesses meet, on average."""
    import numpy
    ends = share(exponent(keys), keys, numpy.arange(keys + 1) / keys)
    return float((1 - (1 - numpy.diff(ends)) ** accesses).sum())


def draw(shape: Any, seed: Any, keys: int) -> Any:
    """A tensor of keys, the same for the same seed (int32, of a step) on any host."""
    import tensorflow as tf
    a = 1 - exponent(keys)
    u = tf.random.stateless_uniform(shape, [seed, 0], dtype=tf.float64)
    ranks = (u * ((keys + 1.0) ** a - 1) + 1) ** (1 / a) - 1
    return key_of(tf.cast(tf.minimum(ranks, keys - 1.0), tf.int64), keys)
