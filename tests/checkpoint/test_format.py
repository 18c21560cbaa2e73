"""The Python reader of segments, held against the C++ writer and reader and against the specification."""

import json
import random
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfadaptcp.checkpoint import crc32c as crc
from tfadaptcp.checkpoint import format as segment_format
from tfadaptcp.errors import CheckpointCorruptError
from tools import cxx


@pytest.fixture(scope="module")
def tool(segment_tool: Path) -> Path:
    return segment_tool


def _run(tool: Path, *args: object) -> subprocess.CompletedProcess:
    return subprocess.run([tool, *map(str, args)], capture_output=True, text=True, check=False, timeout=60)


def _write(tool: Path, seed: int, path: Path) -> bytes:
    done = _run(tool, "write", seed, path)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def _records(data: bytes) -> list[tuple[int, int]]:
    """(offset, length of the record) of each frame."""
    found, offset = [], 0
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        found.append((offset, length))
        offset += length + 16
    return found


def _with_right_crcs(data: bytearray) -> bytes:
    """`data`, whose record lengths are intact, with the CRC of each record made right."""
    for offset, length in _records(data):
        record = bytes(data[offset + 12:offset + 12 + length])
        struct.pack_into("<I", data, offset + 12 + length, crc.mask(crc.crc32c(record)))
    return bytes(data)


def _hex_values(values: np.ndarray):
    if values.dtype == object:
        return [element.hex() for element in values.reshape(-1)]
    return values.tobytes().hex()


def _dump(segment: segment_format.Segment) -> dict:
    """What `segment_tool dump` prints."""
    header = segment.header
    blocks = {}
    for block in segment.row_blocks:
        keys = [key.hex() for key in block.keys] if block.keys.dtype == object else block.keys.tolist()
        blocks[block.offset] = {
            "type": "R", "group": block.group, "keys": keys, "p": block.p.tobytes().hex(),
            "tombstones": int(block.tombstones.sum()),
            "tables": [{"present": "".join("01"[int(bit)] for bit in present), "values": _hex_values(values)}
                       for present, values in zip(block.present, block.values)],
            "byte": block.offset}
    for block in segment.dense_blocks:
        blocks[block.offset] = {
            "type": "D", "name": block.name, "dtype": block.dtype, "shape": list(block.shape),
            "offset": list(block.start), "slice_shape": list(block.values.shape),
            "values": _hex_values(block.values), "byte": block.offset}
    return {
        "header": {
            "format": 1, "run": header.run, "generation": header.generation, "sequence": header.sequence,
            "kind": header.kind, "ps": header.ps,
            "groups": [{"name": group.name, "key_dtype": group.key_dtype, "shard": group.shard,
                        "num_shards": group.num_shards,
                        "tables": [{"name": t.name, "dtype": t.dtype, "dim": t.dim} for t in group.tables]}
                       for group in header.groups]},
        "blocks": [blocks[offset] for offset in sorted(blocks)],
        "footer": segment.footer}


