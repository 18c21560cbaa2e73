"""A cap on bytes per second, shared by the threads that send."""

from __future__ import annotations

import threading
import time


class Bucket:
    """A token bucket. Thread-safe; nobody holds its lock while waiting."""

    def __init__(self, bytes_per_second: float | None, burst_seconds: float = 0.02):
        """None: no cap."""
        self._lock = threading.Lock()
        self._burst = burst_seconds
        self._free_at = 0.0  # when all that was taken so far will have been paid for
        self.rate = bytes_per_second

    def take(self, n: int) -> None:
        """Waits until `n` more bytes may pass."""
        rate = self.rate
        if not rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - self._burst) + n / rate
            wait = self._free_at - now
        if wait > 0:
            time.sleep(wait)
