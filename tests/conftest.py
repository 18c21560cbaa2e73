"""What holds for every test: the environment, and that nothing is skipped unseen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports TensorFlow, also in the processes that tests start.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def in_ci() -> bool:
    """Whether this is a run of the continuous integration, where nothing may be skipped."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped in CI. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _fail_if_skipped(report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Clusters first: tests are dealt out in stretches, so one worker runs them in turn, beside the small ones of others.

    At the end several would run at once, and longer than their deadlines.
    """
    items.sort(key=lambda item: "pss" not in item.path.parts)


@pytest.fixture(scope="session")
def cpp_program() -> Callable[..., Path]:
    """`cpp_program("ops/format/segment_tool.cc", flavour="plain")` builds a TF-free program.

    Returns its path. Incremental: calling it in many tests costs little.
    """
    from tools import cpp_build, cxx

    def build(source: str, flavour: str = "plain") -> Path:
        return cpp_build.build([cxx.ROOT / source], flavour)[0]

    return build


@pytest.fixture(scope="session")
def store_tool() -> Path:
    """The program that makes every operation of the C++ store."""
    from tests.support import store_tool as tool

    return tool.build()


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of Google Cloud Storage, `tests/servers/gcs.py`."""
    from tests.servers import gcs as servers

    if not servers.SERVER.exists():
        pytest.skip(f"{servers.SERVER} is not there: run `make servers`, which builds it with Go")
    server = servers.Gcs(tmp_path_factory.mktemp("gcs"))
    yield server
    server.stop()
