"""Processes that make checkpoints and are killed, one after another in one directory."""

import json
import os
import subprocess
import sys

from tests.support import forks


class Lives:
    """The client of `tests.support.crash_jobs`."""

    def __init__(self, directory):
        self._directory = directory
        (directory / "oracle").mkdir(parents=True)

    def live(self, plan, early=False, cluster=None, may_fail=""):
        """Returns the reply; one with an error fails the test, unless it contains `may_fail`."""
        request = {"directory": str(self._directory / "checkpoints"), "oracle": str(self._directory / "oracle"),
                   "plan": plan, "early": early, "cluster": cluster}
        command = [sys.executable, "-m", "tests.support.crash_jobs", json.dumps(request)]
        try:
            code, output = forks.run(command, {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, 120)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"with plan {plan!r}, no end:\n{error.output[-4000:]}") from None
        replies = [line[len("REPLY "):] for line in output.splitlines() if line.startswith("REPLY ")]
        assert code < 0 or replies, f"with plan {plan!r}, ended with {code}:\n{output[-4000:]}"
        reply = {"signal": max(-code, 0), **json.loads(replies[-1] if replies else "{}")}
        if "error" in reply and not (may_fail and may_fail in reply["error"]):
            raise AssertionError(f"with plan {plan!r}: {reply['error']}\n{output[-4000:]}")
        return reply
