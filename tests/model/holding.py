"""What makes the product do as a step says: a policy that is told what to decide, and an engine that waits."""

from __future__ import annotations

import threading
from typing import Any

from tfadaptcp.errors import AdaptCPError

WAIT_SECONDS = 120


class Dice:
    """A policy that does what the step says."""

    name = "dice"

    def __init__(self, decay: float):
        self.decay = decay
        self.threshold, self.is_base, self.snapshot_bases = 0.0, False, True

    def hot_threshold(self, stats: Any) -> float:
        return self.threshold

    def base_due(self, stats: Any) -> bool:
        return self.is_base


class Hold:
    """Holds the checkpoints of an engine: before they are drained, and before they are committed; and scans."""

    def __init__(self, engine: Any):
        self._save, self._resolve, self._scan = engine.save, engine.resolve, engine.scan_base
        self.may_drain, self.may_commit, self.is_drained = threading.Event(), threading.Event(), threading.Event()
        self.deaf = False
        self.may_scan = threading.Event()
        self.give_up_scans = False
        engine.save, engine.resolve, engine.scan_base = self.save, self.resolve, self.scan_base

    def save(self, *arguments: Any) -> Any:
        assert self.may_drain.wait(WAIT_SECONDS)
        try:
            return self._save(*arguments)
        finally:
            self.is_drained.set()
            assert self.may_commit.wait(WAIT_SECONDS)

    def resolve(self, *arguments: Any, **keywords: Any) -> None:
        if not self.deaf:
            self._resolve(*arguments, **keywords)

    def scan_base(self, *arguments: Any) -> Any:
        assert self.may_scan.wait(WAIT_SECONDS)
        self.may_scan.clear()
        if self.give_up_scans:
            raise AdaptCPError("given up")
        return self._scan(*arguments)

    def let_go(self, held: bool) -> None:
        for event in (self.may_drain, self.may_commit):
            event.clear() if held else event.set()
        self.is_drained.clear()
