"""Every listener of the test brokers works, and refuses wrong logins.

A leader can be stopped and killed.
"""

import pytest

from .broker import MECHANISMS, PASSWORD, SECURE, USER
from .producers import make_orders, send_java, send_librdkafka
from .readers import consume, consume_java

pytestmark = pytest.mark.peers

LOGINS = [
    (protocol, mechanism)
    for protocol in ("PLAINTEXT", *SECURE)
    for mechanism in (MECHANISMS if "SASL" in protocol else ("",))
]
ROWS = make_orders(20, seed=40, big=False)


def make_librdkafka_config(
    broker, protocol: str, mechanism: str, password: str = PASSWORD
) -> dict[str, str]:
    config = {"security_protocol": protocol}
    if mechanism:
        config |= {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}
    if "SSL" in protocol:
        config |= {"ssl_ca_location": str(broker.authority)}
    return config


@pytest.mark.parametrize("protocol, mechanism", LOGINS)
def test_librdkafka_uses_every_listener(broker, protocol, mechanism):
    topic = f"{protocol}-{mechanism}"
    broker.create_topic(topic)
    config = make_librdkafka_config(broker, protocol, mechanism)
    send_librdkafka(broker.addresses[protocol], topic, ROWS, "none", **config)
    read = consume(broker.addresses[protocol], topic, **config)
    assert [row[1:] for row in read] == [row[1:] for row in ROWS]


def test_java_uses_sasl_and_tls(broker):
    """The client of the same line uses SASL and TLS at once."""
    broker.create_topic("java")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="{USER}" password="{PASSWORD}";'
    config = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_jaas_config": login,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": broker.authority,
    }
    send_java(broker.addresses["SASL_SSL"], "java", ROWS, "lz4", line=broker.line, **config)
    read = consume_java(broker.addresses["SASL_SSL"], "java", len(ROWS), line=broker.line, **config)
    assert [row[1:] for row in read] == [row[1:] for row in ROWS]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(broker, mechanism):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    refused = []
    config = make_librdkafka_config(broker, "SASL_PLAINTEXT", mechanism, "not " + PASSWORD)
    admin = AdminClient(
        {
            "bootstrap.servers": broker.addresses["SASL_PLAINTEXT"],
            "error_cb": refused.append,
            "log_level": 0,
        }
        | {name.replace("_", "."): value for name, value in config.items()}
    )
    with pytest.raises(KafkaException, match="Failed to get metadata"):
        admin.list_topics(timeout=1)
    admin.poll(0)
    assert any("Authentication failed" in error.str() for error in refused)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_another_broker_becomes_the_leader(cluster, end):
    """The other broker has all acknowledged records.

    The old leader becomes a follower after its restart.
    """
    topic = f"leader-{end}"
    cluster.create_topic(topic)
    send_librdkafka(cluster.address, topic, ROWS, "none")
    leader = cluster.leader(topic)
    getattr(leader, end)()
    new_leader = cluster.await_leader(topic, but=leader)
    assert [row[1:] for row in consume(new_leader.address, topic)] == [row[1:] for row in ROWS]
    send_librdkafka(new_leader.address, topic, ROWS, "none")
    leader.restart()
    cluster.await_in_sync(topic)
    assert len(consume(leader.address, topic)) == 2 * len(ROWS)
    checkpoint = leader.directory(topic) / "leader-epoch-checkpoint"
    assert checkpoint.read_text().splitlines()[1] == "2"
