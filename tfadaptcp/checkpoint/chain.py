"""How heads follow one another: the objects of the next head, and what a policy is told about its chain."""

import dataclasses
from typing import Any, Dict, Iterable, List, Optional, Tuple

from tfadaptcp.checkpoint.manifest import GroupSpec, Manifest, ObjectRef
from tfadaptcp.policies.base import PolicyStats

# Where a manifest keeps what the objects of a head no longer show: the differentials of older heads are not among them.
_KEY = "chain"
_MIXED = "mixed_shards"
_RESTORES = "restores"
# How the values of its base are encoded, as `policy` of a manifest says it of what that has written.
_QUANTIZATION = "base_quantization"
# And what was measured on the way.
MEASURED = "measured"
_MEASURED = ("seconds_per_interval", "write_bytes_per_second", "read_bytes_per_second")
_KEPT = ("checkpoints_since_base", "last_period", "bytes_written_since_base", "bytes_last_checkpoint",
         "bytes_restore_since_base")


def next_objects(parent: Optional[Manifest], is_base: bool, written: Iterable[ObjectRef],
                 scanned: Optional[Tuple[int, Tuple[ObjectRef, ...]]] = None) -> Tuple[ObjectRef, ...]:
    """Returns the objects of a head: a base with nothing before it, or the parent's base and increments and its own.

    The parent's differential and dense objects belong to the parent alone. `scanned` is the start of a scanned base that
    the head is the first to go by, and its objects: it replaces the parent's base and the increments up to its start.
    """
    kept: List[ObjectRef] = []
    if not is_base and parent is not None:
        kept = [ref for ref in parent.objects if ref.kind in ("base", "increment")]
    if scanned is not None:
        start, base = scanned
        kept = [*base, *(ref for ref in kept if ref.kind == "increment" and ref.sequence > start)]
    order = {"base": 0, "increment": 1, "differential": 2, "dense": 3}
    return tuple(sorted([*kept, *written], key=lambda ref: (order[ref.kind], ref.sequence, ref.ps, ref.path)))


def kept_bytes(parent: Optional[Manifest], is_base: bool,
               scanned: Optional[Tuple[int, Tuple[ObjectRef, ...]]] = None) -> int:
    """Returns the bytes of what `next_objects` keeps, and of dense objects as large as the parent's."""
    if parent is None:
        return 0
    if is_base:
        return parent.bytes_of("dense")
    if scanned is None:
        return parent.bytes_of("base", "increment", "dense")
    start, base = scanned
    return parent.bytes_of("dense") + sum(ref.bytes for ref in base) + sum(
        size for (kind, sequence), (_, size) in parent.sums.items() if kind == "increment" and sequence > start)


def needs_base(parent: Manifest, groups: Iterable[GroupSpec]) -> bool:
    """Whether rows of these groups can't follow those of a head: a group's tables or types differ."""
    before = {group.name: (group.key_dtype, group.tables) for group in parent.groups}
    return before != {group.name: (group.key_dtype, group.tables) for group in groups}


def is_mixed(head: Manifest) -> bool:
    """Whether some objects of a head were written by another number of shards, or placement, than the head names."""
    return bool(head.stats.get(_KEY, {}).get(_MIXED, False))


def policy_stats(head: Optional[Manifest]) -> PolicyStats:
    """Returns what is known after `head` was committed; the defaults, without a base, if there is no head."""
    if head is None:
        return PolicyStats()
    return PolicyStats(has_base=True, bytes_restore=head.bytes, rows_in_base=_rows(head, "base"),
                       bytes_in_base=head.bytes_of("base"), bytes_differential=head.bytes_of("differential"),
                       bytes_dense=head.bytes_of("dense"), bytes_of_new_base=_bytes_of_new_base(head),
                       objects_in_base=head.objects_of("base"), objects_in_chain=head.objects_of("base", "increment"),
                       restores=restores(head),
                       rows_total=sum(head.table_rows.get(group.name, 0) for group in head.groups),
                       bytes_per_row=_mean_size(head), group_bytes_per_row=measured(head).get("bytes_per_row", {}),
                       **{name: value for name, value in measured(head).items() if name in _MEASURED},
                       **{name: value for name, value in head.stats.get(_KEY, {}).items() if name in _KEPT})


