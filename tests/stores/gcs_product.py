"""What the whole product must do on gs://: run in a process that can reach the server, on a new directory."""

from __future__ import annotations

import os

from tests.servers import gcs
from tests.servers.proxied import Proxied, at_once
from tests.stores.product import list_verify_read, restore_all, save_all


def proxy() -> Proxied:
    return Proxied.connect(os.environ["GCS_PROXY"])


def save_restore_list_verify_read(directory: str) -> None:
    # As real ones do, it gives a connection less than a process can take: otherwise one would do on a busy machine.
    proxy().cap(up_each=500_000, down_each=500_000)
    since = len(proxy().log())
    copies = save_all(directory, checkpoints=4, updated=2000)
    written = gcs.written(proxy().log(since))
    assert len(written) == len(set(written)), sorted(name for name in written if written.count(name) > 1)
    assert at_once(proxy().log(since), gcs.is_upload) >= 2

    since = len(proxy().log())
    restore_all(directory, copies)
    assert at_once(proxy().log(since), gcs.is_read) >= 2
    list_verify_read(directory, copies)
