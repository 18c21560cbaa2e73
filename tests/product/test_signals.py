"""However a process ends: what is in the directory then restores, and a checkpoint that was acknowledged is there."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import types
import weakref

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle
from tests.support.ending_jobs import LIVES
from tests.support.fitting import data
from tests.support.jobs import ROOT
from tfadaptcp import termination
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """All lives, one after the other; (directory, {life: wait status}, a model to restore into)."""
    root = tmp_path_factory.mktemp("lives")
    done = subprocess.run([sys.executable, "-m", "tests.support.ending_jobs", str(root)], cwd=ROOT, timeout=280,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert "STATUSES " in done.stdout, done.stdout[-3000:] + done.stderr[-6000:]
    return root, json.loads(done.stdout.split("STATUSES ")[1]), oracle.build(seed=9), done.stderr


def check(ended, life, status, steps):
    """The process ended so; the checkpoints are of these steps, and each is what the model was."""
    root, statuses, model, stderr = ended
    assert statuses[life] == status, f"{life}: {statuses[life]}\n{stderr[-3000:]}"
    directory = root / life / "checkpoints"
    heads = commit.list_heads(Store(), str(directory))[0]
    assert [head.step for head in heads] == steps
    for head in heads:
        model.load_adaptcp(directory, head.name)
        oracle.check(pickle.loads((root / life / "copies" / str(head.step)).read_bytes()), model, f"{life}, {head.step}")


def test_sigterm_finishes_the_pending_checkpoint_and_ends_the_process(ended):
    check(ended, "terminated", signal.SIGTERM, [5, 10])
    assert "_handle" in (ended[0] / "terminated" / "installed").read_text()


def test_sigterm_gives_up_a_checkpoint_that_takes_too_long(ended):
    check(ended, "terminated_too_late", signal.SIGTERM, [5])


def test_sigterm_is_passed_on_to_the_handler_that_was_there(ended):
    root, _, _, _ = ended
    noted = root / "terminated_with_a_handler"
    handled = json.loads((noted / "handled").read_text())
    assert handled == {"pending": False, "signum": signal.SIGTERM, "committed": 2}
    assert (noted / "restored").read_text() == "True"
    last = max(int(name) for name in os.listdir(noted / "copies"))
    assert last > 10
    check(ended, "terminated_with_a_handler", 0, [5, 10, last])


def test_keyboard_interrupt(ended):
    check(ended, "interrupted", signal.SIGINT, [5, 10])


@pytest.mark.parametrize("life, status, steps", [
    ("in_a_daemon_thread", 0, [5, 10]), ("script_ends", 0, [1, 2]), ("nobody_keeps_the_manager", 0, [1, 2]),
    ("sys_exit", 7 << 8, [1, 2]), ("exception", 1 << 8, [1, 2]), ("killed_after_wait", signal.SIGKILL, [1, 2]),
    ("forks", 0, [1, 2])])
def test_other_ends(life, status, steps, ended):
    check(ended, life, status, steps)
    assert set(LIVES) == set(ended[1])


def test_children_end_at_once(ended):
    assert json.loads((ended[0] / "forks" / "children").read_text()) == [3 << 8, signal.SIGTERM]


def test_handlers_are_left_alone_in_other_threads_and_where_the_signal_is_ignored(tmp_path, monkeypatch):
    # Other tests of this process may have left managers of a `fit` that raised.
    monkeypatch.setattr(termination, "_managers", weakref.WeakKeyDictionary())
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        model = oracle.build()
        seen = []

        class Look(tfadaptcp.AdaptCPCallback):
            def on_train_batch_end(self, batch, logs=None):
                super().on_train_batch_end(batch, logs)
                seen.append(signal.getsignal(signal.SIGTERM))

        model.fit(data(1), verbose=0, callbacks=[Look(tmp_path / "a", 1)])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        thread = threading.Thread(target=lambda: model.fit(data(1), verbose=0, callbacks=[Look(tmp_path / "b", 1)]))
        thread.start()
        thread.join()
        assert seen == [signal.SIG_IGN, signal.SIG_DFL]
        model.fit(data(1), verbose=0, callbacks=[Look(tmp_path / "c", 1), Look(tmp_path / "d", 1)])
        assert signal.SIG_DFL not in seen[2:] and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_that_are_set_over_ours_and_call_it(monkeypatch):
    """The next `watch` found such a one, and each passed the signal on to the other until the stack was full."""
    calls = []
    manager = type("Manager", (), {"engine": types.SimpleNamespace(is_writing=False, writer=None)})()
    monkeypatch.setattr(termination, "_managers", {})
    before = signal.signal(signal.SIGTERM, lambda *unused: calls.append("first"))
    try:
        for name in ("second", "third"):
            termination.watch(manager, 1.0)
            ours = signal.getsignal(signal.SIGTERM)
            assert ours is termination._handle

            def over(*args, name=name):
                calls.append(name)
                ours(*args)

            signal.signal(signal.SIGTERM, over)
            termination.unwatch(manager)
        termination.watch(manager, 1.0)
        signal.raise_signal(signal.SIGTERM)
        assert calls == ["third", "second", "first"]
        termination.unwatch(manager)
        signal.raise_signal(signal.SIGTERM)
        assert calls == 2 * ["third", "second", "first"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_handler_is_put_back_by_the_fit_after_one_that_raised(tmp_path, monkeypatch):
    """Who held the manager of the first, as a traceback does, kept the handler there for ever."""
    def stop(*_, **__):
        raise ArithmeticError

    # Nothing of what fits before have left.
    monkeypatch.setattr(termination, "_managers", weakref.WeakKeyDictionary())
    monkeypatch.setattr(termination, "_before", [])
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        callback = tfadaptcp.AdaptCPCallback(tmp_path / "a")
        model = oracle.build("adam")
        with pytest.raises(ArithmeticError):
            model.fit(data(2), verbose=0,
                      callbacks=[callback, tf.keras.callbacks.LambdaCallback(on_batch_end=stop)])
        held = callback.manager
        assert signal.getsignal(signal.SIGTERM) is termination._handle
        other = oracle.build("adam", seed=9)
        other.fit(data(2), verbose=0, callbacks=[callback])
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler and held is not callback.manager
    finally:
        signal.signal(signal.SIGTERM, before)
