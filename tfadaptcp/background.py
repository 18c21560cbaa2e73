"""Calls in threads of their own, for which nobody has to wait longer than he wants."""

import concurrent.futures
import threading
from typing import Any, Callable


def start(call: Callable[[], Any], name: str) -> concurrent.futures.Future:
    """Makes a call in a new thread of that name; returns the future of its result.

    The thread is a daemon, not one of a pool: a call that hangs holds up neither later ones nor the end of the process.
    """
    result: concurrent.futures.Future = concurrent.futures.Future()
    threading.Thread(target=_run, args=(call, result), name=name, daemon=True).start()
    return result


def _run(call: Callable[[], Any], result: concurrent.futures.Future) -> None:
    try:
        result.set_result(call())
    except BaseException as error:
        result.set_exception(error)
