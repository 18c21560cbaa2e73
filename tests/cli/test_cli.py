"""`tfadaptcp ls` and `verify`: what they print, and their exit codes."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import pytest

import tfadaptcp
from tests.support import oracle
from tests.support.saving import heads_of
from tfadaptcp import cli
from tfadaptcp.checkpoint import commit, layout
from tfadaptcp.checkpoint.manifest import sum_rows


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Three checkpoints, each with an increment of its own, and a fourth by another run that went on from the third."""
    path = tmp_path_factory.mktemp("cli") / "run"
    model = oracle.build("adam", tables=2)
    trainer = oracle.Trainer(model)
    manager = tfadaptcp.CheckpointManager(model, path, "incremental", max_to_keep=10)
    for _ in range(3):
        trainer.train(2)
        manager.save(epoch=1)
        manager.wait()
    manager.restore()
    trainer.train(2)
    manager.save()
    manager.wait()
    manager.close()
    return path


@pytest.fixture
def copy(directory, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(directory, tmp_path / "run")
    return tmp_path / "run"


def write_manifest(directory, manifest):
    (directory / layout.manifest_path(manifest.head)).write_bytes(manifest.to_json())


def verify(directory, capsys, *arguments):
    """(exit code, what was printed as JSON)"""
    code = cli.main(["verify", "--json", str(directory), *arguments])
    return code, json.loads(capsys.readouterr().out)


# ------------------------------------------------------------------ ls


def test_ls_lists_every_checkpoint(directory, capsys):
    assert cli.main(["ls", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    columns = ["name", "generation", "step", "epoch", "batch"]
    assert lines[0].split()[:5] == columns and lines[0].split()[-4:] == ["policy", "written", "restore", "quantization"]
    rows = [line.split() for line in lines[1:]]
    infos = [tfadaptcp.CheckpointInfo.of(head) for head in heads_of(directory)]
    assert [row[:5] for row in rows] == [[str(getattr(info, column)) for column in columns] for info in infos]
    assert [row[2] for row in rows] == ["2", "4", "6", "6", "8"] and {row[1] for row in rows} == {"1", "2"}
    assert all(row[5] == info.created[:23] and row[6] == "incremental" for row, info in zip(rows, infos))
    assert all(row[-1] == "-" and row[-2] in ("B", "KiB") and float(row[-3]) > 0 for row in rows)


def test_ls_as_json(directory, capsys):
    assert cli.main(["ls", str(directory), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["directory"] == str(directory) and found["damage"] == []
    for entry, head in zip(found["checkpoints"], heads_of(directory), strict=True):
        info = dataclasses.asdict(tfadaptcp.CheckpointInfo.of(head))
        assert {name: entry[name] for name in info} == info
        assert (entry["parent"], entry["origin"], entry["tables"]) == (head.parent, head.origin, head.table_rows)


def test_ls_of_damaged_and_torn_manifests(copy, capsys):
    newest, oldest = heads_of(copy)[-1], heads_of(copy)[0]
    file = copy / layout.manifest_path(newest.head)
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    assert cli.main(["ls", str(copy)]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 5 and "cut off" in printed.err and file.name in printed.err
    file.write_bytes(whole.replace(b'"step":8', b'"step":9'))
    assert cli.main(["ls", str(copy)]) == 1
    printed = capsys.readouterr()
    assert oldest.name in printed.out and "checksum is wrong" in printed.err
    assert cli.main(["ls", str(copy), "--json"]) == 1
    assert file.name in json.loads(capsys.readouterr().out)["damage"][0]


# ------------------------------------------------------------------ exit code 2


def test_nothing_there(tmp_path, capsys):
    for command in ("ls", "verify"):
        for path in (tmp_path, tmp_path / "missing"):
            assert cli.main([command, str(path)]) == 2
            assert "no checkpoint" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_store_that_cannot_be_reached(tmp_path, capsys):
    (tmp_path / "manifests").write_text("")
    for command in ("ls", "verify"):
        for path, match in ((tmp_path, "manifests"), ("gsx://bucket/run", "gsx"), ("", "directory")):
            assert cli.main([command, str(path)]) == 2
            assert match in capsys.readouterr().err


def test_a_store_that_fails_while_it_is_read(directory, capsys, monkeypatch):
    import tensorflow as tf
    from tfadaptcp import _ops

    class Failing:
        def adaptcp_verify_segment(self, request):
            raise tf.errors.UnavailableError(None, None, "the store is down")

    monkeypatch.setattr(_ops, "lib", Failing)
    assert cli.main(["verify", str(directory)]) == 2
    assert "the store is down" in capsys.readouterr().err


def test_an_unknown_checkpoint(directory, capsys):
    assert cli.main(["verify", str(directory), "--checkpoint", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_wrong_usage(capsys):
    for arguments in ([], ["verify"], ["list", "x"], ["ls", "x", "--checkpoint", "y"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 2


def test_as_a_module(tmp_path):
    done = subprocess.run([sys.executable, "-m", "tfadaptcp", "verify", str(tmp_path)], text=True, capture_output=True,
                          timeout=120, check=False)
    assert done.returncode == 2 and "no checkpoint" in done.stderr, done


def test_what_is_for_programs_is_json_alone(directory):
    for command in ("ls", "verify"):
        done = subprocess.run([sys.executable, "-m", "tfadaptcp", command, str(directory), "--json"], text=True,
                              capture_output=True, timeout=120, check=False)
        assert done.returncode == 0 and json.loads(done.stdout)["checkpoints"], (command, done)


def test_retention_that_is_always_faster(copy, capsys, monkeypatch):
    """Every checkpoint listed is gone before its turn: that nothing was found damaged says nothing."""
    monkeypatch.setattr(commit, "is_removed", lambda *unused: True)
    for path in (copy / "data").glob("*/*.seg"):
        path.unlink()
    assert cli.main(["verify", str(copy), "--json"]) == cli.NOTHING
    said = capsys.readouterr()
    assert said.out == "" and "every checkpoint" in said.err and "was removed while" in said.err


# ------------------------------------------------------------------ verify


def test_a_whole_directory(directory, capsys):
    code, found = verify(directory, capsys)
    assert code == 0 and found["damage"] == []
    for entry, head in zip(found["checkpoints"], heads_of(directory), strict=True):
        assert entry == {"name": head.name, "step": head.step, "objects": len(head.objects), "bytes": head.bytes,
                         "rows": head.rows, "damage": []}


def test_damage_is_named_with_file_and_heads(copy, capsys):
    increment = sorted((copy / "data").glob("*/increment-*"))[0]
    whole = increment.read_bytes()
    increment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    assert cli.main(["verify", str(copy)]) == 1
    printed = capsys.readouterr().out
    # The heads that need it, and not the one before.
    names = [line.split()[0] for line in printed.splitlines()[:5]]
    assert [line.split()[-1] for line in printed.splitlines()[:5]] == ["whole"] + ["damaged"] * 4
    assert increment.name in printed and "record at byte" in printed
    assert verify(copy, capsys, "--checkpoint", names[0])[0] == 0
    increment.unlink()
    code, found = verify(copy, capsys, "--checkpoint", names[1])
    assert code == 1 and increment.name in found["damage"][0] and len(found["checkpoints"]) == 1


def test_rows_that_the_manifest_does_not_have(copy, capsys):
    head = heads_of(copy)[0]
    objects = tuple(dataclasses.replace(ref, rows={**ref.rows, "emb0-parameter": ref.rows["emb0-parameter"] + 1})
                    if ref.kind == "base" else ref for ref in head.objects)
    write_manifest(copy, dataclasses.replace(head, objects=objects, rows=sum_rows(objects)))
    code, found = verify(copy, capsys, "--checkpoint", head.name)
    assert code == 1 and "holds rows" in found["damage"][0] and "base-" in found["damage"][0]


def test_tables_that_the_manifest_does_not_have(copy, capsys):
    head = heads_of(copy)[0]
    group, *rest = head.groups
    wide = dataclasses.replace(group, tables=(dataclasses.replace(group.tables[0], dim=1 << 40), *group.tables[1:]))
    write_manifest(copy, dataclasses.replace(head, groups=(wide, *rest)))
    code, found = verify(copy, capsys, "--checkpoint", head.name)
    assert code == 1 and re.search(f"Expected: .*{1 << 40}.*", found["damage"][0]) and "group emb0-parameter" in found["damage"][0]


def test_a_gap_in_the_chain(copy, capsys):
    """Field case: a whole increment is missing, and the manifest agrees with itself."""
    for head in heads_of(copy)[2:]:
        objects = tuple(ref for ref in head.objects if ref.kind != "increment" or ref.sequence != 2)
        write_manifest(copy, dataclasses.replace(head, objects=objects, rows=sum_rows(objects)))
    code, found = verify(copy, capsys)
    assert code == 1
    damaged = [entry["name"] for entry in found["checkpoints"] if entry["damage"]]
    assert damaged == [head.name for head in heads_of(copy)[2:4]], "where it is gone; not where it was gone before"
    assert "does not continue its parent" in found["damage"][0] and "increment-ps0" in found["damage"][0]


def test_a_dense_variable_that_is_not_whole(copy, capsys):
    head = heads_of(copy)[-1]
    objects = tuple(ref for ref in head.objects if ref.kind != "dense")
    write_manifest(copy, dataclasses.replace(head, objects=objects))
    code, found = verify(copy, capsys, "--checkpoint", head.name)
    assert code == 1 and "dense variable" in found["damage"][0] and "Received: 0 elements" in found["damage"][0]


def test_a_file_that_somebody_else_has_put_there_is_no_damage(copy, capsys):
    """As a client of NFS leaves it, or a file manager."""
    (copy / "manifests" / ".nfs0000000000a1").write_text("x")
    assert cli.main(["ls", str(copy)]) == cli.main(["verify", str(copy)]) == 0
    assert "not the name of a manifest" in capsys.readouterr().err


def test_a_damaged_manifest_alone(copy, capsys):
    for head in heads_of(copy):
        file = copy / layout.manifest_path(head.head)
        file.write_bytes(file.read_bytes().replace(b'"batch":', b'"bitch":'))
    code, found = verify(copy, capsys)
    assert code == 1 and len(found["damage"]) == 5 and not found["checkpoints"]
