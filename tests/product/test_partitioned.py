"""A dense variable in parts, and its slots, restore into another number of parts, and whole. (tensorflow#6551)"""

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.golden import models

OPTIMIZERS = {"legacy": lambda: tf.keras.optimizers.legacy.Adam(0.1),
              "new": lambda: tf.keras.optimizers.Adam(0.1, jit_compile=False)}


def build(parts, optimizer):
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(parts)
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="out")(models.Wide(parts)(inputs)))
    model.compile(OPTIMIZERS[optimizer](), "mse")
    return model


def values_of(model):
    """The weight and its two slots, whole."""
    found = {"wide": np.concatenate([part.numpy() for part in model.get_layer("wide").parts])}
    variables = model.optimizer.variables
    for slot in ("m", "v"):
        named = [v for v in (variables() if callable(variables) else variables)]
        flat = {part.name: part for v in named for part in getattr(v, "variables", [v])}
        own = sorted(name for name in flat if "wide" in name and (f"/{slot}:" in name or f"/{slot}/" in f"/{name}"))
        found[slot] = np.concatenate([flat[name].numpy() for name in own])
    assert all(value.shape == (7, 3) for value in found.values()), found
    return found


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("written", [1, 3])
def test_another_number_of_parts(written, optimizer, tmp_path):
    model = build(written, optimizer)
    data = np.random.default_rng(1).normal(size=(16, 2))
    manager = tfadaptcp.CheckpointManager(model, tmp_path, max_to_keep=10)
    expected = {}
    for i in range(2):
        model.train_on_batch(data, data[:, :1])
        expected[manager.save().name] = values_of(model)
        manager.wait()
    assert np.count_nonzero(expected[manager.latest_checkpoint]["m"]) == 21
    for read in {1: (2,), 3: (1, 2, 3)}[written]:
        fresh = build(read, optimizer)
        for name, want in expected.items():
            fresh.load_adaptcp(tmp_path, name)
            found = values_of(fresh)
            for key in want:
                np.testing.assert_array_equal(found[key], want[key], key)
