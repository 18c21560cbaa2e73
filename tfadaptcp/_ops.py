"""Loads the compiled ops, once, and checks that they fit this TensorFlow."""

import functools
import json
import pathlib

import tensorflow as tf

LIBRARY = pathlib.Path(__file__).with_name("_adaptcp_ops.so")
# Beside the library and not in it: one built for another TensorFlow may not even
# load, and must still be refused by name.
VERSIONS = LIBRARY.with_suffix(".json")


@functools.cache
def lib():
    """The generated op module.

    Raises:
      ImportError: the library is not built, or built for another TensorFlow or
        TFRA than the ones installed; names both versions.
    """
    # TFRA's kernels must be registered before ours look them up.
    import tensorflow_recommenders_addons as tfra

    if not LIBRARY.exists() or not VERSIONS.exists():
        raise ImportError(f"{LIBRARY.name} is not built: it is not in {LIBRARY.parent}. Build it with `make build` or "
                          "`pip install --no-build-isolation .`; if that was done, Python has found the sources in the "
                          "current folder first: run it in another one")
    check_versions(json.loads(VERSIONS.read_text()),
                   {"tensorflow": tf.__version__, "tensorflow-recommenders-addons": tfra.__version__})
    return tf.load_op_library(str(LIBRARY))


def check_versions(built_for: dict, found: dict) -> None:
    """Raises ImportError unless the versions are equal."""
    if built_for != found:
        raise ImportError(f"{LIBRARY.name} was built for other versions. Received: {found}. Expected: {built_for}")
