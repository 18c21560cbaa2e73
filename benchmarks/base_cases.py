"""The ways to write a whole model and to read it back that `base_cost` compares, each behind the same two calls.

Every case is measured in a process of its own (`python -m benchmarks.base_cases`, JSON on stdout): memory that one
leaves behind is not the next one's.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import threading
import time
from typing import Any, Callable, Dict, List

OURS, SCAN, TFRA, TF = "ours", "ours, scanned", "TFRA files", "tf.train.Checkpoint"
CASES = (OURS, SCAN, TFRA, TF)
FILL_BATCH = 1 << 16
CHECKED_KEYS = 2000


def build(dim: int, name: str = "emb") -> Any:
    """An embedding with legacy Adam and a dense layer, the slot tables made. In a process names must differ."""
    import tensorflow as tf
    import tensorflow_recommenders_addons.dynamic_embedding as de
    ids = tf.keras.Input((1,), dtype=tf.int64)
    layer = de.keras.layers.Embedding(dim, name=name, initializer=tf.keras.initializers.Constant(0.5))
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(layer(ids))))
    model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(1e-3)), "mse")
    model.optimizer._create_all_weights(model.trainable_variables)
    return model


def variables_of(model: Any) -> List[Any]:
    """The TFRA variables of the model: parameter, m, v."""
    import tensorflow_recommenders_addons.dynamic_embedding as de
    slots = sorted((wrapper.params for wrapper in model.optimizer.variables() if isinstance(wrapper, de.TrainableWrapper)),
                   key=lambda params: params.name)
    return [model.layers[1].params, *slots]


def rows_of(keys: Any, table: int, dim: int) -> Any:
    """What the benchmark writes for `keys` [n]: float32 [n, dim], no two rows alike."""
    import numpy as np
    return ((keys[:, None] * dim + np.arange(dim)) % 16_000_057 + 17 * table).astype(np.float32)


def fill(variables: List[Any], rows: int, dim: int) -> None:
    """Writes every row of every table, in random order."""
    import numpy as np
    import tensorflow as tf
    keys = np.random.default_rng(0).permutation(rows)
    for start in range(0, rows, FILL_BATCH):
        batch = keys[start:start + FILL_BATCH]
        for table, variable in enumerate(variables):
            variable.upsert(tf.constant(batch, tf.int64), tf.constant(rows_of(batch, table, dim)))


def check(variables: List[Any], rows: int, dim: int) -> None:
    """Raises RuntimeError if rows were not loaded as they were written."""
    import numpy as np
    import tensorflow as tf
    keys = np.random.default_rng(1).integers(0, rows, CHECKED_KEYS)
    for table, variable in enumerate(variables):
        found = variable.lookup(tf.constant(keys, tf.int64)).numpy()
        if int(variable.size()) != rows or not np.array_equal(found, rows_of(keys, table, dim)):
            raise RuntimeError(f"Received: {int(variable.size())} rows, "
                               f"{int((found != rows_of(keys, table, dim)).any(axis=1).sum())} wrong ones among "
                               f"{CHECKED_KEYS}. Expected: {rows} rows as they were written")


class Writer:
    """Saves a model in one of the ways, as often as asked, each time to a new directory."""

    def __init__(self, case: str, model: Any, directory: str):
        self._case, self._model, self._directory = case, model, directory
        self._number = 0
        self._manager: Any = None
        if case in (OURS, SCAN):
            import tfadaptcp
            # Each save of this policy is a base with a cut.
            self._manager = tfadaptcp.CheckpointManager(model, os.path.join(directory, "ours"), "full",
                                                        engine=tfadaptcp.EngineOptions(), max_to_keep=1)
            if case == SCAN:
                self._manager.save()
                self._manager.wait()

    def save(self) -> None:
        """Returns when that way says that it is done."""
        self._number += 1
        path = os.path.join(self._directory, f"{self._case.split()[0]}-{self._number}")
        if self._case == OURS:
            self._manager.save()
            self._manager.wait()
        elif self._case == SCAN:
            self._scan(path)
        elif self._case == TFRA:
            for number, variable in enumerate(variables_of(self._model)):
                variable.save_to_file_system(path, file_name_list=[f"table{number}"])
        else:
            import tensorflow as tf
            tf.train.Checkpoint(model=self._model, optimizer=self._model.optimizer).write(path)

    def _scan(self, path: str) -> None:
        from tfadaptcp import options
        info = self._manager.checkpoints[-1]
        requests = options.EngineOptions().for_hosts()
        self._manager.engine.scan_base({
            **requests, "root": path, "directory": path, "kind": "base", "generation": info.generation,
            "run": info.run, "sequence": info.sequence, "start": info.sequence})

    def close(self) -> None:
        """Ends what runs in the background."""
        if self._manager is not None:
            self._manager.close()


def load(case: str, model: Any, directory: str) -> None:
    """Reads back what `Writer.save` wrote first."""
    if case == OURS:
        model.load_adaptcp(os.path.join(directory, "ours"))
    elif case == TFRA:
        for number, variable in enumerate(variables_of(model)):
            variable.load_from_file_system(os.path.join(directory, "TFRA-1"), file_name_list=[f"table{number}"])
    else:
        import tensorflow as tf
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(
            os.path.join(directory, "tf.train.Checkpoint-1")).expect_partial()


class Lookups:
    """A thread that looks random keys up, one batch after another, and notes how long each took."""

    def __init__(self, variable: Any, rows: int, batch: int):
        import numpy as np
        import tensorflow as tf
        random = np.random.default_rng(2)
        self._batches = [tf.constant(random.integers(0, rows, batch), tf.int64) for _ in range(256)]
        self._table = variable.tables[0]
        self._stop = threading.Event()
        self._seconds: List[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Lookups":
        self._thread.start()
        return self

    def __exit__(self, *unused: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            start = time.perf_counter()
            self._table.lookup(self._batches[number % len(self._batches)])
            self._seconds.append(time.perf_counter() - start)
            number += 1

    def milliseconds(self) -> Dict[str, float]:
        """Latencies: median, 99th and 99.9th percentile, maximum; and how many lookups there were."""
        import numpy as np
        taken = 1000 * np.array(self._seconds)
        return {"p50": float(np.percentile(taken, 50)), "p99": float(np.percentile(taken, 99)),
                "p99.9": float(np.percentile(taken, 99.9)), "max": float(taken.max()), "lookups": len(taken)}


def status(field: str) -> int:
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status: Received: no {field}. Expected: one")


def measured(call: Callable[[], None]) -> Dict[str, float]:
    """Calls once: seconds of the clock and of CPU, and how many MB more than before were resident at most."""
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # starts VmHWM anew
    resident = status("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
            "extra_mb": (status("VmHWM") - resident) / 1e6, "resident_mb": resident / 1e6}


def sync(directory: str) -> int:
    """Makes every file below durable. Returns their bytes."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names + ["."]:
            handle = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(handle)
            size += os.fstat(handle).st_size if name != "." else 0
            os.close(handle)
    return size


