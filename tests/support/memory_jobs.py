"""Jobs that measure the memory of their own process, each for one of its own (`run_job`)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import tfadaptcp

import numpy as np
import tensorflow as tf

from tests.support import oracle, rows

CHECKPOINTS = Path(os.environ.get("CHECKPOINTS", "."))
MB = 1 << 20
CAPTURE = SEGMENT = 8 * MB
OPTIONS = tfadaptcp.EngineOptions(capture_memory_bytes=CAPTURE, segment_bytes=SEGMENT, restore_memory_bytes=2 * SEGMENT)


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) * 1024


def resident() -> int:
    return _status("VmRSS")


class Peak:
    """How much more memory than before was resident, at most, while entered."""

    def __enter__(self) -> "Peak":
        Path("/proc/self/clear_refs").write_text("5")  # starts VmHWM anew
        self._before = resident()
        return self

    def __exit__(self, *unused) -> None:
        self.extra = _status("VmHWM") - self._before


def tables() -> dict:
    """A table of 150 MB, slots included: a complete checkpoint of it, then many small ones."""
    model = oracle.build(dim=64, init_capacity=1 << 18)
    for start in range(0, 200_000, 20_000):
        rows.write(model, range(start, start + 20_000), value=0.5)
    payload = 200_000 * 64 * 4 * 3
    manager = tfadaptcp.CheckpointManager(model, CHECKPOINTS, "incremental", engine=OPTIONS, max_to_keep=2)
    with Peak() as first:
        manager.save()
        # Updates capture what the drain has not.
        for start in range(100_000, 200_000, 5_000):
            rows.write(model, range(start, start + 5_000), value=1.5)
        manager.wait()
    by_update = manager.stats()["rows_by_update"]
    seen = []
    for i in range(50):
        rows.write(model, range(2_000 * i, 2_000 * i + 2_000), value=i)
        manager.save()
        rows.write(model, range(2_000 * i, 2_000 * i + 1_000), value=-i)
        manager.wait()
        seen.append(resident())
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    rows.write(model, range(1000), value=7)
    with Peak() as restore:
        model.load_adaptcp(CHECKPOINTS, engine=OPTIONS)
    oracle.check(copy, model)
    return {"payload": payload, "first": first.extra, "buffers": CAPTURE, "segments": 2 * SEGMENT, "after_5": seen[4], "after_50": seen[-1],
            "restore": restore.extra, "by_update": by_update}


def _pattern(shape: list[int], seed: int) -> tf.Tensor:
    """Values that tell where in which variable they belong; made where they are needed, of whole rows."""
    row = tf.cast(tf.range(shape[0], dtype=tf.int32)[:, None] + seed, tf.float32)
    return row + tf.range(shape[1], dtype=tf.float32)[None, :] / shape[1]


class Weights(tf.keras.Model):
    """Dense variables of the given numbers of MB, and one small one."""

    def __init__(self, sizes):
        super().__init__()
        self.all = [tf.Variable(tf.zeros([size, MB // 4]), name=f"weights{i}") for i, size in enumerate(sizes)]
        self.all.append(tf.Variable(tf.zeros([3, 5]), name="small"))
        self.built = True

    def fill(self) -> None:
        for i, variable in enumerate(self.all):
            with tf.device(variable.device):
                variable.assign(_pattern(variable.shape.as_list(), i))

    def wrong(self) -> list[str]:
        """Names of variables that are not as `fill` left them, some rows at a time."""
        found = []
        for i, variable in enumerate(self.all):
            with tf.device(variable.device):
                for at in range(0, variable.shape[0], 64):
                    part = variable[at:at + 64]
                    if not np.all((part == _pattern(part.shape.as_list(), i + at)).numpy()):
                        found.append(variable.name)
                        break
        return found


def dense(sizes: list[int]) -> dict:
    """Large dense variables, changed while they are written; restored into a model that holds others."""
    model = Weights(sizes)
    model.fill()
    manager = tfadaptcp.CheckpointManager(model, CHECKPOINTS, optimizer=False, engine=OPTIONS)
    with Peak() as still:
        manager.save()
        manager.wait()
    with Peak() as training:
        manager.save()
        for variable in model.all:
            variable.assign(variable + 1.0)
        manager.wait()
    with Peak() as restore:
        model.load_adaptcp(CHECKPOINTS, engine=OPTIONS)
    return {"bytes": sum(sizes) * MB, "still": still.extra, "training": training.extra, "restore": restore.extra,
            "wrong": model.wrong(), "files": [path.stat().st_size for path in CHECKPOINTS.glob("data/*/*")]}


def dense_of_300_mb() -> dict:
    return dense([240, 30, 30])


def dense_of_3_gb() -> dict:
    return dense([1536, 512, 512, 256, 256])
