"""Calls in threads of their own, for which nobody has to wait longer than he wants."""

import concurrent.futures
import contextlib
import threading
from typing import Any, Callable, ContextManager


def start(call: Callable[[], Any], name: str,
          inside: Callable[[], ContextManager[Any]] = contextlib.nullcontext) -> concurrent.futures.Future:
    """Makes a call in a new thread of that name; returns the future of its result.

    The thread is a daemon, not one of a pool: a call that hangs holds up neither later ones nor the end of the process.

    Args:
        inside: the context in which to make the call. The result is there before the thread leaves it.
    """
    result: concurrent.futures.Future = concurrent.futures.Future()
    threading.Thread(target=_run, args=(call, inside, result), name=name, daemon=True).start()
    return result


def _run(call: Callable[[], Any], inside: Callable[[], ContextManager[Any]], result: concurrent.futures.Future) -> None:
    with inside():
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)
