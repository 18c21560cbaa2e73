"""CheckpointManager: takes cuts, has them written in the background, commits them."""

import collections
import contextlib
import dataclasses
import logging
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import tensorflow as tf

from tfadaptcp import at_exit, claiming, deciding, draining, errors, hosts, measurements, policies, probe
from tfadaptcp import quantization as quantizing
from tfadaptcp.attaching import ENGINE, attach
from tfadaptcp.checkpoint import chain, claims, commit, layout
from tfadaptcp.checkpoint.manifest import Manifest, utc_now
from tfadaptcp.checkpoint.store import Store, join, normalize
from tfadaptcp.completing import complete
from tfadaptcp.engine import Engine
from tfadaptcp.errors import CommitOutcomeUnknownError, DeadlineError, FencedError, SaveFailedError
from tfadaptcp.info import CheckpointInfo, RestoreReport
from tfadaptcp.leftovers import Leftovers
from tfadaptcp.options import ON_PENDING, EngineOptions, counted, options_for
from tfadaptcp.pending import Pending
from tfadaptcp.policies.base import Estimation
from tfadaptcp.scanned_base import ScannedBase, Tries

_log = logging.getLogger("tfadaptcp")

# How long hosts may take to hear that a checkpoint has failed: a few seconds longer than they wait for its save to end.
# Training may be waiting, and what is missed does no harm.
_GIVE_UP_SECONDS = 10.0


