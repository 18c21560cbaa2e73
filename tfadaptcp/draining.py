"""Scheduled steps, under ParameterServerStrategy: waiting for them. Without it steps run in the thread that asks."""

import logging
import time
from typing import Any, Optional

import tensorflow as tf

_log = logging.getLogger("tfadaptcp")
_POLL_SECONDS = 0.002
# Steps on each worker that `fit` is let schedule ahead: plenty, so that no worker waits for the next.
_AHEAD = 10


def uses_parameter_servers(model: tf.keras.Model) -> bool:
    """Whether the model was made under ParameterServerStrategy."""
    return isinstance(model.distribute_strategy, tf.distribute.ParameterServerStrategy)


def costs_much(model: tf.keras.Model, steps: Optional[int]) -> bool:
    """Whether it would to wait for scheduled steps at each cut, as there are some, and so few (None: unknown) between cuts."""
    coordinator = _coordinator(model)
    return (coordinator is not None and steps is not None and steps < 20 * coordinator.strategy.extended._num_workers
            and not coordinator.done())


def hold_back(model: tf.keras.Model, timeout_seconds: float) -> None:
    """Waits while enough steps are scheduled for each worker. Raises what a step raised.

    `fit` by itself schedules up to 262,144 steps within seconds. Each cut would wait for all of them, checkpoints would come
    due while the first was still being written, and one that doesn't wait for steps would be of an early one.

    Args:
        timeout_seconds: after so long without the end of a step the log says that training stands still.
    """
    coordinator = _coordinator(model)
    if coordinator is None:
        return
    enough = _AHEAD * coordinator.strategy.extended._num_workers
    while not _wait(coordinator, timeout_seconds, enough):
        _log.warning("Training stands still: no scheduled step has ended within %g s.", timeout_seconds)


def scheduled(model: tf.keras.Model) -> int:
    """Executions that were scheduled and have not ended."""
    coordinator = _coordinator(model)
    return 0 if coordinator is None else _scheduled(coordinator)


def drain(model: tf.keras.Model, timeout_seconds: float) -> bool:
    """Waits until every scheduled step has ended; False if for so long none does. Raises what a step raised."""
    coordinator = _coordinator(model)
    if coordinator is None:
        return True
    if not _wait(coordinator, timeout_seconds):
        return False
    coordinator.join()  # raises errors of steps; returns at once
    return True


def _wait(coordinator: Any, timeout_seconds: float, most: int = 0) -> bool:
    """Waits until at most so many steps are scheduled; False if for so long none of them ends."""
    least, deadline = None, 0.0
    while not coordinator.done():
        now, there = time.monotonic(), _scheduled(coordinator)
        if there <= most:
            break
        if least is None or there < least:
            least, deadline = there, now + timeout_seconds
        elif now > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _scheduled(coordinator: Any) -> int:
    queue = coordinator._cluster.closure_queue
    with queue._queue_lock:  # a step is moved from one to the other by it
        return queue._queue.qsize() + queue.inflight_closure_count


def _coordinator(model: tf.keras.Model) -> Any:
    if not uses_parameter_servers(model):
        return None
    # The one of the strategy: `fit` and custom loops share it.
    return model.distribute_strategy._cluster_coordinator
