"""Steps per second while a base is being written, beside steps per second without: one process, or a cluster on loopback.

    python -m benchmarks.base_throughput [--rows 2000000] [--rounds 5] [--ps 0] [--json FILE]

The job: batches of 1,024 examples with 26 categories out of one key space, Zipf-like, dim 16, legacy Adam, data from
stateless ops. Every round trains for a while without a checkpoint, then until a base has been written; a ratio is that
of two neighbours, and the figure the median of the ratios. `--ps 2` runs it under ParameterServerStrategy, with one worker.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List

CATEGORIES, BATCH, DIM = 26, 1024, 16
EXPONENT = 1.2
FILL_BATCH = 1 << 16
# Between two looks at whether the base is written; not fewer, or a cluster would stand still for them.
CHUNK = 20
GOAL = 0.85


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="of each of the three tables")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scanned", action="store_true", help="bases that are read beside training, without a cut")
    parser.add_argument("--ps", type=int, default=0, help="parameter servers; 0: none, all in this process")
    parser.add_argument("--directory", default=None, help="where checkpoints go")
    parser.add_argument("--json", help="file for the figures of every round")
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
    from benchmarks import measuring
    directory = tempfile.mkdtemp(prefix="tfadaptcp-throughput-", dir=args.directory)
    try:
        print(f"{measuring.machine()}\n{args.rows} rows, {args.ps or 'no'} parameter servers", flush=True)
        neighbours = measuring.Neighbours()
        with job(args.rows, args.ps) as (model, run):
            rounds = measure(model, run, os.path.join(directory, "checkpoints"), args.rounds, args.scanned)
        report(rounds)
        # Of a cluster the servers count as others.
        print(f"others used {neighbours.share():.0%} of the machine; load {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": measuring.machine(), "rows": args.rows, "ps": args.ps, "rounds": rounds}, file)


@contextlib.contextmanager
def job(rows: int, ps: int) -> Iterator[Any]:
    """Yields the model, its rows written, and a function that trains for n steps and returns when they are done."""
    import tensorflow as tf
    if ps == 0:
        model = _build(rows, None)
        step = tf.function(_step_of(model, rows), autograph=False)
        yield model, lambda n: [step(tf.random.uniform([], maxval=1 << 30, dtype=tf.int32)) for _ in range(n)]
        return
    from tfadaptcp.testing import LocalCluster
    with LocalCluster(1, ps) as cluster:
        strategy, coordinator = cluster.strategy(), cluster.coordinator()
        with strategy.scope():
            model = _build(rows, [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(ps)])
        step = _step_of(model, rows)

        @tf.function(autograph=False)
        def on_worker(seed):
            strategy.run(step, args=(seed,))

        def run(n: int) -> None:
            for _ in range(n):
                coordinator.schedule(on_worker, args=(tf.random.uniform([], maxval=1 << 30, dtype=tf.int32),))
            coordinator.join()

        yield model, run


def _build(rows: int, devices: Any) -> Any:
    import numpy as np
    import tensorflow as tf
    import tensorflow_recommenders_addons.dynamic_embedding as de
    ids = tf.keras.Input((CATEGORIES,), dtype=tf.int64)
    table = de.keras.layers.Embedding(DIM, devices=devices, name="clicks",
                                      initializer=tf.keras.initializers.Constant(0.01))
    hidden = tf.keras.layers.Dense(64, "relu")(tf.keras.layers.Flatten()(table(ids)))
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(hidden))
    model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(1e-3)))
    model.optimizer._create_all_weights(model.trainable_variables)
    slots = [wrapper.params for wrapper in model.optimizer.variables() if isinstance(wrapper, de.TrainableWrapper)]
    keys = np.random.default_rng(0).permutation(rows)
    for start in range(0, rows, FILL_BATCH):
        batch = tf.constant(keys[start:start + FILL_BATCH], tf.int64)
        for variable in [table.params, *slots]:
            variable.upsert(batch, tf.zeros([len(batch), DIM]) + 0.01)
    return model


def _step_of(model: Any, rows: int) -> Callable[[Any], None]:
    import tensorflow as tf
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=tf.keras.losses.Reduction.SUM)

    def step(seed: tf.Tensor) -> None:
        # Ranks by inversion of the Zipf distribution, scattered over the keys.
        u = tf.random.stateless_uniform([BATCH, CATEGORIES], [seed, 0], dtype=tf.float64)
        a = 1 - EXPONENT
        ranks = (u * ((rows + 1.0) ** a - 1) + 1) ** (1 / a) - 1
        ids = tf.cast(tf.minimum(ranks, rows - 1.0), tf.int64) * 2654435761 % rows
        labels = tf.cast(ids[:, :1] % 4 == 0, tf.float32)
        with tf.GradientTape() as tape:
            value = loss(labels, model(ids, training=True)) / BATCH
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))

    return step


def measure(model: Any, run: Callable[[int], Any], directory: str, rounds: int,
            scanned: bool = False) -> List[Dict[str, float]]:
    """Alternates training without a checkpoint and beside a base, each time about as long."""
    import tfadaptcp
    policy = tfadaptcp.policies.Incremental(full_every=1) if scanned else "full"
    manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=1)

    def is_writing() -> bool:
        return manager.is_saving or manager.stats()["scanning"]

    run(2 * CHUNK)
    while True:  # until the next checkpoint begins what is measured
        manager.save()
        manager.wait()
        if not scanned or manager.stats()["scanning"]:
            break
    while is_writing():
        time.sleep(0.01)
    found = []
    chunks = 5
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(chunks):
            run(CHUNK)
        plain = chunks * CHUNK / (time.perf_counter() - start)
        start = time.perf_counter()
        manager.save()
        cut = time.perf_counter() - start
        chunks = 0
        while is_writing() or chunks == 0:
            run(CHUNK)
            chunks += 1
        beside = chunks * CHUNK / (time.perf_counter() - start)
        manager.wait()
        stats = manager.stats()
        if scanned:
            manager.save()  # goes by that base, so that the one after begins another
            manager.wait()
        found.append({"plain": plain, "beside": beside, "ratio": beside / plain, "cut_seconds": cut,
                      "base_seconds": stats.get("save_seconds", 0.0),
                      "update_wait_seconds": stats.get("update_wait_seconds", 0.0),
                      "rows_by_update": stats.get("rows_by_update", 0)})
    manager.close()
    return found


def report(rounds: List[Dict[str, float]]) -> None:
    """Prints the rounds and their median."""
    for found in rounds:
        print(f"  {found['plain']:7.1f} steps/s, beside a base {found['beside']:7.1f}: x {found['ratio']:.3f}; cut "
              f"{1000 * found['cut_seconds']:.0f} ms, base {found['base_seconds']:.2f} s, updates waited "
              f"{1000 * found['update_wait_seconds']:.0f} ms for room")
    print(f"steps beside a base: median x {statistics.median(found['ratio'] for found in rounds):.3f} of those without, "
          f"goal at least {GOAL}")


if __name__ == "__main__":
    main()
