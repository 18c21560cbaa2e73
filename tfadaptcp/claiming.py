"""What comes before the first checkpoint of a manager, and the first after a restore: the directory is claimed."""

import logging
from typing import Callable, Tuple

from tfadaptcp.checkpoint import chain, claims, commit
from tfadaptcp.checkpoint.manifest import republish
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.engine import Engine
from tfadaptcp.errors import CommitOutcomeUnknownError, SaveFailedError

_log = logging.getLogger("tfadaptcp")


def claim(store: Store, directory: str, engine: Engine, run: str, restored: bool, timeout_seconds: float,
          tidy: Callable[[claims.Claim], None]) -> Tuple[claims.Claim, int]:
    """Claims a directory, and publishes the head once more that the model goes on from. Returns the claim, and the first
    sequence that nothing has used.

    Args:
        restored: the model is as that head was restored, and not as it was saved.
        timeout_seconds: how long hosts may take to say which generations have written through them.
        tidy: removes what failed attempts have left; called if the head can't be published, perhaps for want of room.

    Raises:
        FencedError: another coordinator has claimed it meanwhile.
        StoreUnavailableError, CommitOutcomeUnknownError, SaveFailedError: what claiming and committing raise.
    """
    made = claims.take(store, directory, run, above=engine.newest_generation(directory, timeout_seconds))
    sequence = max(commit.next_sequence(store, directory), engine.lineage.last_sequence + 1)
    head = engine.lineage.came_from(directory)
    if head is not None and (head.head.claim >= made or commit.is_removed(store, directory, head)
                             or not commit.is_there(store, directory, head)):
        # The directory was emptied or replaced, or whoever claimed it before has gone on and tidies up: who sees a manifest
        # there after the claim was made will find its objects, too.
        _log.warning("Checkpoint %s is not in %s any more: the next one is complete.", head.name, directory)
        engine.lineage.forget(directory)
        head = None
    if head is not None:
        for last in (False, True):
            again = republish(chain.after_restore(head) if restored else head, made, sequence)
            sequence += 1
            try:
                commit.commit(store, directory, again, made)
                break
            except CommitOutcomeUnknownError:
                raise
            except SaveFailedError as error:
                if last:
                    raise
                _log.warning("Trying again after what failed attempts have left in %s is removed: %s", directory, error)
                tidy(made)
        engine.lineage.published_again(directory, again)
    return made, sequence
