"""What goes wrong at a server, by rules: which requests are struck, and how."""

from __future__ import annotations

import dataclasses
import random
import re
import threading
from typing import Any

KINDS = {
    # Answered with an HTTP status, before anything is forwarded; or, `at="after"`, when the server has done its work.
    "status": ("before", "after"),
    # The connection is reset: before anything is forwarded, in the middle of the request's body, after the server has
    # done its work, or in the middle of the response's body.
    "drop": ("before", "request", "after", "response"),
    # Nothing goes on, at the same places, for `seconds` or until it is released.
    "hang": ("before", "request", "after", "response"),
    # The response's body ends in the middle, and says that it is whole.
    "short": ("response",),
}


@dataclasses.dataclass
class Rule:
    """One kind of trouble for the requests that match.

    Attributes:
        kind, at: see `KINDS`.
        method: a regular expression for the whole method, "" for all.
        path: one that is searched for in the path with its query, percent-decoded.
        after: how many matching requests pass unharmed first.
        times: how many are struck, None: all.
        probability: with which each one is, by a generator with this `seed`.
        status: of the answer, for kind "status".
        seconds: of a hang; None: until released.
    """

    kind: str
    at: str = ""
    method: str = ""
    path: str = ""
    after: int = 0
    times: int | None = 1
    probability: float = 1.0
    seed: int = 0
    status: int = 503
    seconds: float | None = None
    number: int = 0
    seen: int = 0
    struck: int = 0
    released: threading.Event = dataclasses.field(default_factory=threading.Event, compare=False, repr=False)

    def __post_init__(self):
        places = KINDS.get(self.kind)
        if places is None:
            raise ValueError(f"kind: Received: {self.kind!r}. Expected: one of {sorted(KINDS)}")
        self.at = self.at or places[0]
        if self.at not in places:
            raise ValueError(f"at: Received: {self.at!r}. Expected, for {self.kind!r}: one of {places}")
        self._random = random.Random(self.seed)
        self._method, self._path = re.compile(self.method), re.compile(self.path)

    def strikes(self, method: str, path: str) -> bool:
        """Whether this request is struck; counts it."""
        if (self.method and not self._method.fullmatch(method)) or not self._path.search(path):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.times is not None and self.struck >= self.times):
            return False
        if self._random.random() >= self.probability:
            return False
        self.struck += 1
        return True


class Rules:
    """The rules of a server. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._added = 0

    def add(self, **fields: Any) -> int:
        """Adds a rule, the last one asked; returns its number."""
        rule = Rule(**fields)
        with self._lock:
            self._added += 1
            rule.number = self._added
            self._rules.append(rule)
        return rule.number

    def clear(self) -> None:
        """Removes all rules, and lets go of what hangs."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.released.set()

    def find(self, method: str, path: str) -> Rule | None:
        """The first rule that strikes a request, None if none does."""
        with self._lock:
            return next((rule for rule in self._rules if rule.strikes(method, path)), None)

    def struck(self) -> dict[int, int]:
        """How often each rule has struck, by its number."""
        with self._lock:
            return {rule.number: rule.struck for rule in self._rules}
