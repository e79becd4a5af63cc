"""The metadata log of real brokers, beside Kafka's DumpLogSegments, its decoder and its answers."""

import json
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import wirescan
from tests.reference.kafka_metadata import TYPES
from tests.strategies import kafka_metadata as strategies
from tests.support.kafka_metadata_json import list_metadata
from tests.support.places import decode_text
from wirescan import kafka
from wirescan.core.fault import Fault

from .broker import LINES, Broker, dump
from .make_metadata import (
    PROPERTIES,
    await_snapshot,
    change_metadata,
    copy_metadata,
    decode_records,
    decode_values,
)

pytestmark = pytest.mark.peers

RECORD = re.compile(r"\| offset: (\d+) .*?(?:payload: (\{.*\}))?$")
NO_CHANGE = -2  # the leader in a change that does not change it
# Kafka takes any bytes of a known tag, decodes unknown versions as the newest one, and refuses a
# known tag in a version without it. wirescan reports the first two, and skips the tag.
STRICTER_FAULTS = {Fault.BAD_VERSION, Fault.LEFTOVER, Fault.TRUNCATED}
values_of_all_types = st.sampled_from(list(TYPES)).flatmap(strategies.messages)


class Log(NamedTuple):
    """The files of a broker's metadata log, and what the broker answered before it stopped.

    topics: topic -> {partition: (leader, replicas, in-sync replicas)}.
    """

    line: str
    folder: Path
    address: str
    topics: dict[str, dict[int, tuple[int, list[int], list[int]]]]

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())


def list_topics(address: str) -> dict[str, dict[int, tuple[int, list[int], list[int]]]]:
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=30)
    return {
        topic.topic: {
            partition.id: (partition.leader, partition.replicas, partition.isrs)
            for partition in topic.partitions.values()
        }
        for topic in metadata.topics.values()
    }


@pytest.fixture(scope="module", params=LINES)
def log(request):
    line = request.param
    with tempfile.TemporaryDirectory() as home, Broker(PROPERTIES, line=line) as broker:
        change_metadata(broker)
        await_snapshot(broker)
        topics = list_topics(broker.address)
        broker.stop()
        copy_metadata(broker, Path(home, "metadata"))
        yield Log(line, Path(home, "metadata"), broker.address, topics)


def open_records(path: Path):
    return kafka.records(kafka.scan(path))


def test_each_record_is_that_of_kafkas_decoder(log):
    for path in log.files:
        records = open_records(path)
        found = list(zip(records["offset"].tolist(), list_metadata(records)))
        assert found == [tuple(pair) for pair in decode_records(records, log.line)]
        assert any(record is not None for _, record in found), path


def test_each_record_is_that_of_kafkas_dump(log):
    """The tool of 3.9 does not know the newest fields of later lines.

    It omits tagged fields, and reports an error for registrations of brokers.
    """
    for path in log.files:
        theirs = [
            (int(match[1]), match[2] and json.loads(match[2]))
            for match in map(
                RECORD.match, dump(path, options=("--cluster-metadata-decoder",)).splitlines()
            )
            if match
        ]
        records = open_records(path)
        ours = list(zip(records["offset"].tolist(), list_metadata(records)))
        assert [offset for offset, _ in ours] == [offset for offset, _ in theirs]
        for (offset, record), (_, expected) in zip(ours, theirs):
            if expected is None:
                is_newer = log.line != "3.9" and record is not None
                assert not is_newer or record["type"] == "REGISTER_BROKER_RECORD"
                assert is_newer or record is None
                continue
            assert (record["type"], record["version"]) == (expected["type"], expected["version"])
            if log.line == "3.9":
                assert record["data"] == expected["data"], offset
            else:
                assert record["data"].items() >= expected["data"].items(), offset


def replay_partitions(records) -> dict[str, dict[int, list[Any]]]:
    """Return topic -> {partition: [leader, replicas, in-sync replicas]} at the end of a log."""
    changes = []
    for name in ("Topic", "RemoveTopic", "Partition", "PartitionChange"):
        changes += [(row.parent, name, row) for row in kafka.body(records, f"{name} record")]
    names: dict[bytes, str] = {}
    partitions: dict[bytes, dict[int, list[Any]]] = defaultdict(dict)
    for _, name, row in sorted(changes, key=lambda change: change[0]):
        topic = bytes(row.topic_id)
        if name == "Topic":
            names[topic] = decode_text(row.name)
        elif name == "RemoveTopic":
            del names[topic]
        elif name == "Partition":
            state = [row.leader, row.replicas.tolist(), row.isr.tolist()]
            partitions[topic][row.partition_id] = state
        else:
            state = partitions[topic][row.partition_id]
            if row.leader != NO_CHANGE:
                state[0] = row.leader
            for position, change in ((1, row.replicas), (2, row.isr)):
                if change is not None:
                    state[position] = change.tolist()
    return {names[topic]: states for topic, states in partitions.items() if topic in names}


