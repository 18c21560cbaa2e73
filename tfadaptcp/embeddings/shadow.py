"""Give every worker its own scratch space for TFRA embedding lookups.

TFRA trains a dynamic embedding through a ``ShadowVariable``: the ids of the batch, a flag per id
(``exists``) and the looked-up rows are written into three resource variables, the optimizer works
on those, and the result is written back to the table. This is scratch space that belongs to one
step. Under ``tf.distribute.ParameterServerStrategy`` TFRA creates it once, on the coordinator, and
the train function captures its handles; two workers running steps at the same time overwrite each
other's ids and rows. With batches of different sizes that raises ("indices[490] = 490 is not in
[0,490)"), with equal sizes rows are silently written back under the wrong keys.

The fix: inside a ``tf.function`` the handle of such a variable is not captured by value but asked
for at each call. A call that a ``ClusterCoordinator`` makes for a worker gets a resource that lives
on that worker; any other call gets the stock one. A worker runs one step at a time, so a resource
per worker is enough. The resources are registered with the worker as resources of the coordinator
are, which makes TensorFlow build them again when a worker comes back from a restart.

Nothing changes where no parameter servers are in play, in eager code on the coordinator, and while
a SavedModel is written.
"""

from __future__ import annotations

import collections
import functools
import threading
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, parameter_server_strategy_v2, ps_values
from tensorflow.python.distribute.coordinator import (
    cluster_coordinator,
    coordinator_context,
    values,
)
from tensorflow.python.eager import context, record
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import (
    control_flow_v2_func_graphs,
    gen_resource_variable_ops,
    resource_variable_ops,
)
from tensorflow.python.saved_model import save_context
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import shadow_embedding_ops

_SCRATCH = "_tfadaptcp_worker_scratch"  # in the __dict__ of a patched variable
_create_lock = threading.Lock()
# Handles of resources whose variable is gone, by worker.
_discarded_on = weakref.WeakKeyDictionary()


class _CaptureKey:
    """Identity of one variable among the call-time captures of a function graph."""

    __slots__ = ()


class _Resource:
    """One resource variable on one worker.

    TensorFlow's anonymous variables are not reference counted: a model dropped by the user would
    leave its scratch space behind on every worker. The usual deleter, a remote operation from a
    destructor, is no help: on a worker that was killed its error stays in the executor of the
    thread that happened to collect the object, and surfaces in an unrelated operation. So the
    destructor only notes the handle, and the worker's own thread destroys the resource when it
    makes the next one.
    """

    def __init__(self, handle: tf.Tensor, discarded: collections.deque):
        self.handle = handle
        self.lost = False  # gone with the worker that had it
        self._discarded = discarded

    def __del__(self):
        if not self.lost:
            self._discarded.append(self.handle)


class _ResourceValue(values.RemoteValueImpl):
    """The remote value of a ``_Resource``."""

    def _set_aborted(self, error):
        if self._values is not None:
            self._values.lost = True
        super()._set_aborted(error)


class _ResourceClosure(cluster_coordinator.ResourceClosure):
    """What the coordinator runs again when the worker comes back."""

    def _init_remote_value(self):
        return _ResourceValue(self, self._output_type_spec)


class _WorkerScratch:
    """The copies of one scratch variable, one per worker, each made at its first use.

    ``handle_on`` is called on the coordinator's thread of that very worker only, so a copy is
    never made twice; the map itself is shared by these threads and locked. Holds no reference to
    the variable (function graphs keep this object alive) nor to a coordinator (whose destructor
    stops its threads).
    """

    def __init__(self, initial_shape: tuple[int, ...], dtype: tf.DType, local_device: str):
        self.key = _CaptureKey()
        self._initial_shape = initial_shape
        self._dtype = dtype
        self._local_device = local_device
        self._lock = threading.Lock()
        # By worker object, not by index: strategies may follow one another in a process.
        self._values = weakref.WeakKeyDictionary()

    def handle_on(self, worker: cluster_coordinator.Worker) -> tf.Tensor:
        """Returns the handle of the copy on ``worker``, made now if there is none.

        Blocks for one round trip to the worker when the copy has to be made. Raises what the
        remote operation raises; the coordinator then treats the step as failed on this worker.
        """
        with self._lock:
            value = self._values.get(worker)
        if value is None:
            value = self._register(worker)
        if value._values is None:
            # New, or lost with an earlier incarnation of the worker and not made again yet.
            value._rebuild_on(worker)
        return value._values.handle

    def _register(self, worker):
        # What ClusterCoordinator._create_per_worker_resources does, less the queueing: we are on
        # the worker's own thread and need the value before the step that is being dispatched.
        with _create_lock:
            discarded = _discarded_on.setdefault(worker, collections.deque())
        closure = _ResourceClosure(
            functools.partial(self._create, worker.device_name, discarded),
            worker._cluster.resource_cancellation_mgr,
        )
        value = closure.build_output_remote_value()
        with worker._resource_tracking_lock:
            worker._register_resource(value)
        with self._lock:
            self._values[worker] = value
        return value

    def _create(self, worker_device: str, discarded: collections.deque) -> _Resource:
        with record.stop_recording(), ops.device(worker_device + self._local_device):
            while discarded:
                gen_resource_variable_ops.destroy_resource_op(
                    discarded.popleft(), ignore_lookup_error=True
                )
            initial = tf.zeros(self._initial_shape, self._dtype)
            handle = resource_variable_ops.eager_safe_variable_handle(
                initial_value=initial,
                shape=tf.TensorShape(None),
                shared_name=None,
                name="tfadaptcp_scratch",
                graph_mode=False,
            )
            gen_resource_variable_ops.assign_variable_op(handle, initial)
        return _Resource(handle, discarded)


