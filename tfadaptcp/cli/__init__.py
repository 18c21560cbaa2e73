"""The command line: `tfadaptcp ls DIR`, `tfadaptcp verify DIR`; also `python -m tfadaptcp`.

Reading only: a directory may be looked at while a job writes to it.
"""

import argparse
import sys
from typing import List, Optional

# What scripts may rely on.
WHOLE = 0
DAMAGED = 1
NOTHING = 2


def main(argv: Optional[List[str]] = None) -> int:
    """Runs a command; returns its exit code: 0 fine, 1 damaged, 2 no checkpoint, store unreachable or wrong usage."""
    parser = argparse.ArgumentParser(prog="tfadaptcp", description="Looks at checkpoint directories.")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("ls", help="list the checkpoints of a directory, oldest first")
    listing.add_argument("directory")
    verify = commands.add_parser("verify", help="read every object and compare every checksum and row count")
    verify.add_argument("directory")
    verify.add_argument("--checkpoint", help="verify this one only, by its name")
    verify.add_argument("--json", action="store_true", help="print a JSON object instead of lines")
    arguments = parser.parse_args(argv)

    # After the arguments: importing TensorFlow takes seconds.
    from tfadaptcp.cli import commands as run
    from tfadaptcp.errors import AdaptCPError, CheckpointCorruptError
    try:
        if arguments.command == "ls":
            return run.ls(arguments.directory)
        return run.verify(arguments.directory, arguments.checkpoint, arguments.json)
    except CheckpointCorruptError as error:
        print(f"tfadaptcp: {error.message}", file=sys.stderr)
        return DAMAGED
    except (AdaptCPError, OSError) as error:
        print(f"tfadaptcp: {error}", file=sys.stderr)
        return NOTHING
