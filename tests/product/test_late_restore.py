"""Ops of a restore that was given up change nothing in what came after it; nobody else's write passes for restored."""

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import _ops, restore, routing
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
    engine.restore = 1
    for late_op in (lambda: engine.list_rows([next(oracle.tables_of(target))[0]]),
                    lambda: engine.call(engine.hosts[0], _ops.lib().adaptcp_restore_end, {"restore": engine.restore})):
        with pytest.raises(tf.errors.FailedPreconditionError, match="of restore 1 came too late: restore 2 has begun"):
            late_op()
    engine.restore = 2
    oracle.check(copy, target, "after rows came late", shards=False)


@pytest.mark.parametrize("write", [lambda table: table.upsert(rows.keys_of(table, [5]), rows.values_of(table, 1, 7)),
                                   lambda table: table.remove(rows.keys_of(table, [5])), lambda table: table.clear()],
                         ids=["upsert", "remove", "clear"])
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("shards", [2, 3], ids=["in_place", "routed"])
def test_whoever_writes_while_rows_are_restored(shards, first, write, tmp_path, monkeypatch):
    """A row that was written before its own came has kept that out, and all numbers of rows were right."""
    model = oracle.build("momentum", devices=["/CPU:0"] * 2, dim=2)
    rows.write(model, range(100), seed=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    manager.save() and manager.wait()
    copy = oracle.take(model)
    target = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2, seed=9)
    table = next(variable for _, variable in oracle.tables_of(target))
    module, name = (restore, "_restore_in_place") if shards == 2 else (routing, "restore")
    apply = getattr(module, name)

    def beside(*args):
        for act in (lambda: write(table), lambda: apply(*args))[::1 if first else -1]:
            act()

    with monkeypatch.context() as patch:
        patch.setattr(module, name, beside)
        with pytest.raises(tfadaptcp.RestoreFailedError, match="1 writes to its tables while it was restored"):
            target.load_adaptcp(tmp_path)
    assert not any(oracle.take(target).rows().values()), "half restored is worse than empty"
    write(table)  # before, or after: that is nobody else's business
    target.load_adaptcp(tmp_path)
    oracle.check(copy, target, shards=False)
    write(table)


def test_a_restore_in_part_after_one_that_failed(tmp_path, monkeypatch):
    """What was written meanwhile to tables of the first one is none of the second's business."""
    model = oracle.build("momentum", tables=2)
    rows.write(model, range(100), seed=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    manager.save() and manager.wait()
    copy = oracle.take(model)

    def fail(*unused):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="broken"):
        patch.setattr(restore, "_restore_in_place", fail)
        model.load_adaptcp(tmp_path)
    rows.write(model, range(50), seed=2)
    first = next(oracle.tables_of(model))[0]
    model.load_adaptcp(tmp_path, tables=first)
    found = oracle.take(model).tables
    assert {name: table == found[name] for name, table in copy.tables.items()} == {
        name: name.startswith(first) for name in copy.tables}
