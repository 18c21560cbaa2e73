"""When new bases come, and what they are reckoned to take."""

import pytest

from benchmarks.side_by_side import bases
from tfadaptcp import policies
from tfadaptcp.policies.base import PolicyStats


def test_check_n_run_makes_them_when_its_policy_would():
    # A policy that is told the sizes one after the other, as fractions of a base of 1,000,000 bytes.
    base, power, first = 1e6, 0.7, 4e4
    sizes, policy = [], policies.CheckNRun()
    while True:
        sizes.append(first * (len(sizes) + 1) ** power)
        stats = PolicyStats(has_base=True, checkpoints_since_base=len(sizes), bytes_in_base=int(base),
                            bytes_last_checkpoint=int(sizes[-1]), bytes_written_since_base=int(sum(sizes)))
        if policy.base_due(stats):
            break
    assert bases.differentials_before_a_base(first, first * 6 ** power, 6, base) == len(sizes) > 6
    # Intervals three times as long: differentials as large come a third as late.
    longer = bases.differentials_before_a_base(first, first * 6 ** power, 6, base, steps=3)
    assert 0 < longer < len(sizes)


def test_adaptcp_makes_them_when_a_restore_reads_too_much():
    def every(rows, **growth):
        policy = policies.Adaptive(restore_weight=0.0)
        return bases.checkpoints_before_a_base(policy, 1000, 100, bases.Growth(rows=rows, **growth))

    assert every(0, written=30, restore=30) == 34, "1000 + 30 k > 2 * 1000"
    assert every(1, written=30, restore=30) == 101, "1000 + 30 k > 2 * (1000 + 10 k)"
    assert every(0, written=30, restore=0) is None

    def total(period):
        return (1000 + 30 * period + sum(1000 + 3 * since for since in range(1, period + 1)) / 43) / period

    cheapest = min(range(1, 500), key=total)
    growth = bases.Growth(30, 3, 0)
    assert bases.checkpoints_before_a_base(policies.Adaptive(), 1000, 100, growth) == pytest.approx(cheapest, abs=1)


def test_what_intervals_beside_a_base_take_longer():
    usual = [{"seconds": 2.0}, {"seconds": 4.0}]
    assert bases.seconds_beside([{"seconds": 5.0}, {"seconds": 4.0}], usual) == pytest.approx(3.0)
    assert bases.seconds_beside([{"seconds": 1.0}], usual) == 0


def test_a_switch_leaves_all_else_to_the_policy():
    switch = bases.Switch()
    due = PolicyStats(has_base=True, checkpoints_since_base=3)
    for given in (policies.get("incr_ckpt_3"), policies.Adaptive(restore_weight=2.0), policies.CheckNRun("one_shot")):
        policy = switch.put_into(given)
        assert (policy.name, vars(policy)) == (given.name, vars(given))
        assert getattr(policy, "engine_options", None) == getattr(given, "engine_options", None)
        for turned_to, expected in ((None, given.base_due(due)), ("never", False), ("now", True)):
            switch.turned_to = turned_to
            assert policy.base_due(due) == expected
            assert not policy.base_due(PolicyStats(has_base=False))
        switch.turned_to = None
