"""Bases that are read beside training: tests that need one at a certain checkpoint wait for it."""

from __future__ import annotations

from typing import Any


def end_scan(manager: Any) -> bool:
    """Waits until a scan that has begun has ended; returns whether there is a base for the next checkpoint."""
    scan = manager._scan
    if scan is None:
        return False
    scan._thread.join(60)
    assert not scan._thread.is_alive()
    return scan.is_ready
