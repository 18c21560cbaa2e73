"""What simulated traces say of all bytes, written and read by restores: AdaptCP beside the best of the others."""

import dataclasses
from typing import Any, Dict, List, Set, Tuple

ADAPTCP = "adaptcp"
# What `benchmarks.simulate totals --rows 1e5 --logs` finds totals for.
ROWS, WEIGHTS = 100_000, (0.1, 1.0, 5.0)
LOGS = ("MovieLens items", "MovieLens users", "Open Bandit crosses", "Open Bandit users")


@dataclasses.dataclass(frozen=True)
class Total:
    """AdaptCP on one trace, with one lambda.

    Attributes:
        best_other: the policy of the least bytes among the others.
        ratio: AdaptCP's bytes over that one's.
        unbounded_ratio: the same with `max_restore_factor` out of the way.
    """
    trace: str
    weight: float
    best_other: str
    ratio: float
    unbounded_ratio: float


def compare(traces: List[Dict[str, Any]]) -> List[Total]:
    """Of everything that `benchmarks.simulator.totals` found."""
    compared = []
    for trace in traces:
        for found in trace["weights"]:
            total = {name: policy["total"] for name, policy in found["policies"].items()}
            best = min((name for name in total if not name.startswith(ADAPTCP)), key=total.get)
            compared.append(Total(trace["trace"], found["weight"], best, total[ADAPTCP] / total[best],
                                  total[f"{ADAPTCP}_unbounded"] / total[best]))
    return compared


def expected() -> Set[Tuple[str, float]]:
    """Every trace and lambda that there is by default."""
    from benchmarks.simulator.totals import TRACES
    zipf = [f"Zipf {exponent:g}, {ROWS:,} rows, {batches:,} batches"
            + ("" if drift == "none" else f", hot set: {drift}") for exponent, batches, drift in TRACES]
    return {(trace, weight) for trace in (*zipf, *LOGS) for weight in WEIGHTS}


def table(traces: List[Dict[str, Any]]) -> List[str]:
    """AdaptCP's bytes over those of the best other policy, by trace and lambda, in Markdown."""
    if not traces:
        return []
    compared = compare(traces)
    weights = sorted({total.weight for total in compared})
    lines = ["**All bytes on simulated traces: written, and λ/43 of what a restore reads.** AdaptCP's over those of the "
             "best other policy; in brackets without its bound on restores.", "",
             "| trace | " + " | ".join(f"λ = {weight:g}" for weight in weights) + " |",
             "|---|" + "---|" * len(weights)]
    for trace in dict.fromkeys(total.trace for total in compared):
        cells = {total.weight: f"{total.ratio:.3f} ({total.unbounded_ratio:.3f}), {total.best_other}"
                 for total in compared if total.trace == trace}
        lines.append(f"| {trace} | " + " | ".join(cells.get(weight, "") for weight in weights) + " |")
    return lines + [""]
