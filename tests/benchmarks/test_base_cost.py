"""The benchmark of bases: every way it compares writes all rows and reads them back."""

import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
import pytest
import tensorflow as tf

from benchmarks import base_cases, base_cost

ROWS, DIM = 3000, 4


@pytest.fixture(scope="module")
def model():
    model = base_cases.build(DIM, "small")
    base_cases.fill(base_cases.variables_of(model), ROWS, DIM)
    return model


@pytest.mark.parametrize("case", base_cases.CASES)
def test_every_case_saves_and_loads_all_rows(case, model, tmp_path):
    variables = base_cases.variables_of(model)
    writer = base_cases.Writer(case, model, str(tmp_path))
    measured = base_cases.measured(writer.save)
    writer.close()
    assert measured["wall"] > 0 and measured["extra_mb"] >= 0
    assert base_cases.sync(str(tmp_path)) > ROWS * 3 * (DIM * 4 + 8 / 3)
    if case != base_cases.SCAN:
        for variable in variables:
            variable.clear()
        base_cases.load(case, model, str(tmp_path))
    base_cases.check(variables, ROWS, DIM)


def test_a_wrong_row_is_noticed(model):
    variables = base_cases.variables_of(model)
    variables[1].remove(tf.constant([7], tf.int64))
    with pytest.raises(RuntimeError, match="2999 rows"):
        base_cases.check(variables, ROWS, DIM)
    base_cases.fill(variables, ROWS, DIM)


def test_lookups_are_timed(model):
    with base_cases.Lookups(base_cases.variables_of(model)[0], ROWS, 10) as lookups:
        while not lookups._seconds:
            pass
    latencies = lookups.milliseconds()
    assert latencies["lookups"] >= 1 and latencies["p50"] <= latencies["p99.9"] <= latencies["max"]


def test_the_report_compares_rounds_with_their_own(capsys):
    def round_of(seconds):
        figures = {"wall": seconds, "cpu": seconds, "extra_mb": 1, "durable_wall": seconds}
        times = {"p50": 1, "p99": 1, "p99.9": 1, "max": 1}
        return {"save": figures, "load": figures, "idle": times, "beside": times, "save_beside_lookups": 1}

    base_cost.report({base_cases.OURS: [round_of(1), round_of(4)], base_cases.TFRA: [round_of(2), round_of(8)]})
    assert "ours / TFRA files: save, s: x 0.50 (0.50 to 0.50), goal at most 1.5" in capsys.readouterr().out
