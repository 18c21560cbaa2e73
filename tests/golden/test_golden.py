"""Directories of released formats stay readable: by every reader, to the bit."""

import json
import re
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import tfadaptcp
from tests.golden import models
from tests.support import oracle, segments
from tfadaptcp import cli
from tfadaptcp.checkpoint import commit, manifest
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
    kinds, features, generations, quantizations = set(), set(), set(), set()
    for name in NAMES:
        for head in commit.list_heads(Store(), str(directory_of(name)))[0]:
            generations.add(head.generation)
            quantizations.add(tfadaptcp.CheckpointInfo.of(head).quantization)
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
    assert quantizations == {"", "asymmetric 8, slots bfloat16", "adaptive 2, slots kmeans 2", "kmeans 3, slots raw",
                             "symmetric 4, slots bfloat16"}
    size = sum(file.stat().st_size for file in HERE.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert size < 250_000, "they are in every clone"


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
    (b'"float64"', b'"float7"', 'unknown dtype. Received: .?float7'),
])
def test_later_formats_are_refused_by_name(old, new, message, tmp_path, capsys):
    """By every reader; the file's checksums are right."""
    directory = tmp_path / "run"
    shutil.copytree(directory_of("types"), directory)
    head = commit.list_heads(Store(), str(directory))[0][0]
    ref = next(ref for ref in head.objects if ref.kind == "base")

    def change(record):
        front = 16 if old[:1] == b"\1" else 0
        if record[:1] == (b"H" if old[:1] == b'"' else b"R") and old in record[front:]:
            at = record.index(old, front)
            record[at:at + len(old)] = new

    head = segments.rewrite(directory, head, ref, change)
    assert cli.main(["verify", str(directory), "--checkpoint", head.name]) == 1
    assert re.search(message, capsys.readouterr().out)
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=message):
        segment_format.read_segment((directory / ref.path).read_bytes(), ref.path)
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=message):
        models.types().load_adaptcp(directory, head.name)
    with pytest.raises(tf.errors.OpError, match=message):
        list(tfadaptcp.read_rows(directory, "int32_float64", head.name))


def test_a_later_manifest_is_refused_by_name(tmp_path):
    head = commit.list_heads(Store(), str(directory_of("types")))[0][0]
    body = head.to_json().replace(b'"format":1', b'"format":2')
    body = body[:body.rfind(b',"sha256":"')] + b"}"
    data = body[:-1] + b',"sha256":"' + manifest._digest(body) + manifest.END
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="format is unknown. Received: 2. Expected: 1"):
        manifest.Manifest.from_json(data, "m.json")
