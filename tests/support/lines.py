"""Lines that a process prints for the one that reads its output."""

import os
import sys


def say(line: str) -> None:
    """Prints ``line`` as a line of its own, whatever the other threads and TensorFlow print meanwhile.

    Where Python's streams are not buffered, `print` writes a line and its end one after the other.
    """
    sys.stdout.flush()
    data = f"\n{line}\n".encode()
    while data:
        data = data[os.write(1, data):]
