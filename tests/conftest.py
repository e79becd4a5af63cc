"""Generated tests take the same examples in every run; WIRESCAN_RANDOM=1 looks for new ones."""
import os
import signal

import pytest
from hypothesis import settings

settings.register_profile(
    "wirescan", deadline=None, derandomize="WIRESCAN_RANDOM" not in os.environ, database=None
)
settings.load_profile("wirescan")

# A shell starts what is in the background with interrupts ignored, and Python leaves it at that: tests that interrupt
# themselves would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Seconds. Tests that start real programs wait for their downloads too. Others have the timeout of pyproject.toml.
TIMEOUTS = {"nightly": 3600, "fuzz": 7200, "peers": 900, "spark": 900}


def pytest_collection_modifyitems(items):
    """Give each test of these groups its group's timeout, unless it has one of its own."""
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        for name, seconds in TIMEOUTS.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.timeout(seconds))
                break
