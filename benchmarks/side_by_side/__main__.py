"""Measures cells that are missing, and reports on those that are there.

    python -m benchmarks.side_by_side run [--core] [--minutes N]
    python -m benchmarks.side_by_side run [--rows 5000000 ...] [--intervals 100 ...] [--regimes published ...] ...
    python -m benchmarks.side_by_side run --restores [--checkpoints 100] [--regimes published local] [--ps 2 1]
    python -m benchmarks.side_by_side report
"""

import argparse
import os
import signal
import sys
from typing import List, Optional

from benchmarks.side_by_side import cells, runner
from benchmarks.side_by_side.results import MOST_OF_OTHERS, Results

DEFAULT_RESULTS = ".cache/side_by_side"


def arguments(given: Optional[List[str]] = None) -> argparse.Namespace:
    """What is asked for, on the command line if nothing is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure what is missing")
    run.add_argument("--core", action="store_true", help="interval 100, published regime, 5M rows, 2 ps, waiting")
    run.add_argument("--restores", action="store_true", help="restores instead of training")
    run.add_argument("--checkpoints", type=int, default=100, help="with --restores: that are behind them")
    run.add_argument("--minutes", type=float, default=None, help="begin no cell after so many")
    run.add_argument("--rows", type=int, nargs="+", default=None)
    run.add_argument("--intervals", type=int, nargs="+", default=None)
    run.add_argument("--regimes", nargs="+", default=None, choices=tuple(cells.REGIMES))
    run.add_argument("--ps", type=int, nargs="+", default=None)
    run.add_argument("--pending", nargs="+", default=None, choices=("wait", "skip"))
    run.add_argument("--systems", nargs="+", default=None, help="names; all of them if not given")
    run.add_argument("--rounds", type=int, default=cells.ROUNDS)
    run.add_argument("--seconds", type=float, default=cells.SECONDS, help="of training in each cell")
    run.add_argument("--most-of-others", type=float, default=MOST_OF_OTHERS,
                     help="a cell is rejected if others took more of the machine; greater only to try things out")
    run.add_argument("--directory", default=None, help="where the store is kept while a cell is measured")
    report = commands.add_parser("report", help="tables, plots and a summary of what is there")
    report.add_argument("--docs", default=None, help="a document whose generated section is replaced")
    for command in (run, report):
        command.add_argument("--results", default=DEFAULT_RESULTS, help="directory of the results")
    return parser.parse_args(given)


def main() -> None:
    args = arguments()
    if args.command == "report":
        from benchmarks.side_by_side import report as reports
        reports.write(Results(args.results), args.results, args.docs)
        return
    for name in ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "TF_USE_LEGACY_KERAS"):
        os.environ.setdefault(name, {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}.get(name, "1"))
    # So that the cell under way is ended, and its store removed.
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(128 + signal.SIGTERM))
    runner.run(Results(args.results, args.most_of_others, args.seconds), runner.planned(args), minutes=args.minutes,
               seconds=args.seconds, directory=args.directory, made=os.path.join(args.results, "made"))


if __name__ == "__main__":
    main()
