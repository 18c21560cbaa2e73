"""Many small calls to a store, some of them at a time.

A remote store takes its time for each, and of a large table there may be a hundred thousand objects.
"""

import concurrent.futures
import threading
from typing import Callable, Iterable, List, TypeVar

from tfadaptcp import background

_T = TypeVar("_T")

# At so many, 30 ms for a request make a thousand a second, which is what a bucket takes that has not scaled yet.
REMOTE_CALLS = 32


def each(call: Callable[[_T], object], items: Iterable[_T], calls: int) -> None:
    """Makes a call for each item, at most so many at a time; with one, in their order, in this thread.

    The first that raises ends it: no further one begins, those under way end, and what it raised is raised.
    """
    if calls == 1:
        for item in items:
            call(item)
        return
    left, lock, failed = list(items)[::-1], threading.Lock(), threading.Event()

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
