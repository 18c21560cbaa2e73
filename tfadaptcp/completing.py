"""The manifest of a checkpoint whose objects are durable, and what is to be said of it."""

import dataclasses
from typing import Any, Dict, Optional, Tuple

from tfadaptcp import measurements
from tfadaptcp.checkpoint import chain
from tfadaptcp.checkpoint.manifest import Manifest, sum_rows
from tfadaptcp.checkpoint.objects import refs_of
from tfadaptcp.pending import Pending


def complete(pending: Pending, replies: Dict[int, Dict[str, Any]], directory: str,
             read_speed: Optional[float]) -> Tuple[Manifest, Dict[str, Any]]:
    """Returns the manifest to commit, and what `CheckpointManager.stats` says of the checkpoint.

    Args:
        replies: of the hosts to `Engine.save`.
        directory: the checkpoint directory.
        read_speed: bytes per second of the last restore, None if unknown.
    """
    draft, scan = pending.draft, pending.scan
    written = refs_of(replies, directory, draft.sequence)
    objects = chain.next_objects(pending.parent, pending.is_base, written,
                                 None if scan is None else (scan.start, scan.objects))
    captured, sizes = measurements.captured(replies), measurements.bytes_by_kind(written)
    rows = sum_rows(written)
    hot = sum(rows.pop("differential", {}).values())
    actual = pending.decision.costs(hot, sum(sum(groups.values()) for groups in rows.values()),
                                    sum(size for kind, size in sizes.items() if kind != "dense"),
                                    sum(ref.bytes for ref in objects))
    measured = measurements.smoothed(chain.measured(pending.lineage), pending.interval, read_speed, written, replies)
    told: Dict[str, Any] = {"predicted": pending.predicted, "actual": actual}
    stats = {**chain.chain_stats(pending.parent, pending.is_base, objects, draft.sequence, draft.groups,
                                 None if scan is None else scan.since, chain.restores(pending.lineage),
                                 draft.policy["quantization"] if scan is None else scan.quantization),
             **told, chain.MEASURED: measured, "captured": captured, "bytes": sizes}
    manifest = dataclasses.replace(draft, objects=objects, rows=sum_rows(objects), stats=stats)
    manifest.sums  # counted here, and not by the next cut, for which training waits
    return manifest, {**pending.decision.record, **measured, **told, **measurements.of_scan(scan),
                      **measurements.of_checkpoint(draft, written, captured, sizes)}
