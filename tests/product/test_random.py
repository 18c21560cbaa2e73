"""Random histories of writes, checkpoints, failures and restores beside full copies.

ADAPTCP_SEQUENCES sets how many; with it they are drawn anew each time.
"""

import os

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import tfadaptcp
from tests.support import faults, oracle, rows
from tests.support.checkpoint_dirs import check_clean
from tfadaptcp import EngineOptions, policies
from tfadaptcp.checkpoint import commit, retention
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.manager import ENGINE

SEQUENCES = os.environ.get("ADAPTCP_SEQUENCES")
OPTIONS = [EngineOptions(), EngineOptions(block_bytes=256, segment_bytes=1024, writer_threads=2),
           EngineOptions(capture="blocking")]

keys = st.tuples(st.integers(0, 40), st.integers(1, 25)).map(lambda pair: range(pair[0], pair[0] + pair[1]))
tables = st.sampled_from([slice(None), slice(None), slice(1), slice(1, None)])
fault = st.one_of(st.none(), st.none(), st.tuples(st.sampled_from(["errno=5@{}", "errno=28@{}+", "short@{}"]),
                                                  st.integers(1, 70)))
write = st.tuples(st.just("write"), keys, tables)
remove = st.tuples(st.just("remove"), keys, tables)
dense = st.tuples(st.just("dense"))
save = st.tuples(st.just("save"), st.sampled_from([policies.ALL_HOT, policies.NONE_HOT, 0.05, 0.15, 0.3]),
                 st.sampled_from([False, False, False, True]), fault, st.one_of(st.none(), write, remove))
restore = st.tuples(st.just("restore"), st.integers(0, 5), st.integers(1, 3))
manager = st.tuples(st.just("manager"), st.integers(1, 4), st.integers(0, len(OPTIONS) - 1))
histories = st.lists(st.one_of(write, write, remove, save, save, save, dense, restore, manager), min_size=5,
                     max_size=14)


class Dice:
    """A policy that does what the test says next."""

    name = "dice"

    def __init__(self):
        self.threshold, self.base = policies.NONE_HOT, False

    def hot_threshold(self, stats):
        return self.threshold

    def base_due(self, stats):
        return self.base


class History:
    """One directory, the model that is live in it, and copies of the model at all cuts."""

    def __init__(self, models, directory):
        self.models, self.directory = models, str(directory)
        self.policy = Dice()
        self.model = models[1]
        self.copies = {}
        self.seed = 0
        self.manager = None
        self.new_manager(3, 0)

    def new_manager(self, keep, options):
        if self.manager is not None:
            self.manager.close()
        self.keep, self.options = keep, options
        self.manager = tfadaptcp.CheckpointManager(self.model, self.directory, self.policy, max_to_keep=keep,
                                                   engine=OPTIONS[options])

    def apply(self, step):
        self.seed += 1
        kind, *rest = step
        if kind == "write":
            rows.write(self.model, rest[0], seed=self.seed, tables=rest[1])
        elif kind == "remove":
            rows.remove(self.model, rest[0], tables=rest[1])
        elif kind == "dense":
            self.model.optimizer.iterations.assign_add(1)
            kernel = self.model.layers[-1].kernel
            kernel.assign(tf.random.stateless_normal(kernel.shape, [self.seed, 1]))
        elif kind == "save":
            self.save(*rest)
        elif kind == "restore":
            self.restore(*rest)
        else:
            self.new_manager(*rest)

    def save(self, threshold, base, fault, during):
        self.policy.threshold, self.policy.base = threshold, base
        copy = oracle.take(self.model)
        before = self.names()
        failed = info = None
        with faults.plan("" if fault is None else fault[0].format(fault[1])):
            try:
                info = self.manager.save()
                if during is not None:
                    self.apply(during)
                self.manager.wait()
            except (tfadaptcp.AdaptCPError, OSError) as error:
                failed = error
                if self.manager.is_saving:
                    raise
        if fault is None and failed is not None:
            raise failed
        if info is None and during is not None:
            self.apply(during)
        if info is not None:
            self.copies[info.name] = copy
        names = self.names()
        for head in self.heads():
            if head.name not in self.copies:
                # A head published again; it stays when the checkpoint after it fails.
                self.copies[head.name] = self.copies[head.origin]
        if failed is None:
            assert names[-1] == info.name
            assert set(names) <= set(self.copies)
        elif info is not None and info.name not in names:
            assert names[-1:] == before[-1:] or self.heads()[-1].origin is not None, "the one before stands"

    def restore(self, choice, shards):
        names = self.names()
        if not names:
            with pytest.raises(tfadaptcp.CheckpointNotFoundError):
                self.models[shards].load_adaptcp(self.directory)
            return
        self.model = self.models[shards]
        name = None if choice == 0 else names[choice % len(names)]
        report = self.model.load_adaptcp(self.directory, name)
        assert report.checkpoint == name or names[-1]
        oracle.check(self.copies[report.checkpoint], self.model, f"{report.checkpoint} into {shards}", shards=False)
        oracle.check_placement(self.model)
        self.new_manager(self.keep, self.options)

    def heads(self):
        return commit.list_heads(Store(), self.directory)[0]

    def names(self):
        return [head.name for head in self.heads()]

    def finish(self):
        """A last save; then every head restores, and nothing is left over."""
        self.save(policies.NONE_HOT, False, None, None)
        self.save(policies.NONE_HOT, False, None, None)
        # Data of manifests deleted by one pass goes with the next.
        retention.collect(Store(), self.directory, self.manager._claim, self.keep, self.manager._unknown)
        if not self.manager._unknown:
            check_clean(Store(), self.directory)
        for i, name in enumerate(self.names()):
            model = self.models[1 + i % 3]
            model.load_adaptcp(self.directory, name)
            oracle.check(self.copies[name], model, f"{name} at the end", shards=False)
        self.manager.close()


@pytest.fixture(scope="module")
def models():
    """A model for each number of shards, for all histories."""
    made = {}
    for shards in (1, 2, 3):
        made[shards] = model = oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2)
        # Before the next model of the same names is there: TFRA would give both the same slot.
        model.optimizer._create_all_weights(model.trainable_variables)
    return made


def empty(model):
    engine = getattr(model, ENGINE, None)
    if engine is not None:
        engine.detach()
        object.__delattr__(model, ENGINE)
    for _, variable in oracle.tables_of(model):
        variable.clear()


@hypothesis.settings(max_examples=int(SEQUENCES or 60), deadline=None, derandomize=SEQUENCES is None, database=None,
                     suppress_health_check=list(hypothesis.HealthCheck), print_blob=True)
@hypothesis.given(steps=histories)
@pytest.mark.timeout(3600 if SEQUENCES else 300)
def test_histories(models, tmp_path_factory, steps):
    for model in models.values():
        empty(model)
    history = History(models, tmp_path_factory.mktemp("history"))
    for step in steps:
        history.apply(step)
    history.finish()
