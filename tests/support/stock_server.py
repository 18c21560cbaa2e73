"""A server that knows TFRA, and not tfadaptcp: one whose script lacks the import."""

from __future__ import annotations

import json
import os
import sys

import tensorflow as tf
import tensorflow_recommenders_addons  # noqa: F401

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.distribute.Server(tf.train.ClusterSpec(config["cluster"]), job_name=task["type"], task_index=task["index"],
                              config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4))
assert "tfadaptcp" not in sys.modules
print("tfadaptcp server ready", flush=True)
server.join()
