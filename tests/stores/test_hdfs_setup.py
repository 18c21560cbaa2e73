"""What HDFS needs of a process, and what is said where it is missing."""

from __future__ import annotations

import os
import subprocess

import tensorflow as tf

from tests.support.child import Child
from tests.support.store_tool import TOOL_PLUGINS
from tfadaptcp import errors, restore

SETUPS = "tests.support.hdfs_setups"


def bare(env: dict[str, str]) -> dict[str, str]:
    """Removes what the client needs."""
    return {**env, "CLASSPATH": "", "HADOOP_HDFS_HOME": "/nowhere", "LD_LIBRARY_PATH": ""}


def test_what_is_missing_is_said_at_construction(hdfs):
    child = Child(bare(hdfs.served.env))
    try:
        found = child.call(SETUPS, "errors_by_what_is_missing", hdfs.served.root, hdfs.served.env["HADOOP_HDFS_HOME"],
                           hdfs.served.env["LD_LIBRARY_PATH"].split(":")[0] + "/libjvm.so")
    finally:
        child.close()
    for missing, reason in {"libhdfs": "libhdfs.so: cannot open", "libjvm": "libjvm.so: cannot open",
                            "CLASSPATH": "Received: no CLASSPATH", "jars": "Received: CLASSPATH=/nowhere"}.items():
        assert reason in found[missing] and "Expected: libhdfs.so in" in found[missing], found
        assert hdfs.served.root in found[missing]
    assert found["SIGTERM"] == "Python", "Java leaves it to the handlers that were there before"


def test_a_server_without_the_client_library_finds_nothing_damaged(hdfs, store_tool):
    """The plug-in's own answer, at its first use, is that the file is not there: a restore would call the head damaged."""
    done = subprocess.run([store_tool, hdfs.served.root + "/new", *TOOL_PLUGINS], capture_output=True, text=True,
                          env={**os.environ, **bare(hdfs.served.env)}, timeout=120, check=False)
    assert "FAILED_PRECONDITION" in done.stdout and "libhdfs.so" in done.stdout, done.stdout + done.stderr[-2000:]
    said = tf.errors.FailedPreconditionError(None, None, done.stdout.partition("FAILED_PRECONDITION: ")[2])
    assert not isinstance(said, restore._DAMAGE)
    told = errors.of_host(said, "could not read a checkpoint")
    assert isinstance(told, errors.StoreUnavailableError) and "libhdfs.so" in str(told)
