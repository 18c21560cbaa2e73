"""A small incremental C++ builder: what setup.py and the C++ tests share.

An object is compiled again only if its command line, its source or a header it
includes has changed *in content*; fresh clones, touched files and clock jumps
cost nothing and hide nothing. Compiles run in parallel, one build of a directory
at a time, also across processes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class BuildError(RuntimeError):
    """A compiler or linker failed; its output is part of the message."""


def compiler() -> str:
    """The C++ compiler: $CXX, else g++."""
    return os.environ.get("CXX", "g++")


def jobs() -> int:
    """How many compilers run at once: $JOBS, else one per usable core."""
    return int(os.environ.get("JOBS", 0)) or len(os.sched_getaffinity(0))


def warning_flags() -> list[str]:
    """-Wall -Wextra, and -Werror when ADAPTCP_WERROR is set (as `make` does)."""
    flags = ["-Wall", "-Wextra"]
    if os.environ.get("ADAPTCP_WERROR", "0") not in ("", "0"):
        flags.append("-Werror")
    return flags


def find_sources(root: Path, packages: Sequence[str], suffix: str = "") -> list[Path]:
    """Lists C++ sources below `root/ops/<package>`, sorted.

    Args:
        root: the project's root.
        packages: folder names under ops/, for example ["util", "tracker"].
        suffix: "" for product code; "_test", "_bench" or "_tool" for the files of that role.
    """
    roles = ("_test", "_bench", "_tool")
    found = []
    for package in packages:
        for path in sorted((root / "ops" / package).rglob("*.cc")):
            if path.stem.endswith(suffix) if suffix else not path.stem.endswith(roles):
                found.append(path)
    return found


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the build lock of `directory`; waits for another build of it, and says so."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another build in {_shown(directory)}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_objects(sources: Sequence[Path], out: Path, flags: Sequence[str],
                    root: Path = ROOT) -> list[Path]:
    """Compiles what is out of date and returns one object per source, in order.

    The caller holds `locked(out)`.

    Args:
        sources: C++ files below `root`.
        out: folder for the objects and their stamps.
        flags: compiler flags, warning flags excepted.
        root: what the sources' names are relative to, and the include root.

    Raises:
        BuildError: a file did not compile. All the others were still tried.
    """
    plan = [(src, out / src.relative_to(root).with_suffix(".o")) for src in sources]
    stale = [(src, obj) for src, obj in plan if not _fresh(src, obj, flags, root)]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        tasks = {pool.submit(_compile, src, obj, flags, root): src for src, obj in stale}
        for done, task in enumerate(concurrent.futures.as_completed(tasks), 1):
            error = task.exception()
            print(f"  [{done}/{len(stale)}] {'c++' if error is None else 'FAILED'} "
                  f"{tasks[task].relative_to(root)}", flush=True)
            if error is not None:
                failures.append(str(error))
    if failures:
        raise BuildError("\n".join(failures))
    return [obj for _, obj in plan]


def link(output: Path, objects: Sequence[Path], flags: Sequence[str]) -> Path:
    """Links `objects`, unless the result is up to date; replaces `output` atomically.

    A process that has the old file loaded keeps it.
    """
    command = [compiler(), "-o", str(output), *map(str, objects), *flags]
    stamp = output.with_name(output.name + ".stamp")
    state = _digest(shlex.join(command).encode(), *(obj.read_bytes() for obj in objects))
    if output.exists() and stamp.exists() and stamp.read_text() == state:
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    print(f"  link {_shown(output)}", flush=True)
    _run([compiler(), "-o", str(partial), *map(str, objects), *flags])
    os.replace(partial, output)
    stamp.write_text(state)
    return output


def _compile(src: Path, obj: Path, flags: Sequence[str], root: Path) -> None:
    obj.parent.mkdir(parents=True, exist_ok=True)
    stamp, depfile = obj.with_suffix(".json"), obj.with_suffix(".d")
    stamp.unlink(missing_ok=True)
    started = time.time()
    # Warnings are no part of the stamp: turning -Werror on does not compile everything again.
    _run([compiler(), *flags, *warning_flags(), f"-I{root}", "-MMD", "-MF", str(depfile),
          "-c", str(src), "-o", str(obj)])
    # "target: src header \<newline> header": system headers (-isystem) are not listed.
    listed = re.split(r"(?<!\\)\s+", depfile.read_text().replace("\\\n", " ").partition(": ")[2].strip())
    names = [name.replace("\\ ", " ") for name in listed]
    deps = {name: _file_digest(Path(name)) for name in names}
    if any(Path(name).stat().st_mtime >= started for name in names):
        return  # Edited while it was being compiled: no stamp, so the next build does it again.
    stamp.write_text(json.dumps({"command": _command_key(flags), "deps": deps}))


def _fresh(src: Path, obj: Path, flags: Sequence[str], root: Path) -> bool:
    try:
        stamp = json.loads(obj.with_suffix(".json").read_text())
        return (obj.exists() and stamp["command"] == _command_key(flags)
                and str(src) in stamp["deps"]
                and all(_file_digest(Path(name)) == digest
                        for name, digest in stamp["deps"].items()))
    except (OSError, ValueError, KeyError):
        return False


def _command_key(flags: Sequence[str]) -> str:
    return shlex.join([compiler(), *flags])


def _run(command: Sequence[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False,
                                stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise BuildError(f"The C++ compiler was not found. Received: {command[0]!r}. Expected: "
                         "g++ 12 or newer (Debian: apt-get install g++), or CXX set.") from None
    if result.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    if result.stderr.strip():
        print(result.stderr, file=sys.stderr, flush=True)


def _file_digest(path: Path) -> str:
    return _digest(path.read_bytes())


def _digest(*parts: bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
