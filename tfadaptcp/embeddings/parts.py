"""What hangs on a model, as `tf.train.Checkpoint` finds it. Going through it takes milliseconds, so it is done once."""

from typing import Any, Iterable, List, Tuple

import tensorflow as tf
from tensorflow.python.checkpoint import graph_view
from tensorflow.python.distribute.sharded_variable import ShardedVariable

OPTIMIZERS = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)


class Parts:
    """The objects that a model holds at one moment.

    Attributes:
        own: those of the model itself, each with the steps (`.name`, `.ref`) that lead to it.
        optimizers: the optimizers it holds; what they hold is not among `own`.
    """

    def __init__(self, model: tf.keras.Model):
        items, paths = graph_view.ObjectGraphView(model).breadth_first_traversal()
        self.optimizers: List[Any] = [item for item in items if isinstance(item, OPTIMIZERS)]
        self.own: List[Tuple[Any, Tuple[Any, ...]]] = [
            (item, paths[item]) for item in items if not any(isinstance(step.ref, OPTIMIZERS) for step in paths[item])]


def parts_of(variables: Iterable[Any]) -> List[tf.Variable]:
    """Variables, each once, with the parts of sharded ones in their place."""
    unique = {id(part): part for variable in variables
              for part in (variable.variables if isinstance(variable, ShardedVariable) else [variable])}
    return list(unique.values())
