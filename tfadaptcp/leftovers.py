"""What a manager removes from its directory: checkpoints that are too old, and what failed attempts have left."""

import concurrent.futures
import contextlib
import itertools
import logging
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence

from tfadaptcp import background
from tfadaptcp.checkpoint import commit, retention
from tfadaptcp.checkpoint.claims import Claim
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.scanned_base import ScannedBase

_log = logging.getLogger("tfadaptcp")

# How long a pass after a checkpoint deletes, as no other is made meanwhile: so long, or this part of the time since the pass
# before, if that is longer: of 5 s alone, what is left to the next pass could become more and more.
_PASS_SECONDS = 5.0
_PASS_PART = 0.25


class Leftovers:
    """Passes of retention over one directory. One thread at a time."""

    def __init__(self, store: Store, directory: str, max_to_keep: int):
        self._store = store
        self._directory = directory
        self._max_to_keep = max_to_keep
        self._unknown: Dict[str, Sequence[str]] = {}
        self._parsed: commit.Parsed = {}
        self._last_pass: Optional[float] = None  # monotonic

    def keep(self, name: str, *others: str) -> None:
        """From now on the data of an attempt stays, and of others that it needs: its manifest may exist, or come yet."""
        self._unknown[name] = (name, *others)

    @property
    def kept(self) -> List[str]:
        """The attempts whose data stays, whatever refers to it."""
        return [*itertools.chain(*self._unknown.values())]

    def collect(self, claim: Claim, scan: Optional[ScannedBase], *in_progress: str) -> None:
        """Makes a pass after a checkpoint, which may leave some of the data to the next.

        Args:
            claim: the manager's.
            scan: one that may be running.
            in_progress: names of attempts.

        Raises:
            FencedError, StoreUnavailableError: as `retention.collect`.
        """
        now = time.monotonic()
        since = 0.0 if self._last_pass is None else now - self._last_pass
        self._last_pass = now
        self._collect(claim, scan, in_progress, max(_PASS_SECONDS, _PASS_PART * since))

    def _collect(self, claim: Claim, scan: Optional[ScannedBase], in_progress: Sequence[str],
                 seconds: Optional[float]) -> None:
        names = [*self.kept, *in_progress]
        if scan is not None and not scan.has_failed:
            names.append(scan.name)
        retention.collect(self._store, self._directory, claim, self._max_to_keep, names, self._parsed, seconds)
        for _, manifest in self._parsed.values():
            self._unknown.pop(manifest.name, None)  # it exists: what it needs is what it names

    @contextlib.contextmanager
    def tidied(self, tidy: Optional[Callable[[], None]]) -> Iterator[None]:
        """Has `tidy` called for what is done inside, and ended when that has: before it on a local disk, whose room it may
        need; beside it in a remote store, where it may take minutes, while rows wait to be written."""
        beside = []
        if tidy is not None and "://" in self._directory:
            beside.append(background.start(tidy, "tfadaptcp-tidy"))
        elif tidy is not None:
            tidy()
        try:
            yield
        finally:
            concurrent.futures.wait(beside)

    def tidy(self, claim: Claim, scan: Optional[ScannedBase], *in_progress: str) -> bool:
        """Makes a pass though no checkpoint was committed, and returns whether that was possible: of all that can go, as
        what failed for want of room has taken the rest of it, and no other would ever be committed."""
        try:
            self._collect(claim, scan, in_progress, None)
            return True
        except Exception as error:
            _log.warning("Removing what failed attempts have left in %s failed: %s", self._directory, error)
            return False
