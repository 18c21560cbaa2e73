"""What `CheckpointManager.stats` says, as scalars for TensorBoard."""

import contextlib
import logging
import os
from typing import Any, Dict, Iterator, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

_log = logging.getLogger("tfadaptcp")

_PREFIX = "adaptcp/"


class ScalarWriter:
    """Writes the stats of each checkpoint to `<log_dir>/adaptcp`, beside Keras's `train` and `validation`.

    The tags are the names of `stats()`, nested ones joined by slashes: `adaptcp/threshold`, `adaptcp/rows/base/user`.
    The step is that of the cut. What can't be written is left out, and the log says so once: training goes on. One thread.
    """

    def __init__(self, log_dir: Union[str, os.PathLike]):
        self._directory = os.path.join(os.fspath(log_dir), "adaptcp")
        self._writer: Optional[Any] = None
        self._seen: Any = None
        self._has_failed = False

    def write(self, stats: Dict[str, Any]) -> None:
        """Writes the stats if a checkpoint has ended or was skipped since the last call, and none is being written."""
        ended = tuple(stats[name] for name in ("committed", "failed", "skipped"))
        if stats["pending"] or ended == self._seen or not any(ended):
            return
        self._seen = ended
        try:
            self._write(stats)
        except (tf.errors.OpError, OSError) as error:
            if not self._has_failed:
                _log.warning("Scalars can't be written to %s, training goes on: %s", self._directory, error)
            self._has_failed = True

    def _write(self, stats: Dict[str, Any]) -> None:
        # Where the coordinator is, whatever the strategy's scope says.
        with tf.device("/device:CPU:0"), tf.init_scope():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self._directory)
            with self._writer.as_default(), tf.summary.record_if(True):
                # TensorFlow keeps each finite number of Python that it is given for as long as the process lives.
                step = np.int64(stats.get("step", 0))
                for name, value in _flat(stats):
                    tf.summary.scalar(_PREFIX + name, np.float32(value), step=step)
            self._writer.flush()

    def close(self) -> None:
        """Closes the file; a later `write` begins another."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(tf.errors.OpError, OSError):
                writer.close()


def _flat(values: Dict[str, Any], prefix: str = "") -> Iterator[Tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and name not in ("pending", "pending_seconds", "scanning", "step"):
            yield prefix + name, float(value)
