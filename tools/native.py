"""Builds tfadaptcp/_adaptcp_ops.so against the installed TensorFlow."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tools import cxx

PACKAGES = ("util", "tracker", "format", "io", "kernels")
LIBRARY = "_adaptcp_ops.so"
VERSIONS = "_adaptcp_ops.json"

_ASK_TENSORFLOW = """
import json, tensorflow as tf
print("FLAGS" + json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))
"""


def pinned_versions() -> dict[str, str]:
    """The exact versions in requirements.txt, by lower-case distribution name."""
    text = (cxx.ROOT / "requirements.txt").read_text(encoding="utf-8")
    return {name.lower(): version
            for name, version in re.findall(r"^([\w-]+)==([\w.]+)", text, re.MULTILINE)}


def check_versions() -> tuple[str, str]:
    """Returns (TensorFlow version, TFRA version) after comparing both with the pins.

    The library resolves C++ symbols of both, which change without notice between releases.

    Raises:
        cxx.BuildError: one of them is missing or has another version.
    """
    pins = pinned_versions()
    return (_check("TensorFlow", ("tensorflow", "tensorflow-cpu"), pins["tensorflow"]),
            _check("TensorFlow Recommenders Addons", ("tensorflow-recommenders-addons",),
                   pins["tensorflow-recommenders-addons"]))


def json_include() -> Path:
    """Include folder of nlohmann/json, from its Python package."""
    spec = importlib.util.find_spec("nlohmann_json")
    if spec is None or spec.origin is None:
        raise cxx.BuildError("nlohmann-json is not installed in this Python. Expected: "
                             "pip install -r requirements-build.txt")
    return Path(spec.origin).parent / "include"


def tensorflow_flags(cache: Path) -> tuple[list[str], list[str]]:
    """(compile flags, link flags) of the installed TensorFlow.

    Asking takes seconds, so the answer is kept in `cache` for this version and place. TensorFlow's
    headers become system headers: their warnings are not ours.
    """
    spec = importlib.util.find_spec("tensorflow")
    key = [sys.executable, str(spec.origin), *check_versions()]
    stored = {}
    with contextlib.suppress(OSError, ValueError):  # not there, or cut off
        stored = json.loads(cache.read_text())
    if stored.get("key") != key:
        env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
        result = subprocess.run([sys.executable, "-c", _ASK_TENSORFLOW], env=env, text=True,
                                capture_output=True, check=False, stdin=subprocess.DEVNULL)
        answer = re.search(r"^FLAGS(.*)$", result.stdout, re.MULTILINE)
        if result.returncode != 0 or answer is None:
            raise cxx.BuildError(f"TensorFlow could not be imported:\n{result.stderr}")
        stored = {"key": key, "flags": json.loads(answer.group(1))}
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(stored))
    compile_flags, link_flags = stored["flags"]
    system = []
    for flag in compile_flags:
        system += ["-isystem", flag[2:]] if flag.startswith("-I") else [flag]
    return system, link_flags


def compile_flags(out: Path) -> list[str]:
    """What the library's sources are compiled with, into `out`."""
    tf_version, tfra_version = check_versions()
    tf_compile, _ = tensorflow_flags(out / "tensorflow_flags.json")
    # No -march: the library runs on every x86-64 and picks faster code at run time. NDEBUG as in
    # TensorFlow's own build, whose headers check more without it; the C++ tests keep asserts.
    return ["-std=c++17", "-O3", "-g1", "-DNDEBUG", "-fPIC", "-pthread",
            f'-DADAPTCP_TF_VERSION="{tf_version}"',
            f'-DADAPTCP_TFRA_VERSION="{tfra_version}"',
            *tf_compile, "-isystem", str(json_include())]


def build_program(source: Path, product: list[Path], libraries: list[str]) -> Path:
    """Builds a program from a source and objects of the library, those of `product`; returns its path.

    Incremental and safe to call from several processes.
    """
    out = cxx.ROOT / "build" / "ops"
    with cxx.locked(out):
        objects = cxx.compile_objects([source, *product], out / "obj", compile_flags(out))
        return cxx.link(out / "bin" / source.stem, objects, ["-pthread", *libraries])


def build() -> Path:
    """Builds the library, incrementally, and returns where it is.

    Raises:
        cxx.BuildError: wrong versions, no sources, or a compile error.
    """
    out = cxx.ROOT / "build" / "ops"
    tf_version, tfra_version = check_versions()
    sources = cxx.find_sources(cxx.ROOT, PACKAGES)
    if not sources:
        raise cxx.BuildError(f"No C++ sources below {cxx.ROOT / 'ops'}. Expected some *.cc in "
                             f"{', '.join(PACKAGES)}.")
    with cxx.locked(out):
        _, tf_link = tensorflow_flags(out / "tensorflow_flags.json")
        objects = cxx.compile_objects(sources, out / "obj", compile_flags(out))
        # What the package compares with what it finds installed, before it loads the library.
        (out / VERSIONS).write_text(json.dumps({"tensorflow": tf_version,
                                                "tensorflow-recommenders-addons": tfra_version}))
        return cxx.link(out / LIBRARY, objects, ["-shared", "-pthread", *tf_link])


def _check(title: str, distributions: tuple[str, ...], expected: str) -> str:
    for name in distributions:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version != expected:
            raise cxx.BuildError(f"tfadaptcp is built for one release of {title}. "
                                 f"Received: {name} {version}. Expected: {expected}.")
        return version
    raise cxx.BuildError(f"{title} is not installed in this Python ({sys.executable}). Expected: "
                         f"{distributions[0]}=={expected}; install requirements-build.txt first "
                         "and build with --no-build-isolation.")


if __name__ == "__main__":
    try:
        print(build().relative_to(cxx.ROOT))
    except cxx.BuildError as error:
        sys.exit(f"tfadaptcp: {error}")
