"""Reads the rows of a table out of a checkpoint, without a model or a cluster."""

import json
import logging
import os
from typing import Any, List, Optional, Tuple, Union

import tensorflow as tf

from tfadaptcp import _ops
from tfadaptcp.checkpoint import commit, heads, objects
from tfadaptcp.checkpoint.manifest import GroupSpec, Manifest
from tfadaptcp.checkpoint.store import Store, normalize
from tfadaptcp.errors import CheckpointCorruptError, CheckpointMismatchError
from tfadaptcp.options import EngineOptions

_log = logging.getLogger("tfadaptcp")


def read_rows(directory: Union[str, os.PathLike], table: str, checkpoint: Optional[str] = None) -> tf.data.Dataset:
    """Reads the rows that a table had at the cut of a checkpoint, each once, in no particular order.

    Needs no model, no cluster and no parameter server, and writes nothing; the directory may be written to meanwhile.
    Example::

        rows = tfadaptcp.read_rows("/checkpoints/run7", "user_table-parameter")
        for keys, values in rows.batch(1024):
            ...

    Memory: at a time two objects of the checkpoint (`segment_bytes` each) with the rows of the table out of them, and the
    keys of the group that the increments and the differential have, not those of the base. Whole numbers are looked up in
    them by bisection; of strings a hash table is made of them with each object.

    Args:
        directory: the checkpoint directory, local path or URL.
        table: an embedding variable, or `<variable>/<slot>`; `RestoreReport.rows` and `tfadaptcp ls --json` name them.
        checkpoint: the name of a checkpoint; None: the newest whose objects are all there.

    Returns:
        A dataset of (key, row): a scalar of int64, int32 or string, and [dim] values of the table's dtype. Every object
        is verified as it is read: iterating raises `tf.errors.DataLossError` for a damaged one, naming file and offset,
        and `tf.errors.NotFoundError` if retention has removed the checkpoint meanwhile; then call `read_rows` again.

    Raises:
        CheckpointNotFoundError: there is no checkpoint, or none of that name.
        CheckpointMismatchError: the checkpoint has no such table; the message lists those it has.
        CheckpointCorruptError: an object is missing or of another size, in the checkpoint named or in all of them.
        StoreUnavailableError: the directory can't be read.
    """
    directory = normalize(directory)
    store = Store()
    store.check_supported(directory)
    head = _whole_head(store, directory, checkpoint)
    group, index = _find(head, table)
    requests, levels = _requests(directory, head, group, index)
    last = max(levels, default=0)
    spec = group.tables[index]
    key_dtype, dtype, dim = tf.as_dtype(group.key_dtype), tf.as_dtype(spec.dtype), spec.dim
    ops = _ops.lib()

    def read(request: tf.Tensor, level: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        keys, present, values = ops.adaptcp_segment_table(request, Tkey=key_dtype, Tvalue=dtype)
        return (tf.ensure_shape(keys, [None]), tf.ensure_shape(present, [None]), tf.reshape(values, [-1, dim]), level)

    def newest(state: Tuple[tf.Tensor, ...], item: Tuple[tf.Tensor, ...]) -> Tuple[Any, Tuple[tf.Tensor, tf.Tensor]]:
        """Leaves out the keys that a newer level has, be it without a row. No level has one twice."""
        above, here, current = state  # keys of the levels above, sorted; of this one so far; which it is
        keys, present, values, level = item
        above, here = tf.cond(level == current, lambda: (above, here), lambda: (_sorted(above, here), here[:0]))
        new = _not_in(above, keys)
        take = tf.boolean_mask(new, tf.gather(present, new))
        place = tf.cumsum(tf.cast(present, tf.int64)) - 1
        here = tf.cond(level < last, lambda: tf.concat([here, tf.gather(keys, new)], axis=0), lambda: here)
        state = tf.ensure_shape(above, [None]), tf.ensure_shape(here, [None]), level
        return state, (tf.gather(keys, take), tf.gather(values, tf.gather(place, take)))

    data = tf.data.Dataset.from_tensor_slices((tf.constant(requests, tf.string, [len(requests)]),
                                               tf.constant(levels, tf.int64, [len(levels)])))
    nothing = tf.zeros([0], key_dtype)
    return data.map(read).prefetch(1).scan((nothing, nothing, tf.constant(0, tf.int64)), newest).unbatch()


def _sorted(*keys: tf.Tensor) -> tf.Tensor:
    together = tf.concat(keys, axis=0)
    return together if together.dtype == tf.string else tf.sort(together)


def _not_in(known: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Indices of the keys that are not among `known`, which `_sorted` has returned."""
    if keys.dtype == tf.string:
        return tf.raw_ops.ListDiff(x=keys, y=known, out_idx=tf.int64).idx
    place = tf.searchsorted(known, keys)
    at_place = tf.gather(tf.concat([known, tf.zeros([1], known.dtype)], axis=0), place)
    return tf.where((place == tf.size(known)) | (at_place != keys))[:, 0]


def _whole_head(store: Store, directory: str, checkpoint: Optional[str]) -> Manifest:
    for _ in range(heads.REMOVALS):
        reason = ""
        for head in heads.candidates(store, directory, checkpoint):
            if commit.is_whole(store, directory, head):
                return head
            if commit.is_removed(store, directory, head):
                break  # by retention, since it was listed: there is a newer one
            reason = reason or f"checkpoint {head.name} of {directory} lacks objects, or has some of another size"
            _log.error("Passing over a checkpoint: %s", reason)
        else:
            raise CheckpointCorruptError(f"{reason}; `tfadaptcp verify` names them")
    raise CheckpointCorruptError(f"{directory}: every checkpoint was removed while it was looked at")


def _find(head: Manifest, table: str) -> Tuple[GroupSpec, int]:
    for group in head.groups:
        for i, spec in enumerate(group.tables):
            if spec.name == table:
                return group, i
    names = [spec.name for group in head.groups for spec in group.tables]
    raise CheckpointMismatchError(f"checkpoint {head.name} has no such table. Received: {table!r}. Expected: one of {names}")


def _requests(directory: str, head: Manifest, group: GroupSpec, index: int) -> Tuple[List[str], List[int]]:
    """One request an object, and the level that it belongs to: the newest first, whose keys hide those of later ones."""
    common: Any = {"specs": objects.specs(head), "limits": EngineOptions().for_restores(), "group": group.name, "table": index}
    requests, levels = [], []
    for i, level in enumerate(objects.levels(directory, head, [group.name])):
        requests += [json.dumps({**common, "object": item}) for item in level["objects"]]
        levels += [i] * len(level["objects"])
    return requests, levels
