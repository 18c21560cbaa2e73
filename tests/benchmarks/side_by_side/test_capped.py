"""The store of the benchmarks: what it holds, when objects appear, what passes its caps."""

import os
import threading
import time

import pytest
import tensorflow as tf

from benchmarks.side_by_side.capped import build, control


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("caps") / "page")
    os.environ[control.VARIABLE] = path  # the library looks once
    caps = control.Control(path)
    build.load(str(build.build()))
    yield caps
    del os.environ[control.VARIABLE]


@pytest.fixture
def caps(page):
    page.cap()
    page.forget_maxima()
    yield page
    page.cap()


def put(path: str, size: int) -> None:
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(bytes(size))


def test_objects_appear_when_they_are_closed(caps, tmp_path):
    file = tf.io.gfile.GFile(f"capped://{tmp_path}/a/object", "wb")
    tf.io.gfile.makedirs(f"capped://{tmp_path}/a")
    file.write(b"some")
    file.flush()
    assert tf.io.gfile.listdir(f"capped://{tmp_path}/a") == []
    assert not tf.io.gfile.exists(f"capped://{tmp_path}/a/object")
    file.write(b"thing")
    file.close()
    assert tf.io.gfile.listdir(f"capped://{tmp_path}/a") == ["object"]
    assert tf.io.gfile.GFile(f"capped://{tmp_path}/a/object", "rb").read() == b"something"
    assert tf.io.gfile.stat(f"capped://{tmp_path}/a/object").length == 9


def test_it_renames_deletes_and_says_what_is_not_there(caps, tmp_path):
    store = f"capped://{tmp_path}"
    put(f"{store}/one", 10)
    tf.io.gfile.rename(f"{store}/one", f"{store}/two", overwrite=True)
    assert tf.io.gfile.glob(f"{store}/*") == [f"{store}/two"]
    assert tf.io.gfile.isdir(store) and not tf.io.gfile.isdir(f"{store}/two")
    tf.io.gfile.remove(f"{store}/two")
    for call in (lambda: tf.io.gfile.stat(f"{store}/two"), lambda: tf.io.gfile.remove(f"{store}/two"),
                 lambda: tf.io.gfile.GFile(f"{store}/two", "rb").read()):
        with pytest.raises(tf.errors.NotFoundError, match="two: No such file"):
            call()


def test_all_bytes_are_counted(caps, tmp_path):
    before = caps.counters()
    put(f"capped://{tmp_path}/one", 100_000)
    put(f"capped://{tmp_path}/two", 300_000)
    tf.io.gfile.GFile(f"capped://{tmp_path}/one", "rb").read()
    moved = control.moved(before, caps.counters())
    assert moved["bytes_written"] == 400_000 and moved["bytes_read"] == 100_000
    assert moved["objects_written"] == 2 and moved["objects_opened"] == 1
    assert moved["most_bytes_of_a_connection"] == 300_000 and moved["open_now"] == 0 and moved["open_most"] == 1


# How much a line that was idle lets through at once, in seconds.
BURST = 0.02


def _seconds(*actions) -> float:
    threads = [threading.Thread(target=action) for action in actions]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - start


def test_no_connection_passes_more_than_its_cap(caps, tmp_path):
    caps.cap(each=2e6)
    # The least that it may take; how much longer depends on the machine.
    assert _seconds(lambda: put(f"capped://{tmp_path}/one", 600_000)) >= 0.3 - BURST
    assert _seconds(lambda: tf.io.gfile.GFile(f"capped://{tmp_path}/one", "rb").read()) >= 0.3


def test_reads_in_small_pieces_pass_no_faster(caps, tmp_path):
    put(f"capped://{tmp_path}/one", 400_000)
    caps.cap(each=2e6)

    def read():
        with tf.io.gfile.GFile(f"capped://{tmp_path}/one", "rb") as file:
            while file.read(20_000):
                pass

    assert _seconds(read) >= 0.2


def test_all_connections_share_the_total(caps, tmp_path):
    caps.cap(total=2e6)
    puts = [lambda name=name: put(f"capped://{tmp_path}/{name}", 200_000) for name in range(3)]
    before = caps.counters()
    seconds = _seconds(*puts)
    moved = control.moved(before, caps.counters())
    assert seconds >= 0.3 - BURST
    # Somebody waits nearly all the time, but for the first piece and what the machine takes; each by itself longer.
    assert 0.1 < moved["line_ns"] / 1e9 <= seconds
    assert moved["waited_ns"] >= moved["line_ns"] / 2


def test_caps_change_while_a_connection_is_open(caps, tmp_path):
    caps.cap(each=1000)  # the rest would take an hour
    with tf.io.gfile.GFile(f"capped://{tmp_path}/one", "wb") as file:
        file.write(bytes(100))
        file.flush()
        caps.cap()
        file.write(bytes(3_600_000))
    assert tf.io.gfile.stat(f"capped://{tmp_path}/one").length == 3_600_100


def test_unknown_caps_are_refused(caps):
    with pytest.raises(ValueError, match="bytes_per_second_total: Received: -1"):
        caps.cap(total=-1)
