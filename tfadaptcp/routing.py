"""Restores into another number of shards: rows are routed by the partition function, as a stage of a graph.

Each object is read once, by one host, which sends its rows, piece by piece, to the hosts of the shards they belong to
now. No row passes through the coordinator, which calls each host a few times for a level: the loop over the pieces is in
the graph.
"""

import json
from typing import Any, Callable, Dict, List

import tensorflow as tf

from tfadaptcp import _ops
from tfadaptcp.checkpoint import objects
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.engine import Engine
from tfadaptcp.hosts import Host, here
from tfadaptcp.matching import GroupPlan, Plan
from tfadaptcp.options import EngineOptions

# Loops on each host, each with one piece on its way: one routes while another waits for those who receive.
_LOOPS = 2


def restore(engine: Engine, head: Manifest, levels: List[Dict[str, Any]], plan: Plan, options: EngineOptions,
            timeout_seconds: float) -> None:
    """Applies levels, newest first; the objects of a level in parallel, each level after the one before it."""
    groups = sorted(plan.groups, key=lambda group: group.theirs.name)
    common = {"session": engine.session, "restore": engine.restore}
    shares = _deal(levels, len(engine.hosts))
    routes = {host.index: _route(engine, host, groups) for host in engine.hosts}
    request = {**common, "specs": objects.specs(head), "limits": options.for_restores(),
               "groups": [group.theirs.name for group in groups]}
    engine.on_all(lambda host: engine.call(host, _ops.lib().adaptcp_open_stream, {**request, "levels": shares[host.index]}),
                  options.timeout_seconds)
    for i, level in enumerate(levels):
        piece = here(json.dumps({**common, "level": i}))
        rows = [here([json.dumps({**common, "group": group.ours.name, "shard": shard, "head": head.sequence,
                                  "sequence": level["sequence"], "differential": level["differential"]})
                      for shard in range(group.ours.num_shards)]) for group in groups]
        engine.parallel({(host.index, loop): (lambda route=routes[host.index]: route(piece, rows))
                         for host in engine.hosts if shares[host.index][i]["objects"] for loop in range(_LOOPS)},
                        timeout_seconds, at_once=True)


def _deal(levels: List[Dict[str, Any]], hosts: int) -> List[List[Dict[str, Any]]]:
    """For each host its objects of each level: about the same bytes for all, of each level and of them all."""
    shares: List[List[Dict[str, Any]]] = [[] for _ in range(hosts)]
    total = [0] * hosts
    for level in levels:
        here_and_now = [0] * hosts
        for share in shares:
            share.append({"objects": []})
        for item in sorted(level["objects"], key=lambda item: -item["bytes"]):
            to = min(range(hosts), key=lambda host: (here_and_now[host], total[host], host))
            here_and_now[to] += item["bytes"]
            total[to] += item["bytes"]
            shares[to][-1]["objects"].append(item)
    return shares


def _route(engine: Engine, host: Host, plans: List[GroupPlan]) -> Callable:
    """Returns a function that sends the rows of a level that `host` reads to the shards, until there are no more."""
    ops = _ops.lib()
    senders = [_sender(engine, host, plan) for plan in plans]

    @tf.function(autograph=False)
    def route(piece_request, row_requests):
        def next_piece():
            with tf.device(host.device):
                return ops.adaptcp_next_piece(piece_request)

        def send(group, piece):
            branches = [lambda i=i: senders[i](piece_request, piece, row_requests[i]) for i in range(len(plans))]
            tf.switch_case(group, branches)
            return next_piece()

        tf.while_loop(lambda group, piece: group >= 0, send, next_piece(), parallel_iterations=1)

    return route


def _sender(engine: Engine, host: Host, plan: GroupPlan) -> Callable:
    """Returns what, in a graph, sends a piece of a group to the shards of the group."""
    ops = _ops.lib()
    theirs, ours, take = plan.theirs, plan.ours, plan.take
    group = next(group for group in engine.groups if group.name == ours.name)
    devices = {shard.index: other.device for other in engine.hosts for shard in other.shards
               if shard.group.name == group.name}
    dtypes = [tf.as_dtype(table.dtype) for table in theirs.tables]

    def send(piece_request, piece, row_requests):
        with tf.device(host.device):
            keys, p, present, values = ops.adaptcp_piece_rows(piece_request, piece, Tkeys=tf.as_dtype(theirs.key_dtype),
                                                              Tvalues=dtypes)
            keys = tf.reshape(keys, [-1])
            # As TFRA, which asks nobody where there is one shard.
            shard_of = (tf.zeros_like(keys, tf.int32) if ours.num_shards == 1 else
                        tf.cast(tf.reshape(group.variable.partition_fn(keys, ours.num_shards), [-1]), tf.int32))
            # Tables that stay as they are get no rows.
            flags = tf.stack([tf.zeros(tf.shape(keys), tf.bool) if i is None else present[:, i] for i in take], axis=1)
            columns = [keys, p, flags] + [tf.cast(values[i], tf.as_dtype(table.dtype))
                                          for i, table in zip(take, ours.tables) if i is not None]
            parts = [tf.dynamic_partition(column, shard_of, ours.num_shards) for column in columns]
        for shard in range(ours.num_shards):
            with tf.device(devices[shard]):
                sent = iter([part[shard] for part in parts])
                head = [next(sent), next(sent), next(sent)]
                rows = [tf.zeros([0, table.dim], tf.as_dtype(table.dtype)) if i is None else next(sent)
                        for i, table in zip(take, ours.tables)]
                ops.adaptcp_restore_rows(row_requests[shard], *head, rows)
        return tf.constant(0)

    return send
