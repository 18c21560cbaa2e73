"""Faults in the file operations of a whole process, native and Python alike, by one counter."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from tfadaptcp import _ops


def set_plan(plan: str) -> None:
    """Arms a plan, as ADAPTCP_STORE_FAULTS takes it; "" disarms. The count starts anew."""
    code = _library().adaptcp_store_faults(plan.encode())
    if code:
        raise ValueError(f"{plan!r}: {os.strerror(code)}")


def count() -> int:
    """File operations since the last `set_plan`."""
    return int(_library().adaptcp_store_op_count())


def announce(operation: str, path: str) -> None:
    """Counts an operation of the test's own, as a mark in a log or trace."""
    if _library().adaptcp_store_op(operation.encode(), path.encode()):
        raise OSError(f"the plan struck at the mark {operation} {path}")


@contextlib.contextmanager
def plan(text: str) -> Iterator[None]:
    set_plan(text)
    try:
        yield
    finally:
        set_plan("")


@contextlib.contextmanager
def hanging(text: str) -> Iterator[None]:
    """A plan with `hang@N` in it, at the end of which what hangs goes on; checks that something did."""
    with plan(text):
        yield
        at = int(text.partition("hang@")[2].partition(";")[0])
        assert count() >= at, f"nothing hung: {count()} operations"


def _library() -> ctypes.CDLL:
    _ops.lib()
    library = ctypes.CDLL(str(_ops.LIBRARY))
    library.adaptcp_store_faults.argtypes = [ctypes.c_char_p]
    library.adaptcp_store_op.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.adaptcp_store_op_count.restype = ctypes.c_uint64
    return library
