"""Committing a head, and finding the heads of a directory.

Finding never writes, so any job may look at a directory that another one is writing to.
"""

import dataclasses
import logging
from typing import Dict, List, Optional, Set, Tuple

from tfadaptcp.checkpoint import claims, layout, manifest_check
from tfadaptcp.checkpoint.claims import Claim
from tfadaptcp.checkpoint.layout import HeadName
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import (CheckpointCorruptError, CheckpointNotFoundError, CommitOutcomeUnknownError,
                              DeadlineError, FencedError, SaveFailedError, StoreUnavailableError)

_log = logging.getLogger("tfadaptcp")

# How often every manifest of a listing may be gone before it is read.
_LISTINGS = 10


@dataclasses.dataclass(frozen=True)
class Damaged:
    """A file in `manifests/` that is no valid head.

    Attributes:
        file: its name within `manifests/`.
        head: what the name stands for, None if it is none of ours.
        torn: it was never written to its end: what a crash in mid-commit leaves. Its commit never returned.
        reason: what is wrong, naming the file.
    """
    file: str
    head: Optional[HeadName]
    torn: bool
    reason: str

    @property
    def is_damage(self) -> bool:
        """Whether a head has been lost: not what a crash in mid-commit leaves, and no file that somebody else has put there."""
        return self.head is not None and not self.torn


# Manifests by the names of their files, with the text that each was parsed from.
Parsed = Dict[str, Tuple[bytes, Manifest]]


def list_heads(store: Store, directory: str, parsed: Optional[Parsed] = None) -> Tuple[List[Manifest], List[Damaged]]:
    """Returns the valid heads, oldest first by (generation, run, sequence), and what is damaged.

    A head that retention removes while this runs is left out; if that leaves none, the newer ones are looked for. A
    directory that isn't there has no heads.

    Args:
        parsed: what the last call of the same caller has found, brought up to date: all files are read again, but only what
            has another text is parsed.

    Raises:
        StoreUnavailableError: a listing or a read failed: that is never taken for "no heads".
    """
    parsed = {} if parsed is None else parsed
    for _ in range(_LISTINGS):
        heads, damaged, removed = _list_once(store, directory, parsed)
        if heads or damaged or not removed:
            break
    else:
        raise StoreUnavailableError(f"{join(directory, layout.MANIFESTS)}: Received: {removed} names in the listing, none of "
                                    "which can be read, time and again. Expected: manifests that who lists them may read")
    return sorted(heads, key=lambda manifest: manifest.head.order), damaged


def _list_once(store: Store, directory: str, parsed: Parsed) -> Tuple[List[Manifest], List[Damaged], int]:
    """Heads, what is damaged, and how many manifests were gone by the time they were read."""
    heads, damaged, removed = [], [], 0
    before = dict(parsed)
    parsed.clear()
    for file in store.list(join(directory, layout.MANIFESTS)):
        name = layout.parse_manifest(file)
        path = join(directory, layout.MANIFESTS, file)
        if name is None:
            damaged.append(Damaged(file, None, False, f"{path}: not the name of a manifest"))
            continue
        try:
            data = store.read(path)
        except FileNotFoundError:
            removed += 1
            continue
        text, manifest = before.get(file, (None, None))
        try:
            if text != data:
                manifest = _parse(data, path, name)
        except CheckpointCorruptError as error:
            damaged.append(Damaged(file, name, manifest_check.is_torn(data), str(error)))
        else:
            parsed[file] = data, manifest
            heads.append(manifest)
    return heads, damaged, removed


def _parse(data: bytes, path: str, name: HeadName) -> Manifest:
    manifest = Manifest.from_json(data, path)
    if manifest.head != name:
        raise CheckpointCorruptError(f"{path}: the manifest is damaged: its name is wrong. "
                                     f"Received: {name}. Expected: {manifest.name}")
    return manifest


def latest(store: Store, directory: str) -> Optional[Manifest]:
    """Returns the newest valid head, None if there is none; warns about damaged manifests newer than it."""
    heads, damaged = list_heads(store, directory)
    newest = heads[-1] if heads else None
    for item in damaged:
        if item.head is None or newest is None or item.head.order > newest.head.order:
            _log.warning("Passing over a manifest: %s", item.reason)
    return newest


def load(store: Store, directory: str, checkpoint: str) -> Manifest:
    """Returns the head of that name.

    Raises:
        CheckpointNotFoundError: there is none; the message lists those there are.
        CheckpointCorruptError: its manifest is damaged.
    """
    name = layout.parse_head(checkpoint) if isinstance(checkpoint, str) else None
    if name is not None:
        path = join(directory, layout.manifest_path(name))
        try:
            return _parse(store.read(path), path, name)
        except FileNotFoundError:
            pass
    names = [manifest.name for manifest in list_heads(store, directory)[0]]
    raise CheckpointNotFoundError(f"No such checkpoint in {directory}. Received: {checkpoint!r}. "
                                  f"Expected: one of {names}")


def is_whole(store: Store, directory: str, manifest: Manifest) -> bool:
    """Whether every object of a head is there, at its size."""
    return store.have_sizes({join(directory, ref.path): ref.bytes for ref in manifest.objects})


