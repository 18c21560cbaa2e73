"""Measures planned cells that are missing, one after the other, each in a process of its own."""

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, List, Optional

from benchmarks.side_by_side import making
from benchmarks.side_by_side.cells import INTERVALS, ROWS, SECONDS, TRAINING_REGIMES, Cell, plan
from benchmarks.side_by_side.results import Results
from benchmarks.side_by_side.systems import SYSTEMS, TRAINED

# Whose restores are compared: what else there is writes the same files as one of these.
RESTORED = ("tfra_files", "tf_checkpoint", "native_incremental", "incr_ckpt", "check_n_run", "check_n_run_parallel",
            "check_n_run_quantized", "adaptcp", "adaptcp_quantized")
# No cell may take longer, whatever hangs.
_TIMEOUT = 3600
CORE = Cell("any")


def planned(args: argparse.Namespace) -> List[Cell]:
    """The cells that the command line asks for, in their order."""
    if args.restores:
        return _planned_restores(args)
    if args.core:
        groups = [[CORE]]
    elif any(getattr(args, name) for name in ("rows", "intervals", "regimes", "ps", "pending")):
        groups = [[Cell("any", interval=interval, regime=regime, rows=rows, ps=ps, pending=pending)
                   for pending in args.pending or [CORE.pending] for ps in args.ps or [CORE.ps]
                   for rows in args.rows or [CORE.rows] for regime in args.regimes or [CORE.regime]
                   for interval in args.intervals or [CORE.interval]]]
    else:
        groups = star()
    found = []
    for group in groups:
        systems = args.systems or [name for name in TRAINED if CORE in group or not SYSTEMS[name].is_ablation]
        found += plan(systems, group, args.rounds)
    return found


def star() -> List[List[Cell]]:
    """The core, and groups that differ from it in one thing each, in their order."""
    return [[CORE], *([dataclasses.replace(CORE, **{field: value}) for value in values if value != getattr(CORE, field)]
                      for field, values in (("interval", INTERVALS), ("rows", ROWS), ("regime", TRAINING_REGIMES),
                                            ("pending", ("wait", "skip")), ("ps", (2, 1))))]


def _planned_restores(args: argparse.Namespace) -> List[Cell]:
    found = []
    for rows in args.rows or [CORE.rows]:
        for regime in args.regimes or ["published", "local"]:
            for restore_ps in args.ps or [2, 1]:
                conditions = [Cell("any", kind="restore", regime=regime, rows=rows, checkpoints=args.checkpoints,
                                   restore_ps=restore_ps)]
                names = [name for name in args.systems or RESTORED
                         if restore_ps == conditions[0].ps or not SYSTEMS[name].is_full]
                found += plan(names, conditions, args.rounds)
    return found


def run(results: Results, cells: List[Cell], *, minutes: Optional[float] = None, seconds: float = SECONDS,
        directory: Optional[str] = None, made: str = "", measure: Optional[Callable[[Cell], Any]] = None) -> int:
    """Measures what is missing, and once more what fails or is rejected. Returns how many cells are still missing.

    Args:
        minutes: no cell is begun after so many.
        seconds: of training in each cell.
        directory: where the store is kept while a cell is measured; None: that of temporary files.
        made: where the checkpoints are kept that restores are measured with.
        measure: measures a cell; that of `in_a_process` if not given.
    """
    measure = measure or (lambda cell: in_a_process(cell, seconds, directory, made))
    missing = [cell for cell in cells if not results.has(cell)]
    print(f"{len(cells)} cells, {len(missing)} of them to be measured", flush=True)
    began = time.monotonic()
    for number, cell in enumerate(missing):
        for attempt in range(2):
            if minutes is not None and time.monotonic() - began > 60 * minutes:
                print(f"{minutes:g} minutes are over", flush=True)
                return sum(not results.has(cell) for cell in cells)
            start = time.monotonic()
            try:
                result = measure(cell)
            except RuntimeError as error:
                results.put_failure(cell, str(error))
                said = f"failed: {str(error)[-600:]}"
            else:
                why = results.put(cell, result)
                speed = result.get("steps_per_second")
                said = f"{result['seconds']:.1f} s" if speed is None else f"{speed:.1f} steps/s"
                said += "" if why is None else f", rejected: {why}"
            print(f"[{number + 1}/{len(missing)}] {cell.key}: {said}; {time.monotonic() - start:.0f} s", flush=True)
            if results.has(cell):
                break
    return sum(not results.has(cell) for cell in cells)


def in_a_process(cell: Cell, seconds: float, directory: Optional[str], made: str) -> Any:
    """Measures a cell. Raises RuntimeError with the end of what the process said if it fails."""
    with tempfile.TemporaryDirectory(prefix="side-by-side-", dir=directory) as folder:
        out, log = os.path.join(folder, "result.json"), os.path.join(folder, "log")
        command = [sys.executable, "-m", "benchmarks.side_by_side.run_cell", "--cell", json.dumps(vars(cell)),
                   "--out", out, "--seconds", str(seconds), "--made", made, "--directory", os.path.join(folder, "cell")]
        os.mkdir(os.path.join(folder, "cell"))
        with open(log, "w+", encoding="utf-8", errors="replace") as output:
            code = _in_a_session(command, output, lambda leader: making.partial(cell, made, leader))
            output.seek(0)
            said = output.read()[-6000:]
        if code != 0 or not os.path.exists(out):
            raise RuntimeError(f"{cell.key} ended with {code}:\n{said}")
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def _in_a_session(command: List[str], output: Any, partial: Callable[[int], Path], timeout: float = _TIMEOUT) -> Any:
    """Runs a command in a session of its own, nothing of which is left however this ends.

    Returns its exit code, or why there is none.

    Args:
        partial: what it may leave half made, of the number of its session.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"none after {timeout:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(partial(process.pid), ignore_errors=True)
