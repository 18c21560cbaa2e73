"""Checkpoints of recommendation models with very large embedding tables, while they train.

`AdaptCPCallback` saves during `Model.fit`, `Model.load_adaptcp` restores, `CheckpointManager` serves custom loops.
Importing this package makes TFRA's tables trackable in this process, so import it before creating a model.
"""

import contextlib
import importlib
import os
import sys

if "tensorflow" not in sys.modules:
    # Keras 3 has no ParameterServerStrategy. TensorFlow chooses when it is imported.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf  # noqa: E402

if not importlib.import_module("tensorflow.keras").Model.__module__.startswith("tf_keras"):
    raise ImportError("tfadaptcp needs Keras 2. Received: a tf.keras that is Keras 3. Expected: tf_keras. Import tfadaptcp "
                      "before tensorflow, or set TF_USE_LEGACY_KERAS=1.")

with contextlib.redirect_stdout(sys.stderr):  # TFRA prints, and what the command line prints may be for programs
    from tfadaptcp.embeddings import install as _install  # noqa: E402
    _install()

from tfadaptcp import policies, testing  # noqa: E402
from tfadaptcp.callback import AdaptCPCallback  # noqa: E402
from tfadaptcp.checkpoint.hdfs import leave_signals_alone as _leave_signals_alone  # noqa: E402
from tfadaptcp.errors import *  # noqa: E402,F401,F403
from tfadaptcp.errors import __all__ as _errors  # noqa: E402
from tfadaptcp.info import CheckpointInfo, RestoreReport  # noqa: E402
from tfadaptcp.manager import CheckpointManager  # noqa: E402
from tfadaptcp.options import EngineOptions  # noqa: E402
from tfadaptcp.quantization import Quantization  # noqa: E402
from tfadaptcp.reading import read_rows  # noqa: E402
from tfadaptcp.restore import load_adaptcp as _load_adaptcp  # noqa: E402

tf.keras.Model.load_adaptcp = _load_adaptcp
_leave_signals_alone()  # before anything in this process starts Java, also to read data

__version__ = "0.1.0"
__all__ = ["AdaptCPCallback", "CheckpointInfo", "CheckpointManager", "EngineOptions", "Quantization", "RestoreReport", "policies",
           "read_rows", "testing", *_errors]
