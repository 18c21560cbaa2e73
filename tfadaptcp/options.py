"""Options of the engine, apart from those of the policy."""

import dataclasses
from typing import Any, Dict, Optional

ON_PENDING = ("skip", "wait")
CAPTURES = ("save_on_update", "snapshot", "blocking")
CONSISTENCIES = ("step", "row")
# Longer ones overflow in the clocks that they are handed to.
_MOST_SECONDS = 1e6


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
            slots, and parameter servers are cut a moment apart. "step" falls back to "row" when fewer than 20 steps
            per worker lie between two cuts, where waiting costs throughput; the manifest says which it was.
        writer_threads: threads per parameter server that read rows from the tables in the background.
        lookup_capture: rows that a training step looks up while a checkpoint is pending are captured next, so that
            the time between lookup and update hides it.
        segment_bytes: a file is closed before it gets larger than this.
        block_bytes: rows are gathered to blocks of about this size.
        capture_memory_bytes: limit, per parameter server, for rows that are captured and not written yet.
        timeout_seconds: a checkpoint that takes longer is given up.
        drain_timeout_seconds: a save that waits longer for scheduled steps is skipped.
        update_wait_seconds: an update that waits longer for capture memory gives the pending checkpoint up and goes on.

    Raises:
        ValueError: a value is unknown or out of range.
    """

    capture: str = "save_on_update"
    consistency: str = "step"
    writer_threads: int = 1
    lookup_capture: bool = True
    segment_bytes: int = 256 << 20
    block_bytes: int = 1 << 20
    capture_memory_bytes: int = 256 << 20
    timeout_seconds: float = 600.0
    drain_timeout_seconds: float = 60.0
    update_wait_seconds: float = 10.0

    def __post_init__(self):
        for field, choices in (("capture", CAPTURES), ("consistency", CONSISTENCIES)):
            if getattr(self, field) not in choices:
                raise ValueError(f"{field}: Received: {getattr(self, field)!r}. Expected: one of {choices}")
        if not isinstance(self.lookup_capture, bool):
            raise ValueError(f"lookup_capture: Received: {self.lookup_capture!r}. Expected: True or False")
        for field in ("writer_threads", "segment_bytes", "block_bytes", "capture_memory_bytes"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{field}: Received: {value!r}. Expected: an integer of at least 1")
        for field in ("timeout_seconds", "drain_timeout_seconds", "update_wait_seconds"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MOST_SECONDS:
                raise ValueError(f"{field}: Received: {value!r}. Expected: a number above 0, at most {_MOST_SECONDS:g}")

    def for_hosts(self) -> Dict[str, Any]:
        """What the hosts are told of these options with each cut and save."""
        return {"segment_bytes": self.segment_bytes, "block_bytes": self.block_bytes,
                "drain_threads": self.writer_threads, "capture_memory_bytes": self.capture_memory_bytes,
                "update_wait_ms": int(1000 * self.update_wait_seconds),
                "lookup_capture": self.lookup_capture and self.capture == "save_on_update"}


def options_for(policy: Any, engine: Optional[EngineOptions]) -> EngineOptions:
    """Returns the options that a user gave, as a whole; else those that come with the policy; else the defaults.

    Raises:
        ValueError: what was given are no `EngineOptions`.
    """
    options = getattr(policy, "engine_options", EngineOptions()) if engine is None else engine
    if not isinstance(options, EngineOptions):
        raise ValueError(f"engine: Received: {options!r}. Expected: an EngineOptions")
    return options
