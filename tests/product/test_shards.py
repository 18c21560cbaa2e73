"""Several shards of a group in one process, and restores into other numbers of shards."""

import pytest
import tensorflow as tf

import tfadaptcp
from tests.product.test_roundtrip import POLICIES
from tests.support import oracle, rows
from tfadaptcp import cli, policies, routing
from tfadaptcp.checkpoint import commit, format as segment_format
from tfadaptcp.checkpoint.store import Store


def by_last_digit(keys, shard_num):
    return tf.cast((keys % 10) % shard_num, tf.int32)


def build(shards, partitioner=None, tables=2, optimizer="adam", **kwargs):
    if partitioner is not None:
        kwargs["partitioner"] = partitioner
    return oracle.build(optimizer, tables=tables, devices=["/CPU:0"] * shards, **kwargs)


LONG_CHAIN = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=10, max_restore_factor=50.0)


def make_checkpoints(model, directory, policy=LONG_CHAIN):
    """Returns {head: copy at its cut}: a base, then increments and differentials with removals."""
    manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=10)
    copies = {}
    for i in range(4):
        rows.write(model, range(40 * i, 40 * i + 100), value=i + 0.5)
        rows.remove(model, range(40 * i + 10, 40 * i + 15))
        copy = oracle.take(model)
        name = manager.save().name
        rows.write(model, range(0, 300, 7))  # after the cut
        manager.wait()
        copies[name] = copy
    return copies


@pytest.mark.parametrize("policy", [LONG_CHAIN, policies.Differential()], ids=lambda policy: policy.name)
def test_two_shards_in_one_process(policy, tmp_path):
    model = build(2)
    copies = make_checkpoints(model, tmp_path, policy)
    oracle.check_placement(model)
    head = commit.list_heads(Store(), str(tmp_path))[0][-1]
    assert [group.num_shards for group in head.groups] == [2, 2]
    assert head.table_rows == list(copies.values())[-1].rows()
    # The manifest counts the rows of both shards; each file names both.
    written = {}
    for ref in head.objects:
        if ref.kind == "dense":
            continue
        segment = segment_format.read_segment((tmp_path / ref.path).read_bytes(), ref.path, ref.crc32c)
        shards = {(group.name, group.shard) for group in segment.header.groups}
        assert len(shards) == len(segment.header.groups) == 4
        for group, count in ref.rows.items():
            written.setdefault(ref.kind, {}).setdefault(group, 0)
            written[ref.kind][group] += count
    assert written == head.rows
    # The live rows: nothing is below a base that a tombstone could hide.
    assert written["base"] == {"emb0-parameter": 95, "emb1-parameter": 95}
    for name in reversed(copies):
        model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, name)
    fresh = build(2, seed=77)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copies[head.name], fresh)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_four_shards_under_every_policy(policy, tmp_path):
    """(DeepRec#999, PR#983)"""
    copies = make_checkpoints(build(4), tmp_path, policy)
    fresh = build(4, seed=77)
    for name in reversed(copies):
        fresh.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], fresh, name)


def test_each_object_is_read_once(tmp_path, monkeypatch):
    """(Paddle#11410)"""
    from tfadaptcp.engine import Engine
    model = build(2, tables=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, LONG_CHAIN)
    for i in range(3):
        rows.write(model, range(20 * i, 20 * i + 50))
        manager.save()
        manager.wait()
    head = commit.load(Store(), str(tmp_path), manager.latest_checkpoint)
    call = Engine.call
    opened = []

    def counted(self, host, op, request, *inputs):
        reply = call(self, host, op, request, *inputs)
        if "object" in request:
            opened.append(request["object"]["path"])
        for level in request.get("levels", []):
            opened.extend(item["path"] for item in level["objects"])
        return reply

    monkeypatch.setattr(Engine, "call", counted)
    objects = sorted(f"{tmp_path}/{ref.path}" for ref in head.objects if ref.kind != "dense")
    for shards in (2, 3):
        build(shards, tables=1).load_adaptcp(tmp_path)
        assert sorted(opened) == objects, f"into {shards} shards"
        opened.clear()


def test_the_chain_goes_on_in_another_number_of_shards(tmp_path):
    copies = make_checkpoints(build(1), tmp_path)
    before = list(copies)[-1]
    for shards in (3, 2):
        model = build(shards, seed=shards)
        model.load_adaptcp(tmp_path)
        manager = tfadaptcp.CheckpointManager(model, tmp_path, LONG_CHAIN, max_to_keep=10)
        rows.write(model, [3, 4, 1000 + shards])
        copy = oracle.take(model)
        manager.save()
        info = manager.wait()
        head = commit.load(Store(), str(tmp_path), info.name)
        assert head.base_sequence == 1, "rows that were not touched are not written again"
        for again in (1, shards):
            fresh = build(again, seed=50)
            fresh.load_adaptcp(tmp_path)
            oracle.check(copy, fresh, f"{shards} shards, into {again}", shards=False)
            oracle.check_placement(fresh)
    # And back to a head of the first job.
    model.load_adaptcp(tmp_path, before)
    oracle.check(copies[before], model, before, shards=False)


