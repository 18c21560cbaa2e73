"""What a drain costs beside the least it could do: find the rows, write their bytes."""

import os
import shutil
from typing import Any, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from benchmarks.measuring import NOTHING, Sample, interleaved, timed
from benchmarks.tables import FILL_BATCH, AdamTables

FIND, WRITE, SAVE, LEAST = "plain find", "raw write", "save", "find + write"


def measure(tables: AdamTables, rows: int, rounds: int, directory: str,
            drain_threads: int) -> Tuple[Dict[str, List[Sample]], int]:
    """Saves of `rows` rows, the base if that is all of them, a delta otherwise.

    Returns samples, and the bytes written by one save. The raw write ends with fsync; so does the save.
    """
    kind = "base" if rows == tables.rows else "delta"
    keys = np.random.default_rng(5).permutation(tables.rows)[:rows]
    batches = [tf.constant(keys[start:start + FILL_BATCH], tf.int64) for start in range(0, rows, FILL_BATCH)]
    values = tf.random.stateless_normal([FILL_BATCH, tables.dim], [5, 6])
    scratch = os.path.join(directory, "save")
    written = [0]

    def find() -> Sample:
        total = NOTHING
        for batch in batches:
            total += timed(lambda batch=batch: tables.plain_find(batch))
        return total

    def save() -> Sample:
        if kind == "delta":
            for batch in batches:
                tables.tracked_insert(batch, values[:batch.shape[0]])
        tables.cut(kind)
        reply: Dict[str, Any] = {}
        sample = timed(lambda: reply.update(tables.save(kind, scratch, drain_threads)))
        tables.resolve()
        shutil.rmtree(scratch)
        saved = sum(sum(item["rows"].values()) for item in reply["objects"])
        if saved != rows:
            raise RuntimeError(f"Received: {saved} rows saved. Expected: {rows}")
        written[0] = sum(item["bytes"] for item in reply["objects"])
        return sample

    def write() -> Sample:
        return raw_write(os.path.join(directory, "raw"), written[0])

    tables.make_clean(scratch)
    samples = interleaved({SAVE: save, FIND: find, WRITE: write}, rounds)
    samples[LEAST] = [a + b for a, b in zip(samples[FIND], samples[WRITE])]
    return samples, written[0]


def raw_write(path: str, size: int) -> Sample:
    """Writes `size` bytes to a new file, fsync included, and removes it."""
    chunk = memoryview(np.random.default_rng(1).bytes(1 << 20))

    def write() -> None:
        with open(path, "wb", buffering=0) as file:
            for start in range(0, size, len(chunk)):
                file.write(chunk[:min(len(chunk), size - start)])
            os.fsync(file.fileno())

    sample = timed(write)
    os.remove(path)
    return sample
