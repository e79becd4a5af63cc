"""The metadata log of a cluster: kafka.metadata_records, and the formats of its record types."""

import json
import time

import pyarrow as pa
import pyarrow.compute
import pytest
from click.testing import CliRunner

import wirescan
from tests.laws.packages import PACKAGES
from tests.support.kafka_metadata_json import list_metadata
from tests.support.paths import CORPUS
from tests.support.places import decode_text
from tests.support.slowness import SLOWNESS
from wirescan import FrameError, kafka
from wirescan.cli.main import main
from wirescan.core.fault import Fault
from wirescan.kafka.protocol.schema import MESSAGE
from wirescan.testing import laws

METADATA_CORPUS = CORPUS / "kafka-metadata"
EXPECTED = json.loads((METADATA_CORPUS / "expected.json").read_text())
TYPES = [name for name, side in MESSAGE if side == "record"]
TOPIC = bytes.fromhex("01 02 00 02 74") + bytes(range(16)) + b"\0"  # named "t"
SMALL = {
    "Topic": TOPIC,
    "Partition": bytes.fromhex(
        "01 03 02 00000000 00112233445566778899aabbccddeeff 02 00000001 02 00000001 01 01"
        "00000001 00000005 00000006 02 ffeeddccbbaa99887766554433221100"
        "02 00 01 01 01 05 02 00000001"
    ),
    "RegisterBroker": bytes.fromhex(
        "01 00 03 00000001 00 00112233445566778899aabbccddeeff 0000000000000007"
        "02 02 50 02 68 c34f 0000 00 02 02 66 0000 0001 00 00 01 00"
        "01 00 11 02 ffeeddccbbaa99887766554433221100"
    ),
}


def read_values(*values, errors="strict"):
    """Return the kafka.metadata_records of records with these values."""
    batch = kafka.encode_batch([{"value": value} for value in values])
    return kafka.metadata_records(kafka.records(kafka.scan(batch)), errors=errors)


@pytest.mark.parametrize("name", EXPECTED)
def test_real_logs_have_what_kafka_finds(name):
    records = kafka.records(kafka.scan(METADATA_CORPUS / name))
    found = list(zip(records["offset"].tolist(), list_metadata(records)))
    assert found == [tuple(pair) for pair in EXPECTED[name]]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_row_for_each_record(name):
    metadata = kafka.metadata_records(kafka.records(kafka.scan(METADATA_CORPUS / name)))
    assert metadata["parent"].tolist() == list(range(len(EXPECTED[name])))
    for row, (_, expected) in zip(metadata, EXPECTED[name]):
        if expected is None:
            assert (row.frame_version, row.type, row.version, row.message) == (-1, -1, -1, None)
            continue
        assert row.frame_version == 1
        assert kafka.MetadataType(row.type).name == expected["type"]
        assert row.version == expected["version"]


def test_a_directory_has_the_records_of_its_segments():
    """A snapshot repeats records of the log, so a directory is read without its snapshots."""
    metadata = wirescan.scan(METADATA_CORPUS / "4", "kafka.metadata_records")
    assert len(metadata) == len(EXPECTED["4/00000000000000000000.log"])


def test_topics_and_partitions_by_name():
    topics = wirescan.scan(METADATA_CORPUS / "4", "kafka.topic_record")
    assert [decode_text(row.name) for row in topics] == ["orders", "removed"]
    orders = bytes(topics[0].topic_id)
    partitions = wirescan.scan(METADATA_CORPUS / "4", "kafka.partition_record")
    of_orders = [row for row in partitions if bytes(row.topic_id) == orders]
    assert [row.partition_id for row in of_orders] == [0, 1, 2, 3]
    for row in of_orders:
        assert (row.leader, row.replicas.tolist(), row.isr.tolist()) == (1, [1], [1])
        assert [len(directory.id) for directory in row.directories] == [16]
        assert row.eligible_leader_replicas is None


def test_the_fields_of_small_records():
    metadata = read_values(*SMALL.values())
    (topic,) = kafka.body(metadata, "Topic record")
    assert (bytes(topic.name), bytes(topic.topic_id)) == (b"t", bytes(range(16)))
    (partition,) = kafka.body(metadata, "Partition record")
    assert (partition.parent, partition.kind) == (1, 2)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 5, 6)
    assert partition.leader_recovery_state == 1
    assert partition.eligible_leader_replicas.tolist() == [1]
    assert partition.last_known_elr is None
    assert [row.id.hex() for row in partition.directories] == ["ffeeddccbbaa99887766554433221100"]
    (broker,) = kafka.body(metadata, "RegisterBroker record")
    assert (broker.broker_id, broker.broker_epoch, broker.rack, broker.fenced) == (1, 7, None, 1)
    (end_point,) = broker.end_points
    assert (bytes(end_point.name), bytes(end_point.host), end_point.port) == (b"P", b"h", 49999)
    (feature,) = broker.features
    assert (bytes(feature.name), feature.max_supported_version) == (b"f", 1)
    assert len(list(broker.log_dirs)) == 1
    assert broker.cordoned_log_dirs_count == -1


