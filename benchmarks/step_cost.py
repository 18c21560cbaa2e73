"""What tracking adds to the table ops of an Adam step."""

import os
import shutil
from typing import Dict, List

import numpy as np
import tensorflow as tf

from benchmarks.keys import KeyDraws
from benchmarks.measuring import Sample, interleaved, timed
from benchmarks.tables import AdamTables

PLAIN, AGAIN, TRACKED, CAPTURING = "plain", "plain again", "tracked", "tracked, capturing"
# Of the keys of a step, how many a pending checkpoint still has to capture.
TO_CAPTURE = 0.2


def measure(tables: AdamTables, distribution: str, batch: int, rounds: int,
            directory: str) -> Dict[str, List[Sample]]:
    """Steps of `batch` keys, every one with keys of its own: the caches know none of them from the step before.

    Returns samples of four cases: plain TFRA twice, whose difference is the noise; tracked, no checkpoint pending;
    and tracked with a fifth of the keys uncaptured.
    """
    draws = KeyDraws(tables.rows, batch, distribution)
    random = np.random.default_rng(7)
    to_capture = int(batch * TO_CAPTURE)
    values = tf.random.stateless_normal([batch, tables.dim], [3, 4])

    def keys() -> tf.Tensor:
        return tf.constant(draws.next())

    def plain() -> Sample:
        batch_keys = keys()
        return timed(lambda: tables.plain_step(batch_keys, values))

    def tracked() -> Sample:
        batch_keys = keys()
        return timed(lambda: tables.tracked_step(batch_keys, values))

    def capturing() -> Sample:
        scratch = os.path.join(directory, "step")
        tables.make_clean(scratch)
        batch_keys = draws.next()
        written = random.choice(batch_keys, to_capture, replace=False)
        tables.tracked_insert(tf.constant(written), values[:to_capture])
        # What the tables hold of these keys is in the caches now; other keys push it out again.
        tables.plain_step(keys(), values)
        tables.cut("delta", capture_memory_bytes=4 << 30)
        batch_keys = tf.constant(batch_keys)
        sample = timed(lambda: tables.tracked_step(batch_keys, values))
        reply = tables.save("delta", scratch)
        tables.resolve()
        shutil.rmtree(scratch)
        captured = reply["stats"]["rows_by_update"]
        if captured != to_capture:
            raise RuntimeError(f"The step was to capture a part of its rows. Received: {captured} "
                               f"Expected: {to_capture}")
        return sample

    return interleaved({PLAIN: plain, TRACKED: tracked, AGAIN: plain, CAPTURING: capturing}, rounds)

