"""The best threshold over a distribution, and predictions, against brute force in exact arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfadaptcp.policies import PHistogram, cost_model


@st.composite
def histograms(draw):
    found = []
    for _ in range(draw(st.integers(1, 3))):
        p = sorted(draw(st.lists(st.floats(-12, 0).map(lambda e: 10.0 ** e), min_size=1, max_size=12, unique=True)))
        rows = draw(st.lists(st.one_of(st.just(0), st.integers(1, 10**7)), min_size=len(p), max_size=len(p)))
        unsaved = [draw(st.integers(0, r)) for r in rows]
        found.append(PHistogram(tuple(p), tuple(rows), tuple(unsaved), float(draw(st.integers(8, 4096)))))
    return found


def exact_cost(found, threshold, period, weight):
    """Bytes written over a period and lambda times the bytes read by a restore, straight from the definition."""
    written = read = Fraction(0)
    for histogram in found:
        for p, rows in zip(histogram.p, histogram.rows):
            q, size = 1 - Fraction(p), rows * Fraction(histogram.bytes_per_row)
            for k in range(1, period + 1):
                hot = p > threshold
                written += size * ((1 - q ** k) if hot else Fraction(p))
                read += size * ((1 - q ** k) if hot else k * Fraction(p)) / period
    return written + Fraction(weight) * read


@given(found=histograms(), period=st.integers(1, 12), weight=st.one_of(st.just(0.0), st.floats(0.01, 20)))
@settings(max_examples=60, deadline=None)
def test_no_threshold_costs_less_than_the_bisected_one(found, period, weight):
    """Oracle: every threshold that can be told from another by these rows."""
    best = cost_model.best_threshold(found, period, weight)
    points = {p for histogram in found for p in histogram.p}
    costs = {t: exact_cost(found, t, period, weight) for t in points | {-1.0}}
    chosen = exact_cost(found, best, period, weight)
    assert chosen <= min(costs.values()) * (1 + Fraction(1, 10**12))
    predicted = cost_model.predict_period(found, best, period, weight)
    assert predicted.cost == pytest.approx(float(chosen), rel=1e-12)


@given(period=st.integers(1, 80), weight=st.floats(0, 20))
@settings(max_examples=40, deadline=None)
def test_the_distribution_has_no_part_in_which_threshold_is_best(period, weight):
    found = [PHistogram((1e-12, 0.001, 0.3, 0.5), (10**7, 0, 20, 5)), PHistogram((0.9,), (3,), bytes_per_row=64.0)]
    expected = pytest.approx(cost_model.static_threshold(period, weight), rel=1e-12)
    assert cost_model.best_threshold(found, period, weight) == expected
    assert cost_model.best_threshold([], period, weight) == expected


def test_a_period_is_predicted_in_rows_and_bytes():
    found = [PHistogram((0.25, 1.0), (8, 2), bytes_per_row=10.0), PHistogram((0.5,), (4,), bytes_per_row=100.0)]
    # By hand, K = 2: cold .25 writes .5 and reads .375; hot 1.0 writes 2 and reads 1; hot .5 writes 1.25, reads .625.
    got = cost_model.predict_period(found, 0.4, 2, 3.0)
    assert (got.rows_cold, got.rows_hot, got.rows_read) == (4.0, 2 * 2 + 4 * 1.25, 8 * .375 + 2 + 4 * .625)
    assert (got.bytes_cold, got.bytes_hot, got.bytes_read) == (40.0, 540.0, 30.0 + 20.0 + 250.0)
    assert got.cost == 580.0 + 3.0 * 300.0


@pytest.mark.parametrize("call", [cost_model.best_threshold, lambda h, k, w: cost_model.predict_period(h, 0.5, k, w)])
@pytest.mark.parametrize("period, weight", [(0, 1.0), (5, -1.0), (5, float("nan"))])
def test_bad_numbers_are_refused(call, period, weight):
    with pytest.raises(ValueError, match="Received.*Expected"):
        call([], period, weight)
