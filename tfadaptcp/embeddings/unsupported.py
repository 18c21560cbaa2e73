"""What a checkpoint of a model can't hold: refused by name when the model is looked at, before anything is saved."""

from typing import Any, Iterable, Set

import tensorflow as tf
from tensorflow.python.ops import lookup_ops
from tensorflow_recommenders_addons import dynamic_embedding as de

from tfadaptcp.embeddings import optimizers
from tfadaptcp.errors import UnsupportedVariableError, UntrackableTableError

# Their contents come with the model, from its code or its assets, and do not change.
_FIXED = (lookup_ops.StaticHashTable, lookup_ops.StaticHashTableV1, lookup_ops.IdTableWithHashBuckets,
          lookup_ops.StaticVocabularyTable, lookup_ops.StaticVocabularyTableV1)


def check_table(name: str, variable: Any) -> None:
    """Raises UntrackableTableError if writes to a TFRA variable can't be seen."""
    for shard, kv in enumerate(variable.tables):
        if type(kv) is not de.CuckooHashTable or "GPU" in kv.resource_handle.device.upper():
            raise UntrackableTableError(
                f"Writes to table {name}, shard {shard}, can't be tracked. Received: {type(kv).__name__} on "
                f"{kv.resource_handle.device}. Expected: TFRA's CuckooHashTable on a CPU.")
        if not kv._shared_name or not kv._shared_name.startswith("adaptcp_"):
            raise UntrackableTableError(
                f"Table {name}, shard {shard}, was created before tfadaptcp was imported: its writes can't be "
                "tracked. Import tfadaptcp first.")


def check_other_tables(items: Iterable[Any]) -> None:
    """Raises UnsupportedVariableError for a table of TensorFlow's own that may change, among the objects of a model."""
    for item in items:
        if isinstance(item, lookup_ops.LookupInterface) and not isinstance(item, (*_FIXED, de.CuckooHashTable)):
            raise UnsupportedVariableError(
                f"The model holds a lookup table that may change, which checkpoints can't hold. Received: "
                f"{type(item).__name__} {_name_of(item)!r}. Expected: tables with fixed contents, or TFRA's. A layer "
                "that learns a vocabulary by adapt() takes it as an argument too; or keep it out of the model, in the "
                "input pipeline.")


def check_trained_tables(shadows: Iterable[Any], ids: Set[int]) -> None:
    """Raises UntrackableTableError if an optimizer has slots of a table that is not in the model.

    Args:
        shadows: of the optimizer's slots.
        ids: identities of the ids of the shadows of the model's tables.
    """
    for shadow in shadows:
        if id(shadow.ids) not in ids:
            raise UntrackableTableError(
                f"The optimizer trains a table that is not in the model, which would not be saved. Received: slots "
                f"{shadow.params.name!r}. Expected: slots of tables that are attributes of the model or its layers. "
                "Hold the variable in a layer, give each model an optimizer of its own, or save weights only "
                "(optimizer=False).")


def check_trained_variables(keys: Iterable[str], optimizer: Any, variables: Iterable[Any]) -> None:
    """Raises UnsupportedVariableError if an optimizer has slots of a variable that is none of `variables`.

    Args:
        keys: by which the optimizer knows the variables that it has slots of.
        variables: those of the model, shadows of tables included.
    """
    others = sorted(set(keys) - {key for variable in variables for key in optimizers.keys_of(optimizer, variable)})
    if others:
        raise UnsupportedVariableError(
            f"The optimizer trains variables that are not in the model, which would not be saved. Received: {others}. "
            "Expected: variables that are attributes of the model or its layers. Hold them there, give each model an "
            "optimizer of its own, or save weights only (optimizer=False).")


def check_dense(variables: Iterable[tf.Variable], dtypes: Iterable[str]) -> None:
    """Raises UnsupportedVariableError for a variable whose dtype is none of `dtypes`, or whose shape may change."""
    known = sorted(dtypes)
    for variable in variables:
        if not variable.shape.is_fully_defined():
            raise UnsupportedVariableError(
                f"Variable {variable.name!r} may change its shape, which checkpoints can't hold. Received: "
                f"{variable.shape}. Expected: a shape that is known. Of a layer that learns from data by adapt(), or is given "
                "a vocabulary with weights, keep what it learns out of the model, in the input pipeline.")
        if variable.dtype.base_dtype.name not in known:
            raise UnsupportedVariableError(
                f"Variable {variable.name!r} has a dtype that checkpoints can't hold. Received: "
                f"{variable.dtype.base_dtype.name}. Expected: one of {', '.join(known)}")


def _name_of(item: Any) -> str:
    name = getattr(item, "_name", None) or getattr(item, "name", None)
    return str(name)
