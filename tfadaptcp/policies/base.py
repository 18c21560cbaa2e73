"""What a policy is: two questions, answered from statistics, never from rows."""

import dataclasses
import functools
import math
from typing import Any, Dict, Optional, Protocol, Tuple, runtime_checkable

ALL_HOT = -1.0
NONE_HOT = math.inf
ESTIMATORS = ("updates", "accesses")


@dataclasses.dataclass(frozen=True)
class Estimation:
    """How trackers estimate the update probability of a row.

    Attributes:
        decay: what is left of an estimate after an interval.
        estimator: "updates": p is the mean of the indicator "updated in the interval". "accesses": f is the mean of how
            often the row was looked up in an interval, and p = 1 - exp(-f).
    """
    decay: float = 0.9
    estimator: str = "updates"

    @staticmethod
    def of(source: Any) -> "Estimation":
        """That of a policy, or of a manifest's record of one; the defaults where it says nothing.

        A manifest may have been written by a later version: an estimator that is unknown counts as none given.

        Raises:
            ValueError: a policy has another estimator, or no decay in [0, 1).
        """
        ask = source.get if isinstance(source, dict) else functools.partial(getattr, source)
        estimator, decay = ask("estimator", ESTIMATORS[0]), ask("decay", 0.9)
        if not isinstance(source, dict):
            if estimator not in ESTIMATORS:
                raise ValueError(f"estimator of policy: Received: {estimator!r}. Expected: one of {ESTIMATORS}")
            if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 <= decay < 1:
                raise ValueError(f"decay of policy: Received: {decay!r}. Expected: a number of at least 0, below 1")
        return Estimation(decay, estimator if estimator in ESTIMATORS else ESTIMATORS[0])


@dataclasses.dataclass(frozen=True)
class PHistogram:
    """How the update probabilities of a group's rows are distributed. All tuples have one entry per bucket.

    Attributes:
        p: mean update indicator of the bucket's rows, rising from bucket to bucket; anything where there are none.
        rows: live rows in the bucket; a fraction where it was scaled up from a sample.
        unsaved: those of them that the next checkpoint has to save.
        bytes_per_row: what a row of the group takes in a checkpoint, slots included.
    """
    p: Tuple[float, ...]
    rows: Tuple[float, ...]
    unsaved: Tuple[float, ...] = ()
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
        bytes_per_row: of a row in files, slots included, as measured; the mean over all rows.
        group_bytes_per_row: {group: the same}; groups that were never written are absent.
        rows_in_base, bytes_in_base: of the base.
        bytes_of_new_base: of a base that were made now.
        bytes_written_since_base: increments and differentials since the base.
        bytes_last_checkpoint: written by the newest of them, 0 if there is none.
        bytes_differential: the part of it that is its differential.
        bytes_dense: of the dense variables of the newest head.
        bytes_restore: what a restore of the newest head reads, base and dense variables included.
        bytes_restore_since_base: the sum of `bytes_restore` over the checkpoints since the base.
        objects_in_base: files of the base.
        objects_in_chain: files of the base and of the increments since: each head names them until the next base.
        p_histogram: {group: PHistogram} at the cut that is about to be made. Only for policies with `wants_histogram`,
            empty for others, as for those `rows_unsaved` is 0.
        restores: restores of this lineage so far.
        seconds_per_interval: mean time between cuts, None if unknown.
        write_bytes_per_second, read_bytes_per_second: of checkpoints, and of the last restore, over all parameter servers;
            None if unknown, as while all were small.
    """
    has_base: bool = False
    checkpoints_since_base: int = 0
    last_period: Optional[int] = None
    rows_total: int = 0
    rows_unsaved: int = 0
    bytes_per_row: float = 0.0
    group_bytes_per_row: Dict[str, float] = dataclasses.field(default_factory=dict)
    rows_in_base: int = 0
    bytes_in_base: int = 0
    bytes_of_new_base: float = 0.0
    bytes_written_since_base: int = 0
    bytes_last_checkpoint: int = 0
    bytes_differential: int = 0
    bytes_dense: int = 0
    bytes_restore: int = 0
    bytes_restore_since_base: int = 0
    objects_in_base: int = 0
    objects_in_chain: int = 0
    p_histogram: Dict[str, PHistogram] = dataclasses.field(default_factory=dict)
    restores: int = 0
    seconds_per_interval: Optional[float] = None
    write_bytes_per_second: Optional[float] = None
    read_bytes_per_second: Optional[float] = None


@runtime_checkable
class Policy(Protocol):
    """Decides what is hot and when a new base is due.

    Policies hold no state of a run, so that a restored run decides as the interrupted one would have. They are asked
    by the coordinator alone.

    Attributes:
        name: as `policies.get` takes it, and as the manifest records it.
        snapshot_bases: optional; True: a new base is a cut of its own, as the first one is. Otherwise it is read beside
            training and checkpoints, and serves the first checkpoint cut after that has ended.
        decay, estimator: optional; what the trackers estimate, see `Estimation`.
        wants_histogram: optional; True: `PolicyStats.p_histogram` is filled, which costs milliseconds before each cut.
        predicts: optional; True: what a checkpoint will write is estimated at its cut, and recorded beside what it wrote.
        describe: optional; a method: describe(stats) returns how `hot_threshold(stats)` came about, plain JSON values for
            the manifest. A "hazard" among them weighs the bytes of a restore against those written.
        engine_options: optional; the `EngineOptions` it is meant to run with, used where the user gives none.
        on_pending: optional; "skip" or "wait": what `AdaptCPCallback` does while a checkpoint is being written, where the
            user does not say; "skip" if it is not there.
    """

    name: str

    def hot_threshold(self, stats: PolicyStats) -> float:
        """Returns t for the next checkpoint: an unsaved row is hot if its p > t; ALL_HOT (-1), NONE_HOT (inf)."""

    def base_due(self, stats: PolicyStats) -> bool:
        """Whether a new base is to be made now. Asked at each cut but the first, while none is being read."""
