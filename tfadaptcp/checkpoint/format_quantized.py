"""Reads columns of quantised rows (docs/format.md): the counterpart of ops/format/quantized_column.cc, bit for bit."""

import struct

import ml_dtypes
import numpy as np

from tfadaptcp.checkpoint.format_types import Malformed, numpy_dtype

RAW, AFFINE, CODEBOOK, BFLOAT16 = range(4)
CODECS = {RAW: "raw", AFFINE: "affine", CODEBOOK: "codebook", BFLOAT16: "bfloat16"}
FLOATS = ("float16", "bfloat16", "float32", "float64")
_WIDTHS = {AFFINE: (2, 3, 4, 8), CODEBOOK: (2, 3, 4, 8), BFLOAT16: (16,)}


def code_bytes(dim: int, bits: int) -> int:
    """Bytes that the codes of a row take."""
    return (dim * bits + 7) // 8


def record_bytes(codec: int, bits: int, dim: int) -> int:
    """Bytes of a quantised row."""
    if codec == BFLOAT16:
        return 2 * dim
    return (4 if codec == AFFINE else 2 << bits) + code_bytes(dim, bits)


def read_quantized(data: memoryview, codec: int, dtype: str, dim: int, count: int, what: str) -> np.ndarray:
    """[count, dim] values of `dtype`, which are what is left of those written; raises Malformed."""
    if dtype not in FLOATS:
        raise Malformed(f"{what}: quantised. Received: codec {codec}. Expected: 0 (raw), as for all of dtype {dtype}")
    marks = (count + 7) // 8
    if len(data) < 8 + marks:
        raise Malformed(f"{what}: {len(data)} bytes can't hold {count} quantised rows")
    front, said = struct.unpack_from("<II", data)
    if front not in _WIDTHS[codec]:
        raise Malformed(f"{what}: no width that its codec has. Received: {front}. Expected: one of {_WIDTHS[codec]}")
    raw = np.unpackbits(np.frombuffer(data, np.uint8, marks, 8), bitorder="little").astype(bool)
    kept = int(raw.sum())
    if raw[count:].any() or said != kept:
        raise Malformed(f"{what}: wrong number of raw rows. Received: {said}. Expected: {kept}, of {count}")
    raw = raw[:count]
    dtype = numpy_dtype(dtype)
    record, row = record_bytes(codec, front, dim), dim * dtype.itemsize
    body = data[8 + marks:]
    middle = (count - kept) * record
    if middle + kept * row != len(body):
        raise Malformed(f"{what}: wrong size. Received: {len(body)} bytes. Expected: {count - kept} records of {record} "
                        f"bytes, and {kept} raw rows of {row}")
    records = np.frombuffer(body, np.uint8, middle).reshape(count - kept, record)
    values = np.empty((count, dim), dtype)
    with np.errstate(all="ignore"):
        values[~raw] = _decode(records, codec, front, dim, what).astype(dtype)
    values[raw] = np.frombuffer(body, dtype, kept * dim, middle).reshape(kept, dim)
    return values


def _decode(records: np.ndarray, codec: int, bits: int, dim: int, what: str) -> np.ndarray:
    """[rows, dim] float32, of [rows, bytes of a record]."""
    front = records.shape[1] - code_bytes(dim, bits) if codec != BFLOAT16 else records.shape[1]
    numbers = np.ascontiguousarray(records[:, :front]).view("<u2").view(ml_dtypes.bfloat16).astype(np.float32)
    if codec == BFLOAT16:
        return numbers
    bad = not np.isfinite(numbers).all() or codec == AFFINE and np.signbit(numbers[:, 0]).any()
    flat = np.unpackbits(records[:, front:], axis=1, bitorder="little")
    if bad or flat[:, dim * bits:].any():
        raise Malformed(f"{what}: the record of a quantised row is damaged")
    codes = flat[:, :dim * bits].reshape(len(records), dim, bits) @ (1 << np.arange(bits, dtype=np.uint8))
    if codec == CODEBOOK:
        return np.take_along_axis(numbers, codes.astype(np.intp), axis=1)
    return codes.astype(np.float32) * numbers[:, :1] + numbers[:, 1:]
