"""File operations on URLs (gs://, hdfs://, ...), through TensorFlow's file systems.

`exists`, `isdir` and `listdir` of these file systems answer "not there" when the server can't be reached; `stat` and
reads raise. So absence is only ever concluded from a `stat`, or a read, that said NotFound, and, in an object store, of a
bucket that is there: of one that isn't they say the same.
"""

import errno
import random
import re
import time
from typing import Callable, List, TypeVar

import tensorflow as tf
from tensorflow.python.lib.io import _pywrap_file_io

from tfadaptcp.checkpoint import hdfs
from tfadaptcp.checkpoint.faults import fault_point
from tfadaptcp.errors import BucketNotFoundError, StoreUnavailableError, UnsupportedStoreError, store_error

_T = TypeVar("_T")

# What a later attempt may not meet again. hdfs answers Unknown and s3 Internal for most of their troubles.
_TRANSIENT = (tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.InternalError,
              tf.errors.ResourceExhaustedError, tf.errors.UnavailableError, tf.errors.UnknownError)

# Object stores: a directory is there when an object below it is; making one would cost a marker object.
_WITHOUT_DIRECTORIES = frozenset(("gs", "s3", "s3e", "az", "oss"))

# They find nothing, too, where they may not look, or when nobody answers; but they say so of a bucket.
_BLIND = frozenset(("s3", "s3e"))

# What sounds as if it were for good and isn't: gs when a name server does not answer, hdfs in safe mode.
_TRANSIENT_TEXT = re.compile("libcurl code [56] |Read-only file system")

_sleep = time.sleep
_clock = time.monotonic


class RemoteFiles:
    """The primitive operations of `Store` on URLs. Stateless; any thread; each call may block for `retry_seconds`."""

    def __init__(self, retry_seconds: float):
        self._retry_seconds = retry_seconds

    def put(self, path: str, data: bytes) -> None:
        begun = False

        def attempt():
            nonlocal begun
            if self._is_there(path):
                if not begun:
                    raise FileExistsError(errno.EEXIST, "the object exists already; no name is written twice", path)
                if self._is_written(path, data):
                    return
            try:
                if _scheme(path) not in _WITHOUT_DIRECTORIES:
                    tf.io.gfile.makedirs(path.rsplit("/", 1)[0])
                begun = True
                self._write(path, data)
            except tf.errors.NotFoundError as error:
                _require_bucket(path, error)
                raise StoreUnavailableError(errno.ENOENT, f"could not write: {_text(error)}", path) from error
            # An object that is not what was sent would be found out by its readers, too late.
            size = tf.io.gfile.stat(path).length
            if size != len(data):
                raise tf.errors.UnavailableError(
                    None, None, f"Received: an object of {size} bytes. Expected: the {len(data)} written")

        self._retried("write", path, attempt)

    def sync(self, path: str) -> None:
        """Nothing to do: a remote object is as durable as its store when its write has returned."""

    def sync_names(self, directory: str) -> None:
        """Nothing to do."""

    def read(self, path: str) -> bytes:
        return self._retried("read", path, lambda: self._read(path))

    def list(self, directory: str) -> List[str]:
        def attempt():
            fault_point("list", directory)
            try:
                tf.io.gfile.stat(directory)
            except tf.errors.NotFoundError as error:
                _require_bucket(directory, error)
                return []
            try:
                names = tf.io.gfile.listdir(directory)
            except tf.errors.NotFoundError as error:
                raise tf.errors.UnavailableError(
                    None, None, f"the directory was found, listing it was not possible: {error.message}") from error
            if not names and _scheme(directory) in hdfs.SCHEMES:
                hdfs.confirm_empty(directory)
            return sorted(name.rstrip("/") for name in names if name.strip("/"))

        return self._retried("list", directory, attempt)

    def size(self, path: str) -> int:
        def attempt():
            fault_point("size", path)
            return tf.io.gfile.stat(path).length

        return self._retried("stat", path, attempt)

    def free_bytes(self, directory: str) -> None:
        """Unknown."""

    def delete(self, path: str, durable: bool = True) -> None:
        del durable  # always is

        def attempt():
            fault_point("delete", path)
            # Some stores answer the removal of a missing object with an error that says nothing: ask first.
            if self._is_there(path):
                tf.io.gfile.remove(path)

        try:
            self._retried("delete", path, attempt)
        except FileNotFoundError:
            pass

    def remove_dir(self, directory: str) -> None:
        if self.list(directory):
            return

        def attempt():
            fault_point("delete", directory)
            # Never what removes what is in it, too: something may have come since the listing.
            if _scheme(directory) in _WITHOUT_DIRECTORIES:
                tf.io.gfile.remove(directory + "/")  # the marker that TensorFlow makes
            elif not self._is_there(directory):
                pass
            elif _scheme(directory) in hdfs.SCHEMES:
                try:
                    tf.io.gfile.remove(directory)  # as a file: refused if it isn't empty
                except tf.errors.UnknownError:
                    if not tf.io.gfile.listdir(directory):
                        raise
            else:
                tf.io.gfile.rmtree(directory)

        try:
            self._retried("remove", directory, attempt)
        except FileNotFoundError:
            pass

    def _is_there(self, path: str) -> bool:
        fault_point("size", path)
        try:
            tf.io.gfile.stat(path)
        except tf.errors.NotFoundError:
            return False
        return True

    def _is_written(self, path: str, data: bytes) -> bool:
        """Whether an object that is there after a failed attempt of ours is whole. Raises FileExistsError if it isn't ours."""
        if _scheme(path) in hdfs.SCHEMES and tf.io.gfile.stat(path).length < len(data):
            return False  # begun; what there is of it may be out of reach with the server that had it
        found = self._read(path)
        if len(found) < len(data) and data.startswith(found):
            return False  # it was cut off on its way
        if found != data:
            raise FileExistsError(errno.EEXIST, "the object exists already; no name is written twice", path)
        return True

    def _read(self, path: str) -> bytes:
        fault_point("read", path)
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()

    def _write(self, path: str, data: bytes) -> None:
        fault_point("create", path)
        # By no GFile: one that could not be closed uploads once more when Python's collector comes across it, minutes later
        # perhaps, and holds Python's lock meanwhile. All that this call tries has ended when it returns.
        _pywrap_file_io.WriteStringToFile(path, data)
        fault_point("close", path)

    def _retried(self, what: str, path: str, attempt: Callable[[], _T]) -> _T:
        """Runs `attempt` until it succeeds, fails for good, or the deadline passes; waits grow, with jitter."""
        deadline = _clock() + self._retry_seconds
        wait = 0.1
        while True:
            try:
                try:
                    return attempt()
                except tf.errors.NotFoundError as error:
                    _require_bucket(path, error)
                    raise
            except tf.errors.NotFoundError as error:
                raise FileNotFoundError(errno.ENOENT, error.message or "not found", path) from error
            except tf.errors.UnimplementedError as error:
                raise UnsupportedStoreError(f"could not {what} {path}: {error.message}") from error
            except (FileExistsError, FileNotFoundError, StoreUnavailableError):
                raise
            except (tf.errors.OpError, OSError) as error:
                if not is_transient(error):
                    refused = isinstance(error, (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError))
                    raise store_error(errno.EACCES if refused else errno.EIO, f"could not {what}: {_text(error)}",
                                      path) from error
                if _clock() + wait > deadline:
                    raise StoreUnavailableError(
                        errno.EIO, f"could not {what} within {self._retry_seconds:g} s: {_text(error)}", path) from error
            _sleep(wait * random.uniform(0.5, 1.0))
            wait = min(wait * 2, 10.0)


