"""What the policies cost, side by side: bytes written, bytes read by restores, and both together."""

from typing import Dict, List, Sequence

from benchmarks.simulator import run
from benchmarks.simulator.replay import BYTES_PER_ROW
from benchmarks.simulator.report import Table
from benchmarks.simulator.run import Subject
from tfadaptcp import policies

DEFAULT = "adaptive dynamic, marginal, updates"
FIRST_PERIOD = policies.Adaptive.first_period
UNBOUNDED = 1e9  # as max_restore_factor


def simple() -> Dict[str, Subject]:
    """Returns the policies that weigh nothing, by name."""
    found = [policies.get(name) for name in ("full", "differential", "native_incremental", "incr_ckpt_10",
                                             f"incr_ckpt_{FIRST_PERIOD}")]
    named = {policy.name: policy for policy in found}
    named.update({f"check_n_run, {variant}": policies.CheckNRun(variant=variant)
                  for variant in ("one_shot", "consecutive", "intermittent")})
    return {name: (policy, "updates") for name, policy in named.items()}


def adaptive(weight: float, estimators: Sequence[str] = ("updates", "accesses")) -> Dict[str, Subject]:
    """Returns Adaptive with each solver, renewal and estimator, by name; and the default without a bound on restores."""
    found = {f"adaptive {solver}, {renewal}, {estimator}":
            run.adaptive(estimator, restore_weight=weight, solver=solver, renewal=renewal)
            for solver in ("dynamic", "bisection") for renewal in ("period", "marginal") for estimator in estimators}
    found[f"{DEFAULT}, unbounded"] = run.adaptive(restore_weight=weight, max_restore_factor=UNBOUNDED)
    return found


def table(trace, title: str, weights: Sequence[float]) -> List[Table]:
    """Returns a table for each restore weight. One pass over the trace for all of them."""
    subjects = simple()
    for weight in weights:
        subjects.update({f"{weight:g}: {name}": subject for name, subject in adaptive(weight).items()})
    results = run.run(trace, subjects)
    tables = []
    for weight in weights:
        hazard = weight / FIRST_PERIOD
        names = [*simple(), *adaptive(weight)]
        of = {name: results[name] if name in results else results[f"{weight:g}: {name}"] for name in names}
        best = of[DEFAULT].cost(hazard)
        found = Table(f"{title}, lambda = {weight:g}",
                      ["policy", "written, MB per checkpoint", "read by a restore, MB", "bases", "cost, x default"])
        for name in sorted(names, key=lambda name: of[name].cost(hazard)):
            written, restore = of[name].means()
            found.add(name, written * BYTES_PER_ROW / 1e6, restore * BYTES_PER_ROW / 1e6, sum(of[name].begun),
                      of[name].cost(hazard) / best)
        tables.append(found)
    return tables
