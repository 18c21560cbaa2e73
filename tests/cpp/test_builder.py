"""The incremental builder: compiles again what has changed, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import cxx, native


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program of two files and a header; it exits with the header's number."""
    folder = tmp_path / "ops" / "util"
    folder.mkdir(parents=True)
    (folder / "number.h").write_text("inline int Number() { return 3; }\n")
    (folder / "main.cc").write_text('#include "ops/util/number.h"\nint main() { return Number(); }\n')
    (folder / "other.cc").write_text("int Other() { return 0; }\n")
    (folder / "left_out_test.cc").write_text("#error never compiled\n")
    return tmp_path


def build(project: Path, *flags: str) -> int:
    """Builds and runs the program; returns its exit code."""
    out = project / "build"
    with cxx.locked(out):
        objects = cxx.compile_objects(cxx.find_sources(project, ["util"]), out, flags, project)
        return subprocess.run([cxx.link(out / "program", objects, [])], check=False).returncode


def compiled(capfd: pytest.CaptureFixture[str]) -> set[str]:
    """Names of the files that were compiled since the last call."""
    lines = capfd.readouterr().out.splitlines()
    return {Path(line.split()[-1]).name for line in lines if "] c++ " in line}


def test_compiles_what_changed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    header = project / "ops" / "util" / "number.h"
    assert build(project) == 3
    assert compiled(capfd) == {"main.cc", "other.cc"}
    assert build(project) == 3
    assert compiled(capfd) == set()

    # Same content with a new time: nothing. New content with an old time: what includes it.
    os.utime(header)
    assert build(project) == 3
    assert compiled(capfd) == set()
    header.write_text("inline int Number() { return 4; }\n")
    os.utime(header, (0, 0))
    assert build(project) == 4
    assert compiled(capfd) == {"main.cc"}

    assert build(project, "-O1") == 4
    assert compiled(capfd) == {"main.cc", "other.cc"}


def test_a_folder_with_spaces_in_its_name(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spaced = project.rename(project.with_name("a folder"))
    assert build(spaced) == 3
    compiled(capfd)
    (spaced / "ops" / "util" / "number.h").write_text("inline int Number() { return 4; }\n")
    assert build(spaced) == 4
    assert compiled(capfd) == {"main.cc"}


def test_a_failed_compile_is_reported_and_tried_again(project: Path) -> None:
    source = project / "ops" / "util" / "other.cc"
    assert build(project) == 3
    source.write_text("int Other() { return nothing; }\n")
    for _ in range(2):
        with pytest.raises(cxx.BuildError, match="nothing"):
            build(project)
    source.unlink()
    assert build(project) == 3


def test_missing_compiler_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(cxx.BuildError, match="Received: 'no-such-compiler'"):
        build(project)


def test_other_tensorflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {**native.pinned_versions(), "tensorflow": "2.15.0"}
    monkeypatch.setattr(native, "pinned_versions", lambda: pins)
    with pytest.raises(cxx.BuildError, match=r"TensorFlow\. Received: tensorflow.* Expected: 2\.15\.0"):
        native.check_versions()
