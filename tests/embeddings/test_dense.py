"""Which variables are copied where they are, by one call for all of a server."""

import types

import pytest
import tensorflow as tf
from tensorflow.python.distribute import sharded_variable

from tfadaptcp.embeddings import dense


def test_a_variable_in_memory():
    variable = tf.Variable([1.0])
    assert dense.handle_of(variable) is variable.handle


@pytest.mark.parametrize("device", ["/job:ps/replica:0/task:1/device:GPU:0", "/device:TPU:0", ""])
def test_a_variable_elsewhere_is_read_by_tensorflow(device):
    variable = types.SimpleNamespace(device=device, handle=tf.Variable([1.0]).handle)
    assert dense.handle_of(variable) is None


def parts_of(name, sizes):
    """A variable in parts as a strategy's partitioner makes it, which names the parts alone."""
    parts = [tf.Variable(tf.zeros([size, 2]), name=f"{name}/part_{i}") for i, size in enumerate(sizes)]
    return sharded_variable.ShardedVariable(parts), parts


def test_parts_are_of_the_variable_that_they_are_named_after():
    """Those of a variable whose name ends as another's were taken for its own, where they had the same shape."""
    wholes, parts = zip(*(parts_of(*item) for item in (("emb/w", [5, 5]), ("tower/emb/w", [6, 5]))))
    variables = [part for some in parts for part in some]
    slots = [tf.Variable(tf.zeros(part.shape), name=part.name.split(":")[0] + "/m") for part in variables]
    found = dense.slices(variables + slots, None, types.SimpleNamespace(own=[]))
    assert [(item.name, item.shape, item.offset) for item in found] == [
        (name + slot, (size, 2), (offset, 0)) for slot in ("", "/m")
        for name, size, offset in (("emb/w", 10, 0), ("emb/w", 10, 5), ("tower/emb/w", 11, 0), ("tower/emb/w", 11, 6))]
    assert len(wholes) == 2
