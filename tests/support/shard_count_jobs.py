"""Restores into other numbers of parameter servers, on one cluster; for a process of its own (`run_job`)."""

from __future__ import annotations

import os

import tfadaptcp

import tensorflow as tf

from tests.support import embedding_model as em
from tests.support import oracle, rows
from tfadaptcp import policies
from tfadaptcp.testing import LocalCluster

COUNTS = (1, 2, 3, 5)
KEYS = [*range(80), *range(-40, 0), *range(2**31 - 3, 2**31 + 40), 2**62, -2**62, 2**63 - 1, -2**63]


def every_number_into_every_other() -> dict[str, str | None]:
    """What differs from a full copy, by pair of numbers; None where nothing does."""
    found = {}
    with LocalCluster(1, max(COUNTS)) as cluster:
        strategy = cluster.strategy()

        def build(num_ps: int, seed: int) -> tf.keras.Model:
            tf.keras.backend.clear_session()
            with strategy.scope():
                return oracle.build("momentum", devices=em.ps_devices(num_ps), dim=2, seed=seed, clear=False)

        copies = {}
        for num_ps in COUNTS:
            model = build(num_ps, 5)
            policy = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=10, max_restore_factor=50.0)
            manager = tfadaptcp.CheckpointManager(model, _directory(num_ps), policy)
            for i in range(3):
                rows.write(model, KEYS[20 * i:20 * i + 120], seed=i)
                rows.remove(model, KEYS[30 * i + 10:30 * i + 20])
                copies[num_ps] = oracle.take(model)
                manager.save()
                rows.write(model, KEYS[::7], seed=100 + i)  # after the cut
                manager.wait()
        for num_ps in COUNTS:
            model = build(num_ps, 9)
            rows.write(model, [1, 2, 5000])  # must go
            for written, copy in copies.items():
                model.load_adaptcp(_directory(written))
                differs = oracle.difference(copy, oracle.take(model), shards=written == num_ps)
                found[f"{written} into {num_ps}"] = differs or _misplaced(model)
    return found


def _directory(num_ps: int) -> str:
    return os.path.join(os.environ["CHECKPOINTS"], f"ps{num_ps}")


def _misplaced(model: tf.keras.Model) -> str | None:
    """Names a row that is in another shard than a lookup searches."""
    for name, variable in oracle.tables_of(model):
        for shard, table in enumerate(variable.tables):
            keys = table.export()[0]
            if bool(tf.reduce_any(variable.partition_fn(keys, variable.shard_num) != shard)):
                return f"{name}: shard {shard} holds rows of others"
    return None
