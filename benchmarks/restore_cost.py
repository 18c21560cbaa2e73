"""What a restore costs beside the least it could do: read the bytes, insert the rows."""

import os
import shutil
from typing import Any, Dict, List

import numpy as np
import tensorflow as tf

from benchmarks.measuring import NOTHING, Sample, interleaved, timed
from benchmarks.tables import FILL_BATCH, AdamTables

INSERT, READ, RESTORE, LEAST = "plain insert", "raw read", "restore", "insert + read"


def measure(tables: AdamTables, rounds: int, directory: str) -> Dict[str, List[Sample]]:
    """Restores of a base of all rows, from a file system that has it in memory, into tables made large enough."""
    scratch = os.path.join(directory, "restore")
    tables.cut("base")
    objects = tables.save("base", scratch)["objects"]
    tables.resolve()
    objects = [dict(item, ps=0) for item in objects]
    keys = np.random.default_rng(6).permutation(tables.rows)
    # Rows of their own, as in a file: not one batch that stays in the caches.
    values = np.random.default_rng(7).standard_normal((tables.rows, tables.dim), np.float32)

    def restore() -> Sample:
        tables.begin_restore()
        sample = timed(lambda: tables.restore(objects))
        sizes = tables.end_restore()
        if set(sizes.values()) != {tables.rows}:
            raise RuntimeError(f"Received: {sizes} rows restored. Expected: {tables.rows} in each table")
        return sample

    def insert() -> Sample:
        tables.clear()
        total = NOTHING
        for start in range(0, tables.rows, FILL_BATCH):
            batch = tf.constant(keys[start:start + FILL_BATCH], tf.int64)
            rows = [tf.constant(values[start:start + FILL_BATCH]) for _ in range(3)]
            total += timed(lambda batch=batch, rows=rows: tables.plain_insert(batch, rows))
        return total

    def read() -> Sample:
        return raw_read([item["path"] for item in objects])

    samples: Dict[str, List[Any]] = interleaved({RESTORE: restore, INSERT: insert, READ: read}, rounds)
    samples[LEAST] = [a + b for a, b in zip(samples[INSERT], samples[READ])]
    shutil.rmtree(scratch)
    return samples


def raw_read(paths: List[str]) -> Sample:
    """Reads files, a MiB at a time into the same memory."""
    buffer = bytearray(1 << 20)

    def read() -> None:
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    return timed(read)
