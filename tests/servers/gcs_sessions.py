"""How Google Cloud Storage answers a client that asks how far its upload has got.

fake-gcs-server takes the question (a PUT of nothing, `Content-Range: bytes */N`) for the end of an empty upload, and makes
an object of no bytes. The service answers 308, with what has arrived, or 200 if the upload is complete: the proxy does so
in the emulator's place. What an interrupted request has carried is forgotten, as the service may do as well.
"""

from __future__ import annotations

import re
import threading

_SESSION = re.compile(r"[?&]upload_id=([^&]+)")


class Sessions:
    """Which uploads are complete. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._complete: set[str] = set()

    def note(self, method: str, path: str, status: int) -> None:
        """Notes what the server has answered to a request."""
        session = _SESSION.search(path)
        if method == "PUT" and session and status in (200, 201):
            with self._lock:
                self._complete.add(session[1])

    def answer(self, method: str, path: str, content_range: str) -> int | None:
        """The status with which to answer a request in the server's place, None if it is none of these questions."""
        session = _SESSION.search(path)
        if method != "PUT" or session is None or not content_range.startswith("bytes */"):
            return None
        with self._lock:
            return 200 if session[1] in self._complete else 308
