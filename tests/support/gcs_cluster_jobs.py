"""A checkpointed job under ``ParameterServerStrategy`` on gs://, for a process of its own (`run_job`)."""

from __future__ import annotations

import os

import tfadaptcp

import numpy as np

from tests.servers import gcs
from tests.servers.proxied import Proxied, at_once
from tests.support import embedding_model as em
from tests.support.cluster_jobs import ADAPTIVE, CHECKPOINTS, ORACLE, CopyEachCut, adam, differences, full_copy, two_tables
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.testing import LocalCluster


def _objects_of(checkpoint: str) -> list[str]:
    return [ref.path for ref in commit.load(Store(), CHECKPOINTS, checkpoint).objects]


def train_and_restore():
    """Trains on two parameter servers, which upload side by side, and restores every checkpoint into them."""
    proxy = Proxied.connect(os.environ["GCS_PROXY"])
    with LocalCluster(1, 2) as cluster:
        with cluster.strategy().scope():
            model = two_tables(2, adam())
        checkpoints = tfadaptcp.AdaptCPCallback(CHECKPOINTS, 20, ADAPTIVE, max_to_keep=100, on_failure="stop",
                                                save_at_end=False)
        model.fit(em.batches(), steps_per_epoch=80, verbose=0, callbacks=[checkpoints, CopyEachCut(checkpoints)])
        saved = proxy.log()
        wrong = {}
        for info in checkpoints.manager.checkpoints:
            model.load_adaptcp(CHECKPOINTS, info.name)
            wrong[info.name] = differences(np.load(ORACLE / f"{info.name}.npz"), full_copy(model))
        written = gcs.written(saved)
        before = len(proxy.log())
        report = model.load_adaptcp(CHECKPOINTS)
        read = [request for request in proxy.log(before) if gcs.is_read(request)]
        segments = [request for request in read if request.path.endswith(".seg")]
        return {"read": [sum(request.down for request in segments), report.bytes_read],
                "objects": [len({request.path for request in segments}), len(_objects_of(report.checkpoint))],
                "wrong": wrong, "written": len(written), "names": len(set(written)),
                "uploads_at_once": at_once(saved, gcs.is_upload),
                "reads_at_once": at_once(proxy.log(len(saved)), gcs.is_read)}
