"""Makes a new base after the clock has stopped, as a system does, and says what it takes and how often one comes."""

import dataclasses
import statistics
import time
from typing import Any, Dict, List

from benchmarks.side_by_side import bases, watching, windows
from benchmarks.side_by_side.capped.control import Control, moved
from benchmarks.side_by_side.cells import REGIMES, Cell
from benchmarks.side_by_side.job import WORKERS, Job
from benchmarks.side_by_side.systems import System

# What is written while training stands still and would take longer on the line is written over a line so much faster
# that it takes this.
LONGEST_SAVE = 16.0
# A base that takes longer to be read beside training is read on without caps after so long, and its time and CPU are
# those of all its bytes by what it had written until then.
LONGEST_BASE = 60.0


@dataclasses.dataclass(frozen=True)
class Between:
    """What was measured between bases.

    Attributes:
        windows: intervals, as they are on average between two bases.
        cpu_seconds: of an interval, of all roles.
        growth: of a checkpoint.
        base, rows: bytes and rows of the first base.
        every: checkpoints of which one is a base, where the sizes of Check-N-Run's say so.
        intervals: for each checkpoint that is written, those included at whose ends one was skipped.
    """
    windows: List[Dict[str, float]]
    cpu_seconds: float
    growth: bases.Growth
    base: float
    rows: float
    every: int
    intervals: float


def line_faster(most_bytes_of_a_connection: float, total_bytes: float, caps: Any) -> float:
    """How many times as fast the line has to be for `LONGEST_SAVE`; at least 1."""
    return max(1.0, windows.seconds_on_the_line(most_bytes_of_a_connection, total_bytes, caps) / LONGEST_SAVE)


def save(saver: Any, control: Control) -> Dict[str, float]:
    """Saves and waits until it is stored. Returns what passed the line, and "seconds"."""
    control.forget_maxima()
    before, start = control.counters(), time.monotonic()
    saver.save()
    saver.finish()
    return {**moved(before, control.counters()), "seconds": time.monotonic() - start}


def make(cell: Cell, system: System, job: Job, saver: Any, control: Control, usual: Between) -> Dict[str, Any]:
    """Makes one. Nothing is being written, and policies make none of their own.

    Returns:
        "seconds" that an interval with it takes longer, "cpu_seconds" that it costs more, both over what as many usual
        intervals take; "bytes" of it; "every" how many checkpoints one comes, None: never; "others_share" meanwhile; of
        one beside training "share", by which these are known.

    Raises:
        RuntimeError: it failed.
    """
    counted = saver.stats()["bases"]
    told = (_beside if system.bases == "beside" else _in_place)(cell, system, job, saver, control, usual)
    control.cap()
    if saver.stats()["bases"] <= counted:
        raise RuntimeError(f"{cell.key}: Received: {saver.stats()}. Expected: more than {counted} bases")
    return {**told, "how": system.bases, "intervals_per_checkpoint": usual.intervals,
            **dataclasses.asdict(usual.growth)}


