"""When new bases come, and what they are reckoned to take."""

import types

import pytest

from benchmarks.side_by_side import bases, new_bases, training, windows
from benchmarks.side_by_side.systems import SYSTEMS
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
    differentials = bases.Differentials(first, first * 6 ** power, 6, base)
    assert differentials.before_a_base() == len(sizes) > 6
    assert differentials.factor([2, 3]) == pytest.approx(sum(sizes) / len(sizes) / (sum(sizes[1:3]) / 2))
    # Intervals three times as long: differentials as large come a third as late.
    assert 0 < differentials.before_a_base(steps=3) < len(sizes)


def test_what_was_measured_of_check_n_run_is_brought_to_the_mean_of_a_period():
    differentials = bases.Differentials(4e6, 4e6 * training.AGE ** 0.7, training.AGE, 1e8)
    every, factor = training._over_a_period(differentials, 3, 1.0)
    ages = range(1, every)
    mean, measured = (sum(age ** 0.7 for age in found) / len(found) for found in (ages, (5, 6, 7)))
    assert factor == pytest.approx(mean / measured)
    # Intervals ten times as long as those of the aging: measured young, in their own measure, and so enlarged.
    every, longer = training._over_a_period(differentials, 3, 10.0)
    assert every == 1 + differentials.before_a_base(10.0)
    assert longer == pytest.approx(differentials.factor([14, 24, 34], 10.0)) and longer > factor


def test_windows_of_larger_checkpoints():
    found = [{"steps": 100, "seconds": 10.0, "save_seconds": 6.0}]
    for factor, waits, seconds in ((0.9, True, 9.0), (1.2, True, 12.0), (0.1, True, 4.0), (0.5, False, 7.0)):
        scaled, = windows.scaled(found, factor, waits)
        assert (scaled["seconds"], scaled["save_seconds"]) == pytest.approx((seconds, seconds - 4))


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


@pytest.mark.parametrize("system, pending, stored, seconds", [
    ("incr_ckpt", "wait", 100.0, 92.0),  # stands still, for 8 s otherwise
    ("check_n_run", "wait", 100.0, 90.0),  # the next save waits for it, which trains meanwhile
    ("check_n_run", "wait", 4.0, -5.0),  # nobody does: 2 s of training and 3 s of copying, 10 s otherwise
    ("check_n_run", "skip", 100.0, -13.0)])  # copying alone, 16 s of two intervals otherwise
def test_what_a_base_in_place_of_another_checkpoint_takes_longer(system, pending, stored, seconds):
    found = [{"steps": 100, "seconds": 10.0, "save_seconds": 8.0}] * 2
    usual = new_bases.Between(found, 1.0, bases.Growth(1, 1, 1), 1e9, 1e6, 12, 2.0 if pending == "skip" else 1.0)
    assert new_bases.longer(SYSTEMS[system], pending, usual, stored, 3.0) == pytest.approx(seconds)


def test_what_is_written_standing_still_takes_no_longer_than_it_may():
    assert new_bases.line_faster(1600, 3200, (10, 0)) == pytest.approx(10)
    assert new_bases.line_faster(10, 20, (10, 0)) == new_bases.line_faster(1e9, 1e9, (0, 0)) == 1


@pytest.mark.parametrize("written", [1e9, 0.8e9])
def test_a_base_in_place_is_written_over_a_faster_line_and_as_a_whole(monkeypatch, written):
    made, caps = {"bytes_written": written, "seconds": 17.0, "line_ns": 16e9}, []
    monkeypatch.setattr(new_bases, "save", lambda *unused: made)
    processes = types.SimpleNamespace(cpu_seconds=lambda: {"ps": 1.0, "machine": 1.0, "elapsed": 2.0})
    monkeypatch.setattr(new_bases.watching.Processes, "of", lambda cluster: processes)
    job = types.SimpleNamespace(train=lambda steps: None, num_ps=2, cluster=None)
    saver = types.SimpleNamespace(new_bases=bases.Switch(), stats=lambda: {"blocked_seconds": 17.0})
    usual = new_bases.Between([{"steps": 100, "seconds": 10.0, "save_seconds": 8.0}], 1.0, bases.Growth(1, 1, 1), 1e9,
                              1e6, 11, 1.0)
    control = types.SimpleNamespace(cap=lambda *given: caps.append(given))
    arguments = (training.Cell("incr_ckpt"), SYSTEMS["incr_ckpt"], job, saver, control, usual)
    if written < 1e9:
        with pytest.raises(RuntimeError, match="bytes of a base"):
            new_bases._in_place(*arguments)
        return
    # 500 MB by each connection would take 200 s, 12.5 times as long as it is to take.
    told = new_bases._in_place(*arguments)
    assert caps == [(12.5 * 2.5e6, 12.5 * 50e6)]
    assert told["seconds"] == pytest.approx(17 + 11.5 * 16 - 8) and told["cpu_seconds"] == -1 and told["every"] == 11


