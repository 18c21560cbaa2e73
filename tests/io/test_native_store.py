"""The C++ store over local files, and its plans for faults. All stores: tests/stores."""

import subprocess
from pathlib import Path


def _run(store_tool: Path, directory: str) -> str:
    done = subprocess.run([store_tool, directory], capture_output=True, text=True, check=False, timeout=120)
    return done.stdout.strip()


def test_local_files(store_tool: Path, tmp_path: Path) -> None:
    assert _run(store_tool, str(tmp_path / "new")) == "ok"
    assert (tmp_path / "new" / "half").read_bytes() == b"01234"


def test_file_scheme_is_local(store_tool: Path, tmp_path: Path) -> None:
    assert _run(store_tool, f"file://{tmp_path}/new") == "ok"
    assert (tmp_path / "new" / "half").read_bytes() == b"01234"


def test_an_unknown_scheme_is_an_error(store_tool: Path) -> None:
    answer = _run(store_tool, "nosuch://store")
    assert "FAILED_PRECONDITION" in answer and "nosuch" in answer


def test_a_plan_that_cannot_be_understood_fails_every_operation(store_tool: Path, tmp_path: Path) -> None:
    done = subprocess.run([store_tool, str(tmp_path / "new")], capture_output=True, text=True, check=False, timeout=120,
                          env={"ADAPTCP_STORE_FAULTS": "kil@3"})
    assert "ADAPTCP_STORE_FAULTS" in done.stderr and "errno 22" in done.stdout
    assert not (tmp_path / "new").exists()


def test_a_plan_from_the_environment_kills(store_tool: Path, tmp_path: Path) -> None:
    done = subprocess.run([store_tool, str(tmp_path / "new")], check=False, timeout=120,
                          env={"ADAPTCP_STORE_FAULTS": "match=x.seg;kill@1"})
    assert done.returncode == -9
    assert (tmp_path / "new" / "a" / "b").is_dir() and not (tmp_path / "new" / "a" / "b" / "x.seg").exists()
