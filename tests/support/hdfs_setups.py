"""HDFS with parts of its client missing, for a process that was started without any of them."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from tfadaptcp.checkpoint.store import Store
from tfadaptcp.errors import UnsupportedStoreError


def errors_by_what_is_missing(directory: str, hadoop_home: str, libjvm: str) -> dict[str, str]:
    """What a store is told, while one part after the other is added; and who gets a SIGTERM once Java has been started."""
    found = {}

    def attempt(missing: str) -> None:
        try:
            Store().check_supported(directory)
            found[missing] = ""
        except UnsupportedStoreError as error:
            found[missing] = str(error)

    called = []
    signal.signal(signal.SIGTERM, lambda *_: called.append("Python"))
    for name in ("HADOOP_HDFS_HOME", "CLASSPATH"):
        os.environ.pop(name, None)
    attempt("libhdfs")
    os.environ["HADOOP_HDFS_HOME"] = hadoop_home
    attempt("libjvm")
    ctypes.CDLL(libjvm, mode=ctypes.RTLD_GLOBAL)  # as if it had been on LD_LIBRARY_PATH at the start
    attempt("CLASSPATH")
    os.environ["CLASSPATH"] = "/nowhere/hadoop.jar"
    attempt("jars")
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(100):
        if not called:
            time.sleep(0.01)
    return {**found, "SIGTERM": "".join(called)}
