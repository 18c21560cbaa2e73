"""The job that all systems run: Criteo-like, under ParameterServerStrategy on a real cluster on loopback."""

import dataclasses
import os
import time
from typing import Any, Callable, List

from benchmarks.side_by_side import zipf

CATEGORIES, BATCH, DIM, WORKERS = 26, 1024, 16, 2
FILL_BATCH = 1 << 16
INTER_OP_THREADS = 8


@dataclasses.dataclass
class Job:
    """A model on a cluster, and the way to train it. One thread uses it.

    Attributes:
        model: compiled, its slot tables made.
        rows: written beforehand into each table; the key space has twice as many.
    """
    cluster: Any
    model: Any
    rows: int
    step: int = 0

    def __post_init__(self):
        self._coordinator = self.cluster.coordinator()
        self._function = _step_function(self.cluster.strategy(), self.model, 2 * self.rows)
        self._stamps: List[Any] = []

    @property
    def num_ps(self) -> int:
        return len(self.cluster.cluster_spec["ps"])

    @property
    def tables(self) -> List[Any]:
        """The TFRA variables: parameter, then the slots m and v."""
        import tensorflow_recommenders_addons.dynamic_embedding as de
        slots = {wrapper.params.name: wrapper.params for wrapper in self.model.optimizer.variables()
                 if isinstance(wrapper, de.TrainableWrapper)}
        return [self.model.get_layer("clicks").params, *(slots[name] for name in sorted(slots))]

    def train(self, steps: int) -> None:
        """Schedules steps, and returns when they have all ended."""
        import tensorflow as tf
        for _ in range(steps):
            self._stamps.append(self._coordinator.schedule(self._function, args=(tf.constant(self.step, tf.int32),)))
            self.step += 1
        self._coordinator.join()

    def take_stamps(self) -> List[Any]:
        """Since the last call, for each step (worker, seconds of the clock when it began, when it ended)."""
        stamps = [tuple(float(part) for part in remote.fetch()) for remote in self._stamps]
        self._stamps = []
        return stamps

    def fill(self) -> float:
        """Writes the most frequent half of the keys into all tables, on the servers themselves. Returns seconds."""
        import tensorflow as tf
        start = time.monotonic()
        tables = self.tables

        @tf.function(autograph=False)
        def fill_all() -> None:
            for shard in range(self.num_ps):
                with tf.device(tables[0].devices[shard]):
                    _fill_shard([table.tables[shard] for table in tables], shard, self.num_ps, self.rows)

        fill_all()
        sizes = [int(table.size()) for table in tables]
        if sizes != [self.rows] * len(tables):
            raise RuntimeError(f"Tables were not filled. Received: {sizes} rows. Expected: {self.rows} in each")
        return time.monotonic() - start


def _fill_shard(tables: List[Any], shard: int, num_ps: int, rows: int) -> None:
    import tensorflow as tf

    def body(start):
        ranks = tf.range(start, tf.minimum(start + FILL_BATCH, rows), dtype=tf.int64)
        keys = zipf.key_of(ranks, 2 * rows)
        keys = tf.boolean_mask(keys, keys % num_ps == shard)
        # No two rows alike, and second moments above 0.
        values = 1e-3 * tf.random.stateless_uniform([tf.size(keys), DIM], [tf.cast(start, tf.int32), shard])
        with tf.control_dependencies([table.insert(keys, values) for table in tables]):
            return tf.identity(start + FILL_BATCH)

    tf.while_loop(lambda start: start < rows, body, [tf.constant(0, tf.int64)], parallel_iterations=1)


def build(cluster: Any, rows: int) -> Any:
    """The model, its tables with room for what will be in them."""
    import tensorflow as tf
    import tensorflow_recommenders_addons.dynamic_embedding as de
    num_ps = len(cluster.cluster_spec["ps"])
    with cluster.strategy().scope():
        ids = tf.keras.Input((CATEGORIES,), dtype=tf.int64)
        # Training adds rows: without room to spare the tables would grow, at a moment that chance chooses.
        table = de.keras.layers.Embedding(
            DIM, name="clicks", initializer=tf.keras.initializers.Constant(0.01), init_capacity=rows + rows // 4,
            devices=[f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(num_ps)])
        hidden = tf.keras.layers.Dense(64, "relu")(tf.keras.layers.Flatten()(table(ids)))
        model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(hidden))
        model.compile(de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(1e-3)))
        model.optimizer._create_all_weights(model.trainable_variables)
    return model


def _step_function(strategy: Any, model: Any, keys: int) -> Callable[[Any], Any]:
    import tensorflow as tf
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=tf.keras.losses.Reduction.SUM)

    def step(seed: tf.Tensor) -> None:
        ids = zipf.draw([BATCH, CATEGORIES], seed, keys)
        labels = tf.cast(ids[:, :1] % 4 == 0, tf.float32)
        with tf.GradientTape() as tape:
            value = loss(labels, model(ids, training=True)) / BATCH
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))

    @tf.function(autograph=False)
    def whole_step(seed):
        strategy.run(step, args=(seed,))
        return tf.identity(seed)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def on_worker(seed):
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            done = whole_step(seed)
        # A call has ended when all of its updates have.
        with tf.control_dependencies([done]):
            ended = tf.timestamp()
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        return tf.stack([tf.cast(worker, tf.float64), began, ended])

    return on_worker


def start_cluster(num_ps: int, library: str, control: str, is_stock: bool) -> Any:
    """A `LocalCluster` whose servers know the capped store."""
    from benchmarks.side_by_side import server
    from benchmarks.side_by_side.capped.control import VARIABLE
    from tfadaptcp.testing import LocalCluster
    env = {server.LIBRARY: library, VARIABLE: control, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if is_stock:
        env[server.STOCK] = "1"
    env["PYTHONPATH"] = os.getcwd()
    # TFRA's ops that save a table keep a thread each, of as many as the chief, for which servers run functions, is set
    # to. By default that is the number of cores, and two cores would save two of three tables at once.
    import tensorflow as tf
    tf.config.threading.set_inter_op_parallelism_threads(INTER_OP_THREADS)
    return LocalCluster(WORKERS, num_ps, env=env, module="benchmarks.side_by_side.server")
