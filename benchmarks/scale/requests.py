"""How many requests the store gets for a checkpoint, for each of its objects, and for what retention removes.

    python -m benchmarks.scale.requests

Two tables of different size, each saved as a base again and again to the emulator of Google Cloud Storage that the
tests have (`make servers` builds it), whose proxy logs every request; the difference is what objects cost, the rest what
a checkpoint costs. Writes are what the service counts as such: uploads and deletions.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

from benchmarks.scale.inputs import Input, Inputs, line

_ROWS = (4_000, 40_000)
_SEGMENT, _BLOCK = 256 << 10, 64 << 10
_KINDS = {"write": ("PUT", "POST", "DELETE", "PATCH"), "read": ("GET", "HEAD")}


def is_possible() -> bool:
    """Whether the emulator has been built."""
    from tests.servers.gcs import SERVER
    return pathlib.Path(SERVER).exists()


def measure() -> Inputs:
    """Runs `main` in a process of its own: the file system reads its variables when TensorFlow is loaded."""
    done = subprocess.run([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"})
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"requests: {found}", flush=True)
    command = f"python -m {__name__}"
    inputs = {}
    for kind in _KINDS:
        for phase in ("save", "remove"):
            constant, slope = line((item["objects"], item[phase][kind]) for item in found)
            inputs[f"{phase}_{kind}s_per_object"] = Input(slope, "requests", f"{kind}s of a {phase}, for each object", command)
            inputs[f"{phase}_{kind}s"] = Input(max(0.0, constant), "requests", f"{kind}s of a {phase}, without any object",
                                               command)
    return inputs


def main() -> None:
    from tests.servers.gcs import BUCKET, Gcs
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfadaptcp-scale-"))
    server = Gcs(folder)
    try:
        os.environ.update({**server.environment, "GCS_STAT_CACHE_MAX_AGE": "0", "GCS_REQUEST_IDLE_TIMEOUT_SECS": "60"})
        found = [run(server.proxy, f"gs://{BUCKET}/{rows}", rows) for rows in _ROWS]
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found), flush=True)


def run(proxy: Any, directory: str, rows: int) -> Dict[str, Any]:
    """Objects of a base of so many rows; requests of its save, of retention that removes another."""
    import tfadaptcp
    from benchmarks import base_cases
    from tfadaptcp.checkpoint import commit
    from tfadaptcp.checkpoint.store import Store
    model = base_cases.build(16, f"emb{rows}")
    base_cases.fill(base_cases.variables_of(model), rows, 16)
    engine = tfadaptcp.EngineOptions(segment_bytes=_SEGMENT, block_bytes=_BLOCK, writer_threads=1)
    manager = tfadaptcp.CheckpointManager(model, directory, "full", max_to_keep=1, engine=engine)
    collect = manager._leftovers.collect
    seen: List[int] = []
    manager._leftovers.collect = lambda *args: (seen.append(len(proxy.log())), collect(*args))
    for _ in range(4):
        seen[:] = [len(proxy.log())]
        manager.save()
        info = manager.wait()
    log = proxy.log()
    manager.close()
    return {"objects": len(commit.load(Store(), directory, info.name).objects),
            "save": _counted(log[seen[0]:seen[1]]), "remove": _counted(log[seen[1]:])}


def _counted(requests: List[Any]) -> Dict[str, int]:
    return {kind: sum(request.method in methods for request in requests) for kind, methods in _KINDS.items()}


if __name__ == "__main__":
    main()
