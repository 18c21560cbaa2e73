"""Many checkpoints on gs:// under random faults: run in a process that can reach the server."""

from __future__ import annotations

import gc
import os
import random
import time

import tfadaptcp
from tests.stores.gcs_errors import no_waiting
from tests.stores.gcs_faults import Life, check_clean, impatient
from tests.stores.gcs_product import proxy
from tests.stores.product import build

# Of the requests, what is struck, how, and how often.
_FAULTS = [
    ({"kind": "status", "status": 503}, "PUT|POST", r"\.seg", 0.03),
    ({"kind": "status", "status": 429}, "PUT|POST", "upload", 0.03),
    ({"kind": "drop", "at": "request"}, "PUT", r"\.seg", 0.03),
    ({"kind": "drop", "at": "after"}, "PUT", r"\.seg", 0.02),
    ({"kind": "status", "at": "after", "status": 500}, "PUT", "/manifests/", 0.05),
    ({"kind": "drop", "at": "after"}, "PUT", "/manifests/", 0.05),
    ({"kind": "status", "status": 503}, "GET|DELETE", "/storage/v1/", 0.01),
    ({"kind": "drop", "at": "response"}, "GET", "", 0.01),
    ({"kind": "short"}, "GET", "^/bucket/", 0.02),
]


def random_faults(directory: str, saves: int, seed: int) -> dict[str, int]:
    """Saves under faults; now and then the store is away altogether, and a save fails. Returns what happened."""
    draw = random.Random(seed)
    life = Life(directory, max_to_keep=4)
    # One for all restores: TFRA keeps the tables of a model that has gone, megabytes of each, and TensorFlow its functions.
    other = build()
    life.save()
    happened = {"failed": 0, "restored": 0, "struck": 0}
    memory = []  # from when all that is made once is there
    acknowledged = life.save()

    def begin() -> list[int]:
        return [proxy().fault(**fault, method=method, path=path, probability=p, seed=draw.randrange(1 << 30), times=None)
                for fault, method, path, p in _FAULTS]

    rules = begin()

    def end() -> None:
        happened["struck"] += sum(map(proxy().struck, rules))
        proxy().clear()

    for number in range(saves):
        away = draw.random() < 0.05
        try:
            if away:
                end()
                proxy().fault("status", status=503, times=None)
                with no_waiting(), impatient(life):
                    life.save()
                raise AssertionError("saved to a store that was away")
            acknowledged = life.save()
        except (tfadaptcp.AdaptCPError, OSError) as error:
            assert away, f"save {number}: {error!r}"
            happened["failed"] += 1
        if away:
            proxy().clear()
            assert life.manager.latest_checkpoint == acknowledged
            rules = begin()
        if draw.random() < 0.05:
            for info in life.manager.checkpoints:
                life.check(info.name, other)
                happened["restored"] += 1
        if number in (saves // 4, saves - 1):
            gc.collect()
            memory.append(_resident_bytes())
    end()
    acknowledged = life.save()
    for info in life.manager.checkpoints:
        life.check(info.name)
    assert life.manager.latest_checkpoint == acknowledged
    _save_until_clean(life)
    assert memory[1] - memory[0] < 30 << 20, f"memory grows: {memory}"
    return happened


def _save_until_clean(life: Life) -> None:
    """An upload that hung may end late, after which TensorFlow sends its object once more."""
    deadline = time.monotonic() + 120
    while True:
        for _ in range(3):
            life.save()
        try:
            return check_clean(life)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(1)


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
