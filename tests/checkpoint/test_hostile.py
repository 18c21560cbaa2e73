"""Mutated manifests and segments under right checksums: the Python readers refuse them, as damaged, or read them.

Each input follows from its number. `ADAPTCP_FUZZ_PYTHON` says how many there are of each kind.
"""

import contextlib
import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from tests.support import segments
from tfadaptcp.checkpoint import chain, commit, layout, manifest, objects
from tfadaptcp.checkpoint import format as segment_format
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.embeddings import dense
from tfadaptcp.errors import CheckpointCorruptError
from tfadaptcp.info import CheckpointInfo

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
INPUTS = int(os.environ.get("ADAPTCP_FUZZ_PYTHON", "2000"))
VALUES = [None, True, -1, 0, 1, 2**31, 2**63, 2**70, 0.5, 1e308, "", "x" * 50, "../../etc/passwd", "/etc/passwd",
          "data/../claims/x", "data/0000000001-0000000001-c0ffee000000/../../x", "2026-13-45", [], {}, [[]], {"a": {}},
          [0] * 100, "\ud800", "float32", "base"]


@contextlib.contextmanager
def bounded_memory(i, data):
    """Fails if more memory is taken than an input of this size may need. Every tenth is measured: that is slow."""
    if i % 10:
        yield
        return
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 200 * len(data) + 100_000, f"input {i}"
    finally:
        tracemalloc.stop()


def with_digest(body):
    return body[:-1] + b',"sha256":"' + manifest._digest(body) + manifest.END


def nodes(value, found):
    """Every (container, key) below a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            nodes(value[key], found)
    return found


def mutate_json(source, value):
    for _ in range(source.choice((1, 1, 1, 3))):
        container, key = source.choice(nodes(value, []))
        action = source.randrange(8)
        if action == 0:
            del container[key]
        elif action == 1 and isinstance(container, list):
            container.append(container[key])
        elif action == 2 and isinstance(container, dict):
            container[source.choice(["x", "rows", key + "x", ""])] = container.pop(key)
        elif action == 3:
            other, place = source.choice(nodes(value, []))
            container[key] = json.loads(json.dumps(other[place]))
        elif action == 4 and isinstance(container[key], int):
            container[key] += source.choice((-1, 1, 2**32, -2**33))
        else:
            container[key] = source.choice(VALUES)


def use(head):
    """What readers do with a manifest that they accept, before they open a file."""
    json.dumps([CheckpointInfo.of(head).name, objects.specs(head)])
    assert chain.is_mixed(head) in (True, False) and chain.policy_stats(head).bytes_restore == head.bytes
    assert 0 <= head.policy.get("decay", 0.9) < 1
    dense.write_scalars(None, head.scalars)
    for level in objects.levels("/dir", head):
        for item in level["objects"]:
            assert item["path"].startswith("/dir/data/") and ".." not in item["path"].split("/")
    assert layout.parse_head(head.name) is not None


def test_manifests():
    texts = [path.read_bytes() for path in sorted(GOLDEN.glob("*/checkpoints/manifests/*.json"))]
    accepted = 0
    for i in range(INPUTS):
        source = random.Random(i)
        body = manifest.split_checksum(source.choice(texts))[0]
        if source.randrange(4):
            value = json.loads(body)
            mutate_json(source, value)
            body = json.dumps(value).encode()
        else:
            body = bytearray(body)
            for _ in range(source.randrange(1, 4)):
                body[source.randrange(len(body))] = source.choice(b'0019-"[]{},:e.\\\xff\x00')
            if source.randrange(20) == 0:
                place = source.randrange(len(body))
                body[place:place] = source.choice([b"[", b'{"a":', b"1"]) * 20000
            body = bytes(body)
        data = with_digest(body) if source.randrange(10) else body
        try:
            with bounded_memory(i, data):
                head = manifest.Manifest.from_json(data, "manifests/m.json")
        except CheckpointCorruptError as error:
            assert "manifests/m.json" in str(error) and len(str(error)) < 4000, i
            continue
        accepted += 1
        try:
            use(head)
        except Exception as error:
            raise AssertionError(f"input {i}") from error
    assert accepted > INPUTS // 50


def mutate_segment(source, data):
    records = segments.split(data)
    for _ in range(source.choice((1, 1, 3))):
        record = source.choice(records)
        place = source.randrange(min(len(record), source.choice((32, 64, 1 << 20)))) if record else 0
        action = source.randrange(9)
        if action == 0:
            records.insert(source.randrange(len(records)), bytearray(record))
        elif action == 1 and len(records) > 1:
            records.remove(record)
        elif action == 2:
            del record[place:]
        elif action == 3:
            record[place:place] = source.randbytes(source.randrange(1, 20))
        elif action < 7:
            width = source.choice((1, 2, 4, 8))
            number = source.choice((0, 1, 7, 2**7, 2**15, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1))
            record[place // width * width:place // width * width + width] = (number % 2**(8 * width)).to_bytes(width, "little")
        elif record[:1] in (b"H", b"F"):
            text = bytes(record)
            old = source.choice([b"1", b"2", b'"', b":", b"[", b"{", b"float32", b"int64", b"rows"])
            record[:] = text.replace(old, source.choice([b"0", b"-1", b"18446744073709551616", b"", b"[", b"1e9", b"string"]),
                                     source.choice((1, -1)))
        elif record:
            record[place] = source.randrange(256)
    data = segments.join(records)
    return data if source.randrange(8) else data[:source.randrange(len(data) + 1)]


def test_segments():
    files = [path.read_bytes() for path in sorted(GOLDEN.glob("*/checkpoints/data/*/*.seg"))]
    accepted = located = 0
    for i in range(INPUTS):
        source = random.Random(i)
        data = mutate_segment(source, source.choice(files))
        try:
            with bounded_memory(i, data):
                segment = segment_format.read_segment(data, "dir/a.seg")
        except CheckpointCorruptError as error:
            located += "dir/a.seg: record at byte 0:" not in str(error)
            assert "dir/a.seg: record at byte" in str(error) and len(str(error)) < 8 * len(data) + 4000, i
            continue
        except Exception as error:
            raise AssertionError(f"input {i}") from error
        accepted += 1
        assert sum(len(block.keys) for block in segment.row_blocks) <= len(data)
    assert accepted > INPUTS // 50 and located > INPUTS // 3


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "data/../x/y", "data/a/b/c", "data//x",
                                  "data/0000000001-0000000001-c0ffee000000/..", "data/0000000001-0000000001-c0ffee000000/.x",
                                  "data/0000000001-0000000001-c0ffee000000/a\nb", "gs://other/x", ""])
def test_names_that_leave_the_directory(path):
    file = next(GOLDEN.glob("types/checkpoints/manifests/*.json"))
    value = json.loads(manifest.split_checksum(file.read_bytes())[0])
    value["objects"][0]["path"] = path
    with pytest.raises(CheckpointCorruptError, match="object path"):
        manifest.Manifest.from_json(with_digest(json.dumps(value).encode()), "m.json")


def test_the_unmutated_ones_are_read():
    for name in sorted(path.name for path in GOLDEN.iterdir() if (path / "checkpoints").is_dir()):
        heads, damaged = commit.list_heads(Store(), str(GOLDEN / name / "checkpoints"))
        assert heads and not damaged
        for head in heads:
            use(head)
