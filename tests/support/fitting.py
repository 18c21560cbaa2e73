"""Data for `fit` and a callback that copies the model, for tests of training."""

from __future__ import annotations

import tensorflow as tf

from tests.support import oracle


def data(steps: int, first: int = 0) -> tf.data.Dataset:
    """The batches `first` to `first + steps` of the oracle's, in order, of known number."""
    return tf.data.Dataset.from_tensor_slices(
        tuple(tf.stack(part) for part in zip(*(oracle.batch(first + i) for i in range(steps)))))


def unknown(batches: tf.data.Dataset) -> tf.data.Dataset:
    """The same batches, of a number that nobody knows beforehand."""
    return batches.filter(lambda *_: True)


def step_of(model: tf.keras.Model) -> int:
    return int(model.optimizer.iterations.numpy())


class Watch(tf.keras.callbacks.Callback):
    """Copies the model at the ends of batches: to be put before the callback that saves."""

    def __init__(self):
        super().__init__()
        self.at_step: dict[int, oracle.Copy] = {}
        self.losses: list[float] = []

    def on_train_batch_end(self, batch, logs=None):
        self.at_step[step_of(self.model)] = oracle.take(self.model)
        self.losses.append(logs["loss"])


def places(callback) -> list[tuple[int, int, int]]:
    """(step, epoch, batch) of all checkpoints."""
    return [(info.step, info.epoch, info.batch) for info in callback.manager.checkpoints]


def check_heads(callback, watch: Watch, model: tf.keras.Model, directory) -> None:
    """Restores every checkpoint into the model and compares it with the copy of its step."""
    for info in callback.manager.checkpoints:
        model.load_adaptcp(directory, info.name)
        oracle.check(watch.at_step[info.step], model, info.name)
