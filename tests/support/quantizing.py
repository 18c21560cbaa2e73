"""Quantisation as docs/format.md specifies it, written again in numpy: what is to come back of a row, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import Any

import ml_dtypes
import numpy as np

from tests.support import oracle
from tfadaptcp.checkpoint.format_types import numpy_dtype

F = np.float32
STEPS, TURNS, LLOYD_ROUNDS = 25, 15, 16
LEAST_STEP = np.finfo(F).tiny


def dequantized(values: np.ndarray, method: str, bits: int) -> np.ndarray:
    """What is left of [rows, dim] values of floating point after they were quantised and read again."""
    dtype, dim = values.dtype, values.shape[1]
    codes = (dim * bits + 7) // 8
    record = {"bfloat16": 2 * dim, "kmeans": (2 << bits) + codes}.get(method, 4 + codes)
    if method == "raw" or record >= dim * dtype.itemsize:
        return values
    with np.errstate(all="ignore"):
        return np.stack([_row(row, row.astype(F), method, bits) for row in values]) if len(values) else values


def _row(row: np.ndarray, x: np.ndarray, method: str, bits: int) -> np.ndarray:
    if not np.isfinite(x).all():
        return row
    if method == "bfloat16":
        left = x.astype(ml_dtypes.bfloat16).astype(F)
    elif x.min() == x.max():
        left = np.full_like(x, _bfloat16(x[0]) + F(0))
        return row if left.astype(row.dtype).tobytes() != row.tobytes() else left.astype(row.dtype)
    elif method == "kmeans":
        left = _kmeans(x, 2 ** bits)
    else:
        left = _affine(x, method, 2 ** bits - 1, row.dtype)
    if left is None or not np.isfinite(left).all():
        return row
    return left.astype(row.dtype)


def _affine(x, method, levels, dtype):
    lo, hi = x.min(), x.max()
    if method == "symmetric":
        hi = max(-lo, hi)
        lo = -hi
    grid = _grid(lo, hi, levels)
    if method == "adaptive" and grid is not None:
        grid = _search(x, lo, hi, levels, grid)
    if grid is None:
        return None
    ends = np.array([grid[0], F(levels) * grid[1] + grid[0]], F).astype(dtype)
    return _nearest(x, grid, levels) if np.isfinite(ends.astype(F)).all() else None


def _grid(lo, hi, levels):
    zero = _bfloat16(lo, down=True)
    step = (hi - zero) / F(levels)
    if not np.isfinite(zero) or not np.isfinite(step) or step < LEAST_STEP:
        return None
    scale = -_bfloat16(-step, down=True)
    width = F(levels) * scale
    return (zero, scale) if np.isfinite([scale, width, zero + width]).all() else None


def _nearest(x, grid, levels):
    zero, scale = grid
    codes = np.rint(np.clip((x - zero) * (F(1) / scale), F(0), F(levels)))
    return codes * scale + zero


def _search(x, lo, hi, levels, whole):
    unit = F(1) / whole[1]

    def loss(grid):
        squares = np.zeros(-(-len(x) // 8) * 8, F)
        squares[:len(x)] = ((x - _nearest(x, grid, levels)) * unit) ** 2
        lanes = np.zeros(8, F)
        for block in squares.reshape(-1, 8):
            lanes = lanes + block
        return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))

    def exactly(grid):
        total = 0.0
        for square in (x.astype(np.float64) - _nearest(x, grid, levels)) ** 2:
            total += square
        return total

    best, least = whole, loss(whole)
    step, below, above = (hi - lo) / F(STEPS), 0, 0
    for _ in range(TURNS):
        up = _grid(lo + F(below + 1) * step, hi - F(above) * step, levels)
        down = _grid(lo + F(below) * step, hi - F(above + 1) * step, levels)
        if up is None or down is None:
            break
        lost_up, lost_down = loss(up), loss(down)
        below, above = (below + 1, above) if lost_up < lost_down else (below, above + 1)
        lost, grid = (lost_up, up) if lost_up < lost_down else (lost_down, down)
        if lost < least:
            best, least = grid, lost
    return best if exactly(best) < exactly(whole) else whole


def _kmeans(x, entries):
    ordered = np.sort(x).astype(np.float64)
    lo, hi = ordered[0], ordered[-1]
    centers = [lo + (hi - lo) * float(k) / (entries - 1) for k in range(entries)]
    for _ in range(LLOYD_ROUNDS):
        bounds = [(a + b) / 2 for a, b in zip(centers, centers[1:])]
        sums, counts = [0.0] * entries, [0] * entries
        for value in ordered.tolist():
            k = sum(value > bound for bound in bounds)
            sums[k] += value
            counts[k] += 1
        moved = [total / count if count else center for total, count, center in zip(sums, counts, centers)]
        if moved == centers:
            break
        centers = moved
    book = np.array(centers).astype(F).astype(ml_dtypes.bfloat16).astype(F)
    if not np.isfinite(book).all():
        return None
    bounds = (book[:-1].astype(np.float64) + book[1:]) / 2
    return book[(x.astype(np.float64)[:, None] > bounds).sum(axis=1)]


def _bfloat16(x, down=False):
    """The nearest bfloat16 number, or the greatest that is not above x."""
    near = F(x).astype(ml_dtypes.bfloat16)
    if down and near.astype(F) > x:
        near = np.nextafter(near, ml_dtypes.bfloat16(-np.inf))
    return near.astype(F)


def numbers(rows: int, dim: int, dtype: str, seed: int) -> np.ndarray:
    """Rows as training makes them, and others: offsets, outliers, constants, NaN, infinite, tiny, huge, -0.0."""
    source = np.random.default_rng(seed)
    x = source.normal(size=(rows, dim)) * np.exp2(source.integers(-30, 10, (rows, 1)))
    x[1::7] += 100 * x[1::7, :1]
    x[2::7, 0] *= 1000
    special = [0.0, -0.0, 0.1, 1.0, np.nan, np.inf, -np.inf, 1e-40, -3e38, 65504.0, 1e300]
    for i, value in enumerate(special):
        if 3 + 7 * i < rows:
            x[3 + 7 * i] = value
        if 4 + 7 * i < rows:
            x[4 + 7 * i, 0] = value
    x[5::7] *= 1e-38
    with np.errstate(all="ignore"):
        return x.astype(numpy_dtype(dtype))


def of_copy(copy: oracle.Copy, model: Any, parameter: tuple[str, int] | None, slots: tuple[str, int] | None,
            keys: Container | None = None) -> oracle.Copy:
    """What is to come back of a model: (method, bits) of parameters and of slots, None: raw; of these keys, None: of all."""
    tables = {}
    for name, variable in oracle.tables_of(model):
        how = slots if "/" in name else parameter
        tables[name] = copy.tables[name] if how is None else of_table(copy.tables[name], variable, how, keys)
    return dataclasses.replace(copy, tables=tables)


def of_table(table: dict[Any, tuple[int, bytes]], variable: Any, how: tuple[str, int],
             keys: Container | None = None) -> dict[Any, tuple[int, bytes]]:
    """The same for one table."""
    names = [key for key in table if keys is None or key in keys]
    values = np.frombuffer(b"".join(table[key][1] for key in names), variable.value_dtype.as_numpy_dtype)
    left = dequantized(values.reshape(len(names), int(variable.dim)), *how)
    return {**table, **{key: (table[key][0], row.tobytes()) for key, row in zip(names, left)}}
