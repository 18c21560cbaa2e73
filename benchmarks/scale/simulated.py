"""What the policies write and make restores read, as shares of the table, on replayed traces."""

import dataclasses
from typing import List

from benchmarks import without_tensorflow  # noqa: F401  (first)
from benchmarks.simulate import ACCESSES_PER_BATCH
from benchmarks.simulator import policies_table, run
from benchmarks.simulator.traces import ZipfTrace

_NAMES = {"full": "full", "differential": "differential", "check_n_run, intermittent": "Check-N-Run, intermittent",
          "incr_ckpt_10": "Incr CKPT-10", "native_incremental": "incremental"}
ADAPTIVE = "AdaptCP"


@dataclasses.dataclass(frozen=True)
class Simulated:
    """One policy on one trace.

    Attributes:
        rows, batches: of the trace; batches of a checkpoint interval, for a table of 10^7 rows.
        written: share of the table that a checkpoint writes, new bases among it, on average.
        delta: the same without bases: what a checkpoint writes itself.
        restore: share that a restore reads, on average.
        period: checkpoints that a base serves; 0 if there was no new one.
        chain: increments that a head names, at most.
    """
    policy: str
    rows: int
    batches: int
    written: float
    delta: float
    restore: float
    period: int
    chain: int


def simulate(rows: int, batches: int, checkpoints: int) -> List[Simulated]:
    """Replays one Zipf trace, exponent 1.2; as many accesses per row as so many batches make to 10^7 rows."""
    trace = ZipfTrace(rows, 1.2, batches * ACCESSES_PER_BATCH * rows / 1e7, checkpoints)
    subjects = {name: subject for name, subject in policies_table.simple().items() if name in _NAMES}
    subjects[ADAPTIVE] = run.adaptive()
    found = []
    for name, result in run.run(trace, subjects).items():
        written, restore = result.means()
        period = round(sum(result.periods) / len(result.periods)) if result.periods else 0
        chain = 0 if name in ("full", "differential") else period or checkpoints
        if name.startswith("check_n_run"):
            chain = 0  # one differential
        found.append(Simulated(_NAMES.get(name, name), rows, batches, written / rows,
                               sum(result.written) / len(result.written) / rows, restore / rows, period, chain))
    return found
