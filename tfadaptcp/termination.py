"""SIGTERM while `fit` runs: the pending checkpoint is finished first, then the process goes the way it would have.

The handler waits in a thread of its own, as whoever writes the checkpoint may need a lock that the interrupted code
holds. Training goes on meanwhile, without new checkpoints; then the signal is sent again and passed on: to the handler
that was there before, or to the default, which ends the process.

Handlers belong to the main thread: `watch` and `unwatch` do nothing in another, and leave a handler alone that was not
installed from Python, or that ignores the signal.
"""

import logging
import os
import signal
import threading
import _thread
import weakref
from typing import Any, Dict, List

from tfadaptcp.manager import CheckpointManager

_log = logging.getLogger("tfadaptcp")

# What may have a checkpoint pending, with how long to wait for it. Weak: a `fit` that raises ends without notice.
_managers: "weakref.WeakKeyDictionary[CheckpointManager, float]" = weakref.WeakKeyDictionary()
_before: List[Any] = []  # the handlers that were there: several if others have been set over this one, which they may call
_passed_on = 0  # how many of them, from the last on, a signal is being passed on to
_pid = 0  # the process it was installed in
_waiting = False  # a SIGTERM came, and its thread waits
_waited = False  # it has waited: the next SIGTERM is passed on


def watch(manager: CheckpointManager, timeout_seconds: float) -> None:
    """From now on a SIGTERM waits for the manager's pending checkpoint, at most so long. Main thread, or nothing happens."""
    global _pid, _waiting, _waited
    if threading.current_thread() is not threading.main_thread():
        return
    current = signal.getsignal(signal.SIGTERM)
    if current is not _handle:
        if current in (None, signal.SIG_IGN):
            return
        _before.append(current)
        _waiting = _waited = False
        signal.signal(signal.SIGTERM, _handle)
    _pid = os.getpid()
    _managers[manager] = timeout_seconds


def unwatch(manager: CheckpointManager) -> None:
    """Ends `watch`; after the last one the handler is what it was, unless somebody has set another meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return
    _managers.pop(manager, None)
    if not _managers and signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, _before.pop())


def is_terminating() -> bool:
    """Whether a SIGTERM waits for a pending checkpoint: no new one should begin."""
    return _waiting


def _handle(signum: int, frame: Any) -> None:
    global _waiting, _waited, _passed_on
    engines = [(manager.engine, seconds) for manager, seconds in _managers.items()]
    pending = {engine.writer: seconds for engine, seconds in engines if engine.is_writing}
    # A child of fork has none of the threads, and a second signal is for those who don't want to wait.
    if os.getpid() == _pid and pending and not _waiting and not _waited:
        _waiting = True
        # Not threading.Thread: its start takes a lock that the interrupted code may hold.
        _thread.start_new_thread(_wait, (pending,))
        return
    _waiting = _waited = False
    before = _before[-1 - _passed_on] if _passed_on < len(_before) else signal.SIG_DFL
    if callable(before):
        _passed_on += 1
        try:
            before(signum, frame)
        finally:
            _passed_on -= 1
    else:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)


def _wait(pending: Dict[threading.Thread, float]) -> None:
    global _waited
    _log.warning("SIGTERM: finishing the pending checkpoint first.")
    for thread, seconds in pending.items():
        thread.join(seconds)
        if thread.is_alive():
            _log.error("SIGTERM: giving up the pending checkpoint: it was not written within %g s.", seconds)
    if _waiting:  # and nobody has lost patience
        _waited = True
        os.kill(os.getpid(), signal.SIGTERM)
