"""Every number of shards into every other, whichever way a build of TFRA places keys. (recommenders-addons#65, #290)"""

import contextlib
import types

import pytest
import tensorflow as tf
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import dynamic_embedding_variable

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import policies
from tfadaptcp.checkpoint import commit, format as segment_format
from tfadaptcp.checkpoint.store import Store

COUNTS = (1, 2, 3, 5)
HOT_AND_COLD = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=10, max_restore_factor=50.0)
POLICIES = {1: HOT_AND_COLD, 2: policies.Differential(), 3: policies.Incremental(), 5: HOT_AND_COLD}
# "mask31" and "floormod" place the second half of them differently.
KEYS = [*range(60), *range(-40, 0), *range(2**31 - 3, 2**31 + 40), *range(-2**31 - 40, -2**31 + 3), 2**62, -2**62, 2**63 - 1,
        -2**63]


@contextlib.contextmanager
def build_of(partition):
    """TFRA as in a build with CUDA ("mask31") or without ("floormod")."""
    cuda = partition == "mask31"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_embedding_variable, "pywrap", types.SimpleNamespace(IsGoogleCudaEnabled=lambda: cuda))
        patch.setattr(tf.test, "is_built_with_cuda", lambda: cuda)
        yield


def build(shards, seed=5):
    return oracle.build("momentum", devices=["/CPU:0"] * shards, dim=2, seed=seed)


def write_checkpoints(shards, directory):
    """Returns the name of the last of three checkpoints, and a copy at its cut."""
    model = build(shards)
    manager = tfadaptcp.CheckpointManager(model, directory, POLICIES[shards], max_to_keep=10)
    for i in range(3):
        rows.write(model, KEYS[40 * i:40 * i + 130], seed=i)
        rows.remove(model, KEYS[50 * i + 10:50 * i + 20])
        copy = oracle.take(model)
        name = manager.save().name
        rows.write(model, KEYS[::7], seed=100 + i)  # after the cut
        manager.wait()
    return name, copy


def kinds_in(directory):
    """Kinds of the objects of the newest head that have rows, and "tombstones" if there are any."""
    found = set()
    for ref in commit.list_heads(Store(), str(directory))[0][-1].objects:
        segment = segment_format.read_segment((directory / ref.path).read_bytes(), ref.path, ref.crc32c)
        found |= {ref.kind} if any(ref.rows.values()) else set()
        found |= {"tombstones"} if any(group["tombstones"] for group in segment.footer["groups"]) else set()
    return found


def test_every_number_of_shards_into_every_other(tmp_path):
    written, kinds = {}, set()
    for partition in ("floormod", "mask31"):
        with build_of(partition):
            for shards in COUNTS:
                directory = tmp_path / f"{partition}{shards}"
                written[shards, partition] = directory, *write_checkpoints(shards, directory)
                kinds |= kinds_in(directory)
                assert commit.list_heads(Store(), str(directory))[0][-1].groups[0].partition == partition
    assert kinds >= {"base", "increment", "differential", "tombstones"}
    in_place = 0
    for into in COUNTS:
        for other in (False, True):  # builds
            model = None
            for (shards, partition), (directory, name, copy) in written.items():
                there = partition if not other else {"floormod": "mask31", "mask31": "floormod"}[partition]
                # Each pair of numbers within one build and across builds, each way of both in half of them.
                if (partition == "mask31") != ((shards + into) % 2 == 1):
                    continue
                with build_of(there):
                    if model is None:
                        model = build(into, seed=77)
                        rows.write(model, [1, 2, 5000])  # must go
                    report = model.load_adaptcp(directory, name)
                    what = f"{shards} of {partition} into {into} of {there}"
                    in_place += shards == into and not other
                    oracle.check(copy, model, what, shards=shards == into and not other)
                    oracle.check_placement(model)
                    assert report.rows == copy.rows(), what
    assert in_place == len(COUNTS)
