"""Segments on their way to the store: staged in memory or in a buffer directory, uploaded in parallel, tried again."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

import tfadaptcp
from tests.support import fault_lives, faults, oracle, rows
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import StoreUnavailableError

pytestmark = pytest.mark.usefixtures("no_plan_stays")
OPTIONS = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=512, timeout_seconds=30.0)


@pytest.fixture(params=["memory", "buffer_dir"])
def place(request, tmp_path):
    """A directory that is not written to directly, and the buffer directory to go with it."""
    if request.param == "memory":
        return f"ram://{tmp_path.name}-{os.getpid()}/checkpoints", None
    return str(tmp_path / "checkpoints"), tmp_path / "buffer"


def buffered_files(buffer_dir):
    return [name for _, _, names in os.walk(buffer_dir) for name in names if name != "lock"]


def check_restores(directory, copy):
    fresh = oracle.build("adam", tables=2, seed=3)
    fresh.load_adaptcp(directory)
    oracle.check(copy, fresh)


def test_both_levels(place):
    directory, buffer_dir = place
    model = oracle.build("adam", tables=2)
    rows.write(model, range(9000))
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=buffer_dir, engine=OPTIONS)
    manager.save()
    rows.write(model, range(100, 5000))
    manager.wait()
    rows.write(model, range(4000, 12000), seed=1)
    copy = oracle.take(model)
    manager.save() and manager.wait()
    stats = manager.stats()
    head = commit.latest(Store(), directory)
    written = [ref for ref in head.objects if ref.sequence == head.sequence]
    assert stats["uploads"] == len(written) > 3 and stats["upload_retries"] == 0
    assert stats["staged_peak_bytes"] > 0
    assert (stats["buffered_seconds"] > 0) == (buffer_dir is not None)
    assert buffer_dir is None or len(os.listdir(buffer_dir)) == 1 and not buffered_files(buffer_dir)
    check_restores(directory, copy)


def test_what_waits_is_bounded_and_seen(place):
    """A store that is slower than the encoders: they wait, nothing grows, and objects stay as large as they should be."""
    directory, buffer_dir = place
    model = oracle.build("adam", tables=2, dim=16)
    rows.write(model, range(60_000), value=1.0)
    block = 850 << 10  # of all rows that one batch of the drain has
    room = 2 << 20
    manager = tfadaptcp.CheckpointManager(
        model, directory, "incremental", buffer_dir=buffer_dir, engine=tfadaptcp.EngineOptions(
            segment_bytes=1 << 20, writer_threads=2, upload_threads=2, buffer_bytes=room,
            upload_bytes_per_second=16 << 20, capture_memory_bytes=2 << 20))
    copy = oracle.take(model)
    manager.save()
    rows.write(model, range(1000), value=2.0)
    manager.wait()
    stats = manager.stats()
    # A block of each writer, that of dense variables among them, may come after the last look.
    assert room / 2 < stats["staged_peak_bytes"] <= room + 3 * block
    assert stats["staging_wait_seconds"] > 0 and stats["capture_wait_seconds"] > 0
    sizes = [ref.bytes for ref in commit.latest(Store(), directory).objects]
    assert sum(sizes) > 3 * room and sum(size < block / 2 for size in sizes) <= 4, sizes
    fresh = oracle.build("adam", tables=2, dim=16, seed=3)
    fresh.load_adaptcp(directory)
    oracle.check(copy, fresh)


@pytest.mark.parametrize("policy", ["incremental", "differential"])
def test_the_last_blocks_find_no_room(policy):
    """Rows of one class only, and room for one block: what is open leaves to make room, to the very last."""
    directory = f"ram://last-{policy}-{os.getpid()}/checkpoints"
    model = oracle.build("adam", tables=2)
    manager = tfadaptcp.CheckpointManager(
        model, directory, policy, engine=tfadaptcp.EngineOptions(
            segment_bytes=1 << 24, block_bytes=1 << 16, buffer_bytes=1, writer_threads=1, timeout_seconds=60.0))
    for turn in range(2):
        # Of the drain's batches the first is more than a block, and the last is less.
        rows.write(model, range(100 * turn, 100 * turn + 4500), seed=turn)
        copy = oracle.take(model)
        manager.save() and manager.wait()
    check_restores(directory, copy)


def test_encoders_come_where_rows_wait_for_them(tmp_path):
    """k-means is slow; each encoder has files of its own, no name twice."""
    model = oracle.build("adam", dim=64)
    random = np.random.default_rng(0)
    for _, variable in oracle.tables_of(model):
        variable.upsert(tf.range(80_000, dtype=tf.int64), tf.constant(random.standard_normal((80_000, 64)), tf.float32))
    threads, restored = [], []
    for most in (1, 3):
        manager = tfadaptcp.CheckpointManager(
            model, tmp_path / str(most), "incremental", quantization=tfadaptcp.Quantization(4, "kmeans"),
            engine=tfadaptcp.EngineOptions(writer_threads=most, segment_bytes=1 << 20))
        manager.save() and manager.wait()
        threads.append(manager.stats()["encoder_threads"])
    for most in (1, 3):
        model.load_adaptcp(tmp_path / str(most))
        restored.append(oracle.take(model))
    assert threads[0] == 1 < threads[1] <= 3
    assert oracle.difference(*restored) is None


def test_an_encoder_with_nothing_to_do_makes_room():
    """A batch that takes all capture memory is in the hands of one that waits for what the files of another take.

    Two blocks fill the staging room. Rows are slow to encode at first, so that a second encoder comes.
    """
    sizes = {"slow": (64, 30_000), "wide": (512, 8_192)}  # in the order of the drain
    ids = tf.keras.Input((2,), dtype=tf.int64)
    layers = {name: de.keras.layers.Embedding(dim, name=name) for name, (dim, _) in sizes.items()}
    flat = [tf.keras.layers.Flatten()(layer(ids)) for layer in layers.values()]
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(tf.keras.layers.Concatenate()(flat)))
    model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(0.1)), "mse")
    model.optimizer._create_all_weights(model.trainable_variables)

    def values(name, turn):
        dim, count = sizes[name]
        return tf.random.stateless_normal([count, dim], (turn, dim))  # no two alike: k-means takes longest

    def write(turn):
        for name, (_, count) in sizes.items():
            layers[name].params.upsert(tf.range(count, dtype=tf.int64), values(name, turn))

    directory = f"ram://idle-{os.getpid()}/checkpoints"
    manager = tfadaptcp.CheckpointManager(
        model, directory, "incremental", quantization=tfadaptcp.Quantization(4, "kmeans"),
        engine=tfadaptcp.EngineOptions(capture_memory_bytes=1 << 24, block_bytes=3 << 19, buffer_bytes=1 << 20,
                                       segment_bytes=1 << 28, writer_threads=2, timeout_seconds=30.0))
    encoders = []
    for turn in range(12):
        write(turn)
        manager.save() and manager.wait()
        encoders.append(manager.stats()["encoder_threads"])
    assert 2 in encoders, encoders
    write(99)
    model.load_adaptcp(directory)
    for name, (dim, count) in sizes.items():
        restored = layers[name].params.lookup(tf.range(count, dtype=tf.int64))
        assert restored.shape == (count, dim)
        tf.debugging.assert_near(restored, values(name, 11), atol=1.5)  # 4 bits; many of another turn are further away


def test_segments_are_for_all_connections(place):
    """Automatic sizes: many uploads at once of what is worth it, one of what isn't."""
    directory, buffer_dir = place
    model = oracle.build("adam", dim=64)
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=buffer_dir)
    rows.write(model, range(30_000), value=1.0)
    manager.save() and manager.wait()
    assert manager.stats()["bytes"]["base"] > 20 << 20
    refs = commit.latest(Store(), directory).objects
    assert 6 <= sum(ref.kind == "base" for ref in refs) <= 12, refs
    rows.write(model, range(100), value=2.0)
    manager.save() and manager.wait()
    refs = commit.latest(Store(), directory).objects
    assert sum(ref.kind == "increment" for ref in refs) == 1


