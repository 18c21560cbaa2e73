"""Measures one cell in a process of its own: TensorFlow connects a process to one cluster only.

    python -m benchmarks.side_by_side.run_cell --cell JSON --out FILE [--seconds 60] [--directory DIR] [--made DIR]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks.side_by_side import making, restoring, training
from benchmarks.side_by_side.cells import Cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--directory", default=None, help="where the store is, and what clusters leave")
    parser.add_argument("--made", help="for restores: where the checkpoints are, made if they are not there")
    parser.add_argument("--make", action="store_true", help="only make them")
    args = parser.parse_args()
    cell = Cell(**json.loads(args.cell))
    began = time.monotonic()
    directory = tempfile.mkdtemp(prefix="side-by-side-", dir=args.directory)
    try:
        if args.make:
            result = making.make(cell, directory, args.made)
        elif cell.kind == "restore":
            _make_in_a_process(cell, args)
            result = restoring.measure(cell, directory, args.made)
        else:
            result = training.measure(cell, directory, args.seconds)
        result["cell_seconds"] = time.monotonic() - began
        with open(args.out + ".partial", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(args.out + ".partial", args.out)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    # Not in order: there is nothing to be saved, and TensorFlow would wait for servers that have gone.
    os._exit(0)


def _make_in_a_process(cell: Cell, args: argparse.Namespace) -> None:
    if not making.is_there(cell, args.made):
        command = [sys.executable, "-m", "benchmarks.side_by_side.run_cell", "--cell", args.cell, "--make",
                   "--out", args.out + ".made", "--made", args.made]
        command += [] if args.directory is None else ["--directory", args.directory]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
