"""Writers on the same rows while checkpoints are written: what restores is what was there at the cut.

Writers stop for a copy and the cut alone, and run again before `save` has returned, so that the drain and
the updates race for the rows of each checkpoint.
"""

import itertools
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle
from tfadaptcp import EngineOptions, policies

KEYS = 20000
BATCH = 800


class Writers:
    """Threads that upsert and now and then remove, each row a function of a counter.

    All tables of the group are written, one op after another, as an optimizer does. Ops of one table
    and key from two threads come in any order; the copy at the cut says in which.
    """

    def __init__(self, model, threads=3, removes=True):
        self._variables = [variable for _, variable in oracle.tables_of(model)]
        self._removes = removes
        self._counter = itertools.count(1)
        self._locks = [threading.Lock() for _ in range(threads)]  # held by each write, and by whoever wants quiet
        self.written = 0  # by all, roughly
        self._stop = threading.Event()
        self.errors = []
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.errors, self.errors

    def pause(self):
        """Returns when no write is on its way; none begins until `resume`."""
        for lock in self._locks:
            lock.acquire()

    def resume(self):
        for lock in self._locks:
            lock.release()

    def _run(self, index):
        random = np.random.default_rng(index)
        try:
            while not self._stop.is_set():
                with self._locks[index]:
                    self._write(random)
                    self.written += 1
                time.sleep(0)
        except BaseException as error:  # noqa: B902 (told by __exit__)
            self.errors.append(error)

    def _write(self, random):
        count = next(self._counter)
        # Half of the keys belong to the few that everybody writes.
        keys = np.concatenate([random.choice(KEYS // 20, BATCH // 2, replace=False),
                               KEYS // 20 + random.choice(KEYS - KEYS // 20, BATCH // 2, replace=False)])
        if self._removes and count % 7 == 0:
            for variable in self._variables:
                variable.remove(tf.constant(keys[::8]))
            return
        for i, variable in enumerate(self._variables):
            rows = (count * 8.0 + i) + (keys % 64)[:, None] / 64.0 + np.zeros((1, variable.dim))
            variable.upsert(tf.constant(keys), tf.constant(rows, tf.float32))




def fill(model):
    for i, (_, variable) in enumerate(oracle.tables_of(model)):
        variable.upsert(tf.range(KEYS, dtype=tf.int64), tf.fill((KEYS, variable.dim), -1.0 - i))


POLICY = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=6, decay=0.5, max_restore_factor=20.0)


@pytest.mark.parametrize("options", [
    pytest.param(EngineOptions(block_bytes=64 << 10), id="plenty of memory"),
    pytest.param(EngineOptions(capture_memory_bytes=200_000, update_wait_seconds=60.0, writer_threads=2,
                               block_bytes=64 << 10), id="updates wait for memory"),
    pytest.param(EngineOptions(capture_memory_bytes=1, update_wait_seconds=60.0), id="one batch at a time"),
])
def test_no_row_is_captured_after_it_was_written(options, tmp_path):
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, POLICY, engine=options, max_to_keep=100)
    fill(model)
    copies, captured = {}, {"rows_by_drain": 0, "rows_by_update": 0, "updates_delayed": 0}
    with Writers(model) as writers:
        for _ in range(8):
            time.sleep(0.02)
            writers.pause()
            copy = oracle.take(model)
            info = manager.save()
            writers.resume()
            copies[info.name] = copy
            manager.wait()
            for source in captured:
                captured[source] += manager.stats()[source]
    print(captured)
    assert captured["rows_by_drain"] > 0 and captured["rows_by_update"] > 0
    if options.capture_memory_bytes is not None:
        assert captured["updates_delayed"] > 0
    kinds = set().union(*(info.rows for info in manager.checkpoints))
    assert kinds == {"base", "increment", "differential"}
    for name in reversed(copies):
        model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, name)


def test_a_checkpoint_is_given_up_rather_than_training(tmp_path, monkeypatch):
    """The writer stalls, memory runs out, an update waits no longer; nothing is lost by the next checkpoint."""
    model = oracle.build("adam")
    options = EngineOptions(capture_memory_bytes=300_000, update_wait_seconds=0.01)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, POLICY, engine=options, max_to_keep=100)
    fill(model)
    manager.save()
    manager.wait()
    # The save op starts late: until then nothing takes rows out of the buffer.
    save = manager.engine.save
    stalled = threading.Event()

    def late(*arguments):
        stalled.wait(30)
        return save(*arguments)

    monkeypatch.setattr(manager.engine, "save", late)
    with Writers(model) as writers:
        writers.pause()
        fill(model)  # more than the buffer holds is to be captured
        manager.save()
        writers.resume()
        before = writers.written
        while writers.written < before + 40:
            time.sleep(0.01)
        stalled.set()
        with pytest.raises(tfadaptcp.SaveFailedError, match="an update waited 10 ms for capture memory"):
            manager.wait()
        monkeypatch.undo()
        # Training went on; the next checkpoint has room enough, and all that the failed one had.
        manager.close()
        again = tfadaptcp.CheckpointManager(model, tmp_path, POLICY, max_to_keep=100)
        writers.pause()
        copy = oracle.take(model)
        again.save()
        writers.resume()
        info = again.wait()
        assert info.sequence > 2
    model.load_adaptcp(tmp_path)
    oracle.check(copy, model)
    assert len(again.checkpoints) == 3  # the first, its copy under the new claim, and the last


def test_training_races_with_checkpoints(tmp_path):
    """Steps of the optimizer itself, in a graph; saves in between wait for nothing."""
    model = oracle.build("adam", tables=2)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, POLICY, max_to_keep=100)
    trainer = oracle.Trainer(model)
    for i, (_, variable) in enumerate(oracle.tables_of(model)):
        variable.upsert(tf.range(3000, dtype=tf.int64), tf.fill((3000, variable.dim), 0.01 * i))
    copies, by_update = {}, 0
    for _ in range(10):
        trainer.train(3)
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        trainer.train(6)
        manager.wait()
        by_update += manager.stats()["rows_by_update"]
    print(f"{by_update} rows captured by updates")
    for name in copies:
        model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, name)
