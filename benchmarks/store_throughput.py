"""Uploads and restores by 1 to 8 threads, on a store that caps what a connection gets and what all get together.

    python -m benchmarks.store_throughput [--rows 60000] [--threads 1,2,4,8] [--each-mb 1] [--total-mb 6] [--json FILE]

The store is Google Cloud Storage as the tests have it: an emulator in memory behind a proxy on loopback, which caps. Beside
the seconds stands the least that the caps allow. Cases alternate in every round; figures are medians.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from typing import Any, Dict, List

SEGMENT_BYTES, BLOCK_BYTES = 1 << 20, 1 << 18


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000, help="of each of the three tables; 204 bytes together")
    parser.add_argument("--threads", default="1,2,4,8", help="of uploads, and of restores")
    parser.add_argument("--each-mb", type=float, default=1, help="MB/s of a connection")
    parser.add_argument("--total-mb", type=float, default=6, help="MB/s of all connections")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file for the figures of every round")
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    # The file system of gs:// reads its variables when TensorFlow is loaded: the server comes first.
    from tests.servers.gcs import BUCKET, SERVER, Gcs
    if not pathlib.Path(SERVER).exists():
        sys.exit(f"{SERVER}: Received: no server. Expected: one; `python -m tools.build_gcs` builds it")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfadaptcp-store-"))
    server = Gcs(folder)
    try:
        # As users have it: a connection that gets little for a while is no fault here.
        os.environ.update({**server.environment, "GCS_REQUEST_IDLE_TIMEOUT_SECS": "60"})
        from benchmarks import measuring
        print(f"{measuring.machine()}\n{args.rows} rows, segments of {SEGMENT_BYTES >> 20} MiB, {args.each_mb} MB/s each, "
              f"{args.total_mb} MB/s together", flush=True)
        rounds = measure(server.proxy, f"gs://{BUCKET}/run", args.rows,
                         [int(text) for text in args.threads.split(",")], 1e6 * args.each_mb, 1e6 * args.total_mb,
                         args.rounds)
        report(rounds, 1e6 * args.each_mb, 1e6 * args.total_mb)
        print(f"load {os.getloadavg()[0]:.1f}")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": measuring.machine(), "rows": args.rows, "rounds": rounds}, file)


def measure(proxy: Any, directory: str, rows: int, threads: List[int], each: float, total: float,
            rounds: int) -> List[Dict[str, Any]]:
    """One sample per round and number of threads: {threads, bytes, upload, restore}, seconds of the clock."""
    import tfadaptcp
    from benchmarks import base_cases
    model = base_cases.build(16)
    base_cases.fill(base_cases.variables_of(model), rows, 16)
    samples = []
    for number in range(rounds):
        for n in threads if number % 2 == 0 else threads[::-1]:
            place = f"{directory}/{number}-{n}"
            engine = tfadaptcp.EngineOptions(upload_threads=n, restore_threads=n, segment_bytes=SEGMENT_BYTES,
                                             block_bytes=BLOCK_BYTES, progress=False)
            manager = tfadaptcp.CheckpointManager(model, place, "full", engine=engine)
            proxy.cap(up=total, down=total, up_each=each, down_each=each)
            start = time.perf_counter()
            manager.save()
            info = manager.wait()
            upload = time.perf_counter() - start
            start = time.perf_counter()
            report_of = manager.restore(info.name)
            restore = time.perf_counter() - start
            proxy.cap()
            manager.close()
            base_cases.check(base_cases.variables_of(model), rows, 16)
            samples.append({"threads": n, "bytes": info.bytes, "upload": upload, "restore": restore,
                            "read": report_of.bytes_read})
    return samples


def report(samples: List[Dict[str, Any]], each: float, total: float) -> None:
    """Prints medians by the number of threads, and how much faster than one thread that is."""
    by_threads: Dict[int, List[Dict[str, Any]]] = {}
    for sample in samples:
        by_threads.setdefault(sample["threads"], []).append(sample)
    first: Dict[str, float] = {}
    for n in sorted(by_threads):
        line = f"{n} thread(s)"
        for what, size in (("upload", "bytes"), ("restore", "read")):
            seconds = statistics.median(sample[what] for sample in by_threads[n])
            least = by_threads[n][0][size] / min(n * each, total)
            first.setdefault(what, seconds)
            line += f"; {what} {seconds:.2f} s, at least {least:.2f}, x {first[what] / seconds:.2f} of one thread's speed"
        print(line, flush=True)


if __name__ == "__main__":
    main()
