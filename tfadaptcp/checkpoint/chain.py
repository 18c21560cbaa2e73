"""How heads follow one another: the objects of the next head, and what a policy is told about its chain."""

from typing import Any, Dict, Iterable, List, Optional, Tuple

from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef
from tfadaptcp.policies.base import PolicyStats

# Where a manifest keeps what the objects of a head no longer show: the differentials of older heads are not among them.
_KEY = "chain"


def next_objects(parent: Optional[Manifest], is_base: bool, written: Iterable[ObjectRef]) -> Tuple[ObjectRef, ...]:
    """Returns the objects of a head: a base with nothing before it, or the parent's base and increments and its own.

    The parent's differential and dense objects belong to the parent alone.
    """
    kept: List[ObjectRef] = []
    if not is_base and parent is not None:
        kept = [ref for ref in parent.objects if ref.kind in ("base", "increment")]
    order = {"base": 0, "increment": 1, "differential": 2, "dense": 3}
    return tuple(sorted([*kept, *written], key=lambda ref: (order[ref.kind], ref.sequence, ref.ps, ref.path)))


def policy_stats(head: Optional[Manifest]) -> PolicyStats:
    """Returns what is known after `head` was committed; the defaults, without a base, if there is no head."""
    if head is None:
        return PolicyStats()
    return PolicyStats(has_base=True, bytes_restore=head.bytes, rows_in_base=_rows(head, "base"),
                       bytes_in_base=_bytes(head, "base"), bytes_differential=_bytes(head, "differential"),
                       rows_total=sum(head.table_rows.get(group.name, 0) for group in head.groups),
                       **head.stats.get(_KEY, {}))


def chain_stats(parent: Optional[Manifest], is_base: bool, objects: Iterable[ObjectRef], sequence: int
                ) -> Dict[str, Any]:
    """Returns the entry of `Manifest.stats` that `policy_stats` needs of the head made of `objects`."""
    objects = list(objects)
    before = policy_stats(parent)
    rows = ("base", "increment", "differential")
    written = sum(ref.bytes for ref in objects if ref.sequence == sequence and ref.kind in rows)
    restore = sum(ref.bytes for ref in objects)
    if is_base:
        entry = {"checkpoints_since_base": 0, "bytes_written_since_base": 0, "bytes_restore_since_base": 0,
                 "last_period": before.checkpoints_since_base if before.has_base else None}
    else:
        entry = {"checkpoints_since_base": before.checkpoints_since_base + 1,
                 "bytes_written_since_base": before.bytes_written_since_base + written,
                 "bytes_restore_since_base": before.bytes_restore_since_base + restore,
                 "last_period": before.last_period}
    return {_KEY: {**entry, "bytes_last_checkpoint": written}}


def _rows(head: Manifest, kind: str) -> int:
    return sum(head.rows.get(kind, {}).values())


def _bytes(head: Manifest, kind: str) -> int:
    return sum(ref.bytes for ref in head.objects if ref.kind == kind)
