"""Ports on loopback for servers that other processes start, without races between tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path


class PortReservation:
    """A port that no other ``PortReservation`` on this machine has, until ``release()``.

    A server started by another process can't be handed a bound socket, so the port is only
    claimed, by a lock on a file that the kernel drops when this process ends. It lies outside
    the range of ephemeral ports: within it, an outgoing connection of anybody could take the
    port while a killed server is away, even one that a client tries to make to that very server.
    """

    def __init__(self):
        directory = Path(tempfile.gettempdir()) / f"tfadaptcp-ports-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        candidates = list(_candidates())
        random.SystemRandom().shuffle(candidates)
        for port in candidates:
            descriptor = os.open(directory / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            if _is_free(port):
                self.port = port
                self._descriptor = descriptor
                return
            os.close(descriptor)
        raise OSError("All ports tried on 127.0.0.1 are taken.")

    def release(self) -> None:
        """Gives the port back. Further calls do nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _candidates() -> range:
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        low = 32768
    return range(12000, low) if low > 13000 else range(20000, 30000)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