def test_topics_and_partitions_are_those_of_the_broker(log):
    """The clean stop of the broker moves the leaders, so these are compared before it."""
    (path,) = log.folder.glob("*.log")
    records = open_records(path)
    # The last registration of a broker that stops is a change to a controlled shutdown.
    changes = kafka.body(records, "BrokerRegistrationChange record")
    stops = changes["parent"][changes["in_controlled_shutdown"] == 1]
    before_stop = records[: int(stops[-1])]
    found = replay_partitions(before_stop)
    assert {
        topic: {partition: tuple(state) for partition, state in states.items()}
        for topic, states in found.items()
    } == log.topics
    assert list(log.topics) == ["orders"]
    assert len(log.topics["orders"]) == 4


def test_registrations_have_the_address_of_the_broker(log):
    (path,) = log.folder.glob("*.log")
    brokers = wirescan.scan(path, "kafka.register_broker_record")
    assert len(brokers) >= 2  # it was restarted, and may register again
    assert set(brokers["broker_id"].tolist()) == {1}
    for broker in brokers:
        (end_point,) = broker.end_points
        assert decode_text(end_point.name) == "PLAINTEXT"
        assert f"{decode_text(end_point.host)}:{end_point.port}" == log.address
        assert "metadata.version" in [decode_text(feature.name) for feature in broker.features]
    controllers = wirescan.scan(path, "kafka.register_controller_record")
    assert set(controllers["controller_id"].tolist()) == {1}


def test_snapshots_have_a_header_and_a_footer(log):
    snapshots = [path for path in log.files if path.suffix == ".checkpoint"]
    assert len(snapshots) >= 2
    for path in snapshots:
        metadata = wirescan.scan(path, "kafka.metadata_records")
        is_control = [not row.version >= 0 for row in metadata]
        assert is_control == [True, *[False] * (len(metadata) - 2), True]
        assert (metadata["type"][1:-1] >= 0).all()
        assert not metadata.bad.any()


def compare_with_kafka(values: list[bytes], line: str) -> dict[str, int]:
    """Compare values with Kafka's decoder. Return how many are read alike, or by only one."""
    batch = kafka.encode_batch([{"value": value} for value in values])
    records = kafka.records(kafka.scan(batch))
    counts = defaultdict(int)
    faults = dict(list_faults(records))
    for row, (ours, theirs) in enumerate(zip(list_metadata(records), decode_values(values, line))):
        if ours is None and isinstance(theirs, dict):
            assert faults.get(row, Fault.BAD_VERSION) in STRICTER_FAULTS, values[row].hex()
            counts["stricter"] += 1
        elif isinstance(theirs, str):
            assert ours is None or "Failed to deserialize" in theirs, (values[row].hex(), theirs)
            counts["rejected" if ours is None else "looser"] += 1
        else:
            assert ours == theirs, values[row].hex()
            counts["same"] += 1
    return counts


def list_faults(records):
    metadata = kafka.metadata_records(records, errors="mark")
    yield from ((row.parent, row.fault) for row in metadata if row.fault)
    for name in TYPES:
        table = kafka.body(metadata, f"{name} record", errors="mark")
        yield from ((row.parent, row.fault) for row in table if row.fault)


def test_damaged_records_are_those_that_kafka_rejects(log):
    (path,) = log.folder.glob("*.log")
    records = open_records(path)
    one_of_each = {bytes(row.value)[:3]: bytes(row.value) for row in records}
    damaged = []
    for value in one_of_each.values():
        damaged += [value[:cut] for cut in range(1, len(value))]
        for position, byte in enumerate(value):
            for other in (byte ^ 1, byte ^ 0x80, 0, 0xFF):
                damaged.append(value[:position] + bytes([other]) + value[position + 1 :])
    counts = compare_with_kafka(damaged, log.line)
    assert counts["same"] > 1000
    assert counts["rejected"] > 500
    assert counts["looser"] + counts["stricter"] < len(damaged) / 50


@settings(
    max_examples=3,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(values_of_all_types, min_size=60, max_size=120))
def test_generated_records_of_all_types_are_read_as_kafka_reads_them(pairs):
    """Kafka refuses only tags that are newer than the version of their record."""
    counts = compare_with_kafka([value for value, _ in pairs], "4")
    assert counts.keys() <= {"same", "looser"}
    assert counts["same"] > 0.8 * len(pairs)
