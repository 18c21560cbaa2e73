"""Where faults are injected into Python's file operations.

Every primitive operation of the store announces itself here before it runs. Without a hook of its own, a test's
`set_fault_hook`, the announcement goes to `adaptcp_store_op` in the native library, if this process has loaded it: one
counter then covers the operations of both languages.
"""

import ctypes
import os
from typing import Callable, Optional

FaultHook = Callable[[str, str], None]

_LIBRARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_adaptcp_ops.so")

_hook: Optional[FaultHook] = None
_native = None


def set_fault_hook(hook: Optional[FaultHook]) -> None:
    """Sends announcements to `hook(op, path)`, which may raise OSError; None restores the default.

    Process-wide; to be called while no other thread uses a store.
    """
    global _hook
    _hook = hook


def fault_point(op: str, path: str) -> None:
    """Announces operation `op` (create, write, fsync, close, fsync_dir, mkdir, open, read, list, size, delete).

    Raises:
        OSError: the operation is to fail as if the file system had answered with this errno.
    """
    if _hook is not None:
        _hook(op, path)
        return
    native = _native or _find_native()
    if native is None:
        return
    code = native(op.encode(), path.encode())
    if code:
        raise OSError(code, os.strerror(code), path)


def _find_native():
    global _native
    try:
        # Only a library that is loaded already: loading it here would register its ops behind the back of whoever
        # is to check versions first.
        library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    function = getattr(library, "adaptcp_store_op", None)
    if function is not None:
        function.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        function.restype = ctypes.c_int
        _native = function
    return function
