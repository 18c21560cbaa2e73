"""What hangs on a model, as `tf.train.Checkpoint` finds it. Going through it takes milliseconds, so it is done once."""

from typing import Any, List, Tuple

import tensorflow as tf
from tensorflow.python.checkpoint import graph_view

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
