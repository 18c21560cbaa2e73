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
    out = cxx.ROOT / "build" / "io"
    compile_flags, _ = native.tensorflow_flags(out / "tensorflow_flags.json")
    sources = [*cxx.find_sources(cxx.ROOT, ("io",)), cxx.ROOT / "ops" / "format" / "crc32c.cc",
               cxx.ROOT / "ops" / "io" / "store_tool.cc"]
    with cxx.locked(out):
        objects = cxx.compile_objects(sources, out / "obj", ["-std=c++17", "-O1", "-pthread", *compile_flags])
        folder = Path(next(flag for flag in compile_flags if flag.endswith("/include"))).parent
        libraries = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-l:libtensorflow_cc.so.2",
                     "-l:libtensorflow_framework.so.2"]
        return cxx.link(out / "bin" / "store_tool", objects, ["-pthread", *libraries])