def test_an_attempt_that_fails_is_followed_by_one_of_another_name(tmp_path, caplog):
    """At each operation on data of a checkpoint. (kubeflow/examples#318, gcsfs#130: no name is written twice)"""
    model = oracle.build("adam")
    directory = str(tmp_path / "checkpoints")
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=tmp_path / "buffer", engine=OPTIONS)
    manager.save() and manager.wait()
    retried = set()
    for at in itertools.count(1):
        rows.write(model, range(at, at + 40), seed=at)
        copy = oracle.take(model)
        log = tmp_path / f"log-{at}"
        with faults.plan(f"match={directory}/data;log={log};errno={errno.EIO}@{at}"):
            manager.save()
            manager.wait()
        if "tidying up after it failed" in caplog.text:
            break
        assert manager.stats()["committed"] == at + 1, "it was tried again"
        operations = [line.split()[1:] for line in log.read_text().splitlines()]
        created = [name for operation, name in operations if operation == "create"]
        assert len(created) == len(set(created)), created
        if manager.stats()["upload_retries"]:
            retried.add(operations[at - 1][0])
            written = commit.latest(Store(), directory).objects
            assert sum(ref.path.endswith("-try2.seg") for ref in written) >= 1
        fresh = oracle.build("adam", seed=3)
        fresh.load_adaptcp(directory)
        oracle.check(copy, fresh)
    # Two objects are uploaded at once: an operation may slip from one place to the next.
    assert len(retried & {"mkdir", "create", "write", "fsync", "close", "fsync_dir"}) >= 4, retried
    for _ in range(2):
        manager.save() and manager.wait()  # their passes of retention take what attempts have left
    heads, _ = commit.list_heads(Store(), directory)
    needed = {ref.path for head in heads for ref in head.objects}
    for head in heads:
        data = join("data", head.name)
        assert {join(data, item) for item in Store().list(join(directory, data))} <= needed


