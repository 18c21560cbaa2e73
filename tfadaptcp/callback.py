"""AdaptCPCallback: checkpoints during `Model.fit`."""

import logging
import os
import weakref
from typing import Any, Dict, Optional, Tuple, Union

import tensorflow as tf

from tfadaptcp import draining, policies, quantization as quantizing, termination
from tfadaptcp.checkpoint.store import normalize
from tfadaptcp.embeddings import lazy_build, optimizers
from tfadaptcp.errors import AdaptCPError, CheckpointNotFoundError, FencedError
from tfadaptcp.manager import CheckpointManager
from tfadaptcp.options import ON_PENDING, EngineOptions, options_for
from tfadaptcp.policies.base import Estimation
from tfadaptcp.scalars import ScalarWriter

_log = logging.getLogger("tfadaptcp")

# The callbacks of each `fit` that runs, by its History: a new one with each, also after one that raised.
_together: "weakref.WeakKeyDictionary[Any, weakref.WeakSet]" = weakref.WeakKeyDictionary()

_ON_FAILURE = ("continue", "stop")


class AdaptCPCallback(tf.keras.callbacks.Callback):
    """Takes a checkpoint every `save_freq` batches, while training goes on.

    Example::

        callback = tfadaptcp.AdaptCPCallback("/checkpoints/run7", save_freq=100)
        model.fit(data, callbacks=[callback])

    Args:
        directory: local path or URL of the checkpoint directory, visible to every parameter server by this name.
        save_freq: batches between checkpoints, or "epoch".
        policy: see `CheckpointManager`.
        buffer_dir: local path where each parameter server keeps segments until they are uploaded; see
            `CheckpointManager`.
        max_to_keep: checkpoints of this lineage that stay.
        restore: when a model's first training begins, before its first step, restore the newest checkpoint of the
            directory; start fresh, with a log line, if there is none. Training that follows goes on from there, but for its
            count of epochs, which is that of `fit`: give it `initial_epoch`, or a log line says what is counted anew. After
            a restore that failed, and for another model, the next begins with one.
        quantization: how rows are quantised in files: a `Quantization`, "auto", or None: not at all.
        engine: see `CheckpointManager`.
        on_pending: while a checkpoint is still being written: "skip" the next one, or "wait". None: what the policy
            brings, as the baselines do, or "skip".
        on_failure: when a checkpoint has failed: "continue" with a warning, or "stop" training by raising its error at
            the next end of a batch. A coordinator that has been superseded always stops.
        save_at_end: at the end of `fit`, save what is newer than the last checkpoint, and wait until it is durable.
        log_dir: for TensorBoard, as of `tf.keras.callbacks.TensorBoard`: the `stats()` of the manager after each checkpoint
            are written to `<log_dir>/adaptcp`, under the same names. None: nothing is written.

    While `fit` runs in the main thread, a SIGTERM waits until the pending checkpoint is durable, at most
    `timeout_seconds`; then the handler that was there before is called, or the process ends. The handler is put back at
    the end of `fit`; after a `fit` that raised, at the end of the next one.

    Several of these callbacks may be in one `fit`, with a directory each, policies of the same decay and estimator, and
    every checkpoint complete, as what the trackers call saved is in one directory at a time.

    Attributes:
        manager: the `CheckpointManager`; None until training begins.
        report: the `RestoreReport` of `restore=True`, None if nothing was restored.

    Raises:
        ValueError: an argument is wrong. When training begins, or with the first batch of a model that is built by it, what
            `CheckpointManager` raises, and for `restore=True` what `Model.load_adaptcp` does: the directory is looked at
            then.
    """

    def __init__(self, directory: Union[str, os.PathLike], save_freq: Union[int, str] = 1000,
                 policy: Union[str, policies.Policy] = "adaptive", *, buffer_dir: Union[None, str, os.PathLike] = None,
                 max_to_keep: int = 3, restore: bool = False, quantization: quantizing.Choice = None,
                 engine: Optional[EngineOptions] = None, on_pending: Optional[str] = None, on_failure: str = "continue",
                 save_at_end: bool = True, log_dir: Optional[Union[str, os.PathLike]] = None):
        super().__init__()
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1):
            raise ValueError(f"save_freq: Received: {save_freq!r}. Expected: batches, at least 1, or 'epoch'")
        policy = policies.get(policy)
        on_pending = getattr(policy, "on_pending", "skip") if on_pending is None else on_pending
        for name, value, choices in (("on_pending", on_pending, ON_PENDING), ("on_failure", on_failure, _ON_FAILURE)):
            if value not in choices:
                raise ValueError(f"{name}: Received: {value!r}. Expected: one of {choices}")
        for name, value in (("restore", restore), ("save_at_end", save_at_end)):
            if not isinstance(value, bool):
                raise ValueError(f"{name}: Received: {value!r}. Expected: True or False")
        # Under a coordinator logs are remote values; waiting for them would wait for the step.
        self._supports_tf_logs = True
        self._save_freq = save_freq
        self._manager_args: Dict[str, Any] = dict(
            directory=directory, policy=policy, buffer_dir=buffer_dir, max_to_keep=max_to_keep,
            quantization=quantizing.get(quantization), engine=options_for(policy, engine))
        self._restore = restore
        self._on_pending = on_pending
        self._on_failure = on_failure
        self._save_at_end = save_at_end
        self._scalars = None if log_dir is None else ScalarWriter(log_dir)
        self.manager: Optional[CheckpointManager] = None
        self.report = None
        self._uncounted = None  # the report, until the first epoch after it has begun
        self._restored = lambda: None  # the model that was restored, or found no checkpoint: not again
        self._call_off = None
        self._epoch = 0  # epochs completed
        self._batch = 0  # batches scheduled in the current one
        self._at_once = 1  # batches in an execution, at most
        self._in_flight = 0  # executions that the last cut did not wait for
        self._since_due = 0  # batches since a checkpoint was last due
        self._stopped = False  # whether training was told to stop by the last batch
        self._unsaved = False  # whether batches came after the last checkpoint
        self._saved_step: Optional[int] = None  # that of the last checkpoint
        self._ran_before = 0  # Keras's count of steps when the epoch began

    def on_train_begin(self, logs=None):
        self._refuse_others()
        self._since_due, self._at_once = 0, 1
        if self.manager is not None and not self.manager.serves(self.model):
            termination.unwatch(self.manager)
            self.manager.close()
            self.manager = None
        if self.model.built:
            self._start()
        else:
            # No step may run before the tables are restored.
            self._call_off = lazy_build.before_first_step(self.model, self._start_in_epoch)

    def _start_in_epoch(self):
        self._start()
        self._tell_of_epochs()

    def _start(self):
        if self.manager is None:
            self.manager = CheckpointManager(self.model, **self._manager_args)
        if self._restore and self._restored() is not self.model:
            try:
                self.report = self._uncounted = self.manager.restore()
            except CheckpointNotFoundError:
                _log.info("No checkpoint in %s: starting fresh.", self._manager_args["directory"])
            self._restored = weakref.ref(self.model)
        termination.watch(self.manager, self._manager_args["engine"].timeout_seconds)

    def _tell_of_epochs(self):
        report, self._uncounted = self._uncounted, None
        if report is not None and report.epoch > self._epoch:
            _log.warning("Training goes on from checkpoint %s, at which %d epochs were completed, but fit counts from %d, and so "
                         "will the checkpoints that follow. Expected: fit(initial_epoch=%d).", report.checkpoint, report.epoch,
                         self._epoch, report.epoch)

    def _refuse_others(self):
        """Raises if another callback of this fit can't be there beside this one."""
        history = getattr(self.model, "history", None)
        if history is None:
            return
        others = _together.setdefault(history, weakref.WeakSet())
        others.add(self)
        for other in others - {self}:
            mine, theirs = self._manager_args, other._manager_args
            if normalize(mine["directory"]) == normalize(theirs["directory"]):
                raise ValueError(
                    "Two AdaptCPCallbacks of one fit would take their directory from one another. Received: twice "
                    f"{mine['directory']!r}. Expected: a directory each")
            estimations = [Estimation.of(args["policy"]) for args in (mine, theirs)]
            if estimations[0] != estimations[1]:
                raise ValueError(
                    "AdaptCPCallbacks of one fit share the trackers of its tables, and their estimates. Received: policies "
                    "that estimate by " + " and ".join(f"{item.estimator}, decay by {item.decay}" for item in estimations)
                    + ". Expected: the same estimator and the same decay")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._tell_of_epochs()
        self._batch = 0
        # Not 0 in the first where another callback has set it.
        self._ran_before = int(self.model._train_counter.numpy())
        self._stopped = False

    def on_train_batch_end(self, batch, logs=None):
        draining.hold_back(self.model, self._manager_args["engine"].drain_timeout_seconds)
        ended = batch + 1 - self._batch  # several with steps_per_execution
        self._at_once = max(self._at_once, ended)
        self._since_due += ended
        self._batch = batch + 1
        self._unsaved = True
        self._stopped = self.model.stop_training
        self._surface(self.manager.poll())
        if self._scalars is not None:
            self._scalars.write(self.manager.stats())
        if self._save_freq != "epoch" and self._since_due >= self._save_freq:
            queues = self._has_to_queue()
            if not queues or self._since_due >= 2 * self._save_freq:
                self._since_due %= self._save_freq
                self._save("wait" if queues else self._on_pending)

    def on_epoch_end(self, epoch, logs=None):
        # The data may have ended before the epoch, and in the middle of an execution of several steps.
        ran = int(self.model._train_counter.numpy()) - self._ran_before
        if ran:  # a train function of the model's own may not count
            self._unsaved |= ran != self._batch
            self._batch = ran
        steps = (self.params or {}).get("steps")
        # Keras ends an epoch that was stopped in the middle as it ends any other.
        if self._batch >= steps if steps else not self._stopped:
            self._epoch, self._batch = epoch + 1, 0
        if self._save_freq == "epoch":
            self._save("wait" if self._has_to_queue() else self._on_pending)
        is_last = self.model.stop_training or epoch + 1 == (self.params or {}).get("epochs")
        if is_last and self._save_at_end and self._unsaved:
            self._save("wait")  # at the end of training `EarlyStopping` puts weights of another epoch in their place

    def on_train_end(self, logs=None):
        call_off, self._call_off = self._call_off, None
        if call_off is not None:
            call_off()
        if self.manager is None:
            return
        try:
            self._finish()
        finally:
            termination.unwatch(self.manager)
            if self._scalars is not None:
                self._scalars.write(self.manager.stats())
                self._scalars.close()

    def _finish(self):
        # If the newest one fails, what it was to hold is newer than the last checkpoint: one more attempt.
        for _ in range(2):
            # A step that finds no data any more is counted by the optimizer, though by nobody else.
            # Keras has just replaced weights of which it keeps averages by these.
            is_newer = self._save_at_end and (self._unsaved or self._saved_step not in (None, self._step())
                                              or getattr(optimizers.inner(self.model.optimizer), "use_ema", False))
            is_taken = not is_newer or self._save("wait")
            try:
                self.manager.wait()
                if is_taken:
                    return
            except Exception as error:
                self._surface(error)
                self._unsaved = True

    def _step(self) -> int:
        return int(self.model.optimizer.iterations.numpy())

    def _has_to_queue(self) -> bool:
        """Whether another callback's checkpoint is being written: whoever is skipped for that would be each time. It is asked
        again after the next batch, and waits once it was due twice."""
        return self._on_pending == "skip" and self.manager.engine.is_writing and not self.manager.is_saving

    def _save(self, on_pending) -> bool:
        """Returns whether that was possible: taken or skipped."""
        if termination.is_terminating():
            return True
        try:
            if on_pending == "wait" and self._scalars is not None:  # or the next one would begin before the last was written of
                self.manager.engine.wait_for_writer(self._manager_args["engine"].patience_seconds)
                self._scalars.write(self.manager.stats())
            info = self.manager.save_at(on_pending, self._position)
        except (AdaptCPError, OSError) as error:  # others are of the steps that the cut waited for
            self._surface(error)
            return False
        if info is not None:
            self._saved_step = info.step
            self._unsaved = self._in_flight > 0
        return True

    def _position(self, consistency: str) -> Tuple[int, int]:
        """Epochs completed and batches of the next one, for a cut that comes now."""
        self._in_flight = draining.scheduled(self.model) if consistency == "row" else 0
        if self._in_flight:  # nobody knows what the cut will have of them: rather twice than never
            return self._epoch, max(0, self._batch - self._at_once * self._in_flight)
        if self._batch and self._batch == (self.params or {}).get("steps"):
            return self._epoch + 1, 0  # so that `initial_epoch` doesn't begin with an empty epoch
        return self._epoch, self._batch

    def _surface(self, error: Optional[BaseException]) -> None:
        if error is None:
            return
        if self._on_failure == "stop" or isinstance(error, FencedError):
            raise error
        _log.warning("A checkpoint failed, training goes on: %s", error)
