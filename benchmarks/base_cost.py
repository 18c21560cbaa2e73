"""A base of one parameter server: ours beside TFRA's files and tf.train.Checkpoint, in time, memory and stalls.

    python -m benchmarks.base_cost [--rows 5000000] [--rounds 3] [--json FILE]

A model with one embedding and Adam (parameter, m, v; int64 keys, float32 rows) is saved twice, with nothing beside it and
beside a thread that looks keys up without a pause, and loaded in a new process. Cases alternate in every round, each in
processes of its own; figures are medians, ratios medians of the rounds' quotients.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List

from benchmarks import measuring
from benchmarks.base_cases import CASES, OURS, SCAN, TF, TFRA

Results = Dict[str, List[Dict[str, Any]]]
# What the figures are to be read against, of ours as a multiple of the other's.
GOALS = {"save": {TF: 1.0, TFRA: 1.5}, "load": {TF: 1.0, TFRA: 1.0}, "memory": {TF: 1.0, TFRA: 1.0},
         "stall": {TF: 1.0, TFRA: 1.0}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="of each of the three tables")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="/".join(CASES), help="separated by /")
    parser.add_argument("--lookup-keys", type=int, default=1000, help="keys of a lookup")
    parser.add_argument("--directory", default=None, help="where files go; 230 bytes per row at dim 16, twice")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one measurement")
    parser.add_argument("--json", help="file for the figures of every round")
    args = parser.parse_args()
    cases = args.cases.split("/")
    if not set(cases) <= set(CASES):
        parser.error(f"--cases: Received: {args.cases} Expected: of {'/'.join(CASES)}")
    directory = tempfile.mkdtemp(prefix="tfadaptcp-base-cost-", dir=args.directory)
    results: Results = {case: [] for case in cases}
    try:
        print(f"{measuring.machine()}\n{args.rows} rows, dim {args.dim}, Adam, files in {directory}", flush=True)
        for number in range(args.rounds):
            for case in cases[number % len(cases):] + cases[:number % len(cases)]:
                result = {**_run(args, case, "save", directory)}
                if case != SCAN:
                    result.update(_run(args, case, "load", directory))
                results[case].append(result)
                print(f"round {number}, {case}: save {result['save']['wall']:.2f} s", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report(results)
    print(f"load at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": measuring.machine(), "rows": args.rows, "dim": args.dim, "results": results}, file)


def _run(args: argparse.Namespace, case: str, what: str, directory: str) -> Dict[str, Any]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "benchmarks.base_cases", "--case", case, "--what", what, "--rows", str(args.rows),
               "--dim", str(args.dim), "--lookup-keys", str(args.lookup_keys), "--directory",
               os.path.join(directory, "case")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=args.timeout, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{case}, {what}: Received: exit code {done.returncode}. Expected: 0\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


COLUMNS: Dict[str, Callable[[Dict[str, Any]], float]] = {
    "save, s": lambda r: r["save"]["wall"],
    "save, CPU s": lambda r: r["save"]["cpu"],
    "save + fsync, s": lambda r: r["save"]["durable_wall"],
    "save beside lookups, s": lambda r: r["save_beside_lookups"],
    "save, memory, MB": lambda r: r["save"]["extra_mb"],
    "lookup idle, p99 ms": lambda r: r["idle"]["p99"],
    "lookup idle, p99.9 ms": lambda r: r["idle"]["p99.9"],
    "lookup idle, max ms": lambda r: r["idle"]["max"],
    "lookup beside, p50 ms": lambda r: r["beside"]["p50"],
    "lookup beside, p99 ms": lambda r: r["beside"]["p99"],
    "lookup beside, p99.9 ms": lambda r: r["beside"]["p99.9"],
    "lookup beside, max ms": lambda r: r["beside"]["max"],
    "load, s": lambda r: r["load"]["wall"],
    "load, CPU s": lambda r: r["load"]["cpu"],
    "load, memory, MB": lambda r: r["load"]["extra_mb"],
}
COMPARED = {"save": ("save, s", "save, CPU s", "save + fsync, s"), "load": ("load, s", "load, CPU s"),
            "memory": ("save, memory, MB", "load, memory, MB"),
            "stall": ("lookup beside, p99.9 ms", "lookup beside, max ms")}


def report(results: Results) -> None:
    """Prints medians, and ratios against what the stock ways need."""
    names = list(results)
    print(f"{'median of the rounds':26}" + "".join(f"{name:>22}" for name in names))
    for column, value in COLUMNS.items():
        cells = []
        for name in names:
            found = [value(result) for result in results[name] if column.split()[0] != "load," or "load" in result]
            cells.append(f"{statistics.median(found):>22.2f}" if found else f"{'':>22}")
        print(f"{column:26}" + "".join(cells))
    if OURS not in results:
        return
    for other in (TF, TFRA):
        if other not in results:
            continue
        for goal, columns in COMPARED.items():
            for column in columns:
                quotients = [COLUMNS[column](a) / COLUMNS[column](b) for a, b in zip(results[OURS], results[other])
                             if COLUMNS[column](b) > 0]
                if quotients:
                    print(f"  {OURS} / {other}: {column}: x {statistics.median(quotients):.2f} "
                          f"({min(quotients):.2f} to {max(quotients):.2f}), goal at most {GOALS[goal][other]}")


if __name__ == "__main__":
    main()
