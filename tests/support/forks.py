"""Python processes that begin with TensorFlow, TFRA and tfadaptcp imported, where a fresh one takes 3 seconds of CPU for it.

They are forked from a server that has imported all that and run no op, as `Popen` says. It starts when the first one is
asked for, and ends with the process that asked.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_ADDRESS = "ADAPTCP_TEST_FORKS"
# What may differ from the server's environment. Of the rest some is read while libraries are being loaded.
_LATE = ("ADAPTCP_", "TFADAPTCP_", "PYTEST_", "CHECKPOINTS", "ORACLE", "CLUSTER", "EXPORT_PATH", "TF_CONFIG", "PYTHONPATH",
         "PYTHONUNBUFFERED", "TF_CPP_MIN_LOG_LEVEL", "no_proxy", "NO_PROXY")
_LOST = -signal.SIGKILL  # the server has gone, and says no more of its children


class Popen:
    """A process, forked if it runs Python as `[sys.executable, "-m", module, ...]` or `[sys.executable, file, ...]`.

    As `subprocess.Popen`, as far as it goes. Not thread-safe.

    Args:
        args: the command.
        env: its environment. One that differs in what libraries may read when they are loaded gets a fresh process.
        stdin: PIPE or DEVNULL.
        stdout: a file.
        stderr: a file, or STDOUT.
        cwd: its working directory; None: this process's.
        start_new_session: as every forked process does, whatever is said.
    """

    def __new__(cls, args: Sequence[str], env: Mapping[str, str] | None = None, **kwargs: Any) -> Any:
        if _digest(env or os.environ) != _address()[0]:
            return subprocess.Popen(args, env=_without_address(env or os.environ), **kwargs)
        return super().__new__(cls)

    def __init__(self, args: Sequence[str], env: Mapping[str, str] | None = None, *, stdin: int, stdout: Any,
                 stderr: Any, cwd: str | os.PathLike | None = None, start_new_session: bool = True):
        self.args = args
        self.returncode: int | None = None
        self.stdin = None
        if stdin == subprocess.PIPE:
            given, kept = os.pipe()
            self.stdin = open(kept, "wb", buffering=0)
        else:
            given = os.open(os.devnull, os.O_RDONLY)
        output = stdout.fileno()
        errors = output if stderr == subprocess.STDOUT else stderr.fileno()
        request = {"args": list(map(str, args[1:])), "cwd": str(cwd or os.getcwd()),
                   "env": {**(env or os.environ), _ADDRESS: os.environ[_ADDRESS]}}
        self._received = b""
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_address()[1])
        socket.send_fds(self._server, [b"3"], [given, output, errors])
        self._server.sendall(json.dumps(request).encode() + b"\n")
        os.close(given)
        self.pid = int(self._line(None))

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = int(self._line(timeout) or _LOST)
            self._server.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _line(self, timeout: float | None) -> bytes:
        """The next line from the server, empty if it has gone."""
        while b"\n" not in self._received:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            more = self._server.recv(64)
            if not more:
                return b""
            self._received += more
        line, self._received = self._received.split(b"\n", 1)
        return line


def run(args: Sequence[str], env: Mapping[str, str], timeout: float, fresh: bool = False) -> tuple[int, str]:
    """(exit code, output) of a process in the project's root.

    One that runs too long is killed, and `subprocess.TimeoutExpired` raised.

    Args:
        fresh: it is no fork.
    """
    with tempfile.TemporaryFile() as output:
        def printed() -> str:
            output.seek(0)
            return output.read().decode(errors="replace")

        process = (subprocess.Popen if fresh else Popen)(args, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                                         stderr=subprocess.STDOUT, cwd=_ROOT)
        try:
            return process.wait(timeout), printed()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired(args, timeout, printed()) from None


# In the place of the module in `tfadaptcp.testing._server_process`, it makes the servers of a `LocalCluster` forks.
SUBPROCESS = types.SimpleNamespace(Popen=Popen, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)


def for_clusters() -> None:
    """Makes the servers of every `LocalCluster` of this process forks."""
    from tfadaptcp.testing import _server_process

    _server_process.subprocess = SUBPROCESS


def _without_address(env: Mapping[str, str]) -> dict[str, str]:
    """Of a process of another environment: what it forks comes from a server of its own."""
    return {name: value for name, value in env.items() if name != _ADDRESS}


def _digest(env: Mapping[str, str]) -> str:
    fixed = sorted(item for item in env.items() if not item[0].startswith(_LATE))
    return hashlib.sha256(repr(fixed).encode()).hexdigest()


def _address() -> list[str]:
    """[digest of its environment, socket] of the server, which is started if there is none."""
    if _ADDRESS not in os.environ:
        folder = tempfile.mkdtemp(prefix="tfadaptcp-forks-")
        address, log = os.path.join(folder, "socket"), os.path.join(folder, "log")
        with open(log, "wb") as output:
            server = subprocess.Popen([sys.executable, "-m", __name__, address], stdin=subprocess.PIPE, stdout=output,
                                      stderr=subprocess.STDOUT, cwd=_ROOT, start_new_session=True,
                                      env={**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"})

        def end() -> None:
            server.stdin.close()
            server.wait()

        atexit.register(end)
        while not os.path.exists(address):
            if server.poll() is not None:
                raise RuntimeError(f"no processes can be forked:\n{Path(log).read_text(errors='replace')[-3000:]}")
            time.sleep(0.02)
        os.environ[_ADDRESS] = f"{_digest(os.environ)}:{address}"
    return os.environ[_ADDRESS].split(":", 1)


def _serve(address: str) -> dict[str, Any]:
    """Forks as it is asked to; returns, in each process that it forked, what that has to do."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by the file that tells of their end
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)
    while True:
        for ready in select.select([0, listener, *children], [], [])[0]:
            if ready == 0:
                shutil.rmtree(os.path.dirname(address))  # whoever started this process has gone
                os._exit(0)
            elif ready is listener:
                client, _ = listener.accept()
                _, files, _, _ = socket.recv_fds(client, 1, 3)
                with client.makefile("r") as lines:
                    request = json.loads(lines.readline())
                pid = os.fork()
                if pid == 0:
                    for used in (listener, client, *(other for _, other in children.values())):
                        used.close()
                    for i, file in enumerate(files):
                        os.dup2(file, i)
                    for file in (*files, *children):
                        os.close(file)
                    return request
                for file in files:
                    os.close(file)
                client.sendall(b"%d\n" % pid)
                children[os.pidfd_open(pid)] = pid, client
            else:
                pid, client = children.pop(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                with client, contextlib.suppress(OSError):  # nobody may be waiting for it any more
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any]) -> None:
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    args = request["args"]
    if args[0] == "-m":
        sys.argv = args[1:]
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        sys.path.insert(0, os.path.dirname(args[0]))
        runpy.run_path(args[0], run_name="__main__")


def main() -> None:
    import tensorflow_io  # noqa: F401  as tfadaptcp.server does

    from tests.support import checkpoint_dirs, embedding_model, faults, oracle, rows, saving  # noqa: F401

    assert threading.active_count() == 1
    gc.freeze()  # what never goes is never looked at, and so stays shared
    request = _serve(sys.argv[1])
    code = 0
    try:
        _become(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking all the modules down takes a second


if __name__ == "__main__":
    main()
