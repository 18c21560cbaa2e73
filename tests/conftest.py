"""What holds for every test: the environment, and that nothing is skipped unseen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports TensorFlow, also in the processes that tests start.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# On by default on some processors, where it rounds one model otherwise in one process and another.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


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


# Files that take longest go first, so that no worker ends long after the others; what is not here comes after, as it was
# found.
_FIRST = (
    "pss/", "embeddings/test_shadow.py", "embeddings/test_lazy_build.py", "stores/test_hdfs", "stores/test_conformance.py",
    "examples/test_movielens.py", "stores/test_gcs.py", "product/test_crash_product.py", "docs/test_docs.py",
    "product/test_roundtrip.py", "product/test_fault_matrix.py", "benchmarks/side_by_side/test_end_to_end.py",
    "product/test_random.py", "product/test_staging.py", "checkpoint/test_two_coordinators.py", "testing/",
    "product/test_partial_restore.py", "product/test_hung_store.py", "checkpoint/test_crash.py")


def _place_of(item: pytest.Item) -> int:
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((place for place, start in enumerate(_FIRST) if path.startswith(start)), len(_FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest first; tests of a file stay together (`--dist loadfile`), for what they share."""
    items.sort(key=_place_of)


@pytest.fixture(scope="session")
def segment_tool() -> Path:
    """The program that writes and dumps segments, over the library's own objects."""
    from tools import cpp_build, cxx, native

    return native.build_program(cxx.ROOT / "ops" / "format" / "segment_tool.cc",
                                cxx.find_sources(cxx.ROOT, cpp_build.PACKAGES), [])


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
