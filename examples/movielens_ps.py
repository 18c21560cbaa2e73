"""Trains on MovieLens-100k with parameter servers, loses one of them, and gets everything back.

    python examples/movielens_ps.py --data .cache/ml-100k

The first job trains on 2 workers and 2 parameter servers, with a checkpoint every 100 batches, until a parameter server
is killed by SIGKILL. The second job, a new process with 2 workers and 3 parameter servers, restores the newest
checkpoint and goes on with the rest of the ratings. Before each cut the script makes a full copy of the model, for the
one purpose of comparing the restored model with it, bit for bit.

With `--policy check_n_run`, or another name of `tfadaptcp.policies.get`, the same jobs run on the system of that name.

Exit code 0 only if the two are equal, and AdaptCP's checkpoints had hot and cold rows, captured in the background and by
lookups or updates.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAVE_FREQ = 100
BATCH_SIZE = 64
DIM = 32
WORKERS = 2


@dataclasses.dataclass(frozen=True)
class Plan:
    """When the first job's parameter server dies, and how many batches both jobs train on together."""
    kill_at: int
    batches: int


FULL, SMALL = Plan(kill_at=650, batches=1000), Plan(kill_at=350, batches=500)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


# ---- the model --------------------------------------------------------------


def build_model(num_ps: int):
    """Two towers and crossed features, combined by their dot products as in DLRM. Call it in the strategy's scope."""
    import movielens_data as data
    import tensorflow as tf
    from tensorflow_recommenders_addons import dynamic_embedding as de
    layers = tf.keras.layers

    def embedding(name):
        # Each table is spread over all parameter servers. Rows come into being when their key is first seen.
        return de.keras.layers.Embedding(
            DIM, name=name, devices=[f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(num_ps)],
            initializer=tf.random_normal_initializer(stddev=0.05))

    user, item = (tf.keras.Input((1,), dtype=tf.int64, name=name) for name in ("user", "item"))
    crosses = tf.keras.Input((data.CROSSES,), dtype=tf.int64, name="crosses")
    user_features = tf.keras.Input((data.USER_FEATURES,), name="user_features")
    item_features = tf.keras.Input((data.GENRES,), name="item_features")

    def tower(ids, features, name):
        row = layers.Flatten()(embedding(f"{name}_embedding")(ids))
        return layers.Dense(DIM, name=f"{name}_tower")(layers.Concatenate()([row, features]))

    vectors = layers.Concatenate(axis=1)([
        layers.Reshape((1, DIM))(tower(user, user_features, "user")),
        layers.Reshape((1, DIM))(tower(item, item_features, "item")),
        embedding("cross_embedding")(crosses)])
    products = layers.Flatten()(layers.Dot(axes=2)([vectors, vectors]))
    hidden = layers.Dense(64, "relu", name="hidden")(
        layers.Concatenate()([products, layers.Flatten()(vectors), user_features, item_features]))
    rating = layers.Dense(1, bias_initializer=tf.keras.initializers.Constant(3.5), name="rating")(hidden)
    model = tf.keras.Model([user, item, crosses, user_features, item_features], rating)
    model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(1e-3)), "mse")
    return model


def checkpoint_callback(work: Path, policy: str):
    """What a user adds to `fit`; the arguments after `save_freq` suit this example, the defaults suit real jobs."""
    import tfadaptcp
    if policy != "adaptive":
        return tfadaptcp.AdaptCPCallback(work / "checkpoints", save_freq=SAVE_FREQ, policy=policy)
    return tfadaptcp.AdaptCPCallback(
        work / "checkpoints", save_freq=SAVE_FREQ,
        # A new base every 6 checkpoints, and restores that weigh a lot: so that rows turn hot among so few checkpoints.
        # The first base has next to nothing of the rows to come; what follows may well grow to twice its size.
        policy=tfadaptcp.policies.Adaptive(renewal="period", first_period=6, restore_weight=10, max_restore_factor=20),
        # Little room for rows that are captured and not written yet: here all of them would fit, as they never do in a
        # large job, and training would hardly meet a row that is still to be saved.
        engine=tfadaptcp.EngineOptions(capture_memory_bytes=1 << 18))


# ---- the jobs ---------------------------------------------------------------


