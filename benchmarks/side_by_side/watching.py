"""What processes and the machine used: CPU time and memory by role, from /proc."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Dict, List

_TICKS = os.sysconf("SC_CLK_TCK")


def facts() -> Dict[str, Any]:
    """The machine, and the versions of what runs on it."""
    from benchmarks import measuring
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {"machine": measuring.machine(), "cores": os.cpu_count(), "python": platform.python_version(),
            "commit": commit.stdout.strip() or "unknown", "load": os.getloadavg()[0],
            "versions": {name: importlib.metadata.version(name)
                         for name in ("tensorflow", "tensorflow-recommenders-addons", "numpy")}}


def require_memory(needed: float) -> None:
    """Raises MemoryError if that many bytes are not to be had."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    if needed > available:
        raise MemoryError(f"Received: {available / 1e9:.1f} GB of memory available. Expected: {needed / 1e9:.1f} GB")


class Processes:
    """The processes of a job by role; others are whatever else runs on the machine."""

    def __init__(self, pids: Dict[str, List[int]]):
        self._pids = pids

    @classmethod
    def of(cls, cluster: Any) -> "Processes":
        """Those of a `LocalCluster`, and this one as its chief."""
        spec = cluster.cluster_spec
        return cls({**{job: [cluster.pid(job, i) for i in range(len(spec[job]))] for job in ("ps", "worker")},
                    "chief": [os.getpid()]})

    @property
    def roles(self) -> List[str]:
        return list(self._pids)

    def cpu_seconds(self) -> Dict[str, float]:
        """Used since they began, by role; "machine" is all that ran on all cores, "elapsed" what could have run."""
        used = {role: sum(_cpu_of(pid) for pid in pids) for role, pids in self._pids.items()}
        ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
        return {**used, "machine": (sum(ticks) - ticks[3] - ticks[4]) / _TICKS, "elapsed": sum(ticks) / _TICKS}

    def forget_peaks(self) -> None:
        """Begins `peak_bytes` anew."""
        for pid in sum(self._pids.values(), []):
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")

    def peak_bytes(self) -> Dict[str, int]:
        """The most resident memory, summed over the processes of a role."""
        return {role: sum(_status(pid, "VmHWM") for pid in pids) for role, pids in self._pids.items()}


def used(before: Dict[str, float], after: Dict[str, float]) -> Dict[str, float]:
    """CPU seconds by role between two readings."""
    return {role: after[role] - before[role] for role in after}


def others_share(taken: Dict[str, float]) -> float:
    """The fraction of all cores' time that none of the roles used."""
    own = sum(seconds for role, seconds in taken.items() if role not in ("machine", "elapsed"))
    return max(0.0, taken["machine"] - own) / taken["elapsed"] if taken["elapsed"] > 0 else 0.0


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status: Received: no {field}. Expected: one")
