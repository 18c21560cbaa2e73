"""The files of a checkpoint: few, each written once under its final name, good wherever they are copied to, and of no use
in another's place."""

import collections
import os
import struct
import threading

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import faults, oracle, rows, segments
from tests.support.bases import end_scan
from tests.support.saving import Mixed, heads_of
from tfadaptcp import _ops, cli, policies



def make_checkpoints(model, directory, policy=Mixed(), count=4, **kwargs):
    """Hot and cold rows; returns {head: copy at its cut}."""
    manager = tfadaptcp.CheckpointManager(model, directory, policy, **{"max_to_keep": 20, **kwargs})
    copies = {}
    for i in range(count):
        rows.write(model, range(100) if i == 0 else [*range(10), 100 + i], seed=i)
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        manager.wait()
        end_scan(manager)
    manager.close()
    return copies


def build():
    return oracle.build("momentum", devices=["/CPU:0"] * 2)


@pytest.fixture(scope="module")
def model():
    return build()


def test_few_whatever_the_number_of_tables_and_shards(tmp_path):
    """(Flink FLINK-11937)"""
    model = oracle.build("momentum", tables=6, devices=["/CPU:0"] * 3)
    make_checkpoints(model, tmp_path)
    for head in heads_of(tmp_path):
        own = collections.Counter(ref.kind for ref in head.objects if ref.sequence == head.sequence)
        assert sum(own.values()) >= 2 and max(own.values()) == 1, own


@pytest.mark.parametrize("where", ["local", "ram"])
def test_each_is_written_once_under_its_final_name(model, where, tmp_path):
    """Through restores, renewals of the base and retention. (kubeflow/examples#318; tensorflow PR#36388)"""
    directory = str(tmp_path / "run") if where == "local" else f"ram://once-{os.getpid()}/run"
    os.makedirs(tmp_path / "trace")
    with faults.plan(f"match=/run/;trace={tmp_path / 'trace'}"):
        for _ in range(2):
            make_checkpoints(model, directory, policies.Incremental(full_every=2), 6, max_to_keep=2)
            model.load_adaptcp(directory)
    steps = [line.split(" ", 3)[1:] for line in (tmp_path / "trace" / "log").read_text().splitlines()]
    created = collections.Counter(path for operation, _, path in steps if operation == "create")
    deleted = {path for operation, _, path in steps if operation == "delete"}
    assert len(created) > 40 and set(created.values()) == {1}, created.most_common(3)
    there = {os.path.join(folder, name) for folder, _, names in tf.io.gfile.walk(directory) for name in names}
    assert there == set(created) - deleted, "nothing got its name in another way"


@pytest.mark.parametrize("where", ["local", "ram"])
def test_a_copy_is_a_checkpoint_directory(model, where, tmp_path):
    """Copied file by file, the manifests first, with new times; the original is gone. (orbax#394)"""
    original = tmp_path / "original"
    copies = make_checkpoints(model, original)
    copied = str(tmp_path / "copied") if where == "local" else f"ram://copied-{os.getpid()}/run"
    for path in sorted((path for path in original.rglob("*") if path.is_file()), reverse=True):
        target = f"{copied}/{path.relative_to(original)}"
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.copy(str(path), target)
        if where == "local":
            os.utime(target, (0, 0))
    original.rename(tmp_path / "away")
    assert cli.main(["verify", copied]) == 0
    for name, copy in copies.items():
        assert model.load_adaptcp(copied, name).checkpoint == name
        oracle.check(copy, model, name)
    manager = tfadaptcp.CheckpointManager(model, copied, Mixed(), max_to_keep=20)
    rows.write(model, [7, 300], seed=9)
    copy = oracle.take(model)
    manager.save()
    info = manager.wait()
    manager.close()
    assert [head.name for head in heads_of(copied)][:4] == list(copies), "none was taken for a leftover"
    assert heads_of(copied)[-1].base_sequence == heads_of(copied)[0].sequence, "the chain goes on"
    rows.write(model, range(400))
    assert model.load_adaptcp(copied).checkpoint == info.name
    oracle.check(copy, model)


