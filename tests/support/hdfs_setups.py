"""HDFS with parts of its client missing, for a process that was started without any of them."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from tfadaptcp.checkpoint import hdfs
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.errors import UnsupportedStoreError


def errors_by_what_is_missing(directory: str, hadoop_home: str, libjvm: str) -> dict[str, str]:
    """What a store is told, while one part after the other is added."""
    found = {}

    def attempt(missing: str) -> None:
        try:
            Store().check_supported(directory)
            found[missing] = ""
        except UnsupportedStoreError as error:
            found[missing] = str(error)

    for name in ("HADOOP_HDFS_HOME", "CLASSPATH"):
        os.environ.pop(name, None)
    attempt("libhdfs")
    os.environ["HADOOP_HDFS_HOME"] = hadoop_home
    attempt("libjvm")
    ctypes.CDLL(libjvm, mode=ctypes.RTLD_GLOBAL)  # as if it had been on LD_LIBRARY_PATH at the start
    attempt("CLASSPATH")
    os.environ["CLASSPATH"] = "/nowhere/hadoop.jar"
    attempt("jars")
    return found


def signals_stay_with_python(directory: str) -> bool:
    """Whether a handler for SIGTERM that was set before Java was started is called after it."""
    called = []
    before = signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    hdfs._library = None  # as in a process that has not used HDFS yet; harmless if it has
    Store().check_supported(directory)
    Store().list(directory)
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(100):
        if called:
            break
        time.sleep(0.01)
    signal.signal(signal.SIGTERM, before)
    return bool(called)
