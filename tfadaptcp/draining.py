"""Waiting for scheduled steps, under ParameterServerStrategy. Without it steps run in the thread that asks."""

import time
from typing import Optional

import tensorflow as tf

_POLL_SECONDS = 0.002


def has_coordinator(model: tf.keras.Model) -> bool:
    """Whether the model's steps are scheduled on workers."""
    return _coordinator(model) is not None


def uses_parameter_servers(model: tf.keras.Model) -> bool:
    """Whether the model was made under ParameterServerStrategy."""
    return isinstance(model.distribute_strategy, tf.distribute.ParameterServerStrategy)


def costs_much(model: tf.keras.Model, steps: Optional[int]) -> bool:
    """Whether it would to wait for scheduled steps at each cut, as there are some, and so few (None: unknown) between cuts."""
    coordinator = _coordinator(model)
    return (coordinator is not None and steps is not None and steps < 20 * coordinator.strategy.extended._num_workers
            and not coordinator.done())


def drain(model: tf.keras.Model, timeout_seconds: float) -> bool:
    """Waits until every scheduled step has ended; False if that takes longer. Raises what a step raised."""
    coordinator = _coordinator(model)
    if coordinator is None:
        return True
    deadline = time.monotonic() + timeout_seconds
    while not coordinator.done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    coordinator.join()  # raises errors of steps; returns at once
    return True


def _coordinator(model: tf.keras.Model):
    if not uses_parameter_servers(model):
        return None
    # The one of the strategy: `fit` and custom loops share it.
    return model.distribute_strategy._cluster_coordinator
