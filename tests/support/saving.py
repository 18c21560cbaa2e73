"""Checkpoints with a full copy of each, and the heads of a directory."""

from __future__ import annotations

from typing import Any

from tests.support import oracle
from tfadaptcp import policies
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.checkpoint.store import Store


class Eager(policies.Adaptive):
    """Takes estimates at their face value: in jobs of a few checkpoints, too, rows are hot that were written once or twice."""

    def hot_threshold(self, stats):
        return super().hot_threshold(stats) - (1 - self.decay)


class Mixed:
    """A policy: rows that are written in two intervals running are hot, others cold; one base."""

    name = "mixed"

    def hot_threshold(self, stats):
        return 0.15

    def base_due(self, stats):
        return False


def save(manager: Any, model: Any, copies: dict[str, oracle.Copy]) -> None:
    """Saves a checkpoint, waits for it, and notes the copy at its cut by its name."""
    copy = oracle.take(model)
    copies[manager.save().name] = copy
    manager.wait()


def heads_of(directory: Any) -> list[Manifest]:
    """The heads of a directory, oldest first."""
    return commit.list_heads(Store(), str(directory))[0]
