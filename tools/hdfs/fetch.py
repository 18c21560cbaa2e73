"""Gets a whole HDFS for tests: Hadoop's jars, a launcher for its servers, and libhdfs.so, which programs reach it with.

    python -m tools.hdfs.fetch CACHE            # nothing to do if all of it is there
    python -m tools.hdfs.fetch --have-tools     # exit code 1 if a JDK or Maven is missing

Needs a JDK that Hadoop runs on (11 to 23), Maven, gcc and pip; where one is missing, or something can't be downloaded, it says
so and succeeds: tests that need HDFS are skipped then, which the continuous integration doesn't let pass.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST, NEWEST = 11, 23  # Java; Hadoop 3.4 needs what Java 24 took away


class Missing(RuntimeError):
    """A tool that can't be fetched is missing; says which, and how to install it."""


def find_jdk() -> Path:
    """The home of a JDK that will do: $JAVA_HOME, that of `java` on the PATH, or one where Debian puts them."""
    for home in _homes():
        if (home / "include" / "jni.h").exists() and (home / "lib" / "server" / "libjvm.so").exists():
            release = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text())
            if release and OLDEST <= int(release[1]) <= NEWEST:
                return home
    raise Missing(f"no JDK of version {OLDEST} to {NEWEST} was found (apt-get install openjdk-17-jdk-headless, or set "
                  "JAVA_HOME)")


def _homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    java = shutil.which("java")
    if java:
        yield Path(java).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))


def find_maven() -> str:
    found = shutil.which("mvn")
    if not found:
        raise Missing("Maven (mvn) is not on the PATH (apt-get install maven)")
    return found


def fetch(cache: Path) -> None:
    """Fills `cache` with jars/, classes/, lib/native/libhdfs.so and java_home, unless it is up to date.

    Raises:
        RuntimeError: a tool is missing (`Missing`), or something could not be downloaded or built; names it.
    """
    jdk, maven = find_jdk(), find_maven()
    stamp = cache / "stamp"
    wanted = hashlib.sha256(str(jdk).encode() + b"".join(
        (HERE / name).read_bytes() for name in ("pom.xml", "requirements.txt", "Launcher.java", "fetch.py"))).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    print("==> HDFS for tests: Hadoop's jars (90 MB)", flush=True)
    _run("Hadoop's jars", maven, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(HERE / "pom.xml"),
         "dependency:copy-dependencies", f"-DoutputDirectory={cache.resolve() / 'jars'}")
    print("==> HDFS for tests: launcher and libhdfs.so", flush=True)
    _run("the launcher", str(jdk / "bin" / "javac"), "-nowarn", "-cp", str(cache / "jars" / "*"),
         "-d", str(cache / "classes"), str(HERE / "Launcher.java"))
    _build_libhdfs(jdk, cache / "lib" / "native")
    (cache / "java_home").write_text(str(jdk))
    stamp.write_text(wanted)


def _build_libhdfs(jdk: Path, target: Path) -> None:
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        # pip runs its setup.py for its metadata: with the setuptools that is here, as newer ones can't.
        _run("libhdfs's source", sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps",
             "--disable-pip-version-check", "--no-build-isolation", "--no-binary", ":all:", "--require-hashes",
             "--dest", scratch, "-r", str(HERE / "requirements.txt"))
        archive, = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(scratch, filter="data")
        source, = Path(scratch).glob("*/src/libhdfs")
        files = [str(path) for folder in (".", "common", "os/posix") for path in sorted((source / folder).glob("*.c"))]
        includes = [source, source / "include", source / "os" / "posix", jdk / "include", jdk / "include" / "linux"]
        _run("libhdfs.so", "gcc", "-shared", "-fPIC", "-O2", "-w", *(f"-I{path}" for path in includes), *files,
             "-o", str(target / "libhdfs.so"), f"-L{jdk / 'lib' / 'server'}", "-ljvm", "-lpthread", "-ldl")


def _run(what: str, *command: str) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError as error:
        raise Missing(f"{error.filename} is not on the PATH") from error
    if done.returncode != 0:
        raise RuntimeError(f"could not get {what} (the reason is above)")


def main(args: list[str]) -> int:
    try:
        if args == ["--have-tools"]:
            find_jdk(), find_maven()
        elif len(args) == 1 and not args[0].startswith("-"):
            fetch(Path(args[0]))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except RuntimeError as reason:
        if args == ["--have-tools"]:
            return 1
        print(f"Tests on HDFS will be skipped: {reason}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
