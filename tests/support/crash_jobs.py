"""A process that is killed while it makes checkpoints.

Its argument is {"directory", "oracle", "plan", "early", "cluster"} in JSON; it answers with a line of JSON.
With a cluster, {"worker": [...], "ps": [...]}, the tables live on its parameter servers.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from pathlib import Path

import tensorflow as tf

import tfadaptcp
from tests.support import embedding_model as em
from tests.support import faults, lines, oracle, rows
from tests.support.checkpoint_dirs import check_clean
from tests.support.saving import Eager
from tfadaptcp.checkpoint import commit, retention
from tfadaptcp.checkpoint.store import Store

KEEP = 2
POLICY = Eager(restore_weight=8.0, renewal="period", first_period=3, decay=0.5, max_restore_factor=20.0)
OPTIONS = tfadaptcp.EngineOptions(segment_bytes=4096, block_bytes=1024)


class Job:
    """One life: checks what the lives before left, goes on from there, and dies by the plan."""

    def __init__(self, directory: str, copies: str, early_plan: str, cluster: dict[str, list[str]] | None = None):
        self.directory, self.copies = directory, Path(copies)
        if cluster is None:
            self.model = oracle.build("momentum", devices=["/CPU:0", "/CPU:0"], dim=2)
        else:
            resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
            with tf.distribute.ParameterServerStrategy(resolver).scope():
                self.model = oracle.build("momentum", devices=em.ps_devices(len(cluster["ps"])), dim=2,
                                          clear=False)
        faults.set_plan(early_plan)
        self.manager = tfadaptcp.CheckpointManager(self.model, directory, POLICY, engine=OPTIONS, max_to_keep=KEEP)
        self.acknowledged = self.copies / "acknowledged"

    def run(self, plan: str | None) -> int:
        """Returns the file operations made under the plan: that given here, from when all is checked, or the early one."""
        self.check_what_is_there()
        # Whatever was left broken is gone after two passes, and training goes on.
        self.checkpoint()
        self.checkpoint()
        # Data of manifests deleted by one pass goes with the next.
        scan = self.manager._scan
        held = [] if scan is None else [scan.name]
        retention.collect(Store(), self.directory, self.manager._claim, KEEP, held)
        check_clean(Store(), self.directory, held)
        if plan is not None:
            faults.set_plan(plan)
        # Through a renewal of the base and a passing out of heads, as these follow from the count so far.
        for _ in range(3):
            self.checkpoint()
        return faults.count()

    def check_what_is_there(self) -> None:
        heads, _ = commit.list_heads(Store(), self.directory)
        if not self.acknowledged.exists():
            assert not heads
            return
        names = [head.name for head in heads]
        last = int(self.acknowledged.read_text())
        steps = [head.step for head in heads]
        assert last in steps, f"step {last} was acknowledged, there are {steps}"
        assert max(steps) <= last + 1
        for name in names[:-1]:
            report = self.manager.restore(name)
            oracle.check(self.copy_of(report.step), self.model, name)
        report = self.manager.restore()
        assert report.checkpoint == names[-1]
        oracle.check(self.copy_of(report.step), self.model, f"newest, {report.checkpoint}")

    def copy_of(self, step: int) -> oracle.Copy:
        return pickle.loads((self.copies / str(step)).read_bytes())

    def checkpoint(self) -> None:
        step = int(self.model.optimizer.iterations.numpy()) + 1
        self.model.optimizer.iterations.assign(step)
        rows.write(self.model, [*range(20), *range(20 + step % 7, 120, 7)], seed=step)
        rows.remove(self.model, [20 + step % 50])
        # The step of a life that died is made anew, with the same values.
        (self.copies / str(step)).write_bytes(pickle.dumps(oracle.take(self.model)))
        assert self.manager.save().step == step
        rows.write(self.model, range(10), seed=step + 1_000_000)  # after the cut
        self.manager.wait()
        self.acknowledged.write_text(str(step))


def main() -> None:
    request = json.loads(sys.argv[1])
    reply = {}
    try:
        plans = (request["plan"], None) if request["early"] else ("", request["plan"])
        reply["operations"] = Job(request["directory"], request["oracle"], plans[0],
                                  request["cluster"]).run(plans[1])
    except BaseException:
        reply["error"] = traceback.format_exc()
    lines.say("REPLY " + json.dumps(reply))
    os._exit(0)


if __name__ == "__main__":
    main()
