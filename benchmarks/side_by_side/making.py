"""Makes the checkpoints that restores are measured with: once for all rounds, and not capped."""

import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict

from benchmarks.side_by_side.cells import Cell
from benchmarks.side_by_side.setting_up import running
from benchmarks.side_by_side.systems import SYSTEMS


def place(cell: Cell, made: str) -> Path:
    """Where the checkpoints of a cell are: those of its system, whatever they are restored into, and how."""
    return Path(made) / dataclasses.replace(cell, round=0, restore_ps=0, regime="none").key


def is_there(cell: Cell, made: str) -> bool:
    """Whether they have been made."""
    return place(cell, made).exists()


def make(cell: Cell, directory: str, made: str) -> Dict[str, Any]:
    """Trains with a checkpoint after each interval, `cell.checkpoints` after the first; full systems: the last."""
    system = SYSTEMS[cell.system]
    partial = Path(f"{place(cell, made)}.partial").resolve()
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    start = time.monotonic()
    with running(directory, cell.ps, cell.rows, system.is_stock, system.bytes_per_row) as (job, _, facts):
        saver = system.make(job, f"capped://{partial}", "wait")
        job.fill()
        for number in range(cell.checkpoints + 1):
            if number > 0:
                job.train(cell.interval)
            if not system.is_full or number == cell.checkpoints:
                saver.save()
        saver.finish()
        saver.close()
        job.take_stamps()
    os.replace(partial, place(cell, made))
    return {"facts": facts, "seconds": time.monotonic() - start, "stats": str(saver.stats())}
