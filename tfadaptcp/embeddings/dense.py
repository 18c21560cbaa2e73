"""Dense state: the variables that are no tables, and the optimizer's settings that are no variables."""

import collections
import dataclasses
from typing import Any, Dict, List, Optional, Set, Tuple

import tensorflow as tf
from tensorflow.python.distribute.values import DistributedValues
from tensorflow.python.framework import ops

from tfadaptcp.embeddings import optimizers
from tfadaptcp.embeddings.parts import Parts, parts_of
from tfadaptcp.errors import CheckpointMismatchError

STEP = "step"
_SCHEDULE = tf.keras.optimizers.schedules.LearningRateSchedule


@dataclasses.dataclass(frozen=True)
class DenseSlice:
    """A variable, or the part of a partitioned one that this variable is.

    Attributes:
        name: of the whole variable, without ":0".
        shape: of the whole variable.
        offset: where this part begins in it.
    """
    variable: tf.Variable
    name: str
    shape: Tuple[int, ...]
    offset: Tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.variable.dtype.base_dtype.name

    @property
    def device(self) -> str:
        return self.variable.device

    def read(self) -> tf.Tensor:
        """A copy of the value, on the device of the variable."""
        with tf.device(self.variable.device):
            return tf.identity(self.variable.read_value())

    def assign(self, value: tf.Tensor) -> None:
        """Assigns a value of any dtype, cast to that of the variable, there."""
        with tf.device(self.variable.device):
            self.variable.assign(tf.cast(value, self.variable.dtype.base_dtype))


@dataclasses.dataclass(frozen=True)
class Copies:
    """What is dense, as of a cut.

    Attributes:
        tensors: by host, in the order of its slices, and in its memory.
        numbers: see `numbers`; numbers all of them.
    """
    tensors: Dict[int, List[tf.Tensor]]
    numbers: Dict[str, Any]

    @property
    def step(self) -> int:
        """Steps that the optimizer has made; 0 if there is none."""
        return self.numbers.get(STEP, 0)

    def bytes_of(self, host: int) -> int:
        """Of the tensors of a host; strings count as references."""
        return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in self.tensors.get(host, ()))

    @property
    def scalars(self) -> Dict[str, Any]:
        """The optimizer's settings."""
        return {name: number for name, number in self.numbers.items() if name != STEP}


def find(model: tf.keras.Model, optimizer: Any, parts: Parts) -> List[Any]:
    """Returns the variables of model and optimizer, the scratch space of lookups included.

    Beside those that Keras lists: what hangs on the model or the optimizer otherwise, as the state of a
    `tf.random.Generator` does, and the loss scale of a `LossScaleOptimizer`.
    """
    found = list(model.variables) + [item for item, _ in parts.own if isinstance(item, tf.Variable)]
    return (found + optimizers.variables(optimizer) + optimizers.loss_scale(optimizer)
            + [item for _, item in optimizers.hidden(optimizer, parts)])


def slices(variables: List[tf.Variable], optimizer: Any, parts: Parts) -> List[DenseSlice]:
    """Describes variables as slices: of a variable that a strategy's partitioner has cut, and of its slots, each is one.

    Those of the optimizer are named `<optimizer>/...`, whether they were made by its first step, which gives them that
    scope, or before it, without; those that it does not list by the attributes that lead to them. So are variables of a
    model that share a name, as the totals of two metrics do.

    Raises:
        CheckpointMismatchError: two different variables of one name.
    """
    result = []
    scope, scoped = _scope(optimizer)
    shards = _shards(variables)
    hidden = {id(variable): path for path, variable in optimizers.hidden(optimizer, parts)}
    for variable in variables:
        info = getattr(variable, "_save_slice_info", None)
        if id(variable) in hidden:
            shape = tuple(variable.shape.as_list())
            result.append(DenseSlice(variable, scope + hidden[id(variable)], shape, (0,) * len(shape)))
        elif info is not None:
            result.append(DenseSlice(variable, info.full_name.split(":")[0], tuple(map(int, info.full_shape)),
                                     tuple(map(int, info.var_offset))))
        else:
            result.append(_slice(variable, shards))
    result = [dataclasses.replace(item, name=_in_scope(scope, item.name)) if id(item.variable) in scoped else item
              for item in result]
    names = collections.Counter((item.name, item.offset) for item in result)
    shared = {id(item.variable) for item in result if names[item.name, item.offset] > 1}
    if shared:
        paths = {id(item): "/".join(step.name for step in path) for item, path in parts.own}
        result = [dataclasses.replace(item, name=paths[id(item.variable)])
                  if id(item.variable) in shared - scoped and id(item.variable) in paths else item for item in result]
    seen: Dict[Tuple[str, Tuple[int, ...]], DenseSlice] = {}
    for item in result:
        other = seen.setdefault((item.name, item.offset), item)
        if other is not item:
            raise CheckpointMismatchError(
                f"Two variables of the model are named {item.name!r}, of shapes {other.shape} and {item.shape}: "
                "a checkpoint could not tell them apart. Give their layers names.")
    return result