@pytest.mark.parametrize("kind", ["base", "increment", "differential", "dense"])
def test_one_in_the_place_of_another_is_refused(model, kind, tmp_path):
    """Whole and undamaged, of the same kind and sequence of another run. (recsys-examples#454)"""
    make_checkpoints(build(), tmp_path)
    make_checkpoints(build(), tmp_path / "other")
    head = heads_of(tmp_path)[-1]
    ref = [ref for ref in head.objects if ref.kind == kind][-1]
    foreign, = [item for item in heads_of(tmp_path / "other")[-1].objects
                if item.kind == kind and item.sequence == ref.sequence]
    (tmp_path / ref.path).write_bytes((tmp_path / "other" / foreign.path).read_bytes())
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=os.path.basename(ref.path)):
        model.load_adaptcp(tmp_path, head.name)
    assert cli.main(["verify", str(tmp_path), "--checkpoint", head.name]) == 1


class Counting:
    """Stands in for the library of ops: counts the bytes that eager calls take from this process and bring to it."""

    def __init__(self, library):
        self._library = library
        self.bytes = 0

    def __getattr__(self, name):
        op = getattr(self._library, name)

        def call(*inputs, **attributes):
            outputs = op(*inputs, **attributes)
            for item in tf.nest.flatten([inputs if name != "adaptcp_save" else inputs[:1], outputs]):
                if isinstance(item, (str, bytes)) or tf.is_tensor(item) and tf.executing_eagerly() \
                        and item.dtype != tf.resource:
                    value = np.asarray(item)
                    self.bytes += sum(map(len, value.ravel())) if value.dtype == object else value.nbytes
            return outputs

        return call


@pytest.mark.parametrize("shards", [2, 3], ids=["in_place", "routed"])
def test_no_rows_pass_through_the_coordinator(shards, tmp_path, monkeypatch):
    """(recommenders-addons#371, tensorflow#54105)"""
    model = oracle.build("momentum", devices=["/CPU:0"] * 2, dim=64)
    rows.write(model, range(8000))
    counting = Counting(_ops.lib())
    monkeypatch.setattr(_ops, "lib", lambda: counting)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "full")
    counting.bytes = 0  # rows that were there before are listed on their host, by keys that never leave it
    manager.save()
    written = manager.wait().bytes
    target = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=64, seed=9)
    target.load_adaptcp(tmp_path)
    assert written > 8000 * 64 * 4 and 1000 < counting.bytes < written / 20, (written, counting.bytes)


def blocks_of(directory, head, kind):
    """How many rows each block of a head's own files of a kind holds."""
    records = [record for ref in head.objects if ref.kind == kind and ref.sequence == head.sequence
               for record in segments.split((directory / ref.path).read_bytes())]
    return [struct.unpack_from("<I", record, 8)[0] for record in records if record[0] == ord("R")]


def test_blocks_of_tombstones_take_no_more_memory_than_others(tmp_path):
    """A row of 768 bytes is gone in 12: as many as fit in a block would take 60 times its size when they are restored."""
    model = oracle.build("adam", dim=64)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", engine=tfadaptcp.EngineOptions(block_bytes=1 << 16))
    rows.write(model, range(10_000))
    manager.save() and manager.wait()
    rows.remove(model, range(9990))
    manager.save() and manager.wait()
    found = blocks_of(tmp_path, heads_of(tmp_path)[-1], "increment")
    assert sum(found) == 9990 and max(found) <= 4096, found  # as many are captured at once
    fresh = oracle.build("adam", dim=64, seed=9)
    fresh.load_adaptcp(tmp_path)
    oracle.check(oracle.take(model), fresh)


def test_an_op_with_many_keys_makes_blocks_as_others(tmp_path, monkeypatch):
    """All that it wrote over was captured in one piece, whatever memory there was for it, and became one block."""
    model = oracle.build("momentum", dim=2)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", engine=tfadaptcp.EngineOptions(block_bytes=1 << 16))
    rows.write(model, range(60_000), seed=1)
    copy, save, go = oracle.take(model), manager.engine.save, threading.Event()
    monkeypatch.setattr(manager.engine, "save", lambda *args: go.wait(60) and save(*args))
    manager.save()
    rows.write(model, range(60_000), seed=2)  # before the drain has begun
    go.set()
    manager.wait()
    assert manager.stats()["rows_by_update"] == 60_000
    found = blocks_of(tmp_path, heads_of(tmp_path)[-1], "base")
    assert sum(found) == 60_000 and max(found) <= 16_384, found
    fresh = oracle.build("momentum", dim=2, seed=9)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)
