"""Changes segments of a checkpoint under right checksums: what a hostile writer, or one of a later version, would leave."""

import dataclasses
import struct
from pathlib import Path
from typing import Callable

from tfadaptcp.checkpoint import crc32c, layout
from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef


def split(data: bytes) -> list[bytearray]:
    """The records of a segment."""
    records, offset = [], 0
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        records.append(bytearray(data[offset + 12:offset + 12 + length]))
        offset += length + 16
    return records


def join(records: list[bytearray]) -> bytes:
    """A segment of these records, with their checksums."""
    out = bytearray()
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", crc32c.mask(crc32c.crc32c(length))) + record
        out += struct.pack("<I", crc32c.mask(crc32c.crc32c(bytes(record))))
    return bytes(out)


def rewrite(directory: Path, head: Manifest, ref: ObjectRef, change: Callable[[bytearray], None]) -> Manifest:
    """Changes every record of an object, and what the manifest says of its checksum and size; returns the new manifest."""
    records = split((directory / ref.path).read_bytes())
    for record in records:
        change(record)
    data = join(records)
    (directory / ref.path).write_bytes(data)
    changed = dataclasses.replace(ref, crc32c=crc32c.crc32c(data), bytes=len(data))
    head = dataclasses.replace(head, objects=tuple(changed if item == ref else item for item in head.objects))
    (directory / layout.manifest_path(head.head)).write_bytes(head.to_json())
    return head
