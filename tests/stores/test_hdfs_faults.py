"""HDFS with servers that go away, are not ready, or refuse: an error that says so, and nothing is lost."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.servers.hdfs import HdfsServer

LIFE = "tests.support.remote_life"
RETRY_SECONDS = 1.5  # for stores that will not come back within a test
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def client(hdfs: HdfsServer, backend):
    """Calls functions of `LIFE` in a process that uses the servers; they run before and after each test."""
    hdfs.restore()
    yield lambda function, *args: backend("hdfs").child.call(LIFE, function, *args, timeout=150)
    hdfs.restore()


@pytest.fixture
def directory(backend) -> str:
    return backend("hdfs").new_directory()


@contextlib.contextmanager
def away(hdfs: HdfsServer, *names: str) -> Iterator[None]:
    for name in names:
        hdfs.kill(name)
    yield
    hdfs.restore()


def begin(client, directory: str, retry_seconds: float = 30.0) -> None:
    """A model with three committed checkpoints."""
    client("begin", directory, 60.0, retry_seconds)
    for _ in range(3):
        assert client("checkpoint")["committed"]


def test_an_unreachable_name_node_is_not_no_checkpoint(hdfs, client, directory):
    begin(client, directory, RETRY_SECONDS)
    client("give_up_after", 3.0)
    with away(hdfs, "namenode"):
        before = time.monotonic()
        for function in ("outcome_of_restore", "outcome_of_manager"):
            assert client(function, directory).startswith("StoreUnavailableError: "), function
        failed = client("checkpoint")
        assert not failed["committed"] and directory in failed["message"], failed
        assert time.monotonic() - before < 60, "each within its time-out"
    client("give_up_after", 60.0)
    assert client("steps", directory) == [1, 2, 3]
    assert client("checkpoint")["committed"] and client("check") == 5, "with the rows of the one that failed"


def test_a_data_node_that_is_away_fails_a_save_and_loses_nothing(hdfs, client, directory):
    begin(client, directory, RETRY_SECONDS)
    client("give_up_after", 3.0)
    with away(hdfs, "datanode"):
        failed = client("checkpoint")
        assert not failed["committed"] and ".seg" in failed["message"], failed
        assert client("outcome_of_restore", directory).startswith("StoreUnavailableError: "), "nothing is called damaged"
    client("give_up_after", 60.0)
    assert client("checkpoint")["committed"] and client("check") == 5


@pytest.mark.parametrize("name", ["datanode", "namenode"])
def test_a_server_killed_in_mid_save_and_started_again(hdfs, client, directory, name):
    """Retries bridge the gap: the save is committed, late."""
    begin(client, directory)

    def kill() -> None:
        time.sleep(0.15)
        hdfs.kill(name)
        hdfs.restore()

    killer = threading.Thread(target=kill)
    killer.start()
    outcome = client("checkpoint", 20_000)
    killer.join()
    assert outcome["committed"], outcome
    assert client("check") == 4
    assert client("checkpoint")["committed"] and client("check") == 5


def test_a_restore_waits_for_a_data_node_that_comes_back(hdfs, client, directory):
    begin(client, directory)
    hdfs.kill("datanode")
    starter = threading.Timer(1.0, hdfs.restore)
    starter.start()
    assert client("check") == 3
    starter.join()


def test_what_was_begun_when_its_data_node_died_is_written_again(hdfs, client, directory):
    """Its name is taken from then on, by a file without its bytes."""
    client("be_patient", 60.0)
    hdfs.kill("datanode")
    starter = threading.Timer(1.5, hdfs.restore)
    starter.start()
    assert client("put", directory + "/claims/o", "some bytes") == ""
    starter.join()
    assert client("put", directory + "/claims/o", "some bytes") == "FileExistsError"


@pytest.mark.parametrize("name", ["datanode", "namenode"])
def test_a_server_that_hangs(hdfs, client, directory, name):
    """It answers nothing, and closes no connection: the checkpoint is given up, and what arrives late does no harm."""
    begin(client, directory)
    client("give_up_after", 4.0)
    hdfs.hang(name)
    failed = client("checkpoint")
    assert not failed["committed"] and failed["seconds"] < 60, failed
    hdfs.restore()
    client("give_up_after", 60.0)
    assert client("checkpoint")["committed"] and client("check") == 5


def test_safe_mode(hdfs, client, directory):
    begin(client, directory, RETRY_SECONDS)
    client("give_up_after", 4.0)
    hdfs.command("dfsadmin -safemode enter")
    try:
        failed = client("checkpoint")
        assert not failed["committed"] and "Read-only" in failed["message"], failed
        assert client("outcome_of_restore", directory) == "restored"
        assert "Read-only" in client("outcome_of_manager", directory)
        client("give_up_after", 60.0)
        client("be_patient", 30.0)
        leaving = threading.Timer(1.0, lambda: hdfs.command("dfsadmin -safemode leave"))
        leaving.start()
        assert client("checkpoint")["committed"], "a name node that starts leaves it by itself"
        leaving.join()
    finally:
        hdfs.command("dfsadmin -safemode leave")
    assert client("check") == 5


def test_what_belongs_to_another_user(hdfs, client, directory):
    """An error that names the path; above all, a directory that can't be listed is not an empty one."""
    begin(client, directory)
    path = directory[directory.index("/tests"):]
    for command in (f"-chown -R other {path}", f"-chmod -R 700 {path}"):
        hdfs.command("dfs " + command)
    for function in ("outcome_of_restore", "outcome_of_manager"):
        outcome = client(function, directory)
        assert "Permission denied" in outcome and path in outcome, outcome
    # Entries may be opened, but not listed: the plug-in says that there are none.
    hdfs.command(f"dfs -chmod -R 711 {path}")
    outcome = client("outcome_of_restore", directory)
    assert "Permission denied" in outcome and path in outcome, outcome
    assert client("removal_of_directory", directory + "/manifests") == "Permission denied"
    hdfs.command(f"dfs -chmod -R 755 {path}")
    assert client("steps", directory) == [1, 2, 3]


@pytest.mark.parametrize("saves", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_servers_killed_at_random(hdfs, client, directory, saves):
    """Saves go on while servers come and go: every head that is on offer afterwards is as it was cut."""
    begin(client, directory, 8.0)
    client("give_up_after", 8.0)
    draw = random.Random(20261130 + saves)
    over = threading.Event()

    def disturb() -> None:
        while not over.wait(draw.uniform(0.05, 1.5)):
            hdfs.kill(draw.choice(("datanode", "datanode", "namenode")))
            over.wait(draw.uniform(0.0, 1.0))
            hdfs.restore()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        outcomes = [client("checkpoint", draw.choice((20, 3000))) for _ in range(saves)]
    finally:
        over.set()
        disturber.join()
    committed = [outcome["step"] for outcome in outcomes if outcome["committed"]]
    assert committed, outcomes
    assert client("check") >= committed[-1]
    client("give_up_after", 60.0)
    assert client("checkpoint")["committed"]
    assert client("check_all")[-1] == 3 + saves + 1, "what failed is in the next one"
