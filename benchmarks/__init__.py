"""Benchmarks: what tracking, saving and restoring cost beside plain TFRA."""

import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
