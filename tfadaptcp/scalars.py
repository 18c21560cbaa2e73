"""What `CheckpointManager.stats` says, as scalars for TensorBoard."""

import os
from typing import Any, Dict, Iterator, Optional, Tuple, Union

import tensorflow as tf

_PREFIX = "adaptcp/"


class ScalarWriter:
    """Writes the stats of each checkpoint to `<log_dir>/adaptcp`, beside Keras's `train` and `validation`.

    The tags are the names of `stats()`, nested ones joined by slashes: `adaptcp/threshold`, `adaptcp/rows/base/user`.
    The step is that of the cut. One thread.
    """

    def __init__(self, log_dir: Union[str, os.PathLike]):
        self._directory = os.path.join(os.fspath(log_dir), "adaptcp")
        self._writer: Optional[Any] = None
        self._seen: Any = None

    def write(self, stats: Dict[str, Any]) -> None:
        """Writes the stats if a checkpoint has ended or was skipped since the last call, and none is being written."""
        ended = tuple(stats[name] for name in ("committed", "failed", "skipped"))
        if stats["pending"] or ended == self._seen or not any(ended):
            return
        self._seen = ended
        # Where the coordinator is, whatever the strategy's scope says.
        with tf.device("/device:CPU:0"), tf.init_scope():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self._directory)
            with self._writer.as_default(), tf.summary.record_if(True):
                for name, value in _flat(stats):
                    tf.summary.scalar(_PREFIX + name, value, step=stats.get("step", 0))
            self._writer.flush()

    def close(self) -> None:
        """Closes the file; a later `write` begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _flat(values: Dict[str, Any], prefix: str = "") -> Iterator[Tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and name not in ("pending", "scanning", "step"):
            yield prefix + name, float(value)