def test_numbers_of_other_kinds():
    quota = bytes.fromhex("010e00 02 02 75 00 00 02 6b 3ff8000000000000 00 00")
    token = bytes.fromhex("010a00 02 6f 02 72 03 02 61 03 6262") + bytes(24) + b"\x02t\0"
    metadata = read_values(quota, token)
    (row,) = kafka.body(metadata, "ClientQuota record")
    (entity,) = row.entity
    assert (row.value, row.remove, entity.entity_name) == (1.5, 0, None)
    (row,) = kafka.body(metadata, "DelegationToken record")
    assert [bytes(renewer.name) for renewer in row.renewers] == [b"a", b"bb"]


@pytest.mark.parametrize(
    "value, fault, numbers",
    [
        (None, Fault.BAD_NULL, (0, 0, 0)),
        (b"", Fault.TRUNCATED, (0, 0, 0)),
        (b"\x80", Fault.TRUNCATED, (-1, -1, -1)),
        (b"\x01", Fault.TRUNCATED, (1, -1, -1)),
        (b"\x01\x02", Fault.TRUNCATED, (1, 2, -1)),
        (b"\x00\x02\x00", Fault.BAD_VERSION, (0, -1, -1)),
        (b"\x02\x02\x00", Fault.BAD_VERSION, (2, -1, -1)),
        (b"\xff\xff\x01", Fault.BAD_VERSION, (0x7FFF, -1, -1)),
        (b"\x80\x80\x02", Fault.BAD_FIELD, (-1, -1, -1)),
        (b"\x01\x80\x80\x02", Fault.BAD_FIELD, (1, -1, -1)),
        (b"\x01\x02\x80\x80\x02", Fault.BAD_FIELD, (1, 2, -1)),
        (b"\x01\xff\xff\xff\xff\xff\x01", Fault.BAD_VARINT, (1, -1, -1)),
        (b"\x01\xff\xff\x01\x00", Fault.OK, (1, 0x7FFF, 0)),
        (b"\x01\x02\x63abc", Fault.OK, (1, 2, 99)),
    ],
)
def test_faults_of_the_numbers_before_a_message(value, fault, numbers):
    metadata = read_values(TOPIC, value, errors="mark")
    assert metadata["fault"].tolist() == [0, fault]
    row = metadata[1]
    assert (row.frame_version, row.type, row.version) == numbers
    topics = kafka.body(metadata, "Topic record", errors="mark")
    if numbers[:2] == (1, 2):
        assert topics["fault"].tolist() == [0, fault or Fault.BAD_VERSION]
    else:
        assert len(topics) == 1
    assert not len(kafka.body(metadata, "RegisterBroker record", errors="mark"))
    if fault:
        with pytest.raises(FrameError, match=fault.name):
            read_values(TOPIC, value)


def test_an_unknown_type_is_a_row_with_its_number():
    metadata = read_values(b"\x01\x1e\x00fields")
    assert (metadata[0].type, metadata[0].version) == (30, 0)
    assert bytes(metadata[0].message) == b"fields"
    assert str(metadata).count("30")


def test_bytes_after_a_message_are_a_fault():
    (topic,) = kafka.body(read_values(TOPIC + b"x"), "Topic record", errors="mark")
    assert topic.fault == Fault.LEFTOVER


def test_records_are_opened_from_both_tables():
    records = kafka.records(kafka.scan(METADATA_CORPUS / "3.9"))
    metadata = kafka.metadata_records(records)
    for name in TYPES:
        direct = kafka.body(records, f"{name} record")
        assert (direct.rows == kafka.body(metadata, f"{name} record").rows).all()
        assert direct.outer.name == "kafka.metadata_records"
        assert (
            records["offset"][direct["parent"]] == metadata.outer["offset"][direct["parent"]]
        ).all()


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_bodies_have_the_rows_of_the_records_around_bad_ones(errors):
    values = (b"\2", TOPIC, TOPIC[:-1], None, TOPIC)
    batch = kafka.encode_batch([{"value": value} for value in values])
    records = kafka.records(kafka.scan(batch), errors=errors)
    topics = kafka.body(records, "Topic record")
    assert topics["parent"][~topics.bad].tolist() == [1, 4]
    assert len(topics) == (2 if errors == "skip" else 3)


@pytest.mark.parametrize("name", ["Topic", "OffsetCommit key", "Topic value", "No record", ""])
def test_names_that_the_metadata_log_does_not_have(name):
    with pytest.raises(ValueError, match=r"expected one of RegisterBroker record, .*Topic record"):
        kafka.body(read_values(TOPIC), name)