def of_optimizer(items: List[DenseSlice], optimizer: Any, parts: Parts) -> Set[str]:
    """The names of those that belong to the optimizer."""
    ids = {id(variable) for variable in [*optimizers.variables(optimizer), *optimizers.loss_scale(optimizer),
                                         *(item for _, item in optimizers.hidden(optimizer, parts))]}
    return {item.name for item in items if id(item.variable) in ids}


def _shards(variables: List[tf.Variable]) -> List[DenseSlice]:
    """The parts of sharded variables. Those of slots, which have no name of their own, are not among them."""
    found = []
    for variable in variables:
        whole = variable._sharded_container() if hasattr(variable, "_sharded_container") else None
        name = None if whole is None else _name_of(whole)
        if name is None:
            continue
        place = [part is variable for part in whole.variables].index(True)
        offset = (sum(int(part.shape[0]) for part in whole.variables[:place]),) + (0,) * (len(whole.shape) - 1)
        found.append(DenseSlice(variable, name, tuple(whole.shape.as_list()), offset))
    return found


def _name_of(whole: Any) -> Optional[str]:
    """The name of a sharded variable; None if its parts are not named after it."""
    parts = [part.name.split(":")[0] for part in whole.variables]
    name = whole.name.split(":")[0]
    if all(part.startswith(name + "/") for part in parts):
        return name
    # A strategy's partitioner names the parts alone.
    name = parts[0].rpartition("/part_")[0]
    return name if name and parts == [f"{name}/part_{i}" for i in range(len(parts))] else None


def _slice(variable: tf.Variable, shards: List[DenseSlice]) -> DenseSlice:
    name, shape = variable.name.split(":")[0], tuple(variable.shape.as_list())
    # The part itself, or a slot of it, which has its name and form; `tower/emb/part_0` is not a slot of `emb/part_0`.
    for shard in sorted(shards, key=lambda shard: -len(shard.variable.name)):
        part = shard.variable.name.split(":")[0]
        if f"/{part}/" in f"/{name}/" and variable.shape == shard.variable.shape:
            return DenseSlice(variable, f"/{name}/".replace(f"/{part}/", f"/{shard.name}/")[1:-1], shard.shape, shard.offset)
    return DenseSlice(variable, name, shape, (0,) * len(shape))


def handle_of(variable: Any) -> Optional[tf.Tensor]:
    """The resource that holds the value of a variable in a CPU's memory; None if there is more than one, or none there."""
    if isinstance(variable, DistributedValues) or tf.DeviceSpec.from_string(variable.device).device_type != "CPU":
        return None
    handle = getattr(variable, "handle", None)
    return handle if isinstance(handle, ops.EagerTensor) and handle.dtype == tf.resource else None


def numbers(optimizer: Any) -> Dict[str, Any]:
    """What may hold the steps that an optimizer has made, as `STEP`, and the settings that are plain numbers, such as the
    learning rate: values, and variables.

    A learning-rate schedule is code, and follows from the step.
    """
    if optimizer is None:
        return {}
    return {STEP: optimizer.iterations, **_settings(optimizer)}


def _settings(optimizer: Any) -> Dict[str, Any]:
    inner = optimizers.inner(optimizer)
    # New-style optimizers show the rate that it says now.
    return {name: getattr(inner, name, None) for name in _setting_names(optimizer)
            if not isinstance(getattr(inner, "_" + name, None), _SCHEDULE)}


def plain(values: Dict[str, Any]) -> Dict[str, Any]:
    """Those that are numbers, or hold one, as numbers."""
    found = {}
    for name, value in values.items():
        if isinstance(value, tf.Variable) or tf.is_tensor(value):
            value = value.numpy()
        if hasattr(value, "item"):
            value = value.item()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def write_scalars(optimizer: Any, scalars: Dict[str, Any]) -> None:
    """Sets what `plain` returned, as far as this optimizer has it."""
    current = plain(_settings(optimizer))
    for name, value in scalars.items():
        if name in current and current[name] != value:
            setattr(optimizers.inner(optimizer), name, value)


def _scope(optimizer: Any) -> Tuple[str, Set[int]]:
    """Returns the scope of an optimizer's variables and their ids."""
    if optimizer is None:
        return "", set()
    inner = optimizers.inner(optimizer)
    name = getattr(inner, "_name", None) or getattr(inner, "name", "optimizer")
    return name + "/", {id(variable) for variable in parts_of(optimizers.variables(optimizer))}


def _in_scope(scope: str, name: str) -> str:
    """A name in the optimizer's scope, without that of the step that made the variable, such as `cond_1/`."""
    return scope + ("/" + name).split("/" + scope, 1)[-1].removeprefix("/")


def _setting_names(optimizer: Any) -> List[str]:
    optimizer = optimizers.inner(optimizer)
    if optimizer is None:
        return []
    if hasattr(optimizer, "_hyper"):  # legacy optimizers
        return sorted(optimizer._hyper)
    return ["learning_rate"]
