"""Random sequences of training, checkpoints, failures and restores through the whole product, beside its model."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.sequences import Odds, Steps, below, draw, one_of, show, shrink
from tests.model.side_by_side import OPTIONS, SideBySide
from tests.support import direct_store, oracle
from tfadaptcp.attaching import ENGINE

# The first few dozen come across all there is.
SEQUENCES = int(os.environ.get("ADAPTCP_SEQUENCES", 150))
MANY = 500
SEED = int(os.environ.get("ADAPTCP_SEED", 1))
# Every so many sequences all heads are restored at the end.
THOROUGH = 10

KEY, COUNT, TABLES = below(20), one_of(1, 2, 12), one_of(1, 2, 3, 3)
FAULT, AT = below(3), one_of(*range(24), *range(25, 60, 5))
ODDS: Odds = [
    (24, "write", [KEY, COUNT, TABLES]),
    (5, "add", [KEY, COUNT, TABLES]),
    (12, "remove", [KEY, COUNT, TABLES]),
    (1.5, "clear", [TABLES]),
    (4, "lookup", [KEY, COUNT]),
    (2, "dense", []),
    (22, "cut", [below(6), one_of(0, 0, 0, 0, 1, 2, 2)]),
    (1, "cut", [below(6), below(3), one_of(1, 2, 3), below(12)]),
    (10, "scan", [one_of(0, 0, 0, 0, 0, 0, 0, 1, 2, 3), below(12)]),
    (4, "drain", []),
    (10, "commit", []),
    (2, "commit_untold", []),
    (6, "fail", [FAULT, AT]),
    (2, "fail_untold", [FAULT, AT]),
    (2, "unknown", [below(6)]),
    (3, "restore", [below(4), one_of(1, 2, 3)]),
    (2, "manager", [one_of(0, 0, 0, 1), one_of(1, 2, 3), below(len(OPTIONS))]),
]
# Sequences that get further, so that bases that are scanned come to be used, above increments too.
LONG_ODDS: Odds = [
    (24, "write", [KEY, COUNT, TABLES]),
    (6, "remove", [KEY, COUNT, TABLES]),
    (40, "cut", [one_of(0, 2, 3, 4, 5), one_of(0, 0, 0, 0, 2)]),
    (40, "commit", []),
    (6, "scan", [one_of(0), one_of(0)]),
    (5, "restore", [one_of(0, 0, 1), one_of(1, 1, 1, 2)]),
]

# What random sequences must come across, or they test less than they seem to.
EXPECTED = {
    "delta committed", "delta committed, nobody told", "snapshot committed", "snapshot committed, nobody told",
    "scanned base committed", "increments kept above a scanned base", "scan failed",
    "failed", "failed, nobody told", "no cut", "outcome unknown, there", "outcome unknown, not there",
    "published again", "trackers made anew", "cleared", "cleared while pending",
    "restored, newest, same shards", "restored, newest, other shards",
    "restored, older, same shards", "restored, older, other shards",
    "restored a differential, in place", "restored a differential, routed",
    "staged in a buffer directory", "rows captured by drain", "rows captured by update", "rows captured by lookup",
}


@pytest.fixture(scope="module")
def models():
    """A model for each number of shards, for all sequences."""
    made = {}
    for shards in (1, 2, 3):
        made[shards] = model = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2)
        # Before the next model of the same names is there: TFRA would give both the same slot.
        model.optimizer._create_all_weights(model.trainable_variables)
    return made


@pytest.fixture()
def directories() -> Iterator[Path]:
    """Where the checkpoints of all sequences go: memory, where there is some."""
    root = Path(tempfile.mkdtemp(prefix="tfadaptcp-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield root
    shutil.rmtree(root)


def run(models, directory: Path, steps: Steps, thorough: bool) -> Counter:
    for model in models.values():
        empty(model)
    pair = SideBySide(models, str(directory), thorough)
    try:
        pair.run(steps)
    finally:
        pair.close()
        shutil.rmtree(directory)
    return pair.seen


def empty(model):
    engine = getattr(model, ENGINE, None)
    if engine is not None:
        engine.detach()
        object.__delattr__(model, ENGINE)
    for _, variable in oracle.tables_of(model):
        variable.clear()


@pytest.mark.timeout(600 + 4 * max(SEQUENCES, MANY))
@pytest.mark.parametrize("sequences, seed", [(SEQUENCES, SEED), pytest.param(MANY, SEED + 1, marks=pytest.mark.slow)])
def test_product_and_model_agree(sequences, seed, models, directories, monkeypatch):
    direct_store.install(monkeypatch)
    dice = random.Random(seed)
    counter = iter(range(10**9))
    seen: Counter[str] = Counter()
    for i in range(sequences):
        steps = draw(dice, LONG_ODDS, 25, 45) if i % 4 == 3 else draw(dice, ODDS, 12, 32)
        thorough = i % THOROUGH == 0
        try:
            seen += run(models, directories / str(next(counter)), steps, thorough)
        except Exception:
            def goes_wrong(shorter: Steps) -> bool:
                try:
                    run(models, directories / str(next(counter)), shorter, thorough)
                except Exception:
                    return True
                return False
            steps = shrink(steps, goes_wrong)
            print(f"sequence {i} of seed {seed}, shortened:\n{show(steps)}")
            run(models, directories / str(next(counter)), steps, thorough)
            raise
    for what, times in sorted(seen.items()):
        print(f"{times:6d} {what}")
    assert sequences < 150 or seen.keys() >= EXPECTED, f"never happened: {EXPECTED - seen.keys()}"
