"""Restores into another number of shards: rows are routed by the partition function, as a stage of a graph.

Each object is read once, by one host, which keeps it in memory while its rows are sent, block by block, to the hosts of
the shards they belong to now. No row passes through the coordinator.
"""

import json
from typing import Any, Callable, Dict, List

import tensorflow as tf

from tfadaptcp import _ops
from tfadaptcp.checkpoint import objects
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.engine import RESTORE_SECONDS, Engine, Host
from tfadaptcp.matching import GroupPlan, Plan


def restore(engine: Engine, head: Manifest, levels: List[Dict[str, Any]], plan: Plan) -> None:
    """Applies levels, newest first; the objects of a level in parallel, each level after the one before it."""
    specs = objects.specs(head)
    number = engine.restore
    routes = {group.theirs.name: {host.index: _route(engine, host, group) for host in engine.hosts}
              for group in plan.groups}
    for level in levels:
        calls = {}
        for i, item in enumerate(level["objects"]):
            host = engine.hosts[i % len(engine.hosts)]
            calls.setdefault(host.index, []).append(item)
        engine.parallel({index: (lambda index=index, items=items: [
            _route_object(engine, engine.hosts[index], item, level, head, specs, routes, number) for item in items])
            for index, items in calls.items()}, RESTORE_SECONDS)


def _route_object(engine: Engine, host: Host, item: Dict[str, Any], level: Dict[str, Any], head: Manifest,
                  specs: Dict[str, Any], routes: Dict[str, Dict[int, Callable]], number: int) -> None:
    ops = _ops.lib()
    name = f"{engine.session}/{item['path']}"
    blocks = engine.call(host, ops.adaptcp_open_segment, {"name": name, "object": item, "specs": specs})["blocks"]
    try:
        for group in sorted(blocks.keys() & routes.keys()):
            request = {"session": engine.session, "restore": number, "group": routes[group][host.index].group,
                       "head": head.sequence, "sequence": level["sequence"], "differential": level["differential"]}
            shards = [json.dumps({**request, "shard": shard})
                      for shard in range(routes[group][host.index].num_shards)]
            for block in range(blocks[group]):
                routes[group][host.index](tf.constant(name), tf.constant(block, tf.int64), tf.constant(shards))
    finally:
        with tf.device(host.device):
            ops.adaptcp_close_segment(name)


def _route(engine: Engine, host: Host, plan: GroupPlan) -> Callable:
    """Returns a function that sends one block of a group, read on `host`, to the shards."""
    ops = _ops.lib()
    theirs, ours, take = plan.theirs, plan.ours, plan.take
    group = next(group for group in engine.groups if group.name == ours.name)
    devices = {}
    for other in engine.hosts:
        for shard in other.shards:
            if shard.group.name == group.name:
                devices[shard.index] = other.device
    dtypes = [tf.as_dtype(table.dtype) for table in theirs.tables]
    key_dtype = tf.as_dtype(theirs.key_dtype)

    @tf.function(autograph=False)
    def route(segment, block, requests):
        with tf.device(host.device):
            keys, p, present, values = ops.adaptcp_segment_rows(segment, theirs.name, block, Tkeys=key_dtype,
                                                                Tvalues=dtypes)
            keys = tf.reshape(keys, [-1])
            shard_of = group.variable.partition_fn(keys, ours.num_shards)
        for shard in range(ours.num_shards):
            with tf.device(host.device):
                rows = tf.reshape(tf.where(tf.equal(shard_of, shard)), [-1])
                # Tables that stay as they are get no rows.
                flags = tf.stack([tf.gather(present[:, i], rows) if i is not None
                                  else tf.zeros(tf.shape(rows), tf.bool) for i in take], axis=1)
                parts = [tf.cast(tf.gather(values[i], rows), tf.as_dtype(table.dtype)) if i is not None
                         else tf.zeros([tf.size(rows), table.dim], tf.as_dtype(table.dtype))
                         for i, table in zip(take, ours.tables)]
                sent = [tf.gather(keys, rows), tf.gather(p, rows), flags]
            with tf.device(devices[shard]):
                ops.adaptcp_restore_rows(requests[shard], *sent, parts)

    route.num_shards = ours.num_shards
    route.group = ours.name
    return route
