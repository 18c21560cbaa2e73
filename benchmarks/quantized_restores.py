"""What restores out of quantised checkpoints do to learning: losses beside those of the run without any.

    python -m benchmarks.quantized_restores [--jobs movielens,clicks] [--widths raw,bf16,8,4,3,2] [--restores 1,3,10]

Every run trains on the same examples in the same order from the same first state. At so many moments, evenly spread, it
saves a checkpoint by Check-N-Run's policy and goes on from what that checkpoint restores. Everything is in one process.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import tempfile
import time
from typing import Any, Dict, List, Optional


@dataclasses.dataclass
class Outcome:
    """Mean losses: of the steps of the last tenth, as they were trained, and of the held-out examples at the end.

    `bytes` is what a restore of the last checkpoint reads, 0 without one.
    """
    trained: float
    held_out: float
    bytes: int
    seconds: float


def quantization_of(width: str, slots: str) -> Any:
    """What `quantization=` takes: the method recommended at this width."""
    import tfadaptcp
    if width == "raw":
        return None
    options: Dict[str, Any] = {} if slots == "default" else {"slots": "raw"}
    if width == "bf16":
        return tfadaptcp.Quantization(method="bfloat16", **options)
    return tfadaptcp.Quantization(int(width), "auto", **options)


def run(job: Any, step: Any, start: str, directory: Optional[str], restores: int, quantization: Any) -> Outcome:
    """Trains from the state in `start`; with a directory, through restores out of it."""
    import tensorflow as tf

    import tfadaptcp
    from benchmarks.learning_jobs import mean_loss
    began = time.monotonic()
    job.model.load_adaptcp(start)
    manager, size = None, 0
    if directory is not None:
        manager = tfadaptcp.CheckpointManager(job.model, directory, "check_n_run", quantization=quantization, max_to_keep=1)
    when = {round(job.steps * (i + 1) / (restores + 1)) for i in range(restores)}
    losses: List[float] = []
    for number in range(job.steps):
        if number in when:
            manager.save()
            size = manager.wait().bytes
            manager.restore()
        some = slice(number * job.batch, (number + 1) * job.batch)
        losses.append(step(*(tf.constant(job.train[name][some]) for name in ("ids", "dense", "labels"))))
    if manager is not None:
        manager.close()
    last = [float(loss) for loss in losses[-max(1, job.steps // 10):]]
    return Outcome(sum(last) / len(last), mean_loss(job, job.held_out)[0], size, time.monotonic() - began)


def step_of(job: Any) -> Any:
    """One step of training as a graph: (ids, dense, labels) -> loss."""
    import tensorflow as tf

    @tf.function(reduce_retracing=True, autograph=False)
    def step(ids, dense, labels):
        with tf.GradientTape() as tape:
            loss = job.loss(labels, job.model({"ids": ids, "dense": dense}, training=True))
        variables = job.model.trainable_variables
        job.model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default="movielens,clicks")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(".cache/ml-100k"), help="what `make data` fetches")
    parser.add_argument("--widths", default="raw,bf16,8,4,3,2", help="raw, bf16, or bits per value")
    parser.add_argument("--restores", default="1,3,10")
    parser.add_argument("--steps", type=int, default=800, help="steps of the job clicks")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the job clicks")
    parser.add_argument("--epochs", type=int, default=3, help="of the job movielens")
    parser.add_argument("--slots", choices=("default", "raw"), default="default", help="of quantised runs")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    import tfadaptcp
    from benchmarks import learning_jobs, measuring
    print(measuring.machine())
    for name in args.jobs.split(","):
        tf.keras.backend.clear_session()
        job = (learning_jobs.movielens(args.data, args.epochs, seed=args.seed) if name == "movielens"
               else learning_jobs.clicks(args.steps, args.rows, seed=args.seed))
        directory = tempfile.mkdtemp(prefix="tfadaptcp-benchmark-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        try:
            first = tfadaptcp.CheckpointManager(job.model, f"{directory}/start", "full")
            first.save()
            first.wait()
            first.close()
            compare(name, job, directory, args)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def compare(name: str, job: Any, directory: str, args: argparse.Namespace) -> None:
    """Runs all cases of a job and prints a table."""
    step, start = step_of(job), f"{directory}/start"
    runs = [run(job, step, start, None, 0, None) for _ in range(2)]
    plain = runs[0]
    print(f"\n{name}: {job.steps} steps of {job.batch}, {plain.seconds:.0f} s. Without restores: loss {plain.trained:.6f} in "
          f"training, {plain.held_out:.6f} held out; the same again: {_change(runs[1].trained, plain.trained)}, "
          f"{_change(runs[1].held_out, plain.held_out)}")
    print(f"{'width':>6} {'restores':>9} {'training':>12} {'held out':>12} {'MB per restore':>15}")
    for width in args.widths.split(","):
        for restores in (int(text) for text in args.restores.split(",")):
            outcome = run(job, step, start, f"{directory}/{width}-{restores}", restores, quantization_of(width, args.slots))
            print(f"{width:>6} {restores:>9} {_change(outcome.trained, plain.trained):>12} "
                  f"{_change(outcome.held_out, plain.held_out):>12} {outcome.bytes / 1e6:>15.2f}", flush=True)
            shutil.rmtree(f"{directory}/{width}-{restores}")


def _change(value: float, to: float) -> str:
    return f"{100 * (value / to - 1):+.4f} %"


if __name__ == "__main__":
    main()
