"""Processes that end while a checkpoint is pending, each in its own way.

The server has imported tfadaptcp and run no op of TensorFlow, so that it can fork; a child ends as a Python program does,
through the exit of its interpreter. Usage: `python -m tests.support.ending_jobs DIRECTORY`: runs all lives, each in a
directory of its name, and prints a line of JSON: {life: wait status}.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import tfadaptcp

import tensorflow as tf

from tests.support import lines, oracle, rows
from tests.support.fitting import data, step_of
from tfadaptcp import termination
from tfadaptcp.checkpoint.faults import set_fault_hook

class Life:
    """One process: its directory, and what it writes down for the test."""

    def __init__(self, root: Path, ready: int):
        self.root, self._ready = root, ready
        self._go = threading.Event()
        (root / "copies").mkdir(parents=True)

    def tell_operator(self, callback=None) -> None:
        os.write(self._ready, b"x")

    def note(self, name: str, text: str = "") -> None:
        (self.root / name).write_text(text)

    def keep_copy(self, model) -> None:
        (self.root / "copies" / str(step_of(model))).write_bytes(pickle.dumps(oracle.take(model)))

    def hold_manifests(self) -> None:
        """All manifests but the first one are held back: their checkpoints are pending until the release."""
        seen = set()

        def hook(op, path):
            if op == "create" and "/manifests/" in path:
                seen.add(path)
                if len(seen) > 1:
                    self._go.wait(3600)

        set_fault_hook(hook)

    def release_soon(self) -> None:
        """Lets them go while the process is ending."""
        timer = threading.Timer(0.5, self._go.set)
        timer.daemon = True
        timer.start()

    def release_at_sigterm(self) -> None:
        def wait():
            while not termination.is_terminating():
                time.sleep(0.02)
            time.sleep(0.3)
            self._go.set()

        threading.Thread(target=wait, daemon=True).start()

    # -------------------------------------------------------------- fit

    def fit(self, at_second, batches=60, **options) -> None:
        """Saves at each 5th batch; calls `at_second` with the callback when the second checkpoint is pending."""
        model = oracle.build()
        model.compile(model.optimizer, "mse", run_eagerly=True)  # it costs seconds to trace a step
        callback = tfadaptcp.AdaptCPCallback(self.root / "checkpoints", 5, "incremental",
                                             engine=tfadaptcp.EngineOptions(**options))
        life = self

        class AfterSave(tf.keras.callbacks.Callback):
            saves = 0

            def on_train_batch_end(self, batch, logs=None):
                manager = callback.manager
                if manager.stats()["saves"] > self.saves:
                    self.saves += 1
                    life.keep_copy(model)
                    if self.saves == 1:
                        manager.wait()
                        life.note("installed", str(signal.getsignal(signal.SIGTERM)))
                    elif self.saves == 2:
                        assert manager.is_saving
                        at_second(callback)
                elif self.saves > 1:
                    time.sleep(0.1)  # so that the signal comes long before the end

        model.fit(data(batches), verbose=0, callbacks=[callback, AfterSave()])
        life.keep_copy(model)

    def terminated(self):
        self.hold_manifests()
        self.release_at_sigterm()
        self.fit(self.tell_operator)

    def terminated_too_late(self):
        self.hold_manifests()
        self.fit(self.tell_operator, timeout_seconds=5.0)

    def terminated_with_a_handler(self):
        """The user's handler stops training, which then ends as it does: with a last checkpoint."""
        def ready(callback):
            def handler(signum, frame):
                manager = callback.manager
                self.note("handled", json.dumps({"pending": manager.is_saving, "signum": int(signum),
                                                 "committed": manager.stats()["committed"]}))
                callback.model.stop_training = True

            self.handler = handler
            self.tell_operator()

        def call(signum, frame):
            self.handler(signum, frame)

        signal.signal(signal.SIGTERM, call)
        self.hold_manifests()
        self.release_at_sigterm()
        self.fit(ready, batches=400)
        self.note("restored", str(signal.getsignal(signal.SIGTERM) is call))

    def interrupted(self):
        self.hold_manifests()
        try:
            self.fit(self.tell_operator)
        finally:
            self.release_soon()

    def in_a_daemon_thread(self):
        """The script ends while a thread of it trains."""
        self.hold_manifests()
        pending = threading.Event()
        threading.Thread(target=self.fit, args=(lambda _: pending.set(),), daemon=True).start()
        assert pending.wait(120)
        self.release_soon()

    # -------------------------------------------------------------- managers

    def pending(self):
        """A manager whose second checkpoint is pending."""
        model = oracle.build()
        manager = tfadaptcp.CheckpointManager(model, self.root / "checkpoints", "incremental")
        self.hold_manifests()
        for step in (1, 2):
            model.optimizer.iterations.assign(step)
            rows.write(model, range(30 * step), seed=step)
            self.keep_copy(model)
            manager.save()
        assert manager.is_saving
        rows.write(model, range(100), seed=3)
        return manager

    def script_ends(self):
        self.manager = self.pending()
        self.release_soon()

    def nobody_keeps_the_manager(self):
        self.pending()
        self.release_soon()

    def sys_exit(self):
        self.manager = self.pending()
        self.release_soon()
        sys.exit(7)

    def exception(self):
        self.manager = self.pending()
        self.release_soon()
        raise RuntimeError("on purpose")

    def killed_after_wait(self):
        manager = self.pending()
        self.release_soon()
        manager.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    def forks(self):
        """Children have copies of the manager and none of its threads: they leave the checkpoint alone."""
        manager = self.pending()
        statuses = []
        for by_signal in (False, True):
            child = os.fork()
            if child == 0:
                if by_signal:
                    time.sleep(60)
                sys.exit(3)  # through atexit
            if by_signal:
                os.kill(child, signal.SIGTERM)
            statuses.append(os.waitpid(child, 0)[1])
        assert manager.is_saving
        self.note("children", json.dumps(statuses))
        self._go.set()
        manager.wait()


LIVES = {"terminated": signal.SIGTERM, "terminated_too_late": signal.SIGTERM, "terminated_with_a_handler": signal.SIGTERM,
         "interrupted": signal.SIGINT, "in_a_daemon_thread": 0, "script_ends": 0, "nobody_keeps_the_manager": 0,
         "sys_exit": 0, "exception": 0, "killed_after_wait": 0, "forks": 0}


def main() -> None:
    root, statuses = Path(sys.argv[1]), {}
    for name, operator_sends in LIVES.items():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            # A background process of a shell starts without.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            getattr(Life(root / name, writer), name)()
            return
        os.close(writer)
        ready = os.read(reader, 1)
        if ready and operator_sends:
            os.kill(child, operator_sends)
        statuses[name] = os.waitpid(child, 0)[1]
        os.close(reader)
    lines.say("STATUSES " + json.dumps(statuses))


if __name__ == "__main__":
    main()
