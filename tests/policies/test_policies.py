"""Policies: what they answer, what they refuse, and that they need no TensorFlow."""

import math
import subprocess
import sys

import pytest

from tfadaptcp import policies
from tfadaptcp.policies import ALL_HOT, NONE_HOT, PolicyStats
from tfadaptcp.policies.cost_model import dynamic_threshold, reading, static_threshold


def stats(**values):
    return PolicyStats(**{"has_base": True, "bytes_in_base": 1000, "bytes_of_new_base": values.get("bytes_in_base", 1000),
                          "bytes_restore": 1000, **values})


@pytest.mark.parametrize("name", ["adaptive", "differential", "full", "incremental"])
def test_get_by_name_and_by_value(name):
    policy = policies.get(name)
    assert policy.name == name
    assert policies.get(policy) is policy
    assert policies.get(name) == policy


@pytest.mark.parametrize("wrong", ["adaptiv", "", None, 3, policies.Full])
def test_get_refuses_what_is_no_policy(wrong):
    with pytest.raises(ValueError, match="Received.*Expected.*adaptive.*incremental"):
        policies.get(wrong)


def test_a_policy_of_the_users_own_is_taken():
    class Mine:
        name = "mine"

        def hot_threshold(self, stats):
            return 0.5

        def base_due(self, stats):
            return False

    assert policies.get(Mine()).name == "mine"


@pytest.mark.parametrize("policy", [policies.get(n) for n in ("adaptive", "differential", "full", "incremental")])
def test_the_first_checkpoint_is_all_cold(policy):
    assert policy.hot_threshold(PolicyStats()) == NONE_HOT


def test_full_is_a_base_each_time():
    assert policies.Full().base_due(stats()) and policies.Full().base_due(PolicyStats())


def test_differential_is_all_hot_and_has_one_base():
    policy = policies.Differential()
    assert policy.hot_threshold(stats()) == ALL_HOT
    assert not any(policy.base_due(stats(checkpoints_since_base=k, bytes_restore=10**9)) for k in range(1000))


@pytest.mark.parametrize("every", [1, 2, 7, None])
def test_incremental_renews_its_base_after_n_increments(every):
    policy = policies.Incremental(full_every=every)
    assert policy.hot_threshold(stats()) == NONE_HOT
    since, kinds = 0, []
    for _ in range(30):
        if policy.base_due(stats(checkpoints_since_base=since)):
            since = 0
            kinds.append("B")
        else:
            since += 1
            kinds.append("i")
    if every is None:
        assert set(kinds) == {"i"}
    else:
        assert "".join(kinds).startswith(("i" * every + "B") * 3)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", True])
def test_incremental_refuses(wrong):
    with pytest.raises(ValueError, match="full_every.*Received"):
        policies.Incremental(full_every=wrong)


@pytest.mark.parametrize("field, wrong", [
    ("restore_weight", -1), ("restore_weight", math.nan), ("restore_weight", "1"), ("first_period", 0),
    ("first_period", 2.5), ("max_restore_factor", 0.5), ("max_restore_factor", math.inf), ("decay", 1.0),
    ("decay", -0.1), ("solver", "newton"), ("renewal", "never"), ("estimator", "lookups"), ("restore_weight", math.inf),
    ("mtbf_seconds", 0), ("mtbf_seconds", "1h"), ("restore_cost_ratio", -1), ("restore_cost_ratio", 1.0)])
def test_adaptive_refuses(field, wrong):
    with pytest.raises(ValueError, match=f"{field}: Received: {wrong!r}. Expected"):
        policies.Adaptive(**{field: wrong})


def test_adaptive_rises_from_a_low_threshold_to_all_cold():
    policy = policies.Adaptive(restore_weight=43.0)  # h = 1
    thresholds = [policy.hot_threshold(stats(checkpoints_since_base=k)) for k in range(50)]
    assert thresholds[0] == pytest.approx(0.9 / 43 + 0.1)
    assert thresholds == sorted(thresholds)
    assert thresholds[41] == pytest.approx(0.9 * 0.5 + 0.1)
    assert thresholds[42:] == [1.0] * 8  # p is at most 1: nothing is hot


