"""The errors this package raises.

Each one is an `AdaptCPError` and also a subclass of the built-in or TensorFlow error that a caller who knows nothing
about this package would catch. Messages say what was received, what was expected, and which file, table, shard or
parameter server it concerns.
"""

import errno
import re
from typing import Optional

import tensorflow as tf

__all__ = [
    "AdaptCPError", "BucketNotFoundError", "CheckpointCorruptError", "CheckpointMismatchError", "CheckpointNotFoundError",
    "CommitOutcomeUnknownError", "DeadlineError", "FencedError", "MissingPluginError", "RestoreFailedError",
    "SaveFailedError", "ServerMismatchError", "StorePermissionError", "StoreUnavailableError", "UnbuiltModelError",
    "UnsupportedStoreError", "UnsupportedVariableError", "UntrackableTableError",
]


# How a host's message tells that an operation of a store failed, and, for local ones, how.
_STORE = re.compile(r"can't ([a-z ]+?) ((?:[a-z0-9]+:/)?/.*?): ")
_ERRNO = re.compile(r"\(errno (\d+)\)")


class AdaptCPError(Exception):
    """Base of every error of this package."""


class CheckpointNotFoundError(AdaptCPError, FileNotFoundError):
    """There is no checkpoint in the directory, or none of the name that was asked for."""


class CheckpointCorruptError(AdaptCPError, tf.errors.DataLossError):
    """A file of a checkpoint is missing or damaged; the message names it and, where known, the offset."""

    def __init__(self, message: str):
        tf.errors.DataLossError.__init__(self, None, None, message)


class CheckpointMismatchError(AdaptCPError, ValueError):
    """The checkpoint and the model differ: names, dtypes, dimensions, missing or unexpected tables."""


class StoreUnavailableError(AdaptCPError, OSError):
    """The store can't be reached, refuses access, or went on failing until the deadline.

    It says nothing about what the store holds: never take it for "no checkpoint".
    """


class BucketNotFoundError(StoreUnavailableError):
    """The bucket of the path doesn't exist, so neither does anything in it. It has to be created beforehand."""


class StorePermissionError(StoreUnavailableError, PermissionError):
    """The store refuses access, be it to read or to write; a disk that is mounted read-only does too."""


class UnsupportedStoreError(AdaptCPError, ValueError):
    """The scheme of a path is none that this process has a file system for."""


class MissingPluginError(UnsupportedStoreError):
    """The scheme of a path needs a plug-in that can't be loaded; the message names the package to install."""


class UntrackableTableError(AdaptCPError, ValueError):
    """Writes to a table can't be seen, so its rows can't be saved.

    It is of a kind that has other ops (GPU, Redis), was made before `import tfadaptcp`, or hangs on the optimizer alone.
    """


class UnsupportedVariableError(AdaptCPError, ValueError):
    """A checkpoint can't hold this variable or resource of the model, so its state would be lost."""


class SaveFailedError(AdaptCPError, RuntimeError):
    """A checkpoint was abandoned; the one before it stands."""


class RestoreFailedError(AdaptCPError, RuntimeError):
    """A restore was refused by a parameter server that has been restarted, or whose tables another manager took over; or one
    did not answer."""


class ServerMismatchError(AdaptCPError, RuntimeError):
    """A parameter server runs without tfadaptcp, or with another version of it, of TensorFlow or of TFRA."""


class CommitOutcomeUnknownError(SaveFailedError):
    """The manifest was written, but neither its presence nor its absence could be established.

    The checkpoint may exist. Its data must be kept until a later listing shows which.
    """


class FencedError(AdaptCPError, RuntimeError):
    """Another coordinator has claimed the directory since; this one must stop writing to it."""


class DeadlineError(AdaptCPError, TimeoutError):
    """A wait passed its deadline; the message names the parameter server or object waited for."""


class UnbuiltModelError(AdaptCPError, ValueError):
    """The model has no variables yet: there is nothing to track, or to restore into."""


def store_error(code: int, message: str, path: str) -> StoreUnavailableError:
    """What the user is told of an operation on a store that failed, by the errno that names the kind of failure."""
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorePermissionError(code, f"{message}. Expected: an account that may list, read, write and delete there",
                                    path)
    return StoreUnavailableError(code, message, path)


def of_host(error: tf.errors.OpError, what: str) -> Optional[StoreUnavailableError]:
    """What the user is told of a host's operation on the store that failed; None: it was not the store that failed.

    Args:
        error: that an op on the host raised.
        what: what was to be done, as "could not read checkpoint ...".
    """
    message = text_of(error)
    found = _STORE.search(message)
    if found is None:
        return None
    operation, path = found.groups()
    text = f"{what}: {message}"
    code = _ERRNO.search(message)
    if code is not None:
        return store_error(int(code[1]), text, path)
    if "://" not in path:
        return None
    if isinstance(error, (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError)):
        return store_error(errno.EACCES, text, path)
    if isinstance(error, tf.errors.NotFoundError) and operation not in ("open", "read", "stat"):
        return BucketNotFoundError(errno.ENOENT, f"{text}. Expected: a bucket that was created beforehand", path)
    if isinstance(error, (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError)):
        return StoreUnavailableError(errno.EIO, text, path)
    return None


# How TensorFlow, and our ops, say that what a process held is not there any more.
_GONE = re.compile(
    r"Unable to find a context_id|[Uu]nable to find the relevant tensor remote_handle|Resource \S+ does not exist")
_RESTARTED = (". If that parameter server was restarted, it has lost the model for good: restart the coordinator, build the "
              "model, and restore a checkpoint.")


def text_of(error: tf.errors.OpError) -> str:
    """What an op on a host said, without what TensorFlow says of the graph around it; and what to do if the host is another
    process than it was."""
    text = (error.message or "").replace("Graph execution error:\n\n", "")
    text = re.sub(r"\{\{function_node [^}]*\}\} ?", "", text)
    text = re.sub(r"\s*\[\[\{\{node .*?\}\}\]\]|\s*\[Op:[^\]]*\](?: name: ?)?", "", text)
    return text + (_RESTARTED if _GONE.search(text) else "")


def of_restore(checkpoint: str, directory: str, error: tf.errors.OpError) -> Optional[BaseException]:
    """What the user is told when an op of a restore failed for another reason than damage; None: the error itself."""
    what = f"could not read checkpoint {checkpoint} of {directory}"
    of_store = of_host(error, what)
    if of_store is not None:
        return of_store
    if isinstance(error, tf.errors.DeadlineExceededError):
        return DeadlineError(f"{what}: {text_of(error)}")
    if isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.AbortedError, tf.errors.UnavailableError)):
        return RestoreFailedError(f"{what}: {text_of(error)}")
    return None


def of_save(checkpoint: str, error: BaseException) -> BaseException:
    """What the user is told of a checkpoint that failed: the error if it tells by itself, what is wrong with the store if that
    is what failed, else a `SaveFailedError`."""
    if isinstance(error, (SaveFailedError, FencedError, DeadlineError, OSError)):
        return error
    told = of_host(error, f"checkpoint {checkpoint} failed") if isinstance(error, tf.errors.OpError) else None
    if told is None or not ("://" in told.filename or isinstance(told, StorePermissionError)):
        told = SaveFailedError(f"checkpoint {checkpoint} failed: {error}")
    told.__cause__ = error
    return told
