"""Parses the binary records of a segment: blocks of rows and slices of dense tensors."""

import math
import struct

import numpy as np

from tfadaptcp.checkpoint.format_quantized import CODECS, RAW, read_quantized
from tfadaptcp.checkpoint.format_types import (
    DENSE_BLOCK_VERSION, DTYPES, ROW_BLOCK_VERSION, U64_MAX, DenseBlock, Malformed, RowBlock, SegmentHeader,
    numpy_dtype)

_KEYS, _INDICATORS, _PRESENCE, _VALUES = 1, 2, 3, 4
_MAX_RANK = 254


class _Cursor:
    """The part of a record that has not been read yet."""

    def __init__(self, record: memoryview):
        self._record = record
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._record) - self._at

    def take(self, count: int, what: str) -> memoryview:
        if count > self.left:
            raise Malformed(f"{what}: {count} bytes don't fit in the {self.left} left in the block")
        self._at += count
        return self._record[self._at - count:self._at]

    def take_padded(self, count: int, what: str) -> memoryview:
        data = self.take(count, what)
        if any(self.take(-count % 8, what)):
            raise Malformed(f"{what}: padding that is not zero")
        return data


def _equal(what: str, received: int, expected: int) -> None:
    if received != expected:
        raise Malformed(f"{what}. Received: {received}. Expected: {expected}")


def _check_codec(codec: int, what: str, may_lose: bool = False) -> None:
    if codec not in CODECS:
        known = ", ".join(f"{number} ({name})" for number, name in CODECS.items())
        raise Malformed(f"{what}: unknown codec. Received: {codec}. Expected one of: {known}; "
                        "was this file written by a later version?")
    if codec != RAW and not may_lose:
        raise Malformed(f"{what}: a codec for values of floating point alone. Received: {codec}. Expected: 0 (raw)")


def _elements(data: memoryview, dtype: str, count: int, what: str) -> np.ndarray:
    """[count] elements, which are all of `data`."""
    if dtype == "string":
        return _strings(data, count, what)
    numpy_type = numpy_dtype(dtype)
    _equal(f"{what}: wrong size in bytes", len(data), count * numpy_type.itemsize)
    if dtype == "bool" and count and np.frombuffer(data, np.uint8).max() > 1:
        raise Malformed(f"{what}: a bool that is neither 0 nor 1")
    return np.frombuffer(data, numpy_type)


def _strings(data: memoryview, count: int, what: str) -> np.ndarray:
    if count > len(data) // 4:
        raise Malformed(f"{what}: {len(data)} bytes can't hold {count} strings")
    ends = np.cumsum(np.frombuffer(data, "<u4", count), dtype=np.uint64)
    characters = data[4 * count:]
    _equal(f"{what}: string lengths add up wrongly", int(ends[-1]) if count else 0, len(characters))
    out = np.empty(count, object)
    start = 0
    for i, end in enumerate(ends.tolist()):
        out[i] = characters[start:end].tobytes()
        start = end
    return out


def _column(cursor: _Cursor, kind: int, table: int, what: str) -> tuple[int, int, memoryview]:
    """The next column: (codec, entries, bytes)."""
    received, codec, index, entries, size = struct.unpack("<BBHIQ", cursor.take(16, what))
    _equal(f"{what}: wrong column type", received, kind)
    _equal(f"{what}: wrong table index", index, table)
    _check_codec(codec, what, may_lose=kind == _VALUES)
    return codec, entries, cursor.take_padded(size, what)


