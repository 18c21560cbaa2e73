"""Runs a program that ends when the standard input of this one does.

Whoever starts a server through this file holds the other end of the pipe: however the test ends, SIGKILL included, the
pipe closes and the server goes. Run as a file, so that nothing slow is imported.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    # The signal comes when the thread that started the program ends: this one, which waits for it.
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    sys.exit(program.wait())
