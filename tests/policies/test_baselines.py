"""The systems that AdaptCP is compared with, as policies: names, rules, and the options they bring."""

import pytest

from tfadaptcp import policies
from tfadaptcp.options import EngineOptions, options_for
from tfadaptcp.policies import ALL_HOT, NONE_HOT, CheckNRun, IncrCkpt, PolicyStats


def after(sizes, base=1.0):
    """Statistics after differentials of these sizes, as fractions of the base."""
    return PolicyStats(has_base=True, checkpoints_since_base=len(sizes), bytes_in_base=base,
                       bytes_written_since_base=base * sum(sizes), bytes_last_checkpoint=base * sizes[-1] if sizes else 0)


@pytest.mark.parametrize("name, policy", [
    ("check_n_run", CheckNRun()), ("native_incremental", IncrCkpt()), ("incr_ckpt_1", IncrCkpt(full_every=1)),
    ("incr_ckpt_25", IncrCkpt(full_every=25))])
def test_names(name, policy):
    assert policies.get(name) == policy and policy.name == name and policies.get(policy) is policy


@pytest.mark.parametrize("wrong", ["incr_ckpt_0", "incr_ckpt_", "incr_ckpt_-1", "incr_ckpt_01", "incr_ckpt_2x", "check_n_run_1"])
def test_names_that_are_none(wrong):
    with pytest.raises(ValueError, match="policy: Received.*Expected.*check_n_run.*incr_ckpt_<N>"):
        policies.get(wrong)


@pytest.mark.parametrize("wrong", ["oneshot", "", None, 0])
def test_variants_that_are_none(wrong):
    with pytest.raises(ValueError, match="variant: Received.*Expected.*intermittent"):
        CheckNRun(variant=wrong)
    with pytest.raises(ValueError, match="full_every: Received"):
        IncrCkpt(full_every=wrong or -1)


SIZES = (.26, .34, .39, .43, .46, .485)


def test_the_published_example_of_the_renewal_rule():
    """At 5 it keeps, 2.88 > 2.76; at 6 it renews, 3.365 <= 3.395."""
    due = [CheckNRun().base_due(after(SIZES[:i], base=1e6)) for i in range(7)]
    assert due == [False] * 6 + [True]


def test_a_tie_renews_and_nothing_written_does_not():
    assert CheckNRun().base_due(after([0.25, 0.625], base=1024))  # 1 + .25 + .625 = 3 * .625
    assert not CheckNRun().base_due(after([0.25, 0.62], base=1024))
    assert CheckNRun().base_due(after([1.0])) and CheckNRun().base_due(after([1.1])) and not CheckNRun().base_due(after([.9]))
    assert not CheckNRun().base_due(after([0.0])) and not CheckNRun().base_due(after([0.0], base=0))
    assert not CheckNRun().base_due(PolicyStats())


@pytest.mark.parametrize("variant", ["one_shot", "consecutive"])
def test_the_other_variants_have_one_base(variant):
    assert not any(CheckNRun(variant).base_due(after([5.0] * i)) for i in range(30))


def test_what_is_hot():
    some = after(SIZES[:2])
    assert [CheckNRun(variant).hot_threshold(some) for variant in ("intermittent", "one_shot", "consecutive")] == [
        ALL_HOT, ALL_HOT, NONE_HOT]
    for policy in (CheckNRun(), CheckNRun("one_shot"), CheckNRun("consecutive"), IncrCkpt(), IncrCkpt(3)):
        assert policy.hot_threshold(PolicyStats()) == NONE_HOT
    assert [IncrCkpt(3).base_due(after([.1] * i)) for i in range(5)] == [False, False, False, True, True]
    assert not any(IncrCkpt().base_due(after([.1] * i)) for i in range(30))


def test_policies_bring_their_options_and_the_users_win_as_a_whole():
    for policy in (CheckNRun(), IncrCkpt(), IncrCkpt(5)):
        assert options_for(policy, None).capture != "save_on_update" and options_for(policy, None).writer_threads == 1
        assert policy.on_pending == "wait" and policy.snapshot_bases
        mine = EngineOptions(segment_bytes=1 << 20)
        assert options_for(policy, mine) is mine
    for name in ("adaptive", "incremental", "differential", "full"):
        assert options_for(policies.get(name), None) == EngineOptions()
    with pytest.raises(ValueError, match="engine: Received.*Expected: an EngineOptions"):
        options_for(CheckNRun(), {"capture": "blocking"})
