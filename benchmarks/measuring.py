"""Timing on a machine that others use too: CPU time beside wall time, interleaved rounds, medians."""

import dataclasses
import os
import platform
import statistics
import time
from typing import Callable, Dict, List, Sequence


@dataclasses.dataclass(frozen=True)
class Sample:
    """Seconds of one call.

    Attributes:
        cpu: of all threads of this process, time in the kernel included.
        wall: of the clock; on a busy machine it says more about the neighbours.
    """
    cpu: float
    wall: float

    def __add__(self, other: "Sample") -> "Sample":
        return Sample(self.cpu + other.cpu, self.wall + other.wall)


NOTHING = Sample(0.0, 0.0)


def timed(function: Callable[[], object]) -> Sample:
    """Calls `function` once."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Sample(time.process_time() - cpu, time.perf_counter() - wall)


def interleaved(cases: Dict[str, Callable[[], Sample]], rounds: int) -> Dict[str, List[Sample]]:
    """Measures every case once per round, in an order that turns, after one round that is not counted."""
    names = list(cases)
    samples: Dict[str, List[Sample]] = {name: [] for name in names}
    for number in range(-1, rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            sample = cases[name]()
            if number >= 0:
                samples[name].append(sample)
    return samples


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Quotients of two cases, round by round: median and quartiles, of CPU and of wall time."""
    cpu: float
    cpu_low: float
    cpu_high: float
    wall: float

    def __str__(self) -> str:
        return (f"CPU x {self.cpu:.3f} (quartiles {self.cpu_low:.3f} to {self.cpu_high:.3f}), "
                f"wall x {self.wall:.3f}")


def ratio(of: Sequence[Sample], to: Sequence[Sample]) -> Ratio:
    """Compares samples that were taken in the same rounds."""
    cpu = [a.cpu / b.cpu for a, b in zip(of, to)]
    wall = [a.wall / b.wall for a, b in zip(of, to)]
    low, _, high = statistics.quantiles(cpu, n=4) if len(cpu) > 1 else cpu * 3
    return Ratio(statistics.median(cpu), low, high, statistics.median(wall))


def median_cpu(samples: Sequence[Sample]) -> float:
    """Median seconds of CPU time."""
    return statistics.median(sample.cpu for sample in samples)


def median_wall(samples: Sequence[Sample]) -> float:
    """Median seconds of wall time."""
    return statistics.median(sample.wall for sample in samples)


class Neighbours:
    """How much of the machine others took between construction and `share`, from /proc/stat."""

    def __init__(self):
        self._start = self._read()

    def share(self) -> float:
        """Fraction of all cores' time that neither this process nor idleness used."""
        busy, total, own = (after - before for before, after in zip(self._start, self._read()))
        return max(0.0, busy - own) / total if total > 0 else 0.0

    @staticmethod
    def _read():
        with open("/proc/stat", encoding="ascii") as stat:
            ticks = [int(field) for field in stat.readline().split()[1:9]]
        per_second = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]
        return (sum(ticks) - idle) / per_second, sum(ticks) / per_second, time.process_time()


def machine() -> str:
    """One line: processor, cores, memory, kernel, load."""
    facts = {}
    for path, key in (("/proc/cpuinfo", "model name"), ("/proc/meminfo", "MemTotal")):
        with open(path, encoding="utf-8") as lines:
            facts[key] = next((line.split(":")[1].strip() for line in lines if line.startswith(key)), "unknown")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (f"{facts['model name']}, {os.cpu_count()} cores, {facts['MemTotal']}, {platform.system()} "
            f"{'.'.join(platform.release().split('.')[:2])}, load {load}")