def measure_save(case: str, rows: int, dim: int, directory: str, lookup_keys: int) -> Dict[str, Any]:
    """One save with nothing beside it, and a second one beside lookups."""
    model = build(dim)
    variables = variables_of(model)
    writer = Writer(case, model, directory)  # before the rows: all are tracked from the start
    fill(variables, rows, dim)
    if case == SCAN:
        writer.close()
        writer = Writer(case, model, os.path.join(directory, "again"))
    result: Dict[str, Any] = {"save": measured(writer.save)}
    start = time.perf_counter()
    result["bytes"] = sync(directory)
    result["save"]["durable_wall"] = result["save"]["wall"] + time.perf_counter() - start
    with Lookups(variables[0], rows, lookup_keys) as idle:
        time.sleep(3)
    result["idle"] = idle.milliseconds()
    with Lookups(variables[0], rows, lookup_keys) as beside:
        start = time.perf_counter()
        writer.save()
        result["save_beside_lookups"] = time.perf_counter() - start
    result["beside"] = beside.milliseconds()
    writer.close()
    return result


def measure_load(case: str, rows: int, dim: int, directory: str) -> Dict[str, Any]:
    """A load into a new process, checked."""
    model = build(dim)
    result = {"load": measured(lambda: load(case, model, directory))}
    check(variables_of(model), rows, dim)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="One measurement of benchmarks.base_cost.")
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--what", choices=("save", "load"), required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--lookup-keys", type=int, default=1000)
    args = parser.parse_args()
    import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
    if args.what == "save":
        shutil.rmtree(args.directory, ignore_errors=True)
        os.makedirs(args.directory)
        result = measure_save(args.case, args.rows, args.dim, args.directory, args.lookup_keys)
    else:
        result = measure_load(args.case, args.rows, args.dim, args.directory)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