def test_custom_partitioner(tmp_path):
    model = build(3, by_last_digit)
    copies = make_checkpoints(model, tmp_path)
    assert commit.list_heads(Store(), str(tmp_path))[0][-1].groups[0].partition.startswith("custom:")
    name = list(copies)[-1]
    # The same, the default one, and the same over other shards.
    for shards, partitioner in ((3, by_last_digit), (3, None), (2, by_last_digit)):
        fresh = build(shards, partitioner, seed=9)
        fresh.load_adaptcp(tmp_path)
        oracle.check(copies[name], fresh, f"{shards}, {partitioner}", shards=False)
        oracle.check_placement(fresh)


@pytest.mark.parametrize("shards", [4, 1])
def test_a_custom_partitioner_that_thinks_of_no_single_shard(shards, tmp_path):
    """With one shard TFRA never asks it."""
    def of_four(keys, shard_num):
        return tf.cast(keys % 4, tf.int32)

    copies = make_checkpoints(build(shards, of_four), tmp_path)
    fresh = build(1, of_four, seed=9)
    fresh.load_adaptcp(tmp_path)
    oracle.check(list(copies.values())[-1], fresh, shards=False)


def test_a_custom_partitioner_that_changed_under_its_name(tmp_path):
    """The name can't tell; the rows must still be where they are looked up."""
    def make(step):
        def place(keys, shard_num):
            return tf.cast((keys // step) % shard_num, tf.int32)
        return place

    copies = make_checkpoints(build(2, make(1)), tmp_path)
    fresh = build(2, make(4), seed=9)
    fresh.load_adaptcp(tmp_path)
    oracle.check(list(copies.values())[-1], fresh, shards=False)
    oracle.check_placement(fresh)


def test_rows_that_are_lost_on_the_way_to_their_shard_fail_the_restore(tmp_path, monkeypatch):
    """One row of each piece is not sent: what arrives is counted, exactly."""
    make_checkpoints(build(2), tmp_path, policies.Incremental())
    partition = tf.dynamic_partition

    def losing(data, partitions, num_partitions):
        return partition(data[1:], partitions[1:], num_partitions)

    fresh = build(3)
    monkeypatch.setattr(tf, "dynamic_partition", losing)
    name = commit.list_heads(Store(), str(tmp_path))[0][-1].name
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="rows from the files"):
        fresh.load_adaptcp(tmp_path, name)
    monkeypatch.undo()
    assert fresh.load_adaptcp(tmp_path, name).checkpoint == name


def test_an_op_that_a_server_lacks_is_no_damage(tmp_path, monkeypatch, caplog):
    """One that a partition function needs: checkpoint after checkpoint was tried, and all passed for damaged."""
    newest = list(make_checkpoints(build(2), tmp_path))[-1]
    tried, fresh = [], build(3)

    def lacking(engine, head, *args):
        tried.append(head.name)
        raise tf.errors.NotFoundError(None, None, "Op type not registered 'X' in binary running on ps0")

    with monkeypatch.context() as patched:
        patched.setattr(routing, "restore", lacking)
        for checkpoint in (None, newest):
            with pytest.raises(tfadaptcp.RestoreFailedError, match=f"{newest}.*Op type not registered 'X'"):
                fresh.load_adaptcp(tmp_path, checkpoint)
    assert tried == [newest] * 2 and "Falling back" not in caplog.text
    assert fresh.load_adaptcp(tmp_path).checkpoint == newest


def test_shards_without_rows(tmp_path, capsys):
    """All rows in one shard of three, then none in any: bases, deltas and restores of nothing. (DeepRec PR#741,
    pytorch#108869)"""
    model = build(3, tables=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, LONG_CHAIN, max_to_keep=10)
    copies = {}
    for step in (lambda: rows.write(model, range(0, 90, 3)), lambda: rows.write(model, [0, 3], seed=1),
                 lambda: rows.remove(model, range(0, 90, 3)), lambda: rows.write(model, [4])):
        step()
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        manager.wait()
    assert [len({shard for shard, _ in copy.tables["emb0-parameter"].values()}) for copy in copies.values()] == [1, 1, 0, 1]
    for shards in (3, 2, 1):
        fresh = build(shards, tables=1, seed=9)
        rows.write(fresh, range(5))  # must go
        for name, copy in copies.items():
            report = fresh.load_adaptcp(tmp_path, name)
            assert report.rows == copy.rows()
            oracle.check(copy, fresh, f"{name} into {shards}", shards=shards == 3)
    assert cli.main(["verify", str(tmp_path)]) == 0, capsys.readouterr().out
