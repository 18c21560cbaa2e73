"""``LocalCluster`` with real servers: start, kill, restart, errors, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.jobs import ROOT
from tfadaptcp.testing import ClusterStartError, LocalCluster
from tfadaptcp.testing.ports import PortReservation


def _exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until_gone(pids, seconds=30):
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if _exists(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


@pytest.mark.timeout(240)
def test_kill_restart_stop(tmp_path):
    with LocalCluster(1, 1, env={"TFADAPTCP_INTER_OP_THREADS": "2"}, log_dir=tmp_path) as cluster:
        address = cluster.cluster_spec["ps"][0]
        first, worker = cluster.pid("ps", 0), cluster.pid("worker", 0)
        cluster.kill("ps", 0)
        assert not _exists(first)
        assert cluster.pid("ps", 0) is None
        cluster.restart("ps", 0)
        second = cluster.pid("ps", 0)
        assert second not in (None, first)
        assert cluster.cluster_spec["ps"] == [address]
        assert cluster.logs("ps", 0).count("tfadaptcp server ready: /job:ps/task:0") == 2
        with pytest.raises(ValueError, match="job='ps', index=3.*Expected one of: worker 0, ps 0"):
            cluster.kill("ps", 3)
        # A stopped process does not react to anything but SIGKILL.
        os.kill(second, signal.SIGSTOP)
    assert not _exists(second) and not _exists(worker)
    cluster.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        cluster.pid("ps", 0)
    assert (tmp_path / "ps-0.2.log").exists()


@pytest.mark.timeout(240)
def test_servers_go_with_a_killed_parent():
    program = (
        "import sys, time\n"
        "from tfadaptcp.testing import LocalCluster\n"
        "cluster = LocalCluster(1, 1)\n"
        "print('PIDS', cluster.pid('worker', 0), cluster.pid('ps', 0), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        line = next(line for line in parent.stdout if line.startswith("PIDS"))
        pids = [int(word) for word in line.split()[1:]]
        assert len(pids) == 2 and all(map(_exists, pids))
        parent.kill()
    _wait_until_gone(pids)


@pytest.mark.timeout(120)
def test_server_that_fails_is_named_with_its_log():
    with pytest.raises(ClusterStartError) as raised:
        LocalCluster(1, 1, env={"TFADAPTCP_INTER_OP_THREADS": "1"})
    message = str(raised.value)
    assert "Server /job:" in message and "exit code 2" in message
    assert "TFADAPTCP_INTER_OP_THREADS is wrong. Received: '1'. Expected: 2 or more" in message


def test_server_that_does_not_answer_is_named(tmp_path):
    started = tmp_path / "pids"
    (tmp_path / "mute.py").write_text(
        "import os, time\n"
        f"open({str(started)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "print('thinking', flush=True)\n"
        "time.sleep(600)\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(ClusterStartError, match="No answer after 3 s from /job:worker/task:0 at"
                       " 127.0.0.1:[0-9]+, /job:ps/task:0 .*(?s:.*)thinking"):
        LocalCluster(1, 1, env=env, module="mute", start_timeout=3)
    _wait_until_gone([int(pid) for pid in started.read_text().split()])


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (1, "2")])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="Expected: 1 or more"):
        LocalCluster(*sizes)


def test_ports_are_exclusive_and_not_ephemeral():
    reservations = [PortReservation() for _ in range(20)]
    ports = {reservation.port for reservation in reservations}
    assert len(ports) == 20
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert low <= 13000 or max(ports) < low
    for reservation in reservations:
        reservation.release()
        reservation.release()
