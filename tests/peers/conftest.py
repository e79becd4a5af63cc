"""One broker of each line, and one cluster, for all tests that only need topics of their own."""
from pathlib import Path

import pytest

from .broker import LINES, SECURE, Broker
from .cluster import Cluster


HERE = Path(__file__).parent
# Fixtures that own servers, and the group of pytest-xdist for tests that use them.
GROUPS = {"cluster": "cluster", "brokers": "cluster", "broker_39": "broker", "broker_4": "broker", "broker": "broker"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Keep tests that share servers on one worker of pytest-xdist (--dist loadgroup).

    Tests with a broker form one group, tests with a cluster another; each other file is a group of its own."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if item.path.parent == HERE:
            groups = [group for fixture, group in GROUPS.items() if fixture in item.fixturenames]
            item.add_marker(pytest.mark.xdist_group(groups[0] if groups else item.path.stem))


@pytest.fixture(scope="session")
def broker_39():
    """A broker of Kafka 3.9 with every listener; see broker.py for its users and certificates."""
    with Broker(listeners=SECURE) as broker:
        yield broker


@pytest.fixture(scope="session")
def broker_4():
    """A broker of Kafka 4.x with every listener."""
    with Broker(line="4", listeners=SECURE) as broker:
        yield broker


@pytest.fixture(scope="session", params=LINES)
def broker(request) -> Broker:
    """The broker of each line in turn."""
    return request.getfixturevalue({"3.9": "broker_39", "4": "broker_4"}[request.param])


@pytest.fixture(scope="session")
def cluster():
    """Two brokers of Kafka 4.x. A test that stops one starts it again."""
    with Cluster(2, line="4") as cluster:
        yield cluster
