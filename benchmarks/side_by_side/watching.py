"""What processes and the machine used: CPU time and memory by role, from /proc."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Dict, List

_HERE = "benchmarks/side_by_side"
# Modules that make of results what is shown.
_NOT_MEASURING = ("report", "tables", "plots", "targets", "losses", "longer", "totals")
_TICKS = os.sysconf("SC_CLK_TCK")


def facts() -> Dict[str, Any]:
    """The machine, and the versions of what runs on it."""
    from benchmarks import measuring
    return {"machine": measuring.machine(), "cores": os.cpu_count(), "python": platform.python_version(),
            "commit": _git("describe", "--always", "--dirty").strip() or "unknown", "code": code(),
            "load": os.getloadavg()[0],
            "versions": {name: importlib.metadata.version(name)
                         for name in ("tensorflow", "tensorflow-recommenders-addons", "numpy")}}


def code() -> str:
    """A short hash of all files by which a measurement is made: of the product, and of what measures it."""
    digest = hashlib.sha256()
    for name in _git("ls-files", "tfadaptcp", "ops", _HERE).splitlines():
        path = Path(name)
        if path.exists() and not (path.parent == Path(_HERE) and path.stem in _NOT_MEASURING):
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:10]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout


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


def own(taken: Dict[str, float]) -> float:
    """CPU seconds of all roles."""
    return sum(seconds for role, seconds in taken.items() if role not in ("machine", "elapsed"))


def others_share(taken: Dict[str, float]) -> float:
    """The fraction of all cores' time that none of the roles used."""
    return max(0.0, taken["machine"] - own(taken)) / taken["elapsed"] if taken["elapsed"] > 0 else 0.0


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status: Received: no {field}. Expected: one")
