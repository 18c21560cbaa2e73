"""The losses after a restore are those of the run that nothing interrupted, to the bit.

(torchrec#2474, tensorflow#33424, tensorflow#44518)
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import oracle
from tests.support.fitting import data, step_of
from tests.support.jobs import ROOT

keras = tf.keras


def decaying(start):
    return keras.optimizers.schedules.ExponentialDecay(start, 3, 0.7)


OPTIMIZERS = {
    "legacy adam": lambda: keras.optimizers.legacy.Adam(0.02, amsgrad=True),
    "legacy adam, schedule": lambda: keras.optimizers.legacy.Adam(decaying(0.05)),
    "legacy adagrad": lambda: keras.optimizers.legacy.Adagrad(0.1),
    "legacy ftrl": lambda: keras.optimizers.legacy.Ftrl(0.1),
    "legacy momentum": lambda: keras.optimizers.legacy.SGD(0.05, momentum=0.9, nesterov=True, decay=0.1),
    "adam": lambda: keras.optimizers.Adam(0.02, jit_compile=False),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1, jit_compile=False),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, jit_compile=False),
    "momentum, schedule": lambda: keras.optimizers.SGD(decaying(0.05), momentum=0.9, jit_compile=False),
}


def build(optimizer, seed):
    # Rows that are new would be drawn at random otherwise.
    model = oracle.build(None, seed=seed, initializer=keras.initializers.Constant(0.1))
    model.optimizer = de.DynamicEmbeddingOptimizer(OPTIMIZERS[optimizer]())
    return model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_of_a_fresh_model(optimizer, tmp_path):
    model = build(optimizer, 5)
    trainer = oracle.Trainer(model)
    trainer.train(5)
    scheduled = "schedule" in optimizer
    if not scheduled:
        model.optimizer.learning_rate = 0.0123
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    manager.save()
    trainer.train(3)
    manager.save()
    expected = trainer.train(6)
    manager.wait()
    after = oracle.take(model) if not scheduled else None

    fresh = build(optimizer, 11)
    report = fresh.load_adaptcp(tmp_path)
    assert report.step == 8 == step_of(fresh)
    if not scheduled:
        assert float(fresh.optimizer.learning_rate) == np.float32(0.0123)
    assert oracle.Trainer(fresh, 8).train(6) == expected
    if after is not None:
        oracle.check(after, fresh)


class Losses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append(logs["loss"])


def epochs(directory, first, last):
    """The losses of the batches of some epochs, in this process; each run begins where the directory ends."""
    keras.utils.set_random_seed(5)
    model = oracle.build(tables=2, seed=5 + first, initializer=keras.initializers.Constant(0.1))
    losses = Losses()
    callback = tfadaptcp.AdaptCPCallback(directory, 4, restore=True, on_failure="stop")
    model.fit(data(6), epochs=last, initial_epoch=first, verbose=0, callbacks=[callback, losses])
    assert (callback.report is None) == (first == 0)
    return losses.found


def test_losses_of_fit_in_a_fresh_process(tmp_path):
    expected = epochs(tmp_path / "whole", 0, 3)
    found = []
    for first, last in ((0, 2), (2, 3)):
        code = (f"import json; from tests.product import test_fidelity as t; "
                f"print('LOSSES', json.dumps(t.epochs({str(tmp_path / 'parts')!r}, {first}, {last})))")
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200,
                              check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found += json.loads(done.stdout.split("LOSSES ")[1])
    assert found == expected and len(set(expected)) > 10