def test_a_store_that_stays_away_fails_the_save_in_time(place):
    directory, buffer_dir = place
    model = oracle.build("adam", tables=2)
    rows.write(model, range(500))
    options = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=512, timeout_seconds=2.0)
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=buffer_dir, engine=options)
    manager.save() and manager.wait()
    rows.write(model, range(300, 800), seed=1)
    copy = oracle.take(model)
    faults.set_plan(f"match={directory}/data;errno={errno.EIO}@3+")
    manager.save()
    with pytest.raises(tfadaptcp.AdaptCPError, match="errno 5|No answer|Input/output"):
        manager.wait()
    assert faults.count() > 5, "it was tried again"
    faults.set_plan("")
    assert manager.stats()["failed"] == 1
    assert buffer_dir is None or not buffered_files(buffer_dir)
    manager.save() and manager.wait()  # holds what the failed one was to hold
    check_restores(directory, copy)


@pytest.mark.parametrize("fault", [f"errno={errno.EIO}@%d", "short@%d"])
def test_a_fault_at_each_operation_on_the_buffer(tmp_path, fault):
    """The save fails, and the next one holds its rows; nothing stays in the buffer."""
    model = oracle.build("adam")
    directory, buffer_dir = str(tmp_path / "checkpoints"), str(tmp_path / "buffer")
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=buffer_dir, engine=OPTIONS)
    failures = 0
    for at in itertools.count(1):
        rows.write(model, range(at, at + 40), seed=at)
        copy = oracle.take(model)
        with faults.plan(f"match={buffer_dir};{fault % at}"):
            manager.save()
            try:
                manager.wait()
            except tfadaptcp.AdaptCPError:
                failures += 1
                assert commit.latest(Store(), directory) is None or commit.latest(Store(), directory).step < at + 1
            struck = faults.count() >= at
        # Deleting what was uploaded may fail; the next process does it then.
        left = buffered_files(buffer_dir)
        assert len(left) <= 1
        for name in left:
            os.unlink(next(os.path.join(folder, name) for folder, _, names in os.walk(buffer_dir) if name in names))
        manager.save() and manager.wait()
        fresh = oracle.build("adam", seed=3)
        fresh.load_adaptcp(directory)
        oracle.check(copy, fresh)
        if not struck:
            break
    assert failures >= 6, failures


