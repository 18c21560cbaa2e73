"""Processes that make checkpoints and are killed, one after another in one directory."""

import json
import os
import queue
import subprocess
import sys
import threading

from tests.support import jobs


class Lives:
    """The client of `tests.support.crash_jobs`."""

    def __init__(self, directory):
        self._directory = directory
        (directory / "oracle").mkdir(parents=True)
        environment = {**os.environ, "PYTHONPATH": str(jobs.ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._log = open(directory / "log", "w+")
        self._server = subprocess.Popen([sys.executable, "-m", "tests.support.crash_jobs"], cwd=jobs.ROOT,
                                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self._log, text=True)
        self._replies = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with self._server.stdout as lines:
            for line in lines:
                if line.startswith("REPLY "):
                    self._replies.put(json.loads(line[len("REPLY "):]))
        self._replies.put(None)

    def live(self, plan, early=False, cluster=None, may_fail=""):
        """Returns the reply; one with an error fails the test, unless it contains `may_fail`."""
        request = {"directory": str(self._directory / "checkpoints"), "oracle": str(self._directory / "oracle"),
                   "plan": plan, "early": early, "cluster": cluster}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        try:
            reply = self._replies.get(timeout=120)
        except queue.Empty:
            reply = None
        if reply is None or "error" in reply and not (may_fail and may_fail in reply["error"]):
            self._log.seek(0)
            raise AssertionError(f"with plan {plan!r}: {(reply or {}).get('error')}\n{self._log.read()[-4000:]}")
        return reply

    def end(self):
        self._server.stdin.close()
        try:
            self._server.wait(20)
        except subprocess.TimeoutExpired:
            self._server.kill()
        self._log.close()
