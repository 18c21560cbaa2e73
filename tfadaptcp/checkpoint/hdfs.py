"""What hdfs:// needs beside tensorflow-io, and what tensorflow-io's plug-in does not tell of it.

The plug-in reaches HDFS through Hadoop's libhdfs.so, which runs Java inside this process. Where library, Java or classes
are missing, its first answer is that the file is "not found": so they are tried here first.
"""

import ctypes
import os
import threading
from typing import Optional

import tensorflow as tf

from tfadaptcp.errors import MissingPluginError

SCHEMES = frozenset(("hdfs", "viewfs", "har"))

_NEEDED = ("Expected: libhdfs.so in $HADOOP_HDFS_HOME/lib/native or on LD_LIBRARY_PATH, libjvm.so on LD_LIBRARY_PATH, and "
           "in CLASSPATH every jar of `hadoop classpath --glob`, all before the process starts; see docs/stores.md")
_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None


def leave_signals_alone() -> None:
    """Has a Java that libhdfs starts later leave SIGTERM and its like to this process, where Keras callbacks act on them."""
    options = os.environ.get("LIBHDFS_OPTS", "")
    if "-Xrs" not in options.split():
        os.environ["LIBHDFS_OPTS"] = f"{options} -Xrs".strip()


def check(path: str) -> None:
    """Starts Java in this process, unless it runs already. Contacts no server; takes a second or two, once.

    Raises:
        MissingPluginError: says what could not be loaded, and what to set.
    """
    global _library
    with _lock:
        if _library is not None:
            return
        leave_signals_alone()
        library = _load(path)
        if not os.environ.get("CLASSPATH"):
            raise MissingPluginError(f"{path} needs Hadoop's classes. Received: no CLASSPATH. {_NEEDED}.")
        for name_node, what in ((None, "Java, or Hadoop's classes in it,"), (b"hdfs://127.0.0.1:1", "HDFS's classes")):
            if not _connect(library, name_node):
                raise MissingPluginError(
                    f"{path}: {what} could not be started; what Java said of it is in this process's standard error. "
                    f"Received: CLASSPATH={_shortened(os.environ['CLASSPATH'])}. {_NEEDED}.")
        _library = library


def confirm_empty(directory: str) -> None:
    """Lists a directory in which the plug-in found no names: it answers so, too, when a listing fails.

    Raises:
        tf.errors.PermissionDeniedError, tf.errors.UnavailableError: it is not known to be empty.
    """
    check(directory)
    scheme, _, rest = directory.partition("://")
    host, _, path = rest.partition("/")
    if scheme == "har":
        return  # an archive, which nobody writes
    file_system = _connect(_library, f"hdfs://{host}".encode() if host and scheme == "hdfs" else b"default")
    count = ctypes.c_int(0)
    ctypes.set_errno(0)
    found = _library.hdfsListDirectory(file_system, ("/" + path).encode(), ctypes.byref(count)) if file_system else None
    code = ctypes.get_errno()
    if found:
        _library.hdfsFreeFileInfo(found, count)
        raise tf.errors.UnavailableError(None, None, "names appeared while it was listed")
    if not file_system or code:
        kind = tf.errors.PermissionDeniedError if code in (1, 13) else tf.errors.UnavailableError
        raise kind(None, None, f"listing it failed: {os.strerror(code)}")


def _load(path: str) -> ctypes.CDLL:
    """Loads libhdfs from where the plug-in will look for it."""
    home = os.environ.get("HADOOP_HDFS_HOME")
    reasons = []
    for name in ([os.path.join(home, "lib", "native", "libhdfs.so")] if home else []) + ["libhdfs.so"]:
        try:
            library = ctypes.CDLL(name, use_errno=True)
            break
        except OSError as error:
            reasons.append(str(error))
    else:
        raise MissingPluginError(f"{path} needs Hadoop's client library: {'; '.join(reasons)}. Received: "
                                    f"HADOOP_HDFS_HOME={home!r}. {_NEEDED}.")
    library.hdfsNewBuilder.restype = ctypes.c_void_p
    library.hdfsBuilderSetNameNode.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.hdfsBuilderSetNameNode.restype = None
    library.hdfsBuilderConnect.argtypes = [ctypes.c_void_p]
    library.hdfsBuilderConnect.restype = ctypes.c_void_p
    library.hdfsListDirectory.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)]
    library.hdfsListDirectory.restype = ctypes.c_void_p
    library.hdfsFreeFileInfo.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.hdfsFreeFileInfo.restype = None
    return library


def _connect(library: ctypes.CDLL, name_node: Optional[bytes]) -> Optional[int]:
    """A handle of a file system, None: the local one. Java makes each once; it contacts no server yet."""
    builder = library.hdfsNewBuilder()
    library.hdfsBuilderSetNameNode(builder, name_node)
    return library.hdfsBuilderConnect(builder)


def _shortened(text: str) -> str:
    return text if len(text) < 200 else f"{text[:200]}... ({len(text)} characters)"
