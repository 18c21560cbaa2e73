"""Many small calls to a store, some of them at a time.

A remote store takes its time for each, and of a large table there may be a hundred thousand objects.
"""

import concurrent.futures
import threading
import time
from typing import Callable, Iterable, List, Optional, TypeVar

from tfadaptcp import background

_T = TypeVar("_T")

# At so many, 30 ms for a request make a thousand a second, which is what a bucket takes that has not scaled yet.
REMOTE_CALLS = 32


def each(call: Callable[[_T], object], items: Iterable[_T], calls: int, ends: Optional[float] = None) -> List[_T]:
    """Makes a call for each item, at most so many at a time; with one, in their order, in this thread.

    The first that raises ends it: no further one begins, those under way end, and what it raised is raised.

    Args:
        ends: in seconds, by `time.monotonic()`: no further call begins then, but one of each thread is made, however late
            it is. None: a call is made for each item.

    Returns:
        The items for which none was made.
    """
    left = list(items)[::-1]

    def is_over() -> bool:
        return ends is not None and time.monotonic() >= ends

    if calls == 1:
        while left:
            call(left.pop())
            if is_over():
                break
        return left[::-1]
    lock, failed = threading.Lock(), threading.Event()

    def work() -> None:
        while not failed.is_set():
            with lock:
                if not left:
                    return
                item = left.pop()
            try:
                call(item)
            except BaseException:
                failed.set()
                raise
            if is_over():
                return

    results: List[concurrent.futures.Future] = []
    try:
        for _ in range(min(calls, len(left))):
            results.append(background.start(work, "tfadaptcp-store"))
    except BaseException:  # no more threads: what others still did, nobody would know of
        failed.set()
        raise
    finally:
        concurrent.futures.wait(results)
    for result in results:
        result.result()
    return left[::-1]
