"""The measurement of a training cell, in the process that is its chief."""

import time
from typing import Any, Dict

from benchmarks.side_by_side import watching, windows
from benchmarks.side_by_side.capped.control import Control, moved
from benchmarks.side_by_side.cells import REGIMES, Cell
from benchmarks.side_by_side.job import Job
from benchmarks.side_by_side.setting_up import running
from benchmarks.side_by_side.systems import SYSTEMS, System

# At least so many intervals are measured, but one where they are long.
LEAST_WINDOWS, LONG_INTERVAL = 3, 3000
# Checkpoints, of intervals of at most so many steps, that a chain has behind it when the clock starts: differentials
# are then as large as in the middle of the time between two bases of Check-N-Run.
AGE, AGING_STEPS = 6, 100
# A complete checkpoint that would take longer on the line is written over a line so much faster that it takes this.
LONGEST_SAVE = 8.0


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
    control.forget_maxima()
    before, start = control.counters(), time.monotonic()
    saver.save()
    saver.finish()
    first = moved(before, control.counters())
    result.update(first_save_seconds=time.monotonic() - start, first_save_bytes=first["bytes_written"])
    for number in range(AGE):
        job.train(min(cell.interval, AGING_STEPS))
        # Increments do not grow, and what makes a base after so many is to make none while it is measured.
        if not system.is_full and (not system.full_every or number == AGE - 1):
            saver.save()
            saver.finish()

    caps = REGIMES[cell.regime]
    on_line = windows.seconds_on_the_line(first["most_bytes_of_a_connection"], first["bytes_written"], caps)
    faster = max(1.0, on_line / LONGEST_SAVE) if system.is_full else 1.0
    control.cap(*(faster * cap for cap in caps))
    if not system.is_full:
        # The clock starts as it stops: with a checkpoint under way, if the system writes in the background.
        job.train(cell.interval)
        saver.save()
    job.take_stamps()
    processes = watching.Processes.of(job.cluster)
    processes.forget_peaks()
    control.forget_maxima()
    cpu, line, stats = processes.cpu_seconds(), control.counters(), saver.stats()
    found = windows.run(job.train, saver.save, cell.interval, seconds,
                        LEAST_WINDOWS if cell.interval < LONG_INTERVAL else 1,
                        system.full_every - 2 if system.full_every else None)
    taken = watching.used(cpu, processes.cpu_seconds())
    peaks, passed = processes.peak_bytes(), moved(line, control.counters())
    tail = time.monotonic()
    saver.finish()
    tail = time.monotonic() - tail
    ended = saver.stats()
    if ended["committed"] + ended["skipped"] != ended["saves"]:
        raise RuntimeError(f"{cell.key}: Received: {ended}. Expected: all saves committed or skipped")
    stamps = job.take_stamps()
    control.cap()

    result["extrapolated"] = None
    if faster > 1:
        added = on_line - on_line / faster
        found = windows.slowed(found, added)
        result["extrapolated"] = {"line_faster": faster, "seconds_added_to_each_save": added}
    if system.full_every:
        found, result["extrapolated"] = _with_bases(found, system, job, control, directory, caps)
    steps = sum(window["steps"] for window in found)
    result.update(
        steps_per_second=windows.steps_per_second(found), windows=found, steps=steps,
        step_milliseconds=windows.step_times(stamps), others_share=watching.others_share(taken),
        cpu_seconds_per_step={role: value / steps for role, value in taken.items() if role in processes.roles},
        store_cpu_seconds_per_step=passed["cpu_ns"] / 1e9 / steps, peak_bytes=peaks,
        bytes_written=passed["bytes_written"], objects_written=passed["objects_written"],
        connections=passed["open_most"], tail_seconds=tail,
        waited_seconds=sum(window["save_seconds"] for window in found),
        saves={name: ended[name] - stats[name] for name in ("saves", "skipped")},
        bases=ended.get("bases", 0) - stats.get("bases", 0),
        last_save={name: value for name, value in ended.items() if isinstance(value, (int, float, str))})
    return result


def _with_bases(found: Any, system: System, job: Job, control: Control, directory: str, caps: Any) -> Any:
    """The windows with the base that comes after every so many: it is written once, uncapped, and the line is added."""
    from benchmarks.side_by_side.systems import Ours
    base = Ours(job, f"{directory}/base", "wait", policy="full", engine={"capture": "blocking", "writer_threads": 1,
                                                                         "upload_threads": 1})
    control.cap()
    before, start = control.counters(), time.monotonic()
    base.save()
    base.finish()
    seconds = time.monotonic() - start
    written = moved(before, control.counters())["bytes_written"]
    # One connection at a time from each server.
    seconds += windows.seconds_on_the_line(written / job.num_ps, written, caps)
    share = seconds / (system.full_every + 1)
    ordinary = sum(window["save_seconds"] for window in found) / len(found)
    # Of every full_every + 1 checkpoints one is a base, and the others are as measured.
    changed = windows.slowed(found, share - ordinary / (system.full_every + 1))
    return changed, {"base_seconds": seconds, "base_bytes": written, "base_every": system.full_every + 1}
