"""Bodies of groups, transactions and administration: what no other body has.

These are structs that may be null, arrays of strings, and arrays with the same name in one message.
The reference decoder and the recorded streams test the other fields.
"""

import pyarrow as pa
import pytest

import wirescan
from wirescan import kafka
from wirescan.core.fault import Fault
from wirescan.kafka.protocol.schema import MESSAGE


def read_response(name, version, body=None, cut=0):
    """Return the table of one response without its last `cut` bytes."""
    requests = kafka.requests(kafka.encode_request(name, version))
    raw = kafka.encode_response(name, version, body)
    if cut:
        raw = (len(raw) - 4 - cut).to_bytes(4, "big") + raw[4:-cut]
    return kafka.body(kafka.responses(raw, requests), name, errors="mark")


def read_request(name, version, body=None):
    return kafka.body(kafka.requests(kafka.encode_request(name, version, body)), name)


@pytest.mark.parametrize(
    "assignment, count",
    [
        (None, -1),
        ({}, 0),
        ({"topic_partitions": [{"topic_id": bytes(range(16)), "partitions": [3, 4]}]}, 1),
    ],
)
def test_a_struct_that_may_be_null(assignment, count):
    table = read_response("ConsumerGroupHeartbeat", 1, {"assignment": assignment})
    assert not table.bad.any()
    assert table["assignment_topic_partitions_count"].tolist() == [count]
    topics = table.open("assignment_topic_partitions")
    assert len(topics) == max(count, 0)
    if count > 0:
        assert bytes(topics[0].topic_id) == bytes(range(16))
        assert topics[0].partitions.tolist() == [3, 4]


def test_a_byte_precedes_a_struct_that_may_be_null():
    null = kafka.encode_response("ConsumerGroupHeartbeat", 0, {"assignment": None})
    present = kafka.encode_response("ConsumerGroupHeartbeat", 0, {"assignment": {}})
    # After the byte: no entries, no tagged fields of the struct, none of the body.
    assert null[-2:] == b"\xff\0"
    assert present[-4:] == b"\1\1\0\0"


def test_any_negative_byte_is_a_null_struct():
    raw = bytearray(kafka.encode_response("ConsumerGroupHeartbeat", 0))
    raw[-2] = 0x80
    requests = kafka.requests(kafka.encode_request("ConsumerGroupHeartbeat", 0))
    table = kafka.body(kafka.responses(bytes(raw), requests), "ConsumerGroupHeartbeat")
    assert table["assignment_topic_partitions_count"].tolist() == [-1]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_body_that_ends_at_a_struct_that_may_be_null(cut):
    table = read_response("ConsumerGroupHeartbeat", 0, {"assignment": {}}, cut)
    assert table["fault"].tolist() == [Fault.TRUNCATED]
    topics = table.format.children["assignment_topic_partitions"](table, errors="mark")
    assert topics["fault"].tolist() == [Fault.TRUNCATED] * (cut > 2)


@pytest.mark.parametrize("version", [1, 4])
def test_arrays_of_strings(version):
    """They are encoded from strings, or from the mappings that the tables have."""
    expected = [b"retention.ms", b"", b"cleanup.policy"]
    for keys in (
        ["retention.ms", b"", "cleanup.policy"],
        [{"name": key} for key in expected],
        [{"name": "retention.ms"}, {}, b"cleanup.policy"],
    ):
        body = {"resources": [{"resource_name": "t", "configuration_keys": keys}]}
        table = read_request("DescribeConfigs", version, body)
        resources = table.open("resources")
        assert resources["configuration_keys_count"].tolist() == [3]
        assert [bytes(row.name) for row in resources.open("configuration_keys")] == expected


def test_the_bytes_of_an_array_of_strings():
    """The strings have no tagged fields, also in a flexible version."""
    raw = kafka.encode_request("FindCoordinator", 4, {"coordinator_keys": ["ab", "c"]})
    assert raw.endswith(b"\0" + b"\3" + b"\3ab" + b"\2c" + b"\0")
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": ["ab"]}
    raw = kafka.encode_request("DescribeConfigs", 0, {"resources": [resource]})
    assert raw.endswith(b"\2" + b"\0\1t" + b"\0\0\0\1" + b"\0\2ab")


@pytest.mark.parametrize(
    "keys, error, message",
    [
        ([None], ValueError, "one of coordinator_keys must not be None"),
        ([{"key": "a"}], ValueError, "a string or a mapping of 'name'"),
        ([3], TypeError, "name must be bytes or str"),
        ("ab", TypeError, "coordinator_keys must be a list"),
    ],
)
def test_values_that_are_no_strings_are_refused(keys, error, message):
    with pytest.raises(error, match=message):
        kafka.encode_request("FindCoordinator", 4, {"coordinator_keys": keys})


def test_arrays_with_the_same_name_have_formats_of_their_own():
    formats = wirescan.formats()
    offsets = {"name": "t", "partitions": [{"partition_index": 1, "committed_offset": 7}]}
    group = {"group_id": "g", "topics": [offsets]}
    for version, body, path in (
        (7, {"topics": [offsets]}, ("topics", "partitions")),
        (8, {"groups": [group]}, ("groups", "topics", "partitions")),
    ):
        table = read_response("OffsetFetch", version, body)
        for name in path:
            table = table.open(name)
        assert table.name == "kafka.offset_fetch_response." + ".".join(path)
        assert table.format is formats[table.name]
        assert table["committed_offset"].tolist() == [7]
    assert "kafka.offset_fetch_response.partitions" not in formats
    # Only these messages have such arrays. The other names are short.
    repeated = {
        name.split(".")[1] for name in formats if name.startswith("kafka.") and name.count(".") > 2
    }
    assert repeated == {
        "offset_fetch_request",
        "offset_fetch_response",
        "add_partitions_to_txn_response",
    }
    assert len({format.name for format in formats.values()}) == len(formats)


def test_every_array_has_a_format():
    """No format of an array replaces that of another array."""

    def list_paths(level):
        return [level.path] + [path for inner in level.arrays for path in list_paths(inner)]

    for message in MESSAGE.values():
        paths = list_paths(message.level)
        assert len(paths) == len(set(paths))


def test_exports_name_the_group_and_not_the_documentation():
    topic = {"name": "t", "partition_indexes": [0]}
    body = {"groups": [{"group_id": "g", "topics": [topic]}]}
    topics = read_request("OffsetFetch", 8, body).open("groups").open("topics")
    assert pa.table(topics)["group_id"].to_pylist() == [b"g"]
    config = {"name": "a", "documentation": "long", "synonyms": [{"name": "b", "source": 5}]}
    body = {"results": [{"resource_name": "r", "configs": [config]}]}
    configs = read_response("DescribeConfigs", 4, body).open("results").open("configs")
    assert pa.table(configs)["documentation"].to_pylist() == [b"long"]
    synonyms = pa.table(configs.open("synonyms"))
    assert synonyms["resource_name"].to_pylist() == [b"r"]
    assert "documentation" not in synonyms.column_names


def test_error_codes_have_names():
    formats = wirescan.formats()
    for name, column in (
        ("create_topics_response.topics", "topic_config_error_code"),
        ("find_coordinator_response.coordinators", "error_code"),
    ):
        assert formats[f"kafka.{name}"].get_column(column).names is kafka.ErrorCode
    (inner,) = [
        format
        for name, format in formats.items()
        if name.endswith("results_by_topic_v3_and_below.results_by_partition")
    ]
    assert inner.get_column("partition_error_code").names is kafka.ErrorCode
