"""A Python store without a thread for each call, which takes most of the time where there are thousands of them.

For tests in which nothing hangs.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfadaptcp.checkpoint.store import Store


def _call(self: Store, what: str, path: Any, method: str, *args: Any) -> Any:
    files, path = self._files(path)
    return getattr(files, method)(path, *args)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every `Store` such a one for the length of a test."""
    monkeypatch.setattr(Store, "_call", _call)
