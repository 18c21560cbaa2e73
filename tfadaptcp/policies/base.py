"""What a policy is: two questions, answered from statistics, never from rows."""

import dataclasses
import math
from typing import Dict, Optional, Protocol, Tuple, runtime_checkable

ALL_HOT = -1.0
NONE_HOT = math.inf


@dataclasses.dataclass(frozen=True)
class PHistogram:
    """How the update probabilities of a group's rows are distributed. All tuples have one entry per bucket.

    Attributes:
        p: mean update indicator of the bucket's rows, rising from bucket to bucket; anything where there are none.
        rows: live rows in the bucket; a fraction where it was scaled up from a sample.
        unsaved: those of them that the next checkpoint has to save.
        unsaved_p: mean update indicator of those; anything where there are none.
        bytes_per_row: what a row of the group takes in a checkpoint, slots included.
    """
    p: Tuple[float, ...]
    rows: Tuple[float, ...]
    unsaved: Tuple[float, ...] = ()
    unsaved_p: Tuple[float, ...] = ()
    bytes_per_row: float = 1.0


@dataclasses.dataclass(frozen=True)
class PolicyStats:
    """What a policy may look at. Sizes are in bytes, summed over all groups, parameter servers and tables.

    "Since the base" means committed and cut after the base that the next head will have; the base is not among them.
    The first checkpoint of a lineage is complete, and counts as its base.

    Attributes:
        has_base: False before the first checkpoint of a lineage: everything is unsaved then.
        checkpoints_since_base: how many. The one about to be made is the next.
        last_period: checkpoints that the previous base served, None while there was none.
        rows_total: live rows.
        rows_unsaved: rows that the next checkpoint has to save.
        bytes_per_row: mean over the unsaved rows, slots included.
        rows_in_base, bytes_in_base: of the base.
        bytes_written_since_base: increments and differentials since the base.
        bytes_last_checkpoint: written by the newest of them, 0 if there is none.
        bytes_differential: the part of it that is its differential.
        bytes_restore: what a restore of the newest head reads, base included.
        bytes_restore_since_base: the sum of `bytes_restore` over the checkpoints since the base.
        p_histogram: {group: counts}: unsaved rows by update indicator p, in equal bins from 0 to 1.
        restores: restores of this lineage so far.
        seconds_per_interval: mean time between checkpoints, None if unknown.
    """
    has_base: bool = False
    checkpoints_since_base: int = 0
    last_period: Optional[int] = None
    rows_total: int = 0
    rows_unsaved: int = 0
    bytes_per_row: float = 0.0
    rows_in_base: int = 0
    bytes_in_base: int = 0
    bytes_written_since_base: int = 0
    bytes_last_checkpoint: int = 0
    bytes_differential: int = 0
    bytes_restore: int = 0
    bytes_restore_since_base: int = 0
    p_histogram: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)
    restores: int = 0
    seconds_per_interval: Optional[float] = None


@runtime_checkable
class Policy(Protocol):
    """Decides what is hot and when a new base is due.

    Policies hold no state of a run, so that a restored run decides as the interrupted one would have. They are asked
    by the coordinator alone.

    Attributes:
        name: as `policies.get` takes it, and as the manifest records it.
        snapshot_bases: optional; True: a new base is a cut of its own, as the first one is. Otherwise it is read beside
            training and checkpoints, and serves the first checkpoint cut after that has ended.
    """

    name: str

    def hot_threshold(self, stats: PolicyStats) -> float:
        """Returns t for the next checkpoint: an unsaved row is hot if its p > t; ALL_HOT (-1), NONE_HOT (inf)."""

    def base_due(self, stats: PolicyStats) -> bool:
        """Whether a new base is to be made now. Asked after each commit, and before the first checkpoint."""
