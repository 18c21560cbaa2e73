"""Files whose checksums are right and that lie about sizes: refused, and no memory is taken on their word."""

import shutil
import struct
from pathlib import Path

import pytest

import tfadaptcp
from tests.golden import models
from tests.support import segments
from tfadaptcp import cli
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "types" / "checkpoints"


def wide_rows(record):
    """4 billion elements a row, in a table without a present row."""
    if record[:1] == b"H":
        record[:] = bytes(record).replace(b'"dim":2', b'"dim":4294967295')


def other_group(record):
    if record[:1] == b"H":
        record[:] = bytes(record).replace(b"int64_int8", b"int64_int9")


def huge_tensor(record):
    """A whole of 2^62 elements, of which the file has a slice."""
    if record[:1] == b"D":
        struct.pack_into("<Q", record, 24, 2**61)


def negative_tensor(record):
    """One dimension that TensorFlow's shapes can't have."""
    if record[:1] == b"D":
        struct.pack_into("<Q", record, 24, 2**63 + 7)


def moved_slice(record):
    """The first rows twice, the last ones never."""
    if record[:1] == b"D" and b"wide" in record:
        struct.pack_into("<Q", record, 24 + 16, 0)


@pytest.mark.parametrize("kind,change,match,shards", [
    ("base", wide_rows, r"group \w+: Received: .*4294967295.*Expected: .*as in the manifest", 1),
    ("base", wide_rows, r"group \w+: Received: .*4294967295.*Expected: .*as in the manifest", 2),
    ("base", other_group, "int64_int9: Received: .*Expected: nothing of that name", 1),
    ("dense", huge_tensor, f"dense variable .*Received: .*{2**61}.*Expected: ", 1),
    ("dense", negative_tensor, "is damaged: .*dense", 1),
    ("dense", moved_slice, "wide overlap", 1),
])
def test_refused(kind, change, match, shards, tmp_path, capsys):
    directory = tmp_path / "run"
    shutil.copytree(GOLDEN, directory)
    head = commit.list_heads(Store(), str(directory))[0][0]
    ref = next(ref for ref in head.objects if ref.kind == kind)
    before = (directory / ref.path).read_bytes()
    head = segments.rewrite(directory, head, ref, change)
    assert (directory / ref.path).read_bytes() != before
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=match):
        models.types(shards).load_adaptcp(directory, head.name)
    if change is moved_slice:
        return  # `verify` counts elements
    assert cli.main(["verify", str(directory), "--checkpoint", head.name]) == 1
    assert ref.path.split("/")[-1] in capsys.readouterr().out
