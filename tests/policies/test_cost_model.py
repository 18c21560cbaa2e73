"""The cost model against exact arithmetic, the published table and dynamic programming."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfadaptcp.policies import cost_model


@pytest.mark.parametrize("period, weight, expected", [
    (100, 0.1, 0.9524), (100, 1, 0.6678), (100, 5, 0.2906),
    (10, 0.1, 0.9526), (10, 1, 0.6756), (10, 5, 0.3150),
    (50, 0.1, 0.9524), (50, 1, 0.6688), (50, 5, 0.2951)])
def test_the_published_thresholds(period, weight, expected):
    assert round(cost_model.static_threshold(period, weight), 4) == expected


def exact_advantage(p: Fraction, period: int, weight: Fraction) -> Fraction:
    """D(p) as defined: rows written and read, hot minus cold, failures uniform over the checkpoints."""
    written_hot = sum(1 - (1 - p) ** k for k in range(1, period + 1))
    read_hot = sum(Fraction(1, period) * (1 - (1 - p) ** k) for k in range(1, period + 1))
    read_cold = sum(Fraction(1, period) * k * p for k in range(1, period + 1))
    return written_hot + weight * read_hot - period * p - weight * read_cold


@given(exponent=st.floats(-12, -0.01), period=st.integers(1, 60), weight=st.floats(0, 10))
@settings(max_examples=60, deadline=None)
def test_sums_are_exact_down_to_tiny_probabilities(exponent, period, weight):
    p = 10.0 ** exponent
    exact = sum(1 - (1 - Fraction(p)) ** k for k in range(1, period + 1))
    assert cost_model.differential_writes(p, period) == pytest.approx(float(exact), rel=1e-13)
    scale = float(exact) * (1 + weight)
    assert cost_model.advantage_of_cold(p, period, weight) == pytest.approx(
        float(exact_advantage(Fraction(p), period, Fraction(weight))), abs=1e-13 * scale)


@given(period=st.integers(2, 40), weight=st.floats(0.001, 100))
@settings(max_examples=60, deadline=None)
def test_the_threshold_is_where_the_exact_advantage_changes_sign(period, weight):
    root = cost_model.static_threshold(period, weight)
    assert 0 < root < 1
    below, above = Fraction(root) * Fraction(999999, 10**6), Fraction(root) + (1 - Fraction(root)) / 10**6
    assert exact_advantage(below, period, Fraction(weight)) > 0
    assert exact_advantage(above, period, Fraction(weight)) < 0


def test_nothing_is_hot_when_it_never_pays():
    assert cost_model.static_threshold(50, 0.0) == 1.0
    assert cost_model.static_threshold(1, 5.0) == 1.0
    assert cost_model.dynamic_threshold(1, 5.0) == cost_model.dynamic_threshold(-3, 5.0) == 1.0
    assert cost_model.dynamic_threshold(40, 0.0) == 1.0


@given(p=st.floats(0.001, 0.999), period=st.integers(1, 60), hazard=st.floats(0, 2))
@settings(max_examples=200, deadline=None)
def test_the_dynamic_rule_is_what_dynamic_programming_finds(p, period, hazard):
    """Oracle: the least expected cost of one row, over all hot/cold decisions, by backward induction."""
    unsaved, saved = 0.0, 0.0  # expected cost from here on, with no interval left
    for left in range(1, period + 1):
        # A differential is read by restores of one interval, a cold copy by those of all intervals left.
        hot = 1 + hazard + unsaved
        cold = 1 + hazard * left + p * unsaved + (1 - p) * saved
        if abs(hot - cold) > 1e-9:
            assert (p > cost_model.dynamic_threshold(left, hazard)) == (hot < cold), left
        unsaved, saved = min(hot, cold), p * unsaved + (1 - p) * saved


@pytest.mark.parametrize("call", [
    lambda: cost_model.static_threshold(0, 1.0), lambda: cost_model.static_threshold(5, -1.0),
    lambda: cost_model.static_threshold(5, float("nan")), lambda: cost_model.dynamic_threshold(5, -0.1),
    lambda: cost_model.dynamic_threshold(5, float("inf"))])
def test_bad_numbers_are_refused(call):
    with pytest.raises(ValueError, match="Received.*Expected"):
        call()
