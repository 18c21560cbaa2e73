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
    scan: Optional[ScannedBase] = None  # the base that it is the first to go by
    tidies: bool = False  # a scan has failed, perhaps for want of room, which what it left takes
    thread: Optional[threading.Thread] = None
    error: Optional[BaseException] = None
    decision: Optional[Decision] = None
    predicted: Dict[str, float] = dataclasses.field(default_factory=dict)
    more_seconds: float = 0.0  # than `timeout_seconds` that writing it may take
    interval: Optional[float] = None  # seconds since the cut before
    lineage: Optional[Manifest] = None  # the parent, or the head that the model goes on from though trackers don't
