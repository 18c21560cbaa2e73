"""Servers of stores that tests start, each in a module of its own. All listen on loopback and end with the test run."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Served:
    """What a test has to know of a running server.

    Attributes:
      root: the URL below which tests may write.
      env: environment variables that processes which use it need from their start.
    """

    root: str
    env: dict[str, str] = dataclasses.field(default_factory=dict)
