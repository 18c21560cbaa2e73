"""One suite that every store passes, from Python and from C++. What a store can't give is in `CANNOT`, with the reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.stores import checks
from tests.support.store_tool import TOOL_PLUGINS

# {(store, check): why not}; docs/stores.md tells users. Each is tried all the same, and must fail.
CANNOT: dict[tuple[str, str], str] = {
    ("ram", "names_of_our_layout"): "a listing has parts of names that begin with the directory's name",
    ("ram", "a_neighbour_whose_name_goes_on_is_another"): "as above",
    ("ram", "what_comes_into_a_directory_while_it_is_removed_stays"): "a directory is removed with what is in it",
}
OVERWRITES = "cannot refuse to overwrite"  # so no name is written twice, and Python's store looks first
NO_DELETIONS = "cannot tell that there was nothing to delete"
NATIVE_CANNOT: dict[str, list[str]] = {"local": [], "ram": [],  # it appends, which the size shows
                                      "gs": [OVERWRITES], "s3": [OVERWRITES, NO_DELETIONS], "hdfs": [OVERWRITES]}


@pytest.mark.parametrize("check", [check.__name__ for check in checks.CHECKS])
def test_python_store(store, store_directory: str, check: str) -> None:
    if (store.name, check) in CANNOT:
        with pytest.raises(AssertionError):
            store.child.call(checks.__name__, check, store_directory)
    else:
        store.child.call(checks.__name__, check, store_directory)


def test_native_store(store, store_directory: str, store_tool: Path) -> None:
    done = subprocess.run([store_tool, store_directory, *TOOL_PLUGINS], env={**os.environ, **store.env}, timeout=120,
                          capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [*NATIVE_CANNOT[store.name], "ok"], done.stdout + done.stderr[-4000:]