def _documented_example() -> bytes:
    text = (cxx.ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    data = bytearray()
    for line in text[text.index("## A worked example"):].splitlines():
        if re.match(r"[0-9a-f]{4}  ", line):
            assert int(line[:4], 16) == len(data), f"wrong offset: {line}"
            data += bytes.fromhex(line[6:53])
    return bytes(data)


def test_the_documented_example_is_what_is_written_and_read(tool: Path, tmp_path: Path) -> None:
    path = tmp_path / "example.seg"
    assert _run(tool, "example", path).returncode == 0
    documented = _documented_example()
    assert documented == path.read_bytes()

    segment = segment_format.read_segment(documented, "example.seg")
    rows, = segment.row_blocks
    dense, = segment.dense_blocks
    assert segment.header.kind == "increment" and segment.header.groups[0].tables[1].dtype == "float16"
    assert rows.keys.tolist() == [7, -1, 9] and rows.p.tolist() == [1.0, 0.5, 0.0]
    assert rows.present[0].tolist() == [True, True, False] and rows.present[1].tolist() == [True, False, False]
    assert rows.values[0].tolist() == [[0.25, -2.0], [3.0, 4.0]] and rows.values[1].tolist() == [[1.0]]
    assert rows.tombstones.tolist() == [False, False, True]
    assert (dense.name, dense.shape, dense.start, dense.values.tolist()) == ("bias", (4,), (1,), [1, 2, -1])


def test_numbers_and_names_of_dtypes_are_those_of_tensorflow() -> None:
    for number, name in segment_format.DTYPES.items():
        assert tf.as_dtype(name).as_datatype_enum == number and tf.as_dtype(name).name == name
        if name != "string":
            assert segment_format.numpy_dtype(name) == tf.as_dtype(name).as_numpy_dtype


def test_python_reads_what_cpp_reads(tool: Path, tmp_path: Path) -> None:
    seen = set()
    for seed in range(60):
        path = tmp_path / f"{seed}.seg"
        data = _write(tool, seed, path)
        dumped = _run(tool, "dump", path)
        assert dumped.returncode == 0, dumped.stderr
        segment = segment_format.read_segment(data, path.name)
        assert _dump(segment) == json.loads(dumped.stdout), f"seed {seed}"
        assert _run(tool, "verify", path).stdout.split() == [str(len(data)), str(segment.crc32c)]
        for block in segment.row_blocks:
            group = segment.header.groups[block.group]
            seen |= {"key " + group.key_dtype} | {table.dtype for table in group.tables}
    assert seen == {"key " + dtype for dtype in ("int64", "int32", "string")} | set(segment_format.DTYPES.values())


def test_tf_record_dataset_reads_the_records(tool: Path, tmp_path: Path) -> None:
    for seed in (2, 3):
        path = tmp_path / "a.seg"
        data = _write(tool, seed, path)
        records = list(tf.data.TFRecordDataset([str(path)]).as_numpy_iterator())
        assert records == [data[offset + 12:offset + 12 + length] for offset, length in _records(data)]
        assert records[0][:1] == b"H" and records[-1][:1] == b"F"


def test_every_flipped_byte_is_found_and_its_record_named() -> None:
    data = _documented_example()
    starts = [offset for offset, _ in _records(data)]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(CheckpointCorruptError) as caught:
            segment_format.read_segment(bytes(damaged), "dir/a.seg")
        record = max(start for start in starts if start <= at)
        assert f"dir/a.seg: record at byte {record}: " in str(caught.value)


def test_every_truncation_is_found() -> None:
    data = _documented_example()
    for size in range(len(data)):
        with pytest.raises(CheckpointCorruptError, match="dir/a.seg: record at byte .*truncated"):
            segment_format.read_segment(data[:size], "dir/a.seg")


def test_missing_and_repeated_records_are_found() -> None:
    data = _documented_example()
    for offset, length in _records(data):
        end = offset + length + 16
        for damaged in (data[:offset] + data[end:], data[:end] + data[offset:end] + data[end:], data + data[offset:end]):
            with pytest.raises(CheckpointCorruptError):
                segment_format.read_segment(damaged, "a.seg")


def test_both_readers_refuse_the_same_damage_under_right_checksums(tool: Path, tmp_path: Path) -> None:
    """Damage that no CRC finds: hostile or badly written files. Neither reader may crash, and both must agree."""
    source = random.Random(5)
    path = tmp_path / "a.seg"
    refused = accepted = 0
    for seed in range(40):
        data = _write(tool, seed, path)
        for _ in range(8):
            damaged = bytearray(data)
            offset, length = source.choice(_records(data))
            at = offset + 12 + source.randrange(min(length, source.choice((24, length))))
            damaged[at] = source.choice((0, 1, 0xFF, damaged[at] ^ 1, damaged[at] ^ 0x80, source.randrange(256)))
            path.write_bytes(_with_right_crcs(damaged))
            dumped = _run(tool, "dump", path)
            assert dumped.returncode in (0, 1), dumped.stderr
            try:
                ours = _dump(segment_format.read_segment(path.read_bytes(), "a.seg"))
            except CheckpointCorruptError:
                ours = None
            assert (ours is None) == (dumped.returncode == 1), f"seed {seed}, byte {at}: {dumped.stderr}"
            if ours is None:
                refused += 1
            else:
                accepted += 1
                assert ours == json.loads(dumped.stdout)
    assert refused > 100 and accepted > 20


@pytest.mark.parametrize(("old", "new", "message"), [
    (b'"format":1', b'"format":2', "unknown format version. Received: 2. Expected: 1"),
    (b'"float16"', b'"float99"', "header, group 0, table 1: unknown dtype. Received: 'float99'"),
    (b'"increment"', b'"incrmnent"', "bad kind or run"),
    (b'"dim":2', b'"dim":0', 'header, group 0, table 0: bad "dim". Received: 0'),
    (b'"rows":3', b'"rows":4', "the footer does not say what the file holds"),
    (b"R\x01", b"R\x02", "unknown row block version. Received: 2"),
    (b"D\x01", b"D\x07", "unknown dense block version. Received: 7"),
    (b"D\x01\x03\x00", b"D\x01\x03\x05", 'dense block of "bias": unknown codec. Received: 5'),
    (b"\x01\0\0\0\3\0\0\0\x18", b"\x01\1\0\0\3\0\0\0\x18", "keys: a codec for values of floating point alone"),
    (b"D\x01\x03\x00", b"D\x01\x03\x01", 'dense block of "bias": a codec for values of floating point alone'),
    (b"D\x01\x03", b"D\x01\x63", 'dense block of "bias": unknown dtype. Received: 99'),
    (b"R\x01", b"X\x01", "unknown record type. Received: b'X'"),
])
def test_what_is_unknown_is_refused_by_name(old: bytes, new: bytes, message: str) -> None:
    data = _documented_example()
    assert data.count(old) == 1
    with pytest.raises(CheckpointCorruptError) as caught:
        segment_format.read_segment(_with_right_crcs(bytearray(data.replace(old, new))), "a.seg")
    assert message in str(caught.value)


@pytest.mark.parametrize("at", [0x16E, 0x189, 0x1BB, 0x1D9, 0x21E, 0x231])
def test_padding_must_be_zero(at: int) -> None:
    data = bytearray(_documented_example())
    assert data[at] == 0
    data[at] = 1
    with pytest.raises(CheckpointCorruptError, match="padding that is not zero"):
        segment_format.read_segment(_with_right_crcs(data), "a.seg")


def test_the_manifests_checksum_is_compared() -> None:
    data = _documented_example()
    whole = crc.crc32c(data)
    assert segment_format.read_segment(data, "a.seg", whole).crc32c == whole
    with pytest.raises(CheckpointCorruptError, match="whole file"):
        segment_format.read_segment(data, "a.seg", whole ^ 1)


def _plain_crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 9, 4095, 32767, 32768, 32769, 98307])
def test_crc32c_equals_its_definition(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    whole = _plain_crc32c(data)
    assert crc.crc32c(data) == whole
    assert crc.crc32c(data[size // 3:], crc.crc32c(data[:size // 3])) == whole
    assert crc.crc32c(b"123456789") == 0xE3069283
