"""Settings of all tests.

Generated tests use the same examples in every run. WIRESCAN_RANDOM=1 generates new ones.
"""

import gc
import os
import re
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from tests.support.examples import read_example_count

IS_RANDOM = "WIRESCAN_RANDOM" in os.environ
# A planted error only has to be noticed: the first example that notices it is enough.
IS_PLANTED = "WIRESCAN_PLANTED" in os.environ
PHASES = set(Phase) - {Phase.shrink, Phase.explain} if IS_PLANTED else set(Phase)

# test_outside.py builds these packages and runs their tests.
collect_ignore = ["outside"]

if not IS_RANDOM:
    # Hypothesis also draws constants from the source of imported modules. Which modules a process
    # has imported depends on the tests before, so the examples would differ from run to run.
    providers._get_local_constants = lambda: providers._local_constants

settings.register_profile(
    "wirescan",
    deadline=None,
    # On a busy machine any example may be slow.
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not IS_RANDOM,
    database=None,
    phases=PHASES,
    report_multiple_bugs=not IS_PLANTED,
    max_examples=read_example_count(20),
)
settings.load_profile("wirescan")

# A shell starts background processes with interrupts ignored, and Python keeps that setting. Tests
# that interrupt themselves would then wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Timeouts in seconds. Tests that start real programs also wait for downloads. Tests without these
# marks have the timeout of pyproject.toml.
TIMEOUTS = {"nightly": 3600, "fuzz": 7200, "peers": 900, "spark": 900, "slow": 600}

GROUP_OF_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.(peers|spark|fuzz)\b", re.MULTILINE)


@pytest.fixture(
    params=[
        pytest.param(13, id="every thirteenth"),
        pytest.param(1, id="all", marks=[pytest.mark.slow, pytest.mark.nightly]),
    ]
)
def stride(request):
    """The step of tests that change or cut a stream at each of its bytes.

    The default run takes every thirteenth position, the nightly run takes all of them.
    """
    return request.param


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Return more workers than cores, because some tests wait for timers and processes."""
    return os.cpu_count() * 3 // 2 or 1


def pytest_ignore_collect(collection_path, config):
    """Skip a file whose tests are all deselected, because its imports take seconds."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    group = GROUP_OF_FILE.search(collection_path.read_text())
    if group and f"not {group[1]}" in config.option.markexpr:
        return True
    return None


def pytest_collection(session):
    """Disable the garbage collector: collection makes thousands of items and frees none."""
    gc.disable()


def pytest_collection_finish(session):
    """Enable the garbage collector. If tests of Spark were selected, make Spark start faster."""
    gc.enable()
    gc.freeze()
    is_run = not session.config.option.collectonly
    if is_run and any(item.get_closest_marker("spark") for item in session.items):
        from tests.spark.home import use_quick_spark

        use_quick_spark()


def pytest_collection_modifyitems(items):
    """Give each test the timeout of its group, unless the test has its own timeout."""
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        for name, seconds in TIMEOUTS.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.timeout(seconds))
                break


def pytest_terminal_summary(terminalreporter):
    """Name the programs that tests have run in the version that the machine has."""
    programs = {
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "program"
    }
    for program in sorted(programs):
        terminalreporter.write_line(f"run with {program}")
