"""One byte of every class, in every kind of file, changed: the file and the place are named, verify finds it, and without a
name the head before is restored. (tensorflow#39033, tensorflow#61449)"""

import os
import shutil
import struct
import tempfile

import pytest

import tfadaptcp
from tests.support import fault_lives, oracle
from tfadaptcp import cli

COLUMNS = {1: "keys", 2: "update indicators", 3: "presence", 4: "values"}


@pytest.fixture(scope="module")
def life():
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    made = fault_lives.Life(os.path.join(folder, "checkpoints"), os.path.join(folder, "trace"))
    for _ in range(30):
        made.checkpoint()
        kinds = {fault_lives.file_kind(path): byte_classes(data) for path, data in made.files.items() if path.endswith("seg")}
        if "differential" in kinds and "values of table 1: first" in kinds.get("increment", ()):
            break
    yield made
    shutil.rmtree(folder)


def frames(data):
    """(start, length) of the records of a TFRecord file."""
    at = 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        yield at, length
        at += 16 + length


def byte_classes(data):
    """{class: place of a byte of it} of a segment; docs/format.md says what is where."""
    found = {}
    for at, length in frames(data):
        record, start = chr(data[at + 12]), at + 12
        found |= {f"{record}: length": at, f"{record}: checksum of the length": at + 9, f"{record}: type": start,
                  f"{record}: checksum": start + length + 1}
        if record in "HF":
            found |= {f"{record}: first of the JSON": start + 1, f"{record}: last of the JSON": start + length - 1}
            continue
        found |= {f"{record}: version": start + 1, f"{record}: count": start + 8, f"{record}: last": start + length - 1}
        if record == "D":
            found |= {"D: dtype": start + 2, "D: shape": start + 24}
            continue
        columns, = struct.unpack_from("<I", data, start + 12)
        at_column = start + 16
        for _ in range(columns):
            kind, codec, table, entries, size = struct.unpack_from("<BBHIQ", data, at_column)
            name = f"{COLUMNS[kind]} of table {table}"
            found |= {f"{name}: codec": at_column + 1, f"{name}: length": at_column + 8}
            if size:
                found |= {f"{name}: first": at_column + 16, f"{name}: last": at_column + 15 + size}
            at_column += 16 + (size + 7) // 8 * 8
    return found


def restored_without_name(life, caplog, path):
    """Restores with no checkpoint named; the log must say what was passed over."""
    caplog.clear()
    try:
        report = life.model.load_adaptcp(life.directory)
    except tfadaptcp.CheckpointCorruptError:
        return False  # the base is every head's
    oracle.check(life.copies[report.step], life.model, f"without {path}")
    assert report.step < life.step
    assert os.path.basename(path) in caplog.text and ("Falling back" in caplog.text or "Passing over" in caplog.text)
    return True


def test_every_class_of_bytes_in_every_kind_of_file(life, caplog, capsys):
    newest = life.manager.checkpoints[-1].name
    seen, fell_back = set(), 0
    for path, whole in life.files.items():
        kind = fault_lives.file_kind(path)
        if kind == "manifest":
            places = {f"byte {at}": at for at in range(0, len(whole), 97)}
        else:
            places = byte_classes(whole)
        for number, (what, at) in enumerate(places.items()):
            write(path, whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
            with pytest.raises(tfadaptcp.CheckpointCorruptError) as caught:
                life.model.load_adaptcp(life.directory, newest)
            assert os.path.basename(path) in str(caught.value), (kind, what)
            assert kind == "manifest" or "at byte" in str(caught.value), (kind, what, caught.value)
            if number % 8 == 0:
                assert cli.main(["verify", life.directory]) == 1
                assert os.path.basename(path) in capsys.readouterr().out
                fell_back += restored_without_name(life, caplog, path)
            seen.add((kind, what))
        write(path, whole)
    life.check_restore()
    print(len(seen), "classes of bytes:", *sorted(seen), sep="\n  ")
    assert len(seen) > 120 and fell_back > 8
    for kind in ("base", "increment", "differential"):
        assert {(kind, f"{column} of table {table}: first") for column, table in
                (("keys", 0), ("update indicators", 0), ("presence", 0), ("values", 0), ("values", 1))} <= seen


def test_files_cut_off_at_every_frame_or_gone(life, caplog, capsys):
    newest = life.manager.checkpoints[-1].name
    for path, whole in life.files.items():
        kind = fault_lives.file_kind(path)
        cuts = [0, len(whole) // 2, len(whole) - 1] if kind == "manifest" else [
            cut for at, length in frames(whole) for cut in (at, at + 5, at + 12 + length // 2)]
        for number, cut in enumerate(cuts):
            write(path, whole[:cut])
            with pytest.raises(tfadaptcp.CheckpointCorruptError) as caught:
                life.model.load_adaptcp(life.directory, newest)
            assert os.path.basename(path) in str(caught.value) and str(cut) in str(caught.value)
            if number == 1:
                # A manifest that was cut off was never committed, as far as anybody can tell.
                assert cli.main(["verify", life.directory]) == (0 if kind == "manifest" else 1)
                restored_without_name(life, caplog, path)
        os.unlink(path)
        with pytest.raises(tfadaptcp.CheckpointNotFoundError if kind == "manifest" else tfadaptcp.CheckpointCorruptError,
                           match=os.path.basename(path).removesuffix(".json")):
            life.model.load_adaptcp(life.directory, newest)
        if kind != "manifest":
            assert cli.main(["verify", life.directory]) == 1
        write(path, whole)
        capsys.readouterr()
    life.check_restore()


@pytest.mark.parametrize("damage", ["filled", "renamed", "removed"])
def test_claims(life, damage):
    """What a claim says is in its name. Restores need none; a writer whose claim has gone stops."""
    life.checkpoint()  # the first of a manager claims
    claim = os.path.join(life.directory, "claims", str(life.manager._claim))
    assert os.path.exists(claim)
    if damage == "filled":
        write(claim, b"\0\xff")
        life.checkpoint()
        write(claim, b"")
        return
    away = claim + "x" if damage == "renamed" else os.path.join(life.directory, "..", "away")
    os.rename(claim, away)
    assert life.model.load_adaptcp(life.directory).step == life.step
    life.model._tfadaptcp_engine.lineage.move_to(life.directory, life.manager._last_head)
    with pytest.raises(tfadaptcp.FencedError, match="vanished"):
        life.checkpoint()
    os.rename(away, claim)
    life.step -= 1
    life.start()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
