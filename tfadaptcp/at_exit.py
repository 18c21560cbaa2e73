"""Closing what is open at the end of the process."""

import atexit
import functools
import os
import weakref
from typing import Any, Callable


def close(resource: Any) -> Callable[[], None]:
    """Has `resource.close()` called at the end of this process, not in a child of fork, which has none of its threads.

    Returns:
        What takes that back. Held weakly meanwhile: what nobody closed goes when nobody needs it.
    """
    call = functools.partial(_close, weakref.ref(resource), os.getpid())
    atexit.register(call)
    return functools.partial(atexit.unregister, call)


def _close(resource: "weakref.ref[Any]", pid: int) -> None:
    found = resource()
    if found is not None and os.getpid() == pid:
        found.close()
