"""Directories of released formats stay readable: by every reader, to the bit."""

import json
import struct
from pathlib import Path

import pytest

import tfadaptcp
from tests.golden import models
from tests.support import oracle
from tfadaptcp import cli
from tfadaptcp.checkpoint import commit, crc32c
from tfadaptcp.checkpoint import format as segment_format
from tfadaptcp.checkpoint.manifest import ROW_KINDS
from tfadaptcp.checkpoint.store import Store

HERE = Path(__file__).parent
NAMES = sorted(models.MODELS)


def directory_of(name):
    return HERE / name / "checkpoints"


def expected_of(name):
    return json.loads((HERE / name / "expected.json").read_text())


def copy_of(entry):
    """An entry of expected.json as the oracle has copies; shards are not in it."""
    tables = {table: {bytes.fromhex(key) if isinstance(key, str) else key: (0, bytes.fromhex(row)) for key, row in rows}
              for table, rows in entry["tables"].items()}
    dense = {name: (dtype, tuple(shape), bytes.fromhex(value)) for name, (dtype, shape, value) in entry["dense"].items()}
    return oracle.Copy(tables, dense, entry["scalars"])


def test_there_is_one_of_every_kind():
    """What the directories were made to hold."""
    kinds, features, generations = set(), set(), set()
    for name in NAMES:
        for head in commit.list_heads(Store(), str(directory_of(name)))[0]:
            generations.add(head.generation)
            features |= {"published again"} if head.origin else set()
            features |= {"base renewed"} if head.parent and head.base_sequence == head.sequence else set()
            for ref in head.objects:
                kinds.add((ref.kind, ref.ps))
                segment = segment_format.read_segment((directory_of(name) / ref.path).read_bytes(), ref.path, ref.crc32c)
                features |= {"several blocks"} if len(segment.row_blocks) > 1 else set()
                for block in segment.row_blocks:
                    features |= {"tombstones"} if block.tombstones.any() else set()
                    present = sum(map(bool, (bits.any() for bits in block.present)))
                    features |= {"rows without a slot"} if 0 < present < len(block.present) else set()
                features |= {"sliced"} if any(block.shape != block.values.shape for block in segment.dense_blocks) else set()
                features |= {f"shard {group.shard} of {group.num_shards}" for group in segment.header.groups}
    assert {kind for kind, _ in kinds} == {"base", "increment", "differential", "dense"} and {ps for _, ps in kinds} == {0, 1}
    assert features == {"published again", "base renewed", "several blocks", "tombstones", "rows without a slot", "sliced",
                        "shard 0 of 1", "shard 0 of 2", "shard 1 of 2"}
    size = sum(file.stat().st_size for file in HERE.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert size < 200_000, "they are in every clone"


@pytest.mark.parametrize("name", NAMES)
def test_python_reader(name):
    """Merges the levels by itself: newest first, each key once."""
    directory = directory_of(name)
    for head in commit.list_heads(Store(), str(directory))[0]:
        entry = expected_of(name)[head.identity]
        assert (head.step, head.epoch, head.batch) == (entry["step"], entry["epoch"], entry["batch"])
        tables = {table.name: {} for group in head.groups for table in group.tables}
        seen, dense = set(), {}
        for ref in sorted(head.objects, key=lambda ref: (ref.kind == "dense" or ROW_KINDS.index(ref.kind), ref.sequence),
                          reverse=True):
            segment = segment_format.read_segment((directory / ref.path).read_bytes(), ref.path, ref.crc32c)
            assert (segment.header.kind, segment.header.sequence, segment.header.ps) == (ref.kind, ref.sequence, ref.ps)
            for block in segment.row_blocks:
                group = segment.header.groups[block.group]
                place = [0] * len(group.tables)
                for i, key in enumerate(block.keys.tolist()):
                    fresh = (group.name, key) not in seen
                    seen.add((group.name, key))
                    for t, table in enumerate(group.tables):
                        if not block.present[t][i]:
                            continue
                        row = block.values[t][place[t]]
                        place[t] += 1
                        if fresh:
                            tables[table.name][key] = b"\0".join(row.tolist()) if row.dtype == object else row.tobytes()
            for block in segment.dense_blocks:
                parts = dense.setdefault(block.name, {})
                parts[block.start] = block.values
        copy = copy_of(entry)
        assert tables == {table: {key: row for key, (_, row) in rows.items()} for table, rows in copy.tables.items()}
        for spec in head.dense:
            joined = b"".join(dense[spec.name][start].tobytes() for start in sorted(dense[spec.name]))
            whole = [value for found, value in copy.dense.items() if spec.name.endswith(found.removesuffix(":0"))]
            parts = [copy.dense[found] for found in sorted(copy.dense) if found.startswith(f"{spec.name}/part_")]
            assert whole == [(spec.dtype, spec.shape, joined)] or b"".join(value for _, _, value in parts) == joined


@pytest.mark.parametrize("name", NAMES)
def test_read_rows(name):
    for head in commit.list_heads(Store(), str(directory_of(name)))[0]:
        for table, rows in copy_of(expected_of(name)[head.identity]).tables.items():
            found = {key: b"\0".join(row.tolist()) if row.dtype == object else row.tobytes()
                     for key, row in tfadaptcp.read_rows(directory_of(name), table, head.name).as_numpy_iterator()}
            assert found == {key: row for key, (_, row) in rows.items()}


@pytest.mark.parametrize("name", NAMES)
def test_load_adaptcp(name):
    """In as many shards as wrote them, and in another number."""
    for shards in (2, 3) if name in ("adaptive", "two_ps") else (1,):
        model = models.MODELS[name](shards, seed=77)
        for checkpoint, entry in list(expected_of(name).items())[::-2]:
            report = model.load_adaptcp(directory_of(name), checkpoint)
            assert (report.step, report.epoch, report.batch) == (entry["step"], entry["epoch"], entry["batch"])
            oracle.check(copy_of(entry), model, checkpoint, shards=False)
            oracle.check_placement(model)


def test_verify(capsys):
    for name in NAMES:
        assert cli.main(["verify", str(directory_of(name))]) == 0
    assert cli.main(["ls", str(directory_of("renewed"))]) == 0
    assert "damaged" not in capsys.readouterr().out


@pytest.mark.parametrize("old,new,message", [
    (b'"format":1', b'"format":9', "unknown format version. Received: 9. Expected: 1"),
    (b"R\1\0\0", b"R\7\0\0", "unknown row block version. Received: 7"),
    (b"\1\0\0\0", b"\1\5\0\0", "unknown codec. Received: 5"),  # of the keys
])
def test_later_formats_are_refused_by_name(old, new, message, tmp_path, capsys):
    """By every reader; the file's checksums are right."""
    import dataclasses
    import shutil
    from tfadaptcp.checkpoint import layout
    shutil.copytree(directory_of("types"), tmp_path / "run")
    head = commit.list_heads(Store(), str(tmp_path / "run"))[0][0]
    ref = next(ref for ref in head.objects if ref.kind == "base")
    data = (tmp_path / "run" / ref.path).read_bytes()
    start = data.index(b"R\1\0\0") if old != b'"format":1' else 0
    at = data.index(old, start + (16 if old[:1] == b"\1" else 0))
    damaged = with_right_crcs(bytearray(data[:at] + new + data[at + len(old):]))
    (tmp_path / "run" / ref.path).write_bytes(damaged)
    objects = tuple(dataclasses.replace(ref, crc32c=crc32c.crc32c(damaged)) if item == ref else item for item in head.objects)
    head = dataclasses.replace(head, objects=objects)
    (tmp_path / "run" / layout.manifest_path(head.head)).write_bytes(head.to_json())
    assert cli.main(["verify", str(tmp_path / "run"), "--checkpoint", head.name]) == 1
    assert message in capsys.readouterr().out
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=message):
        segment_format.read_segment(damaged, ref.path)
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=message):
        models.types().load_adaptcp(tmp_path / "run", head.name)


def test_a_later_manifest_is_refused_by_name(tmp_path):
    from tfadaptcp.checkpoint import manifest
    head = commit.list_heads(Store(), str(directory_of("types")))[0][0]
    body = head.to_json().replace(b'"format":1', b'"format":2')
    body = body[:body.rfind(b',"sha256":"')] + b"}"
    data = body[:-1] + b',"sha256":"' + manifest._digest(body) + manifest.END
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="format is unknown. Received: 2. Expected: 1"):
        manifest.Manifest.from_json(data, "m.json")


def with_right_crcs(data):
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        record = bytes(data[offset + 12:offset + 12 + length])
        struct.pack_into("<I", data, offset + 12 + length, crc32c.mask(crc32c.crc32c(record)))
        offset += length + 16
    return bytes(data)
