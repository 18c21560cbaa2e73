"""What the coordinator needs for each parameter server: tiny tables on a real cluster of processes on loopback.

    python -m benchmarks.scale.fan_out --ps 16 --checkpoints 9

Prints medians over checkpoints, in ms: of the cut, of the save until the last reply is there, and of telling the outcome. Two
cores carry all these processes, servers too, which have machines of their own elsewhere: what a further server costs the
coordinator is less than that.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, Sequence

from benchmarks.scale.inputs import Input, Inputs, line, median

PHASES = ("cut", "save", "resolve")
_ROWS = 64  # of each parameter server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps", type=int, default=16)
    parser.add_argument("--checkpoints", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfadaptcp-scale-") as directory:
        print(json.dumps(run(args.ps, args.checkpoints, directory)), flush=True)
    # A coordinator whose servers have gone is not worth tearing down in order.
    os._exit(0)


def measure(numbers: Sequence[int], checkpoints: int) -> Inputs:
    """Runs `main` for each number of servers in a process of its own; returns a constant and a slope for each phase."""
    found = {}
    for n in numbers:
        done = subprocess.run([sys.executable, "-m", __name__, "--ps", str(n), "--checkpoints", str(checkpoints)],
                              stdout=subprocess.PIPE, text=True, check=True,
                              env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"})
        found[n] = json.loads(done.stdout.splitlines()[-1])
        print(f"{n} ps: {found[n]}", flush=True)
    command = f"python -m benchmarks.scale.fan_out --ps {max(numbers)}, and for {', '.join(map(str, numbers))}"
    inputs = {}
    for phase in PHASES:
        constant, slope = line((n, found[n][phase]) for n in found)
        inputs[f"{phase}_ms"] = Input(max(0.0, constant), "ms", f"{phase} of a checkpoint, without any ps", command)
        inputs[f"{phase}_ms_per_ps"] = Input(slope, "ms", f"{phase} of a checkpoint, for each ps", command)
        inputs[f"{phase}_ms_measured"] = Input(found[max(numbers)][phase], "ms",
                                               f"{phase} of a checkpoint with {max(numbers)} ps", command)
    return inputs


def run(num_ps: int, checkpoints: int, directory: str) -> Dict[str, float]:
    """Checkpoints on a cluster, each after a few updates; the median ms of each phase. Once in a process."""
    import tfadaptcp
    import tensorflow as tf
    import tensorflow_recommenders_addons.dynamic_embedding as de
    from tfadaptcp.testing import LocalCluster
    with LocalCluster(1, num_ps) as cluster:
        strategy = cluster.strategy()
        with strategy.scope():
            ids = tf.keras.Input((1,), dtype=tf.int64)
            layer = de.keras.layers.Embedding(
                4, name="emb", devices=[f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(num_ps)])
            model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(layer(ids))))
            model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(1e-3)))
            model.optimizer._create_all_weights(model.trainable_variables)
        keys = tf.range(_ROWS * num_ps, dtype=tf.int64)
        manager = tfadaptcp.CheckpointManager(model, os.path.join(directory, "checkpoints"), "incremental")
        samples: Dict[str, List[float]] = {phase: [] for phase in PHASES}
        for number in range(-2, checkpoints):
            layer.params.upsert(keys, tf.zeros([_ROWS * num_ps, 4]))
            with _timed(manager) as seconds:
                manager.save()
                manager.wait()
            if number >= 0:  # the first one is a base, the second retraces
                for phase in PHASES:
                    samples[phase].append(1e3 * seconds[phase])
        manager.close()
        return {phase: round(median(numbers), 3) for phase, numbers in samples.items()}


@contextlib.contextmanager
def _timed(manager: Any) -> Iterator[Dict[str, float]]:
    """Yields what each phase of the checkpoints made inside takes, in seconds."""
    seconds: Dict[str, float] = dict.fromkeys(PHASES, 0.0)

    @contextlib.contextmanager
    def watched(phase: str) -> Iterator[None]:
        inner = getattr(manager.engine, phase)

        def outer(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                seconds[phase] += time.perf_counter() - start
        setattr(manager.engine, phase, outer)
        try:
            yield
        finally:
            delattr(manager.engine, phase)

    with contextlib.ExitStack() as stack:
        for phase in PHASES:
            stack.enter_context(watched(phase))
        yield seconds


if __name__ == "__main__":
    main()
