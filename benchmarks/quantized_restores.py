"""What restores out of quantised checkpoints do to learning: losses beside those of the run without any.

    python -m benchmarks.quantized_restores [--jobs movielens,clicks] [--widths raw,nudge,bf16,8,4,3,2] [--restores 1,3,10]

Every run of a seed trains on the same examples in the same order from the same first state. At so many moments, evenly
spread, it saves a checkpoint by Check-N-Run's policy and goes on from what that checkpoint restores. A "nudge" restores
nothing: at these moments the output's bias is moved by 1e-6. What that changes is chance. All is in one process.
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


def run(job: Any, step: Any, start: str, directory: Optional[str], restores: int, quantization: Any = None) -> Outcome:
    """Trains from the state in `start`; with a directory, through restores out of it, without one through nudges."""
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
        if number in when and manager is None:
            job.model.get_layer("out").bias.assign_add([1e-6])
        elif number in when:
            manager.save()
            size = manager.wait().bytes
            manager.restore()
        some = slice(number * job.batch, (number + 1) * job.batch)
        losses.append(step(*(tf.constant(job.train[name][some]) for name in ("ids", "dense", "labels"))))
    if manager is not None:
        manager.close()
    last = [float(loss) for loss in losses[-max(1, job.steps // 10):]]
    return Outcome(sum(last) / len(last), mean_loss(job, job.held_out), size, time.monotonic() - began)


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
    parser.add_argument("--widths", default="raw,nudge,bf16,8,4,3,2", help="raw, nudge, bf16, or bits per value")
    parser.add_argument("--restores", default="1,3,10")
    parser.add_argument("--steps", type=int, default=800, help="steps of the job clicks")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the job clicks")
    parser.add_argument("--epochs", type=int, default=3, help="of the job movielens")
    parser.add_argument("--slots", choices=("default", "raw"), default="default", help="of quantised runs")
    parser.add_argument("--seeds", default="1", help="of data and first states: each change is the mean over them")
    args = parser.parse_args()

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    from benchmarks import measuring
    print(measuring.machine())
    for name in args.jobs.split(","):
        seeds = [int(text) for text in args.seeds.split(",")]
        outcomes = {seed: outcomes_of(name, seed, args) for seed in seeds}
        report(name, outcomes)


def outcomes_of(name: str, seed: int, args: argparse.Namespace) -> Dict[Any, Outcome]:
    """Runs every case of a job: {(width, restores): outcome}, ("", 0) being the run without any restore."""
    import tensorflow as tf

    import tfadaptcp
    from benchmarks import learning_jobs
    tf.keras.backend.clear_session()
    job = (learning_jobs.movielens(args.data, args.epochs, seed=seed) if name == "movielens"
           else learning_jobs.clicks(args.steps, args.rows, seed=seed))
    root = tempfile.mkdtemp(prefix="tfadaptcp-benchmark-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        first = tfadaptcp.CheckpointManager(job.model, f"{root}/start", "full")
        first.save()
        first.wait()
        first.close()
        step, start = step_of(job), f"{root}/start"
        found = {("", 0): run(job, step, start, None, 0)}
        plain = found["", 0]
        print(f"\n{name}, seed {seed}: {job.steps} steps of {job.batch}, {plain.seconds:.0f} s. Without restores: loss "
              f"{plain.trained:.6f} in training, {plain.held_out:.6f} held out", flush=True)
        for width in args.widths.split(","):
            for restores in (int(text) for text in args.restores.split(",")):
                directory = None if width == "nudge" else f"{root}/{width}-{restores}"
                found[width, restores] = run(job, step, start, directory, restores,
                                             None if width == "nudge" else quantization_of(width, args.slots))
                print(f"  {width}, {restores} restores: {found[width, restores]}", flush=True)
                shutil.rmtree(f"{root}/{width}-{restores}", ignore_errors=True)
        return found
    finally:
        shutil.rmtree(root, ignore_errors=True)


def report(name: str, outcomes: Dict[int, Dict[Any, Outcome]]) -> None:
    """Prints the changes against the run without restores: mean over the seeds, least and greatest."""
    print(f"\n{name}, {len(outcomes)} seeds: change of the loss in %, mean (least to greatest)")
    print(f"{'width':>6} {'restores':>9}  {'in training':<29}  {'held out':<29} {'MB per restore':>15}")
    for case in next(iter(outcomes.values())):
        if not case[1]:
            continue
        shown = []
        for field in ("trained", "held_out"):
            changes = [100 * (getattr(found[case], field) / getattr(found["", 0], field) - 1) for found in outcomes.values()]
            mean = sum(changes) / len(changes)
            shown.append(f"{mean:+.3f} ({min(changes):+.3f} to {max(changes):+.3f})")
        size = max(found[case].bytes for found in outcomes.values()) / 1e6
        print(f"{case[0]:>6} {case[1]:>9}  {shown[0]:<29}  {shown[1]:<29} {size:>15.2f}")


if __name__ == "__main__":
    main()
