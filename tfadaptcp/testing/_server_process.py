"""One server process of a ``LocalCluster``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_CHILD = Path(__file__).with_name("_child.py")
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_READY = "tfadaptcp server ready"
_QUIET = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_USE_LEGACY_KERAS": "1",
    "PYTHONUNBUFFERED": "1",
}


class ServerProcess:
    """A task of a cluster, over all its incarnations; the address stays.

    Not thread-safe: the cluster that owns it is used from one thread at a time.
    """

    def __init__(
        self,
        cluster: Mapping[str, list[str]],
        job: str,
        index: int,
        log_dir: Path,
        env: Mapping[str, str],
        module: str,
    ):
        self.name = f"/job:{job}/task:{index}"
        self.address = cluster[job][index]
        self._module = module
        self._log_prefix = log_dir / f"{job}-{index}"
        self._env = env
        self._tf_config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        self._process: subprocess.Popen | None = None
        self._incarnation = 0

    @property
    def pid(self) -> int | None:
        """Process id, None if it does not run."""
        return self._process.pid if self.is_running() else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int | None:
        """Exit code of the last incarnation, negative for a signal; None if it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts a new incarnation and returns at once. The old one must have ended."""
        if self.is_running():
            raise RuntimeError(f"{self.name} runs already, as process {self.pid}.")
        self._incarnation += 1
        with open(self._log_path(self._incarnation), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_CHILD), self._module],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the test, which then stops the servers
            )

    def is_ready(self) -> bool:
        """Whether this incarnation, and not somebody else on its port, serves."""
        if not self.is_running() or _READY not in self._read_log(self._incarnation):
            return False
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Ends the process with SIGKILL and waits for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()

    def log(self) -> str:
        """What all incarnations printed, oldest first."""
        return "".join(self._read_log(i) for i in range(1, self._incarnation + 1))

    def log_tail(self, lines: int = 25) -> str:
        return "\n".join(self._read_log(self._incarnation).splitlines()[-lines:])

    def _log_path(self, incarnation: int) -> Path:
        return self._log_prefix.with_name(f"{self._log_prefix.name}.{incarnation}.log")

    def _read_log(self, incarnation: int) -> str:
        try:
            return self._log_path(incarnation).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _environment(self) -> dict[str, str]:
        env = dict(os.environ)
        env.update(_QUIET)
        path = [str(_PACKAGE_PARENT), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
        bypass_proxies(env)
        env.update(self._env)
        env["TF_CONFIG"] = self._tf_config
        return env


def bypass_proxies(env) -> None:
    """Keeps gRPC between the servers off a proxy that is meant for a remote store."""
    for name in ("no_proxy", "NO_PROXY"):
        hosts = [host for host in env.get(name, "").split(",") if host]
        hosts += [host for host in ("127.0.0.1", "localhost") if host not in hosts]
        env[name] = ",".join(hosts)
