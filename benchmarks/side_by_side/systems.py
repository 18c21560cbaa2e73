"""The systems that are compared, each in its best honest form."""

import dataclasses
import re
from typing import Any, Callable, Dict, List, Optional

from benchmarks.side_by_side.bases import Switch
from benchmarks.side_by_side.job import Job


class Nothing:
    """Saves nothing. Also what the savers have in common: the base of the others."""

    def __init__(self, job: Job, directory: str, pending: str):
        self._job, self._directory, self._pending = job, directory, pending

    def save(self) -> None:
        """A checkpoint is due: returns when training may go on. Steps have ended."""

    def finish(self) -> None:
        """Returns when all that was saved is stored; raises what failed."""

    def close(self) -> None:
        """Nothing will be saved any more."""

    def stats(self) -> Dict[str, Any]:
        """Counters: "saves" that were due, "committed" and "skipped" among them, and what else there is to tell."""
        return {"saves": 0, "committed": 0, "skipped": 0}


class Ours(Nothing):
    """A policy of tfadaptcp's engine."""

    def __init__(self, job: Job, directory: str, pending: str, policy: Any, engine: Optional[Dict[str, Any]] = None,
                 quantization: Any = None):
        super().__init__(job, directory, pending)
        import tfadaptcp
        self.new_bases = Switch()
        policy = self.new_bases.put_into(tfadaptcp.policies.get(policy))
        own = getattr(policy, "engine_options", tfadaptcp.EngineOptions())
        # Checkpoints may take long here, and none may be given up.
        options = dataclasses.replace(own, timeout_seconds=3600.0, update_wait_seconds=3600.0, **(engine or {}))
        self._manager = tfadaptcp.CheckpointManager(job.model, f"{directory}/ours", policy, max_to_keep=2,
                                                    engine=options, quantization=quantization)

    def save(self) -> None:
        self._manager.save(on_pending=self._pending, batch=self._job.step)
        error = self._manager.poll()
        if error is not None:
            raise error

    def finish(self) -> None:
        self._manager.wait()

    def stats(self) -> Dict[str, Any]:
        return self._manager.stats()

    def close(self) -> None:
        self._manager.close()


class Tracking(Ours):
    """tfadaptcp attached, one base, and no other checkpoint."""

    def __init__(self, job: Job, directory: str, pending: str):
        super().__init__(job, directory, pending, "adaptive")
        self._has_base = False

    def save(self) -> None:
        if not self._has_base:
            super().save()
            self._has_base = True


class _Stock(Nothing):
    """Writes everything while training stands still, and deletes what was written before."""

    def __init__(self, job: Job, directory: str, pending: str):
        super().__init__(job, directory, pending)
        self._number = 0

    def save(self) -> None:
        import tensorflow as tf
        self._number += 1
        self._write(f"{self._directory}/{self._number}")
        if self._number > 1:
            # In the background, had anybody cared; here it costs next to nothing.
            tf.io.gfile.rmtree(f"{self._directory}/{self._number - 1}")

    def _write(self, path: str) -> None:
        raise NotImplementedError

    def stats(self) -> Dict[str, Any]:
        return {"saves": self._number, "committed": self._number, "skipped": 0}


class TfraFiles(_Stock):
    """`save_to_file_system` of every table at once: each server writes its shards in parallel."""

    def __init__(self, job: Job, directory: str, pending: str):
        super().__init__(job, directory, pending)
        self._functions: Dict[str, Any] = {}

    def _write(self, path: str) -> None:
        import tensorflow as tf
        tf.io.gfile.makedirs(path)
        self._on_all(path, "save_to_file_system")
        # What it does not write: dense variables and the optimizer's scalars.
        self._dense().write(f"{path}/dense")

    def load(self, path: str) -> None:
        """Reads back what was written there, by as many servers."""
        self._on_all(path, "load_from_file_system")
        self._dense().read(f"{path}/dense").assert_consumed()

    def _dense(self) -> Any:
        import tensorflow as tf
        return tf.train.Checkpoint(**{str(i): variable for i, variable in enumerate(_dense_variables(self._job.model))})

    def _on_all(self, path: str, method: str) -> None:
        import tensorflow as tf

        # The path is an attribute of the op, so every checkpoint has a graph of its own.
        @tf.function(autograph=False)
        def run_all() -> None:
            for number, table in enumerate(self._job.tables):
                names = [f"table{number}-{shard}" for shard in range(self._job.num_ps)]
                getattr(table, method)(path, file_name_list=names)

        run_all()


class TfCheckpoint(_Stock):
    """`tf.train.Checkpoint`: each server writes its part."""

    def _write(self, path: str) -> None:
        import tensorflow as tf
        tf.io.gfile.makedirs(path)
        tf.train.Checkpoint(model=self._job.model, optimizer=self._job.model.optimizer).write(f"{path}/checkpoint")

    def load(self, path: str) -> None:
        """Reads back what was written there, by as many servers."""
        import tensorflow as tf
        tf.train.Checkpoint(model=self._job.model, optimizer=self._job.model.optimizer).read(
            f"{path}/checkpoint").expect_partial()


