"""Jobs on one host: TFRA as it is, and the same with the shadow fix installed."""

from __future__ import annotations

import hashlib
import os
import sys

from tests.support import embedding_model as em

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import shadow_embedding_ops


def _train():
    tf.keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    layer = em.embedding("table")
    model = em.functional_model([layer])
    model.compile(em.adam(0.02), "mse")
    em.fill(layer)
    model.fit(em.batches(), steps_per_epoch=30, verbose=0)
    keys = tf.range(em.KEYS, dtype=tf.int64)
    digest = hashlib.sha256(layer.params.lookup(keys).numpy().tobytes())
    for slot in layer.shadow._optimizer_vars.value:
        digest.update(slot.lookup(keys).numpy().tobytes())
    for variable in model.trainable_variables:
        if variable is not layer.shadow:
            digest.update(variable.numpy().tobytes())

    @tf.function
    def look_up():
        return layer(keys), layer.shadow.handle

    graph = look_up.get_concrete_function().graph
    handles = [layer.shadow.handle, layer.shadow.ids.handle]
    return {
        "rows": digest.hexdigest(),
        "device": layer.shadow.device,
        "call_time_captures": len(graph.deferred_external_captures),
        "handles_captured": all(
            any(handle is captured for captured in graph.external_captures) for handle in handles
        ),
        "patched": "_handle" in vars(shadow_embedding_ops.ShadowVariable),
    }


def train_stock():
    return _train()


def train_patched():
    from tfadaptcp.embeddings import shadow

    shadow.install()
    shadow.install()
    return _train()


def load_exported():
    path = os.environ["EXPORT_PATH"]
    _drop_devices(os.path.join(path, "saved_model.pb"))
    loaded = tf.saved_model.load(path)
    ids = tf.reshape(tf.range(64, dtype=tf.int64), [-1, em.COLUMNS])
    out = loaded.signatures["serving_default"](ids=ids)["out"]
    return {"out": out.numpy().tolist(), "tfadaptcp_loaded": "tfadaptcp" in sys.modules}


def _drop_devices(file: str) -> None:
    """TFRA exports tables with the ps they were on, which one host does not have."""
    model = saved_model_pb2.SavedModel()
    with open(file, "rb") as stream:
        model.ParseFromString(stream.read())
    for graph in (meta.graph_def for meta in model.meta_graphs):
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            for node in nodes:
                node.device = ""
    with open(file, "wb") as stream:
        stream.write(model.SerializeToString())
