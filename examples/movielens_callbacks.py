"""The callbacks of `movielens_ps.py` that watch: none of them is needed to make checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import full_copy
import tensorflow as tf

import tfadaptcp


class _BatchCallback(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        # Keras allows callbacks per batch under parameter servers only to those that leave the logs on the workers.
        self._supports_tf_logs = True


def copy_path(work: Path, step: int) -> Path:
    """Where the copy made before the checkpoint of that step is."""
    return work / "copies" / f"step-{step:06d}.npz"


class Witness(_BatchCallback):
    """Before each checkpoint: lets the scheduled steps end, notes the loss since the last one, makes a full copy.

    Goes before the `AdaptCPCallback` in the list. What it copies is then what the cut has, and rows are captured while
    training goes on, not while the copy is being made.

    Args:
        save_freq: that of the `AdaptCPCallback`.
        coordinator: that of the model's strategy.
        work: where to put the copies, None for none.

    Attributes:
        losses: {step: mean loss of the batches since the last checkpoint}.
        drain_wait: seconds for scheduled steps to end, which a checkpoint waits for in any case. (The time that the
            copies take is this example's own affair.)
    """

    def __init__(self, save_freq: int, coordinator: tf.distribute.coordinator.ClusterCoordinator, work: Path | None):
        super().__init__()
        self._save_freq = save_freq
        self._coordinator = coordinator
        self._work = work
        self.losses: dict[int, float] = {}
        self.drain_wait = 0.0

    def on_train_batch_end(self, batch, logs=None):
        if (batch + 1) % self._save_freq:
            return
        start = time.monotonic()
        self._coordinator.join()
        self.drain_wait += time.monotonic() - start
        step = int(self.model.optimizer.iterations)
        loss = next(metric for metric in self.model.metrics if metric.name == "loss")
        self.losses[step] = float(loss.result())
        loss.reset_state()
        if self._work is not None:
            full_copy.save(full_copy.take(self.model), copy_path(self._work, step))


class CheckpointLog(_BatchCallback):
    """Notes each checkpoint once it is durable. Goes before the `AdaptCPCallback` in the list.

    Attributes:
        checkpoints: what there is to tell about each, oldest first.
    """

    def __init__(self, callback: tfadaptcp.AdaptCPCallback, say: Callable[[str], None]):
        super().__init__()
        self._callback = callback
        self._say = say
        self.checkpoints: list[dict] = []

    def on_train_batch_end(self, batch, logs=None):
        self.note()

    def note(self) -> None:
        """Notes the newest checkpoint if it is new. Once more after `fit`, for the last one."""
        manager = self._callback.manager
        if manager.stats()["committed"] == len(self.checkpoints):
            return
        info = manager.wait()  # is durable, so this does not block
        stats = manager.stats()
        rows = {kind: sum(groups.values()) for kind, groups in stats["rows"].items()}
        self.checkpoints.append({
            "name": info.name, "step": info.step, "rows": rows, "bytes": stats["bytes"],
            **{key: stats[key] for key in ("rows_by_drain", "rows_by_lookup", "rows_by_update", "update_wait_seconds",
                                           "drain_wait_seconds", "blocked_seconds", "save_seconds")}})
        self._say(f"checkpoint of step {info.step}: " + ", ".join(
            f"{count} rows in the {kind}" for kind, count in sorted(rows.items())))


class Kill(_BatchCallback):
    """Kills a parameter server by SIGKILL, as the out-of-memory killer would."""

    def __init__(self, cluster: tfadaptcp.testing.LocalCluster, batch: int, say: Callable[[str], None]):
        super().__init__()
        self._cluster = cluster
        self._batch = batch
        self._say = say

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self._batch:
            self._say(f"killing parameter server 1, batch {self._batch} was just scheduled")
            self._cluster.kill("ps", 1)
