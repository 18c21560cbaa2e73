"""Writes the checkpoints of format 1 that are kept in this directory, with what was in the model at each cut.

    python -m tests.golden.make [NAME ...]

They are files of the first release, to be read for ever: make them anew only before it. A later format gets directories
of its own.
"""

import json
import shutil
import sys
from pathlib import Path
from unittest import mock

import tfadaptcp

import tensorflow as tf

from tests.golden import models
from tests.support import oracle, quantizing, rows
from tfadaptcp import EngineOptions, Quantization, policies

HERE = Path(__file__).parent
# Several blocks a file, several files an increment, several slices a dense variable.
SMALL = EngineOptions(block_bytes=100, segment_bytes=2500)
LONG_CHAIN = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=10, max_restore_factor=50.0)


class Recorder:
    """Saves checkpoints and writes down a full copy of the model at each cut."""

    def __init__(self, name, model, policy, **kwargs):
        self.directory = HERE / name / "checkpoints"
        shutil.rmtree(HERE / name, ignore_errors=True)
        self.model, self.heads = model, {}
        self.manager = tfadaptcp.CheckpointManager(model, self.directory, policy, max_to_keep=10, **kwargs)

    def save(self, left=lambda copy: copy, **kwargs):
        """`left`: what of a copy the files hold."""
        copy = left(oracle.take(self.model))
        info = self.manager.save(**kwargs)
        self.manager.wait()
        self.heads[info.name] = {
            "step": info.step, "epoch": info.epoch, "batch": info.batch, "scalars": copy.scalars,
            "tables": {table: sorted([key.hex() if isinstance(key, bytes) else key, row.hex()]
                                     for key, (_, row) in found.items()) for table, found in copy.tables.items()},
            "dense": {variable: [dtype, shape, value.hex()] for variable, (dtype, shape, value) in copy.dense.items()}}

    def close(self):
        self.manager.close()
        text = json.dumps(self.heads, sort_keys=True, separators=(",", ":"))
        (self.directory.parent / "expected.json").write_text(text.replace('},"', '},\n"') + "\n")


def types():
    model = models.types()
    recorder = Recorder("types", model, LONG_CHAIN)
    for i in range(3):
        rows.write(model, range(4 * i, 4 * i + 7), seed=i)
        rows.write(model, [0, 1], seed=10 + i)
        rows.remove(model, [4 * i + 2])
        model.get_layer("wide").parts[i].assign_add(tf.ones_like(model.get_layer("wide").parts[i]))
        recorder.save()
    recorder.close()


def adaptive():
    """Hot and cold rows, rows without slots, rows in a slot alone, tombstones, in two shards."""
    model = models.adaptive()
    recorder = Recorder("adaptive", model, LONG_CHAIN, engine=SMALL)
    for i in range(3):
        model.train_on_batch(*oracle.batch(i, keys=24, size=8))
        rows.write(model, [-2**63, -1, 2**63 - 1], seed=i)
        rows.write(model, range(1000 + 3 * i, 1006 + 3 * i), seed=i, tables=slice(1))
        rows.write(model, [2000 + i], seed=i, tables=slice(1, 2))
        rows.remove(model, [1001 + 3 * i, 0])
        recorder.save(epoch=i // 2, batch=i % 2)
    recorder.close()


def renewed():
    """Two bases and a restore, after which the restored head was published again."""
    model = models.renewed()
    recorder = Recorder("renewed", model, policies.Incremental(full_every=2))
    for i in range(5):
        model.train_on_batch(*oracle.batch(i, keys=24, size=8))
        rows.remove(model, [i, i + 1])
        recorder.save()
        if i == 3:
            recorder.manager.restore(list(recorder.heads)[2])
    recorder.close()


def two_ps():
    """A cluster of two parameter servers, dense variables on both."""
    with tfadaptcp.testing.LocalCluster(1, 2) as cluster:
        # It can't be called in a scope; the process is fresh.
        with mock.patch.object(tf.keras.backend, "clear_session"), cluster.strategy().scope():
            model = models.two_ps(devices=[f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(2)])
        recorder = Recorder("two_ps", model, LONG_CHAIN, engine=SMALL)
        data = tf.data.Dataset.from_tensor_slices(
            tuple(tf.concat([oracle.batch(i, keys=24, size=8)[part] for i in range(8)], 0) for part in (0, 1)))
        data = data.batch(8).repeat()
        for i in range(3):
            model.fit(data, steps_per_epoch=2, verbose=0)
            rows.remove(model, [3 * i, 3 * i + 1])
            recorder.save(epoch=i + 1)
        recorder.close()


def quantized():
    """Every codec in one chain, each row by that of the checkpoint that wrote it; raw rows among them."""
    model = models.quantized()
    recorder = Recorder("quantized", model, "incremental")
    bfloat16 = Quantization(method="bfloat16")
    kept = {}
    for i, how in enumerate([Quantization(8), Quantization(2, "adaptive", slots=Quantization(2, "kmeans")),
                             Quantization(3, "kmeans", slots="raw"), Quantization(4, "symmetric", slots=bfloat16), None]):
        recorder.manager = tfadaptcp.CheckpointManager(model, recorder.directory, "incremental", max_to_keep=10,
                                                       quantization=how)
        for number, (_, variable) in enumerate(oracle.tables_of(model)):
            values = tf.random.stateless_normal([5, 6], [i, number])
            variable.upsert(tf.range(3 * i, 3 * i + 5, dtype=tf.int64), values)
        rows.write(model, [100 + i], seed=i)  # any bits, NaN among them
        rows.write(model, [200 + i], value=3.0)
        rows.write(model, [300 + i], value=0.1)
        rows.remove(model, [3 * i + 1])
        written = {*range(3 * i, 3 * i + 5), 100 + i, 200 + i, 300 + i}

        def left(copy):
            decided = None if how is None else how.decide()
            pairs = [None if entry is None else (entry["method"], entry["bits"])
                     for entry in (decided, decided and decided["slots"])]
            found = quantizing.of_copy(copy, model, *pairs, written)
            for name, table in found.tables.items():
                found.tables[name] = {key: kept.get((name, key), row) if key not in written else row
                                      for key, row in table.items()}
                kept.update({(name, key): row for key, row in found.tables[name].items()})
            return found
        recorder.save(left)
    recorder.close()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or list(models.MODELS):
        globals()[chosen]()
