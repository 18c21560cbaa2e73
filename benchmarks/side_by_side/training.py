"""The measurement of a training cell, in the process that is its chief."""

import time
from typing import Any, Dict

from benchmarks.side_by_side import watching, windows
from benchmarks.side_by_side.capped.control import Control, moved
from benchmarks.side_by_side.cells import REGIMES, Cell
from benchmarks.side_by_side.job import Job
from benchmarks.side_by_side.systems import System

WINDOW_SECONDS, LEAST_WINDOWS = 75.0, 3
# A complete checkpoint that would take longer on the line is written over a line so much faster that it takes this.
LONGEST_SAVE = 8.0


def measure(cell: Cell, system: System, job: Job, control: Control, directory: str, seconds: float) -> Dict[str, Any]:
    """Fills the tables, trains, and returns what came of it. The store is not capped until the first base is stored."""
    saver = system.make(job, directory, cell.pending)
    result: Dict[str, Any] = {"fill_seconds": job.fill()}
    job.train(min(cell.interval, 100))
    control.forget_maxima()
    before, start = control.counters(), time.monotonic()
    saver.save()
    saver.finish()
    first = moved(before, control.counters())
    result.update(first_save_seconds=time.monotonic() - start, first_save_bytes=first["bytes_written"])
    # The second is of the usual kind.
    job.train(min(cell.interval, 100))
    if not system.is_full:
        saver.save()
        saver.finish()

    caps = REGIMES[cell.regime]
    on_line = windows.seconds_on_the_line(first["most_bytes_of_a_connection"], first["bytes_written"], caps)
    faster = max(1.0, on_line / LONGEST_SAVE) if system.is_full else 1.0
    control.cap(*(faster * cap for cap in caps))
    job.take_stamps()
    processes = watching.Processes.of(job.cluster)
    processes.forget_peaks()
    control.forget_maxima()
    cpu, line, stats = processes.cpu_seconds(), control.counters(), saver.stats()
    found = windows.run(job.train, saver.save, cell.interval, seconds, LEAST_WINDOWS)
    taken = watching.used(cpu, processes.cpu_seconds())
    peaks = processes.peak_bytes()
    tail = time.monotonic()
    saver.finish()
    tail = time.monotonic() - tail
    passed, ended = moved(line, control.counters()), saver.stats()
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
        cpu_seconds_per_step={role: value / steps for role, value in taken.items() if role not in ("machine", "elapsed")},
        store_cpu_seconds_per_step=passed["cpu_ns"] / 1e9 / steps, peak_bytes=peaks,
        bytes_written=passed["bytes_written"], objects_written=passed["objects_written"],
        connections=passed["open_most"], tail_seconds=tail,
        waited_seconds=sum(window["save_seconds"] for window in found),
        saves={name: ended[name] - stats[name] for name in ("saves", "committed", "skipped")},
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
