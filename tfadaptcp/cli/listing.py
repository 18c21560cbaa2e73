"""`tfadaptcp ls`."""

import dataclasses
import json
import sys

from tfadaptcp.checkpoint import commit
from tfadaptcp.checkpoint.store import Store, normalize
from tfadaptcp.cli import DAMAGED, NOTHING, WHOLE, size
from tfadaptcp.info import CheckpointInfo


def run(directory: str, as_json: bool) -> int:
    """Prints the checkpoints, one a line, oldest first; manifests alone are read.

    Returns:
        2 if there is no checkpoint, 1 if a manifest is damaged, else 0. One that was never written to its end, as a crash
        leaves it, is no damage.
    """
    directory = normalize(directory)
    store = Store()
    store.check_supported(directory)
    heads, damaged = commit.list_heads(store, directory)
    broken = [item.reason for item in damaged if item.is_damage]
    for item in damaged:
        print(f"tfadaptcp: {item.reason}", file=sys.stderr)
    if not heads and not broken:
        print(f"tfadaptcp: there is no checkpoint in {directory}", file=sys.stderr)
        return NOTHING
    if as_json:
        entries = [{**dataclasses.asdict(CheckpointInfo.of(head)), "parent": head.parent, "origin": head.origin,
                    "tables": dict(head.table_rows)} for head in heads]
        print(json.dumps({"directory": directory, "checkpoints": entries, "damage": broken}, indent=2))
    elif heads:
        print(f"{'name':<34} {'generation':>10} {'step':>10} {'epoch':>5} {'batch':>7}  {'created (UTC)':<23} "
              f"{'policy':<18} {'written':>10} {'restore':>10}  quantization")
        for info in map(CheckpointInfo.of, heads):
            print(f"{info.name:<34} {info.generation:>10} {info.step:>10} {info.epoch:>5} {info.batch:>7}  "
                  f"{info.created[:23]:<23} {info.policy:<18} {size(info.bytes_written):>10} {size(info.bytes):>10}  "
                  f"{info.quantization or '-'}")
    return DAMAGED if broken else WHOLE
