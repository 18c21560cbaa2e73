"""Options of the engine, apart from those of the policy."""

import dataclasses
import operator
from typing import Any, Dict, Optional

from tfadaptcp.checkpoint.manifest import CONSISTENCIES

ON_PENDING = ("skip", "wait")
CAPTURES = ("save_on_update", "snapshot", "blocking")
# Longer ones overflow in the clocks that they are handed to.
_MOST_SECONDS = 1e6
_MOST_THREADS = 1024
_MOST_BYTES = 1 << 62
_OF_RESTORES = ("restore_threads", "restore_memory_bytes")
_AUTOMATIC = ("writer_threads", "upload_threads", "segment_bytes", "capture_memory_bytes", "buffer_bytes",
              "upload_bytes_per_second")
# Of a checkpoint's time, how much one upload may take with all its attempts.
_RETRIED = 0.8
# And for how much of it threads leave a busy machine to training. At their share of it a large base would not be written
# in time, nor the next one.
_RESTED = 0.25
# Bytes per second that a parameter server writes at least, or its checkpoint is given up.
_SLOWEST = 16 << 20


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """How checkpoints are captured and written.

    Args:
        capture: "save_on_update" copies rows while training goes on: in the background, and before an update where
            that comes first. "snapshot": training stands still until all rows are copied to memory, or, where they need
            more than `capture_memory_bytes`, until all but that much is written. "blocking": training stands still until
            the checkpoint is durable.
        consistency: "step" lets all scheduled steps finish before the cut, so that every table and dense variable is
            cut at one step. "row" doesn't wait: each row is whole, but its parameter may be one step ahead of its
            slots, and parameter servers are cut a moment apart. "step" falls back to "row" when steps are
            scheduled and fewer than 20 per worker lay in each of the last two intervals, where waiting costs throughput; the
            manifest says which it was.
        writer_threads: at most so many threads per parameter server read rows from the tables in the background, and as
            many encode them; there is one of each to begin with, and one more where one has more to do than it can.
            None: automatic, the number of cores.
        upload_threads: at most so many segments per parameter server are written to the store at once. None: automatic,
            8, or 2 where the store is a local path that is written to directly.
        lookup_capture: rows that a training step looks up while a checkpoint is pending are captured next, so that
            the time between lookup and update hides it.
        segment_bytes: a file is closed before it gets larger than this, unless it has one block only. None: automatic,
            a 16th of the checkpoint on a local path that is written to directly, at least 16 MiB and at most 128; else so
            much that a checkpoint keeps all upload threads busy: at least 2 MiB, at most an eighth of `buffer_bytes`,
            and 64 MiB, or 128 MiB with `buffer_dir`.
        block_bytes: rows are gathered to blocks of about this size.
        capture_memory_bytes: limit, per parameter server, for rows of a checkpoint that are captured and not encoded yet, and
            once more for those of a base that is read beside training. Strings are counted when they have been read. None:
            automatic, a 32nd of the machine's memory, at least 64 MiB and at most 1 GiB.
        buffer_bytes: limit, per parameter server, for segments that are encoded and not in the store yet: in memory, or on
            the disk of `buffer_dir`. It is passed by at most one block per writer thread. None: automatic, by the rule of
            `capture_memory_bytes`, or half of what is free in `buffer_dir`, divided by the servers that use it, at least
            64 MiB. Means nothing for a local path without `buffer_dir`, which is written to directly.
        upload_bytes_per_second: limit, per parameter server, for what is uploaded, on average: file systems that gather
            a whole object before they send it, as that of gs:// does, send a segment at a time. None: none. Means
            nothing where `buffer_bytes` does.
        timeout_seconds: a checkpoint that takes longer is given up, but for what it writes: to this is added what the most
            that a parameter server has to write takes at 16 MiB/s, or at `upload_bytes_per_second` if that is less.
        drain_timeout_seconds: a save during which for so long no scheduled step ends is skipped; the next one doesn't wait.
        update_wait_seconds: an update that waits longer for capture memory gives the pending checkpoint up and goes on.
        restore_threads: so many threads per parameter server read files of a restore. None: as many as it takes, so that
            rows need not wait to be applied, up to 16 where the store is remote, else the number of cores, 2 to 8.
        restore_memory_bytes: limit, per parameter server, for files of a restore in memory; one that is larger passes
            alone. None: two of the largest, or eight where the store is remote, at least 32 MiB, at most 1 GiB.
        restore_timeout_seconds: a restore is given up of which a part, that is tables that are grown, rows, or dense variables,
            takes longer. A store that fails for 0.8 of `timeout_seconds` ends it too.
        progress: whether a restore that takes longer than three seconds shows how far it is, on stderr. None: if that is a
            terminal.

    Seconds are above 0 and at most 1e6, threads 1 to 1024, bytes 1 to 2^62.

    Raises:
        ValueError: a value is unknown or out of range.
    """

    capture: str = "save_on_update"
    consistency: str = "step"
    writer_threads: Optional[int] = None
    upload_threads: Optional[int] = None
    lookup_capture: bool = True
    segment_bytes: Optional[int] = None
    block_bytes: int = 1 << 20
    capture_memory_bytes: Optional[int] = None
    buffer_bytes: Optional[int] = None
    upload_bytes_per_second: Optional[int] = None
    timeout_seconds: float = 600.0
    drain_timeout_seconds: float = 60.0
    update_wait_seconds: float = 10.0
    restore_threads: Optional[int] = None
    restore_memory_bytes: Optional[int] = None
    restore_timeout_seconds: float = 6 * 3600.0
    progress: Optional[bool] = None

    def __post_init__(self):
        for field, choices in (("capture", CAPTURES), ("consistency", CONSISTENCIES)):
            if getattr(self, field) not in choices:
                raise ValueError(f"{field}: Received: {getattr(self, field)!r}. Expected: one of {choices}")
        if not isinstance(self.lookup_capture, bool):
            raise ValueError(f"lookup_capture: Received: {self.lookup_capture!r}. Expected: True or False")
        if self.progress is not None and not isinstance(self.progress, bool):
            raise ValueError(f"progress: Received: {self.progress!r}. Expected: True, False or None")
        for field in (*_AUTOMATIC, *_OF_RESTORES, "block_bytes"):
            value = getattr(self, field)
            if value is None and field != "block_bytes":
                continue
            most = _MOST_THREADS if field.endswith("_threads") else _MOST_BYTES
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(f"{field}: Received: {value!r}. Expected: an integer from 1 to {most}"
                                 + (", or None: automatic" if field != "block_bytes" else ""))
        for field in ("timeout_seconds", "drain_timeout_seconds", "update_wait_seconds", "restore_timeout_seconds"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MOST_SECONDS:
                raise ValueError(f"{field}: Received: {value!r}. Expected: a number above 0, at most {_MOST_SECONDS:g}")

    def seconds_for(self, size: int) -> float:
        """How much longer than otherwise a checkpoint may take of which a parameter server writes so many bytes."""
        return size / min(_SLOWEST, self.upload_bytes_per_second or _SLOWEST)

    @property
    def patience_seconds(self) -> float:
        """How long a checkpoint may take from its cut to its very end."""
        return 3 * self.timeout_seconds

    def for_restores(self) -> Dict[str, Any]:
        """What the hosts are told of these options with what they read."""
        return {"threads": self.restore_threads or 0, "memory_bytes": self.restore_memory_bytes or 0,
                "timeout_ms": max(1, int(1000 * self.restore_timeout_seconds)),
                "patience_ms": max(1, int(_RETRIED * 1000 * self.timeout_seconds))}

    def for_hosts(self, buffer_dir: Optional[str] = None) -> Dict[str, Any]:
        """What the hosts are told of these options with each cut, save and scan; what is automatic is theirs to choose.

        Args:
            buffer_dir: where they stage segments; None: in memory, or nowhere.
        """
        return {**{field: getattr(self, field) or 0 for field in _AUTOMATIC}, "block_bytes": self.block_bytes,
                "buffer_dir": buffer_dir or "", "update_wait_ms": max(1, int(1000 * self.update_wait_seconds)),
                # They give up first, and can say why.
                "retry_ms": max(1, int(_RETRIED * 1000 * self.timeout_seconds)),
                "rest_ms": int(_RESTED * 1000 * self.timeout_seconds),
                "lookup_capture": self.lookup_capture and self.capture == "save_on_update"}


def counted(name: str, value: Any) -> int:
    """A number of epochs, batches or steps, of Python or NumPy or a variable, as an `int`.

    Raises:
        ValueError: it is no integer, or below 0.
    """
    try:
        number = operator.index(value.numpy() if hasattr(value, "numpy") else value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"{name}: Received: {value!r}. Expected: an integer of at least 0")
    return number


def options_for(policy: Any, engine: Optional[EngineOptions]) -> EngineOptions:
    """Returns the options that a user gave, as a whole; else those that come with the policy; else the defaults.

    Raises:
        ValueError: what was given are no `EngineOptions`.
    """
    options = getattr(policy, "engine_options", EngineOptions()) if engine is None else engine
    if not isinstance(options, EngineOptions):
        raise ValueError(f"engine: Received: {options!r}. Expected: an EngineOptions")
    return options