def is_there(store: Store, directory: str, manifest: Manifest) -> bool:
    """Whether every object of a head is there: in a local directory by `is_whole`, in a remote store by the listings of
    its data directories, a request for a thousand objects instead of one for each."""
    if "://" not in directory:
        return is_whole(store, directory, manifest)
    names: Dict[HeadName, Set[str]] = {}
    for ref in manifest.objects:
        name = layout.parse_object(ref.path)
        names.setdefault(name.head, set()).add(name.name)
    listed = store.list_each([join(directory, layout.data_path(head)) for head in names])
    return all(expected.issubset(found) for expected, found in zip(names.values(), listed))


def is_removed(store: Store, directory: str, manifest: Manifest) -> bool:
    """Whether the manifest of a head is gone, as retention leaves it, so that nobody promises its objects any more."""
    try:
        # Not its size: file systems remember that for a while, after another process has deleted the file, too.
        store.read(join(directory, layout.manifest_path(manifest.head)))
        return False
    except FileNotFoundError:
        return True


def next_sequence(store: Store, directory: str) -> int:
    """Returns the first sequence above all that manifests, whole or damaged, and data of the directory have used.

    To be called after `claims.take`; the run then counts on by itself.
    """
    used = [head.sequence
            for area, parse in ((layout.MANIFESTS, layout.parse_manifest), (layout.DATA, layout.parse_head))
            for head in map(parse, store.list(join(directory, area))) if head is not None]
    return max(used, default=0) + 1


def commit(store: Store, directory: str, manifest: Manifest, claim: Claim,
           parent: Optional[Manifest] = None) -> None:
    """Makes a checkpoint exist. All its objects must be durable already.

    Args:
        store: where `directory` lies.
        directory: the checkpoint directory.
        manifest: of the run that holds `claim`.
        claim: taken before; checked again here.
        parent: the manifest named by `manifest.parent`, if it is at hand: the chain is then compared with it.

    Raises:
        FencedError: a higher claim exists; nothing was written, or what was written was taken away again.
        ValueError: the manifest contradicts itself, its parent or the claim; nothing was written.
        CommitOutcomeUnknownError: it may exist or not; its data must be kept.
        SaveFailedError: it does not exist; its data is a leftover.
        StoreUnavailableError: the claims could not be listed; nothing was written.
    """
    if manifest.head.claim != claim:
        raise ValueError(f"manifest {manifest.name}: Received: claim {claim}. Expected: {manifest.head.claim}")
    if parent is not None:
        if manifest.parent != parent.name:
            raise ValueError(f"manifest {manifest.name}: Received: parent {parent.name}. Expected: {manifest.parent}")
        manifest_check.check_successor(parent, manifest)
    data = manifest.to_json()
    path = join(directory, layout.manifest_path(manifest.head))
    claims.ensure_current(store, directory, claim)
    try:
        store.put(path, data)
    except Exception as error:
        _settle(store, path, data, error)
    _withdraw_if_fenced(store, directory, path, claim)


def _withdraw_if_fenced(store: Store, directory: str, path: str, claim: Claim) -> None:
    """Takes a manifest away that was written after somebody else's claim, by a coordinator that hung in between.

    Its data may have been swept up as a leftover by then. Whoever has restored it goes on from the data, and publishes it
    under a name of his own.
    """
    try:
        claims.ensure_current(store, directory, claim)
    except FencedError:
        try:
            store.delete(path)
        except Exception as error:
            _log.warning("%s was written too late, and could not be removed: %r", path, error)
        raise
    except Exception as error:
        _log.warning("%s is committed, but the claims could not be listed after it: %r", path, error)


def _settle(store: Store, path: str, data: bytes, error: Exception) -> None:
    """Reads back a manifest whose write raised; returns if it is there, whole and durable."""
    if isinstance(error, DeadlineError):
        # Whatever is there now: the write that hangs may be made yet, or fail and take the object away.
        raise CommitOutcomeUnknownError(f"the manifest {path} may yet be written: {error}") from error
    try:
        found = store.read(path)
    except FileNotFoundError:
        raise SaveFailedError(f"the manifest {path} could not be written: {error}") from error
    except Exception as second:
        raise CommitOutcomeUnknownError(
            f"the manifest {path} may or may not exist: writing it raised {error!r}, reading it back {second!r}"
        ) from error
    if found == data and "://" not in path and not isinstance(error, FileExistsError):
        # The sync may be what failed: a second one would succeed, without the pages that the kernel has dropped.
        raise CommitOutcomeUnknownError(
            f"the manifest {path} is there, but may not survive a loss of power: writing it raised {error!r}") from error
    if found == data:
        try:
            store.sync(path)
        except Exception as second:
            raise CommitOutcomeUnknownError(
                f"the manifest {path} is there, but may not survive a loss of power: writing it raised {error!r}, "
                f"syncing it {second!r}") from error
        _log.warning("Writing %s raised %r, but it is there and whole: committed.", path, error)
        return
    if isinstance(error, FileExistsError):
        raise SaveFailedError(f"the manifest {path} exists already, with other content; it was left alone") from error
    try:
        store.delete(path)
    except Exception as second:
        # Cut off, so never a head; but more of it may yet arrive at a remote store.
        raise CommitOutcomeUnknownError(
            f"the manifest {path} is there in part: writing it raised {error!r}, removing it {second!r}") from error
    raise SaveFailedError(f"the manifest {path} could not be written: {error}") from error
