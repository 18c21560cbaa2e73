"""Which heads stay, and the removal of everything that none needs.

A pass first settles which data no manifest of the directory references, then deletes manifests, then that data. Data
of a manifest deleted now is thus still there until the next pass, for readers that hold the manifest. A pass may
end anywhere, as when its time is over: no manifest names what it leaves, so the next one finds that.

**Heads.** The *lineage* of the run is its newest head and all ancestors of it, along `parent` and `origin`; a head and
its re-publications count once. Its *family* is everything connected with it by these names, or written by the same
runs: branches that a rollback abandoned. A head of the family stays as long as fewer than `max_to_keep` heads of the
lineage are newer. Heads outside the family belong to other lineages and stay for ever. The newest valid head of the
directory stays whatever the rules say. Of repeated re-publications of one head, only those that others name stay.

**Data.** An object goes when no manifest references it, its claim is not above the run's, and its attempt is not in
progress: leftovers of attempts that failed and of runs that died.

**Damaged manifests.** A torn one, cut off in the middle of its own write, was never committed: it goes, its data one
pass later. Any other was whole once. It stays, unless it is one of the family and old enough; while it stays, nothing
that it can have referenced goes: no object of a sequence up to its own and a claim up to its own.
"""

import dataclasses
import functools
import logging
import time
from typing import Dict, Iterable, List, Optional, Set, Tuple

from tfadaptcp.checkpoint import claims, commit, layout
from tfadaptcp.checkpoint.claims import Claim
from tfadaptcp.checkpoint.commit import Damaged
from tfadaptcp.checkpoint.layout import HeadName, ObjectName
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.checkpoint.store import Store, join

_log = logging.getLogger("tfadaptcp")
# What a pass leaves alone the next one meets again.
_warn_once = functools.lru_cache(maxsize=1000)(_log.warning)


@dataclasses.dataclass(frozen=True)
class Collected:
    """What a pass deleted: names of heads (torn ones too), and relative paths of objects."""
    heads: Tuple[str, ...] = ()
    objects: Tuple[str, ...] = ()


def collect(store: Store, directory: str, claim: Claim, max_to_keep: int, in_progress: Iterable[str] = (),
            parsed: Optional[commit.Parsed] = None, seconds: Optional[float] = None) -> Collected:
    """Makes one pass. Called by the coordinator that holds `claim`, from one thread at a time, best after each commit.

    It may raise at any point and be killed at any point: the next pass takes up what is left.

    Args:
        store: where `directory` lies.
        directory: the checkpoint directory.
        claim: the caller's; checked before manifests and again before data is deleted.
        max_to_keep: heads of the lineage to keep, at least 1.
        in_progress: names `<generation>-<sequence>-<run>` of attempts whose data must stay though no manifest
            references it: the pending checkpoint, a base being written, a commit of unknown outcome.
        parsed: see `commit.list_heads`.
        seconds: how long data may be deleted, some of it in any case; the next pass goes on. None: until none is left.

    Raises:
        FencedError: a higher claim exists.
        StoreUnavailableError: a listing, read or deletion failed.
    """
    # The order matters: an attempt that begins after the data was listed has nothing in the list; one that began
    # before is either in progress, or has its manifest in the listing that comes last.
    objects, empty_dirs, probes = _list_data(store, directory)
    held = set(in_progress)
    heads, damaged = commit.list_heads(store, directory, parsed)
    old_heads = _outdated(heads, damaged, claim, max_to_keep, held)
    garbage = _unreferenced(objects, heads, damaged, claim, held)

    claims.ensure_current(store, directory, claim)
    if garbage:
        # A manifest that an earlier pass deleted must not come back, after a loss of power, when its data has gone.
        store.sync_names(join(directory, layout.MANIFESTS))
    for name in old_heads:
        store.delete(join(directory, layout.manifest_path(name)), durable=False)
    if garbage:
        claims.ensure_current(store, directory, claim)
    paths = {join(directory, str(item)): item for item in garbage}
    ends = None if seconds is None else time.monotonic() + seconds
    for path in store.delete_all(list(paths), ends):
        del paths[path]
    deleted = tuple(paths.values())
    emptied = {item.head for item in deleted} - {item.head for item in set(objects) - set(deleted)}
    emptied |= {head for head in empty_dirs if _is_leftover(head, claim, held)}
    store.remove_dirs([join(directory, layout.data_path(head)) for head in sorted(emptied)], ends)
    for probe in probes:
        store.delete(join(directory, layout.DATA, probe), durable=False)
    return Collected(tuple(map(str, old_heads)), tuple(map(str, deleted)))


