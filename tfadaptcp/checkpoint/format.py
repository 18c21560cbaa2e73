"""Reads segment files, format version 1 (docs/format.md), into numpy arrays.

The offline counterpart of the C++ reader: it accepts and refuses the same files. Nothing in a file is trusted; every
length is held against what is left of the file before it is used. Needs no TensorFlow.
"""

import struct
from collections.abc import Iterator

from tfadaptcp.checkpoint import crc32c as crc
from tfadaptcp.checkpoint.format_blocks import parse_dense, parse_rows
from tfadaptcp.checkpoint.format_json import parse_footer, parse_header
from tfadaptcp.checkpoint.format_types import DTYPES, DenseBlock, Malformed, RowBlock, Segment, numpy_dtype

__all__ = ["DTYPES", "Segment", "numpy_dtype", "read_segment"]


def _corrupt(name: str, offset: int, what: str) -> Exception:
    # Only here, so that reading good files needs no TensorFlow.
    from tfadaptcp.errors import CheckpointCorruptError
    return CheckpointCorruptError(f"{name}: record at byte {offset}: {what}")


def read_segment(data: bytes, name: str, expected_crc32c: int | None = None) -> Segment:
    """Reads and checks a whole segment; the arrays are read-only views of `data`.

    Args:
        data: the file's bytes.
        name: the file's name, for messages.
        expected_crc32c: CRC32C of the whole file, from its manifest; None: not compared.

    Raises:
        CheckpointCorruptError: damaged, truncated, or of a later format; the message names file and byte offset.
    """
    header = footer = None
    row_blocks: list[RowBlock] = []
    dense_blocks: list[DenseBlock] = []
    offset = 0
    try:
        for offset, record in _records(data):
            kind = record[:1].tobytes()
            if footer is not None:
                raise Malformed("a record after the footer")
            if header is None:
                header = parse_header(record)
            elif kind == b"R":
                row_blocks.append(parse_rows(record, header, offset))
            elif kind == b"D":
                dense_blocks.append(parse_dense(record, offset))
            elif kind == b"F":
                footer = parse_footer(record, header, row_blocks, dense_blocks)
            else:
                raise Malformed(f"unknown record type. Received: {kind!r}. Expected: 'R', 'D' or 'F'")
        if footer is None:
            offset = len(data)
            raise Malformed("the file ends without a footer: it is truncated")
        whole = crc.crc32c(data)
        if expected_crc32c is not None and whole != expected_crc32c:
            raise Malformed(f"wrong CRC32C of the whole file. Received: {whole:#010x}. "
                            f"Expected: {expected_crc32c:#010x}")
    except _Located as error:
        raise _corrupt(name, error.offset, str(error)) from None
    except Malformed as error:
        raise _corrupt(name, offset, str(error)) from None
    return Segment(name, header, row_blocks, dense_blocks, footer, whole)


class _Located(Malformed):
    """A broken frame, which has no record to go with."""

    def __init__(self, offset: int, what: str):
        super().__init__(what)
        self.offset = offset


def _records(data: bytes) -> Iterator[tuple[int, memoryview]]:
    """The TFRecord frames of a file: (byte offset of the frame, record)."""
    view = memoryview(data).cast("B")
    offset = 0
    while offset < len(view):
        left = len(view) - offset
        if left < 16:
            raise _Located(offset, f"only {left} bytes left: the file is truncated")
        length, length_crc = struct.unpack_from("<QI", view, offset)
        if crc.mask(crc.crc32c(view[offset:offset + 8])) != length_crc:
            raise _Located(offset, "wrong CRC32C of a record's length")
        if length > left - 16:
            raise _Located(offset, f"a record of {length} bytes where {left} are left: the file is truncated")
        record = view[offset + 12:offset + 12 + length]
        (record_crc,) = struct.unpack_from("<I", view, offset + 12 + length)
        if crc.mask(crc.crc32c(record)) != record_crc:
            raise _Located(offset, "wrong CRC32C of a record")
        yield offset, record
        offset += length + 16