def is_transient(error: Exception) -> bool:
    """Whether a later attempt may not meet it again."""
    return isinstance(error, (*_TRANSIENT, OSError)) or _TRANSIENT_TEXT.search(error.message or "") is not None


def _require_bucket(path: str, error: tf.errors.NotFoundError) -> None:
    """Raises BucketNotFoundError if it is for want of its bucket that something was not found, or what the bucket raises."""
    scheme, _, rest = path.partition("://")
    if scheme not in _WITHOUT_DIRECTORIES:
        return
    bucket = f"{scheme}://{rest.partition('/')[0]}/"
    try:
        tf.io.gfile.stat(bucket)
    except tf.errors.NotFoundError:
        raise BucketNotFoundError(errno.ENOENT, f"The bucket {bucket} does not exist. Received: {_text(error)}. Expected: a "
                                  "bucket that was created beforehand", path) from error
    except (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError):
        # It is there: who may use its objects may not always ask for the bucket itself.
        if scheme in _BLIND:
            raise
    if scheme in _BLIND:
        try:
            tf.io.gfile.stat(path)
        except tf.errors.NotFoundError:
            return
        raise tf.errors.UnavailableError(None, None, f"what was not found is there: {_text(error)}")


def _text(error: Exception) -> str:
    # s3 raises errors with an empty text; libhdfs has one number for all that Java raised and it knows nothing of.
    text = str(getattr(error, "message", None) or error)
    return f"{type(error).__name__}: " + text.replace(
        "Unknown error 255", "HDFS failed; libhdfs wrote why to the standard error of this process")


def _scheme(path: str) -> str:
    return path.partition("://")[0]
