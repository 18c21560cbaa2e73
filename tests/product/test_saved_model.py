"""Exported models hold TFRA's ops only, and serve where tfadaptcp is not installed."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de
from tensorflow.core.protobuf import saved_model_pb2

import tfadaptcp
from tests.support import oracle, rows

IDS = np.arange(30).reshape(10, oracle.COLUMNS)

# Imports TFRA, and would notice if anything brought tfadaptcp along.
SERVE = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons
sys.modules["tfadaptcp"] = None  # an import raises
for path in sys.argv[2:]:
    serve = tf.saved_model.load(path).signatures["serving_default"]
    out, = serve(tf.constant(np.load(sys.argv[1]))).values()
    np.save(path + ".npy", out.numpy())
"""


def ops_of(path):
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((path / "saved_model.pb").read_bytes())
    assert model.meta_graphs
    found = set()
    for meta in model.meta_graphs:
        found |= {op.name for op in meta.meta_info_def.stripped_op_list.op}
        for nodes in (meta.graph_def.node, *(function.node_def for function in meta.graph_def.library.function)):
            found |= {node.op for node in nodes}
    return found


def keras_save(model, path):
    model.save(path, save_format="tf")


def tfra_save(model, path):
    de.keras.models.de_save_model(model, str(path))


def prepared(state):
    # Rows that the model lacks are drawn anew at each lookup, unless they are a constant.
    model = oracle.build("adam", tables=2, initializer=tf.keras.initializers.Constant(0.1))
    if state != "untrained":
        oracle.Trainer(model).train(3)
    rows.write(model, range(0, 30, 2), value=0.25, tables=slice(1))
    return model


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """{name: (path, what the model answers)}, exported in every state of a model, in both ways."""
    directory = tmp_path_factory.mktemp("exports")
    made = {}

    def export(name, model, save):
        path = directory / name
        expected = model(tf.constant(IDS)).numpy()
        save(model, path)
        made[name] = (path, expected)

    for way, save in (("keras", keras_save), ("tfra", tfra_save)):
        for state in ("untrained", "trained", "managed"):
            model = prepared(state)
            if state == "managed":
                # A checkpoint is pending while the model is exported, and one is made after it.
                manager = tfadaptcp.CheckpointManager(model, directory / f"checkpoints-{way}", "incremental")
                manager.save()
            export(f"{way}-{state}", model, save)
            if state == "managed":
                rows.write(model, [1, 3], value=2.0)
                copy = oracle.take(model)
                manager.save()
                manager.wait()
                model.load_adaptcp(directory / f"checkpoints-{way}")
                oracle.check(copy, model, "the export left the tables tracked")
        # What a restore brought is exported like any other.
        fresh = oracle.build("adam", tables=2, seed=6, initializer=tf.keras.initializers.Constant(0.1))
        fresh.load_adaptcp(directory / f"checkpoints-{way}")
        export(f"{way}-restored", fresh, save)
    return made


def test_exports_hold_stock_ops_only(exports):
    for name, (path, _) in exports.items():
        found = ops_of(path)
        assert not {op for op in found if "adaptcp" in op.lower()}, name
        assert "TFRA>CuckooHashTableFind" in found, name


def test_exports_serve_without_tfadaptcp(exports, tmp_path):
    np.save(tmp_path / "ids.npy", IDS)
    paths = [str(path) for path, _ in exports.values()]
    done = subprocess.run([sys.executable, "-c", SERVE, str(tmp_path / "ids.npy"), *paths], cwd=tmp_path,
                          capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    for name, (path, expected) in exports.items():
        np.testing.assert_array_equal(np.load(f"{path}.npy"), expected, err_msg=name)
