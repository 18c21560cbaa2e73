"""A base without a cut: all rows are read and written while training and checkpoints go on.

It starts at a cut b0. A head that was cut after every host had ended its scan may go by it: what such a head needs is
this base, the increments after b0, and its own differential. Whatever of a row the scan met, it was what the row was at
b0 or later, and what was later is in a level above. Three things would be wrong: a head cut before the scan ended (a row
may have been read after that cut), dropping increments after b0 (the scan may have passed a row before they were
written), and calling rows clean that were written after b0 (only differentials may hold them).
"""

import logging
import threading
import time
from typing import Any, Dict, Optional, Tuple

from tfadaptcp.checkpoint.layout import HeadName, data_path
from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef
from tfadaptcp.checkpoint.objects import refs_of
from tfadaptcp.checkpoint.store import join
from tfadaptcp.engine import Engine

_log = logging.getLogger("tfadaptcp")

# How long a host may take to end a scan that nobody wants any more.
_ANSWER_SECONDS = 10.0


class ScannedBase:
    """One scan, from its start to the head that goes by it.

    The thread that trains and the one that writes a checkpoint call the methods, never both at once, but for `give_up`.

    Args:
        engine: of the model; the cut `start` was just taken by it.
        directory: the checkpoint directory.
        name: the name of its data directory: a sequence of its own, above `start`.
        start: the cut at which it starts.
        options: those of a save's request: of the engine, and quantization.
        quantization: as the manifest of `start` has it.
    """

    def __init__(self, engine: Engine, directory: str, name: HeadName, start: int, options: Dict[str, Any],
                 quantization: Any = None):
        self.name = str(name)
        self.start = start
        self.quantization = quantization
        # Of the checkpoints committed since the start, as a policy wants to know.
        self.since = {"checkpoints_since_base": 0, "bytes_written_since_base": 0, "bytes_restore_since_base": 0}
        self._engine = engine
        self._chain = engine.lineage.chain
        self._groups = engine.group_specs()
        self._directory = directory
        self._request = {**options, "root": directory, "directory": join(directory, data_path(name)), "kind": "base",
                         "generation": name.generation, "run": name.run, "sequence": start, "start": start}
        self._objects: Optional[Tuple[ObjectRef, ...]] = None
        self._failed = False
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name=f"tfadaptcp-base-{start}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        start = time.monotonic()
        try:
            objects = tuple(refs_of(self._engine.scan_base(self._request), self._directory, self.start))
        except Exception as error:
            self._failed = True
            _log.warning("The base that starts at checkpoint %d was given up: %s", self.start, error)
            return
        self.seconds = time.monotonic() - start
        self._objects = objects  # last: from here on a cut may go by it

    @property
    def objects(self) -> Tuple[ObjectRef, ...]:
        """Its objects; only once it `is_ready`."""
        return self._objects

    @property
    def is_ready(self) -> bool:
        """Whether all rows are durable: a head cut from now on may go by it."""
        return self._objects is not None

    @property
    def is_running(self) -> bool:
        """Whether it is being read or written."""
        return self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without a base; its objects are leftovers."""
        return self._failed

    def serves(self, engine: Engine, head: Optional[Manifest]) -> bool:
        """Whether the next head of the engine, after `head`, may go by it, now or once it is ready."""
        return (not self._failed and head is not None and head.base_sequence < self.start and engine is self._engine
                and engine.lineage.chain == self._chain and engine.group_specs() == self._groups)

    def count(self, written: int, restore: int) -> None:
        """Takes note of a checkpoint that was committed after the start, which wrote `written` bytes of rows, and of
        which a restore reads `restore` bytes."""
        self.since["checkpoints_since_base"] += 1
        self.since["bytes_written_since_base"] += written
        self.since["bytes_restore_since_base"] += restore

    def give_up(self, timeout_seconds: float) -> None:
        """Ends a scan that still runs, on every host that answers in time."""
        if self._thread.is_alive():
            self._engine.void_scans(min(timeout_seconds, _ANSWER_SECONDS))
            self._thread.join(min(timeout_seconds, _ANSWER_SECONDS))


class Tries:
    """When a scan may begin after some that failed: at once after one, then after twice as many checkpoints each time.

    One that there is no room for takes what room there is; checkpoints beside it fail then, too.
    """

    def __init__(self):
        self._failures = 0
        self._wait = 0  # checkpoints to be committed first

    @property
    def may_begin(self) -> bool:
        """Whether a scan may begin at the next cut."""
        return self._wait == 0

    def dropped(self, failed: bool) -> None:
        """Takes note of a scan that serves no checkpoint any more, perhaps because it failed."""
        if not failed:
            return
        self._wait = 2 ** min(self._failures, 6) - 1
        self._failures += 1

    def committed(self, by_scan: bool) -> None:
        """Takes note of a checkpoint that was committed; `by_scan`: the first to go by a scanned base."""
        self._wait = max(0, self._wait - 1)
        if by_scan:
            self._failures = 0
