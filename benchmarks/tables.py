"""An embedding table with two Adam slots, reached through TFRA's ops and through the tracked ones."""

import json
import os
import shutil
import uuid
from typing import Any, Dict, List

import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import cuckoo_hashtable_ops

from tfadaptcp import _ops

FILL_BATCH = 1 << 16


class AdamTables:
    """Parameter, m and v: int64 keys, float32 [dim].

    `tracked` calls are the ops every table issues once tfadaptcp is imported, `plain` ones TFRA's own. Both work on
    the same three tables, so that neither has the better memory: a plain write is simply not seen by the tracker.
    """

    def __init__(self, rows: int, dim: int):
        self.rows, self.dim = rows, dim
        self.ops = _ops.lib()
        stock = cuckoo_hashtable_ops.cuckoo_ops
        self.stock = getattr(stock, "_stock", stock)
        name = uuid.uuid4().hex
        with tf.device("CPU"):
            self.handles = [
                self.stock.tfra_cuckoo_hash_table_of_tensors(
                    shared_name=f"benchmark_{name}_{i}", use_node_name_sharing=False, key_dtype=tf.int64,
                    value_dtype=tf.float32, value_shape=[dim], init_size=rows)
                for i in range(3)]
        self.default = tf.zeros([dim])
        self.sequence = 0
        self.session = ""

    # ------------------------------------------------------------- a step

    def plain_step(self, keys: tf.Tensor, values: tf.Tensor) -> None:
        """The table ops of an Adam step, TFRA's own: three lookups, three inserts."""
        for handle in self.handles:
            self.stock.tfra_cuckoo_hash_table_find(handle, keys, self.default)
        self.plain_insert(keys, [values] * 3)

    def tracked_step(self, keys: tf.Tensor, values: tf.Tensor) -> None:
        """The same through the tracked ops."""
        for handle in self.handles:
            self.ops.adaptcp_cuckoo_hash_table_find(handle, keys, self.default)
        for handle in self.handles:
            self.ops.adaptcp_cuckoo_hash_table_insert(handle, keys, values)

    def tracked_find(self, keys: tf.Tensor) -> None:
        """Looks the keys up in the parameter, tracked."""
        self.ops.adaptcp_cuckoo_hash_table_find(self.handles[0], keys, self.default)

    def plain_find(self, keys: tf.Tensor) -> None:
        """Looks the keys up in all three tables."""
        for handle in self.handles:
            self.stock.tfra_cuckoo_hash_table_find(handle, keys, self.default)

    def plain_insert(self, keys: tf.Tensor, values: List[tf.Tensor]) -> None:
        """Writes rows into all three tables; values: [n, dim] each."""
        for handle, rows in zip(self.handles, values):
            self.stock.tfra_cuckoo_hash_table_insert(handle, keys, rows)

    def tracked_insert(self, keys: tf.Tensor, values: tf.Tensor) -> None:
        """Writes the same rows into all three tables, tracked."""
        for handle in self.handles:
            self.ops.adaptcp_cuckoo_hash_table_insert(handle, keys, values)

    def fill(self) -> None:
        """Tracked inserts of all keys, in random order."""
        keys = np.random.default_rng(0).permutation(self.rows)
        values = tf.random.stateless_normal([FILL_BATCH, self.dim], [1, 2])
        for start in range(0, self.rows, FILL_BATCH):
            batch = keys[start:start + FILL_BATCH]
            self.tracked_insert(tf.constant(batch, tf.int64), values[:len(batch)])

    def clear(self) -> None:
        """Empties the tables; they keep their memory."""
        for handle in self.handles:
            self.stock.tfra_cuckoo_hash_table_clear(handle, key_dtype=tf.int64, value_dtype=tf.float32)

    # ------------------------------------------------------------- checkpoints

    def attach(self) -> None:
        """Puts the tables under one tracker."""
        self.session = uuid.uuid4().hex
        self.ops.adaptcp_attach_group(self.handles, json.dumps({
            "session": self.session, "group": "emb", "shard": 0, "num_shards": 1, "key_dtype": "int64", "decay": 0.9,
            "tables": [{"name": name, "dtype": "float32", "dim": self.dim} for name in ("emb", "emb/m", "emb/v")]}))

    def detach(self) -> None:
        """Tracks no more."""
        self.ops.adaptcp_detach(self.session)

    def memory_bytes(self) -> int:
        """What the tracker holds, as it says itself."""
        return json.loads(self.ops.adaptcp_stats(self.session).numpy())["groups"][0]["memory_bytes"]

    def cut(self, kind: str, capture_memory_bytes: int = 256 << 20, lookup_capture: bool = False) -> None:
        """Takes the next cut: "base" (all rows) or "delta" (the unsaved ones)."""
        self.sequence += 1
        self._call(self.ops.adaptcp_cut, {"kind": kind, "capture_memory_bytes": capture_memory_bytes,
                                          "lookup_capture": lookup_capture})

    def save(self, kind: str, directory: str, drain_threads: int = 1) -> Dict[str, Any]:
        """Drains the cut into segments below `directory`. Returns the reply of the op."""
        os.makedirs(directory)
        return self._call(self.ops.adaptcp_save, {
            "kind": kind, "directory": directory, "run": "benchmark", "generation": 1, "ps": 0, "dense": [],
            "segment_bytes": 256 << 20, "block_bytes": 1 << 20, "writer_threads": drain_threads}, [])

    def resolve(self, committed: bool = True) -> None:
        """Applies the outcome of the last cut."""
        self._call(self.ops.adaptcp_resolve, {"committed": committed})

    def make_clean(self, directory: str, kind: str = "delta") -> None:
        """Saves and commits whatever is unsaved, and throws the files away."""
        self.cut(kind)
        self.save(kind, directory)
        self.resolve()
        shutil.rmtree(directory)

    def begin_restore(self) -> None:
        """Clears tables and tracker."""
        self._call(self.ops.adaptcp_restore_begin, {"next_sequence": self.sequence + 1,
                                                    "base_sequence": self.sequence})

    def restore(self, objects: List[Dict[str, Any]]) -> None:
        """Applies the segments of the last cut, a base."""
        self._call(self.ops.adaptcp_restore_segments, {
            "head": self.sequence,
            "groups": {"emb": {"group": "emb", "take": [0, 1, 2]}},
            "levels": [{"sequence": self.sequence, "differential": False, "objects": objects}]})

    def end_restore(self) -> Dict[str, int]:
        """Returns the number of rows of each table."""
        return self._call(self.ops.adaptcp_restore_end, {})["sizes"]

    def _call(self, op: Any, request: Dict[str, Any], *inputs: Any) -> Any:
        reply = op(json.dumps({**request, "sequence": request.get("sequence", self.sequence),
                               "session": self.session, "root": self.session, "generation": 1}), *inputs)
        return json.loads(reply.numpy()) if tf.is_tensor(reply) else None
