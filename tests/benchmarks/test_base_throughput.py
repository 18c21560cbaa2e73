"""The benchmark of training beside a base."""

import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
from benchmarks import base_throughput


def test_bases_are_written_beside_steps(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(base_throughput, "CHUNK", 2)
    with base_throughput.job(2000, 0) as (model, run):
        rounds = base_throughput.measure(model, run, str(tmp_path), 2)
        assert [info.rows["base"] for info in tfadaptcp.CheckpointManager(model, tmp_path).checkpoints] == [
            {"clicks-parameter": 2000}]
    assert len(rounds) == 2 and all(found["plain"] > 0 and found["beside"] > 0 for found in rounds)
    base_throughput.report([{**rounds[0], "ratio": 0.9}, {**rounds[1], "ratio": 0.7}])
    assert "median x 0.800 of those without" in capsys.readouterr().out
