"""The hosts that hold parts of a model, and calls to them.

Every call to a host is an eager op placed there. Calls to several hosts are made in parallel, from threads with an
executor of their own: a long op on the default one would stop all training.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import tensorflow as tf
from tensorflow.python.eager import context, executor

from tfadaptcp import background
from tfadaptcp.embeddings import dense, discovery
from tfadaptcp.errors import AdaptCPError, DeadlineError

LOCAL = "/job:localhost"  # the job of this process, without a cluster
# How long a host may take to answer, where nothing else is said; and to write or list what may be terabytes.
CALL_SECONDS = 600.0
LONG_SECONDS = 6 * 3600.0


@dataclasses.dataclass(frozen=True)
class Shard:
    """One shard of a group, on one host."""
    group: discovery.Group
    index: int

    @property
    def handles(self) -> List[tf.Tensor]:
        return [table.variable.tables[self.index].resource_handle for table in self.group.tables]


@dataclasses.dataclass(frozen=True)
class Host:
    """A parameter server, or this process: what of the model lives there.

    Attributes:
        index: the ps of segments and manifests.
        device: its CPU, by full name.
    """
    index: int
    device: str
    shards: Tuple[Shard, ...]
    dense: Tuple[dense.DenseSlice, ...]

    @property
    def name(self) -> str:
        """For messages: the index alone counts only hosts that hold something of the model."""
        return f"ps {self.index} ({self.device})"


def is_unheard(error: BaseException) -> bool:
    """Whether all that is known is that a host has not answered: it says nothing of what is there."""
    silent = (DeadlineError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError, tf.errors.AbortedError)
    return isinstance(error, silent) and (error.__cause__ is None or is_unheard(error.__cause__))


class Calls:
    """Calls ops on hosts, in the name of a session. Any thread.

    Args:
        session: of the trackers on them.
    """

    def __init__(self, hosts: List[Host], session: str):
        self.hosts, self.session = hosts, session

    def call(self, host: Host, op: Callable, request: Dict[str, Any], *inputs: Any) -> Any:
        """Runs an op with a JSON request, and a JSON reply if it has one, on a host."""
        text = self.text(host, op, json.dumps({**request, "session": self.session}), *inputs)
        return None if text is None else json.loads(text)

    def call_named(self, host: Host, op: Callable) -> Any:
        """Runs an op whose only input is the session, with a JSON reply, on a host."""
        return json.loads(self.text(host, op, self.session))

    def text(self, host: Host, op: Callable, *inputs: Any) -> Optional[bytes]:
        """Runs an op on a host, and returns what it replies, None if that is nothing."""
        inputs = [here(item) if isinstance(item, (str, bytes)) else item for item in inputs]
        with on(host):
            reply = op(*inputs)
            return reply.numpy() if tf.is_tensor(reply) else None

    def on_all(self, function: Callable[[Host], Any], timeout_seconds: float = CALL_SECONDS,
               at_once: bool = False) -> Dict[int, Any]:
        """Calls `function` for each host in parallel; returns the results, or raises an error after all ended.

        Args:
            at_once: raises the first error without waiting for the other calls, which go on.

        Raises:
            DeadlineError: names the hosts that did not answer in time.
            tf.errors.OpError: an op failed on a host, which is named.
        """
        calls = {(host.index, 0): (lambda host=host: function(host)) for host in self.hosts}
        return {index: result for (index, _), result in self.parallel(calls, timeout_seconds, at_once).items()}

    def parallel(self, calls: Dict[Tuple[int, int], Callable[[], Any]], timeout_seconds: float = CALL_SECONDS,
                 at_once: bool = False) -> Dict[Tuple[int, int], Any]:
        """Runs calls, by the index of the host they go to and their number, each in a thread of its own; see `on_all`."""
        results = {key: background.start(call, f"tfadaptcp-ps{key[0]}", _own_executor) for key, call in calls.items()}
        until = concurrent.futures.FIRST_EXCEPTION if at_once else concurrent.futures.ALL_COMPLETED
        done, late = concurrent.futures.wait(results.values(), timeout_seconds, until)
        failures = [self._named(key[0], result.exception()) for key, result in results.items()
                    if result in done and result.exception() is not None]
        # What a host says tells more than that another one says nothing.
        failed = min(failures, key=is_unheard, default=None)
        if failed is not None and (at_once or not late):
            raise failed
        if late:
            names = ", ".join(self.hosts[index].name for index in sorted({key[0] for key in calls if results[key] in late}))
            raise DeadlineError(f"No answer after {timeout_seconds:g} s from {names}"
                                + ("" if failed is None else f"; and {failed}")) from failed
        return {key: result.result() for key, result in results.items()}

    def _named(self, index: int, error: BaseException) -> BaseException:
        """The error of a call to a host, which says which host that was."""
        host = self.hosts[index]
        if (not isinstance(error, tf.errors.OpError) or isinstance(error, AdaptCPError) or type(error) is tf.errors.OpError
                or host.device.startswith(LOCAL)):
            return error
        named = type(error)(error.node_def, error.op, f"{host.name}: {error.message}")
        named.__cause__ = error
        return named


def hosts_of(groups: List[discovery.Group], slices: List[dense.DenseSlice]) -> List[Host]:
    """All hosts that hold shards of these groups, or these slices; this process if there are none."""
    shards: Dict[str, List[Shard]] = {}
    parts: Dict[str, List[dense.DenseSlice]] = {}
    for group in groups:
        for i, device in enumerate(group.devices):
            shards.setdefault(cpu_of(device), []).append(Shard(group, i))
    for item in slices:
        parts.setdefault(cpu_of(item.device), []).append(item)
    devices = sorted(set(shards) | set(parts), key=lambda device: (_task(device), device)) or [cpu_of("")]
    return [Host(i, device, tuple(shards.get(device, ())), tuple(parts.get(device, ())))
            for i, device in enumerate(devices)]


def cpu_of(device: str) -> str:
    """The CPU of the process that a device belongs to."""
    spec = tf.DeviceSpec.from_string(device or f"{LOCAL}/replica:0/task:0")
    return tf.DeviceSpec(job=spec.job or "localhost", replica=spec.replica or 0, task=spec.task or 0,
                         device_type="CPU", device_index=0).to_string()


def is_on(host: Host, value: Any) -> bool:
    """Whether this is a variable whose value is there."""
    return isinstance(value, tf.Variable) and cpu_of(value.device) == host.device


def _task(device: str) -> int:
    return tf.DeviceSpec.from_string(device).task or 0


def here(text: Union[str, bytes]) -> tf.Tensor:
    """A tensor in this process, for an op elsewhere. Made in the scope of another host's device it would be sent there by a
    thread that holds Python's lock meanwhile: a host that stands still would then stop this whole process."""
    with tf.device("/device:CPU:0"):
        return tf.constant(text)


def on(host: Host) -> Any:
    """The scope in which ops are placed there."""
    return tf.device(host.device)


@contextlib.contextmanager
def _own_executor():
    # When it is dropped it waits for all it was ever given, also for handles of other hosts that Python's collector
    # happened to release in this thread: for a host that stands still, long after this one has answered.
    with context.executor_scope(executor.new_executor(enable_async=False)):
        yield
