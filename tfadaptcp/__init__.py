"""Checkpoints of recommendation models with very large embedding tables, while they train."""

import os
import sys

if "tf_keras" not in sys.modules and "keras" not in sys.modules:
    # Keras 3 has no ParameterServerStrategy. Takes effect unless tf.keras is loaded already.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from tfadaptcp.embeddings import install as _install  # noqa: E402

_install()