def run_job(source: Path, work: Path, num_ps: int, kill_at: int | None, batches: int, policy: str) -> dict:
    """Trains up to batch number `batches`, from the newest checkpoint if there is one; returns what there is to tell."""
    with contextlib.redirect_stdout(io.StringIO()):  # TFRA prints
        import tfadaptcp
    import full_copy
    import movielens_callbacks as callbacks
    import movielens_data as data
    import tensorflow as tf

    stream = work / "ratings.csv"
    if not stream.exists():
        say("writing the ratings in the order of time")
        data.write_stream(source, stream)
    cluster = tfadaptcp.testing.LocalCluster(WORKERS, num_ps)
    # The code that AutoGraph generates would stay behind when this process ends by os._exit.
    tempfile.tempdir = str(work)
    say(f"{WORKERS} workers and {num_ps} parameter servers are up")
    strategy = cluster.strategy()
    with strategy.scope():
        model = build_model(num_ps)

    result, first = {}, 0
    if (work / "checkpoints").exists():
        report = model.load_adaptcp(work / "checkpoints")
        first = report.step
        say(f"restored checkpoint {report.checkpoint}, step {report.step}, in {report.seconds:.2f} s")
        restored, expected = full_copy.take(model), full_copy.load(callbacks.copy_path(work, report.step))
        result.update(
            checkpoint=report.checkpoint, step=report.step, restore_seconds=report.seconds, bytes_read=report.bytes_read,
            rows=sum(report.rows.values()), tables=len(report.rows),
            differences=full_copy.differences(restored, expected),
            dense=sum(name.startswith("dense/") for name in expected))

    dataset = tf.keras.utils.experimental.DatasetCreator(
        lambda context: data.stream(str(stream), BATCH_SIZE, first, WORKERS))
    checkpoints = checkpoint_callback(work, policy)
    # Nothing is restored after the second job, so it needs no copies.
    witness = callbacks.Witness(SAVE_FREQ, cluster.coordinator(), work if kill_at is not None else None)
    log = callbacks.CheckpointLog(checkpoints, say)
    extra = [] if kill_at is None else [callbacks.Kill(cluster, kill_at, say)]
    say(f"training from batch {first}; the first step is traced first")
    try:
        model.fit(dataset, steps_per_epoch=batches - first, verbose=0, callbacks=[witness, log, checkpoints, *extra])
    except tf.errors.UnavailableError:
        if kill_at is None:
            raise
        say("fit raised UnavailableError")
        result["failed"] = True
    else:
        log.note()
        say(f"trained up to batch {batches}")
    cluster.stop()
    return {**result, "checkpoints": log.checkpoints, "losses": witness.losses, "drain_wait": witness.drain_wait}


def start_job(name: str, work: Path, options: list[str]) -> dict:
    """Runs a job in a process of its own, as TensorFlow connects a process to one cluster only."""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, "--job", name, "--work", str(work), *options]
    # TensorFlow says a lot about a server that is killed. It is shown if something else goes wrong.
    with open(work / f"{name}.log", "w+", encoding="utf-8", errors="replace") as errors:
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stderr=errors, check=False).returncode
        if code != 0:
            errors.seek(0)
            sys.exit("".join(errors.readlines()[-50:]) + f"\nThe {name} job ended with exit code {code}.")
    return json.loads((work / f"{name}.json").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(".cache/ml-100k"), help="the folder that `make data` fills")
    parser.add_argument("--small", action="store_true", help="train on fewer batches")
    parser.add_argument("--policy", default="adaptive", metavar="NAME", help="adaptive, check_n_run, native_incremental, "
                        "incr_ckpt_<N>, incremental, differential or full")
    parser.add_argument("--job", choices=("first", "second"), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    plan = SMALL if arguments.small else FULL

    if arguments.job is not None:
        num_ps, kill_at = (2, plan.kill_at) if arguments.job == "first" else (3, None)
        result = run_job(arguments.data, arguments.work, num_ps, kill_at, plan.batches, arguments.policy)
        (arguments.work / f"{arguments.job}.json").write_text(json.dumps(result))
        sys.stdout.flush()
        # Without taking TensorFlow down: it would wait for servers that have gone.
        os._exit(0)

    if not (arguments.data / "ml-100k.inter").exists():
        parser.error(f"--data: Received: {arguments.data}, without ml-100k.inter. Expected: what `make data` fetches")
    import movielens_report
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="movielens-ps-") as folder:
        options = ["--data", str(arguments.data), "--policy", arguments.policy, *(["--small"] if arguments.small else [])]
        jobs = [start_job(name, Path(folder), options) for name in ("first", "second")]
    say(f"done in {time.monotonic() - started:.0f} s\n")
    return movielens_report.show(*jobs, policy=arguments.policy)


if __name__ == "__main__":
    sys.exit(main())
