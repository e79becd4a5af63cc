"""Generated tests take the same examples in every run; WIRESCAN_RANDOM=1 looks for new ones."""
import gc
import os
import re
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
TIMEOUTS = {"nightly": 3600, "fuzz": 7200, "peers": 900, "spark": 900, "slow": 600}

GROUP_OF_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.(peers|spark|fuzz)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Do not import a file whose tests are all deselected: that takes seconds."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    group = GROUP_OF_FILE.search(collection_path.read_text())
    if group and f"not {group[1]}" in config.option.markexpr:
        return True
    return None


def pytest_collection(session):
    """Thousands of items are made and none is freed, so the garbage collector would search in vain."""
    gc.disable()


def pytest_collection_finish(session):
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """Give each test of these groups its group's timeout, unless it has one of its own."""
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        for name, seconds in TIMEOUTS.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.timeout(seconds))
                break
