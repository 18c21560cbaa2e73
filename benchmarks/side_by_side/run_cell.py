"""Measures one cell in a process of its own: TensorFlow connects a process to one cluster only.

    python -m benchmarks.side_by_side.run_cell --cell JSON --out FILE [--seconds 75] [--directory DIR]
"""

import argparse
import json
import os
import shutil
import tempfile
import time

from benchmarks.side_by_side.cells import Cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--directory", default=None, help="where the store is, and what clusters leave")
    args = parser.parse_args()
    cell = Cell(**json.loads(args.cell))
    began = time.monotonic()
    directory = tempfile.mkdtemp(prefix="side-by-side-", dir=args.directory)
    try:
        result = measure(cell, directory, args.seconds)
        result["cell_seconds"] = time.monotonic() - began
        with open(args.out + ".partial", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(args.out + ".partial", args.out)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    # Not in order: there is nothing to be saved, and TensorFlow would wait for servers that have gone.
    os._exit(0)


def measure(cell: Cell, directory: str, seconds: float) -> dict:
    """Starts a cluster, measures, and stops it."""
    from benchmarks.side_by_side import job, stock, training, watching
    from benchmarks.side_by_side.capped import build, control
    from benchmarks.side_by_side.systems import SYSTEMS
    system = SYSTEMS[cell.system]
    library, page = str(build.build()), os.path.join(directory, "caps")
    os.environ[control.VARIABLE] = page
    caps = control.Control(page)
    facts = watching.facts()
    if system.is_stock:
        stock.leave_tfra_alone()
        stock.fix_several_workers()
    else:
        import tfadaptcp  # noqa: F401 (puts its ops in)
    build.load(library)
    store = os.path.join(directory, "store")
    os.mkdir(store)
    with job.start_cluster(cell.ps, library, page, system.is_stock) as cluster:
        started = time.monotonic()
        work = job.Job(cluster, job.build(cluster, cell.rows), cell.rows)
        result = training.measure(cell, system, work, caps, f"capped://{store}", seconds)
        result["job_seconds"] = time.monotonic() - started
    return {"facts": facts, **result}


if __name__ == "__main__":
    main()
