"""What it saves to capture rows at their lookup: steps beside the save of a base, with it and without.

    python -m benchmarks.lookup_capture [--rows 2500000] [--windows-ms 0,5,20,50]

A step looks up a batch of keys, computes for a while (the window), and updates them in three tables. While a base is
drained, an update captures those of its rows that nobody has captured yet, and that is time of training. With
`lookup_capture` the drain takes what was looked up first. Cases alternate in every round.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from typing import Any, Dict, List


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_500_000, help="rows per table; there are three")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1 << 13, help="keys of a step")
    parser.add_argument("--windows-ms", default="0,5,20,50", help="computing between lookup and update")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    args = parser.parse_args()

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tfadaptcp  # noqa: F401
    from benchmarks import measuring
    from benchmarks.tables import AdamTables

    directory = tempfile.mkdtemp(prefix="tfadaptcp-benchmark-", dir=args.directory)
    try:
        print(measuring.machine())
        tables = AdamTables(args.rows, args.dim)
        tables.attach()
        tables.fill()
        windows = [float(text) / 1000 for text in args.windows_ms.split(",")]
        samples: Dict[Any, List[Dict[str, float]]] = {}
        for number in range(args.rounds + 1):
            for window in windows:
                for hurry in (False, True) if number % 2 else (True, False):
                    sample = save_beside_steps(tables, args.batch, window, hurry, os.path.join(directory, "base"))
                    if number:  # the first round is not counted
                        samples.setdefault((window, hurry), []).append(sample)
        report(windows, samples)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def save_beside_steps(tables: Any, batch: int, window: float, hurry: bool, directory: str) -> Dict[str, float]:
    """Returns what the save captured by source, per step, and how long the updates of a step took."""
    import tensorflow as tf
    from benchmarks.keys import KeyDraws
    draws = KeyDraws(tables.rows, batch, "uniform")
    values = tf.random.stateless_normal([batch, tables.dim], [3, 4])
    batches = [tf.constant(draws.next()) for _ in range(64)]
    tables.cut("base", lookup_capture=hurry)
    reply: Dict[str, Any] = {}
    saver = threading.Thread(target=lambda: reply.update(tables.save("base", directory)))
    saver.start()
    steps, updating = 0, 0.0
    while saver.is_alive():
        keys = batches[steps % len(batches)]
        tables.tracked_find(keys)
        time.sleep(window)
        start = time.perf_counter()
        tables.tracked_insert(keys, values)
        updating += time.perf_counter() - start
        steps += 1
    saver.join()
    tables.resolve()
    shutil.rmtree(directory)
    stats = reply["stats"]
    return {"steps": steps, "update_ms": 1000 * updating / steps, "wait_ms": 1000 * stats["update_wait_seconds"],
            **{source: stats[f"rows_by_{source}"] / steps for source in ("lookup", "update")}}


def report(windows: List[float], samples: Dict[Any, List[Dict[str, float]]]) -> None:
    """Prints medians over the rounds."""
    print(f"{'window':>8} {'lookups':>8} {'steps':>6} {'rows captured per step by lookup':>34} {'by update':>10} "
          f"{'update, ms':>11} {'waited for room, ms':>20}")
    for window in windows:
        for hurry in (False, True):
            rounds = samples[window, hurry]
            median = {name: statistics.median(sample[name] for sample in rounds) for name in rounds[0]}
            print(f"{1000 * window:>5.0f} ms {'hurry' if hurry else '-':>8} {median['steps']:>6.0f} "
                  f"{median['lookup']:>34.0f} {median['update']:>10.0f} {median['update_ms']:>11.2f} "
                  f"{median['wait_ms']:>20.2f}")


if __name__ == "__main__":
    main()
