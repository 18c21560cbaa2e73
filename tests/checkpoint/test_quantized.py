"""Quantised columns: the C++ encoder against the specification written again in numpy, and both readers against it."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support import quantizing
from tfadaptcp.checkpoint import format as segment_format
from tfadaptcp.checkpoint.format_types import numpy_dtype
from tools import cxx

METHODS = [(method, bits) for method in ("symmetric", "asymmetric", "adaptive", "kmeans") for bits in (2, 3, 4, 8)]
METHODS.append(("bfloat16", 16))


@pytest.fixture(scope="module")
def tool(segment_tool: Path) -> Path:
    return segment_tool


def _written(tool: Path, folder: Path, values: np.ndarray, dtype: str, method: str, bits: int) -> Path:
    (folder / "rows").write_bytes(values.tobytes())
    path = folder / "q.seg"
    subprocess.run([tool, "quantize", method, str(bits), dtype, str(values.shape[1]), folder / "rows", path], check=True,
                   timeout=60)
    return path


def _read(path: Path) -> np.ndarray:
    block, = segment_format.read_segment(path.read_bytes(), "q.seg").row_blocks
    return block.values[0]


@pytest.mark.parametrize("method,bits", METHODS)
def test_what_comes_back_is_as_specified(tool, tmp_path, method, bits):
    """In every dtype and at every alignment, out of both readers."""
    for dtype, dims in {"float32": (1, 2, 3, 8, 29, 64), "float16": (5, 32), "bfloat16": (32,), "float64": (1, 17)}.items():
        for dim in dims:
            values = quantizing.numbers(80 if dim < 10 else 40, dim, dtype, seed=dim)
            path = _written(tool, tmp_path, values, dtype, method, bits)
            expected = quantizing.dequantized(values, method, bits)
            received = _read(path)
            differ = [i for i in range(len(values)) if received[i].tobytes() != expected[i].tobytes()]
            assert received.dtype == expected.dtype and not differ, (
                f"{dtype}, dim {dim}, row {differ[0]}: {values[differ[0]]} -> {received[differ[0]]}, "
                f"not {expected[differ[0]]}")
            dumped = subprocess.run([tool, "dump", path], check=True, capture_output=True, timeout=60)
            assert json.loads(dumped.stdout)["blocks"][0]["tables"][0]["values"] == expected.tobytes().hex()


def test_sizes(tool, tmp_path):
    """4, 8, 10.7 and 16 times smaller, but for four bytes a row and the front."""
    values = np.random.default_rng(1).normal(size=(200, 64)).astype(np.float32)
    raw = _written(tool, tmp_path, values, "float32", "raw", 0).stat().st_size
    for method, bits in METHODS[4:12]:
        size = _written(tool, tmp_path, values, "float32", method, bits).stat().st_size
        column = 8 + 25 + 200 * (4 + 64 * bits // 8)
        assert raw - size == 200 * 256 - column - -column % 8


def test_the_documented_column_is_what_is_written(tool, tmp_path):
    text = (cxx.ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    lines = text[text.index("## A quantised column"):text.index("## A worked example")].splitlines()
    documented = b"".join(bytes.fromhex(line[6:53]) for line in lines if line[:2] == "00")
    values = np.array([[-1, 0.5, 2, 1, 0], [np.nan, 0, 0, 0, 0], [3, 3, 3, 3, 3]], np.float32)
    path = _written(tool, tmp_path, values, "float32", "asymmetric", 2)
    assert documented and path.read_bytes().count(documented) == 1
    assert _read(path).tolist()[0] == [-1, 1, 2, 1, 0] and _read(path)[2].tolist() == [3] * 5


def test_numbers_of_dtypes_need_no_more_memory_than_they_have(tool, tmp_path):
    for dtype in ("float32", "float64"):
        empty = np.zeros((0, 7), numpy_dtype(dtype))
        assert _read(_written(tool, tmp_path, empty, dtype, "kmeans", 2)).shape == (0, 7)


def test_adams_next_step_in_the_default_for_slots_and_on_a_grid():
    """Why slots are written in bfloat16 if nothing else is said: docs/guide.md."""
    source = np.random.default_rng(0)
    scale = np.exp(source.normal(size=(50, 64))) * 1e-3
    m = v = np.zeros_like(scale)
    for _ in range(300):
        gradient = source.normal(size=scale.shape) * scale
        m, v = .9 * m + .1 * gradient, .999 * v + .001 * gradient ** 2
    gradient = source.normal(size=scale.shape) * scale

    def most(*how):
        left_m, left_v = (quantizing.dequantized(slot.astype(np.float32), *how) for slot in (m, v))
        step = (.9 * left_m + .1 * gradient) / (np.sqrt(.999 * left_v + .001 * gradient ** 2) + 1e-7)
        return np.abs(step).max()

    assert most("raw", 0) < 2 and most("bfloat16", 16) < 2 and most("asymmetric", 8) > 10