def _list_data(store: Store, directory: str) -> Tuple[List[ObjectName], List[HeadName], List[str]]:
    """Returns the objects, the directories that hold none, and the stray start-up probes."""
    names = store.list(join(directory, layout.DATA))
    heads = [head for head in map(layout.parse_head, names) if head is not None]
    listed = list(zip(heads, store.list_each([join(directory, layout.data_path(head)) for head in heads])))
    probes = [name for name in names if name.startswith(layout.PROBE_PREFIX)]
    for name in names:
        if layout.parse_head(name) is None and name not in probes:
            _warn_once("Leaving %s alone: not a data directory.", join(directory, layout.DATA, name))
    return ([ObjectName(head, file) for head, files in listed for file in files],
            [head for head, files in listed if not files], probes)


def _outdated(heads: List[Manifest], damaged: List[Damaged], claim: Claim, max_to_keep: int,
              held: Set[str]) -> List[HeadName]:
    """Returns the names of the manifests to delete, oldest first."""
    gone = {item.head for item in damaged if item.torn and _is_leftover(item.head, claim, held)}
    own = [manifest for manifest in heads if manifest.head.claim == claim]
    if own:
        lineage = _lineage(heads, own[-1])
        counted = _newest_of_each(lineage)
        family = _family(heads, lineage)
        runs = {manifest.head.claim for manifest in family}

        def outlived(order) -> bool:
            return sum(head.order > order for head in counted.values()) >= max_to_keep

        for manifest in family:
            # A head of the lineage is as new as its newest re-publication.
            as_new_as = counted.get(manifest.identity, manifest.head)
            if outlived(as_new_as.order) or _is_spare(manifest, heads, counted):
                gone.add(manifest.head)
        for item in damaged:
            if item.head is not None and item.head.claim in runs and outlived(item.head.order):
                gone.add(item.head)
    if heads:
        gone.discard(heads[-1].head)
    return sorted(gone, key=lambda head: head.order)


def _lineage(heads: List[Manifest], newest: Manifest) -> List[Manifest]:
    """Returns a head and its ancestors, with all re-publications that a chain of names leads to."""
    by_name = {manifest.name: manifest for manifest in heads}
    found: Dict[str, Manifest] = {}
    ask: List[Optional[str]] = [newest.name]
    while ask:
        manifest = by_name.get(ask.pop() or "")
        if manifest is not None and manifest.name not in found:
            found[manifest.name] = manifest
            ask += [manifest.origin, manifest.parent]
    return list(found.values())


def _newest_of_each(lineage: List[Manifest]) -> Dict[str, HeadName]:
    newest: Dict[str, HeadName] = {}
    for manifest in lineage:
        best = newest.get(manifest.identity)
        if best is None or manifest.head.order > best.order:
            newest[manifest.identity] = manifest.head
    return newest


def _family(heads: List[Manifest], lineage: List[Manifest]) -> List[Manifest]:
    """Returns all heads connected with the lineage by a name, present or not, or by the run that wrote them."""
    def links(manifest: Manifest) -> Set[object]:
        return {manifest.name, manifest.head.claim, manifest.parent, manifest.origin} - {None}

    family = list(lineage)
    known = set().union(*map(links, lineage))
    rest = [manifest for manifest in heads if manifest not in family]
    while True:
        joined = [manifest for manifest in rest if links(manifest) & known]
        if not joined:
            return family
        family += joined
        known = known.union(*map(links, joined))
        rest = [manifest for manifest in rest if manifest not in joined]


def _is_spare(manifest: Manifest, heads: List[Manifest], counted: Dict[str, HeadName]) -> bool:
    """Whether this is a re-publication that a newer one has replaced and that no other head goes on from."""
    newest = counted.get(manifest.identity)
    return (manifest.origin is not None and newest is not None and newest != manifest.head
            and not any(other.parent == manifest.name for other in heads))


def _unreferenced(objects: List[ObjectName], heads: List[Manifest], damaged: List[Damaged], claim: Claim,
                  held: Set[str]) -> List[ObjectName]:
    """Returns the objects to delete. All manifests count, those that this pass is about to delete included."""
    referenced = {ref.path for manifest in heads for ref in manifest.objects}
    torn = {item.head for item in damaged if item.torn}
    unreadable = [item for item in damaged if item.is_damage]
    for item in unreadable:
        _warn_once("Keeping all data that a damaged manifest may need: %s", item.reason)
    return [item for item in objects
            if str(item) not in referenced and _is_leftover(item.head, claim, held) and item.head not in torn
            and not any(item.head.sequence <= other.head.sequence and item.head.claim <= other.head.claim
                        for other in unreadable)]


def _is_leftover(head: Optional[HeadName], claim: Claim, held: Set[str]) -> bool:
    return head is not None and head.claim <= claim and str(head) not in held
