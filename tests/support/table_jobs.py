"""Jobs on a cluster whose tables are restricted and cleared."""

from __future__ import annotations

import tempfile

import tfadaptcp
from tests.support import embedding_model as em
from tests.support import oracle

import tensorflow_recommenders_addons.dynamic_embedding as de

from tfadaptcp.testing import LocalCluster


def restricted_and_cleared():
    with LocalCluster(num_workers=2, num_ps=2) as cluster, tempfile.TemporaryDirectory() as directory:
        with cluster.strategy().scope():
            layer = em.embedding("table", em.ps_devices(2), restrict_policy=de.FrequencyRestrictPolicy)
            model = em.functional_model([layer])
            model.compile(em.adam(0.02), "mse")
        callback = tfadaptcp.AdaptCPCallback(directory, save_freq=20, on_pending="wait")
        model.fit(em.batches(), steps_per_epoch=60, verbose=0, callbacks=[callback])
        manager = callback.manager
        copies = {}
        changes = [lambda: layer.params.restrict(500), layer.params.clear, lambda: em.fill(layer, 100)]
        for change in changes:
            change()
            copy = oracle.take(model)
            copies[manager.save().name] = copy
            manager.wait()
        written = [sorted(info.rows) for info in manager.checkpoints]
        found = {}
        for name in reversed(copies):
            model.load_adaptcp(directory, name)
            found[name] = oracle.difference(copies[name], oracle.take(model))
        return {"differences": list(found.values()), "rows": [copy.rows() for copy in copies.values()],
                "written": written[-3:]}
