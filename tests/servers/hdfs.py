"""A real HDFS: a name node and a data node in processes of their own, which tests may kill and start again."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.servers import Served
from tests.support.jobs import ROOT
from tfadaptcp.testing.ports import PortReservation

CACHE = ROOT / ".cache" / "hdfs"  # filled by `make servers`
# The servers' Java: small, and quick to start.
_JAVA = ["-Xmx160m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
         "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
_START_SECONDS = 60.0
USER = "trainer"

# What a client may be told; docs/stores.md has what users should set. Small numbers: tests take servers away.
CLIENT = {
    "dfs.replication": 1,
    "dfs.blocksize": 1 << 20,
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 10,
    "dfs.client.retry.window.base": 200,
    "dfs.client.socket-timeout": 5000,
    "ipc.client.connect.max.retries": 2,
    "ipc.client.connect.retry.interval": 200,
    "ipc.client.connect.timeout": 2000,
    "ipc.client.connect.max.retries.on.timeouts": 1,
    "ipc.client.rpc-timeout.ms": 20000,
    "dfs.client.datanode-restart.timeout": 3,
}


def missing() -> str:
    """Why there can be no HDFS here; "" if there can."""
    return "" if (CACHE / "stamp").exists() else "HDFS needs a JDK and Maven: `make servers` says what is missing"


class HdfsServer:
    """The servers, started and ready. Not thread-safe, but that one other thread may kill and start them.

    Attributes:
      served: where to write, as user `USER`, and what client processes need.
    """

    def __init__(self, folder: Path, client: Mapping[str, object] | None = None):
        """Args:
            folder: a new one, for the servers' files, logs and configurations.
            client: settings of clients, on top of `CLIENT`.
        """
        self._folder = folder
        self._ports = [PortReservation(), PortReservation()]
        self.address = f"127.0.0.1:{self._ports[0].port}"
        self._java_home = Path((CACHE / "java_home").read_text())
        self._processes: dict[str, subprocess.Popen] = {}
        self._wakers: list[subprocess.Popen] = []
        self._commands = 0
        _write_configuration(folder / "server", self._server_settings())
        client_settings = {"fs.defaultFS": f"hdfs://{self.address}", **CLIENT, **(client or {})}
        self.served = Served(f"hdfs://{self.address}/tests", self.client_env(client_settings, "client"))
        try:
            self._start("namenode", "format")
            self.start_data_node()
            self.wait_until_ready()
            self.command("dfs -mkdir /tests")
            self.command(f"dfs -chown {USER} /tests")
        except BaseException:
            self.close()
            raise

    def client_env(self, settings: Mapping[str, object], name: str, user: str = USER) -> dict[str, str]:
        """What a process needs that uses these servers with settings of its own. `name`: of the settings' folder."""
        _write_configuration(self._folder / name, settings)
        jars = sorted(str(path) for path in (CACHE / "jars").glob("*.jar") if "minicluster" not in path.name)
        libraries = [str(self._java_home / "lib" / "server"), os.environ.get("LD_LIBRARY_PATH", "")]
        return {"CLASSPATH": ":".join([str(self._folder / name), *jars]), "HADOOP_HDFS_HOME": str(CACHE),
                "LD_LIBRARY_PATH": ":".join(filter(None, libraries)), "HADOOP_USER_NAME": user,
                "LIBHDFS_OPTS": "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
                                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}

    def start_name_node(self) -> None:
        """Returns at once: see `wait_until_ready`."""
        self._start("namenode", "namenode")

    def start_data_node(self) -> None:
        """Returns at once: see `wait_until_ready`."""
        self._start("datanode", "datanode")

    def kill(self, name: str) -> None:
        """Ends "namenode" or "datanode" with SIGKILL; fine if it does not run."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()

    def hang(self, name: str) -> None:
        """Lets a server stand still: its connections stay, and nothing is answered until `restore`."""
        process = self._processes[name]
        # Should this process end meanwhile, somebody has to wake it, so that it can see that.
        self._wakers.append(subprocess.Popen(["sh", "-c", f"read line; kill -CONT {process.pid}"], stdin=subprocess.PIPE))
        process.send_signal(signal.SIGSTOP)

    def is_running(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def wait_until_ready(self) -> None:
        """Waits until the name node takes writes and the data node has reported to it."""
        self._wait_for("the name node and the data node", self._is_ready)

    def restore(self) -> None:
        """Starts what does not run, lets go on what hangs, and waits until both are ready."""
        self._wake()
        for name, start in (("namenode", self.start_name_node), ("datanode", self.start_data_node)):
            if not self.is_running(name):
                start()
        self.wait_until_ready()

    def command(self, command: str) -> None:
        """Has the name node's process run a command of administration, as its superuser."""
        process = self._processes["namenode"]
        process.stdin.write(command.encode() + b"\n")
        process.stdin.flush()
        self._commands += 1
        self._wait_for(command, lambda: self.log("namenode").count("COMMAND RETURNED") >= self._commands)
        last = [line for line in self.log("namenode").splitlines() if line.startswith("COMMAND RETURNED")][-1]
        if last != "COMMAND RETURNED 0":
            raise AssertionError(f"{command}: {self.log('namenode')[-4000:]}")

    def log(self, name: str) -> str:
        """What a server has printed since it was started last."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        self._wake()
        for name in list(self._processes):
            self.kill(name)
        for port in self._ports:
            port.release()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.stdin.close()
            waker.wait()
        self._wakers = []

    def _start(self, name: str, command: str) -> None:
        self.kill(name)
        if name == "namenode":
            self._commands = 0
        jars = sorted(str(path) for path in (CACHE / "jars").glob("*.jar"))
        classpath = ":".join([str(self._folder / "server"), str(CACHE / "classes"), *jars])
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._java_home / "bin" / "java"), *_JAVA, "-cp", classpath, "Launcher", command],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, start_new_session=True,
                env={"PATH": os.environ.get("PATH", ""), "HADOOP_USER_NAME": getpass.getuser()})

    def _is_ready(self) -> bool:
        try:
            if self._bean("FSNamesystemState")["FSState"] != "Operational":
                return False
            node, = json.loads(self._bean("NameNodeInfo")["LiveNodes"]).values()
            # For a while it is told of a data node that is gone.
            host, _, port = node["xferaddr"].rpartition(":")
            socket.create_connection((host, int(port)), timeout=1).close()
        except (OSError, ValueError, LookupError):
            return False
        return True

    def _bean(self, name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._ports[1].port}/jmx?qry=Hadoop:service=NameNode,name={name}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return json.load(answer)["beans"][0]

    def _wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended with {process.returncode}:\n{self.log(name)[-4000:]}")
            if time.monotonic() > deadline:
                logs = "\n".join(self.log(name)[-3000:] for name in self._processes)
                raise AssertionError(f"No {what} after {_START_SECONDS:g} s:\n{logs}")
            time.sleep(0.05)

    def _server_settings(self) -> dict[str, object]:
        return {
            "fs.defaultFS": f"hdfs://{self.address}",
            "hadoop.tmp.dir": self._folder / "files",
            "dfs.replication": 1,
            "dfs.namenode.rpc-bind-host": "127.0.0.1",
            "dfs.namenode.http-address": f"127.0.0.1:{self._ports[1].port}",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.namenode.fs-limits.min-block-size": 0,
            # Ready at once; and what only protects against a loss of power may wait.
            "dfs.namenode.safemode.threshold-pct": 0,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.edits.noeditlogchannelflush": "true",
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 1000,
            "dfs.blockreport.initialDelay": 0,
            "ipc.client.connect.retry.interval": 200,
            "dfs.namenode.handler.count": 4,
            "dfs.datanode.handler.count": 4,
            "dfs.block.scanner.volume.bytes.per.second": 0,
        }


def _write_configuration(folder: Path, settings: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    properties = "".join(f"<property><name>{name}</name><value>{value}</value></property>\n"
                         for name, value in settings.items())
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / name).write_text(f"<configuration>\n{properties}</configuration>\n")
