"""The engine of a model: made once, kept in the model, used by its managers and restores."""

import logging
from typing import Any

import tensorflow as tf

from tfadaptcp.embeddings import discovery, optimizers
from tfadaptcp.engine import Engine
from tfadaptcp.errors import UnbuiltModelError
from tfadaptcp.policies.base import Estimation

_log = logging.getLogger("tfadaptcp")

# Where a model keeps its engine, so that whoever saves next goes on from what a restore left in the trackers.
ENGINE = "_tfadaptcp_engine"


def attach(model: tf.keras.Model, optimizer: Any, estimation: Estimation,
           timeout_seconds: float) -> Engine:
    """Returns the engine of a model: the one it has if that tracks the same tables, otherwise a new one.

    Args:
        optimizer: None: the model's. False: none, weights only.
        estimation: what its trackers are to estimate. One that estimates otherwise knows nothing of use: every row
            counts as unsaved then.
        timeout_seconds: how long the hosts may take to say whether they know of the one it has; a third of how long a
            checkpoint that is being written by that may, if it is to be replaced.

    Raises:
        ValueError: trainable tables and no optimizer; see also `optimizers.check`.
        DeadlineError: the hosts, or the checkpoint, did not answer, or end, in time.
        UnbuiltModelError, UntrackableTableError, CheckpointMismatchError, ServerMismatchError: see `Engine`.
    """
    require_built(model)
    if optimizer is None:
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None and discovery.trains_tables(model):
            raise ValueError(
                f"Model {model.name!r} trains embedding tables, and no optimizer was found: its slots would be lost. "
                "Received: optimizer=None and a model that is not compiled. Expected: optimizer=<the optimizer>, or "
                "optimizer=False to checkpoint the weights only.")
    if optimizer is False:
        optimizer = None
    if optimizer is not None:
        optimizers.check(model, optimizer)
    current = getattr(model, ENGINE, None)
    if (current is not None and current.estimation == estimation and current.tracks(model, optimizer)
            and current.is_attached(timeout_seconds)):
        return current
    if current is not None:
        current.wait_for_writer(3 * timeout_seconds)  # whoever takes its tables over ends it
    engine = Engine(model, optimizer, estimation)
    if current is not None:
        if current.estimation != estimation and current.lineage.has_come_from:
            _log.warning("Model %r is tracked by a policy of another decay or estimator than before, which knows nothing of "
                         "how its rows are used: the next checkpoint is complete. To go on from one that was restored, let "
                         "the manager, or the callback, of that policy restore it.", model.name)
        current.detach()  # not before it is known that there can be another
        engine.lineage.follow(current.lineage)
        if current.optimizer is None and optimizer is not None and engine.lineage.has_come_from:
            _log.warning("Model %r was restored without its optimizer, which it has got since: slots and settings are "
                         "new. Tell a CheckpointManager the optimizer, or compile the model, before the restore.",
                         model.name)
    # Around Keras's attribute tracking.
    object.__setattr__(model, ENGINE, engine)
    return engine


def require_built(model: tf.keras.Model) -> None:
    """Raises UnbuiltModelError if the model has no variables yet."""
    if not model.built:
        raise UnbuiltModelError(f"Model {model.name!r} is not built: it has no variables yet. Call it on a batch, or "
                                "build it, first.")
