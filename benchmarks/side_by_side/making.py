"""Makes the checkpoints that restores are measured with: once for all rounds, and not capped."""

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict

from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.setting_up import running
from benchmarks.side_by_side.systems import SYSTEMS

STORE, FACTS = "store", "made.json"


def place(cell: Cell, made: str) -> Path:
    """Where the checkpoints of a cell are: those of its system, whatever they are restored into, and how."""
    return Path(made) / dataclasses.replace(cell, round=0, restore_ps=0, regime="none").key


def partial(cell: Cell, made: str, session: int) -> Path:
    """Where a session of processes makes them, before they are all there."""
    return Path(f"{place(cell, made)}.partial-{session}").resolve()


def facts(cell: Cell, made: str) -> Dict[str, Any]:
    """What is known of checkpoints that were made: "rows" of each table at the last, "facts" of machine and code."""
    return json.loads((place(cell, made) / FACTS).read_text(encoding="utf-8"))


def is_there(cell: Cell, made: str) -> bool:
    """Whether they have been made."""
    return (place(cell, made) / FACTS).exists()


def make(cell: Cell, directory: str, made: str) -> Dict[str, Any]:
    """Trains with a checkpoint after each interval, `cell.checkpoints` after the first; full systems: the last."""
    system = SYSTEMS[cell.system]
    folder = partial(cell, made, os.getsid(0))
    shutil.rmtree(folder, ignore_errors=True)
    (folder / STORE).mkdir(parents=True)
    start = time.monotonic()
    with running(directory, cell.ps, cell.rows, system.is_stock, system.bytes_per_row) as (job, _, machine):
        saver = system.make(job, f"capped://{folder / STORE}", "wait")
        job.fill()
        for number in range(cell.checkpoints + 1):
            if number > 0:
                job.train(cell.interval)
            if not system.is_full or number == cell.checkpoints:
                saver.save()
        saver.finish()
        saver.close()
        job.take_stamps()
        rows = [int(table.size()) for table in job.tables]
    told = {"facts": machine, "rows": rows, "seconds": time.monotonic() - start, "stats": str(saver.stats())}
    (folder / FACTS).write_text(json.dumps(told, indent=1), encoding="utf-8")
    shutil.rmtree(place(cell, made), ignore_errors=True)  # of an older form
    os.replace(folder, place(cell, made))
    return told
