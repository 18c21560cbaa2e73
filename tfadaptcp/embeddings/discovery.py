"""Finds what a checkpoint of a model has to hold: groups of tables, and dense variables."""

import dataclasses
from typing import Any, Dict, List, Tuple

import tensorflow as tf
from tensorflow.python.checkpoint import graph_view
from tensorflow_recommenders_addons import dynamic_embedding as de
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import dynamic_embedding_variable
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import shadow_embedding_ops

from tfadaptcp.embeddings import dense
from tfadaptcp.errors import CheckpointMismatchError, UntrackableTableError

_OPTIMIZERS = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)


@dataclasses.dataclass(frozen=True)
class Table:
    """A TFRA variable, one table per shard, by the name it has in a checkpoint."""
    name: str
    variable: Any

    @property
    def dtype(self) -> str:
        return self.variable.value_dtype.name

    @property
    def dim(self) -> int:
        return int(self.variable.dim)


@dataclasses.dataclass(frozen=True)
class Group:
    """An embedding variable with its optimizer slots and the status of its restrict policy: same keys, same shards."""
    name: str
    tables: Tuple[Table, ...]

    @property
    def variable(self) -> Any:
        return self.tables[0].variable

    @property
    def key_dtype(self) -> str:
        return self.variable.key_dtype.name

    @property
    def num_shards(self) -> int:
        return self.variable.shard_num

    @property
    def partition(self) -> str:
        """The name of the function that places keys in shards."""
        function = self.variable.partition_fn
        if function is not dynamic_embedding_variable.default_partition_fn:
            return "custom:" + getattr(function, "__qualname__", type(function).__qualname__)
        if self.variable.key_dtype == tf.string:
            return "hash_bucket"
        # TFRA masks int64 keys to 31 bits in builds of TensorFlow that know CUDA.
        if self.variable.key_dtype == tf.int64 and tf.test.is_built_with_cuda():
            return "mask31"
        return "floormod"

    @property
    def devices(self) -> List[str]:
        """Per shard, the full name of the device its tables are on."""
        return [table.resource_handle.device for table in self.variable.tables]


def find_groups(model: tf.keras.Model, optimizer: Any) -> List[Group]:
    """Returns the groups of a built model, in the order of their names; without slots if `optimizer` is None.

    Raises:
        UntrackableTableError: a table whose writes can't be seen, by name.
        CheckpointMismatchError: two variables of one name.
    """
    groups: Dict[str, Group] = {}
    for variable in _variables(model):
        name = variable.name
        tables = [Table(name, variable)]
        tables += [Table(f"{name}/{other.name.rsplit('/', 1)[-1]}", other)
                   for other in _slots(variable, optimizer) + _status(variable)]
        for table in tables:
            _check_trackable(table)
        if name in groups:
            raise CheckpointMismatchError(
                f"Two embedding variables of the model are named {name!r}: their rows could not be told apart. "
                "Give each embedding layer a name of its own.")
        for table in tables[1:]:
            # TFRA hands a slot that an older model of the same names still holds to a newer one.
            if table.variable.shard_num != variable.shard_num:
                raise CheckpointMismatchError(
                    f"Slot table {table.name} belongs to another model. Received: {table.variable.shard_num} shards. "
                    f"Expected: {variable.shard_num}, as its embedding variable. Call "
                    "tf.keras.backend.clear_session() before the next model of the same names is built and trained.")
        names = [table.name for table in tables]
        if len(set(names)) != len(names):
            raise CheckpointMismatchError(f"Slots of {name} share a name. Received: {names}. Expected: each once")
        groups[name] = Group(name, tuple(tables))
    return [groups[name] for name in sorted(groups)]


def find_dense(model: tf.keras.Model, optimizer: Any) -> List[tf.Variable]:
    """Returns the variables of model and optimizer that are not tables nor scratch space of lookups, each once."""
    found = list(model.variables) + _optimizer_variables(optimizer)
    scratch = (de.TrainableWrapper, shadow_embedding_ops.DEResourceVariable, de.Variable)
    return dense.parts_of(variable for variable in found if not isinstance(variable, scratch))


def trains_tables(model: tf.keras.Model) -> bool:
    """Whether the model has tables that an optimizer would update."""
    return any(isinstance(variable, de.TrainableWrapper) for variable in model.trainable_variables)


def create_slots(model: tf.keras.Model, optimizer: Any) -> None:
    """Creates the optimizer's variables, the slot tables included, as its first step would. Idempotent."""
    with model.distribute_strategy.scope():
        if hasattr(optimizer, "_create_all_weights"):
            optimizer._create_all_weights(model.trainable_variables)
        elif not getattr(optimizer, "_built", False):
            optimizer.build(model.trainable_variables)
    for variable in _variables(model):
        if variable.restrict_policy is not None:
            # As the first step would: until then a restriction leaves the rows of slots behind.
            variable.restrict_policy._track_params_from_optimizer_slots(_slots(variable, optimizer))


def _optimizer_variables(optimizer: Any) -> List[tf.Variable]:
    if optimizer is None:
        return []
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _variables(model: tf.keras.Model) -> List[Any]:
    """The embedding variables of a model: those its layers hold, directly or through a trainable shadow."""
    found = {}
    items, paths = graph_view.ObjectGraphView(model).breadth_first_traversal()
    for item in items:
        if any(isinstance(step.ref, _OPTIMIZERS) for step in paths[item]):
            continue  # a slot
        if isinstance(item, de.TrainableWrapper):
            item = item.params
        if isinstance(item, de.Variable):
            found[id(item)] = item
    # They hang on the variables they belong to.
    for variable in list(found.values()):
        for status in _status(variable):
            found.pop(id(status), None)
    return list(found.values())


def _slots(variable: Any, optimizer: Any) -> List[Any]:
    """The slot variables of an embedding variable: a slot's shadow shares the ids of one of the variable's own."""
    ids = {id(shadow.ids) for shadow in variable._trainable_store.values()}
    slots = {id(slot.params): slot.params for slot in _optimizer_variables(optimizer)
             if isinstance(slot, de.TrainableWrapper) and id(slot.ids) in ids}
    return list(slots.values())


def _status(variable: Any) -> List[Any]:
    """The variable in which a restrict policy counts or dates the keys of an embedding variable, if it has one."""
    policy = variable.restrict_policy
    return [] if policy is None or policy.status is None else [policy.status]


def _check_trackable(table: Table) -> None:
    variable = table.variable
    for shard, kv in enumerate(variable.tables):
        if type(kv) is not de.CuckooHashTable or "GPU" in kv.resource_handle.device.upper():
            raise UntrackableTableError(
                f"Writes to table {table.name}, shard {shard}, can't be tracked. Received: {type(kv).__name__} on "
                f"{kv.resource_handle.device}. Expected: TFRA's CuckooHashTable on a CPU.")
        if not kv._shared_name or not kv._shared_name.startswith("adaptcp_"):
            raise UntrackableTableError(
                f"Table {table.name}, shard {shard}, was created before tfadaptcp was imported: its writes can't be "
                "tracked. Import tfadaptcp first.")
