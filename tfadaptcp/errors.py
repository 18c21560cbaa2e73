"""The errors this package raises.

Each one is an `AdaptCPError` and also a subclass of the built-in or TensorFlow error that a caller who knows nothing
about this package would catch. Messages say what was received, what was expected, and which file, table, shard or
parameter server it concerns.
"""

import tensorflow as tf

__all__ = [
    "AdaptCPError", "CheckpointCorruptError", "CheckpointMismatchError", "CheckpointNotFoundError",
    "CommitOutcomeUnknownError", "DeadlineError", "FencedError", "SaveFailedError", "StoreUnavailableError",
    "UnbuiltModelError", "UnsupportedStoreError", "UnsupportedVariableError", "UntrackableTableError",
]


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


class UnsupportedStoreError(AdaptCPError, ValueError):
    """The scheme of a path has no file system in this process; the message names the package to install."""


class UntrackableTableError(AdaptCPError, ValueError):
    """Writes to this kind of table can't be seen (GPU/HKV, Redis), so its rows can't be saved."""


class UnsupportedVariableError(AdaptCPError, ValueError):
    """A checkpoint can't hold this variable or resource of the model, so its state would be lost."""


class SaveFailedError(AdaptCPError, RuntimeError):
    """A checkpoint was abandoned; the one before it stands."""


class CommitOutcomeUnknownError(SaveFailedError):
    """The manifest was written, but neither its presence nor its absence could be established.

    The checkpoint may exist. Its data must be kept until a later listing shows which.
    """


class FencedError(AdaptCPError, RuntimeError):
    """Another coordinator has claimed the directory since; this one must stop writing to it."""


class DeadlineError(AdaptCPError, TimeoutError):
    """A wait passed its deadline; the message names the parameter server or object waited for."""


class UnbuiltModelError(AdaptCPError, ValueError):
    """The model has no variables yet, so there is nothing to restore into."""


def of_save(checkpoint: str, error: BaseException) -> BaseException:
    """What the user is told of a checkpoint that failed: the error if it tells by itself, else a `SaveFailedError`."""
    if isinstance(error, (SaveFailedError, FencedError, DeadlineError, OSError)):
        return error
    told = SaveFailedError(f"checkpoint {checkpoint} failed: {error}")
    told.__cause__ = error
    return told
