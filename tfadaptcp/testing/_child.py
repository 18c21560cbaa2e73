"""Runs a module as a program that ends when its standard input does.

``LocalCluster`` starts its servers through this file and holds the other end of the pipe: however
the test process ends, SIGKILL included, the pipe closes and the server goes. (The kernel's
parent-death signal is tied to the *thread* that started a child, which a test may well outlive.)

Run as a file, not as a module, so that the watchdog runs before the slow import of TensorFlow.
"""

import os
import runpy
import sys
import threading


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_exit_with_stdin, name="parent-watchdog", daemon=True).start()
    # Python put this file's directory first; its modules must not shadow top-level ones.
    sys.path.pop(0)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
