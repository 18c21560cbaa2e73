"""Builds and loads the file system `capped://`."""

from pathlib import Path

from tools import cxx, native

_SOURCES = Path(__file__).parent


def build() -> Path:
    """Returns the library, brought up to date first. Safe to call from several processes."""
    out = cxx.ROOT / "build" / "capped"
    with cxx.locked(out):
        tf_compile, tf_link = native.tensorflow_flags(out / "tensorflow_flags.json")
        flags = ["-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-pthread", *tf_compile]
        objects = cxx.compile_objects(sorted(_SOURCES.glob("*.cc")), out / "obj", flags)
        return cxx.link(out / "_capped.so", objects, ["-shared", "-pthread", *tf_link])


def load(library: str) -> None:
    """Makes the file system known to this process. The control page must be named before its first use."""
    import tensorflow as tf
    tf.load_library(library)
