"""Rows that are looked up while a checkpoint is pending are captured next, with their slots, before the update comes."""

import threading

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows


class HeldSave:
    """Holds the drain back until told, so that all that lookups and updates do comes before it."""

    def __init__(self, engine, monkeypatch):
        self.go = threading.Event()
        save = engine.save

        def held(*args):
            assert self.go.wait(60)
            return save(*args)

        monkeypatch.setattr(engine, "save", held)


def look_up(model, keys, table=0):
    list(oracle.tables_of(model))[table][1].lookup(tf.constant(list(keys), tf.int64))


@pytest.fixture
def saved(tmp_path):
    """A model with 500 rows in two shards, a manager factory, and what its last checkpoint captured."""
    model = oracle.build("momentum", devices=["/CPU:0"] * 2, dim=2)
    model.optimizer._create_all_weights(model.trainable_variables)
    rows.write(model, range(500), seed=1)

    def run(monkeypatch, during, **options):
        manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental",
                                              engine=tfadaptcp.EngineOptions(**options))
        copy = oracle.take(model)
        with monkeypatch.context() as patch:
            held = HeldSave(manager.engine, patch)
            name = manager.save().name
            during(model)
            held.go.set()
            manager.wait()
        stats = manager.stats()
        fresh = oracle.build("momentum", devices=["/CPU:0"] * 3, dim=2, seed=8)
        fresh.load_adaptcp(tmp_path, name)
        oracle.check(copy, fresh, name, shards=False)
        return [stats[f"rows_by_{source}"] for source in ("drain", "lookup", "update")]

    return run


def test_lookups_hurry_their_rows(saved, monkeypatch):
    def during(model):
        look_up(model, range(100, 180))
        look_up(model, range(100, 150))  # named twice, captured once
        look_up(model, range(5000, 5100))  # unknown rows are nobody's

    assert saved(monkeypatch, during) == [420, 80, 0]


def test_an_update_that_is_faster_captures_itself(saved, monkeypatch):
    def during(model):
        look_up(model, range(100, 180))
        rows.write(model, range(160, 200), seed=2)
        look_up(model, range(190, 210))  # 190 to 199 are captured and written

    assert saved(monkeypatch, during) == [500 - 60 - 10 - 40, 60 + 10, 40]


def test_lookups_of_slots_hurry_nothing(saved, monkeypatch):
    assert saved(monkeypatch, lambda model: look_up(model, range(50), table=1)) == [500, 0, 0]


@pytest.mark.parametrize("options", [{"lookup_capture": False}, {"capture": "blocking"}], ids=["off", "blocking"])
def test_switched_off(saved, monkeypatch, options):
    if "capture" in options:
        # Nothing runs beside a blocking checkpoint: `save` would not return before it is told to go on.
        monkeypatch.setattr(HeldSave, "__init__", lambda self, *_: setattr(self, "go", threading.Event()))
    assert saved(monkeypatch, lambda model: look_up(model, range(50)), **options) == [500, 0, 0]


def test_more_lookups_than_are_remembered(saved, monkeypatch):
    """Beyond the bound they are left to the drain, and nothing is lost."""
    def during(model):
        for _ in range(5):  # each shard's half of them, 262,500 times
            look_up(model, [*range(500)] * 210)

    assert saved(monkeypatch, during) == [0, 500, 0]