class _PerWorkerHandle:
    """Data descriptor that stands in for the ``_handle`` attribute of a scratch variable.

    The stock handle stays where it always was, in the instance's ``__dict__``; variables made
    before ``install()`` are therefore covered too.
    """

    def __get__(self, variable: Any, owner: type | None = None) -> Any:
        if variable is None:
            return self
        try:
            stock = variable.__dict__["_handle"]
        except KeyError:
            raise AttributeError(
                f"'{type(variable).__name__}' object has no attribute '_handle'"
            ) from None
        if context.executing_eagerly() or save_context.in_save_context():
            return stock
        graph = ops.get_default_graph()
        if not isinstance(graph, func_graph.FuncGraph) or not _under_parameter_servers():
            return stock
        _check_buffers(variable)
        return _capture(graph, _scratch_of(variable), stock)

    def __set__(self, variable: Any, handle: Any) -> None:
        variable.__dict__["_handle"] = handle


def _device(variable: Any) -> str:
    """The ``device`` property: a call-time handle has none, and optimizers ask for one."""
    return variable.handle.device or _local_device(variable)


def _capture(graph: func_graph.FuncGraph, scratch: _WorkerScratch, stock: tf.Tensor) -> tf.Tensor:
    """Returns a placeholder in ``graph`` that is fed, at each call, with the handle to use."""

    def handle_at_call_time() -> tf.Tensor:
        dispatch = coordinator_context.get_current_dispatch_context()
        return stock if dispatch is None else scratch.handle_on(dispatch.worker)

    # One key per variable: all accesses in a graph must share one placeholder, or automatic
    # control dependencies would not order reads after writes. `default_value` is what a function
    # traced earlier contributes to a SavedModel.
    return graph.capture_call_time_value(
        handle_at_call_time,
        ps_values.PerWorkerVariableSpec(value=stock),
        key=scratch.key,
        default_value=stock,
    )


def _capture_in_enclosing_function(
    self, closure, spec, key=None, default_value=None, placeholder=None
):
    """``capture_call_time_value`` of the graphs of conditional branches and loop bodies.

    Such a graph is not called from Python: nothing feeds a call-time capture in a branch (TF 2.16
    knows to feed those of loop bodies). The enclosing function makes the capture, and this graph
    takes the placeholder in as it takes any outer tensor.
    """
    if isinstance(key, _CaptureKey) and isinstance(self.outer_graph, func_graph.FuncGraph):
        outer = self.outer_graph
        # Without this the placeholder could inherit what the code around the branch depends on.
        with outer.control_dependencies(None), outer.device(None):
            return outer.capture_call_time_value(closure, spec, key, default_value, placeholder)
    return super(
        control_flow_v2_func_graphs.ControlFlowFuncGraph, self
    ).capture_call_time_value(closure, spec, key, default_value, placeholder)


def _scratch_of(variable: Any) -> _WorkerScratch:
    scratch = variable.__dict__.get(_SCRATCH)
    if scratch is None:
        with _create_lock:
            scratch = variable.__dict__.get(_SCRATCH)
            if scratch is None:
                scratch = _WorkerScratch(
                    _initial_shape(variable), variable.dtype, _local_device(variable)
                )
                variable.__dict__[_SCRATCH] = scratch
    return scratch


def _initial_shape(variable: Any) -> tuple[int, ...]:
    if isinstance(variable, shadow_embedding_ops.ShadowVariable):
        return (0, variable.params.dim)
    return (0,)


def _local_device(variable: Any) -> str:
    """The part of the stock handle's device that does not name a host: "/device:CPU:0"."""
    spec = tf.DeviceSpec.from_string(variable.__dict__["_handle"].device or "/device:CPU:0")
    return f"/device:{spec.device_type or 'CPU'}:{spec.device_index or 0}"


def _under_parameter_servers() -> bool:
    if distribute_lib.has_strategy():
        return isinstance(
            distribute_lib.get_strategy(), parameter_server_strategy_v2.ParameterServerStrategyV2
        )
    # A step function that is scheduled without `strategy.run` is traced outside of any strategy.
    server = context.context().get_server_def()
    return server is not None and any(job.name == "ps" for job in server.cluster.job)


def _check_buffers(variable: Any) -> None:
    """Refuses buffers given by the user that can't be made per worker."""
    if not isinstance(variable, shadow_embedding_ops.ShadowVariable):
        return
    for role in ("ids", "exists"):
        buffer = getattr(variable, role, None)
        if buffer is not None and not isinstance(
            buffer, shadow_embedding_ops.DEResourceVariable
        ):
            raise ValueError(
                f"The `{role}` buffer of ShadowVariable '{variable.name}' would be shared by all "
                "workers of the ParameterServerStrategy, which mixes up their batches. Leave "
                f"`{role}` out, or pass that of another ShadowVariable. "
                f"Received: {type(buffer).__name__}. Expected: DEResourceVariable."
            )


def install() -> None:
    """Makes TFRA's scratch variables safe under ``ParameterServerStrategy``.

    Patches ``ShadowVariable`` and ``DEResourceVariable`` of TFRA, once and for the whole process;
    further calls do nothing. Variables that exist already are covered, functions that are traced
    already are not. ``import tfadaptcp`` calls it.
    """
    with _create_lock:
        for cls in (shadow_embedding_ops.ShadowVariable, shadow_embedding_ops.DEResourceVariable):
            if not isinstance(cls.__dict__.get("_handle"), _PerWorkerHandle):
                cls._handle = _PerWorkerHandle()
                cls.device = property(_device)
        graph_class = control_flow_v2_func_graphs.ControlFlowFuncGraph
        if "capture_call_time_value" not in graph_class.__dict__:
            graph_class.capture_call_time_value = _capture_in_enclosing_function