@pytest.mark.parametrize("staged", [False, True])
def test_a_hung_store_holds_up_no_later_checkpoint(tmp_path, staged):
    """What hangs stays behind, and does no harm when it goes on."""
    model = oracle.build("adam")
    rows.write(model, range(500))
    directory = str(tmp_path / "checkpoints")
    options = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=512, timeout_seconds=3.0)
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", engine=options,
                                          buffer_dir=tmp_path / "buffer" if staged else None)
    manager.save() and manager.wait()
    for at in (1, 3):
        rows.write(model, range(100 * at, 100 * at + 300), seed=at)
        copy = oracle.take(model)
        with faults.plan(f"match=increment-ps0;hang@{at}"):
            manager.save()
            with pytest.raises(tfadaptcp.AdaptCPError, match="No answer .*ps 0"):
                manager.wait()
            assert faults.count() >= at
            # It still hangs.
            manager.save() and manager.wait()
            check_one(directory, copy)
        check_one(directory, copy)
    manager.save() and manager.wait()
    check_one(directory, copy)


def check_one(directory, copy):
    fresh = oracle.build("adam", seed=3)
    fresh.load_adaptcp(directory)
    oracle.check(copy, fresh)


CRASH = """
import sys, time
import tfadaptcp
from tests.support import faults, oracle, rows
directory, buffer_dir = sys.argv[1:]
model = oracle.build("adam")
rows.write(model, range(12000))
manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=buffer_dir,
                                      engine=tfadaptcp.EngineOptions(segment_bytes=16384, block_bytes=512, upload_threads=1))
faults.set_plan(f"match={directory}/data/0;hang@6")
manager.save()
print("saving", flush=True)
time.sleep(600)
"""


def test_what_a_crash_has_left_in_the_buffer_goes(tmp_path, caplog):
    directory, buffer_dir = str(tmp_path / "checkpoints"), str(tmp_path / "buffer")
    child = subprocess.Popen([sys.executable, "-c", CRASH, directory, buffer_dir], stdout=subprocess.PIPE, text=True)
    try:
        assert "saving\n" in child.stdout  # reads on until it is there
        deadline = time.monotonic() + 60
        while len(buffered_files(buffer_dir)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # While that process lives its files stay, whoever else buffers there.
        model = oracle.build("adam")
        rows.write(model, range(50))
        other = tfadaptcp.CheckpointManager(model, tmp_path / "other", "incremental", buffer_dir=buffer_dir)
        other.save() and other.wait()
        assert len(buffered_files(buffer_dir)) >= 3 and len(os.listdir(buffer_dir)) == 2
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    caplog.set_level("INFO", "tfadaptcp")
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", buffer_dir=buffer_dir)
    assert not buffered_files(buffer_dir) and len(os.listdir(buffer_dir)) == 1
    assert "Directories of dead processes removed there: 1" in caplog.text
    assert manager.latest_checkpoint is None
    copy = oracle.take(model)
    manager.save() and manager.wait()
    check_one(directory, copy)
    # Nor does what that process had uploaded stay in the directory.
    head = commit.latest(Store(), directory)
    assert Store().list(join(directory, "data")) == [head.name]


def test_a_buffer_that_cannot_be_written_to(tmp_path):
    model = oracle.build("adam")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match="ps 0 .* can't write to buffer_dir .*file"):
        tfadaptcp.CheckpointManager(model, tmp_path / "checkpoints", buffer_dir=tmp_path / "file")
    for wrong in (tmp_path / "checkpoints", tmp_path / "checkpoints" / "data", tmp_path):
        with pytest.raises(ValueError, match="buffer_dir: Received: .*Expected: a path apart from"):
            tfadaptcp.CheckpointManager(model, tmp_path / "checkpoints", buffer_dir=wrong)


def test_bases_that_are_scanned_go_the_same_way(place):
    directory, buffer_dir = place
    model = oracle.build("adam")
    rows.write(model, range(2000))
    manager = tfadaptcp.CheckpointManager(model, directory, fault_lives.POLICY, buffer_dir=buffer_dir, engine=OPTIONS)
    for step in range(12):
        rows.write(model, range(50 * step, 50 * step + 200), seed=step)
        copy = oracle.take(model)
        manager.save() and manager.wait()
        if manager._scan is not None:
            manager._scan._thread.join(60)
    assert manager.stats()["bases"] >= 3 and manager.stats()["failed"] == 0
    assert buffer_dir is None or not buffered_files(buffer_dir)
    check_one(directory, copy)