def measured(head: Optional[Manifest]) -> Dict[str, Any]:
    """What the lineage of a head has measured, as `measurements.smoothed` returns it; empty if there is no head."""
    return {} if head is None else head.stats.get(MEASURED, {})


def restores(head: Optional[Manifest]) -> int:
    """How many restores a lineage has gone through up to a head."""
    return 0 if head is None else head.stats.get(_KEY, {}).get(_RESTORES, 0)


def after_restore(head: Manifest) -> Manifest:
    """Returns a head that was restored with that restore counted."""
    entry = {**head.stats.get(_KEY, {}), _RESTORES: restores(head) + 1}
    return dataclasses.replace(head, stats={**head.stats, _KEY: entry})


def chain_stats(parent: Optional[Manifest], is_base: bool, objects: Iterable[ObjectRef], sequence: int,
                groups: Tuple[GroupSpec, ...], since_scan: Optional[Dict[str, int]] = None,
                restores: int = 0, base_quantization: Any = None) -> Dict[str, Any]:
    """Returns the entries of `Manifest.stats` that `policy_stats` and `is_mixed` need of the head made of `objects`.

    `since_scan` are the sums over the checkpoints since the start of a scanned base that the head is the first to go by;
    `restores` those of its lineage, which may be older than its chain; `base_quantization` how the values of the base were
    encoded, if it is a new one.
    """
    objects = list(objects)
    before = policy_stats(parent)
    rows = ("base", "increment", "differential")
    written = sum(ref.bytes for ref in objects if ref.sequence == sequence and ref.kind in rows)
    restore = sum(ref.bytes for ref in objects)
    if is_base:
        entry = {"checkpoints_since_base": 0, "bytes_written_since_base": 0, "bytes_restore_since_base": 0,
                 "last_period": before.checkpoints_since_base if before.has_base else None}
    else:
        sums = dataclasses.asdict(before) if since_scan is None else since_scan
        entry = {"checkpoints_since_base": sums["checkpoints_since_base"] + 1,
                 "bytes_written_since_base": sums["bytes_written_since_base"] + written,
                 "bytes_restore_since_base": sums["bytes_restore_since_base"] + restore,
                 "last_period": before.last_period if since_scan is None
                 else before.checkpoints_since_base - since_scan["checkpoints_since_base"]}
    # Nobody restores between the start of a scanned base and its use.
    is_renewed = is_base or since_scan is not None
    if not is_renewed:
        base_quantization = None if parent is None else parent.stats.get(_QUANTIZATION)
    mixed = not is_renewed and parent is not None and (is_mixed(parent) or parent.groups != groups)
    return {_KEY: {**entry, "bytes_last_checkpoint": written, _MIXED: mixed, _RESTORES: restores},
            _QUANTIZATION: base_quantization}


def last_bytes(head: Manifest) -> Tuple[int, int]:
    """Returns the bytes of rows that a head wrote, and the bytes that a restore of it reads."""
    return head.stats.get(_KEY, {}).get("bytes_last_checkpoint", 0), head.bytes


def _mean_size(head: Manifest) -> float:
    """Bytes of a row of any group in files; 0 if there are no rows."""
    sizes = measured(head).get("bytes_per_row", {})
    rows = {group.name: sum(head.rows.get(kind, {}).get(group.name, 0) for kind in head.rows) for group in head.groups}
    total = sum(count for name, count in rows.items() if name in sizes)
    return sum(sizes[name] * count for name, count in rows.items() if name in sizes) / total if total else 0.0


def _bytes_of_new_base(head: Manifest) -> float:
    """As the last one, for the rows that there are now: in proportion, groups weighed by the size that their rows have been
    measured to have. Of a tiny base the frames of files are much, and stay as they are when rows come. If rows are quantised
    otherwise by now, as they are measured."""
    sizes, base = measured(head).get("bytes_per_row", {}), head.bytes_of("base")
    if not sizes or not head.table_rows:
        return base

    def weighed(rows: Dict[str, int]) -> float:
        return sum(size * rows.get(group, 0) for group, size in sizes.items())

    now, then = weighed(head.table_rows), weighed(head.rows.get("base", {}))
    if _QUANTIZATION in head.stats and head.stats[_QUANTIZATION] != head.policy.get("quantization"):
        return now
    if now >= then:
        return min(base * now / then, base + now - then) if then else base + now
    return base * now / then


def _rows(head: Manifest, kind: str) -> int:
    return sum(head.rows.get(kind, {}).values())
