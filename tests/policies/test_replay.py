"""The simulator itself: its chains against a row-by-row model, its oracle against all decisions there are."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.simulator.fixed import Fixed
from benchmarks.simulator.oracle import Oracle
from benchmarks.simulator.run import adaptive, run
from benchmarks.simulator.tracker import Tracker
from benchmarks.simulator.traces import DRIFTS, Interval, ZipfTrace
from tfadaptcp import policies


class ListedTrace:
    """Intervals given one by one: lists of rows, different ones."""

    def __init__(self, rows, intervals, prefilled=True):
        self.rows, self.intervals, self.prefilled = rows, len(intervals), prefilled
        self.listed = [np.array(sorted(interval), np.int32) for interval in intervals]

    def __iter__(self):
        for rows in self.listed:
            yield Interval(rows, np.ones(rows.size, np.float32))


def random_trace(seed, rows=30, intervals=40, prefilled=True):
    random = np.random.default_rng(seed)
    p = random.random(rows) ** 3
    return ListedTrace(rows, [np.flatnonzero(random.random(rows) < p) for _ in range(intervals)], prefilled)


def modelled(trace, policy, decay=0.9):
    """Rows written, bases, rows a restore reads: every row on its own, files as sets of (row, version)."""
    last_update, last_saved, p, version = {}, {}, {}, {}
    base_start, base, increments, differential = 0, None, [], {}
    if trace.prefilled:
        base = {row: 0 for row in range(trace.rows)}
    since = written_since = restored_since = 0
    last_period = scan = None
    live = set(base or ())
    written, bases, restore = [], [], []
    last = 0
    for n, rows in enumerate(trace.listed, 1):
        for row in rows.tolist():
            p[row] = p.get(row, 0.0) * decay ** (n - last_update.get(row, n)) + 1 - decay
            last_update[row] = version[row] = n
            live.add(row)
        if base is None:
            base, base_start = {row: version[row] for row in live}, n
            written.append(0), bases.append(0), restore.append(len(base))
            last = len(base)
            continue
        unsaved = {row for row in last_update if last_update[row] > max(last_saved.get(row, 0), base_start)}
        ready, scan = scan, None
        sums = (since, written_since, restored_since) if ready is None else (0, 0, 0)
        stats = policies.PolicyStats(
            has_base=True, checkpoints_since_base=sums[0], last_period=last_period, rows_total=len(live),
            rows_in_base=len(base), bytes_in_base=len(base), bytes_of_new_base=len(live), bytes_written_since_base=sums[1], bytes_last_checkpoint=last,
            bytes_restore=len(base) + sum(map(len, increments)) + len(differential), bytes_restore_since_base=sums[2])
        due = ready is None and policy.base_due(stats)
        threshold = policy.hot_threshold(stats)
        hot = {row for row in unsaved if p[row] * decay ** (n - last_update[row]) > threshold}
        if ready is not None:
            last_period = since
            base, increments = ready[1], []
            base_start = ready[0]
        increments.append({row: version[row] for row in unsaved - hot})
        differential = {row: version[row] for row in hot}
        for row in unsaved - hot:
            last_saved[row] = n
        last = len(unsaved)
        reads = len(base) + sum(map(len, increments)) + len(differential)
        since, written_since, restored_since = sums[0] + 1, sums[1] + last, sums[2] + reads
        if due:
            scan = (n, {**{row: 0 for row in live}, **version})
        merged = dict(base)
        for level in [*increments, differential]:
            merged.update(level)
        assert merged == {**{row: 0 for row in live}, **version}, "the model itself lost a row"
        written.append(last), bases.append(len(live) if due else 0), restore.append(reads)
    return written, bases, restore


@pytest.mark.parametrize("prefilled", [True, False])
@pytest.mark.parametrize("policy", [
    policies.Incremental(), policies.Incremental(full_every=4), policies.Differential(), Fixed(0.4, 5),
    policies.Adaptive(restore_weight=8.0, first_period=6, max_restore_factor=9.0, renewal="period"),
    policies.Adaptive(restore_weight=5.0, renewal="marginal")], ids=repr)
def test_chains_are_those_of_a_row_by_row_model(policy, prefilled):
    if getattr(policy, "snapshot_bases", False):
        pytest.fail("the model has no bases by cuts")
    for seed in range(4):
        trace = random_trace(seed, prefilled=prefilled)
        result = run(trace, {"it": (policy, "updates")})["it"]
        assert (result.written, result.bases, result.restore) == modelled(trace, policy), seed


def test_bases_that_are_cuts():
    trace = random_trace(1)
    result = run(trace, {"full": (policies.Full(), "updates")})["full"]
    assert result.written == result.restore == [30] * 40 and result.bases == [0] * 40
    assert result.periods == [0] * 40
    assert result.means() == (30.0, 30.0)


def test_whole_periods_count_a_base_for_each():
    result = run(random_trace(2), {"it": (Fixed(math.inf, 6), "updates")})["it"]
    assert result.periods == [7, 7, 7, 7, 7]
    end = 35
    assert sum(result.bases[:end]) == 5 * 30 and sum(result.begun) == 5
    assert result.cost(0.5) == pytest.approx(
        (sum(result.written[:end]) + 150 + 0.5 * sum(result.restore[:end])) / end)
    assert result.bases_cost(0.5) == pytest.approx((150 + 0.5 * 30 * end) / end)


@pytest.mark.parametrize("hazard", [0.05, 0.3, 2.0])
def test_the_oracle_costs_the_least_of_all_decisions(hazard):
    """Brute force: all hot/cold sequences of each row over one period, with what each writes and makes restores read."""
    period, seeds = 6, range(3)
    for seed in seeds:
        trace = random_trace(seed, rows=12, intervals=period + 1)
        policy = Fixed(math.inf, period)  # checkpoint period + 1 begins the next base, and goes by this one
        result = run(trace, {"oracle": (policy, "updates")}, rules={"oracle": Oracle(trace, hazard)})["oracle"]
        got = sum(result.written) + hazard * sum(restore - trace.rows for restore in result.restore)
        assert got == pytest.approx(sum(least_cost(trace, row, hazard) for row in range(trace.rows)))


def least_cost(trace, row, hazard):
    updated = [row in interval for interval in trace.listed]
    best = math.inf
    for hot in itertools.product([False, True], repeat=len(updated)):
        cost, unsaved, copies = 0.0, False, 0
        for is_updated, is_hot in zip(updated, hot):
            unsaved = unsaved or is_updated
            if unsaved:
                cost += 1
                if is_hot:
                    cost += hazard  # in this differential
                else:
                    copies, unsaved = copies + 1, False
            cost += hazard * copies
        best = min(best, cost)
    return best


@pytest.mark.parametrize("drift", sorted(DRIFTS))
def test_traces_are_the_same_each_time_and_as_probable_as_they_say(drift):
    trace = ZipfTrace(2000, 1.1, 3000, 60, drift, seed=3)
    hits, expected, first = np.zeros(2000), np.zeros(2000), []
    for interval in trace:
        assert np.unique(interval.rows).size == interval.rows.size and interval.counts.min() >= 1
        hits[interval.rows] += 1
        expected += interval.p
        first.append((interval.rows.copy(), interval.counts.copy()))
    again = [(interval.rows, interval.counts) for interval in trace]
    assert all((a[0] == b[0]).all() and (a[1] == b[1]).all() for a, b in zip(first, again))
    assert hits.sum() == pytest.approx(expected.sum(), rel=0.02)
    often = expected > 20
    assert np.abs(hits - expected)[often].max() < 5 * np.sqrt(60) / 2
    assert np.mean([counts.sum() for _, counts in first]) == pytest.approx(3000, rel=0.05)
    moved = np.flatnonzero([not np.array_equal(a, b) for a, b in itertools.pairwise(
        [interval.p.argmax() for interval in trace])])
    assert (moved.size > 0) == (drift not in ("none",))


def test_trackers_keep_what_their_definitions_say():
    """Oracle: the sums over all intervals, written out."""
    random = np.random.default_rng(4)
    intervals = [Interval(rows, random.geometric(0.3, rows.size).astype(np.float32))
                 for rows in (np.flatnonzero(random.random(20) < 0.4).astype(np.int32) for _ in range(30))]
    updates, accesses = Tracker(20, "updates", 0.8), Tracker(20, "accesses", 0.8)
    p, f = np.zeros(20), np.zeros(20)
    for n, interval in enumerate(intervals, 1):
        updates.update(n, interval), accesses.update(n, interval)
        p, f = p * 0.8, f * 0.8
        p[interval.rows] += 0.2
        f[interval.rows] += 0.2 * interval.counts
        assert updates.p(np.arange(20), n) == pytest.approx(p, abs=1e-6)
        assert accesses.p(np.arange(20), n) == pytest.approx(1 - np.exp(-f), abs=1e-6)
        assert updates.p_updated == pytest.approx(p[interval.rows], abs=1e-6)


def test_subjects_are_estimated_as_they_say():
    assert adaptive("accesses")[0].estimator == "accesses" and adaptive("truth")[0].estimator == "updates"
    with pytest.raises(ValueError, match="Received: 'guess'.*Expected"):
        Tracker(3, "guess")
    with pytest.raises(ValueError, match="Received: 'away'.*Expected"):
        ZipfTrace(3, 1.0, 1, 1, "away")