def _dense_variables(model: Any) -> List[Any]:
    import tensorflow as tf
    from tensorflow_recommenders_addons import dynamic_embedding as de
    variables = list(model.variables) + [slot for slot in model.optimizer.variables()]
    return [variable for variable in variables
            if not isinstance(variable, de.TrainableWrapper) and re.search("shadow", variable.name) is None
            and isinstance(variable, tf.Variable)]


@dataclasses.dataclass(frozen=True)
class System:
    """One of the systems.

    Attributes:
        name: of cells and files.
        title: of tables and plots.
        make: makes its saver: make(job, directory, pending).
        is_stock: runs in processes that have not imported tfadaptcp.
        is_full: writes everything each time, standing still: what one checkpoint takes can be computed from another.
        one_reader: each server reads what it restores by one connection.
        bytes_per_row: memory that its servers need for a row of 3 tables of dim 16, by measurement.
        bases: how it makes new ones: "" never, or as everything else; in place of another checkpoint, "standing still"
            until it is stored or as "a snapshot", until its rows are copied; "beside" training.
        full_every: makes one after so many others, whatever they are.
        uploads: objects that each server stores at once, at most.
        saves: makes checkpoints at the ends of intervals.
        is_ablation: another system without a part of it.
        only_restored: what is of interest about it is how it is restored.
    """
    name: str
    title: str
    make: Callable[..., Nothing]
    is_stock: bool = False
    is_full: bool = False
    one_reader: bool = False
    bytes_per_row: int = 750
    bases: str = ""
    full_every: int = 0
    uploads: int = 1
    saves: bool = True
    is_ablation: bool = False
    only_restored: bool = False


def _ours(**arguments: Any) -> Callable[..., Nothing]:
    return lambda job, directory, pending: Ours(job, directory, pending, **arguments)


_ONE_WRITER = {"writer_threads": 1, "upload_threads": 1}
_NO_HURRY = {"lookup_capture": False}
# A snapshot of all rows has room, so that training never waits for the store while it is copied; see docs/baselines.md.
_SNAPSHOTS = {"capture_memory_bytes": 2 << 30}
_ONE_UPLOAD = {**_SNAPSHOTS, "upload_threads": 1}
# What tfadaptcp takes where nothing is said.
_UPLOADS = 8
_SNAPSHOT_BYTES_PER_ROW = 1000
FULL_EVERY = 10


def _check_n_run(name: str, title: str, engine: Dict[str, Any], quantization: Any = None, **attributes: Any) -> System:
    return System(name, title, _ours(policy="check_n_run", engine=engine, quantization=quantization),
                  bases="a snapshot", bytes_per_row=_SNAPSHOT_BYTES_PER_ROW, **attributes)


def _adaptcp(name: str, title: str, engine: Optional[Dict[str, Any]] = None, quantization: Any = None,
             **attributes: Any) -> System:
    return System(name, title, _ours(policy="adaptive", engine=engine, quantization=quantization), bases="beside",
                  **attributes)


# "No checkpoints" runs in the middle of a round once more.
SYSTEMS: Dict[str, System] = {system.name: system for system in (
    System("none", "no checkpoints", Nothing, is_stock=True, saves=False),
    System("tracking", "tracking on, no checkpoints", Tracking, saves=False),
    System("tfra_files", "TFRA save_to_file_system", TfraFiles, is_stock=True, is_full=True, bytes_per_row=900),
    System("tf_checkpoint", "tf.train.Checkpoint", TfCheckpoint, is_stock=True, is_full=True, bytes_per_row=1500),
    System("native_incremental", "native incremental", _ours(policy="native_incremental"), one_reader=True),
    System("incr_ckpt", f"Incr CKPT-{FULL_EVERY}", _ours(policy=f"incr_ckpt_{FULL_EVERY}"), one_reader=True,
           bases="standing still", full_every=FULL_EVERY),
    System("none_again", "no checkpoints, again", Nothing, is_stock=True, saves=False),
    _check_n_run("check_n_run", "Check-N-Run, one upload at a time", _ONE_UPLOAD, one_reader=True),
    _check_n_run("check_n_run_parallel", "Check-N-Run, parallel uploads", _SNAPSHOTS, uploads=_UPLOADS),
    _check_n_run("check_n_run_quantized", "Check-N-Run, one upload at a time, quantised", _ONE_UPLOAD, "auto",
                 one_reader=True),
    _adaptcp("adaptcp", "AdaptCP", uploads=_UPLOADS),
    _adaptcp("adaptcp_quantized", "AdaptCP, quantised", quantization="auto", uploads=_UPLOADS, only_restored=True),
    _adaptcp("adaptcp_no_lookup", "AdaptCP without lookup-triggered capture", _NO_HURRY, uploads=_UPLOADS,
             is_ablation=True),
    _adaptcp("adaptcp_one_writer", "AdaptCP without parallel writers", _ONE_WRITER, is_ablation=True),
    _adaptcp("adaptcp_neither", "AdaptCP with neither", {**_ONE_WRITER, **_NO_HURRY}, is_ablation=True),
)}
TRAINED = [name for name, system in SYSTEMS.items() if not system.only_restored]
