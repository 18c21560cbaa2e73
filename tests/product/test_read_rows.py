"""`read_rows` finds in every checkpoint, for every table, the rows that a full copy had at the cut, each once."""

import shutil

import pytest
import tensorflow as tf

import tfadaptcp
from tests.golden import models
from tests.support import oracle, rows
from tests.support.saving import heads_of, save

LONG_CHAIN = tfadaptcp.policies.Adaptive(restore_weight=8.0, renewal="period", first_period=10, max_restore_factor=50.0)


def read(directory, table, checkpoint=None, batch=7):
    """{key: bytes of the row}; no key twice."""
    found = {}
    for keys, values in tfadaptcp.read_rows(directory, table, checkpoint).batch(batch).as_numpy_iterator():
        for key, value in zip(keys.tolist(), values):
            assert key not in found, f"{table}: key {key!r} comes twice"
            found[key] = b"\0".join(value.tolist()) if value.dtype == object else value.tobytes()
    return found


def check(copies, directory):
    """Every table of the newest, the first group's of the others."""
    for name, copy in copies.items():
        for table, expected in list(copy.tables.items())[:None if name == list(copies)[-1] else 2]:
            assert read(directory, table, name) == {key: row for key, (_, row) in expected.items()}, (name, table)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Five checkpoints by two shards: hot and cold rows, rows without slots, removed ones, ones that came back."""
    directory = tmp_path_factory.mktemp("saved")
    model = oracle.build("adam", devices=["/CPU:0"] * 2, tables=2)
    manager = tfadaptcp.CheckpointManager(model, directory, LONG_CHAIN, max_to_keep=10)
    copies = {}
    for i in range(5):
        rows.write(model, range(0, 20), seed=i)  # hot
        rows.write(model, range(20 + 10 * i, 45 + 10 * i), seed=i)
        rows.write(model, range(200, 203), seed=i, tables=slice(1))  # in one table of the group alone
        rows.remove(model, range(10 * i, 10 * i + 5))
        if i:
            rows.remove(model, [201], tables=slice(1))
        save(manager, model, copies)
    kinds = {ref.kind for ref in heads_of(directory)[-1].objects}
    assert kinds == {"base", "increment", "differential", "dense"}
    return directory, copies


def test_every_table_of_every_checkpoint(saved):
    directory, copies = saved
    check(copies, directory)
    newest = list(copies.values())[-1]
    assert read(directory, "emb1-parameter/v") == {
        key: row for key, (_, row) in newest.tables["emb1-parameter/v"].items()}


def test_a_dataset_may_be_read_again_and_in_part(saved):
    directory, copies = saved
    data = tfadaptcp.read_rows(directory, "emb0-parameter")
    assert data.element_spec == (tf.TensorSpec([], tf.int64), tf.TensorSpec([4], tf.float32))
    first = [key for key, _ in data.as_numpy_iterator()]
    assert [key for key, _ in data.take(10).as_numpy_iterator()] == first[:10]
    assert [key for key, _ in data.as_numpy_iterator()] == first


def test_types(tmp_path):
    model = models.types(2)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, LONG_CHAIN, max_to_keep=10)
    copies = {}
    for i in range(3):
        rows.write(model, range(10 * i, 10 * i + 30), seed=i)
        rows.remove(model, [10 * i + 3])
        save(manager, model, copies)
    check(copies, tmp_path)


def test_an_empty_table_and_a_checkpoint_of_nothing_but_tombstones(tmp_path):
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=10)
    copies = {}
    save(manager, model, copies)
    rows.write(model, range(5))
    save(manager, model, copies)
    rows.remove(model, range(5))
    save(manager, model, copies)
    assert [len(copy.tables["emb0-parameter"]) for copy in copies.values()] == [0, 5, 0]
    check(copies, tmp_path)


def test_what_is_not_there(saved, tmp_path):
    directory, _ = saved
    with pytest.raises(tfadaptcp.CheckpointMismatchError, match="'emb2'.*Expected: one of .*'emb1-parameter/v'"):
        tfadaptcp.read_rows(directory, "emb2")
    with pytest.raises(tfadaptcp.CheckpointNotFoundError, match="Received: 'newest'.*Expected: one of"):
        tfadaptcp.read_rows(directory, "emb0-parameter", "newest")
    with pytest.raises(tfadaptcp.CheckpointNotFoundError):
        tfadaptcp.read_rows(tmp_path / "nothing", "emb0-parameter")
    with pytest.raises(tfadaptcp.UnsupportedStoreError):
        tfadaptcp.read_rows("gsx://bucket/run", "emb0-parameter")


def test_damage(saved, tmp_path):
    directory, copies = saved
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    newest = list(copies)[-1]
    hot = next((copy / "data" / newest).glob("differential-*"))
    whole = hot.read_bytes()
    hot.write_bytes(whole[:-1])
    # A missing part is seen at once, and the checkpoint before it taken, unless this one is asked for.
    assert read(copy, "emb0-parameter") == {
        key: row for key, (_, row) in copies[list(copies)[-2]].tables["emb0-parameter"].items()}
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=f"{newest}.*lacks objects"):
        tfadaptcp.read_rows(copy, "emb0-parameter", newest)
    # Other damage as the object is read.
    hot.write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    with pytest.raises(tf.errors.DataLossError, match=rf"{hot.name}: record at byte \d+"):
        read(copy, "emb0-parameter")
