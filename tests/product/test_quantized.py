"""Quantised checkpoints: what a restore gives is what an oracle quantises of a full copy at the cut, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, quantizing, rows
from tests.support.bases import end_scan
from tests.support.saving import Mixed, heads_of
from tfadaptcp import Quantization, cli, policies

DIM = 16
BFLOAT16 = ("bfloat16", 16)
CASES = {
    "asymmetric 8, slots bfloat16": (Quantization(), ("asymmetric", 8), BFLOAT16),
    "adaptive 4, slots raw": (Quantization(4, "auto", slots="raw"), ("adaptive", 4), None),
    "kmeans 3, slots symmetric 8": (Quantization(3, "kmeans", slots=Quantization(8, "symmetric")), ("kmeans", 3),
                                    ("symmetric", 8)),
    "symmetric 2, slots adaptive 3": (Quantization(2, "symmetric", slots=Quantization(3, "adaptive")), ("symmetric", 2),
                                      ("adaptive", 3)),
    "bfloat16, slots raw": (Quantization(method="bfloat16", slots=False), BFLOAT16, None),
}


@pytest.fixture(scope="module")
def trainer():
    return oracle.Trainer(oracle.build("adam", tables=2, dim=DIM, devices=["/CPU:0"] * 2))


def restart(trainer):
    """Empties the tables: every test begins with few rows."""
    for _, variable in oracle.tables_of(trainer.model):
        variable.clear()
    trainer.train(1)
    return trainer.model


@pytest.mark.parametrize("case", CASES)
def test_every_head_restores_to_what_the_oracle_quantises(case, trainer, tmp_path):
    quantization, parameter, slots = CASES[case]
    model = restart(trainer)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, Mixed(), max_to_keep=10, quantization=quantization)
    copies = {}
    for i in range(3):
        rows.write(model, [7, 1000 + i], seed=i)  # random bits: NaN, infinite and huge elements too
        rows.write(model, [2000 + i], value=0.1 * i)
        rows.write(model, [3000 + i], seed=i, tables=slice(1))  # without slots
        rows.write(model, [4000 + i], seed=i, tables=slice(1, 2))
        rows.remove(model, [3 + i])
        copy = oracle.take(model)
        info = manager.save()
        trainer.train(1)
        assert manager.wait().quantization == info.quantization == case
        copies[info.name] = quantizing.of_copy(copy, model, parameter, slots)
    assert {ref.kind for ref in heads_of(tmp_path)[-1].objects} == {"base", "increment", "differential", "dense"}
    for name in reversed(copies):
        report = model.load_adaptcp(tmp_path, name)
        oracle.check(copies[name], model, name)
        assert report.rows == copies[name].rows()
    assert cli.main(["verify", str(tmp_path)]) == 0


def test_training_never_sees_it(trainer, tmp_path):
    model = restart(trainer)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, quantization=Quantization(2))
    before = oracle.take(model)
    manager.save()
    manager.wait()
    oracle.check(before, model)


def test_a_base_that_is_read_beside_training(trainer, tmp_path):
    model = restart(trainer)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policies.Incremental(full_every=1), max_to_keep=10,
                                          quantization=Quantization(4))
    for _ in range(5):
        trainer.train(1)
        copy = oracle.take(model)
        manager.save()
        manager.wait()
        end_scan(manager)
    head = heads_of(tmp_path)[-1]
    assert {ref.sequence for ref in head.objects if ref.kind == "base"} == {head.base_sequence}
    assert head.base_sequence > 1
    model.load_adaptcp(tmp_path)
    oracle.check(quantizing.of_copy(copy, model, ("asymmetric", 4), BFLOAT16), model)


def test_other_shards_other_tools_and_a_part_of_it(trainer, tmp_path, capsys):
    model = restart(trainer)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, quantization=Quantization(4, "adaptive"))
    manager.save()
    manager.wait()
    expected = quantizing.of_copy(oracle.take(model), model, ("adaptive", 4), BFLOAT16)
    name = "emb0-parameter"
    read = tfadaptcp.read_rows(tmp_path, name).as_numpy_iterator()
    assert {int(key): row.tobytes() for key, row in read} == {key: row for key, (_, row) in expected.tables[name].items()}
    assert cli.main(["ls", str(tmp_path)]) == 0
    assert "adaptive 4, slots bfloat16" in capsys.readouterr().out
    other = oracle.build("adam", tables=2, dim=DIM, devices=["/CPU:0"] * 3, seed=9)
    other.load_adaptcp(tmp_path)
    oracle.check(expected, other, "in three shards", shards=False)
    oracle.check_placement(other)
    renamed = oracle.build("adam", dim=DIM, names=["other"], value_dtype=tf.float16)
    renamed.load_adaptcp(tmp_path, tables="other*", rename={name: "other-parameter"}, optimizer=False, cast=True)
    found = oracle.take(renamed).tables["other-parameter"]
    for key, (_, row) in expected.tables[name].items():
        assert found[key][1] == np.frombuffer(row, np.float32).astype(np.float16).tobytes()


def test_the_chain_goes_on_with_others(trainer, tmp_path):
    """A restore of one quantization, checkpoints of others: each row as its own file has it."""
    model = restart(trainer)
    rows.write(model, range(50), value=0.3)
    settings = [(Quantization(4), ("asymmetric", 4)), (None, None), (Quantization(3, "kmeans"), ("kmeans", 3))]
    for i, (quantization, parameter) in enumerate(settings):
        manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", quantization=quantization)
        written = set(range(10 * i, 10 * i + 20)) if i else None
        if i:
            for number, (_, variable) in enumerate(oracle.tables_of(model)):
                values = np.random.default_rng([i, number]).normal(size=(20, int(variable.dim)))
                variable.upsert(tf.constant(sorted(written), tf.int64), tf.constant(values, tf.float32))
        copy = oracle.take(model)
        manager.save()
        info = manager.wait()
        assert (info.restores, info.quantization != "") == (i, quantization is not None)
        expected = quantizing.of_copy(copy, model, parameter, parameter and BFLOAT16, written)
        model.load_adaptcp(tmp_path)
        oracle.check(expected, model, info.name)
    assert [ref.kind for ref in heads_of(tmp_path)[-1].objects if ref.kind != "dense"] == ["base", "increment", "increment"]


def test_auto_falls_back_after_more_restores_than_expected(trainer, tmp_path):
    model = restart(trainer)
    quantization = Quantization("auto", "auto", expected_restores=1)
    found = []
    for i in range(3):
        manager = tfadaptcp.CheckpointManager(model, tmp_path, quantization=quantization)
        trainer.train(1)
        manager.save()
        manager.wait()
        # Another manager of a model that goes on is no restore.
        manager = tfadaptcp.CheckpointManager(model, tmp_path, quantization=quantization)
        manager.save()
        info = manager.wait()
        found.append((info.restores, info.quantization.split(",")[0]))
        model.load_adaptcp(tmp_path)
    assert found == [(0, "adaptive 2"), (1, "adaptive 2"), (2, "asymmetric 8")]
    # A part of it, or another directory: a chain of its own.
    manager = tfadaptcp.CheckpointManager(model, tmp_path / "other", quantization="auto")
    manager.save()
    assert manager.wait().restores == 0 and manager.wait().quantization == "adaptive 4, slots bfloat16"
    model.load_adaptcp(tmp_path, optimizer=False)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, quantization="auto")
    manager.save()
    assert manager.wait().restores == 0
    assert cli.main(["verify", str(tmp_path)]) == 0


def test_restores_count_however_they_come(tmp_path):
    """By a manager, or beside one that goes on; also when trackers are made anew, and their chain with them."""
    model = oracle.build("sgd", dim=DIM, seed=4)
    rows.write(model, range(50), value=0.3)
    quantization = Quantization("auto", "auto", expected_restores=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", quantization=quantization)

    def save(manager):
        rows.write(model, range(5), value=0.1)
        manager.save()
        info = manager.wait()
        return info.restores, info.quantization.split(",")[0]

    assert save(manager) == (0, "adaptive 2")
    model.load_adaptcp(tmp_path)
    assert save(manager) == (1, "adaptive 2") and save(manager) == (1, "adaptive 2")
    assert "seconds_per_interval" in manager.stats()
    model.load_adaptcp(tmp_path)
    assert save(manager) == (2, "asymmetric 8")
    manager.restore()
    assert save(manager) == (3, "asymmetric 8")
    model.another = tf.Variable(3.0)
    assert save(manager) == (3, "asymmetric 8")
    head = heads_of(tmp_path)[-1]
    assert head.base_sequence == head.sequence
    model.load_adaptcp(tmp_path)
    other = tfadaptcp.CheckpointManager(model, tmp_path, policies.Adaptive(decay=0.5), quantization=quantization)
    assert save(other) == (4, "asymmetric 8")


@pytest.mark.parametrize("bits", [8.0, True, 5, "8", None.__class__])
def test_widths_are_integers(bits):
    with pytest.raises(ValueError, match="bits: Received"):
        Quantization(bits)


@pytest.mark.parametrize("expected,width", [(0, 2), (1, 2), (2, 3), (3, 3), (4, 4), (20, 4), (21, 8)])
def test_widths_follow_from_expected_restores(expected, width):
    quantization = Quantization("auto", "auto", expected_restores=expected)
    for restores in (0, expected):
        assert quantization.decide(restores)["bits"] == width
    assert quantization.decide(expected + 1)["bits"] == 8


def test_sizes_of_files(tmp_path):
    """4, 8, 10.7 and 16 times smaller, apart from keys, indicators, scale and zero of a row, and the fronts."""
    model = oracle.build("sgd", dim=64)
    rows.write(model, range(1000), value=0.0)
    variable = oracle.layer_of(model).params
    values = np.random.default_rng(3).normal(size=(1000, 64)).astype(np.float32)
    variable.upsert(tf.range(1000, dtype=tf.int64), values)
    written = {}
    for bits in (None, 8, 4, 3, 2):
        manager = tfadaptcp.CheckpointManager(model, tmp_path / str(bits),
                                              quantization=None if bits is None else Quantization(bits))
        manager.save()
        manager.wait()
        written[bits], = (ref.bytes for ref in heads_of(tmp_path / str(bits))[0].objects if ref.kind == "base")
    for bits in (8, 4, 3, 2):
        # Per block 8 bytes in front, a bit per row, and padding to 8.
        assert written[None] - written[bits] == 1000 * 256 - (8 + 125 + 3 + 1000 * (4 + 64 * bits // 8))


def test_what_stays_raw(tmp_path):
    """Types that are no floating point, and dense variables."""
    from tests.golden import models
    model = models.types()
    for _, variable in oracle.tables_of(model):
        keys = rows.keys_of(variable, range(9))
        values = rows.values_of(variable, 9, 1)
        variable.upsert(keys, values)
    copy = oracle.take(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, quantization=Quantization(2))
    manager.save()
    manager.wait()
    expected = {}
    for name, variable in oracle.tables_of(model):
        floating = variable.value_dtype.is_floating
        table = copy.tables[name]
        expected[name] = quantizing.of_table(table, variable, ("asymmetric", 2)) if floating else table
    model.load_adaptcp(tmp_path)
    oracle.check(oracle.Copy(expected, copy.dense, copy.scalars), model)
    assert expected["int32_float64"] != copy.tables["int32_float64"]


@pytest.mark.parametrize("arguments", [
    {"bits": 5}, {"bits": 16}, {"bits": True}, {"bits": "8"}, {"method": "log"}, {"bits": 8, "method": "bfloat16"},
    {"slots": "asymmetric"}, {"slots": True}, {"slots": Quantization(slots="raw")}, {"expected_restores": -1},
    {"expected_restores": 1.5}])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match="Received: .* Expected: "):
        Quantization(**arguments)


def test_wrong_quantization(trainer, tmp_path):
    for wrong in ("asymmetric", 4, True):
        with pytest.raises(ValueError, match="quantization: Received: .* Expected: None, 'auto' or a Quantization"):
            tfadaptcp.CheckpointManager(trainer.model, tmp_path, quantization=wrong)
        with pytest.raises(ValueError, match="quantization: Received"):
            tfadaptcp.AdaptCPCallback(tmp_path, quantization=wrong)
