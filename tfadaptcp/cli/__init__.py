"""The command line: `tfadaptcp ls DIR`, `tfadaptcp verify DIR`; also `python -m tfadaptcp`.

Reading only: a directory may be looked at while a job writes to it.
"""

import argparse
import sys
from typing import List, Optional

from tfadaptcp.errors import AdaptCPError, CheckpointCorruptError

# What scripts may rely on.
WHOLE = 0
DAMAGED = 1
NOTHING = 2

_EXIT_CODES = "exit codes: 0 whole; 1 damaged; 2 no checkpoint, a store that can't be reached, or wrong usage"


def main(argv: Optional[List[str]] = None) -> int:
    """Runs a command; returns its exit code: 0 fine, 1 damaged, 2 no checkpoint, store unreachable or wrong usage."""
    parser = argparse.ArgumentParser(prog="tfadaptcp", description="Looks at checkpoint directories.", epilog=_EXIT_CODES)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("ls", help="list the checkpoints of a directory, oldest first", epilog=_EXIT_CODES)
    verify = commands.add_parser("verify", help="read every object and compare every checksum and row count",
                                 epilog=_EXIT_CODES)
    for command in (listing, verify):
        command.add_argument("directory", help="local path or URL")
        command.add_argument("--json", action="store_true", help="print a JSON object instead of lines")
    verify.add_argument("--checkpoint", metavar="NAME", help="verify this one only, by its name")
    arguments = parser.parse_args(argv)

    from tfadaptcp.cli import listing as ls  # these need what is defined here
    from tfadaptcp.cli import verifying
    try:
        if arguments.command == "ls":
            return ls.run(arguments.directory, arguments.json)
        return verifying.run(arguments.directory, arguments.checkpoint, arguments.json)
    except CheckpointCorruptError as error:
        print(f"tfadaptcp: {error.message}", file=sys.stderr)
        return DAMAGED
    except (AdaptCPError, OSError, ValueError) as error:
        print(f"tfadaptcp: {error}", file=sys.stderr)
        return NOTHING


def size(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number} B" if unit == "B" else f"{number:.1f} {unit}"
