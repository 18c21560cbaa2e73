"""Runs a training job in a Python process of its own and hands back what it found.

TensorFlow connects a process to a cluster once, and a crash must not take the test run along.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_RESULT = "JOB RESULT "


def run_job(module: str, job: str, timeout: float = 150, env: dict[str, str] | None = None) -> Any:
    """Returns what function ``job`` of ``module`` returned, as read back from JSON.

    Fails with the job's output if it raised, ended early or ran out of time.
    """
    environment = {**os.environ, **(env or {})}
    environment["PYTHONPATH"] = str(ROOT)
    # TensorFlow says five lines per function whose servers have gone; failures raise in Python.
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    command = [sys.executable, "-m", "tests.support.jobs", module, job]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        raise AssertionError(f"{job} ran longer than {timeout} s:\n{output[-6000:]}") from None
    output = done.stdout.decode(errors="replace")
    results = [line for line in output.splitlines() if line.startswith(_RESULT)]
    assert done.returncode == 0 and results, (
        f"{job} ended with {done.returncode}:\n{output[-6000:]}"
    )
    return json.loads(results[-1][len(_RESULT) :])


def main() -> None:
    module, job = sys.argv[1:]
    result = getattr(importlib.import_module(module), job)()
    print(_RESULT + json.dumps(result), flush=True)
    # A coordinator whose servers have gone is not worth tearing down in order.
    os._exit(0)


if __name__ == "__main__":
    main()
