"""The model never violates its oracle, and violates it when any one of its rules is broken."""

from __future__ import annotations

import os
import random

import pytest

from tests.model.checkpoints import Violation
from tests.model.job import ALL, Job
from tests.model.rules import BREAKAGES
from tests.model.sequences import Odds, Steps, below, draw, one_of, show, shrink

SEQUENCES = int(os.environ.get("ADAPTCP_MODEL_SEQUENCES", 15000))
# After so many sequences a breakage that nobody notices counts as never noticed.
MOST = 20000

KEY, SHARD, TABLES = below(7), below(3), one_of(1, 2, 3, 3)
ODDS: Odds = [
    (28, "write", [KEY, one_of(1, 1, 2), TABLES]),
    (2, "add", [KEY, one_of(1, 2), TABLES]),
    (11, "remove", [KEY, one_of(1, 1, 2), TABLES]),
    (1, "clear", [TABLES]),
    (4, "lookup", [KEY]),
    (5, "drain", [SHARD, one_of(1, 2, 3)]),
    (4, "finish_readings", []),
    (1, "evict", []),
    (0.5, "attach", []),
    (12, "cut", [below(6), one_of(0, 0, 0, 0, 0, 0, 1), one_of(0, 0, 0, 1)]),
    (8, "commit", []),
    (8, "collect", []),
    (3, "commit", [SHARD]),
    (3, "fail", [one_of(ALL), below(2)]),
    (2, "fail", [SHARD, below(2)]),
    (1.5, "unknown", []),
    (3, "restore", [below(3), one_of(1, 2, 3)]),
    (4, "begin_scan", []),
    (9, "scan_rows", [SHARD, one_of(1, 8, 8)]),
]


def violation(steps: Steps, broken: tuple[str, ...] = ()) -> str:
    try:
        Job(broken).run(steps)
    except Violation as error:
        return str(error)
    return ""


@pytest.mark.timeout(300 + SEQUENCES // 50)
def test_no_sequence_violates_the_oracle():
    dice = random.Random(1)
    for _ in range(SEQUENCES):
        steps = draw(dice, ODDS, 20, 60)
        if violation(steps):
            steps = shrink(steps, lambda shorter: bool(violation(shorter)))
            pytest.fail(f"{violation(steps)}\n{show(steps)}")


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_rule_is_noticed(breakage):
    dice = random.Random(1)
    for tried in range(1, MOST + 1):
        steps = draw(dice, ODDS, 20, 60)
        if not violation(steps, (breakage,)):
            continue
        shortest = shrink(steps, lambda shorter: bool(violation(shorter, (breakage,))))
        assert not violation(shortest), "what the unbroken model does with it"
        print(f"{breakage}: {BREAKAGES[breakage]}\nAfter {tried} sequences: {violation(shortest, (breakage,))}\n"
              f"{show(shortest)}")
        return
    pytest.fail(f"{breakage}: nothing noticed in {MOST} sequences: {BREAKAGES[breakage]}")
