"""What no test leaves behind, of files that say so by `usefixtures`."""

import pytest

from tests.support import faults
from tfadaptcp.checkpoint.faults import set_fault_hook


@pytest.fixture
def no_hook_stays():
    yield
    set_fault_hook(None)


@pytest.fixture
def no_plan_stays():
    yield
    faults.set_plan("")
