"""The native library is refused by name when it was built for other versions, and says what it was built for."""

import json

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons as tfra

import tfadaptcp
from tfadaptcp import _ops


def test_other_versions_are_refused_by_name():
    found = {"tensorflow": tf.__version__, "tensorflow-recommenders-addons": tfra.__version__}
    _ops.check_versions(found, found)
    for name in found:
        with pytest.raises(ImportError, match=r"built for other versions.*9\.9\.9"):
            _ops.check_versions({**found, name: "9.9.9"}, found)


def test_the_library_says_what_it_was_built_for():
    info = json.loads(_ops.lib().adaptcp_info().numpy())
    assert info["versions"] == {"tfadaptcp": tfadaptcp.__version__, "tensorflow": tf.__version__,
                                "tensorflow-recommenders-addons": tfra.__version__}
    built_for = json.loads(_ops.VERSIONS.read_text())
    assert built_for == {"tensorflow": tf.__version__, "tensorflow-recommenders-addons": tfra.__version__}
