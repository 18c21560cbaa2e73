"""A cluster of real server processes on this machine, for tests and experiments."""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfadaptcp.testing._server_process import ServerProcess, bypass_proxies
from tfadaptcp.testing.ports import PortReservation

_JOBS = ("worker", "ps")


class ClusterStartError(RuntimeError):
    """A server did not start, or did not answer in time. Names it and shows its log's end."""


class LocalCluster:
    """Workers and parameter servers in processes of their own, on loopback.

    This process is the coordinator. The servers end with it, however it ends.

    Example::

        with LocalCluster(num_workers=2, num_ps=2) as cluster:
            strategy = cluster.strategy()
            with strategy.scope():
                model = build_model()
            model.fit(data, steps_per_epoch=100)
            cluster.kill("worker", 0)
            cluster.restart("worker", 0)

    TensorFlow connects a Python process to a cluster once. A second cluster in the same process
    may work, but give each job that matters a process of its own.

    Not thread-safe, except that ``kill``, ``restart``, ``pid`` and ``logs`` may be called by one
    other thread while the main thread trains.

    Args:
        num_workers: number of workers, 1 or more.
        num_ps: number of parameter servers, 1 or more.
        env: environment variables for the servers, on top of this process's. By default GPUs are
            hidden (CUDA_VISIBLE_DEVICES=-1) and TensorFlow's log is quiet.
        log_dir: where the servers' output goes, created if missing. None: a temporary directory,
            removed by ``stop``.
        start_timeout: seconds the servers may take to start, or one to restart.
        module: the module the servers run, with `TF_CONFIG` set; it has to print the ready line
            of `tfadaptcp.server`.

    Raises:
        ValueError: a number of servers is below 1.
        ClusterStartError: a server ended or did not answer; all are stopped.
    """

    def __init__(
        self,
        num_workers: int,
        num_ps: int,
        env: Mapping[str, str] | None = None,
        log_dir: str | os.PathLike | None = None,
        *,
        start_timeout: float = 120.0,
        module: str = "tfadaptcp.server",
    ):
        for name, number in (("num_workers", num_workers), ("num_ps", num_ps)):
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"`{name}` is wrong. Received: {number!r}. Expected: 1 or more")
        self._sizes = {"worker": num_workers, "ps": num_ps}
        self._env = dict(env or {})
        self._module = module
        self._start_timeout = start_timeout
        self._strategy = None
        self._servers: dict[tuple[str, int], ServerProcess] = {}
        self._ports: list[PortReservation] = []
        self._own_log_dir = None
        if log_dir is None:
            self._own_log_dir = tempfile.TemporaryDirectory(prefix="tfadaptcp-cluster-")
            log_dir = self._own_log_dir.name
        self._log_dir = Path(log_dir)
        self._log_dir.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def cluster_spec(self) -> dict[str, list[str]]:
        """Addresses ("127.0.0.1:port") by job name, "worker" and "ps"."""
        spec: dict[str, list[str]] = {job: [] for job in _JOBS}
        for (job, _), server in self._servers.items():
            spec[job].append(server.address)
        return spec

    def strategy(self) -> Any:
        """Returns the ``tf.distribute.ParameterServerStrategy``, made at the first call.

        The first call connects this process to the cluster.
        """
        if self._strategy is None:
            self._require_started()
            bypass_proxies(os.environ)
            import tensorflow as tf

            resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(self.cluster_spec), rpc_layer="grpc"
            )
            self._strategy = tf.distribute.ParameterServerStrategy(resolver)
        return self._strategy

    def coordinator(self) -> Any:
        """Returns the ``ClusterCoordinator`` of the strategy, the one ``Model.fit`` uses too."""
        import tensorflow as tf

        return tf.distribute.coordinator.ClusterCoordinator(self.strategy())

    def pid(self, job: str, index: int) -> int | None:
        """Returns a server's process id, None if it does not run."""
        return self._server(job, index).pid

    def logs(self, job: str, index: int) -> str:
        """Returns what a server printed, restarts included, oldest first."""
        return self._server(job, index).log()

    def kill(self, job: str, index: int) -> None:
        """Ends a server with SIGKILL and waits for its end. Fine if it does not run."""
        self._server(job, index).kill()

    def restart(self, job: str, index: int) -> None:
        """Starts a server anew at its address; kills it first if it runs.

        Raises:
            ClusterStartError: it ended or did not answer in time.
        """
        server = self._server(job, index)
        server.kill()
        server.start()
        self._wait_until_ready([server])

    def stop(self) -> None:
        """Ends all servers and gives their ports back. Further calls do nothing."""
        atexit.unregister(self.stop)
        for server in self._servers.values():
            server.kill()
        for port in self._ports:
            port.release()
        self._servers, self._ports = {}, []
        if self._own_log_dir is not None:
            self._own_log_dir.cleanup()

    def _start(self) -> None:
        tasks = [(job, i) for job in _JOBS for i in range(self._sizes[job])]
        spec: dict[str, list[str]] = {job: [] for job in _JOBS}
        for job, _ in tasks:
            reservation = PortReservation()
            self._ports.append(reservation)
            spec[job].append(f"127.0.0.1:{reservation.port}")
        for job, i in tasks:
            server = ServerProcess(spec, job, i, self._log_dir, self._env, self._module)
            self._servers[job, i] = server
            server.start()
        self._wait_until_ready(list(self._servers.values()))

    def _wait_until_ready(self, waiting: list[ServerProcess]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            waiting = [server for server in waiting if not server.is_ready()]
            if not waiting:
                return
            for server in waiting:
                if not server.is_running():
                    raise ClusterStartError(
                        f"Server {server.name} at {server.address} ended with exit code "
                        f"{server.exit_code()} before it was ready. Its log ends:\n"
                        f"{server.log_tail()}"
                    )
            if time.monotonic() > deadline:
                names = ", ".join(f"{server.name} at {server.address}" for server in waiting)
                raise ClusterStartError(
                    f"No answer after {self._start_timeout:g} s from {names}. "
                    f"The log of {waiting[0].name} ends:\n{waiting[0].log_tail()}"
                )
            time.sleep(0.05)

    def _require_started(self) -> None:
        if not self._servers:
            raise RuntimeError("This LocalCluster is stopped.")

    def _server(self, job: str, index: int) -> ServerProcess:
        self._require_started()
        try:
            return self._servers[job, index]
        except KeyError:
            known = ", ".join(f"{j} {i}" for j, i in self._servers)
            raise ValueError(
                f"No such server. Received: job={job!r}, index={index!r}. "
                f"Expected one of: {known}"
            ) from None
