"""The C++ store over local files and over TensorFlow's file systems."""

import subprocess
from pathlib import Path

import pytest

from tools import cxx, native


@pytest.fixture(scope="module")
def tool() -> Path:
    """store_tool, which needs TensorFlow and so is not built with the other C++ programs."""
    out = cxx.ROOT / "build" / "io"
    compile_flags, _ = native.tensorflow_flags(out / "tensorflow_flags.json")
    sources = [*cxx.find_sources(cxx.ROOT, ("io",)), cxx.ROOT / "ops" / "io" / "store_tool.cc"]
    with cxx.locked(out):
        objects = cxx.compile_objects(sources, out / "obj", ["-std=c++17", "-O1", "-pthread", *compile_flags])
        folder = Path(next(flag for flag in compile_flags if flag.endswith("/include"))).parent
        libraries = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-l:libtensorflow_cc.so.2",
                     "-l:libtensorflow_framework.so.2"]
        return cxx.link(out / "bin" / "store_tool", objects, ["-pthread", *libraries])


def _run(tool: Path, directory: str) -> str:
    done = subprocess.run([tool, directory], capture_output=True, text=True, check=False, timeout=120)
    return done.stdout.strip()


def test_local_files(tool: Path, tmp_path: Path) -> None:
    assert _run(tool, str(tmp_path / "new")) == "ok"
    assert (tmp_path / "new" / "half").read_bytes() == b"01234"


def test_file_scheme_is_local(tool: Path, tmp_path: Path) -> None:
    assert _run(tool, f"file://{tmp_path}/new") == "ok"
    assert (tmp_path / "new" / "half").read_bytes() == b"01234"


def test_a_file_system_of_tensorflow(tool: Path) -> None:
    assert _run(tool, "ram://store") == "ok"


def test_an_unknown_scheme_is_an_error(tool: Path) -> None:
    answer = _run(tool, "nosuch://store")
    assert "UNIMPLEMENTED" in answer and "nosuch" in answer


def test_a_plan_that_cannot_be_understood_fails_every_operation(tool: Path, tmp_path: Path) -> None:
    done = subprocess.run([tool, str(tmp_path / "new")], capture_output=True, text=True, check=False, timeout=120,
                          env={"ADAPTCP_STORE_FAULTS": "kil@3"})
    assert "ADAPTCP_STORE_FAULTS" in done.stderr and "errno 22" in done.stdout
    assert not (tmp_path / "new").exists()


def test_a_plan_from_the_environment_kills(tool: Path, tmp_path: Path) -> None:
    done = subprocess.run([tool, str(tmp_path / "new")], check=False, timeout=120,
                          env={"ADAPTCP_STORE_FAULTS": "match=x.seg;kill@1"})
    assert done.returncode == -9
    assert (tmp_path / "new" / "a" / "b").is_dir() and not (tmp_path / "new" / "a" / "b" / "x.seg").exists()
