"""File operations on local paths, durable: TensorFlow's own local file system only flushes, it does not fsync."""

import contextlib
import errno
import os
import stat as stat_lib
from typing import Iterator, List, Set

from tfadaptcp.checkpoint.faults import fault_point
from tfadaptcp.errors import StoreUnavailableError, store_error

_CHUNK = 1 << 20


class LocalFiles:
    """The primitive operations of `Store` on local paths. Any thread."""

    def __init__(self):
        self._durable: Set[str] = set()  # directories whose own entry this object has synced

    def put(self, path: str, data: bytes) -> None:
        self.make_dirs(os.path.dirname(path) or ".")
        with _reported("write", path):
            fault_point("create", path)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with _reported("write", path):
                self._fill(fd, path, data)
                self._sync_dir(os.path.dirname(path) or ".")
        except BaseException:
            # The object was never handed out. Taken away again it can't be mistaken for a whole one; if that fails
            # too, readers still tell by its checksum, and the caller by reading back.
            with contextlib.suppress(OSError):
                self.delete(path)
            raise

    def _fill(self, fd: int, path: str, data: bytes) -> None:
        view = memoryview(data)
        try:
            # At least two writes for anything longer than a byte, so that a fault can strike inside every object.
            step = max(1, min(_CHUNK, (len(view) + 1) // 2))
            done = 0
            while done < len(view):
                fault_point("write", path)
                done += os.write(fd, view[done:done + step])
            fault_point("fsync", path)
            os.fsync(fd)
            fault_point("close", path)
        finally:
            os.close(fd)

    def sync(self, path: str) -> None:
        with _reported("sync", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fault_point("fsync", path)
                os.fsync(fd)
            finally:
                os.close(fd)
            self._sync_dir(os.path.dirname(path) or ".")

    def sync_names(self, directory: str) -> None:
        with _reported("sync", directory), contextlib.suppress(FileNotFoundError):  # has no names
            self._sync_dir(directory)

    def read(self, path: str) -> bytes:
        with _reported("read", path):
            fault_point("open", path)
            with open(path, "rb") as file:
                fault_point("read", path)
                return file.read()

    def list(self, directory: str) -> List[str]:
        with _reported("list", directory):
            fault_point("list", directory)
            try:
                return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    def size(self, path: str) -> int:
        with _reported("stat", path):
            fault_point("size", path)
            status = os.stat(path)
            if stat_lib.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "Received: a directory. Expected: an object", path)
            return status.st_size

    def free_bytes(self, directory: str) -> int:
        with _reported("measure", directory):
            status = os.statvfs(directory)
            return status.f_bavail * status.f_frsize

    def delete(self, path: str, durable: bool = True) -> None:
        with _reported("delete", path):
            fault_point("delete", path)
            with contextlib.suppress(FileNotFoundError):  # also of the directory
                try:
                    os.unlink(path)
                finally:
                    if durable:
                        self._sync_dir(os.path.dirname(path) or ".")

    def remove_dir(self, directory: str) -> None:
        with _reported("remove", directory):
            fault_point("delete", directory)
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def make_dirs(self, directory: str) -> None:
        directory = os.path.abspath(directory)
        exists = os.path.isdir(directory)
        parent = os.path.dirname(directory)
        if exists and directory in self._durable or parent == directory:
            return
        self.make_dirs(parent)
        with _reported("create", directory):
            if not exists:
                fault_point("mkdir", directory)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory)
                if not os.path.isdir(directory):
                    raise NotADirectoryError(errno.ENOTDIR, "Received: a file. Expected: a directory", directory)
            # One that was there may have been made by a process that was killed before it could sync the entry.
            with contextlib.suppress(*((PermissionError,) if exists else ())):
                self._sync_dir(parent)
        self._durable.add(directory)

    def _sync_dir(self, directory: str) -> None:
        fault_point("fsync_dir", directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # this file system has no durability of directories to offer
                raise
        finally:
            os.close(fd)


@contextlib.contextmanager
def _reported(what: str, path: str) -> Iterator[None]:
    """Lets "exists" and "is not there" pass as they are; every other failure says that the store failed."""
    try:
        yield
    except (FileExistsError, FileNotFoundError, StoreUnavailableError):
        raise
    except OSError as error:
        raise store_error(error.errno, f"could not {what}: {error.strerror}", path) from error
