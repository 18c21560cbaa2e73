"""`ops/io/store_tool.cc`, which needs TensorFlow and so is not built with the other C++ programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tools import cxx, native

# The file systems that tensorflow-io brings, as its Python package loads them.
TOOL_PLUGINS = [str(Path(importlib.util.find_spec("tensorflow_io").origin).parent / "python" / "ops" /
                    "libtensorflow_io_plugins.so")]


def build() -> Path:
    """Builds the program, incrementally, and returns its path."""
    folder = Path(importlib.util.find_spec("tensorflow").origin).parent
    product = [*cxx.find_sources(cxx.ROOT, ("io",)), cxx.ROOT / "ops" / "format" / "crc32c.cc"]
    return native.build_program(cxx.ROOT / "ops" / "io" / "store_tool.cc", product,
                                [f"-L{folder}", f"-Wl,-rpath,{folder}", "-l:libtensorflow_cc.so.2",
                                 "-l:libtensorflow_framework.so.2"])
