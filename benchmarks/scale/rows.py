"""What a row costs on its parameter server: memory of tables and tracker, bytes in segments, CPU of saves and restores.

    python -m benchmarks.scale.rows --rows 1562500 --dim 64

A parameter with Adam's m and v, float32, in one process with one op thread. How full TFRA's tables are depends on the number of
rows over a power of two, so take what the parameter server has over 2, 4, 8 and so on.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

from benchmarks.scale.inputs import Input, Inputs, line

_BATCH = 1024
_GROWTH = "ops/tracker/growth_bench.cc"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_562_500)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    longest = growth(args.rows, args.dim)
    directory = tempfile.mkdtemp(prefix="tfadaptcp-scale-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        print(json.dumps({**run(args.rows, args.dim, args.rounds, directory), "growth_ns": longest}), flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure(rows: int, dim: int, rounds: int) -> Inputs:
    """Runs `main` in a process of its own."""
    command = [sys.executable, "-m", __name__, "--rows", str(rows), "--dim", str(dim), "--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"})
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{rows} rows: {found}", flush=True)
    told = " ".join(["python", *command[1:]])
    return {
        "table_bytes_per_row": Input(found["table_bytes"], "B", "memory of a row in TFRA's tables", told),
        "segment_bytes_per_row": Input(found["segment_bytes"], "B", "a row in a file", told),
        "growth_ns_per_row": Input(found["growth_ns"], "ns", "CPU of the longest write while one of TFRA's tables grows, "
                                   "for each of its rows", told),
        "save_ns_per_row": Input(found["save_ns"], "ns", "CPU of saving a row", told),
        "restore_ns_per_row": Input(found["restore_ns"], "ns", "CPU of restoring a row", told)}


def growth(rows: int, dim: int) -> float:
    """Fills one of TFRA's tables that was made for few rows; ns of its longest write, by the rows it had then."""
    import tensorflow as tf
    from benchmarks.measuring import timed
    from benchmarks.tables import AdamTables
    tables = AdamTables(8192, dim)
    values = tf.zeros([_BATCH, dim])
    longest = (0.0, 0)
    for start in range(0, rows - _BATCH + 1, _BATCH):
        keys = tf.range(start, start + _BATCH, dtype=tf.int64)
        taken = timed(lambda keys=keys: tables.stock.tfra_cuckoo_hash_table_insert(tables.handles[0], keys, values))
        longest = max(longest, (taken.cpu, start + _BATCH))
    return 1e9 * longest[0] / longest[1]


def run(rows: int, dim: int, rounds: int, directory: str) -> Dict[str, float]:
    """Fills tables, saves and restores all of it, the median of some rounds; per row."""
    from benchmarks.base_cases import status
    from benchmarks.measuring import timed
    from benchmarks.tables import AdamTables
    before = status("VmRSS")
    tables = AdamTables(rows, dim)
    tables.attach()
    tables.fill()
    resident = status("VmRSS") - before - tables.memory_bytes()
    save_ns: List[float] = []
    restore_ns: List[float] = []
    size = 0
    for number in range(rounds):
        place = os.path.join(directory, str(number))
        reply: Dict[str, Any] = {}
        tables.cut("base")
        saved = timed(lambda place=place, reply=reply: reply.update(tables.save("base", place)))
        tables.resolve()
        objects = [dict(item, ps=0) for item in reply["objects"]]
        size = sum(item["bytes"] for item in objects)
        tables.begin_restore()
        restored = timed(lambda objects=objects: tables.restore(objects))
        sizes = tables.end_restore()
        if set(sizes.values()) != {rows}:
            raise RuntimeError(f"Received: {sizes} rows restored. Expected: {rows} in each table")
        shutil.rmtree(place)
        save_ns.append(1e9 * saved.cpu / rows)
        restore_ns.append(1e9 * restored.cpu / rows)
    tables.detach()
    return {"table_bytes": resident / rows, "segment_bytes": size / rows, "save_ns": statistics.median(save_ns),
            "restore_ns": statistics.median(restore_ns)}


def measure_growth(most: int, first: int = 1_000_000) -> Inputs:
    """Has a tracker grow, in C++, up to `most` rows: memory, the longest write, cut and outcome."""
    done = subprocess.run([sys.executable, "-m", "tools.cpp_build", "run", _GROWTH, str(most), str(first)],
                          stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    for item in found:
        print(item, flush=True)
    command = f"python -m tools.cpp_build run {_GROWTH} {most}"
    _, slope = line((item["rows"], item["longest_write_ms"]) for item in found)
    last = found[-1]
    return {
        "tracker_bytes_per_row": Input(max(item["bytes_per_key"] for item in found), "B",
                                       f"memory of a row in the tracker, the most at {len(found)} numbers of rows", command),
        "longest_write_ms": Input(last["longest_write_ms"], "ms", f"longest write while the tracker grows to {last['rows']:,} "
                                  "rows", command),
        "longest_write_rows": Input(last["rows"], "", "of that tracker", command),
        "longest_write_ms_per_row": Input(slope, "ms", "longest write, for each row of the tracker", command),
        "gate_ms": Input(last["cut_ms"], "ms", f"cut of {last['rows']:,} rows under the closed gate", command),
        "resolve_ns_per_row": Input(last["resolve_ns_per_row"], "ns", "outcome of a checkpoint, for each of its rows",
                                    command)}


if __name__ == "__main__":
    main()
