"""`tfadaptcp verify`."""

import dataclasses
import json
import math
import sys
from typing import Dict, List, Optional, Tuple

import tensorflow as tf

from tfadaptcp import _ops
from tfadaptcp.checkpoint import commit, heads, layout, manifest_check, objects
from tfadaptcp.checkpoint.manifest import Manifest, ObjectRef
from tfadaptcp.checkpoint.store import Store, normalize
from tfadaptcp.cli import DAMAGED, NOTHING, WHOLE, size
from tfadaptcp.errors import StoreUnavailableError, of_host
from tfadaptcp.options import EngineOptions

# Of opening an object; other errors say that the store can't be read.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.UnimplementedError, tf.errors.InvalidArgumentError)


@dataclasses.dataclass(frozen=True)
class _Verdict:
    """What is wrong with an object, None if nothing is; and how many elements of which dense tensors it has."""
    damage: Optional[str]
    dense: Dict[str, int]


def run(directory: str, checkpoint: Optional[str], as_json: bool) -> int:
    """Reads every object of the checkpoints, each once, and compares each checkpoint with its parent if that is there.

    Memory: one object at a time. A checkpoint that retention removes meanwhile is left out.

    Returns:
        0 if all is whole, 1 if something is damaged, 2 if there is no checkpoint, or each was removed before it was read.
    """
    directory = normalize(directory)
    store = Store()
    store.check_supported(directory)
    verdicts: Dict[str, _Verdict] = {}
    for _ in range(heads.REMOVALS):
        found, damaged = commit.list_heads(store, directory)
        chosen = found if checkpoint is None else [commit.load(store, directory, checkpoint)]
        problems = [item.reason for item in damaged if item.is_damage] if checkpoint is None else []
        if not chosen and not problems:
            print(f"tfadaptcp: there is no checkpoint in {directory}", file=sys.stderr)
            return NOTHING
        results = _verify(store, directory, chosen, {head.name: head for head in found}, verdicts, as_json)
        if results or problems:
            break  # otherwise all that was listed has been removed: there are newer ones
    else:
        print(f"tfadaptcp: every checkpoint in {directory} was removed while it was looked at", file=sys.stderr)
        return NOTHING
    problems += [f"checkpoint {entry['name']}: {text}" for entry in results for text in entry["damage"]]
    if as_json:
        print(json.dumps({"directory": directory, "checkpoints": results, "damage": problems}, indent=2))
    else:
        for text in problems:
            print(text)
    return DAMAGED if problems else WHOLE


def _verify(store: Store, directory: str, chosen: List[Manifest], known: Dict[str, Manifest],
            verdicts: Dict[str, _Verdict], quiet: bool) -> List[dict]:
    results = []
    for head in chosen:
        damage, missing = _damage_of(directory, head, verdicts)
        if missing and commit.is_removed(store, directory, head):
            for path in missing:
                del verdicts[path]  # another head may say otherwise
            continue
        damage += _gap(head, known)
        results.append({"name": head.name, "step": head.step, "objects": len(head.objects), "bytes": head.bytes,
                        "rows": head.rows, "damage": damage})
        if not quiet:
            print(f"{head.name}  {len(head.objects)} objects, {size(head.bytes)}: {'damaged' if damage else 'whole'}",
                  flush=True)
    return results


def _damage_of(directory: str, head: Manifest, verdicts: Dict[str, _Verdict]) -> Tuple[List[str], List[str]]:
    """What is wrong with a head's objects, and which can't be read; `verdicts` has those that other heads share."""
    damage, missing = [], []
    elements: Dict[str, int] = {}
    for ref in head.objects:
        if ref.path not in verdicts:
            verdicts[ref.path] = _open(directory, head, ref)
        verdict = verdicts[ref.path]
        if verdict.damage is not None:
            damage.append(verdict.damage)
            missing.append(ref.path)
        for name, count in verdict.dense.items():
            elements[name] = elements.get(name, 0) + count
    if not damage:
        for spec in head.dense:
            if elements.get(spec.name, 0) != math.prod(spec.shape):
                damage.append(f"dense variable {spec.name}: Received: {elements.get(spec.name, 0)} elements in the "
                              f"objects. Expected: {math.prod(spec.shape)}")
    return damage, missing


def _open(directory: str, head: Manifest, ref: ObjectRef) -> _Verdict:
    """Opening is verifying: size, every record's and the file's checksum, rows, footer."""
    ops = _ops.lib()
    request = {"object": objects.request(directory, ref), "specs": objects.specs(head), "limits": EngineOptions().for_restores()}
    try:
        return _Verdict(None, json.loads(ops.adaptcp_verify_segment(json.dumps(request)).numpy())["dense"])
    except _DAMAGE as error:
        return _Verdict(error.message, {})
    except tf.errors.OpError as error:
        raise (of_host(error, f"could not read {ref.path} of {directory}")
               or StoreUnavailableError(f"{ref.path} of {directory}: {error.message}")) from error


def _gap(head: Manifest, known: Dict[str, Manifest]) -> List[str]:
    """What of the chain is missing: compares a head with its parent, if that is there."""
    parent = known.get(head.parent)
    if parent is None:
        return []
    origin = layout.parse_head(head.origin) if head.origin else head.head
    # A head that was published again is the one it was first.
    as_first = dataclasses.replace(head, generation=origin.generation, sequence=origin.sequence, run=origin.run)
    try:
        manifest_check.check_successor(parent, as_first)
    except ValueError as error:
        return [str(error)]
    return []
