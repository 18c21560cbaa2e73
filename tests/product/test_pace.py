"""Long saves on a busy machine rest, which loses nothing; short ones don't."""

import contextlib
import os
import subprocess
import sys

import pytest

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import options

ROWS = 400_000  # longer than what is free


@contextlib.contextmanager
def busy():
    """Programs that want every core, and more of them than there are."""
    spin = "import sys, threading\nthreading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0)), " \
           "daemon=True).start()\nwhile True: pass"
    programs = [subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE)  # ends with this process
                for _ in range(2 * os.cpu_count())]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.communicate()


def job(directory):
    model = oracle.build("adam", dim=32)
    rows.write(model, range(ROWS))
    return model, tfadaptcp.CheckpointManager(model, directory, "incremental")


@pytest.mark.parametrize("trains, rests", [(True, True), (False, False), (True, False)],
                         ids=["training", "neighbours", "training, and it is late"])
def test_a_base_on_a_busy_machine(tmp_path, monkeypatch, trains, rests):
    """It rests for training, for a part of the time that it may take, and not for neighbours."""
    if trains and not rests:
        monkeypatch.setattr(options, "_RESTED", 0.0)
    model, manager = job(str(tmp_path))
    copy = oracle.take(model)
    with busy():
        manager.save()
        while trains and manager.is_saving:
            rows.write(model, range(0, ROWS, 7), seed=1)
        manager.wait()
    stats = manager.stats()
    assert stats["rows_by_drain"] + stats["rows_by_update"] == ROWS
    assert (stats["rest_seconds"] > 0) == rests, stats
    fresh = oracle.build("adam", dim=32, seed=3)
    fresh.load_adaptcp(str(tmp_path))
    oracle.check(copy, fresh)


def test_a_short_checkpoint_does_not_rest(tmp_path):
    model, manager = job(str(tmp_path))
    manager.save() and manager.wait()
    with busy():
        rows.write(model, range(2000), seed=1)
        manager.save()
        rows.write(model, range(100, 2000), seed=2)
        manager.wait()
    assert manager.stats()["rest_seconds"] == 0

