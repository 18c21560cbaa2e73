"""The optimizers of a model: which ones can be checkpointed, and what they consist of."""

from typing import Any, List

import tensorflow as tf

from tfadaptcp.embeddings.parts import OPTIMIZERS, Parts


def check(model: tf.keras.Model, optimizer: Any) -> None:
    """Raises ValueError if state of an optimizer could be lost, or training could not work.

    Args:
        optimizer: that of the model.
    """
    if not isinstance(optimizer, OPTIMIZERS):
        raise ValueError(f"Optimizer of model {model.name!r}: Received: {optimizer!r}. Expected: one Keras optimizer")
    if _has_loss_scale(optimizer) and "_bp_v2" in vars(optimizer):
        raise ValueError(
            "TFRA can't train through a wrapped LossScaleOptimizer. Received: DynamicEmbeddingOptimizer("
            "LossScaleOptimizer(...)). Expected: LossScaleOptimizer(DynamicEmbeddingOptimizer(...))")
    if getattr(optimizer, "jit_compile", False) and isinstance(model.distribute_strategy,
                                                               tf.distribute.ParameterServerStrategy):
        raise ValueError(
            "XLA can't compile updates of TFRA's tables under ParameterServerStrategy. Received: an optimizer with "
            "jit_compile=True. Expected: jit_compile=False.")
    own = {id(optimizer), id(inner(optimizer))}
    others = [item for item in Parts(model).optimizers if id(item) not in own]
    if others:
        names = [getattr(item, "_name", None) or type(item).__name__ for item in others]
        raise ValueError(
            f"Model {model.name!r} has more than one optimizer: slots and steps of the others would be missing in its "
            f"checkpoints. Received: {names} beside {inner(optimizer)._name!r}. Expected: one, or optimizer=False to "
            "checkpoint the weights only")


def inner(optimizer: Any) -> Any:
    """The optimizer that has the slots and the settings."""
    return optimizer.inner_optimizer if _has_loss_scale(optimizer) else optimizer


def variables(optimizer: Any) -> List[tf.Variable]:
    """The variables an optimizer lists, whether that is a method or a property; none without an optimizer."""
    if optimizer is None:
        return []
    found = optimizer.variables
    return list(found() if callable(found) else found)


def loss_scale(optimizer: Any) -> List[tf.Variable]:
    """The variables of a loss scale that changes, which its optimizer doesn't list."""
    if not (_has_loss_scale(optimizer) and optimizer.dynamic):
        return []
    return [optimizer._loss_scale.current_loss_scale, optimizer._loss_scale.counter]


def _has_loss_scale(optimizer: Any) -> bool:
    return isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
