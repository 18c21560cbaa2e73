"""What docs/cost_model.md claims of Adaptive, on traces: never far from the best that hindsight finds."""

import math
from pathlib import Path

import pytest

from benchmarks.simulator import bias, logs
from benchmarks.simulator.fixed import Fixed
from benchmarks.simulator.oracle import Oracle
from benchmarks.simulator.run import adaptive, run
from benchmarks.simulator.traces import ZipfTrace
from tools import fetch_data

CACHE = Path(__file__).resolve().parents[2] / ".cache"
PERIOD = 43
# All hot, all cold, and between.
THRESHOLDS = (-1.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, math.inf)
WEIGHTS = (0.1, 1.0, 5.0)
UNBOUNDED = 1e9


def with_fixed_bases(weight, solver="dynamic", estimator="updates", period=PERIOD):
    return adaptive(estimator, restore_weight=weight * period / PERIOD, first_period=period, solver=solver,
                    renewal="period", max_restore_factor=UNBOUNDED)


def against_thresholds(trace, weights=WEIGHTS):
    """Yields for each weight the costs of Adaptive by solver, and of each threshold, all with the same bases."""
    subjects = {threshold: (Fixed(threshold, PERIOD), "updates") for threshold in THRESHOLDS}
    for weight in weights:
        subjects.update({(weight, solver): with_fixed_bases(weight, solver) for solver in ("dynamic", "bisection")})
    results = run(trace, subjects)
    for weight in weights:
        hazard = weight / PERIOD
        yield (weight, {solver: results[weight, solver].cost(hazard) for solver in ("dynamic", "bisection")},
               {threshold: results[threshold].cost(hazard) for threshold in THRESHOLDS})


def check_stationary(trace, within):
    for weight, found, fixed in against_thresholds(trace):
        for solver, cost in found.items():
            assert cost <= min(fixed.values()) * within, (weight, solver)
            assert cost <= min(fixed[-1.0], fixed[math.inf]) * 1.01, (weight, solver, "pure incremental or differential")


def test_within_a_percent_of_the_best_threshold():
    check_stationary(ZipfTrace(10**6, 1.2, 100_000, 133), 1.01)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.4])
@pytest.mark.parametrize("rows, accesses", [(10**6, 300_000), (10**7, 100_000)])
def test_within_a_percent_of_the_best_threshold_on_large_tables(exponent, rows, accesses):
    check_stationary(ZipfTrace(rows, exponent, accesses, 133), 1.01)


@pytest.mark.parametrize("read", [logs.movielens, logs.open_bandit], ids=["MovieLens", "Open Bandit"])
def test_near_the_best_threshold_on_real_logs(read):
    folder = fetch_data.fetch(CACHE, "ml-100k" if read is logs.movielens else "open-bandit")
    for keys in read(folder).values():
        check_stationary(logs.LogTrace(keys, 250), 1.05)


@pytest.mark.parametrize("drift", ["jumps", "slow", "back"])
def test_below_the_best_threshold_where_the_hot_set_moves(drift):
    for weight, found, fixed in against_thresholds(ZipfTrace(200_000, 1.2, 50_000, 177, drift), (1.0, 5.0)):
        assert found["dynamic"] < min(fixed.values()), weight


@pytest.mark.parametrize("drift, within", [("none", 1.01), ("jumps", 1.01), ("slow", 1.01)])
def test_marginal_renewal_finds_the_best_period(drift, within):
    trace = ZipfTrace(100_000, 1.2, 25_000, 500, drift)
    periods = sorted({round(10 * 1.25 ** i) for i in range(15)} | {PERIOD})
    subjects = {}
    for weight in (1.0, 5.0):
        subjects[weight] = adaptive(restore_weight=weight, renewal="marginal", max_restore_factor=UNBOUNDED)
        subjects.update({(weight, period): with_fixed_bases(weight, period=period) for period in periods})
    results = run(trace, subjects)
    for weight in (1.0, 5.0):
        cost = {period: results[weight, period].cost(weight / PERIOD) for period in periods}
        assert results[weight].cost(weight / PERIOD) <= min(cost.values()) * within, weight
        assert results[weight].cost(weight / PERIOD) < cost[PERIOD], "nor worse than the period it would have by default"


@pytest.mark.parametrize("drift, most", [("none", {1.0: 1.10, 5.0: 1.17}), ("jumps", {1.0: 1.14, 5.0: 1.21}),
                                         ("slow", {1.0: 1.11, 5.0: 1.19}), ("back", {1.0: 1.12, 5.0: 1.20})])
def test_regret_of_not_knowing_the_future(drift, most):
    """Against the oracle, bases left out: they cost every policy the same."""
    trace = ZipfTrace(200_000, 1.2, 50_000, 177, drift)
    subjects = {weight: with_fixed_bases(weight) for weight in most}
    subjects.update({(weight, "oracle"): (Fixed(math.inf, PERIOD), "updates") for weight in most})
    results = run(trace, subjects, rules={(weight, "oracle"): Oracle(trace, weight / PERIOD) for weight in most})
    for weight, bound in most.items():
        hazard = weight / PERIOD
        bases = results[weight].bases_cost(hazard)
        regret = (results[weight].cost(hazard) - bases) / (results[weight, "oracle"].cost(hazard) - bases)
        assert 1.0 <= regret < bound, weight


@pytest.mark.parametrize("p", [0.01, 0.3, 0.6, 0.9])
def test_the_indicator_reads_the_rate_of_updates(p):
    assert bias.mean_estimate(bias.BernoulliTrace(p, 5000, 80), "updates") == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize("p, clump, reads", [(0.3, 1, 0.25), (0.3, 3, 0.55), (0.3, 10, 0.89), (0.9, 1, 0.59)])
def test_what_counts_of_accesses_read(p, clump, reads):
    assert bias.mean_estimate(bias.BernoulliTrace(p, 5000, 80, clump), "accesses") == pytest.approx(reads, abs=0.015)


@pytest.mark.parametrize("estimator", ["updates", "accesses"])
@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_what_rows_just_updated_read(estimator, p):
    """What the threshold is compared with: `cost_model.reading`."""
    from benchmarks.simulator.tracker import Tracker
    from tfadaptcp.policies import cost_model
    trace = ZipfTrace(20_000, 0.0, -math.log1p(-p) * 20_000, 80)  # all of the same p, accesses that come independently
    tracker = Tracker(trace.rows, estimator)
    for n, interval in enumerate(trace, 1):
        tracker.update(n, interval)
    assert tracker.p_updated.mean() == pytest.approx(cost_model.reading(p, 0.9, estimator), abs=0.02)
