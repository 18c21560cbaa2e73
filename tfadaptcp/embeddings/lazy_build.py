"""Creates the variables of a lazily built model before its first step runs.

A subclassed Keras model makes its variables, and its optimizer the slots, while ``fit`` traces the
first step; under ``ParameterServerStrategy`` the step is on its way to a worker right after. A
restore has to come in between: no step may run on tables that have not been restored. No callback
is called there (``on_train_begin`` comes after ``make_train_function``, before any tracing), so
the model's train function is replaced, for one call, by one that traces, hands over, and runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.coordinator import remote_value
from tensorflow.python.distribute.coordinator import values as coordinator_values


def before_first_step(model: tf.keras.Model, action: Callable[[], None]) -> Callable[[], None]:
    """Arranges for ``action`` to run once the model is built, before a step of it runs.

    To be called from ``on_train_begin``. The first step is traced then, which creates all
    variables of the model and its optimizer; ``action`` is called after that, in the thread of
    ``fit``, outside of any graph, after those arranged for before it; then the step runs, on the very
    function that was traced unless an action has put another one in its place. An error of
    ``action`` ends ``fit``, as it is; only those that Keras takes for the end of the data are
    wrapped in a ``RuntimeError``.

    Args:
      model: a compiled model, built or not.
      action: called without arguments.

    Returns:
      A function that calls it off, for ``on_train_end``: data may be empty, and the wrapper would
      stay in the model. Does nothing once ``action`` has run.
    """
    fit = getattr(model, "history", None)  # a new one with each
    step = model.train_function
    if getattr(step, "fit", fit) is not fit:
        step = model.train_function = step.step  # left by one that ended before its first step
    if step is None:
        raise ValueError(
            f"Model '{model.name}' has no train function. Expected: a call from `on_train_begin`, "
            "which comes after `Model.make_train_function`."
        )

    def first_step(iterator):
        model.train_function = step
        if getattr(model, "history", None) is not fit:
            return step(iterator)
        build_by_tracing(model, iterator)
        try:
            while actions:
                actions.pop(0)()
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            raise RuntimeError(f"Failed before the first step: {error!r}") from error
        return model.train_function(iterator)

    # One wrapper for all actions: one of them may put another function in the place of what it finds.
    actions = getattr(step, "actions", None)
    if actions is None:
        actions = first_step.actions = []
        first_step.fit, first_step.step = fit, step
        model.train_function = first_step
    actions.append(action)

    def cancel() -> None:
        if action in actions:
            actions.remove(action)
        if not actions and model.train_function is first_step:
            model.train_function = step

    return cancel


def build_by_tracing(model: tf.keras.Model, iterator: Any) -> None:
    """Creates all variables of a model and its optimizer; executes no step, takes no data.

    Traces the model's train function as the first call of it does, so that call finds the trace
    and does not repeat it. With ``run_eagerly`` a step is traced for this purpose alone.

    Args:
      model: a compiled model with its train function made. A model that is built already is
        traced all the same.
      iterator: what ``fit`` passes to the train function: a ``tf.data`` iterator, a distributed
        one, or per-worker ones under ``ParameterServerStrategy``.

    Raises:
      ValueError: the train function can't be traced: an overridden ``make_train_function``, or
        eager code in the step. Build such a model before ``fit``.
      Exception: whatever the model's code raises while it is traced.
    """
    with model.distribute_strategy.scope():
        if model.run_eagerly:
            _trace_step(model, iterator)
            return
        function = model.train_tf_function
        if function is None and hasattr(model.train_function, "get_concrete_function"):
            function = model.train_function
        if function is None:
            raise ValueError(
                f"The train function of model '{model.name}' can't be traced. "
                f"Received: {model.train_function!r}. Expected: a `tf.function`, as "
                "`Model.make_train_function` makes it. Build the model before `fit`."
            )
        _trace_scheduled(model, function, iterator)


def _trace_scheduled(model: tf.keras.Model, function: Any, iterator: Any) -> None:
    """Traces as ``ClusterCoordinator.schedule`` or a direct call would."""
    arguments = [_specification(iterator)]
    if len(inspect.signature(function.python_function).parameters) > 1:
        # Under a coordinator, with `steps_per_execution`, the number of steps is an argument.
        arguments.append(model._steps_per_execution.value())
    extended = model.distribute_strategy.extended
    if not hasattr(extended, "_being_scheduled"):
        function.get_concrete_function(*arguments)
        return
    # The strategy warns of a step that is traced otherwise than by its coordinator.
    before = extended._being_scheduled
    extended._being_scheduled = True
    try:
        function.get_concrete_function(*arguments)
    finally:
        extended._being_scheduled = before


def _specification(iterator: Any) -> Any:
    """Stands in for an iterator on a worker; a local iterator stands for itself."""
    if isinstance(iterator, coordinator_values.PerWorkerValues):
        iterator = iterator._values[0]
    if isinstance(iterator, remote_value.RemoteValue):
        return iterator._type_spec
    return iterator


def _trace_step(model: tf.keras.Model, iterator: Any) -> None:
    @tf.function
    def step(data):
        return model.distribute_strategy.run(model.train_step, args=(data,))

    try:
        step.get_concrete_function(iterator.element_spec)
    except (NotImplementedError, AttributeError, tf.errors.OperatorNotAllowedInGraphError) as error:
        raise ValueError(
            f"Model '{model.name}' runs eagerly, and its step can't be traced to build it "
            f"({error}). Build the model before `fit`."
        ) from error
