"""A restore that was given up may still have ops on their way: they change nothing in what came after it."""

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import restore, routing
from tfadaptcp.attaching import ENGINE


@pytest.mark.parametrize("shards", [2, 3], ids=["in_place", "routed"])
def test_ops_of_an_earlier_restore_are_refused(shards, tmp_path, monkeypatch):
    model = oracle.build("momentum", devices=["/CPU:0"] * 2, dim=2)
    rows.write(model, range(100), seed=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "full", max_to_keep=9)
    older = manager.save().name
    manager.wait()
    rows.write(model, range(50, 200), seed=2)
    manager.save()
    manager.wait()
    copy = oracle.take(model)

    late = []
    module, name = (restore, "_restore_in_place") if shards == 2 else (routing, "restore")
    apply = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: (late.append(args), apply(*args)))
    target = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2, seed=9)
    target.load_adaptcp(tmp_path, older)
    target.load_adaptcp(tmp_path)
    engine = getattr(target, ENGINE)
    engine.restore -= 1  # as the ops of the first restore have it
    with pytest.raises(tf.errors.FailedPreconditionError, match="came too late: restore 2 has begun"):
        apply(*late[0])
    engine.restore -= 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="began too late: restore 2 has begun"):
        restore._begin(engine, {"next_sequence": 9, "base_sequence": 0}, tfadaptcp.EngineOptions())
    engine.restore = 2
    oracle.check(copy, target, "after rows came late", shards=False)
