"""A Python process with an environment of its own that calls functions for a test, one after the other.

Plug-ins for stores read their environment when the process starts, and a broken one must not take the test run along.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from tests.support import lines
from tests.support.jobs import ROOT

_REPLY = "CHILD REPLY "


class Child:
    """The process. It ends with `close`, and with the process that started it, however that ends.

    Args:
        env: environment variables on top of this process's.
    """

    def __init__(self, env: Mapping[str, str] | None = None):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(env or {}), "PYTHONPATH": str(ROOT)}
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen([sys.executable, "-m", "tests.support.child"], cwd=ROOT, env=environment,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._replies: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, module: str, function: str, *args: Any, timeout: float = 120) -> Any:
        """Returns what `function` of `module` returned; arguments and result travel as JSON.

        Fails with its traceback if it raised, and with the process's output if that ended or took too long.
        """
        self._process.stdin.write(json.dumps([module, function, args]) + "\n")
        self._process.stdin.flush()
        try:
            reply = self._replies.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"{function} ran longer than {timeout} s:\n{self.log()}") from None
        if reply is None:
            raise AssertionError(f"{function} ended its process:\n{self.log()}")
        if "error" in reply:
            raise AssertionError(f"in {function}, in a process of its own:\n{reply['error']}")
        return reply["value"]

    def log(self) -> str:
        """The end of what the process wrote to its standard error."""
        self._log.seek(0)
        return self._log.read()[-6000:]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._log.close()

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(_REPLY):
                    self._replies.put(json.loads(line[len(_REPLY):]))
        self._replies.put(None)


def main() -> None:
    requests: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)  # whoever asked has gone

    threading.Thread(target=read, daemon=True).start()
    while True:
        module, function, args = json.loads(requests.get())
        try:
            reply = {"value": getattr(importlib.import_module(module), function)(*args)}
        except BaseException:  # pytest's outcomes are no Exceptions
            reply = {"error": traceback.format_exc()}
        lines.say(_REPLY + json.dumps(reply))


if __name__ == "__main__":
    main()