def test_other_tables_are_refused():
    with pytest.raises(TypeError, match=r"opened from a table of kafka\.records"):
        kafka.metadata_records(kafka.scan(kafka.encode_batch([TOPIC])))
    with pytest.raises(TypeError, match=r"from a table of kafka\.metadata_records"):
        wirescan.formats()["kafka.topic_record"].read(
            kafka.records(kafka.scan(kafka.encode_batch([TOPIC])))
        )


def test_what_proves_a_password_is_hidden():
    records = kafka.records(kafka.scan(METADATA_CORPUS / "4"))
    hidden = kafka.body(records, "UserScramCredential record")
    assert [decode_text(row.name) for row in hidden] == ["alice", "alice"]
    shown = kafka.body(records, "UserScramCredential record", credentials=True)
    for place in ("salt", "stored_key", "server_key"):
        assert hidden[place].null_count == 2
        assert shown[place].null_count == 0
    assert hidden["iterations"].tolist() == [4096, 4096]


def test_the_types_of_control_records_are_a_column_too():
    table = wirescan.scan(METADATA_CORPUS / "4", "kafka.metadata_records")
    names = table.to_arrow(["type", "control"]).filter(pa.compute.field("type") == -1)["control"]
    assert names.to_pylist() == ["LEADER_CHANGE"] * 2


def test_arrow_has_the_offset_of_each_record():
    table = wirescan.scan(METADATA_CORPUS / "4", "kafka.register_broker_record.end_points")
    exported = table.to_arrow()
    assert exported.schema.field("port").type == pa.uint16()
    assert exported["offset"].to_pylist() == [15, 41]
    assert set(exported.column_names) == {
        "port", "security_protocol", "name", "host", "offset", "fault",
    }  # fmt: skip


def test_the_command_scans_each_format():
    names = ["metadata_records", *(MESSAGE[name, "record"].level.name for name in TYPES)]
    for name in names:
        arguments = ["scan", str(METADATA_CORPUS / "4"), "--format", f"kafka.{name}", "--json"]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        expected = EXPECTED["4/00000000000000000000.log"]
        if name != "metadata_records":
            expected = [row for row in expected if row[1] and row[1]["type"] == name.upper()]
        offsets = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
        assert offsets == [offset for offset, _ in expected], name


def test_the_command_reads_a_snapshot_that_is_named():
    (name,) = [name for name in EXPECTED if name.startswith("4/") and "076-" in name]
    arguments = ["scan", str(METADATA_CORPUS / name), "--format", "kafka.metadata_records"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + len(EXPECTED[name])
    assert sum("topic_record" in line for line in lines) == 1
    assert ["control_record" in line for line in (lines[1], lines[2], lines[-1])] == [1, 0, 1]


@pytest.mark.parametrize("name", SMALL)
def test_every_flipped_and_cut_byte_is_read_as_by_the_reference(name):
    """The damage is in values, under right checksums."""
    package = next(
        package
        for key, package in PACKAGES.items()
        if key.startswith(f"metadata {MESSAGE[name, 'record'].level.path}")
    )
    value = SMALL[name]
    damaged = [value[:cut] for cut in range(len(value))]
    for position, byte in enumerate(value):
        for other in (byte ^ 1, byte ^ 0x80, 0, 0x7F, 0xFF):
            damaged.append(value[:position] + bytes([other]) + value[position + 1 :])
    batch = kafka.encode_batch([{"value": value} for value in damaged])
    laws.agrees_with_the_reference(package, batch)
    laws.covers_every_byte(package, batch)


def test_every_flipped_and_cut_byte_of_a_log():
    """The damage is anywhere in the file, so most checksums are wrong."""
    package = PACKAGES["metadata partition_record.directories"]
    raw = kafka.encode_batch([{"value": value} for value in SMALL.values()])
    raw += kafka.encode_batch([{"value": TOPIC}], base_offset=3)
    for position in range(len(raw)):
        for check in (False, True):
            flipped = bytearray(raw)
            flipped[position] ^= 0x55
            laws.agrees_with_the_reference(package, bytes(flipped), check=check)
        laws.agrees_with_the_reference(package, raw[:position])


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\x7f"])
def test_hostile_counts_cost_no_more_than_their_bytes(count):
    head = bytes.fromhex("01 03 02 00000000") + bytes(16)
    # Counts of numbers, of uuids, and of tagged fields, without the elements.
    numbers = head + count
    uuids = head + b"\1\1\1\1" + bytes(12) + count
    tags = head + b"\1\1\1\1" + bytes(12) + b"\1" + count
    values = [numbers, uuids, tags] * 20_000
    begin = time.process_time()
    metadata = read_values(*values)
    partitions = kafka.body(metadata, "Partition record", errors="mark")
    assert partitions.bad.all()
    assert len(partitions) == len(values)
    directories = partitions.open("directories")
    assert directories.bad.all()
    assert directories.rows.nbytes < 100 * sum(map(len, values))
    assert time.process_time() - begin < 10 * SLOWNESS
