"""Measures one cell in a process of its own: TensorFlow connects a process to one cluster only.

    python -m benchmarks.side_by_side.run_cell --cell JSON --out FILE [--seconds N] --directory DIR [--made DIR]
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback

from benchmarks.side_by_side import making, restoring, training
from benchmarks.side_by_side.cells import SECONDS, Cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--directory", required=True, help="an empty one: gets the store, and is not tidied up")
    parser.add_argument("--made", help="for restores: where the checkpoints are, made if they are not there")
    parser.add_argument("--make", action="store_true", help="only make them")
    args = parser.parse_args()
    cell = Cell(**json.loads(args.cell))
    began = time.monotonic()
    try:
        if args.make:
            result = making.make(cell, args.directory, args.made)
        elif cell.kind == "restore":
            _make_in_a_process(cell, args)
            result = restoring.measure(cell, args.directory, args.made)
        else:
            result = training.measure(cell, args.directory, args.seconds)
        result["cell_seconds"] = time.monotonic() - began
        with open(args.out + ".partial", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(args.out + ".partial", args.out)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Not in order: there is nothing to be saved, and TensorFlow would wait for servers that have gone.
    os._exit(0)


def _make_in_a_process(cell: Cell, args: argparse.Namespace) -> None:
    if not making.is_there(cell, args.made):
        directory = os.path.join(args.directory, "making")
        os.mkdir(directory)
        command = [sys.executable, "-m", "benchmarks.side_by_side.run_cell", "--cell", args.cell, "--make",
                   "--out", args.out + ".made", "--made", args.made, "--directory", directory]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
