"""What hosts say, or don't, and what of it is told."""

import pytest
import tensorflow as tf

import tfadaptcp
from tests.product.test_lineage import check_newest, save
from tests.support import oracle, rows
from tfadaptcp import hosts
from tfadaptcp.engine import Engine

# What is raised if one server has lost rows and another says nothing.
LATE_AND_LOST = tfadaptcp.DeadlineError("missed")
LATE_AND_LOST.__cause__ = tf.errors.DataLossError(None, None, "lost")


@pytest.mark.parametrize("error, is_told", [
    (tf.errors.UnavailableError(None, None, "missed"), False), (tfadaptcp.DeadlineError("missed"), False),
    (tf.errors.DataLossError(None, None, "missed"), True), (LATE_AND_LOST, True)])
def test_a_server_that_misses_that_a_checkpoint_is_committed(error, is_told, tmp_path, monkeypatch):
    """The next cut tells it, and it was stored all the same; but not if a row was never captured."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    save(manager, model, 0)
    resolve, missed = Engine.resolve, []

    def miss(self, sequence, committed, **options):
        if committed and not missed:
            missed.append(sequence)
            raise error
        resolve(self, sequence, committed, **options)

    monkeypatch.setattr(Engine, "resolve", miss)
    rows.write(model, range(5), seed=1)
    copy = oracle.take(model)
    manager.save()
    if is_told:
        with pytest.raises(tfadaptcp.SaveFailedError, match="is committed, but: missed"):
            manager.wait()
    else:
        manager.wait()
    assert missed and manager.stats()["failed"] == 0 and manager.stats()["committed"] == 2
    check_newest(tmp_path, copy)
    rows.write(model, range(5, 8), seed=2)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    assert set(manager.stats()["rows"]["increment"].values()) == {3}, "rows of the one before are no unsaved ones any more"
    check_newest(tmp_path, copy)


def test_what_a_server_says_tells_more_than_that_another_says_nothing():
    def failing(error):
        raise error

    silent, lost = (kind(None, None, "said") for kind in (tf.errors.UnavailableError, tf.errors.DataLossError))
    calls = hosts.Calls([hosts.Host(i, "/job:localhost", (), ()) for i in range(3)], "session")
    for errors in ((silent, lost, silent), (lost, silent, silent)):
        with pytest.raises(tf.errors.DataLossError):
            calls.parallel({(i, 0): lambda error=error: failing(error) for i, error in enumerate(errors)}, 10)
    with pytest.raises(tf.errors.UnavailableError):
        calls.parallel({(i, 0): lambda: failing(silent) for i in range(2)}, 10)
