"""What is tried at start-up. (open_lm#154)"""

import os

import pytest

import tfadaptcp
from tests.support import faults, oracle, rows
from tfadaptcp import probe


@pytest.fixture(scope="module")
def model():
    return oracle.build("adam")


@pytest.mark.parametrize("at, step", [(1, "write"), (4, "write"), (7, "read back"), (8, "delete")])
def test_the_probe_says_what_failed(model, tmp_path, at, step):
    os.makedirs(tmp_path / "data")
    with faults.plan(f"match=/data/probe-;errno=5@{at}"):
        with pytest.raises(tfadaptcp.StoreUnavailableError, match=f"could not {step} .*data/probe-"):
            tfadaptcp.CheckpointManager(model, tmp_path)


def test_the_probe_writes_syncs_reads_and_deletes(model, tmp_path):
    log = tmp_path / "log"
    with faults.plan(f"match=/data/probe-;log={log}"):
        tfadaptcp.CheckpointManager(model, tmp_path / "checkpoints")
    steps = [line.split()[1] for line in log.read_text().splitlines()]
    assert [step for i, step in enumerate(steps) if steps[i - 1:i] != [step]] == [
        "create", "write", "fsync", "close", "open", "read", "delete"]
    assert os.listdir(tmp_path / "checkpoints" / "data") == []


def test_too_little_room_is_said_beforehand(model, tmp_path, monkeypatch, caplog):
    engine = tfadaptcp.CheckpointManager(model, tmp_path).engine
    rows.write(model, range(1000))  # slots too, which are there now
    estimate = probe.estimated_bytes(engine)
    manager = tfadaptcp.CheckpointManager(model, tmp_path / "sized", "full")
    manager.save()
    written = manager.wait().bytes
    assert 0.7 * written < estimate < 1.5 * written
    real = os.statvfs(tmp_path)
    assert "little room" not in caplog.text
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(
        [real.f_bsize, 1, real.f_blocks, 1, estimate // 2, *real[5:]]))
    tfadaptcp.CheckpointManager(model, tmp_path / "small")
    assert f"small has little room: {estimate // 2} bytes are free" in caplog.text and f"about {estimate}" in caplog.text
