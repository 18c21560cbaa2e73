"""The product on Google Cloud Storage: what it stores, what users are told, what faults of the server do to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers.gcs import BUCKET, Gcs
from tests.support.child import Child


@pytest.fixture(scope="module")
def on_gs(gcs: Gcs) -> Iterator[Callable[..., Any]]:
    """Calls a function of a module beside this one on a new directory, in a process that can reach the server."""
    child = Child(gcs.environment)

    def call(module: str, function: str, *args: Any, timeout: float = 200) -> Any:
        try:
            return child.call(f"tests.stores.{module}", function, f"gs://{BUCKET}/{function}-{uuid.uuid4().hex[:8]}/dir",
                              *args, timeout=timeout)
        finally:
            gcs.proxy.clear()
            gcs.proxy.cap()

    yield call
    child.close()


def test_save_restore_list_verify_read(on_gs):
    on_gs("gcs_product", "save_restore_list_verify_read")


@pytest.mark.parametrize("function", ["every_way_to_look_at_it", "who_may_not_ask_for_the_bucket_may_use_it",
                                      "segments_that_can_not_be_read"])
def test_what_users_are_told(on_gs, function):
    on_gs("gcs_errors", function)


@pytest.mark.parametrize("function", ["transient_faults", "lasting_faults", "failed_writes"])
def test_faults(on_gs, function):
    on_gs("gcs_faults", function)


def test_each_byte_is_read_once(gcs):
    """With what TensorFlow reads ahead unless it is told otherwise: 64 MiB at a time."""
    child = Child({name: value for name, value in gcs.environment.items() if name != "GCS_READ_CACHE_BLOCK_SIZE_MB"})
    found = child.call("tests.stores.gcs_read_ahead", "each_byte_is_read_once", f"gs://{BUCKET}/read-ahead/dir")
    child.close()
    assert found["reads"] == found["objects"] and found["bytes"] > 10_000_000, found


@pytest.mark.parametrize("saves, seed", [(40, 1), pytest.param(200, 2, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_random_faults(on_gs, saves, seed):
    happened = on_gs("gcs_random", "random_faults", saves, seed, timeout=850)
    print(happened)
    assert happened["struck"] > saves and happened["restored"] >= 4 and happened["failed"] >= 1, happened
