"""Starting and ending the programs that tests need as servers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_KEEPER = Path(__file__).with_name("keeper.py")


class Program:
    """A program that ends with this process, however that ends. Not thread-safe."""

    def __init__(self, command: Sequence[str], log: Path, env: dict[str, str] | None = None):
        self.log = log
        with open(log, "ab") as output:
            self._keeper = subprocess.Popen([sys.executable, str(_KEEPER), *command], stdin=subprocess.PIPE, stdout=output,
                                            stderr=subprocess.STDOUT, cwd=ROOT, env=env, start_new_session=True)

    def wait_until(self, ready: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until the program is ready; raises with its log's end if it ended or did not get ready in time."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                state = self._keeper.poll()
                self.stop()
                raise RuntimeError(f"{self._keeper.args[2]} did not get ready ({state=}):\n"
                                   f"{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Kills the program and waits for its end."""
        self._keeper.stdin.close()
        self._keeper.wait()


def listens(port: int) -> bool:
    """Whether somebody on loopback accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
