"""The store: durable, exclusive local writes, and errors that are never taken for absence. What all stores do: tests/stores."""

import ctypes
import errno
import os
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from tfadaptcp.checkpoint import faults, remote_files
from tfadaptcp.checkpoint.store import Store, join
from tfadaptcp.errors import (MissingPluginError, StorePermissionError, StoreUnavailableError, UnsupportedStoreError,
                              of_save)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(remote_files, "_clock", lambda: now[0])
    monkeypatch.setattr(remote_files, "_sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    yield
    faults.set_fault_hook(None)


def test_a_probe_says_what_failed(tmp_path):
    def hook(op, path):
        if op == "fsync":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    faults.set_fault_hook(hook)
    with pytest.raises(StoreUnavailableError, match=f"probe of {tmp_path} could not write .*No space left"):
        Store().check_writable(str(tmp_path))
    (tmp_path / "file").write_bytes(b"")
    faults.set_fault_hook(None)
    with pytest.raises(StoreUnavailableError, match="could not write"):
        Store().check_writable(str(tmp_path / "file"))


def test_a_local_put_is_synced_with_every_directory_it_made(tmp_path):
    ops = []
    store = Store()
    store.put(str(tmp_path / "before"), b"")
    faults.set_fault_hook(lambda op, path: ops.append((op, os.path.relpath(path, tmp_path))))
    store.put(str(tmp_path / "a" / "b" / "o"), b"data")
    assert ops == [("mkdir", "a"), ("fsync_dir", "."), ("mkdir", "a/b"), ("fsync_dir", "a"), ("create", "a/b/o"),
                   ("write", "a/b/o"), ("write", "a/b/o"), ("fsync", "a/b/o"), ("close", "a/b/o"),
                   ("fsync_dir", "a/b")]


def test_fsync_really_happens(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    Store().put(str(tmp_path / "a" / "o"), b"data")
    assert synced[-3:] == [str(tmp_path), str(tmp_path / "a" / "o"), str(tmp_path / "a")]
    Store().delete(str(tmp_path / "a" / "o"))
    assert synced[-1] == str(tmp_path / "a")


def test_a_directory_that_a_killed_process_left_unsynced_is_synced_by_the_next(tmp_path):
    os.makedirs(tmp_path / "a" / "b")
    ops = []
    faults.set_fault_hook(lambda op, path: ops.append((op, path)))
    store = Store()
    store.put(str(tmp_path / "a" / "b" / "o"), b"data")
    assert ("fsync_dir", str(tmp_path)) in ops and ("fsync_dir", str(tmp_path / "a")) in ops
    ops.clear()
    store.put(str(tmp_path / "a" / "b" / "o2"), b"data")
    assert [path for op, path in ops if op == "fsync_dir"] == [str(tmp_path / "a" / "b")]


def test_a_failed_local_put_leaves_nothing_and_can_be_repeated(tmp_path):
    points = 0
    while True:
        points += 1
        path = str(tmp_path / f"a{points}" / "o")
        seen = [0]

        def hook(op, where):
            seen[0] += 1
            if seen[0] == points:
                raise OSError(errno.EIO, "Input/output error", where)

        faults.set_fault_hook(hook)
        try:
            Store().put(path, b"data")
            faults.set_fault_hook(None)
            break
        except StoreUnavailableError as error:
            assert error.errno == errno.EIO and "Input/output error" in str(error)
        assert not os.path.exists(path)
    assert points > 7 and Store().read(path) == b"data"


def test_a_path_below_a_file_is_an_error_not_an_empty_list(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailableError):
        Store().list(str(tmp_path / "file"))


def test_an_unreadable_directory_is_an_error_not_an_empty_list(tmp_path):
    def hook(op, path):
        raise OSError(errno.ESTALE, "Stale file handle", path)

    faults.set_fault_hook(hook)
    for call in (Store().list, Store().read, Store().size):
        with pytest.raises(StoreUnavailableError, match="Stale"):
            call(str(tmp_path))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_refusal_is_a_kind_of_its_own(tmp_path, code):
    def hook(op, path):
        if path.startswith(str(tmp_path / "o")):
            raise OSError(code, os.strerror(code), path)

    faults.set_fault_hook(hook)
    for call in (Store().list, Store().read, Store().delete, Store().check_writable, lambda path: Store().put(path, b"")):
        with pytest.raises(StorePermissionError, match=f"{os.strerror(code)}.*Expected: an account that may") as raised:
            call(str(tmp_path / "o"))
        assert isinstance(raised.value, PermissionError) and str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("error, text, kind", [
    (tf.errors.PermissionDeniedError, "can't create /d/x y.seg: Permission denied (errno 13)", "StorePermissionError"),
    (tf.errors.PermissionDeniedError, "can't sync gs://b/x.seg: HTTP response code 403", "StorePermissionError"),
    (tf.errors.UnavailableError, "can't close gs://b/x.seg: 503 (after 3 attempts)", "StoreUnavailableError"),
    (tf.errors.NotFoundError, "can't close gs://b/x.seg: HTTP response code 404", "BucketNotFoundError"),
    (tf.errors.ResourceExhaustedError, "can't write /d/x.seg: No space left on device (errno 28)", "SaveFailedError"),
    (tf.errors.UnavailableError, "the parameter server has gone", "SaveFailedError"),
    (tf.errors.DataLossError, "can't read gs://b/x.seg: it is damaged", "SaveFailedError"),
])
def test_what_hosts_report_is_told_in_the_same_kinds(error, text, kind):
    told = of_save("7", error(None, None, text))
    assert type(told).__name__ == kind and text in str(told) and "checkpoint 7 failed" in str(told)


@pytest.mark.parametrize("path", ["nosuch://bucket/dir", "hdfs2://host/dir"])
def test_unknown_schemes_are_named(path):
    for call in (Store().check_supported, Store().check_writable, Store().list):
        with pytest.raises(UnsupportedStoreError, match=f"Received: scheme '{path.split(':')[0]}'.*Expected.*gs://"):
            call(path)


def test_a_missing_plug_in_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_io", None)
    monkeypatch.setattr(tf.io.gfile, "get_registered_schemes", lambda: ["gs", "ram", "file", ""])
    with pytest.raises(MissingPluginError, match="Install the package tensorflow-io"):
        Store().check_supported("hdfs://namenode/dir")


def test_file_urls_and_empty_names(tmp_path):
    Store().put(f"file://{tmp_path}/o", b"1")
    assert (tmp_path / "o").read_bytes() == b"1"
    assert join("/", "a") == "/a" and join("gs://b/", "a", "c") == "gs://b/a/c" and join(tmp_path, "a")
    with pytest.raises(ValueError, match="empty"):
        join("", "a")


def test_the_native_library_is_asked_only_if_it_is_loaded(tmp_path, monkeypatch):
    """A stand-in for it, which lets every second operation fail with ENOSPC."""
    source, library = tmp_path / "ops.cc", tmp_path / "_ops.so"
    source.write_text('extern "C" int adaptcp_store_op(const char* op, const char*) {\n'
                      "  static int n; return op[0] == 'c' && ++n % 2 ? 28 : 0; }\n")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setattr(faults, "_LIBRARY", str(library))
    monkeypatch.setattr(faults, "_native", None)
    Store().put(str(tmp_path / "a"), b"1")
    loaded = ctypes.CDLL(str(library))
    assert loaded is not None
    with pytest.raises(StoreUnavailableError, match="No space left") as raised:
        Store().put(str(tmp_path / "b"), b"1")
    assert raised.value.errno == errno.ENOSPC and not (tmp_path / "b").exists()


class Flaky:
    """Stands in for a file system whose server goes away: fails the given number of calls of each function."""

    def __init__(self, monkeypatch, error, times, names=("stat", "listdir", "remove")):
        self.calls = 0
        for name in names:
            monkeypatch.setattr(tf.io.gfile, name, self.wrap(getattr(tf.io.gfile, name), error, times))

    def wrap(self, real, error, times):
        left = [times]

        def call(*args):
            self.calls += 1
            if left[0]:
                left[0] -= 1
                raise error(None, None, "server gone")
            return real(*args)

        return call


TRANSIENT = [tf.errors.UnavailableError, tf.errors.InternalError, tf.errors.UnknownError,
             tf.errors.ResourceExhaustedError, tf.errors.DeadlineExceededError, tf.errors.AbortedError]


@pytest.mark.parametrize("error", TRANSIENT)
def test_transient_errors_are_retried(monkeypatch, error):
    path = f"ram://retried-{error.__name__}/o"
    with monkeypatch.context() as patch:
        flaky = Flaky(patch, error, 3)
        Store().put(path, b"data")
        assert Store().size(path) == 4
        assert Store().list(path.rsplit("/", 1)[0]) == ["o"]
        Store().delete(path)
        assert flaky.calls >= 6
    with pytest.raises(FileNotFoundError):
        Store().read(path)


def test_retries_back_off_with_jitter(monkeypatch):
    """(kubeflow/examples#318, gcsfs#130)"""
    waits = []
    for _ in range(2):
        now, found = [0.0], []
        monkeypatch.setattr(remote_files, "_clock", lambda now=now: now[0])
        monkeypatch.setattr(remote_files, "_sleep",
                            lambda wait, now=now, found=found: (found.append(wait), now.__setitem__(0, now[0] + wait)))
        with monkeypatch.context() as patch:
            Flaky(patch, tf.errors.ResourceExhaustedError, -1)
            with pytest.raises(StoreUnavailableError):
                Store(60).size("ram://busy/o")
        assert len(found) <= 20 and sum(found[:3]) < 1 < found[-1], "soon at first, then seldom"
        waits.append(found)
    assert waits[0] != waits[1], "two clients that were refused at once do not come back at once"


@pytest.mark.parametrize("error", TRANSIENT + [tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError])
def test_a_store_that_stays_away_is_an_error_everywhere(monkeypatch, error):
    Store().put("ram://away/d/o" + error.__name__, b"data")
    Flaky(monkeypatch, error, -1)
    for call in (Store().list, Store().size, lambda path: Store().put(path + "/new", b""), Store().delete,
                 Store().check_writable):
        with pytest.raises(StoreUnavailableError, match="server gone"):
            call("ram://away/d")


def test_a_listing_that_says_not_there_after_stat_found_it_is_an_error(monkeypatch):
    Store().put("ram://lying/d/o", b"data")
    Flaky(monkeypatch, tf.errors.NotFoundError, -1, ["listdir"])
    with pytest.raises(StoreUnavailableError, match="listing it was not possible"):
        Store().list("ram://lying/d")


def test_a_put_whose_first_attempt_arrived_after_all_succeeds(monkeypatch):
    write, calls = remote_files._pywrap_file_io.WriteStringToFile, []

    def late_error(path, data):
        write(path, data)
        calls.append(path)
        if len(calls) == 1:
            raise tf.errors.UnavailableError(None, None, "connection lost after the upload")

    with monkeypatch.context() as patch:
        patch.setattr(remote_files._pywrap_file_io, "WriteStringToFile", late_error)
        Store().put("ram://late/d/o", b"data")
    assert calls == ["ram://late/d/o"]
    assert Store().read("ram://late/d/o") == b"data"
    with pytest.raises(FileExistsError):
        Store().put("ram://late/d/o", b"data")


def test_a_put_that_arrived_cut_off_is_made_again(monkeypatch):
    write, calls = remote_files._pywrap_file_io.WriteStringToFile, []

    def cut_off(path, data):
        calls.append(path)
        if len(calls) > 1:
            tf.io.gfile.remove(path)  # this file system would append
        write(path, data[:2] if len(calls) == 1 else data)

    monkeypatch.setattr(remote_files._pywrap_file_io, "WriteStringToFile", cut_off)
    Store().put("ram://short/d/o", b"data")
    assert Store().read("ram://short/d/o") == b"data" and len(calls) == 2


def test_directories_of_a_remote_store_are_listed_several_at_a_time(monkeypatch):
    names = [f"ram://many/d/{i:02d}" for i in range(40)]
    for name in names:
        Store().put(f"{name}/o", b"")
    listdir, running, most = tf.io.gfile.listdir, [], []

    def slow(path):
        running.append(path)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(path)
        return listdir(path)

    monkeypatch.setattr(tf.io.gfile, "listdir", slow)
    assert Store().list_each(names) == [["o"]] * 40
    assert max(most) > 1


def test_an_unreachable_bucket_is_not_an_empty_one():
    """The real gs file system, with nothing at the other end."""
    code = ("import sys, types; p = types.ModuleType('tfadaptcp'); p.__path__ = ['tfadaptcp']\n"
            "sys.modules['tfadaptcp'] = p  # the store alone, without what the package loads\n"
            "from tfadaptcp.checkpoint.store import Store\n"
            "from tfadaptcp.errors import StoreUnavailableError\n"
            "for call in (Store(0).list, Store(0).read, Store(0).size):\n"
            "    try: print('answered', call('gs://bucket/dir'))\n"
            "    except StoreUnavailableError as e: print('unavailable')\n")
    env = dict(os.environ, https_proxy="http://127.0.0.1:1", GCS_RETRY_CONFIG_MAX_RETRIES="0", NO_GCE_CHECK="true",
               GOOGLE_AUTH_TOKEN_FOR_TESTING="x", TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=_root(), capture_output=True, text=True,
                          timeout=120)
    assert done.stdout.split("\n")[:3] == ["unavailable"] * 3, done.stdout + done.stderr


def _root():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
