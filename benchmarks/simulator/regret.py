"""What is lost for want of knowing the future: policies against the oracle, with bases every `FIRST_PERIOD` checkpoints."""

from typing import Sequence

from benchmarks.simulator.fixed import Fixed, Uncorrected
from benchmarks.simulator.oracle import Oracle
from benchmarks.simulator.policies_table import FIRST_PERIOD, UNBOUNDED
from benchmarks.simulator.report import Table, percent
from benchmarks.simulator.run import adaptive, run


def regret(trace, title: str, weights: Sequence[float], estimators: Sequence[str] = ("updates", "accesses", "truth"),
           decays: Sequence[float] = (0.8, 0.9, 0.95)) -> Table:
    """Compares Adaptive, by each estimate of p, with the oracle, and what any other policy costs beside."""
    subjects, rules = {}, {}
    for weight in weights:
        rules[weight, "oracle"] = Oracle(trace, weight / FIRST_PERIOD)
        subjects[weight, "oracle"] = (Fixed(2.0), "updates")
        for estimator in estimators:
            for decay in decays if estimator != "truth" else (0.9,):
                subjects[weight, estimator, decay] = adaptive(
                    estimator, restore_weight=weight, decay=decay, renewal="period", max_restore_factor=UNBOUNDED)
        subjects[weight, "updates, not corrected", 0.9] = (
            Uncorrected(restore_weight=weight, renewal="period", max_restore_factor=UNBOUNDED), "updates")
    subjects["all cold"] = (Fixed(2.0), "updates")
    results = run(trace, subjects, rules=rules)
    found = Table(title, ["lambda", "estimate of p", "decay", "cost, above the oracle's", "the same, beside the bases"])
    for weight in weights:
        hazard = weight / FIRST_PERIOD
        oracle = results[weight, "oracle"]
        # Every policy writes these bases, and every restore reads one.
        bases = oracle.bases_cost(hazard)
        for key in [key for key in subjects if key[0] == weight and key[1] != "oracle"] + ["all cold"]:
            name, decay = (key[1], f"{key[2]:g}" if key[1] != "truth" else "") if key != "all cold" else ("all cold", "")
            cost = results[key].cost(hazard)
            found.add(f"{weight:g}", name, decay, percent(cost / oracle.cost(hazard)),
                      percent((cost - bases) / (oracle.cost(hazard) - bases)))
    return found
