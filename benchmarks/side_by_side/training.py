"""The measurement of a training cell, in the process that is its chief."""

from typing import Any, Dict, List

from benchmarks.side_by_side import bases, new_bases, watching, windows
from benchmarks.side_by_side.capped.control import Control, moved
from benchmarks.side_by_side.cells import REGIMES, Cell
from benchmarks.side_by_side.job import WORKERS, Job
from benchmarks.side_by_side.setting_up import running
from benchmarks.side_by_side.systems import SYSTEMS, System

# At least so many intervals are measured, but one where they are long.
LEAST_WINDOWS, LONG_INTERVAL = 3, 3000
# Of systems that write everything each time: all their checkpoints are alike.
LEAST_FULL_WINDOWS = 2
# Checkpoints, of intervals of at most so many steps, that a chain has behind it when the clock starts. One more is
# under way then: windows of 100 steps wait for differentials 5, 6 and 7, of some 11 between two bases of Check-N-Run.
AGE, AGING_STEPS = 4, 100
MIDDLE_AGE = AGE + (1 + LEAST_WINDOWS) // 2
# Who saves nothing has no reason to let steps end: it trains so many at a time, fewer where the clock runs for less.
PIECE, PIECE_PER_SECOND = 1000, 20


def measure(cell: Cell, directory: str, seconds: float) -> Dict[str, Any]:
    """Starts a cluster, fills the tables, trains for at least `seconds`, and returns what came of it."""
    system = SYSTEMS[cell.system]
    with running(directory, cell.ps, cell.rows, system.is_stock, system.bytes_per_row) as (job, control, facts):
        return {"facts": facts, **_measure(cell, system, job, control, f"capped://{directory}/store", seconds)}


def _measure(cell: Cell, system: System, job: Job, control: Control, directory: str, seconds: float) -> Dict[str, Any]:
    # The store is not capped until the chain is as old as it is to be.
    saver = system.make(job, directory, cell.pending)
    result: Dict[str, Any] = {"fill_seconds": job.fill()}
    aging_steps = min(cell.interval, AGING_STEPS)
    job.train(aging_steps)
    first = {**new_bases.save(saver, control), "rows": _rows(job)}
    result.update(first_save_seconds=first["seconds"], first_save_bytes=first["bytes_written"])
    if system.bases:
        saver.new_bases.turned_to = "never"
    aging = []
    for number in range(AGE):
        job.train(aging_steps)
        if not system.is_full:
            aging.append(new_bases.save(saver, control)["bytes_written"])

    caps = REGIMES[cell.regime]
    faster = new_bases.line_faster(first["most_bytes_of_a_connection"], first["bytes_written"], caps) \
        if system.is_full else 1.0
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

    def written() -> int:
        told = saver.stats()
        return told["saves"] - told["skipped"] - stats["saves"] + stats["skipped"]

    found = windows.run(job.train, saver.save, _piece(cell, system, seconds), seconds, _least(cell, system),
                        goes_on=lambda: system.saves and written() == 0)
    taken = watching.used(cpu, processes.cpu_seconds())
    peaks, passed = processes.peak_bytes(), moved(line, control.counters())
    result["saves"] = {name: saver.stats()[name] - stats[name] for name in ("saves", "skipped")}
    # The wait for the last save is in the next step of each worker.
    job.train(2 * WORKERS)
    saver.finish()
    ended, stamps = saver.stats(), job.take_stamps()

    result["extrapolated"] = None
    if faster > 1:
        # The time in which anybody waited for the line, which would have been so many times as long.
        added = passed["line_ns"] / 1e9 / len(found) * (faster - 1)
        found = windows.slowed(found, added)
        result["extrapolated"] = {"line_faster": faster, "seconds_added_to_each_save": added}
    if cell.pending == "wait":  # each window for the checkpoint before
        checkpoints, moved_bytes = len(found), passed["bytes_written"]
    else:
        checkpoints = written() + stats.get("pending", False)
        moved_bytes = moved(line, control.counters())["bytes_written"]
    intervals = len(found) / written() if written() else 1.0
    others, per_checkpoint, steady = watching.others_share(taken), moved_bytes / checkpoints, found
    result["new_bases"] = None
    if system.bases:
        growth = bases.Growth(per_checkpoint, (_restore_bytes(saver) - restore_bytes) / (written() + 1),
                              (_rows(job) - rows) / (written() + 1))
        every, factor = system.full_every + 1, 1.0
        if system.bases == "a snapshot":
            sizes = bases.Differentials(aging[0], aging[-1], AGE, first["bytes_written"])
            every, factor = _over_a_period(sizes, checkpoints, intervals * cell.interval / aging_steps)
            found, per_checkpoint = windows.scaled(found, factor, cell.pending == "wait"), factor * per_checkpoint
        usual = new_bases.Between(found, watching.own(taken) / len(found), growth, first["bytes_written"],
                                  first["rows"], every, intervals)
        told = new_bases.make(cell, system, job, saver, control, usual)
        steady = found
        if told["every"]:
            steady = windows.slowed(found, told["seconds"] / (told["every"] * intervals))
        result["new_bases"] = {**told, "factor": factor}
        others = max(others, told["others_share"])
    stored = saver.stats()
    if stored["committed"] + stored["skipped"] != stored["saves"]:
        raise RuntimeError(f"{cell.key}: Received: {stored}. Expected: all saves committed or skipped")
    steps = sum(window["steps"] for window in found)
    result.update(
        steps_per_second=windows.steps_per_second(steady), between_bases=windows.steps_per_second(found), windows=found,
        steps=steps, step_milliseconds=windows.step_times(stamps), others_share=others,
        cpu_seconds_per_step={role: value / steps for role, value in taken.items() if role in processes.roles},
        store_cpu_seconds_per_step=passed["cpu_ns"] / 1e9 / steps, peak_bytes=peaks,
        bytes_written=passed["bytes_written"], bytes_per_checkpoint=per_checkpoint,
        objects_written=passed["objects_written"], connections=passed["open_most"],
        waited_seconds=sum(window["save_seconds"] for window in found),
        last_save={name: value for name, value in ended.items() if isinstance(value, (int, float, str))})
    return result


def _piece(cell: Cell, system: System, seconds: float) -> int:
    return cell.interval if system.saves else max(cell.interval, min(PIECE, int(PIECE_PER_SECOND * seconds)))


def _least(cell: Cell, system: System) -> int:
    if cell.interval >= LONG_INTERVAL or not system.saves:
        return 1
    return LEAST_FULL_WINDOWS if system.is_full else LEAST_WINDOWS


def _over_a_period(sizes: bases.Differentials, checkpoints: int, steps: float) -> Any:
    """How many checkpoints a base comes once in, and by what the mean one is larger than those measured.

    Args:
        sizes: by ages in intervals of the aging.
        checkpoints: measured after the aging, each `steps` times as far from the one before.
    """
    measured: List[float] = [AGE + number * steps for number in range(1, checkpoints + 1)]
    return 1 + sizes.before_a_base(steps), sizes.factor(measured, steps)


def _restore_bytes(saver: Any) -> float:
    """Rows that a restore of the last checkpoint would read, in bytes; 0 where nobody says."""
    return (saver.stats().get("actual") or {}).get("bytes_restore", 0)


def _rows(job: Job) -> int:
    """Of the parameter, nobody training."""
    return int(job.tables[0].size())
