"""What is tried at start-up, before hours of training depend on it: that the directory can be written to from every host that
will write there, that all of them mean the same directory by its name, and that there is room.
"""

import errno
import logging
import math
import os
import random
import secrets
import time
from typing import Optional, Union

import tensorflow as tf

from tfadaptcp import errors
from tfadaptcp.checkpoint import layout
from tfadaptcp.checkpoint.remote_files import is_transient
from tfadaptcp.checkpoint.store import Store, join, normalize
from tfadaptcp.engine import Engine
from tfadaptcp.errors import StorePermissionError, StoreUnavailableError
from tfadaptcp.hosts import LOCAL, Host, here

_log = logging.getLogger("tfadaptcp")


def buffer_directory(given: Union[None, str, os.PathLike], directory: str) -> Optional[str]:
    """Returns the path of a buffer directory, absolute.

    Raises:
        ValueError: it isn't local, or is one with the checkpoint directory, or within it, or the other way round.
    """
    if given is None:
        return None
    path = normalize(given) if isinstance(given, (str, os.PathLike)) and os.fspath(given) else ""
    if not path or "://" in path:
        raise ValueError(f"buffer_dir: Received: {given!r}. Expected: None, or a local path on every parameter server")
    if (path + "/").startswith(directory + "/") or (directory + "/").startswith(path + "/"):
        raise ValueError(f"buffer_dir: Received: {given!r}. Expected: a path apart from the checkpoint directory "
                         f"{directory}")
    return path


def check(engine: Engine, store: Store, directory: str, buffer_dir: Optional[str], timeout_seconds: float) -> None:
    """Tries the directory from this process and from every parameter server, and there the buffer directory. Logs an error if
    there is no room at all.

    Raises:
        StoreUnavailableError: writing, syncing, reading or deleting failed here; or a parameter server, named, can't write
            there, or in the buffer directory, or sees another directory by that name.
        DeadlineError: one of them did not answer; named.
    """
    hosts = {host.index: host for host in engine.hosts if not host.device.startswith(LOCAL)}  # others are tried by this process
    is_full = False
    try:
        store.check_writable(directory)
    except StoreUnavailableError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # What an earlier process has left there may be removed by the first save, and a restore needs no room.
        _log.error("%s is full; checkpoints fail until there is room: %s", directory, error)
        is_full = True
    if hosts:
        engine.parallel({(index, 0): lambda host=host: _check_host(host, store, directory, is_full, 0.8 * timeout_seconds)
                         for index, host in hosts.items()},
                        timeout_seconds)
    if buffer_dir is not None:
        engine.on_all(lambda host: _check_buffer(engine, host, buffer_dir), timeout_seconds)
    warn_if_full(engine, store, directory)


def _check_buffer(engine: Engine, host: Host, buffer_dir: str) -> None:
    who = host.name
    try:
        reply = engine.probe_buffer(host, buffer_dir)
    except tf.errors.OpError as error:
        told = errors.of_host(error, f"{who} can't write to buffer_dir {buffer_dir}")
        if told is None:  # of the host, not of its files
            raise
        raise told from error
    _log.info("%s buffers segments in %s, where %d bytes are free. Directories of dead processes removed there: %d.", who,
              reply["path"], reply["free_bytes"], reply["removed"])


def _check_host(host: Host, store: Store, directory: str, is_full: bool, retry_seconds: float) -> None:
    content = secrets.token_hex(16)
    who = host.name
    until = time.monotonic() + (retry_seconds if "://" in directory else 0)
    wait = 0.1
    tries = 0
    while True:
        path = join(directory, layout.DATA, layout.PROBE_PREFIX + secrets.token_hex(6))
        try:
            # TensorFlow's own op: a host that can't even do this can't write segments.
            name, text = here(path), here(content)
            with tf.device(host.device):
                tf.io.write_file(name, text)
        except tf.errors.OpError as error:
            if isinstance(error, tf.errors.UnavailableError):
                raise  # of the host, not of its files
            if is_full and isinstance(error, tf.errors.ResourceExhaustedError):
                return  # as for the coordinator; one that writes elsewhere has room there
            passes = "://" in directory and is_transient(error)
            if passes and time.monotonic() + wait < until:
                time.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(2 * wait, 10.0)
                continue
            refused = isinstance(error, tf.errors.PermissionDeniedError) and not passes
            kind = StorePermissionError if refused else StoreUnavailableError
            raise kind(f"{who} can't write to {directory}: {error.message}") from error
        tries += 1
        try:
            found = store.read(path)
        except FileNotFoundError as error:
            if tries < 3:
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
