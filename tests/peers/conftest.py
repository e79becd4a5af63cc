"""Shared fixtures: one broker of each line, and one cluster. Tests make their own topics."""

import pytest

from .broker import LINES, SECURE, Broker
from .cluster import Cluster


@pytest.fixture(scope="session")
def broker_39():
    """A broker of Kafka 3.9 with every listener. See broker.py for its users."""
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
    """Two brokers of Kafka 4.x. A test that stops a broker restarts it."""
    with Cluster(2, line="4") as cluster:
        yield cluster
