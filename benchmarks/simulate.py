"""Replays access traces under the policies, and prints what they write and what restores read.

    python -m benchmarks.simulate policies --rows 1e7 --intervals 10000,1000,100 --out DIR
    python -m benchmarks.simulate thresholds --rows 1e6 --exponents 0.8,1.0,1.2,1.4
    python -m benchmarks.simulate periods --rows 1e6 --drifts none,jumps,slow,back
    python -m benchmarks.simulate regret --rows 1e6 --drifts none,jumps,slow,back
    python -m benchmarks.simulate bias
    python -m benchmarks.simulate totals --logs .cache --results .cache/side_by_side
"""

import argparse
import itertools
import time
from pathlib import Path
from typing import Iterator, Tuple

from benchmarks import without_tensorflow  # noqa: F401  (first)
from benchmarks.side_by_side.results import Results
from benchmarks.side_by_side.totals import table
from benchmarks.simulator import bias, logs, policies_table, regret, renewal, totals
from benchmarks.simulator.traces import DRIFTS, ZipfTrace
from tools import fetch_data

# A batch of 1,024 examples with 26 features.
ACCESSES_PER_BATCH = 1024 * 26
LOG_INTERVALS = 250


def _list_of(kind):
    return lambda text: [kind(item) for item in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("policies", "thresholds", "periods", "regret", "bias", "totals"))
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**6, help="of the table")
    parser.add_argument("--exponents", type=_list_of(float), help="of the Zipf distribution; 1.2")
    parser.add_argument("--intervals", type=_list_of(int), metavar="BATCHES",
                        help=f"between checkpoints, in batches of {ACCESSES_PER_BATCH} accesses to a table of 10^7 rows; "
                        "of as many per row to a smaller one; 100")
    parser.add_argument("--drifts", type=_list_of(str), help=f"any of {sorted(DRIFTS)}; none")
    parser.add_argument("--weights", type=_list_of(float), default=[0.1, 1.0, 5.0], help="lambda")
    parser.add_argument("--checkpoints", type=int, default=441)
    parser.add_argument("--clump", type=int, default=1, help="occurrences of a row each time that it comes up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, metavar="CACHE", help="real logs too; they are fetched into this folder")
    parser.add_argument("--out", type=Path, metavar="DIR", help="draw what `policies` finds")
    parser.add_argument("--results", metavar="DIR", help="where `totals` are kept, for the report on all systems")
    return parser.parse_args()


def _traces(given: argparse.Namespace) -> Iterator[Tuple[str, object]]:
    asked = (given.exponents, given.intervals, given.drifts)
    for exponent, batches, drift in (totals.TRACES if given.what == "totals" and not any(asked) else itertools.product(
            given.exponents or [1.2], given.intervals or [100], given.drifts or ["none"])):
        accesses = batches * ACCESSES_PER_BATCH * given.rows / 10**7
        trace = ZipfTrace(given.rows, exponent, accesses, given.checkpoints, drift, given.clump, given.seed)
        moves = "" if drift == "none" else f", hot set: {drift}"
        yield f"Zipf {exponent:g}, {given.rows:,} rows, {batches:,} batches{moves}", trace
    if given.logs is not None:
        found = {**logs.movielens(fetch_data.fetch(given.logs, "ml-100k")),
                 **logs.open_bandit(fetch_data.fetch(given.logs, "open-bandit"))}
        for name, keys in found.items():
            yield name, logs.LogTrace(keys, LOG_INTERVALS)


def main() -> None:
    given = _arguments()
    if given.what == "bias":
        print(bias.clumped())
    drawn = []
    for title, trace in _traces(given):
        start = time.monotonic()
        if given.what == "policies":
            found = policies_table.table(trace, title, given.weights)
            drawn += found
        elif given.what == "totals":
            found = totals.totals(trace, title, given.weights)
            if given.results is not None:
                Results(given.results).put_totals(found)
            found = table([found])
        elif given.what == "bias":
            found = [bias.by_bucket(trace, title)]
        else:
            make = {"thresholds": renewal.thresholds, "periods": renewal.periods, "regret": regret.regret}[given.what]
            found = [make(trace, title, given.weights)]
        print(*found, f"({time.monotonic() - start:.0f} s)\n", sep="\n", flush=True)
    if given.out is not None and drawn:
        from benchmarks.simulator import draw  # matplotlib
        print(draw.costs(drawn, given.out))


if __name__ == "__main__":
    main()
