"""Which heads a reader tries, in what order."""

import logging
from typing import List, Optional

from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.errors import CheckpointCorruptError, CheckpointNotFoundError

_log = logging.getLogger("tfadaptcp")

# How often retention may remove a head that is being read, until its reader gives up.
REMOVALS = 10


def candidates(store: Store, directory: str, checkpoint: Optional[str]) -> List[Manifest]:
    """Returns the head of that name, or all that are valid, newest first; at least one.

    Raises:
        CheckpointNotFoundError: there is none, or none of that name.
        CheckpointCorruptError: there are manifests, and all are damaged.
        StoreUnavailableError: the directory can't be read.
    """
    if checkpoint is not None:
        return [commit.load(store, directory, checkpoint)]
    heads, damaged = commit.list_heads(store, directory)
    for item in damaged:
        _log.warning("Passing over a manifest: %s", item.reason)
    if not heads:
        if any(item.is_damage for item in damaged):
            raise CheckpointCorruptError(f"{directory}: every manifest is damaged: "
                                         f"{'; '.join(item.reason for item in damaged)}")
        raise CheckpointNotFoundError(f"There is no checkpoint in {directory}.")
    return heads[::-1]
