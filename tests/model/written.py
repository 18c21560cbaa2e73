"""What the product has written, key by key, as the Python reader of the format finds it."""

from __future__ import annotations

from tests.model.shard import Captured
from tfadaptcp.checkpoint import format as segments
from tfadaptcp.checkpoint.layout import HeadName
from tfadaptcp.checkpoint.manifest import ROW_KINDS, Manifest
from tfadaptcp.checkpoint.store import Store, join


def rows_of(store: Store, directory: str, manifest: Manifest, kind: str, sequence: int) -> dict[int, Captured]:
    """Returns the rows of one kind that the cut `sequence` wrote into objects of a head. Every row is there once."""
    rows: dict[int, Captured] = {}
    for ref in manifest.objects:
        if (ref.kind, ref.sequence) != (kind, sequence):
            continue
        data = store.read(join(directory, ref.path))
        assert len(data) == ref.bytes
        segment = segments.read_segment(data, ref.path, ref.crc32c)
        for block in segment.row_blocks:
            values = [iter(column) for column in block.values]
            for i, key in enumerate(block.keys.tolist()):
                row = tuple(_number(next(column)) if present[i] else None
                            for column, present in zip(values, block.present))
                assert key not in rows, f"{ref.path}: key {key} is in two rows"
                rows[key] = Captured(row if any(item is not None for item in row) else None, block.p[i])
    return rows


def levels_of(manifest: Manifest) -> set[tuple[str, int]]:
    """Kind and sequence of every object with rows that a head needs."""
    return {(ref.kind, ref.sequence) for ref in manifest.objects if ref.kind in ROW_KINDS and sum(ref.rows.values())}


def name_of(head: HeadName) -> tuple[int, int]:
    """The name of a head in the model."""
    return head.generation, head.sequence


def _number(value) -> int:
    """The whole number that all elements of a row are."""
    number = int(value[0])
    assert (value == number).all(), value
    return number
