"""A checkpoint between its cut and its end."""

import dataclasses
import threading
from typing import Dict, Optional

from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.deciding import Decision
from tfadaptcp.scanned_base import ScannedBase


@dataclasses.dataclass
class Pending:
    """What the thread that writes it knows, and what came of it."""
    draft: Manifest
    parent: Optional[Manifest]  # what it is a part of
    is_base: bool
    scan: Optional[ScannedBase]  # the base that it is the first to go by
    tidies: bool  # a scan or a checkpoint has failed, perhaps for want of room, which what it left takes
    decision: Decision
    predicted: Dict[str, float]
    more_seconds: float  # than `timeout_seconds` that writing it may take
    interval: Optional[float]  # seconds since the cut before
    lineage: Optional[Manifest]  # the parent, or the head that the model goes on from though trackers don't
    cut_at: float  # monotonic
    thread: Optional[threading.Thread] = None
    # Set when it has been committed, or has failed: before what is tidied up after it.
    is_stored: threading.Event = dataclasses.field(default_factory=threading.Event)
    error: Optional[BaseException] = None
