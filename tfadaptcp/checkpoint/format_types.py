"""What a segment file holds, as Python sees it, and the names and numbers of format version 1."""

import dataclasses

import ml_dtypes
import numpy as np

FORMAT_VERSION = 1
ROW_BLOCK_VERSION = 1
DENSE_BLOCK_VERSION = 1
KINDS = ("base", "increment", "differential", "dense")
KEY_DTYPES = ("int64", "int32", "string")

# The numbers of tf.DType.as_datatype_enum; the names of tf.DType.name.
DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype for a dtype name of the format; object (of bytes) for "string"."""
    if name == "string":
        return np.dtype(object)
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclasses.dataclass(frozen=True)
class SegmentTable:
    """A parameter table or one of its optimizer slots: `dim` elements of `dtype` per row."""

    name: str
    dtype: str
    dim: int


@dataclasses.dataclass(frozen=True)
class SegmentGroup:
    """Tables with the same keys and shards, and which shard this is."""

    name: str
    key_dtype: str
    shard: int
    num_shards: int
    tables: tuple[SegmentTable, ...]


@dataclasses.dataclass(frozen=True)
class SegmentHeader:
    """What a segment holds, and for which checkpoint; `ps` is -1 for the coordinator."""

    run: str
    generation: int
    sequence: int
    kind: str
    ps: int
    groups: tuple[SegmentGroup, ...]


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Rows of one group.

    Attributes:
        offset: byte offset of the record in the file.
        group: index into `SegmentHeader.groups`.
        keys: [rows], int64, int32 or object (bytes).
        p: [rows], float32, update indicators.
        present: per table, [rows] bool.
        values: per table, [present rows, dim]; object (bytes) for strings.
    """

    offset: int
    group: int
    keys: np.ndarray
    p: np.ndarray
    present: tuple[np.ndarray, ...]
    values: tuple[np.ndarray, ...]

    @property
    def tombstones(self) -> np.ndarray:
        """[rows] bool: rows that are in no table."""
        return ~np.logical_or.reduce(self.present)


@dataclasses.dataclass(frozen=True)
class DenseBlock:
    """The slice of tensor `name`, of `shape`, that starts at `start`; `values` has the slice's shape."""

    offset: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Segment:
    """A whole file. `footer` is its JSON: counts per group and per dense tensor."""

    name: str
    header: SegmentHeader
    row_blocks: list[RowBlock]
    dense_blocks: list[DenseBlock]
    footer: dict
    crc32c: int


class Malformed(Exception):
    """What is wrong with a record; `read_segment` adds file and byte offset."""
