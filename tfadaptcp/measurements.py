"""What the parameter servers measured while they wrote a checkpoint, summed up."""

from typing import Any, Dict, List, Mapping, Optional

from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef, sum_rows
from tfadaptcp.scanned_base import ScannedBase

# Of a mean, the weight of the newest value.
_NEWEST = 0.25
# A longer interval counts as so many of the mean: one with a validation in it must not make restores matter many times more.
_LONGEST = 4.0
# Less than this says more of opening files than of speed; fewer more of their blocks than of rows.
_ENOUGH_BYTES = 1 << 20
_MANY_ROWS = 1024


def captured(replies: Dict[int, Dict[str, Any]]) -> Dict[str, float]:
    """Sums over the parameter servers; of seconds the longest, but for those that updates waited."""
    found: Dict[str, float] = {}
    for reply in replies.values():
        stats = {**reply["stats"], "upload_seconds": reply["stats"]["save_seconds"] - reply["stats"]["drain_seconds"]}
        for key, value in stats.items():
            of_slowest = key.endswith("_seconds") and key != "update_wait_seconds"
            found[key] = max(found.get(key, 0), value) if of_slowest else found.get(key, 0) + value
    return found


def bytes_by_kind(written: List[ObjectRef]) -> Dict[str, int]:
    """Bytes of files by their kind."""
    found: Dict[str, int] = {}
    for ref in written:
        found[ref.kind] = found.get(ref.kind, 0) + ref.bytes
    return found


def table_rows(replies: Dict[int, Dict[str, Any]]) -> Dict[str, int]:
    """Live rows by table, of the replies to a cut."""
    found: Dict[str, int] = {}
    for reply in replies.values():
        for table, rows in reply["tables"].items():
            found[table] = found.get(table, 0) + rows
    return found


def of_checkpoint(draft: Manifest, written: List[ObjectRef], measured: Dict[str, float],
                  sizes: Dict[str, int]) -> Dict[str, Any]:
    """What `CheckpointManager.stats` says of a checkpoint, `captured` and `bytes_by_kind` of which are given."""
    rows = sum_rows(written)
    cold = {kind: sum(groups.values()) for kind, groups in rows.items()}
    hot = cold.pop("differential", 0)
    return {**measured, "step": draft.step, "threshold": draft.policy["threshold"], "rows": rows,
            "hot_rows": hot, "cold_rows": sum(cold.values()), "bytes": sizes}


def smoothed(before: Mapping[str, Any], interval: Optional[float], read_speed: Optional[float], written: List[ObjectRef],
             replies: Dict[int, Dict[str, Any]]) -> Dict[str, Any]:
    """Means over the checkpoints of a lineage, the newest weighing most, for `Manifest.stats`: what a policy may know of
    the machines, also after a restart.

    Args:
        before: the same of the head before, empty if there is none.
        interval: seconds since the cut before, by the clock of this process; None: unknown.
        read_speed: bytes per second of the last restore, None if there was none in this process.
        written, replies: of this checkpoint.
    """
    mean = before.get("seconds_per_interval")
    if mean and interval is not None:
        interval = min(interval, _LONGEST * mean)
    found = {"seconds_per_interval": _mean(mean, interval, _NEWEST),
             "write_bytes_per_second": _mean(before.get("write_bytes_per_second"), speed(
                 sum(ref.bytes for ref in written), max(reply["stats"]["save_seconds"] for reply in replies.values())),
                 _NEWEST),
             "read_bytes_per_second": before.get("read_bytes_per_second") if read_speed is None else read_speed}
    rows: Dict[str, int] = {}
    for groups in sum_rows(written).values():
        for group, count in groups.items():
            rows[group] = rows.get(group, 0) + count
    sizes = dict(before.get("bytes_per_row", {}))
    for group, count in rows.items():
        size = sum(reply["row_bytes"].get(group, 0) for reply in replies.values())
        if count:  # of few rows, the frame of their block is no small part
            sizes[group] = _mean(sizes.get(group), size / count, _NEWEST * min(1.0, count / _MANY_ROWS))
    return {**{name: value for name, value in found.items() if value is not None}, "bytes_per_row": sizes}


def speed(moved: int, seconds: float) -> Optional[float]:
    """Bytes per second; None if too few were moved to tell."""
    return moved / seconds if moved >= _ENOUGH_BYTES and seconds > 0 else None


def _mean(before: Optional[float], value: Optional[float], weight: float) -> Optional[float]:
    if before is None or value is None:
        return before if value is None else value
    return before + weight * (value - before)


def of_scan(scan: Optional[ScannedBase]) -> Dict[str, float]:
    """What `CheckpointManager.stats` says of a base that was read beside training, when it is taken into use."""
    return {} if scan is None else {"scan_seconds": scan.seconds, "scan_bytes": sum(ref.bytes for ref in scan.objects)}
