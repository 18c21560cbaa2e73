"""The one seam between Python and the files of a checkpoint directory.

Objects are immutable: written once, whole, under their final name, and never renamed. Nothing else in this package
opens, lists or deletes a checkpoint file from Python, so faults are injected and stores are told apart here alone.
"""

import concurrent.futures
import os
import re
import secrets
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from tfadaptcp import background
from tfadaptcp.checkpoint import at_once, hdfs, layout
from tfadaptcp.checkpoint.local_files import LocalFiles
from tfadaptcp.errors import DeadlineError, MissingPluginError, StoreUnavailableError, UnsupportedStoreError

# Which package brings a file system that TensorFlow itself lacks.
_PLUGIN = {scheme: "tensorflow-io" for scheme in ("hdfs", "viewfs", "har", "s3", "s3e", "az", "oss", "http", "https")}


def join(directory: Union[str, os.PathLike], *parts: str) -> str:
    """Joins path parts with "/", for URLs and local paths alike. Raises ValueError if the directory is empty."""
    directory = os.fspath(directory)
    if not directory:
        raise ValueError("Received: an empty directory name. Expected: a local path or a URL")
    return "/".join((directory.rstrip("/"),) + parts)


class Store:
    """File operations on local paths and URLs.

    Usable from any thread. Every call may block, for at most `deadline_seconds`: nothing in Python can interrupt a disk or
    a mount that hangs, so each operation is made in a thread of its own, which is left behind then.

    Common to all methods: `StoreUnavailableError` says that the store failed, whatever it holds; of its kinds,
    `StorePermissionError`, that it refuses access, and `BucketNotFoundError`, that the bucket isn't there; `DeadlineError`, that an
    operation has not ended, naming it: it may yet be made, at any time. `UnsupportedStoreError`: this process has no file
    system for the scheme.
    """

    def __init__(self, retry_seconds: Optional[float] = None, deadline_seconds: float = 600.0):
        """Args:
            retry_seconds: how long transient errors of remote stores are retried, with growing, jittered waits. None: 60,
                and less than `deadline_seconds`, so that the outcome of what failed is known, and nobody tries on in the
                background.
            deadline_seconds: how long one call may take.
        """
        self._local = LocalFiles()
        self._retry_seconds = min(60.0, 0.8 * deadline_seconds) if retry_seconds is None else retry_seconds
        self._deadline_seconds = deadline_seconds

    def put(self, path: str, data: bytes) -> None:
        """Writes a new object and makes it durable, together with the directories it needed.

        On a local path a failure leaves nothing behind, or, when even removing it failed, a file whose content is a
        prefix of `data` or all of it. On a remote one the outcome of a failed put is unknown: read back.

        Raises:
            FileExistsError: the name is taken; the object there is left as it is.
        """
        self._call("write", path, "put", data)

    def sync(self, path: str) -> None:
        """Makes an object that can be read durable. Raises FileNotFoundError if it isn't there."""
        self._call("sync", path, "sync")

    def sync_names(self, directory: str) -> None:
        """Makes durable which names a directory has: that objects were deleted, too."""
        self._call("sync", directory, "sync_names")

    def read(self, path: str) -> bytes:
        """Returns the whole object. Raises FileNotFoundError if it isn't there."""
        return self._call("read", path, "read")

    def list(self, directory: str) -> List[str]:
        """Returns the sorted names in a directory; none if the directory isn't there, and only then."""
        return self._call("list", directory, "list")

    def list_each(self, directories: Sequence[str]) -> List[List[str]]:
        """Returns `list` of each directory. Asks a remote store of several at a time."""
        found: Dict[str, List[str]] = {}
        at_once.each(lambda directory: found.update({directory: self.list(directory)}), directories,
                     self._calls_at_once(directories))
        return [found[directory] for directory in directories]

    def size(self, path: str) -> int:
        """Returns the size of an object in bytes. Raises FileNotFoundError if it isn't there."""
        return self._call("stat", path, "size")

    def delete(self, path: str, durable: bool = True) -> None:
        """Deletes an object; that it is gone already is no error. `durable=False`: a power loss may bring it back."""
        self._call("delete", path, "delete", durable)

    def remove_dir(self, directory: str) -> None:
        """Removes a directory if it is empty; keeps it, silently, if not."""
        self._call("remove", directory, "remove_dir")

    def delete_all(self, paths: Sequence[str], ends: Optional[float] = None) -> List[str]:
        """Deletes objects, `durable=False`, remote ones several at a time. Returns those that are left because the
        time is over, see `at_once.each`. Raises what the first that fails raises; others may be gone then."""
        return at_once.each(lambda path: self.delete(path, durable=False), paths, self._calls_at_once(paths), ends)

    def remove_dirs(self, directories: Sequence[str], ends: Optional[float] = None) -> None:
        """`remove_dir` of each directory, as many at a time and as long as `delete_all` does it."""
        at_once.each(self.remove_dir, directories, self._calls_at_once(directories), ends)

    def have_sizes(self, sizes: Mapping[str, int]) -> bool:
        """Whether all objects {path: size} are there, with these sizes. Asks a remote store of several at a time."""
        def check(path: str) -> None:
            if self.size(path) != sizes[path]:
                raise FileNotFoundError(path)

        try:
            at_once.each(check, sizes, self._calls_at_once(sizes))
            return True
        except FileNotFoundError:
            return False

    def free_bytes(self, directory: str) -> Optional[int]:
        """Returns the room left where a directory is; None for a remote store, which doesn't tell."""
        return self._call("measure", directory, "free_bytes")

    def check_supported(self, directory: str) -> None:
        """Raises UnsupportedStoreError unless this process has a file system for the directory's scheme.

        Loads tensorflow-io for a scheme that needs it, and starts Java for hdfs. Contacts no server.
        """
        self._files(directory)

    def check_writable(self, directory: str) -> None:
        """Writes, syncs, reads back and deletes a small object under `data/`: the probe made at start-up.

        Raises:
            UnsupportedStoreError, MissingPluginError: no file system for the scheme; names the package to install.
            StoreUnavailableError, StorePermissionError, BucketNotFoundError: says which of them failed, and why.
        """
        data = secrets.token_bytes(64)
        for last in (False, False, True):
            path = join(directory, layout.DATA, layout.PROBE_PREFIX + secrets.token_hex(6))
            step = "write"
            try:
                self.put(path, data)
                step = "read back"
                found = self.read(path)
                if found != data:
                    raise StoreUnavailableError(f"Received: {len(found)} other bytes. Expected: the 64 written")
                step = "delete"
                self.delete(path, durable=False)
                return
            except FileNotFoundError as error:
                # A retention pass elsewhere sweeps stray probes and may have taken this one.
                if last:
                    raise StoreUnavailableError(
                        f"the start-up probe of {directory} could not {step} {path}: {error}") from error
            except DeadlineError as error:
                raise DeadlineError(f"the start-up probe of {directory}: {error}") from error
            except OSError as error:
                kind = type(error) if isinstance(error, StoreUnavailableError) else StoreUnavailableError
                told = kind(f"the start-up probe of {directory} could not {step} {path}: {error}")
                told.errno = error.errno
                raise told from error

    def _calls_at_once(self, paths: Iterable[str]) -> int:
        return at_once.REMOTE_CALLS if any("://" in path for path in paths) else 1

    def _call(self, what: str, path: Union[str, os.PathLike], method: str, *args: Any) -> Any:
        files, path = self._files(path)
        result = background.start(lambda: getattr(files, method)(path, *args), "tfadaptcp-store")
        if concurrent.futures.wait([result], self._deadline_seconds).not_done:
            raise DeadlineError(f"No answer after {self._deadline_seconds:g} s from the store: could not {what} {path}")
        return result.result()

    def _files(self, path: Union[str, os.PathLike]):
        path = os.fspath(path)
        scheme, separator, rest = path.partition("://")
        if not separator:
            return self._local, path
        if scheme == "file":
            return self._local, rest
        _require_scheme(scheme, path)
        if scheme in hdfs.SCHEMES:
            hdfs.check(path)
        from tfadaptcp.checkpoint.remote_files import RemoteFiles
        return RemoteFiles(self._retry_seconds), path


