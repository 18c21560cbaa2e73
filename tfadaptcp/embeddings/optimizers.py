"""The optimizers of a model: which ones can be checkpointed, and what they consist of."""

from typing import Any, List, Tuple

import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable
from tensorflow_recommenders_addons import dynamic_embedding as de
from tf_keras.src.optimizers.legacy import optimizer_v2

from tfadaptcp.embeddings.parts import OPTIMIZERS, Parts, parts_of

# Attributes in which TensorFlow notes what it finds in the others.
_OF_TRACKING = ("_self_", "_coalesced_children")


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
    # A legacy one that hands variables to others tracks none of them.
    others = [item for item in [*Parts(model).optimizers, *_held(inner(optimizer))] if id(item) not in own]
    if others:
        names = [getattr(item, "_name", None) or type(item).__name__ for item in others]
        raise ValueError(
            f"Model {model.name!r} has more than one optimizer: slots and steps of the others would be missing in its "
            f"checkpoints. Received: {names} beside {inner(optimizer)._name!r}. Expected: one, or optimizer=False to "
            "checkpoint the weights only")


def _held(optimizer: Any) -> List[Any]:
    """The optimizers that one holds in its attributes."""
    found, left, seen = [], list(vars(optimizer).values()), {id(optimizer)}
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, OPTIMIZERS):
            found.append(item)
        left += [held for _, held in _below(item)]
    return found


def inner(optimizer: Any) -> Any:
    """The optimizer that has the slots and the settings."""
    return optimizer.inner_optimizer if _has_loss_scale(optimizer) else optimizer


def variables(optimizer: Any) -> List[tf.Variable]:
    """The variables an optimizer lists, whether that is a method or a property; none without an optimizer."""
    if optimizer is None:
        return []
    found = optimizer.variables
    return list(found() if callable(found) else found)


def hidden(optimizer: Any, parts: Parts) -> List[Tuple[str, tf.Variable]]:
    """The variables that an optimizer holds in its attributes, and which neither it nor the model lists.

    As new Nadam's product of its decays, a step that several optimizers share, or accumulators of gradients. Returned with
    the attributes, keys and indices that lead to them. Settings, such as the learning rate, are not among them: they are
    kept as numbers.
    """
    if optimizer is None:
        return []
    settings = [*getattr(inner(optimizer), "_hyper", {}).values(),
                *(getattr(inner(optimizer), name, None) for name in ("_learning_rate", "_current_learning_rate"))]
    seen = {id(item) for item in parts_of([*variables(optimizer), *loss_scale(optimizer), *settings,
                                           *(own for own, _ in parts.own)])}
    found: List[Tuple[str, tf.Variable]] = []

    def look_at(path: str, item: Any) -> None:
        if id(item) in seen:
            return
        seen.add(id(item))
        if isinstance(item, tf.Variable):
            if not isinstance(item, de.TrainableWrapper):
                found.append((path, item))
            return
        for name, held in _below(item):
            look_at(f"{path}/{name}", held)

    for name, held in sorted(vars(inner(optimizer)).items()):
        if not name.startswith(_OF_TRACKING):
            look_at(name, held)
    return found


def _below(item: Any) -> List[Tuple[Any, Any]]:
    """What something holds, with its names, if it is made to hold variables."""
    if isinstance(item, ShardedVariable):
        return list(enumerate(item.variables))
    if isinstance(item, dict):
        return list(item.items())
    if isinstance(item, (list, tuple)):
        return list(enumerate(item))
    if isinstance(item, tf.Module) and not isinstance(item, (tf.keras.layers.Layer, *OPTIMIZERS)):
        return list(vars(item).items())
    return []


def trained(optimizer: Any) -> List[str]:
    """The keys of the variables that an optimizer has trained, as far as it remembers; tables may be missing."""
    if optimizer is None:
        return []
    slots = getattr(inner(optimizer), "_slots", None)
    if slots is None:
        return list(getattr(inner(optimizer), "_index_dict", ()))
    return [key for key, named in slots.items()
            if not any(isinstance(slot, de.TrainableWrapper) for slot in named.values())]


def keys_of(optimizer: Any, variable: Any) -> List[str]:
    """By which an optimizer may know a variable, or the sharded one that it is a part of."""
    key = getattr(inner(optimizer), "_var_key", optimizer_v2._var_key)
    whole = variable._sharded_container() if hasattr(variable, "_sharded_container") else None
    return [key(item) for item in (variable, whole) if item is not None]


def loss_scale(optimizer: Any) -> List[tf.Variable]:
    """The variables of a loss scale that changes, which its optimizer doesn't list."""
    if not (_has_loss_scale(optimizer) and optimizer.dynamic):
        return []
    return [optimizer._loss_scale.current_loss_scale, optimizer._loss_scale.counter]


def _has_loss_scale(optimizer: Any) -> bool:
    return isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
