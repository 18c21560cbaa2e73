"""What the parameter servers measured while they wrote a checkpoint, summed up."""

from typing import Any, Dict, List, Optional

from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef, sum_rows
from tfadaptcp.scanned_base import ScannedBase


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


def of_checkpoint(draft: Manifest, written: List[ObjectRef], measured: Dict[str, float],
                  sizes: Dict[str, int]) -> Dict[str, Any]:
    """What `CheckpointManager.stats` says of a checkpoint, `captured` and `bytes_by_kind` of which are given."""
    rows = sum_rows(written)
    cold = {kind: sum(groups.values()) for kind, groups in rows.items()}
    hot = cold.pop("differential", 0)
    return {**measured, "step": draft.step, "threshold": draft.policy["threshold"], "rows": rows,
            "hot_rows": hot, "cold_rows": sum(cold.values()), "bytes": sizes}


def of_scan(scan: Optional[ScannedBase]) -> Dict[str, float]:
    """What `CheckpointManager.stats` says of a base that was read beside training, when it is taken into use."""
    return {} if scan is None else {"scan_seconds": scan.seconds, "scan_bytes": sum(ref.bytes for ref in scan.objects)}
