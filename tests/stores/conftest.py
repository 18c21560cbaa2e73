"""The stores of the conformance suite, each with its server, started when the first test needs it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.servers import Served
from tests.servers.gcs import BUCKET, Gcs
from tests.servers.hdfs import HdfsServer, missing
from tests.servers.s3 import S3
from tests.support.child import Child

# A store that needs a server: the session fixture `<name>_server` returns a `Served`, or skips with its reason.
STORES = ("local", "ram", "gs", "s3", "hdfs")


class Backend:
    """A store under test, and a process that can reach it.

    Attributes:
      name: its name in `STORES`.
      env: what processes that use it need in their environment.
    """

    def __init__(self, name: str, served: Served):
        self.name, self.env = name, served.env
        self._root = served.root
        self._numbers = itertools.count()
        self._child: Child | None = None

    def new_directory(self) -> str:
        """A directory that nobody has used; it is not there."""
        return f"{self._root}/{os.getpid()}-{next(self._numbers)}/dir"

    @property
    def child(self) -> Child:
        """A process in this store's environment, the same for all tests of a session."""
        if self._child is None:
            self._child = Child(self.env)
        return self._child

    def close(self) -> None:
        if self._child is not None:
            self._child.close()


@pytest.fixture(scope="session")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(str(tmp_path_factory.mktemp("local-store")))


@pytest.fixture(scope="session")
def ram_server() -> Served:
    """TensorFlow's file system in memory: one per process."""
    return Served("ram://conformance")


@pytest.fixture(scope="session")
def gs_server(gcs: Gcs) -> Served:
    return Served(f"gs://{BUCKET}", gcs.environment)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = S3(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_server(s3: S3) -> Served:
    return Served(f"s3://{BUCKET}", s3.environment)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """The servers themselves, for tests that take them away: they must leave them as they were."""
    if missing():
        pytest.skip(missing())
    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def hdfs_server(hdfs: HdfsServer) -> Served:
    return hdfs.served


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Backend]]:
    """`backend("hdfs")` is that store, with its server running."""
    backends: dict[str, Backend] = {}

    def get(name: str) -> Backend:
        if name not in backends:
            backends[name] = Backend(name, request.getfixturevalue(f"{name}_server"))
        return backends[name]

    yield get
    for each in backends.values():
        each.close()


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest, backend: Callable[[str], Backend]) -> Backend:
    """Each store in turn."""
    return backend(request.param)


@pytest.fixture
def store_directory(store: Backend) -> str:
    return store.new_directory()