def _beside(cell: Cell, system: System, job: Job, saver: Any, control: Control, usual: Between) -> Dict[str, Any]:
    from tfadaptcp.policies import Adaptive
    control.cap(*REGIMES[cell.regime])
    # As while the clock ran: with a checkpoint under way.
    job.train(cell.interval)
    saver.save()
    switch, processes = saver.new_bases, watching.Processes.of(job.cluster)
    switch.turned_to = "now"

    def save_with_a_base() -> None:
        skipped = saver.stats()["skipped"]
        saver.save()
        if saver.stats()["skipped"] == skipped:
            switch.turned_to = "never"

    def is_scanning() -> bool:
        return switch.turned_to == "now" or saver.stats()["scanning"]

    began, line, cpu = time.monotonic(), control.counters(), processes.cpu_seconds()
    found = windows.run(job.train, save_with_a_base, cell.interval, 0, 1,
                        goes_on=lambda: is_scanning() and time.monotonic() - began < LONGEST_BASE)
    taken, passed = watching.used(cpu, processes.cpu_seconds()), moved(line, control.counters())["bytes_written"]
    is_part = is_scanning()
    if is_part:
        control.cap()
        windows.run(job.train, save_with_a_base, cell.interval, 0, 1, goes_on=is_scanning)
        control.cap(*REGIMES[cell.regime])
    # Compared with intervals before and after it, as the machine drifts by as much as a base costs.
    cpu = processes.cpu_seconds()
    after = windows.run(job.train, saver.save, cell.interval, 0, max(1, len(usual.windows) // 2))
    taken_after = watching.used(cpu, processes.cpu_seconds())
    seconds = statistics.fmean(windows.mean(usually, "seconds") for usually in (usual.windows, after))
    cpu_seconds = statistics.fmean((usual.cpu_seconds, watching.own(taken_after) / len(after)))
    # The checkpoint that goes by it, of a few steps.
    saver.finish()
    job.train(2 * WORKERS)
    saver.save()
    saver.finish()
    size = saver.stats()["scan_bytes"]
    share = part(passed, len(found), usual, size) if is_part else 1.0
    return {"seconds": (sum(window["seconds"] for window in found) - len(found) * seconds) / share,
            "cpu_seconds": (watching.own(taken) - len(found) * cpu_seconds) / share, "bytes": size, "share": share,
            "every": bases.checkpoints_before_a_base(Adaptive(), usual.base, usual.rows, usual.growth),
            "others_share": max(watching.others_share(taken), watching.others_share(taken_after))}


def part(passed: float, intervals: int, usual: Between, size: float) -> float:
    """The share of a base of `size` bytes among the bytes that passed the line in so many intervals.

    Raises:
        RuntimeError: they are no more than those of the checkpoints.
    """
    share = (passed - intervals * usual.growth.written / usual.intervals) / size
    if share <= 0:
        raise RuntimeError(f"Received: {passed} bytes in {intervals} intervals beside a base. Expected: more than "
                           f"{usual.growth.written} for each checkpoint")
    return min(1.0, share)


def _in_place(cell: Cell, system: System, job: Job, saver: Any, control: Control, usual: Between) -> Dict[str, Any]:
    """In place of another checkpoint, and written over a faster line."""
    caps = REGIMES[cell.regime]
    faster = line_faster(usual.base / job.num_ps / system.uploads, usual.base, caps)
    processes = watching.Processes.of(job.cluster)
    cpu = processes.cpu_seconds()
    job.train(cell.interval)
    control.cap(*(faster * cap for cap in caps))
    saver.new_bases.turned_to = "now"
    made = save(saver, control)
    taken = watching.used(cpu, processes.cpu_seconds())
    if made["bytes_written"] < 0.9 * usual.base:
        raise RuntimeError(f"{cell.key}: Received: {made['bytes_written']} bytes of a base. Expected: {usual.base}")
    stored = made["seconds"] + (faster - 1) * made["line_ns"] / 1e9
    return {"seconds": longer(system, cell.pending, usual, stored, saver.stats()["blocked_seconds"]),
            "cpu_seconds": watching.own(taken) - usual.cpu_seconds, "bytes": made["bytes_written"],
            "every": usual.every, "others_share": watching.others_share(taken), "line_faster": faster}


def longer(system: System, pending: str, usual: Between, stored: float, blocked: float) -> float:
    """Seconds that a base in place of another checkpoint makes an interval longer.

    Args:
        stored: seconds until the base was stored.
        blocked: seconds that its save took, no other checkpoint being written.
    """
    saving = windows.mean(usual.windows, "save_seconds")
    if system.bases == "standing still":
        return stored - saving
    if pending == "skip":  # nobody waits for an upload
        return blocked - saving * usual.intervals
    whole = windows.mean(usual.windows, "seconds")
    return max(whole - saving + blocked, stored) - whole
