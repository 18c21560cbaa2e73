"""The measurement of a restore cell, in the process that is its chief: into a fresh cluster, no file cached."""

import os
import time
from pathlib import Path
from typing import Any, Dict, List

from benchmarks.side_by_side import making, watching, windows
from benchmarks.side_by_side.capped.control import moved
from benchmarks.side_by_side.cells import REGIMES, Cell
from benchmarks.side_by_side.job import Job
from benchmarks.side_by_side.setting_up import running
from benchmarks.side_by_side.systems import SYSTEMS, System

# Connections that a server of ours reads by, at most; see `EngineOptions.restore_threads`.
READERS = 16
# Of the rows that a table had, so many may be missing or too many: TFRA counts them so.
ROWS_OFF = 0.001
# One reader that would take longer on the line reads over a line so much faster that it takes this.
LONGEST_READ = 60.0


def measure(cell: Cell, directory: str, made: str) -> Dict[str, Any]:
    """Restores the newest checkpoint, and returns what that took.

    Raises:
        ValueError: the system can't be restored into another number of servers.
        RuntimeError: the tables have other rows afterwards than at the last checkpoint.
    """
    system = SYSTEMS[cell.system]
    if system.is_full and cell.restore_ps != cell.ps:
        raise ValueError(f"{system.title}: Received: {cell.restore_ps} ps to restore into. Expected: {cell.ps}")
    folder, at_the_cut = making.place(cell, made).resolve() / making.STORE, making.facts(cell, made)
    forget_cached(folder)
    caps = REGIMES[cell.regime]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    with running(directory, cell.restore_ps, cell.rows, system.is_stock, system.bytes_per_row) as (job, control, facts):
        store = str(folder) if cell.regime == "local" else f"capped://{folder}"
        faster = 1.0
        if system.one_reader:
            needed = _bytes_of_newest(store, size)
            faster = max(1.0, windows.seconds_on_the_line(needed / job.num_ps, needed, caps) / LONGEST_READ)
        processes = watching.Processes.of(job.cluster)
        processes.forget_peaks()
        cpu, line = processes.cpu_seconds(), control.counters()
        control.cap(*(faster * cap for cap in caps))
        start = time.monotonic()
        read = _restore(system, job, store)
        seconds = time.monotonic() - start
        passed, taken = moved(line, control.counters()), watching.used(cpu, processes.cpu_seconds())
        peaks = processes.peak_bytes()
        control.cap()
        rows = [int(table.size()) for table in job.tables]
        check_rows(cell.key, rows, at_the_cut["rows"])
        read = read or passed["bytes_read"] or size
        added = 0.0
        if faster > 1:
            on_line = windows.seconds_on_the_line(read / job.num_ps, read, caps)
            added = on_line - on_line / faster
        allowed = passed["open_most"] if system.is_full else job.num_ps * (1 if system.one_reader else READERS)
        return {"facts": facts, "made_by": at_the_cut["facts"]["code"], "seconds": seconds + added, "bytes_read": read,
                "rows": rows, "connections": passed["open_most"],
                # The least that the caps allow for so many bytes, and as many connections as it may have.
                "line_seconds": windows.seconds_on_the_line(read / max(1, allowed), read, caps),
                "extrapolated": {"line_faster": faster, "seconds_added": added} if faster > 1 else None,
                "others_share": watching.others_share(taken), "peak_bytes": peaks,
                "cpu_seconds": {role: value for role, value in taken.items() if role not in ("machine", "elapsed")},
                "store_cpu_seconds": passed["cpu_ns"] / 1e9}


def check_rows(key: str, rows: List[int], expected: List[int]) -> None:
    """Raises RuntimeError if tables have not the rows that they had, but for `ROWS_OFF` of them."""
    if any(abs(found - there) > ROWS_OFF * there for found, there in zip(rows, expected, strict=True)):
        raise RuntimeError(f"{key}: Received: {rows} rows. Expected: {expected}, as at the last checkpoint")


def _restore(system: System, job: Job, store: str) -> int:
    """Returns the bytes read, as far as the system tells."""
    if not system.is_full:
        import tfadaptcp
        options = tfadaptcp.EngineOptions(restore_threads=1 if system.one_reader else None, progress=False,
                                          timeout_seconds=3600.0)
        return job.model.load_adaptcp(f"{store}/ours", engine=options).bytes_read
    saver = system.make(job, store, "wait")
    import tensorflow as tf
    saver.load(f"{store}/{max(tf.io.gfile.listdir(store), key=lambda name: int(name.strip('/')))}".rstrip("/"))
    return 0


def _bytes_of_newest(store: str, otherwise: int) -> int:
    from tfadaptcp.checkpoint import commit
    from tfadaptcp.checkpoint.store import Store
    from tfadaptcp.info import CheckpointInfo
    head = commit.latest(Store(), f"{store}/ours")
    return otherwise if head is None else CheckpointInfo.of(head).bytes


def forget_cached(folder: Path) -> None:
    """Makes the kernel drop what it caches of the files below."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)  # what is not on the disk yet can't be dropped
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
