"""Shows how far a restore is, while it goes on, by what the hosts say of it."""

import contextlib
import dataclasses
import sys
import threading
import time
from typing import Iterator, Optional, TextIO

from tfadaptcp import _ops
from tfadaptcp.engine import Engine

# A restore that ends sooner shows nothing.
_QUIET_SECONDS = 3.0
_POLL_SECONDS = 0.5
# Between tries, while hosts don't answer.
_LONGEST_PAUSE_SECONDS = 600.0
# Between lines, where they can't be written over.
_LINE_SECONDS = 10.0
_WIDTH = 24


@dataclasses.dataclass(frozen=True)
class Readers:
    """Of a restore: `bytes` read and `rows` applied, on all hosts; of the host that had most the peak of `peak_bytes` of
    files in memory, and `threads` that read."""
    bytes: int
    rows: int
    peak_bytes: int
    threads: int


def of_hosts(engine: Engine, timeout_seconds: float) -> Readers:
    """Asks the hosts."""
    replies = list(engine.on_all(lambda host: engine.call_named(host, _ops.lib().adaptcp_restore_progress),
                                 timeout_seconds).values())
    return Readers(sum(reply["bytes"] for reply in replies), sum(reply["rows"] for reply in replies),
                   max(reply["peak_bytes"] for reply in replies), max(reply["threads"] for reply in replies))


@contextlib.contextmanager
def shown(engine: Engine, what: str, total_bytes: int, show: Optional[bool]) -> Iterator[None]:
    """Shows on stderr how far the restore inside is.

    Args:
        what: the checkpoint.
        total_bytes: that will be read, by all hosts together.
        show: None: if stderr is a terminal.
    """
    stream = sys.stderr
    terminal = hasattr(stream, "isatty") and stream.isatty()
    if not (terminal if show is None else show):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(engine, what, total_bytes, stream, terminal, ended),
                              name="tfadaptcp-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10 * _POLL_SECONDS)


def _show(engine: Engine, what: str, total_bytes: int, stream: TextIO, terminal: bool, ended: threading.Event) -> None:
    start = time.monotonic()
    shown_at = None
    ended.wait(_QUIET_SECONDS)
    pause = _POLL_SECONDS
    while not ended.is_set():
        try:
            readers = of_hosts(engine, 10 * _POLL_SECONDS)
        except Exception:  # the restore itself tells what is wrong
            # Each call to a host that hangs leaves a thread behind.
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            ended.wait(pause)
            continue
        pause = _POLL_SECONDS
        now = time.monotonic()
        if terminal or shown_at is None or now - shown_at >= _LINE_SECONDS:
            shown_at = now
            stream.write(("\r" if terminal else "") + line(what, readers, total_bytes, now - start)
                         + ("" if terminal else "\n"))
            stream.flush()
        ended.wait(_POLL_SECONDS)
    if terminal and shown_at is not None:
        stream.write("\n")
        stream.flush()


def line(what: str, readers: Readers, total_bytes: int, seconds: float) -> str:
    """What is shown."""
    part = min(1.0, readers.bytes / total_bytes) if total_bytes else 1.0
    bar = ("=" * int(part * _WIDTH)).ljust(_WIDTH, ".")
    return (f"Restoring {what} [{bar}] {100 * part:3.0f}% {_size(readers.bytes)} of {_size(total_bytes)}, "
            f"{_size(readers.bytes / max(seconds, 1e-9))}/s, {readers.rows:,} rows")


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            break
        count /= 1000
    else:
        unit = "GB"
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
