"""The measurement of a training cell, in the process that is its chief."""

import dataclasses
import time
from typing import Any, Dict

from benchmarks.side_by_side import bases, watching, windows
from benchmarks.side_by_side.capped.control import Control, moved
from benchmarks.side_by_side.cells import REGIMES, Cell
from benchmarks.side_by_side.job import Job
from benchmarks.side_by_side.setting_up import running
from benchmarks.side_by_side.systems import SYSTEMS, System

# At least so many intervals are measured, but one where they are long.
LEAST_WINDOWS, LONG_INTERVAL = 3, 3000
# Of systems that write everything each time: all their checkpoints are alike.
LEAST_FULL_WINDOWS = 2
# Checkpoints, of intervals of at most so many steps, that a chain has behind it when the clock starts: differentials
# are then as large as in the middle of the time between two bases of Check-N-Run.
AGE, AGING_STEPS = 6, 100
# A complete checkpoint that would take longer on the line is written over a line so much faster that it takes this.
LONGEST_SAVE = 16.0


def measure(cell: Cell, directory: str, seconds: float) -> Dict[str, Any]:
    """Starts a cluster, fills the tables, trains for at least `seconds`, and returns what came of it."""
    system = SYSTEMS[cell.system]
    with running(directory, cell.ps, cell.rows, system.is_stock, system.bytes_per_row) as (job, control, facts):
        return {"facts": facts, **_measure(cell, system, job, control, f"capped://{directory}/store", seconds)}


def _measure(cell: Cell, system: System, job: Job, control: Control, directory: str, seconds: float) -> Dict[str, Any]:
    # The store is not capped until the chain is as old as it is to be.
    saver = system.make(job, directory, cell.pending)
    result: Dict[str, Any] = {"fill_seconds": job.fill()}
    job.train(min(cell.interval, AGING_STEPS))
    first = {**_save(saver, control), "rows": _rows(job)}
    result.update(first_save_seconds=first["seconds"], first_save_bytes=first["bytes_written"])
    if system.bases:
        saver.new_bases.turned_to = "never"
    aging = []
    for number in range(AGE):
        job.train(min(cell.interval, AGING_STEPS))
        if not system.is_full:
            aging.append(_save(saver, control))

    caps = REGIMES[cell.regime]
    on_line = windows.seconds_on_the_line(first["most_bytes_of_a_connection"], first["bytes_written"], caps)
    faster = max(1.0, on_line / LONGEST_SAVE) if system.is_full else 1.0
    control.cap(*(faster * cap for cap in caps))
    restore_bytes, rows = _restore_bytes(saver), _rows(job)
    if not system.is_full:
        # The clock starts as it stops: with a checkpoint under way, if the system writes in the background.
        job.train(cell.interval)
        saver.save()
    job.take_stamps()
    processes = watching.Processes.of(job.cluster)
    processes.forget_peaks()
    control.forget_maxima()
    cpu, line, stats = processes.cpu_seconds(), control.counters(), saver.stats()
    least = LEAST_FULL_WINDOWS if system.is_full else LEAST_WINDOWS
    found = windows.run(job.train, saver.save, cell.interval, seconds, least if cell.interval < LONG_INTERVAL else 1)
    taken = watching.used(cpu, processes.cpu_seconds())
    peaks, passed = processes.peak_bytes(), moved(line, control.counters())
    saver.finish()
    ended, stamps = saver.stats(), job.take_stamps()

    result["extrapolated"] = None
    if faster > 1:
        # The time in which anybody waited for the line, which would have been so many times as long.
        added = passed["line_ns"] / 1e9 / len(found) * (faster - 1)
        found = windows.slowed(found, added)
        result["extrapolated"] = {"line_faster": faster, "seconds_added_to_each_save": added}
    result["new_bases"] = None
    steady = found
    if system.bases:
        growth = bases.Growth(passed["bytes_written"] / len(found),
                              (_restore_bytes(saver) - restore_bytes) / (len(found) + 1),
                              (_rows(job) - rows) / (len(found) + 1))
        told = _new_bases(cell, system, job, saver, control, found, aging, first, growth)
        if told["every"]:
            steady = windows.slowed(found, told["seconds"] / told["every"])
        result["new_bases"] = told
    stored = saver.stats()
    if stored["committed"] + stored["skipped"] != stored["saves"]:
        raise RuntimeError(f"{cell.key}: Received: {stored}. Expected: all saves committed or skipped")
    steps = sum(window["steps"] for window in found)
    result.update(
        steps_per_second=windows.steps_per_second(steady), between_bases=windows.steps_per_second(found), windows=found,
        steps=steps, step_milliseconds=windows.step_times(stamps), others_share=watching.others_share(taken),
        cpu_seconds_per_step={role: value / steps for role, value in taken.items() if role in processes.roles},
        store_cpu_seconds_per_step=passed["cpu_ns"] / 1e9 / steps, peak_bytes=peaks,
        bytes_written=passed["bytes_written"], objects_written=passed["objects_written"],
        connections=passed["open_most"], waited_seconds=sum(window["save_seconds"] for window in found),
        saves={name: ended[name] - stats[name] for name in ("saves", "skipped")},
        last_save={name: value for name, value in ended.items() if isinstance(value, (int, float, str))})
    return result


def _save(saver: Any, control: Control) -> Dict[str, float]:
    """Saves and waits until it is stored. Returns what passed the line, and "seconds"."""
    control.forget_maxima()
    before, start = control.counters(), time.monotonic()
    saver.save()
    saver.finish()
    return {**moved(before, control.counters()), "seconds": time.monotonic() - start}


def _restore_bytes(saver: Any) -> float:
    """Rows that a restore of the last checkpoint would read, in bytes; 0 where nobody says."""
    return (saver.stats().get("actual") or {}).get("bytes_restore", 0)


def _rows(job: Job) -> int:
    """Of the parameter, nobody training."""
    return int(job.tables[0].size())


def _new_bases(cell: Cell, system: System, job: Job, saver: Any, control: Control, found: Any, aging: Any,
               first: Dict[str, float], growth: bases.Growth) -> Dict[str, Any]:
    """Makes a base as the system does. Returns how many "seconds" longer it takes, and "every" how many checkpoints."""
    from tfadaptcp.policies import Adaptive
    caps, base = REGIMES[cell.regime], first["bytes_written"]
    saver.new_bases.turned_to = "now"
    if system.bases == "beside":
        control.cap(*caps)
        start = time.monotonic()
        saver.save()
        saver.new_bases.turned_to = "never"
        cut = time.monotonic() - start
        beside = windows.run(job.train, saver.save, cell.interval, 0, 1, goes_on=lambda: saver.stats()["scanning"])
        saver.finish()
        seconds = cut + bases.seconds_beside(beside, found)
        every = bases.checkpoints_before_a_base(Adaptive(), base, first["rows"], growth)
    else:
        control.cap()
        made = _save(saver, control)
        # One connection from each server; in place of another checkpoint.
        usual = sum(window["save_seconds"] for window in found) / len(found)
        seconds = made["seconds"] + windows.seconds_on_the_line(
            made["bytes_written"] / job.num_ps, made["bytes_written"], caps) - usual
        every = 1 + (system.full_every or bases.differentials_before_a_base(
            aging[0]["bytes_written"], aging[-1]["bytes_written"], AGE, base, cell.interval / AGING_STEPS))
    control.cap()
    return {"every": every, "seconds": seconds, "how": system.bases, **dataclasses.asdict(growth)}
