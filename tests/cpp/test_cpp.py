"""Runs every GoogleTest binary under ThreadSanitizer, and under ASan and UBSan; `make bazel` runs them plain."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

import pytest

from tools import cpp_build, cxx

# Races show themselves by chance: binaries with "race" in their name run this many times.
RACE_RUNS = {"tsan": 3, "asan": 2}
SANITIZER_ENV = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@functools.cache
def gtest_missing() -> str:
    """Empty, or why GoogleTest can't be used."""
    probe = subprocess.run([cxx.compiler(), "-x", "c++", "-std=c++17", "-", "-o", "/dev/null",
                            "-lgtest_main", "-lgtest", "-pthread"],
                           input="#include <gtest/gtest.h>\n", text=True, capture_output=True,
                           check=False)
    if probe.returncode == 0:
        return ""
    return "GoogleTest is not installed (Debian: apt-get install libgtest-dev g++)"


@functools.cache
def fixed_addresses() -> tuple[str, ...]:
    """`setarch -R`, where it is allowed: ThreadSanitizer rejects some random address layouts."""
    command = ("setarch", "-R")
    try:
        return command if subprocess.run([*command, "true"], capture_output=True,
                                         check=False).returncode == 0 else ()
    except FileNotFoundError:
        return ()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("source, flavour", [
    pytest.param(path, flavour, id=f"{path.parent.name}.{path.stem}-{flavour}")
    for path in cpp_build.test_sources() for flavour in RACE_RUNS
    if (path.stem, flavour) != ("fuzz_test", "tsan")])  # it has no threads
def test_cpp(source: Path, flavour: str) -> None:
    if gtest_missing():
        pytest.skip(gtest_missing())
    program, = cpp_build.build([source], flavour)
    runs = RACE_RUNS[flavour] if "race" in source.stem else 1
    result = subprocess.run(
        [*fixed_addresses(), program, f"--gtest_repeat={runs}", "--gtest_color=no"],
        env={**os.environ, **SANITIZER_ENV}, stdin=subprocess.DEVNULL, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", cwd=cxx.ROOT)
    print(result.stdout[-20000:])
    assert result.returncode == 0, f"{program.name} ({flavour}) exited {result.returncode}"
    passed = re.findall(r"^\[  PASSED  \] (\d+) tests?\.", result.stdout, re.MULTILINE)
    assert len(passed) == runs and "0" not in passed, "ran no test"
    left_out = re.search(r"^\[  SKIPPED \].*|YOU HAVE \d+ DISABLED.*", result.stdout, re.MULTILINE)
    assert left_out is None, f"left out: {left_out.group(0)}"


def test_every_cpp_test_is_run() -> None:
    """A *_test.cc in a folder that is not built here would pass by never running."""
    assert sorted((cxx.ROOT / "ops").rglob("*_test.cc")) == sorted(cpp_build.test_sources())
