"""The commands behind `tfadaptcp.cli`."""

import json
import sys
from typing import Dict, List, Optional

import tensorflow as tf

from tfadaptcp import _ops
from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.manifest import Manifest
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.cli import DAMAGED, NOTHING, WHOLE
from tfadaptcp.info import CheckpointInfo
from tfadaptcp.manager import normalize
from tfadaptcp.restore import object_request


def ls(directory: str) -> int:
    """Prints one line a checkpoint; 2 if there is none."""
    directory = normalize(directory)
    heads, damaged = commit.list_heads(Store(), directory)
    for item in damaged:
        print(f"tfadaptcp: {item.reason}", file=sys.stderr)
    if not heads:
        print(f"tfadaptcp: there is no checkpoint in {directory}", file=sys.stderr)
        return NOTHING
    print(f"{'name':<36} {'step':>10} {'epoch':>5} {'batch':>7}  {'created (UTC)':<23} {'policy':<13} "
          f"{'written':>10} {'restore':>10}")
    for head in heads:
        info = CheckpointInfo.of(head)
        print(f"{info.name:<36} {info.step:>10} {info.epoch:>5} {info.batch:>7}  {info.created[:23]:<23} "
              f"{info.policy:<13} {_size(info.bytes_written):>10} {_size(info.bytes):>10}")
    return WHOLE


def verify(directory: str, checkpoint: Optional[str], as_json: bool) -> int:
    """Reads every object of the checkpoints, each once; 0 whole, 1 damaged, 2 if there is none."""
    directory = normalize(directory)
    store = Store()
    problems: List[str] = []
    if checkpoint is not None:
        heads = [commit.load(store, directory, checkpoint)]
    else:
        heads, damaged = commit.list_heads(store, directory)
        # A torn manifest was never committed: what a crash leaves, not damage.
        problems += [item.reason for item in damaged if not item.torn]
    if not heads and not problems:
        print(f"tfadaptcp: there is no checkpoint in {directory}", file=sys.stderr)
        return NOTHING
    verdicts: Dict[str, Optional[str]] = {}
    results = []
    for head in heads:
        found = _damage_of(directory, head, verdicts)
        problems += [f"checkpoint {head.name}: {text}" for text in found]
        results.append({"name": head.name, "step": head.step, "objects": len(head.objects), "bytes": head.bytes,
                        "damage": found})
        if not as_json:
            print(f"{head.name}  {len(head.objects)} objects, {_size(head.bytes)}: "
                  f"{'damaged' if found else 'whole'}", flush=True)
    if as_json:
        print(json.dumps({"directory": directory, "checkpoints": results, "damage": problems}, indent=2))
    else:
        for text in problems:
            print(text)
    return DAMAGED if problems else WHOLE


def _damage_of(directory: str, head: Manifest, verdicts: Dict[str, Optional[str]]) -> List[str]:
    """What is wrong with the objects of a head; `verdicts` remembers those that several heads share."""
    ops = _ops.lib()
    found = []
    for ref in head.objects:
        if ref.path not in verdicts:
            try:
                # Opening is verifying: size, every record's and the file's checksum, rows, footer.
                request = {"name": ref.path, "object": object_request(directory, ref)}
                ops.adaptcp_open_segment(json.dumps(request))
                ops.adaptcp_close_segment(ref.path)
                verdicts[ref.path] = None
            except tf.errors.OpError as error:
                verdicts[ref.path] = error.message
        if verdicts[ref.path] is not None:
            found.append(verdicts[ref.path])
    return found


def _size(size: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
