"""Who may write to a checkpoint directory.

A coordinator that starts to write puts a claim one generation above everything it finds. Claims compare as
(generation, run). Before each manifest and each pass of deletions the claims are listed again: whoever sees a higher
one stops. No lock is held and no clock is compared, so a coordinator that hung for an hour is fenced off all the same.
"""

import functools
import logging
from typing import List, Optional

from tfadaptcp.checkpoint import layout
from tfadaptcp.checkpoint.layout import ClaimName
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import FencedError

Claim = ClaimName

_log = logging.getLogger("tfadaptcp")
# Claims are listed several times for each checkpoint.
_warn_once = functools.lru_cache(maxsize=1000)(_log.warning)


def take(store: Store, directory: str, run: Optional[str] = None, above: int = 0) -> Claim:
    """Claims the directory for a new run.

    Manifests are to be listed after this returns, not before: a head committed in between belongs to the state that
    this run starts from.

    Args:
        store: where `directory` lies.
        directory: the checkpoint directory; created if it isn't there.
        run: the run's identifier, by default a new one.
        above: a generation known to have been used, though the directory may have been emptied since.

    Returns:
        The claim: its generation is above `above` and every claim, manifest and data directory seen, from 1.

    Raises:
        FencedError: another coordinator claimed the directory at the same time and came out above.
        StoreUnavailableError: the store failed. A claim may have been left; it only costs a number.
    """
    run = layout.new_run() if run is None else run
    # Manifests and data count too: the claims may have been left out when the directory was copied.
    claim = layout.claim_name(max(above, _highest_generation(store, directory)) + 1, run)
    store.put(join(directory, layout.CLAIMS, str(claim)), b"")
    ensure_current(store, directory, claim)
    return claim


def ensure_current(store: Store, directory: str, claim: Claim) -> None:
    """Raises FencedError if the directory has a higher claim than this one, or has lost this one."""
    claims = list_claims(store, directory)
    if claims and claims[-1] > claim:
        raise FencedError(
            f"Another coordinator has claimed {directory}: this one stops writing to it. "
            f"Received: claim {claims[-1]}. Expected: none above {claim}")
    if claim not in claims:
        raise FencedError(
            f"The claim of this coordinator has vanished from {directory}: was the directory deleted or replaced "
            f"while it was in use? Received: {len(claims)} claims. Expected: {claim} among them")


def fence(store: Store, directory: str, claim: Claim) -> Optional[FencedError]:
    """What `ensure_current` raises, None if it doesn't, or nobody can tell."""
    try:
        ensure_current(store, directory, claim)
    except FencedError as error:
        return error
    except OSError as error:
        _log.warning("The claims of %s can't be listed: %s", directory, error)
    return None


def list_claims(store: Store, directory: str) -> List[Claim]:
    """Returns all claims, lowest first. Names that are no claims are passed over with a warning, once in this process."""
    claims = []
    for name in store.list(join(directory, layout.CLAIMS)):
        claim = layout.parse_claim(name)
        if claim is None:
            _warn_once("Ignoring %s: not a claim.", join(directory, layout.CLAIMS, name))
        else:
            claims.append(claim)
    return sorted(claims)


def _highest_generation(store: Store, directory: str) -> int:
    generations = [claim.generation for claim in list_claims(store, directory)]
    for area, parse in ((layout.MANIFESTS, layout.parse_manifest), (layout.DATA, layout.parse_head)):
        heads = (parse(name) for name in store.list(join(directory, area)))
        generations += [head.generation for head in heads if head is not None]
    return max(generations, default=0)
