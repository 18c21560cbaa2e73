"""A worker or parameter server process: ``python -m tfadaptcp.server``.

Reads ``TF_CONFIG`` and serves until it is killed. TFRA's and tfadaptcp's operations, and the file
systems of tensorflow-io where it is installed, are loaded before the server starts: a server does
not see operations that are registered later.

A script of your own does as well, if it imports ``tfadaptcp`` before it starts
``tf.distribute.Server`` and leaves more than one inter-op thread.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import NoReturn

import tensorflow as tf
import tensorflow_recommenders_addons  # noqa: F401  registers its operations, as the package does its own

INTER_OP_THREADS_VARIABLE = "TFADAPTCP_INTER_OP_THREADS"
_DEFAULT_INTER_OP_THREADS = 4
_SERVING_JOBS = ("worker", "ps", "chief", "evaluator")


class ServerConfigError(ValueError):
    """``TF_CONFIG``, an argument of ``run`` or an environment variable is missing or wrong."""


def read_tf_config(text: str | None) -> tuple[dict[str, list[str]], str, int]:
    """Parses the value of ``TF_CONFIG``.

    Args:
      text: the JSON text, None if the variable is not set.

    Returns:
      The addresses by job name, the job of this process, its index in the job.

    Raises:
      ServerConfigError: names what was received and what was expected.
    """
    example = (
        '{"cluster": {"worker": ["host:port"], "ps": ["host:port"]}, '
        '"task": {"type": "ps", "index": 0}}'
    )
    if not text:
        raise ServerConfigError(f"TF_CONFIG is not set. Expected: {example}")
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ServerConfigError(
            f"TF_CONFIG is not JSON ({error}). Received: {text!r}. Expected: {example}"
        ) from error
    if not isinstance(config, dict):
        raise ServerConfigError(f"TF_CONFIG is not an object. Received: {text!r}")
    task = config.get("task")
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise ServerConfigError(
            f'TF_CONFIG has no usable "task". Received: {task!r}. '
            'Expected: {"type": <job name>, "index": <number>}'
        )
    try:
        index = int(task["index"])
    except (TypeError, ValueError):
        raise ServerConfigError(
            f'The task index in TF_CONFIG is not a number. Received: {task["index"]!r}'
        ) from None
    cluster = _check_cluster(config.get("cluster"))
    job = task["type"]
    _check_task(cluster, job, index)
    return cluster, job, index


def _check_cluster(cluster: object) -> dict[str, list[str]]:
    if not isinstance(cluster, Mapping) or not cluster:
        raise ServerConfigError(
            f"The cluster is not a map of jobs. Received: {cluster!r}. "
            'Expected: {"worker": ["host:port", ...], "ps": ["host:port", ...]}'
        )
    checked = {}
    for job, addresses in cluster.items():
        if isinstance(addresses, (str, bytes)) or not isinstance(addresses, Sequence):
            raise ServerConfigError(
                f"Job '{job}' of the cluster is not a list. Received: {addresses!r}. "
                'Expected: ["host:port", ...]'
            )
        for address in addresses:
            host, _, port = str(address).rpartition(":")
            if not isinstance(address, str) or not host or not port.isdigit():
                raise ServerConfigError(
                    f"An address of job '{job}' is malformed. Received: {address!r}. "
                    'Expected: "host:port"'
                )
        checked[job] = list(addresses)
    return checked


def _check_task(cluster: Mapping[str, Sequence[str]], job: object, index: int) -> None:
    if job not in _SERVING_JOBS or job not in cluster:
        raise ServerConfigError(
            f"This process's job is not a job of the cluster. Received: {job!r}. "
            f"Expected one of: {sorted(set(cluster) & set(_SERVING_JOBS))}"
        )
    if not 0 <= index < len(cluster[job]):
        raise ServerConfigError(
            f"The task index is out of range. Received: {index}. "
            f"Expected: 0 to {len(cluster[job]) - 1}, job '{job}' has {len(cluster[job])} tasks"
        )


def inter_op_threads(value: int | str | None = None) -> int:
    """Returns the number of inter-op threads to serve with.

    Args:
      value: a number, or None for ``TFADAPTCP_INTER_OP_THREADS`` or, without that, 4.

    Raises:
      ServerConfigError: not a number, or below 2. With a single thread a server hangs: a step
        that waits for another host keeps the only thread that could answer.
    """
    source = "inter_op_parallelism_threads"
    if value is None:
        source = INTER_OP_THREADS_VARIABLE
        value = os.environ.get(source) or _DEFAULT_INTER_OP_THREADS
    try:
        threads = int(value)
    except (TypeError, ValueError):
        threads = 0
    if threads < 2:
        raise ServerConfigError(f"{source} is wrong. Received: {value!r}. Expected: 2 or more")
    return threads


def run(
    cluster_spec: Mapping[str, Sequence[str]] | None = None,
    job: str | None = None,
    index: int | None = None,
    *,
    protocol: str = "grpc",
    inter_op_parallelism_threads: int | None = None,
) -> NoReturn:
    """Serves one task of a cluster; never returns.

    Prints one line that starts with "tfadaptcp server ready" when it answers.

    Args:
      cluster_spec: addresses ("host:port") by job name. None: everything is read from
        ``TF_CONFIG``.
      job: job of this process, "worker" or "ps" as a rule. Only with ``cluster_spec``.
      index: index of this process in its job. Only with ``cluster_spec``.
      protocol: protocol of ``tf.distribute.Server``.
      inter_op_parallelism_threads: at least 2. None: see ``inter_op_threads``.

    Raises:
      ServerConfigError: the configuration is missing or wrong.
      tf.errors.OpError: the server can't start, for example because the port is taken.
    """
    threads = inter_op_threads(inter_op_parallelism_threads)
    if cluster_spec is None:
        if job is not None or index is not None:
            raise ServerConfigError(
                f"`job` and `index` need `cluster_spec`. Received: job={job!r}, index={index!r}"
            )
        cluster, job, index = read_tf_config(os.environ.get("TF_CONFIG"))
    else:
        if job is None or index is None:
            raise ServerConfigError(
                f"`cluster_spec` needs `job` and `index`. Received: job={job!r}, index={index!r}"
            )
        cluster = _check_cluster(cluster_spec)
        _check_task(cluster, job, index)

    _load_file_systems()
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster),
        job_name=job,
        task_index=index,
        protocol=protocol,
        config=config,
    )
    print(
        f"tfadaptcp server ready: /job:{job}/task:{index} at {cluster[job][index]}, "
        f"pid {os.getpid()}",
        flush=True,
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would never run: `join` does not come back
    server.join()
    raise SystemExit(0)


def _load_file_systems() -> None:
    """Registers the file systems of tensorflow-io (hdfs, s3, ...), if it is installed."""
    try:
        import tensorflow_io  # noqa: F401
    except ImportError as error:
        if error.name != "tensorflow_io":
            print(f"tfadaptcp.server: tensorflow-io can't be loaded: {error}", file=sys.stderr)


def main() -> int:
    """Entry point of ``python -m tfadaptcp.server``."""
    try:
        run()
    except ServerConfigError as error:
        print(f"tfadaptcp.server: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