class _Line:
    """A job, a saver and a line, whose clock goes by what they do: intervals of 10 s, of 12 s while a base is read."""

    def __init__(self, base_seconds):
        self.now, self.bytes, self.cpu, self.caps = 0.0, 0.0, 0.0, []
        self.left, self.is_scanning, self.new_bases, self.num_ps, self.cluster = base_seconds, False, bases.Switch(), 2, None

    def train(self, steps):
        seconds = 12.0 if self.is_scanning else 10.0
        self.now, self.bytes, self.cpu = self.now + seconds, self.bytes + 5e6, self.cpu + seconds / 10
        if self.is_scanning:
            done = min(self.left, seconds if self.caps[-1] != () else 1000)
            self.left, self.bytes = self.left - done, self.bytes + 1e6 * done
            self.is_scanning = self.left > 0

    def save(self):
        self.is_scanning |= self.new_bases.turned_to == "now"

    def finish(self):
        pass

    def stats(self):
        return {"scanning": self.is_scanning, "skipped": 0, "scan_bytes": 240e6}

    def cap(self, *given):
        self.caps.append(given)

    def counters(self):
        return {"bytes_written": self.bytes}

    def cpu_seconds(self):
        return {"ps": self.cpu, "machine": self.cpu, "elapsed": 2 * self.now + 1}


@pytest.mark.parametrize("seconds, is_part", [(48.0, False), (240.0, True)])
def test_a_long_base_beside_training_is_known_by_its_beginning(monkeypatch, seconds, is_part):
    line = _Line(seconds)
    monkeypatch.setattr(new_bases.time, "monotonic", lambda: line.now)
    monkeypatch.setattr(new_bases.windows.run, "__defaults__", (lambda: False, lambda: line.now))
    monkeypatch.setattr(new_bases.watching.Processes, "of", lambda cluster: line)
    usual = new_bases.Between([{"steps": 100, "seconds": 10.0, "save_seconds": 8.0}], 1.0, bases.Growth(5e6, 1, 1), 1e9,
                              1e6, 11, 1.0)
    told = new_bases._beside(training.Cell("adaptcp"), SYSTEMS["adaptcp"], line, line, line, usual)
    # Each interval beside it, of 12 s, lasts 2 s longer; the whole base takes so many of them.
    assert told["seconds"] == pytest.approx(2 * seconds / 12) and told["cpu_seconds"] == pytest.approx(seconds / 60)
    assert line.left == 0 and line.caps[-1] == (2.5e6, 50e6) and (() in line.caps) == is_part
    assert told["share"] == (pytest.approx(0.25) if is_part else 1.0)


def test_a_base_of_which_nothing_passed_does_not_count():
    usual = new_bases.Between([], 1.0, bases.Growth(5e6, 1, 1), 1e9, 1e6, 11, 1.0)
    with pytest.raises(RuntimeError, match="Expected: more than 5000000.0 for each checkpoint"):
        new_bases.part(4e6, 1, usual, 240e6)


class _Saver:
    """Says that no base was counted."""
    new_bases = bases.Switch()

    def stats(self):
        return {"bases": 1}


def test_a_base_that_failed_does_not_count(monkeypatch):
    monkeypatch.setattr(new_bases, "_beside", lambda *unused: {"seconds": 0.0})
    usual = new_bases.Between([], 1.0, bases.Growth(1, 1, 1), 1e9, 1e6, 1, 1.0)
    control = type("Control", (), {"cap": lambda self, *caps: None})()
    with pytest.raises(RuntimeError, match="Expected: more than 1 bases"):
        new_bases.make(training.Cell("adaptcp"), SYSTEMS["adaptcp"], None, _Saver(), control, usual)


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
