"""The proxy of `tests/servers/proxy.py`, as a test uses it: starting it, giving it orders, reading its log."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.servers.program import ROOT, Program

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy says


@dataclasses.dataclass(frozen=True)
class Request:
    """A request as the proxy saw it.

    Attributes:
        method, path: the path with its query, percent-decoded.
        up, down: bytes of the bodies that passed.
        start, end: on the monotonic clock, which is the machine's; `end` is None while it goes on.
        status: that the client was told, or None.
        fault: what struck it, as "drop request", or None.
    """

    method: str
    path: str
    up: int
    down: int
    start: float
    end: float | None
    status: int | None
    fault: str | None


class Proxied:
    """A proxy in a process of its own. Several processes may give orders to one: see `connect`."""

    def __init__(self, port: int, control: int, ca: Path, program: Program | None = None):
        self.port = port
        self.control = control
        self.ca = ca
        self._program = program

    @classmethod
    def start(cls, upstream: str, folder: Path, *options: str, port: int = 0) -> Proxied:
        """Starts one in front of the server at `upstream`, "host:port"; `folder` gets its log and its certificate."""
        ca, log = folder / "ca.pem", folder / "proxy.log"
        log.write_bytes(b"")
        program = Program([sys.executable, "-m", "tests.servers.proxy", "--upstream", upstream, "--ca", str(ca),
                           "--port", str(port), *options], log, {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"})
        program.wait_until(lambda: log.read_bytes().endswith(b"}\n"))
        ports = json.loads(log.read_text().splitlines()[-1])
        return cls(ports["port"], ports["control"], ca, program)

    @classmethod
    def connect(cls, told: str) -> Proxied:
        """One that another process has started and `tell`s of."""
        fields = json.loads(told)
        return cls(fields["port"], fields["control"], Path(fields["ca"]))

    def tell(self) -> str:
        """What `connect` takes, for an environment variable."""
        return json.dumps({"port": self.port, "control": self.control, "ca": str(self.ca)})

    def stop(self) -> None:
        """Ends it: connections are refused from now on."""
        if self._program is not None:
            self._program.stop()

    def fault(self, kind: str, **rule: Any) -> int:
        """Adds a rule, see `fault_rules.Rule`; returns its number."""
        return self._order("fault", {"kind": kind, **rule})

    def clear(self) -> None:
        """Removes all rules, and lets go of what hangs."""
        self._order("clear", {})

    def struck(self, number: int) -> int:
        """How often a rule has struck."""
        return self._order("struck", {})[str(number)]

    def cap(self, up: float | None = None, down: float | None = None, up_each: float | None = None,
            down_each: float | None = None) -> None:
        """Caps bytes per second to and from the server, in total and of each connection; None: no cap."""
        self._order("caps", {"up": up, "down": down, "up_each": up_each, "down_each": down_each})

    def log(self, since: int = 0) -> list[Request]:
        """The requests so far, in the order in which they began, without the first `since`."""
        return [Request(**entry) for entry in self._order("log", since)]

    def _order(self, what: str, given: Any) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.control}/{what}", json.dumps(given).encode())
        try:
            with _OPENER.open(request, timeout=60) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            raise ValueError(json.loads(error.read())) from None


def at_once(requests: Iterable[Request], which: Callable[[Request], bool]) -> int:
    """The most requests of a kind that were going on at one time."""
    moments = []
    for request in requests:
        if which(request):
            moments += [(request.start, 1), (float("inf") if request.end is None else request.end, -1)]
    most = now = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most
