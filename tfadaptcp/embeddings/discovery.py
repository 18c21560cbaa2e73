"""Finds what a checkpoint of a model has to hold: groups of tables, and dense variables."""

import dataclasses
from typing import Any, Dict, List, Set, Tuple

import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import dynamic_embedding_variable
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import shadow_embedding_ops

from tfadaptcp.embeddings import dense, optimizers, unsupported
from tfadaptcp.embeddings.parts import Parts, parts_of
from tfadaptcp.errors import CheckpointMismatchError


@dataclasses.dataclass(frozen=True)
class Table:
    """A TFRA variable, one table per shard, by the name it has in a checkpoint."""
    name: str
    variable: Any
    is_slot: bool = False

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


def find_groups(parts: Parts, optimizer: Any) -> List[Group]:
    """Returns the groups of a built model, in the order of their names; without slots if `optimizer` is None.

    Raises:
        UntrackableTableError: a table whose writes can't be seen, by name.
        UnsupportedVariableError: a table of TensorFlow's own that may change.
        CheckpointMismatchError: two variables of one name.
    """
    groups: Dict[str, Group] = {}
    variables = _variables(parts)
    unsupported.check_other_tables(item for item, _ in parts.own)
    ids = {id(variable): _shadow_ids(variable, parts) for variable in variables}
    unsupported.check_trained_tables(_shadows(optimizer), set().union(*ids.values()))
    for variable in variables:
        name = variable.name
        tables = [Table(name, variable)]
        tables += [Table(f"{name}/{_last(other.name)}", other) for other in _status(variable)]
        tables[1:1] = [Table(f"{name}/{slot_name}", slot, is_slot=True)
                       for slot_name, slot in _slots(ids[id(variable)], optimizer).items()]
        for table in tables:
            unsupported.check_table(table.name, table.variable)
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


def find_dense(model: tf.keras.Model, optimizer: Any, parts: Parts) -> List[tf.Variable]:
    """Returns the variables of model and optimizer that are not tables nor scratch space of lookups, each once.

    Raises:
        UnsupportedVariableError: the optimizer trains others.
    """
    scratch = (de.TrainableWrapper, shadow_embedding_ops.DEResourceVariable, de.Variable)
    shadows = [shadow for variable in _variables(parts) for shadow in variable._trainable_store.values()]
    unsupported.check_trained_variables(optimizers.trained(optimizer), optimizer,
                                        parts_of([*dense.find(model, None, parts), *shadows]))
    return parts_of(item for item in dense.find(model, optimizer, parts) if not isinstance(item, scratch))


def trains_tables(model: tf.keras.Model) -> bool:
    """Whether the model has tables that an optimizer would update."""
    return any(isinstance(variable, de.TrainableWrapper) for variable in model.trainable_variables)


def create_slots(model: tf.keras.Model, optimizer: Any, parts: Parts) -> None:
    """Creates the optimizer's variables, the slot tables included, as its first step would. Idempotent."""
    variables = _variables(parts)
    trained = model.trainable_variables + _hidden_shadows(model, variables)
    with model.distribute_strategy.scope():
        if hasattr(optimizer, "_create_all_weights"):
            optimizer._create_all_weights(trained)
        elif not getattr(optimizer, "_built", False):
            optimizer.build(trained)
    for variable in variables:
        if variable.restrict_policy is not None:
            # As the first step would: until then a restriction leaves the rows of slots behind.
            variable.restrict_policy._track_params_from_optimizer_slots(
                list(_slots(_shadow_ids(variable, parts), optimizer).values()))


def other_slots(groups: List[Group], parts: Parts) -> List[str]:
    """The names of slot tables of the embedding variables that are in none of the groups.

    Some other optimizer has made them: one that the model had before, or one that nobody was told of.
    """
    known = {id(table.variable) for group in groups for table in group.tables}
    shadows = [item for item, _ in parts.own if isinstance(item, de.TrainableWrapper)]
    shadows += [shadow for group in groups for shadow in group.variable._trainable_store.values()]
    slots = [slot for shadow in shadows for slot in shadow._optimizer_vars.value]
    return sorted({slot.name for slot in slots if id(slot) not in known})


def _variables(parts: Parts) -> List[Any]:
    """The embedding variables of a model: those its layers hold, directly or through a trainable shadow."""
    found = {}
    for item, _ in parts.own:
        if isinstance(item, de.TrainableWrapper):
            item = item.params
        if isinstance(item, de.Variable):
            found[id(item)] = item
    # They hang on the variables they belong to.
    for variable in list(found.values()):
        for status in _status(variable):
            found.pop(id(status), None)
    return list(found.values())


def _hidden_shadows(model: tf.keras.Model, variables: List[Any]) -> List[Any]:
    """Shadows that TFRA's `embedding_lookup` made in a layer's call, which Keras does not know of.

    A custom step may train them. Under a strategy they belong to its replicas: left to the first step.
    """
    if tf.distribute.has_strategy() or type(model.distribute_strategy) is not type(tf.distribute.get_strategy()):
        return []
    # By name: a younger model of the same names has put its shadows in the places of this one's.
    known = {variable.name for variable in model.variables if isinstance(variable, de.TrainableWrapper)}
    return [shadow for variable in variables for shadow in variable._trainable_store.values()
            if shadow.trainable and variable.trainable and shadow.name not in known
            and isinstance(shadow, shadow_embedding_ops.ShadowVariable)]


def _shadows(optimizer: Any) -> List[Any]:
    """The shadows of an optimizer's slot tables."""
    return [slot for slot in optimizers.variables(optimizer) if isinstance(slot, de.TrainableWrapper)]


def _shadow_ids(variable: Any, parts: Parts) -> Set[int]:
    """Which ids are those of the shadows of an embedding variable: that the model holds, and that TFRA knows.

    TFRA gives a model of the same names the same variable, and knows of each shadow's name only the youngest.
    """
    shadows = [item for item, _ in parts.own if isinstance(item, de.TrainableWrapper) and item.params is variable]
    return {id(shadow.ids) for shadow in [*shadows, *variable._trainable_store.values()]}


def _slots(ids: Set[int], optimizer: Any) -> Dict[str, Any]:
    """The slot variables of an embedding variable by name: a slot's shadow shares the ids of one of the variable's own.

    A variable that is looked up in several places has slots for each, which then are named after the place too.

    Raises:
        CheckpointMismatchError: two slots of one name.
    """
    slots = {id(slot.params): slot.params for slot in _shadows(optimizer) if id(slot.ids) in ids}.values()
    for parts in range(1, 1 + max((slot.name.count("/") + 1 for slot in slots), default=1)):
        found = {_last(slot.name, parts): slot for slot in slots}
        if len(found) == len(slots):
            return found
    raise CheckpointMismatchError(f"Slots of one embedding variable share a name. Received: {[slot.name for slot in slots]}. "
                                  "Expected: each once")


def _last(name: str, parts: int = 1) -> str:
    return "/".join(name.split("/")[-parts:])


def _status(variable: Any) -> List[Any]:
    """The variable in which a restrict policy counts or dates the keys of an embedding variable, if it has one."""
    policy = variable.restrict_policy
    return [] if policy is None or policy.status is None else [policy.status]
