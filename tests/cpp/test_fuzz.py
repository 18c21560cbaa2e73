"""A million mutated segments under AddressSanitizer; test_cpp.py reads a tenth of them."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cpp.test_cpp import SANITIZER_ENV, gtest_missing
from tools import cpp_build, cxx


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_inputs() -> None:
    if gtest_missing():
        pytest.skip(gtest_missing())
    program, = cpp_build.build([cxx.ROOT / "ops" / "format" / "fuzz_test.cc"], "asan")
    done = subprocess.run([program], env={**os.environ, **SANITIZER_ENV, "ADAPTCP_FUZZ_INPUTS": "1000000"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=1700)
    assert done.returncode == 0 and "1000000 inputs" in done.stdout, done.stdout[-5000:] + done.stderr[-5000:]
