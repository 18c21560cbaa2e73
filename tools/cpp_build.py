"""Builds the TF-free C++ into tests, benchmarks and tools, plain or under a sanitizer.

    python -m tools.cpp_build tests [plain tsan asan]    compile every *_test.cc, show progress
    python -m tools.cpp_build run ops/x/y_bench.cc [ARGS]  compile one program and run it
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools import cxx, native

# Code in these folders includes no TensorFlow header, so that sanitizers see all of it.
PACKAGES = ("util", "tracker", "format", "io/local")
FLAVOURS = {
    "plain": ["-O2", "-g1"],
    "tsan": ["-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=thread"],
    "asan": ["-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
             "-fno-sanitize-recover=all"],
}
GTEST_LIBRARIES = ("-lgtest_main", "-lgtest")


def test_sources(root: Path = cxx.ROOT) -> list[Path]:
    """Every C++ unit test that is built here."""
    return cxx.find_sources(root, PACKAGES, "_test")


def build(sources: list[Path], flavour: str = "plain", root: Path = cxx.ROOT) -> list[Path]:
    """Builds one program from each source and the TF-free product code; returns their paths.

    Incremental and safe to call from several processes.

    Args:
        sources: files with a main(), or GoogleTest tests (named *_test.cc, which get one).
        flavour: a key of FLAVOURS.
        root: where ops/ is.

    Raises:
        cxx.BuildError: something did not compile.
    """
    out = root / "build" / "cpp" / flavour
    flags = ["-std=c++17", "-fPIC", "-pthread", *FLAVOURS[flavour],
             "-isystem", str(native.json_include())]
    with cxx.locked(out):
        library = cxx.find_sources(root, PACKAGES)
        objects = cxx.compile_objects([*library, *sources], out / "obj", flags, root)
        product, programs = objects[:len(library)], objects[len(library):]
        built = []
        for source, program in zip(sources, programs):
            libraries = GTEST_LIBRARIES if source.stem.endswith("_test") else ()
            built.append(cxx.link(out / "bin" / source.stem, [program, *product],
                                  ["-pthread", *FLAVOURS[flavour], *libraries]))
        return built


def main(args: list[str]) -> int:
    """The command line above; returns its exit code."""
    try:
        if args[:1] == ["tests"]:
            for flavour in args[1:] or FLAVOURS:
                print(f"C++ unit tests, {flavour}", flush=True)
                build(test_sources(), flavour)
            return 0
        if args[:1] == ["run"] and len(args) > 1:
            program, = build([Path(args[1]).resolve()])
            return subprocess.run([program, *args[2:]], check=False).returncode
    except cxx.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    os.chdir(cxx.ROOT)
    sys.exit(main(sys.argv[1:]))