def _require_scheme(scheme: str, path: str) -> None:
    import tensorflow as tf
    known = tf.io.gfile.get_registered_schemes()
    if scheme in known:
        return
    package = _PLUGIN.get(scheme)
    reason = ""
    if package:
        try:
            import tensorflow_io  # noqa: F401 (registers its file systems)
            if scheme in tf.io.gfile.get_registered_schemes():
                return
            reason = f" {package} is installed but brings no file system for it."
        except Exception as error:  # a plug-in built for another TensorFlow fails in many ways
            reason = f" Install the package {package}: importing it failed with {type(error).__name__}: {error}."
    expected = sorted(set(known) - {""} | set(_PLUGIN))
    raise (MissingPluginError if package else UnsupportedStoreError)(
        f"There is no file system for {path}.{reason} Received: scheme {scheme!r}. Expected: a local path, or one of "
        f"{', '.join(name + '://' for name in expected)}.")


def normalize(directory: Union[str, os.PathLike]) -> str:
    """A directory's one spelling: absolute if it is a local path, without a slash at the end.

    Raises:
        ValueError: it is empty, or no text, or a URL that has lost a slash, as URLs do in a `pathlib.Path`, or has nothing
            but a scheme.
    """
    text = os.fspath(directory) if isinstance(directory, (str, os.PathLike)) else None
    if not text or not isinstance(text, str):
        raise ValueError(f"directory: Received: {directory!r}. Expected: a local path or a URL")
    if re.match(r"[a-z][a-z0-9+.-]+:/(?!/)", text):
        slashes = ":///" if text.startswith(("file:", "hdfs:")) else "://"  # these need no host
        raise ValueError(f"directory: Received: {directory!r}, a URL with one slash. Expected: "
                         f"{text.replace(':/', slashes, 1)!r}, as a str, or {os.path.join('.', text)!r} for a local path")
    scheme, separator, rest = text.partition("://")
    if separator and not rest.strip("/"):
        raise ValueError(f"directory: Received: {directory!r}. Expected: a directory behind the scheme")
    if separator and scheme != "file":
        return text.rstrip("/")
    return os.path.abspath(rest if separator else text)
