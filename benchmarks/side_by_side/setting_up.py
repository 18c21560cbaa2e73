"""A cluster with the job on it, ready to be filled."""

import contextlib
import os
import time
from typing import Any, Iterator

from benchmarks.side_by_side import job as jobs
from benchmarks.side_by_side import stock, watching
from benchmarks.side_by_side.capped import build, control


@contextlib.contextmanager
def running(directory: str, ps: int, rows: int, is_stock: bool, bytes_per_row: int) -> Iterator[Any]:
    """Yields a job, the control of its store, and the facts of the machine; once in a process.

    Args:
        bytes_per_row: what the servers need for each, its slots and whatever saves it included.
        directory: local; gets the control's page, and `store`, for what is to go there.
        is_stock: the job is to know nothing of tfadaptcp.

    Raises:
        MemoryError: the job would need more than there is, and the kernel would end some process or other.
    """
    watching.require_memory(rows * bytes_per_row)
    library, page = str(build.build()), os.path.join(directory, "caps")
    os.environ[control.VARIABLE] = page
    caps = control.Control(page)
    facts = watching.facts()
    if is_stock:
        stock.leave_tfra_alone()
        stock.fix_several_workers()
    else:
        import tfadaptcp  # noqa: F401 (puts its ops in)
    build.load(library)
    os.mkdir(os.path.join(directory, "store"))
    start = time.monotonic()
    with jobs.start_cluster(ps, library, page, is_stock) as cluster:
        facts["cluster_seconds"] = time.monotonic() - start
        yield jobs.Job(cluster, jobs.build(cluster, rows), rows), caps, facts
