"""The objects of a head as the ops that read them want them, and as those that write them tell of them."""

import dataclasses
from typing import Any, Dict, Iterable, List, Optional, Tuple

from tfadaptcp.checkpoint.manifest import ROW_KINDS, Manifest, ObjectRef
from tfadaptcp.checkpoint.store import join


def levels(directory: str, head: Manifest, groups: Optional[Iterable[str]] = None) -> List[Dict[str, Any]]:
    """The objects with rows, by level, newest first: within a level no key occurs twice.

    Args:
        groups: leaves out objects that have no row of these. None: none are left out.

    Returns:
        For each level {"sequence", "differential", "objects": as `request` makes them, "bytes": of them all}.
    """
    by_level: Dict[Tuple[int, int], List[ObjectRef]] = {}
    for ref in head.objects:
        if ref.kind in ROW_KINDS and (groups is None or any(ref.rows.get(group) for group in groups)):
            by_level.setdefault((ROW_KINDS.index(ref.kind), ref.sequence), []).append(ref)
    return [{"sequence": sequence, "differential": ROW_KINDS[rank] == "differential",
             "objects": [request(directory, ref) for ref in refs], "bytes": sum(ref.bytes for ref in refs)}
            for (rank, sequence), refs in sorted(by_level.items(), reverse=True)]


def request(directory: str, ref: ObjectRef) -> Dict[str, Any]:
    """An object, with all that the manifest says of it."""
    return {"path": join(directory, ref.path), "kind": ref.kind, "bytes": ref.bytes, "crc32c": ref.crc32c,
            "rows": ref.rows, "ps": ref.ps}


def refs_of(replies: Dict[int, Dict[str, Any]], directory: str, sequence: int) -> List[ObjectRef]:
    """What parameter servers reply, {ps: reply}, that they have written of the cut `sequence`."""
    return [ObjectRef(item["path"][len(directory) + 1:], item["kind"], sequence, ps, item["bytes"], item["crc32c"],
                      item["rows"])
            for ps, reply in replies.items() for item in reply["objects"]]


def specs(head: Manifest) -> Dict[str, Any]:
    """What the objects of a head may hold."""
    return {"groups": {group.name: {"key_dtype": group.key_dtype,
                                    "tables": [dataclasses.asdict(table) for table in group.tables]}
                       for group in head.groups},
            "dense": {spec.name: {"dtype": spec.dtype, "shape": list(spec.shape)} for spec in head.dense}}