def test_adaptive_by_bisection_is_constant_over_a_period():
    policy = policies.Adaptive(solver="bisection", restore_weight=1.0, first_period=100)
    assert {policy.hot_threshold(stats(checkpoints_since_base=k)) for k in range(100)} == {
        reading(static_threshold(100, 1.0), 0.9)}


def test_the_hazard_does_not_follow_the_periods_chosen():
    policy = policies.Adaptive(renewal="marginal", restore_weight=4.3, first_period=43)
    assert policy.hot_threshold(stats(last_period=200)) == pytest.approx(
        reading(dynamic_threshold(200, 0.1), 0.9))
    policy = policies.Adaptive(decay=0.5, renewal="period")
    assert policy.hot_threshold(stats(last_period=200)) == pytest.approx(reading(dynamic_threshold(43, 1 / 43), 0.5))


def test_adaptive_refuses_what_does_not_go_together():
    with pytest.raises(ValueError, match="mtbf_seconds: Received: 60.0. Expected: None beside restore_weight, which is 1.0"):
        policies.Adaptive(mtbf_seconds=60.0, restore_weight=1.0)
    with pytest.raises(ValueError, match="decay: Received: 0. Expected: above 0 with estimator='accesses'"):
        policies.Adaptive(decay=0, estimator="accesses")
    policies.Adaptive(decay=0)


def test_the_hazard_follows_from_the_time_between_failures():
    policy = policies.Adaptive(mtbf_seconds=36000.0)
    known = {"seconds_per_interval": 25.0}
    assert policy.hazard(stats()) == 1 / 43 == policies.Adaptive().hazard(stats(**known)), "nothing known: the default"
    assert policy.hazard(stats(**known)) == pytest.approx(25 / 36000)
    known["write_bytes_per_second"] = 8e6
    assert policy.hazard(stats(**known)) == pytest.approx(25 / 36000)
    known["read_bytes_per_second"] = 2e6
    assert policy.hazard(stats(**known)) == pytest.approx(25 / 36000 * 4)
    given = policies.Adaptive(mtbf_seconds=36000.0, restore_cost_ratio=100)
    assert given.hazard(stats(**known)) == pytest.approx(25 / 360)
    assert given.hot_threshold(stats(**known)) == pytest.approx(reading(dynamic_threshold(43, 25 / 360), 0.9))
    assert given.describe(stats(**known)) == {"solver": "dynamic", "hazard": given.hazard(stats(**known)), "period": 43}
    assert policies.Adaptive(mtbf_seconds=1.0, restore_cost_ratio=0).hot_threshold(stats(**known)) == 1.0, "nothing is hot"


def test_estimations():
    assert policies.Estimation.of(policies.Full()) == policies.Estimation(0.9, "updates")
    assert policies.Estimation.of(policies.Adaptive(decay=0.5, estimator="accesses")) == policies.Estimation(0.5, "accesses")
    assert policies.Estimation.of({"decay": 0.5, "name": "adaptive"}) == policies.Estimation(0.5, "updates")
    assert policies.Estimation.of({"estimator": "of a later version"}) == policies.Estimation()


def test_adaptive_renews_after_a_period_or_when_a_restore_reads_too_much():
    policy = policies.Adaptive(first_period=5, renewal="period")
    assert [policy.base_due(stats(checkpoints_since_base=k)) for k in range(7)] == [False] * 5 + [True] * 2
    assert not policy.base_due(stats(checkpoints_since_base=1, bytes_restore=2000))
    assert policy.base_due(stats(checkpoints_since_base=1, bytes_restore=2001))
    assert not policy.base_due(stats(checkpoints_since_base=0, bytes_restore=9999)), "the base has only just been made"
    assert not policy.base_due(PolicyStats(checkpoints_since_base=9, bytes_restore=1))