class CheckpointManager:
    """Checkpoints of a model: tables, slots and dense variables, cut at one point and written while it trains.

    Example, in a custom loop::

        manager = tfadaptcp.CheckpointManager(model, "/checkpoints/run7")
        for step, batch in enumerate(data, 1):
            train_step(batch)
            if step % 100 == 0:
                manager.save(on_pending="skip")
        manager.wait()

    One thread calls the methods, that which trains or schedules the steps; `stats` may be called from any.
    A new manager writes a small file into the directory, from here and from every parameter server, and deletes it. From its
    first save on the directory is its own: then it claims it, and an older coordinator that still writes there stops.

    Args:
        model: a built `tf.keras.Model`.
        directory: local path or URL of the checkpoint directory. Every parameter server must reach it by this name.
        policy: what is hot and when a new base is due: a name or an object of `tfadaptcp.policies`.
        optimizer: None: `model.optimizer`. False: the weights only. Or the optimizer of a model that is not compiled.
        buffer_dir: local path on every parameter server, best on its fastest disk: segments become durable there first,
            which frees memory, and are uploaded from there. A checkpoint counts when it is durable in `directory`.
        max_to_keep: checkpoints of this lineage that stay.
        quantization: how rows are quantised in files: a `Quantization`, "auto", or None: not at all.
        engine: `EngineOptions`. None: those that the policy brings, as the baselines do, or the defaults.

    Raises:
        UnbuiltModelError: the model has no variables yet.
        UntrackableTableError, UnsupportedVariableError: a table's writes can't be tracked, a variable not be held; named.
        CheckpointMismatchError: two tables or variables of one name.
        ValueError: an argument is wrong; trainable tables and no optimizer.
        UnsupportedStoreError, StoreUnavailableError: the directory can't be written to.
        DeadlineError: a parameter server or the store did not answer, or another manager's checkpoint has not ended.
        ServerMismatchError: a parameter server runs without tfadaptcp, or with another version.
        SaveFailedError: a parameter server failed otherwise, as one does that was restarted.
    """

    def __init__(self, model: tf.keras.Model, directory: Union[str, os.PathLike],
                 policy: Union[str, policies.Policy] = "adaptive", *, optimizer: Any = None,
                 buffer_dir: Union[None, str, os.PathLike] = None, max_to_keep: int = 3, quantization: quantizing.Choice = None,
                 engine: Optional[EngineOptions] = None):
        self._policy = policies.get(policy)
        self._options = options_for(self._policy, engine)
        if isinstance(max_to_keep, bool) or not isinstance(max_to_keep, int) or max_to_keep < 1:
            raise ValueError(f"max_to_keep: Received: {max_to_keep!r}. Expected: an integer of at least 1")
        self._quantization = quantizing.get(quantization)
        self._directory = normalize(directory)
        self._buffer_dir = probe.buffer_directory(buffer_dir, self._directory)
        self._store = Store(deadline_seconds=self._options.timeout_seconds)
        self._store.check_supported(self._directory)
        self._leftovers = Leftovers(self._store, self._directory, max_to_keep)
        self._model = model
        self._optimizer = optimizer
        self._engine = self._attached()
        try:
            probe.check(self._engine, self._store, self._directory, self._buffer_dir, self._options.timeout_seconds)
        except tf.errors.OpError as error:
            raise SaveFailedError(f"The start-up probe of {self._directory} failed: {error}") from error
        self._claim: Optional[claims.Claim] = None
        self._run: Optional[str] = None  # of a claim that failed: it may yet arrive, and must not fence its own manager
        self._sequence = 0
        self._last_committed = 0
        self._last_scanned_base = 0  # of the last committed, 0 unless it was the first to go by it
        self._scan: Optional[ScannedBase] = None
        self._scan_tries = Tries()
        self._attempt_failed = False  # since the last pass of retention: what it has left may take all the room
        self._last_head: Optional[Manifest] = None
        self._pending: Optional[Pending] = None
        self._error: Optional[BaseException] = None  # of a checkpoint that failed, until somebody is told
        self._fenced: Optional[FencedError] = None
        self._counters = {"saves": 0, "committed": 0, "bases": 0, "skipped": 0, "failed": 0}
        self._last: Dict[str, Any] = {}
        self._steps_hang = False  # whether the last cut has waited for them in vain
        self._step_of_last_cut = 0
        self._last_intervals: Deque[int] = collections.deque(maxlen=2)  # in steps
        self._time_of_last_cut: Optional[float] = None  # monotonic; None: not of this start, or of another state
        self._closed = False
        self._stay_open_at_exit = at_exit.close(self)

    # ------------------------------------------------------------- saving

    def save(self, on_pending: str = "wait", *, epoch: int = 0, batch: Optional[int] = None,
             epoch_start_step: int = 0) -> Optional[CheckpointInfo]:
        """Takes a checkpoint: the cut now, the writing in the background.

        When it returns, every write made before is in the checkpoint, and none made after. Nothing is raised here for
        an earlier checkpoint that failed: see `wait`.

        Args:
            on_pending: while an earlier checkpoint is being written: "wait" for it, or "skip" this one.
            epoch: epochs completed.
            batch: batches completed in the current one; None: steps since `epoch_start_step`.
            epoch_start_step: `optimizer.iterations` when the epoch began.

        Returns:
            Its info, rows and bytes None; None if it was skipped.

        Raises:
            ValueError: `on_pending` is unknown, or a number is no integer of at least 0.
            RuntimeError: the manager is closed.
            FencedError: another coordinator has claimed the directory.
            SaveFailedError: the cut failed, on the parameter server named; the rows stay unsaved. Or the model has another
                optimizer than when the manager was made.
            StoreUnavailableError: the directory could not be listed or claimed.
            CommitOutcomeUnknownError: the head that a restored model goes on from could not be published again.
            UntrackableTableError, UnsupportedVariableError, CheckpointMismatchError: the model has got what can't be
                tracked since.
            DeadlineError: the store, a parameter server or the checkpoint before did not answer, or end, in time.
            Exception: whatever a scheduled step raised while the cut waited for it.
        """
        if on_pending not in ON_PENDING:
            raise ValueError(f"on_pending: Received: {on_pending!r}. Expected: one of {ON_PENDING}")
        epoch, epoch_start_step = counted("epoch", epoch), counted("epoch_start_step", epoch_start_step)
        batch = None if batch is None else counted("batch", batch)
        return self.save_at(on_pending, lambda consistency: (epoch, batch), epoch_start_step)

    def save_at(self, on_pending: str, position: Callable[[str], Tuple[int, Optional[int]]],
                epoch_start_step: int = 0) -> Optional[CheckpointInfo]:
        """As `save`, with a position in the data that is asked for right before the cut.

        Args:
            position: returns epoch and batch, given the consistency.
        """
        if self._closed:
            raise RuntimeError("This CheckpointManager is closed.")
        self._require_its_optimizer()
        self._counters["saves"] += 1
        began = time.monotonic()
        for engine in (self._engine, getattr(self._model, ENGINE)):  # the model may have got another one since
            if engine.is_writing:  # perhaps another manager's
                if on_pending == "skip":
                    return self._skip("the one before is still being written")
                engine.wait_for_writer(self._options.patience_seconds)
        self._reap()
        if self._fenced is not None:
            raise self._fenced
        self._follow_model()
        self._begin_lineage()
        start = time.monotonic()
        # One short interval may have ended with its fit, and say nothing of those to come.
        steps = max(self._last_intervals) if len(self._last_intervals) == 2 else None
        hang, self._steps_hang = self._steps_hang and draining.scheduled(self._model) > 0, False
        consistency = "row" if hang or draining.costs_much(self._model, steps) else self._options.consistency
        if consistency == "step" and not draining.drain(self._model, self._options.drain_timeout_seconds):
            self._steps_hang = True
            _log.warning("No scheduled step has ended within %g s: the next checkpoint will not wait for them.",
                         self._options.drain_timeout_seconds)
            return self._skip("scheduled steps do not end")
        drained = time.monotonic()
        epoch, batch = position(consistency)
        pending = self._begin(lambda name, replaced: self._cut(name, replaced, consistency, epoch, batch, epoch_start_step))
        self._last.update(drain_wait_seconds=drained - start, cut_seconds=time.monotonic() - drained)
        if self._options.capture == "blocking":
            self._wait_until(pending, pending.is_stored.wait)
        elif self._options.capture == "snapshot":
            self._engine.wait_captured(pending.draft.sequence, self._options.timeout_seconds + pending.more_seconds)
        self._last["blocked_seconds"] = time.monotonic() - began
        return CheckpointInfo.of(pending.draft, durable=False)

    def wait(self) -> Optional[CheckpointInfo]:
        """Waits until the pending checkpoint is durable and returns its complete info, that of the last one if none is.

        None if this manager has committed none.

        Raises:
            DeadlineError: it has not ended in time, and is still pending.
            SaveFailedError, StoreUnavailableError, FencedError, ...: what failed since the last call, once. Training may
                go on: the rows are unsaved again and belong to the next checkpoint.
        """
        pending = self._pending
        if pending is not None:
            self._wait_until(pending, lambda seconds: pending.thread.join(seconds) or not pending.thread.is_alive())
        error = self.poll()
        if error is not None:
            raise error
        return None if self._last_head is None else CheckpointInfo.of(self._last_head)

    def poll(self) -> Optional[BaseException]:
        """Returns the error of a checkpoint that has failed since the last call of `poll` or `wait`, without waiting."""
        self._reap()
        error, self._error = self._error, None
        return error

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        pending = self._pending  # of another thread, which may take it away
        return pending is not None and pending.thread.is_alive()

    # ------------------------------------------------------------- reading

    def restore(self, checkpoint: Optional[str] = None, strict: bool = True, *,
                tables: Union[None, str, Iterable[str]] = None, rename: Optional[Mapping[str, str]] = None,
                optimizer: bool = True, cast: bool = False) -> RestoreReport:
        """Restores the newest checkpoint of the directory, or the one named; see `Model.load_adaptcp`.

        Raises:
            SaveFailedError: the model has another optimizer than when the manager was made.
            AdaptCPError, ValueError: as `Model.load_adaptcp`.
        """
        from tfadaptcp import matching, restore
        selection = matching.Selection.of(tables, rename, optimizer, cast, strict)
        self._require_its_optimizer()
        # A checkpoint drained from trackers that are reset meanwhile would lack rows, and pass for whole.
        self._engine.wait_for_writer(self._options.patience_seconds)
        self._reap()
        self._follow_model()
        report = restore.restore(self._model, self._engine, self._directory, checkpoint, strict, selection, self._options)
        # The next save claims the directory anew and goes on from what was restored.
        self._claim = self._time_of_last_cut = None
        return report

    @property
    def checkpoints(self) -> List[CheckpointInfo]:
        """Every valid checkpoint in the directory, oldest first, those of other lineages too.

        Raises StoreUnavailableError if it can't be listed, DeadlineError if that does not end; so does `latest_checkpoint`.
        """
        return [CheckpointInfo.of(head) for head in commit.list_heads(self._store, self._directory)[0]]

    @property
    def latest_checkpoint(self) -> Optional[str]:
        """The name of the newest checkpoint in the directory, None if there is none."""
        head = commit.latest(self._store, self._directory)
        return None if head is None else head.name

    def serves(self, model: tf.keras.Model) -> bool:
        """Whether this manager's checkpoints are those of `model` as it is now: with the optimizer it has now.

        A model that has changed is tracked anew for that; raises what the constructor raises.
        """
        return not self._closed and model is self._model and self._attached() is self._engine

    @property
    def _estimation(self) -> Estimation:
        return Estimation.of(self._policy)

    @property
    def engine(self) -> Engine:
        """The engine that tracks the model."""
        return self._engine

    def stats(self) -> Dict[str, Any]:
        """Counters, and measurements of the checkpoint that was written last. Any thread.

        Counters: "saves" that were asked for, of which some were "skipped", some "committed", some "failed"; "bases":
        those of the committed that began to go by a new base. "pending": whether one is being written,
        "pending_seconds": for how long it has been, 0 if none is: the backlog of a store that falls behind; "scanning":
        whether a base is being read beside training.

        Of the last checkpoint, counts and bytes summed over the parameter servers, seconds those of the slowest, if nothing
        else is said:
          * "step"; "threshold": the update probability above which a row was hot, and what else the policy says of it
            ("solver", "hazard", "period"); "hot_rows", "cold_rows" written, "rows" {kind: {group: rows}} and "bytes"
            {kind: bytes}; "predicted" at the cut and "actual": "hot_rows", "cold_rows", "bytes_written" (of rows),
            "bytes_restore", and "cost", both of them weighed by the hazard.
          * Means over the lineage: "seconds_per_interval" from cut to cut, "write_bytes_per_second",
            "read_bytes_per_second" of the last restore, "bytes_per_row" {group: bytes}; each once it is known.
          * Who captured the rows: "rows_by_drain" in the background, of its own accord, "rows_by_lookup" because a
            lookup hurried them, "rows_by_update" an update that came first; "updates_delayed" waited,
            "update_wait_seconds" altogether, on all servers, because the memory for captured rows was full, and the drain
            "capture_wait_seconds"; "rest_seconds" are what threads left to training on a busy machine.
            "capture_peak_bytes": the most that was captured and not encoded yet.
          * Who wrote them: "encoder_threads", "upload_threads" at once, "uploads" of segments, "upload_retries" after
            attempts that failed. "staged_peak_bytes": the most that waited for its upload; "staging_wait_seconds" that
            encoders waited, because it was as much as `buffer_bytes`.
          * Seconds: "drain_wait_seconds" for scheduled steps before the cut, "cut_seconds" for the cut, which training
            waits for; of the slowest parameter server "drain_seconds" until every row was captured,
            "buffered_seconds" until all was durable in `buffer_dir`, and "upload_seconds" from the end of the capture
            until all was durable in the directory; "save_seconds" altogether, with the commit;
            "blocked_seconds" that `save` took, with its waits for the checkpoint before and for steps.
          * Of the last base that was read beside training and is in use: "scan_seconds", "scan_bytes". No checkpoint
            counts these bytes as its own.
        """
        scan, pending = self._scan, self._pending
        is_saving = pending is not None and pending.thread.is_alive()
        return {**self._last, **self._counters, "pending": is_saving,
                "pending_seconds": time.monotonic() - pending.cut_at if is_saving else 0.0,
                "scanning": scan is not None and scan.is_running}

    def close(self) -> None:
        """Finishes the pending checkpoint, or gives it up after `timeout_seconds`, and ends. The model stays tracked."""
        if self._closed:
            return
        self._closed = True
        self._stay_open_at_exit()
        scan = self._scan  # the thread that writes may take it away
        if scan is not None:
            scan.give_up(self._options.timeout_seconds)
        pending = self._pending
        if pending is not None:
            seconds = self._options.timeout_seconds + pending.more_seconds
            pending.thread.join(seconds)
            if pending.thread.is_alive():
                _log.error("Giving up checkpoint %s: it was not written within %g s.", pending.draft.name, seconds)
        error = self.poll()
        if error is not None:
            _log.error("The last checkpoint failed: %s", error)

    # ------------------------------------------------------------- inside

    def _require_its_optimizer(self) -> None:
        """Raises if the model has been compiled anew: nobody would track the slots of its new optimizer."""
        if self._optimizer is None and getattr(self._model, "optimizer", None) is not self._engine.optimizer:
            raise SaveFailedError(
                f"Model {self._model.name!r} has another optimizer than when this CheckpointManager was made: its slots "
                f"would be missing. Received: {self._model.optimizer!r}. Expected: {self._engine.optimizer!r}, or a new "
                "CheckpointManager.")

    def _follow_model(self) -> None:
        """Tracks what the model has got since, while none is pending: the next checkpoint is complete."""
        current = getattr(self._model, ENGINE)
        if current is not self._engine and current.estimation == self._estimation:
            # A restore has tracked it anew, with another optimizer, say. A policy of another estimation would do so each time.
            _log.info("Model %r has been tracked anew since.", self._model.name)
            self._engine = self._attached()
        elif not self._engine.tracks(self._model, self._engine.optimizer):
            _log.info("Model %r has got tables or variables since it was tracked.", self._model.name)
            self._engine = self._attached()

    def _attached(self) -> Engine:
        try:
            return attach(self._model, self._optimizer, self._estimation, self._options.timeout_seconds)
        except tf.errors.OpError as error:
            raise SaveFailedError(f"Model {self._model.name!r} could not be tracked: {errors.text_of(error)}") from error

    def _wait_until(self, pending: Pending, wait: Callable[[float], bool]) -> None:
        patience = self._options.patience_seconds + pending.more_seconds
        if not wait(patience):
            raise DeadlineError(f"Checkpoint {pending.draft.name} has not ended within {patience:g} s.")

    def _skip(self, why: str) -> None:
        self._counters["skipped"] += 1
        _log.info("Skipping a checkpoint: %s.", why)

    def _reap(self) -> None:
        """Takes notice of the end of the pending checkpoint, if it has ended."""
        pending = self._pending
        if pending is None or pending.thread.is_alive():
            return
        self._pending = None
        if pending.error is not None:
            self._error = pending.error
            if isinstance(pending.error, FencedError):
                self._fenced = pending.error

    def _begin_lineage(self) -> None:
        """Claims the directory, once and after each restore, and re-publishes the head that the model goes on from."""
        restored = self._engine.lineage.was_restored_in(self._directory)
        if self._claim is not None and not restored:
            return
        if restored:
            self._time_of_last_cut = None
        self._run = self._run or layout.new_run()
        self._claim = None  # a claim that fails halfway is newer than the one before
        try:
            self._claim, self._sequence = claiming.claim(
                self._store, self._directory, self._engine, self._run, restored, self._options.timeout_seconds,
                lambda claim: self._leftovers.tidy(claim, None))
        except FencedError as error:
            self._fenced = error
            raise
        except tf.errors.OpError as error:
            raise SaveFailedError(f"{self._directory} could not be claimed: {error}") from error
        self._run = None
        # Of a manager before this one: nobody waits for what it scans.
        self._engine.void_scans(self._options.timeout_seconds)
        with contextlib.suppress(tf.errors.OpError, OSError):  # what is wrong the cut will meet, too
            probe.warn_if_full(self._engine, self._store, self._directory)

    def _begin(self, cut: Callable[[layout.HeadName, bool], Optional[Pending]]) -> Pending:
        """Cuts, and starts the thread that writes the checkpoint; whatever fails before that, no cut stays pending."""
        name = None
        try:
            for replaced in (False, True):
                name = self._next_name()
                self._engine.lineage.last_sequence = name.sequence
                pending = cut(name, replaced)
                if pending is not None:
                    break
            self._pending = pending
            self._engine.writer, self._engine.writer_more_seconds = pending.thread, pending.more_seconds
            pending.thread.start()
        except BaseException as error:  # an interrupt too
            if self._pending is not None and self._pending.thread.ident is not None:
                raise  # it is being written
            self._pending = self._engine.writer = None
            self._counters["failed"] += 1
            if name is not None:
                self._give_up(name.sequence)
            self._fenced = self._fence_behind(error)
            if self._fenced is not None:
                raise self._fenced from error
            if not isinstance(error, Exception) or isinstance(error, SaveFailedError):
                raise
            text = errors.text_of(error) if isinstance(error, tf.errors.OpError) else error
            raise SaveFailedError(f"checkpoint {name}: the cut failed: {text}") from error
        return pending

    def _cut(self, name: layout.HeadName, replaced: bool, consistency: str, epoch: int, batch: Optional[int],
             epoch_start_step: int) -> Optional[Pending]:
        """Cuts on all hosts. None: they know of tables that were cleared, imported or loaded; it has to be a base."""
        # None: nothing was saved to this directory yet, or another manager of the model has saved elsewhere since.
        head = self._engine.lineage.position_in(self._directory)
        lineage = head or self._engine.lineage.came_from(self._directory)  # trackers made since know of no head
        stats = chain.policy_stats(head)
        groups = self._engine.group_specs()
        failed = self._scan is not None and self._scan.has_failed
        if self._scan is not None and not self._scan.serves(self._engine, head):
            self._scan_tries.dropped(failed)
            self._scan.give_up(self._options.timeout_seconds)
            self._scan = None
        scan = self._scan if self._scan is not None and self._scan.is_ready else None
        if self._scan is not None:
            # The chain that begins with it keeps what is written from its start on, while it is still being read, too.
            since = self._scan.since
            stats = dataclasses.replace(
                stats, **since, last_period=stats.checkpoints_since_base - since["checkpoints_since_base"])
        is_base = head is None or replaced or chain.needs_base(head, groups)
        begin_scan = False
        if not is_base and self._scan is None and deciding.base_due(self._policy, stats):
            is_base = self._options.capture != "save_on_update" or getattr(self._policy, "snapshot_bases", False)
            begin_scan = not is_base and self._scan_tries.may_begin
        if is_base:
            scan = None
        decided = None if self._quantization is None else self._quantization.decide(chain.restores(lineage))
        request = {
            "root": self._directory, "generation": name.generation, "sequence": name.sequence, "run": name.run,
            "directory": join(self._directory, layout.data_path(name)), "kind": "base" if is_base else "delta",
            "last_committed": self._last_committed, "last_scanned_base": self._last_scanned_base,
            "predict": getattr(self._policy, "predicts", False),
            "quantization": quantizing.encodings(decided, self._engine.groups), **self._options.for_hosts(self._buffer_dir)}
        decision = deciding.decide(self._policy, stats, lambda: self._engine.histograms(
            name.sequence, self._options.timeout_seconds))
        request["thresholds"] = {group.name: decision.threshold for group in self._engine.groups}
        replies, copies = self._engine.cut(request, self._options.timeout_seconds)
        if any("replaced" in reply for reply in replies.values()):
            self._give_up(name.sequence)
            return None
        draft = Manifest(
            run=name.run, generation=name.generation, sequence=name.sequence,
            parent=self._engine.lineage.newest_in(self._directory), created=utc_now(),
            policy={**decision.record, "name": self._policy.name, "threshold": decision.threshold,
                    **dataclasses.asdict(self._estimation), "quantization": decided},
            step=copies.step, epoch=epoch,
            batch=max(0, copies.step - epoch_start_step) if batch is None else batch, consistency=consistency,
            base_sequence=name.sequence if is_base else head.base_sequence if scan is None else scan.start,
            groups=groups, dense=self._engine.dense_specs(), table_rows=measurements.table_rows(replies),
            incarnations=self._engine.incarnations, scalars=copies.scalars)
        if 0 < self._step_of_last_cut <= draft.step:  # it is greater after a restore
            self._last_intervals.append(draft.step - self._step_of_last_cut)
        self._step_of_last_cut = draft.step
        if begin_scan:
            self._scan = ScannedBase(self._engine, self._directory, self._next_name(), name.sequence,
                                     {**self._options.for_hosts(self._buffer_dir), "quantization": request["quantization"]},
                                     decided)
        now = time.monotonic()
        kept = chain.kept_bytes(head, is_base, None if scan is None else (scan.start, scan.objects))
        known = head is not None and self._time_of_last_cut is not None
        pending = Pending(draft, head, is_base, scan, failed or self._attempt_failed, decision=decision, lineage=lineage,
                          more_seconds=self._options.seconds_for(max(reply["bytes"] + copies.bytes_of(ps)
                                                                             for ps, reply in replies.items())),
                          predicted=deciding.predicted(decision, replies, kept),
                          interval=now - self._time_of_last_cut if known else None, cut_at=now)
        self._time_of_last_cut = now
        pending.thread = threading.Thread(target=self._finish, args=(pending, request, copies.tensors),
                                          name=f"tfadaptcp-{name.sequence}", daemon=True)
        return pending

    def _fence_behind(self, error: BaseException) -> Optional[FencedError]:
        """Whether a host has refused because another coordinator has claimed the directory, and writes through it."""
        refused = isinstance(error, tf.errors.FailedPreconditionError)
        return claims.fence(self._store, self._directory, self._claim) if refused else None

    def _give_up(self, sequence: int) -> None:
        """Puts the rows of a cut back on the unsaved lists; a host that doesn't hear of it does so at the next cut."""
        self._engine.resolve(sequence, False, best_effort=True,
                             timeout_seconds=min(_GIVE_UP_SECONDS, self._options.timeout_seconds))

    def _next_name(self) -> layout.HeadName:
        """A name in the directory that nothing has had: of a checkpoint, or of a scanned base."""
        self._sequence = max(self._sequence, self._engine.lineage.last_sequence + 1)
        name = layout.head_name(self._claim.generation, self._sequence, self._claim.run)
        self._sequence += 1
        return name

    def _finish(self, pending: Pending, request: Dict[str, Any], copies: Dict[int, List[tf.Tensor]]) -> None:
        """Background thread: writes, commits, tells the hosts, tidies up."""
        try:
            self._store_and_tidy(pending, request, copies)
        finally:
            pending.is_stored.set()

    def _store_and_tidy(self, pending: Pending, request: Dict[str, Any], copies: Dict[int, List[tf.Tensor]]) -> None:
        draft = pending.draft
        start = time.monotonic()
        try:
            with self._leftovers.tidied((lambda: self._tidy(pending)) if pending.tidies else None):
                replies = self._engine.save(request, copies, self._options.timeout_seconds + pending.more_seconds)
            head, told = complete(pending, replies, self._directory, self._engine.read_speed)
            self._last.update(told)
            commit.commit(self._store, self._directory, head, self._claim, pending.parent)
        except BaseException as error:
            if isinstance(error, CommitOutcomeUnknownError):
                # It may exist. Its rows are saved again by the next checkpoint, and its data stays.
                self._leftovers.keep(draft.name, *([] if pending.scan is None else [pending.scan.name]))
            self._counters["failed"] += 1
            self._attempt_failed = True
            self._give_up(draft.sequence)
            pending.error = self._fence_behind(error) or errors.of_save(draft.name, error)
            _log.warning("Checkpoint %s failed: %s", draft.name, error)
            if isinstance(pending.error, DeadlineError) and self._scan is not None:
                # What it uploads may hang, in the room that this checkpoint has waited for.
                self._scan.give_up(self._options.timeout_seconds)
            if isinstance(pending.error, SaveFailedError) and not isinstance(error, CommitOutcomeUnknownError):
                self._tidy(pending)  # or, if there was no room for it, there will never be
            return
        self._engine.lineage.move_to(self._directory, head)
        self._last_head = head
        self._last_committed = draft.sequence
        self._last_scanned_base = 0 if pending.scan is None else pending.scan.start
        scan = self._scan
        self._scan_tries.committed(pending.scan is not None)
        if scan is not None and (pending.is_base or pending.scan is scan):
            scan.give_up(self._options.timeout_seconds)  # unless it has ended
            self._scan = scan = None
        elif scan is not None and draft.sequence > scan.start:
            scan.count(*chain.last_bytes(head))
        self._counters["committed"] += 1
        self._counters["bases"] += pending.is_base or pending.scan is not None
        try:
            self._engine.resolve(draft.sequence, committed=True, scanned_base=self._last_scanned_base,
                                 timeout_seconds=self._options.timeout_seconds)
        except BaseException as error:
            _log.warning("Checkpoint %s is committed, but parameter servers could not be told: %s", draft.name, error)
            if not hosts.is_unheard(error):  # the next cut tells whoever has not heard of it
                pending.error = SaveFailedError(f"checkpoint {draft.name} is committed, but: {error}")
                pending.error.__cause__ = error
        pending.is_stored.set()
        try:
            self._leftovers.collect(self._claim, scan)
            self._attempt_failed = False
        except FencedError as error:
            pending.error = error
        except BaseException as error:  # the next pass tries it again
            _log.warning("Checkpoint %s is committed, but tidying up after it failed: %s", draft.name, error)
        self._last["save_seconds"] = time.monotonic() - start

    def _tidy(self, pending: Pending) -> None:
        # Retention goes by the newest head: after a restore of an older one the next is not to follow that.
        if pending.parent is None or pending.parent.sequence >= self._last_committed:
            running = [pending.draft.name] if pending.error is None else []
            self._attempt_failed = not self._leftovers.tidy(self._claim, self._scan, *running)
