"""Makes every TFRA CPU table issue tracked ops.

TFRA reaches its kernels through one module attribute, `cuckoo_hashtable_ops.cuckoo_ops`.
`install()` puts a proxy there: the ops that read or change a table are ours, with
TFRA's signatures; the rest is TFRA's. A tracked op costs nothing measurable
until a manager attaches to its table (two uncontended atomics per op, not per key).
"""

import os
import uuid

from tensorflow_recommenders_addons.dynamic_embedding.python.ops import cuckoo_hashtable_ops

from tfadaptcp import _ops

STOCK_PREFIX = "TFRA>CuckooHashTable"
TRACKED_PREFIX = "Adaptcp>CuckooHashTable"
TRACKED_SUFFIXES = ("Find", "FindWithExists", "Insert", "Accum", "Remove", "Clear", "Import", "LoadFromFileSystem")

# Names the tables of this process. TFRA calls them table_<uid>, and parameter
# servers outlive a coordinator: the next one would be handed the tables, and
# the rows, of a dead job as if they were fresh variables.
_process_token = ""


def _new_process_token() -> None:
    global _process_token
    _process_token = uuid.uuid4().hex[:12]


_new_process_token()
os.register_at_fork(after_in_child=_new_process_token)


class _TrackedOps:
    """TFRA's generated op module with the table ops replaced by ours."""

    def __init__(self, stock):
        self._stock = stock
        for suffix in TRACKED_SUFFIXES:
            snake = "".join("_" + c.lower() if c.isupper() else c for c in suffix)
            setattr(self, "tfra_cuckoo_hash_table" + snake, getattr(_ops.lib(), "adaptcp_cuckoo_hash_table" + snake))

    def __getattr__(self, name):
        return getattr(self._stock, name)


def install() -> None:
    """Replaces TFRA's table ops by tracked ones, in this process, once."""
    if isinstance(cuckoo_hashtable_ops.cuckoo_ops, _TrackedOps):
        return
    cuckoo_hashtable_ops.cuckoo_ops = _TrackedOps(cuckoo_hashtable_ops.cuckoo_ops)

    table_class = cuckoo_hashtable_ops.CuckooHashTable
    create = table_class._create_resource

    def create_resource(self):
        # None in graph mode, where TFRA shares by node name.
        if self._shared_name is not None and not self._shared_name.startswith("adaptcp_"):
            self._shared_name = f"adaptcp_{_process_token}_{self._shared_name}"
        return create(self)

    table_class._create_resource = create_resource
