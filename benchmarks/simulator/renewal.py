"""The renewal rules against every fixed period, and every threshold, in hindsight."""

from typing import Sequence

from benchmarks.simulator.fixed import Fixed, Uncorrected
from benchmarks.simulator.policies_table import FIRST_PERIOD, UNBOUNDED
from benchmarks.simulator.report import Table, percent
from benchmarks.simulator.run import adaptive, run

PERIODS = sorted({round(10 * 1.2 ** i) for i in range(20)} | {FIRST_PERIOD})
THRESHOLDS = [-1.0, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, 2.0]


def periods(trace, title: str, weights: Sequence[float]) -> Table:
    """Compares the renewal rules, unbounded by `max_restore_factor`, with the fixed period of the least cost.

    On a trace that changes, the whole run counts, which favours fixed periods that happen to end with it.
    """
    subjects = {}
    for weight in weights:
        for renewal in ("marginal", "period"):
            for solver in ("dynamic", "bisection"):
                subjects[weight, solver, renewal] = adaptive(
                    restore_weight=weight, renewal=renewal, solver=solver, max_restore_factor=UNBOUNDED)
        for period in PERIODS:  # the hazard stays what it is
            subjects[weight, period] = adaptive(restore_weight=weight * period / FIRST_PERIOD, first_period=period,
                                                renewal="period", max_restore_factor=UNBOUNDED)
        subjects[weight, "uncorrected"] = (Uncorrected(restore_weight=weight, max_restore_factor=UNBOUNDED), "updates")
    results = run(trace, subjects)
    found = Table(title, ["lambda", "best period", "dynamic, marginal", "its periods", "not corrected", "bisection, marginal",
                          f"dynamic, period {FIRST_PERIOD}", f"bisection, period {FIRST_PERIOD}"])
    for weight in weights:
        cost = {key: results[key].cost(weight / FIRST_PERIOD) for key in subjects if key[0] == weight}
        best = min(PERIODS, key=lambda period: cost[weight, period])
        chosen = results[weight, "dynamic", "marginal"].periods
        found.add(f"{weight:g}", best, percent(cost[weight, "dynamic", "marginal"] / cost[weight, best]),
                  f"{min(chosen[2:])} to {max(chosen[2:])}" if len(chosen) > 2 else f"{chosen}",
                  percent(cost[weight, "uncorrected"] / cost[weight, best]),
                  percent(cost[weight, "bisection", "marginal"] / cost[weight, best]),
                  percent(cost[weight, "dynamic", "period"] / cost[weight, best]),
                  percent(cost[weight, "bisection", "period"] / cost[weight, best]))
    return found


def thresholds(trace, title: str, weights: Sequence[float], period: int = FIRST_PERIOD) -> Table:
    """Compares Adaptive with the threshold of the least cost, and with all hot and all cold, the bases being the same."""
    subjects = {("fixed", threshold): (Fixed(threshold, period), "updates") for threshold in THRESHOLDS}
    for weight in weights:
        for solver in ("dynamic", "bisection"):
            for estimator in ("updates", "accesses"):
                subjects[weight, solver, estimator] = adaptive(
                    estimator, restore_weight=weight * period / FIRST_PERIOD, solver=solver, first_period=period,
                    renewal="period", max_restore_factor=UNBOUNDED)
    results = run(trace, subjects)
    found = Table(title, ["lambda", "best threshold", "dynamic, updates", "dynamic, accesses", "bisection, updates",
                          "bisection, accesses", "all cold", "all hot"])
    for weight in weights:
        hazard = weight / FIRST_PERIOD
        best = min(THRESHOLDS, key=lambda threshold: results["fixed", threshold].cost(hazard))
        least = results["fixed", best].cost(hazard)
        compared = [(weight, solver, estimator) for solver in ("dynamic", "bisection")
                    for estimator in ("updates", "accesses")] + [("fixed", 2.0), ("fixed", -1.0)]
        found.add(f"{weight:g}", f"{best:g}", *(percent(results[key].cost(hazard) / least) for key in compared))
    return found
