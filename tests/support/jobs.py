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

from tests.support import forks, lines

ROOT = Path(__file__).resolve().parents[2]
_RESULT = "JOB RESULT "


def run_job(module: str, job: str, timeout: float = 150, env: dict[str, str] | None = None, fresh: bool = False) -> Any:
    """Returns what function ``job`` of ``module`` returned, as read back from JSON.

    Fails with the job's output if it raised, ended early or ran out of time.

    Args:
        fresh: the process has nothing imported beforehand.
    """
    # TensorFlow says five lines per function whose servers have gone; failures raise in Python.
    environment = {**os.environ, **(env or {}), "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.support.jobs", module, job]
    try:
        code, output = forks.run(command, environment, timeout, fresh=fresh)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{job} ran longer than {timeout} s:\n{error.output[-6000:]}") from None
    results = [line for line in output.splitlines() if line.startswith(_RESULT)]
    assert code == 0 and results, f"{job} ended with {code}:\n{output[-6000:]}"
    return json.loads(results[-1][len(_RESULT) :])


def main() -> None:
    module, job = sys.argv[1:]
    if "tfadaptcp" in sys.modules:  # else it was to be a fresh process
        forks.for_clusters()
    result = getattr(importlib.import_module(module), job)()
    lines.say(_RESULT + json.dumps(result))
    # A coordinator whose servers have gone is not worth tearing down in order.
    os._exit(0)


if __name__ == "__main__":
    main()