def test_a_restore_is_weighed_by_what_a_new_base_would_have():
    policy = policies.Adaptive(max_restore_factor=2.0, renewal="period", first_period=1000)

    def due(**values):
        return policy.base_due(stats(checkpoints_since_base=1, **values))

    assert due(bytes_of_new_base=1500, bytes_restore=3001) and not due(bytes_of_new_base=1500, bytes_restore=3000)
    assert due(bytes_of_new_base=400, bytes_restore=801) and not due(bytes_of_new_base=400, bytes_restore=800)
    # A new base would not make the dense variables any smaller.
    assert due(bytes_dense=5000, bytes_restore=12001) and not due(bytes_dense=5000, bytes_restore=12000)


def test_the_marginal_rule_weighs_a_new_base():
    policy = policies.Adaptive(restore_weight=43.0, max_restore_factor=1e6)  # the hazard is 1

    def due(new):  # 10 checkpoints since the last one, of 5 bytes: 10 * (5 + 1050) > new + 50 + 10 * 1000
        return policy.base_due(stats(
            checkpoints_since_base=10, bytes_in_base=100, bytes_of_new_base=new, bytes_last_checkpoint=5,
            bytes_written_since_base=50, bytes_restore=1050, bytes_restore_since_base=10_000))

    assert due(499) and not due(500)


@pytest.mark.parametrize("hazard, growth", [(0.05, 10.0), (0.01, 40.0), (0.2, 2.0)])
def test_the_marginal_rule_finds_the_best_fixed_period(hazard, growth):
    """Oracle: the average cost per checkpoint of every fixed period, under a load that does not change."""
    base, write = 1000.0, 30.0

    def chain(period):
        return [base + growth * k for k in range(1, period + 1)]  # bytes that a restore reads

    def cost(period):
        return (base + period * write + hazard * sum(chain(period))) / period

    policy = policies.Adaptive(restore_weight=hazard * 43, renewal="marginal", max_restore_factor=1e6)
    period = 0
    while True:
        period += 1
        if policy.base_due(stats(
                checkpoints_since_base=period, bytes_in_base=base, bytes_last_checkpoint=write,
                bytes_written_since_base=period * write, bytes_restore=chain(period)[-1],
                bytes_restore_since_base=sum(chain(period)))):
            break
    best = min(cost(k) for k in range(1, 500))
    assert cost(period) <= best * 1.01
    assert 1 < period < 499


def test_no_tensorflow_is_needed():
    code = ("import sys, types; p = types.ModuleType('tfadaptcp'); p.__path__ = ['tfadaptcp']\n"
            "sys.modules['tfadaptcp'] = p; import tfadaptcp.policies as m; m.get('adaptive')\n"
            "sys.exit('tensorflow' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=_root()).returncode == 0


def _root():
    import os
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(policies.__file__))))


@pytest.mark.parametrize("last", [0, 1])
def test_a_period_that_was_none_says_nothing(last):
    """Of a directory whose checkpoints were complete, or a table that was imported: nothing was hot for a whole period."""
    policy = policies.Adaptive()
    assert policy.hot_threshold(stats(last_period=last)) == policy.hot_threshold(stats(last_period=None))


def test_a_chain_is_bounded_in_files():
    """By bytes alone, 300 servers would have 279,000 of them, with increments of a ten thousandth of the base."""
    policy, servers, base, written = policies.Adaptive(), 300, 10_000_000, 1000

    def due(k, files=servers):
        restore = base + k * written
        return policy.base_due(stats(
            checkpoints_since_base=k, bytes_in_base=base, bytes_last_checkpoint=written,
            bytes_written_since_base=k * written, bytes_restore=restore,
            bytes_restore_since_base=sum(base + i * written for i in range(1, k + 1)),
            objects_in_base=servers, objects_in_chain=servers + k * files))

    period = next(k for k in range(1, 2000) if due(k))
    assert 49_000 < servers + period * servers <= 50_000 + servers
    assert next(k for k in range(1, 2000) if due(k, files=0)) == 928
    assert not due(1), "a new base begins with its own"


def test_the_files_of_a_large_base_are_no_reason_for_another():
    def due(files, factor=2.0, since=1):
        return policies.Adaptive(max_restore_factor=factor, renewal="period", first_period=1000).base_due(stats(
            checkpoints_since_base=since, objects_in_base=100_000, objects_in_chain=files))

    assert due(200_001) and not due(200_000) and not due(200_001, factor=3.0)
    assert not due(200_001, since=0)
