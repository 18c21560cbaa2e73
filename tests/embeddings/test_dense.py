"""Which variables are copied where they are, by one call for all of a server."""

import types

import pytest
import tensorflow as tf

from tfadaptcp.embeddings import dense


def test_a_variable_in_memory():
    variable = tf.Variable([1.0])
    assert dense.handle_of(variable) is variable.handle


@pytest.mark.parametrize("device", ["/job:ps/replica:0/task:1/device:GPU:0", "/device:TPU:0", ""])
def test_a_variable_elsewhere_is_read_by_tensorflow(device):
    variable = types.SimpleNamespace(device=device, handle=tf.Variable([1.0]).handle)
    assert dense.handle_of(variable) is None
