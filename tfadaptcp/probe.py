"""What is tried at start-up, before hours of training depend on it: that the directory can be written to from every host that
will write there, that all of them mean the same directory by its name, and that there is room.
"""

import logging
import math
import secrets

import tensorflow as tf

from tfadaptcp.checkpoint import layout
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.engine import LOCAL, Engine, Host, here
from tfadaptcp.errors import StoreUnavailableError

_log = logging.getLogger("tfadaptcp")


def check(engine: Engine, store: Store, directory: str) -> None:
    """Tries the directory from this process and from every parameter server.

    Raises:
        StoreUnavailableError: writing, syncing, reading or deleting failed here; or a parameter server, named, can't write
            there or sees another directory by that name.
        DeadlineError: one of them did not answer; named.
    """
    store.check_writable(directory)
    # Hosts in this process have been tried by that.
    hosts = {host.index: host for host in engine.hosts if not host.device.startswith(LOCAL)}
    if hosts:
        engine.parallel({index: lambda host=host: _check_host(host, store, directory) for index, host in hosts.items()})
    warn_if_full(engine, store, directory)


def _check_host(host: Host, store: Store, directory: str) -> None:
    content = secrets.token_hex(16)
    who = f"ps {host.index} ({host.device})"
    for last in (False, False, True):
        path = join(directory, layout.DATA, layout.PROBE_PREFIX + secrets.token_hex(6))
        try:
            # TensorFlow's own op: a host that can't even do this can't write segments.
            name, text = here(path), here(content)
            with tf.device(host.device):
                tf.io.write_file(name, text)
        except tf.errors.OpError as error:
            if isinstance(error, tf.errors.UnavailableError):
                raise  # of the host, not of its files
            raise StoreUnavailableError(f"{who} can't write to {directory}: {error.message}") from error
        try:
            found = store.read(path)
        except FileNotFoundError as error:
            if not last:
                continue  # a retention pass elsewhere may have swept it
            raise StoreUnavailableError(
                f"{who} does not see the same directory {directory} as the coordinator: what it wrote there is not there. "
                f"Received: no {path}. Expected: a store that every parameter server reaches by this name") from error
        if found != content.encode():
            raise StoreUnavailableError(f"{who} wrote {path}, and something else is there. Received: {len(found)} bytes. "
                                        f"Expected: the {len(content)} written")
        store.delete(path, durable=False)
        return


def warn_if_full(engine: Engine, store: Store, directory: str) -> None:
    """Logs a warning if there is less room than for one complete checkpoint of what is in the tables. Local paths only."""
    free = store.free_bytes(directory)
    needed = estimated_bytes(engine)
    if free is not None and free < needed:
        _log.warning("%s has little room: %d bytes are free, a complete checkpoint of what is in the tables now takes about "
                     "%d. A checkpoint for which there is no room fails, and training goes on.", directory, free, needed)


def estimated_bytes(engine: Engine) -> int:
    """About the bytes of a complete checkpoint of what is in the tables now."""
    dense = sum((tf.dtypes.as_dtype(spec.dtype).size or 0) * math.prod(spec.shape) for spec in engine.dense_specs())
    return dense + sum(group["keys"] * group["row_bytes"] for stats in engine.stats() for group in stats["groups"])