def parse_rows(record: memoryview, header: SegmentHeader, offset: int) -> RowBlock:
    """An 'R' record; raises Malformed."""
    cursor = _Cursor(record)
    _, version, reserved, index, rows, columns = struct.unpack("<BBHIII", cursor.take(16, "row block"))
    _equal("unknown row block version", version, ROW_BLOCK_VERSION)
    _equal("row block: reserved bytes are not zero", reserved, 0)
    if index >= len(header.groups):
        raise Malformed(f"row block: no such group. Received: index {index}. Expected: below {len(header.groups)}")
    group = header.groups[index]
    where = f'row block of group "{group.name}": '
    _equal(where + "wrong number of columns", columns, 2 + 2 * len(group.tables))
    _, entries, data = _column(cursor, _KEYS, 0, where + "keys")
    _equal(where + "keys: wrong number", entries, rows)
    keys = _elements(data, group.key_dtype, rows, where + "keys")
    _, entries, data = _column(cursor, _INDICATORS, 0, where + "update indicators")
    _equal(where + "update indicators: wrong number", entries, rows)
    p = _elements(data, "float32", rows, where + "update indicators")
    if not np.all((p >= 0) & (p <= 1)):
        raise Malformed(f"{where}update indicators: Received: {p[~((p >= 0) & (p <= 1))][0]}. Expected: 0 to 1")
    present, values = [], []
    for t, table in enumerate(group.tables):
        what = f'{where}presence of table "{table.name}"'
        _, entries, data = _column(cursor, _PRESENCE, t, what)
        _equal(f"{what}: wrong number", entries, rows)
        _equal(f"{what}: wrong size", len(data), (rows + 7) // 8)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)
        if bits[rows:].any():
            raise Malformed(f"{what}: bits set beyond the last row")
        present.append(bits[:rows])
        count = int(bits.sum())
        what = f'{where}values of table "{table.name}"'
        codec, entries, data = _column(cursor, _VALUES, t, what)
        _equal(f"{what}: wrong number of rows", entries, count)
        if codec == RAW:
            values.append(_elements(data, table.dtype, count * table.dim, what).reshape(count, table.dim))
        else:
            values.append(read_quantized(data, codec, table.dtype, table.dim, count, what))
    _equal(where + "bytes after the last column", cursor.left, 0)
    return RowBlock(offset, index, keys, p, tuple(present), tuple(values))


def parse_dense(record: memoryview, offset: int) -> DenseBlock:
    """A 'D' record; raises Malformed."""
    cursor = _Cursor(record)
    _, version, number, codec, rank, name_size, reserved, size = struct.unpack(
        "<BBBBIIIQ", cursor.take(24, "dense block"))
    _equal("unknown dense block version", version, DENSE_BLOCK_VERSION)
    if reserved != 0 or rank > _MAX_RANK:
        raise Malformed("dense block: bad rank, or reserved bytes are not zero")
    dims = struct.unpack(f"<{3 * rank}Q", cursor.take(24 * rank, "dense block"))
    shape, start, slice_shape = dims[:rank], dims[rank:2 * rank], dims[2 * rank:]
    try:
        name = cursor.take_padded(name_size, "dense block").tobytes().decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("dense block: a name that is not UTF-8") from None
    where = f'dense block of "{name}"'
    dtype = DTYPES.get(number)
    if dtype is None:
        raise Malformed(f"{where}: unknown dtype. Received: {number}. Expected one of: {sorted(DTYPES)}")
    _check_codec(codec, where)
    count = math.prod(slice_shape)
    within = all(first + extent <= whole for first, extent, whole in zip(start, slice_shape, shape))
    if not name or not within or _overflows(shape) or _overflows(slice_shape):
        raise Malformed(f"{where}: no name, or the slice at {start} of shape {slice_shape} is not within {shape}")
    values = _elements(cursor.take_padded(size, where), dtype, count, where)
    _equal(f"{where}: bytes after the data", cursor.left, 0)
    try:
        values = values.reshape(slice_shape)
    except (ValueError, OverflowError):
        raise Malformed(f"{where}: a shape numpy can't have. Received: {slice_shape}") from None
    return DenseBlock(offset, name, dtype, shape, start, values)


def _overflows(dims: tuple[int, ...]) -> bool:
    """Whether the running product, left to right, passes 2^64-1 (as the C++ reader sees it)."""
    product = 1
    for dim in dims:
        product *= dim
        if product > U64_MAX:
            return True
    return False
