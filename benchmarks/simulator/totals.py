"""All bytes of each policy on a trace: what it writes, and what the restores that lambda stands for read.

At full precision; each policy makes its own bases, and the first one, which all of them begin with, is not counted.
"""

from typing import Any, Dict, Sequence

from benchmarks.simulator import policies_table, run
from benchmarks.simulator.policies_table import FIRST_PERIOD, UNBOUNDED
from benchmarks.simulator.replay import BYTES_PER_ROW

# The default, and the default with restores as long as the cost alone would have them.
ADAPTCP, ADAPTCP_UNBOUNDED = "adaptcp", "adaptcp_unbounded"

# Exponent of the Zipf distribution, batches between checkpoints, drift of the hot set.
TRACES = tuple((exponent, 100, "none") for exponent in (0.8, 1.0, 1.2, 1.4)) + tuple(
    (1.2, 100, drift) for drift in ("jumps", "slow", "back")) + tuple(
    (1.2, batches, "none") for batches in (300, 1000, 3000, 10_000))


def totals(trace, title: str, weights: Sequence[float]) -> Dict[str, Any]:
    """Returns the means per checkpoint of every policy, in bytes: written, read by a restore, and both together.

    "total" is what is written plus lambda / `FIRST_PERIOD` times what a restore reads. One pass over the trace.
    """
    subjects = policies_table.simple()
    for weight in weights:
        subjects[f"{weight:g}: {ADAPTCP}"] = run.adaptive(restore_weight=weight)
        subjects[f"{weight:g}: {ADAPTCP_UNBOUNDED}"] = run.adaptive(restore_weight=weight, max_restore_factor=UNBOUNDED)
    found = {name: [rows * BYTES_PER_ROW for rows in result.means()] for name, result in run.run(trace, subjects).items()}
    by_weight = []
    for weight in weights:
        policies = {}
        for name in (ADAPTCP, ADAPTCP_UNBOUNDED, *policies_table.simple()):
            written, read = found[name] if name in found else found[f"{weight:g}: {name}"]
            policies[name] = {"written": written, "read": read, "total": written + weight / FIRST_PERIOD * read}
        by_weight.append({"weight": weight, "policies": policies})
    return {"trace": title, "rows": trace.rows, "checkpoints": trace.intervals, "weights": by_weight}
