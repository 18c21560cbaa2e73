"""Processes in which TFRA is as it is: tfadaptcp's modules can be imported, and it does not put its own ops in.

Importing `tfadaptcp` makes every table issue tracked ops, so systems that are to be measured without it import parts of
it (clusters, servers, the fix for several workers) below a package that was never initialised.
"""

import importlib.util
import sys
import types


def leave_tfra_alone() -> None:
    """To be called before anything imports `tfadaptcp`."""
    if "tfadaptcp" in sys.modules:
        raise RuntimeError("Received: a process that has imported tfadaptcp. Expected: one that has not")
    package = types.ModuleType("tfadaptcp")
    package.__path__ = list(importlib.util.find_spec("tfadaptcp").submodule_search_locations)
    sys.modules["tfadaptcp"] = package


def fix_several_workers() -> None:
    """Gives every worker its own scratch space: without it no system trains right with two. Nothing else is changed."""
    from tfadaptcp.embeddings import shadow
    shadow.install()
