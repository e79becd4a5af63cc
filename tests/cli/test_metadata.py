"""`wirescan metadata` against brokers in this process, over sockets."""

import json
from functools import partial

import pytest
from click.testing import CliRunner

from tests.support.fake_broker import VERSIONS, FakeCluster, Server
from wirescan.cli.main import main
from wirescan.kafka.client import Client, Retries


@pytest.fixture(autouse=True)
def retry_quickly(monkeypatch):
    monkeypatch.setattr(
        "wirescan.kafka.client.topic_ranges.Client",
        partial(Client, retries=Retries(attempts=2, first=0.01)),
    )


def change_metadata(cluster, change):
    """Pass each Metadata answer, a mapping, to `change`."""

    def hook(node, api, version, body):
        if api == "Metadata":
            change(body)
        return body

    cluster.hook = hook


@pytest.fixture
def cluster():
    """Two brokers with racks, topic `orders` with two partitions, and an internal topic."""
    cluster = FakeCluster(brokers=2)
    cluster.add_topic("__state")
    cluster.add_topic("orders", partitions=2, leader=2)

    def change(body):
        for broker in body["brokers"]:
            broker["rack"] = f"rack-{broker['node_id']}"
        for topic in body["topics"]:
            topic["is_internal"] = topic["name"].startswith("_")

    change_metadata(cluster, change)
    with Server(cluster):
        yield cluster


def run(cluster, *arguments, code=0, **environment):
    result = CliRunner().invoke(main, ["metadata", cluster.bootstrap, *arguments], env=environment)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def damage_partition(cluster, **fields):
    """Change partition 1 of `orders` in the answers."""
    healthy = cluster.hook

    def hook(node, api, version, body):
        body = healthy(node, api, version, body)
        if api == "Metadata":
            orders = next(topic for topic in body["topics"] if topic["name"] == "orders")
            orders["partitions"][1] |= fields
        return body

    cluster.hook = hook


def test_text(cluster):
    lines = run(cluster, "--partitions").stdout.splitlines()
    host, port = cluster.nodes[1]
    assert lines[0] == "cluster fake"
    assert lines[1].split() == ["broker", "address", "rack"]
    assert lines[2].split() == ["1", f"{host}:{port}", "rack-1", "controller"]
    assert lines[3].split()[2:] == ["rack-2"]
    assert [line.split() for line in lines[5:9]] == [
        ["topic", "partitions", "replicas", "problems"],
        ["orders", "2", "2"],
        ["__state", "(internal)", "1", "2"],
        ["2", "topics,", "3", "partitions"],
    ]
    assert [line.split() for line in lines[11:]] == [
        ["orders-0", "2", "1,2", "1,2"],
        ["orders-1", "2", "1,2", "1,2"],
        ["__state-0", "1", "1,2", "1,2"],
    ]


def test_json(cluster):
    found = json.loads(run(cluster, "--json").stdout)
    assert found["cluster"] == "fake" and found["controller"] == 1
    host, port = cluster.nodes[2]
    assert found["brokers"][1] == {"id": 2, "host": host, "port": port, "rack": "rack-2"}
    orders, state = found["topics"]
    assert (orders["name"], orders["internal"], orders["error"]) == ("orders", False, None)
    assert orders["id"] == cluster.ids["orders"].hex()
    assert orders["partitions"][1] == {
        "partition": 1,
        "leader": 2,
        "leader_epoch": 0,
        "replicas": [1, 2],
        "in_sync": [1, 2],
        "offline": [],
        "error": None,
    }
    assert (state["name"], state["internal"]) == ("__state", True)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"error_code": 5, "leader_id": -1}, "LEADER_NOT_AVAILABLE; no leader"),
        ({"isr_nodes": [2]}, "not in sync: 1"),
        ({"isr_nodes": [2], "offline_replicas": [1]}, "not in sync: 1; offline: 1"),
        ({"error_code": 999}, "999"),
    ],
)
def test_problems_of_a_partition(cluster, fields, text):
    damage_partition(cluster, **fields)
    lines = run(cluster, "--partitions", code=1).stdout.splitlines()
    assert lines[6].split() == ["orders", "2", "2", "1"]
    assert next(line for line in lines if line.startswith("orders-1")).endswith(f"  {text}")
    found = json.loads(run(cluster, "--json", code=1).stdout)
    partition = found["topics"][0]["partitions"][1]
    assert partition["in_sync"] == fields.get("isr_nodes", [1, 2])
    assert partition["offline"] == fields.get("offline_replicas", [])


def test_chosen_topics(cluster):
    found = json.loads(run(cluster, "--json", "--topic", "orders").stdout)
    assert [topic["name"] for topic in found["topics"]] == ["orders"]
    found = json.loads(run(cluster, "--json", "--topic", "none", code=1).stdout)
    assert found["topics"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run(cluster, "--topic", "none", code=1).stdout
    assert set(cluster.topics) == {"__state", "orders"}, "a question creates no topic"
    assert "no topic can be named" in run(cluster, "--topic", "a b", code=2).stderr


@pytest.mark.parametrize("newest", [0, 1, 4, 8, 12])
def test_old_brokers(newest):
    """Old versions have no racks, no cluster id, no controller and no offline replicas."""
    cluster = FakeCluster(versions=VERSIONS | {"Metadata": (0, newest)})
    cluster.add_topic("orders")
    with Server(cluster):
        found = json.loads(run(cluster, "--json").stdout)
        run(cluster, "--partitions")
    assert found["cluster"] == ("fake" if newest >= 2 else None)
    assert found["controller"] == (1 if newest >= 1 else None)
    assert found["brokers"][0]["rack"] is None
    assert (found["topics"][0]["id"] is None) == (newest < 10)
    assert found["topics"][0]["partitions"][0]["offline"] == []


def test_login(cluster, tmp_path):
    cluster.users = {"ada": "secret"}
    password = tmp_path / "password"
    password.write_text("secret\n")
    login = ("--sasl", "PLAIN", "--user", "ada")
    assert "cluster fake" in run(cluster, *login, "--password-file", str(password)).stdout
    assert "cluster fake" in run(cluster, *login, WIRESCAN_PASSWORD="secret").stdout
    result = run(cluster, *login, code=2, WIRESCAN_PASSWORD="wrong")
    assert "secret" not in result.output and "wrong" not in result.output


def test_no_broker():
    result = CliRunner().invoke(main, ["metadata", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert result.stderr.startswith("wirescan: ") and result.stderr.count("\n") == 1
