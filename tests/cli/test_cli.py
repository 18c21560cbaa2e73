"""`tfadaptcp ls` and `verify`, with their exit codes."""

import json

import pytest

import tfadaptcp
from tests.support import oracle
from tfadaptcp import cli


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Three checkpoints under a policy that makes all kinds of files."""
    path = tmp_path_factory.mktemp("cli") / "run"
    model = oracle.build("adam", tables=2)
    trainer = oracle.Trainer(model)
    manager = tfadaptcp.CheckpointManager(model, path, "incremental", max_to_keep=10)
    for _ in range(3):
        trainer.train(2)
        manager.save()
        manager.wait()
    manager.close()
    return path


def test_ls_lists_every_checkpoint(directory, capsys):
    assert cli.main(["ls", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert [line.split()[1] for line in lines[1:]] == ["2", "4", "6"]


def test_nothing_there_is_two(tmp_path, capsys):
    assert cli.main(["ls", str(tmp_path)]) == 2
    assert cli.main(["verify", str(tmp_path / "missing")]) == 2
    assert "no checkpoint" in capsys.readouterr().err


def test_an_unknown_checkpoint_is_two(directory, capsys):
    assert cli.main(["verify", str(directory), "--checkpoint", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_whole_directory_is_zero(directory, capsys):
    assert cli.main(["verify", str(directory), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["checkpoints"]) == 3 and found["damage"] == []


def test_damage_is_one_and_named_with_file_and_heads(directory, capsys):
    increment = sorted((directory / "data").glob("*/increment-*"))[0]
    whole = increment.read_bytes()
    try:
        increment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
        assert cli.main(["verify", str(directory)]) == 1
        printed = capsys.readouterr().out
        # The heads that need it, and not the one before.
        assert printed.count("damaged") == 2 and printed.count("whole") == 1
        assert increment.name in printed and "byte" in printed
        names = [line.split()[0] for line in printed.splitlines()[:3]]
        assert cli.main(["verify", str(directory), "--checkpoint", names[0]]) == 0
        increment.unlink()
        assert cli.main(["verify", str(directory), "--checkpoint", names[1]]) == 1
        assert increment.name in capsys.readouterr().out
    finally:
        increment.write_bytes(whole)
