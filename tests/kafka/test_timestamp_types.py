"""The column `timestamp_type` of kafka.batches, also of the records inside."""

import pyarrow as pa
import pytest

import wirescan
from tests.support.kafka_bytes import make_wrapper
from wirescan import kafka
from wirescan.export.batches import iter_batches
from wirescan.kafka import Record, TimestampType, encode_batch, encode_message_set


@pytest.fixture
def log():
    """Batches and messages of each magic, with both types, and a damaged batch."""
    appended = {"timestamp_type": "append", "max_timestamp": 9}
    good = [
        encode_batch([Record(0, 1, b"k"), Record(1, 2)]),
        encode_batch([Record(2, 1)], codec="gzip", **appended),
        encode_message_set([Record(3, None, b"k", b"v")], magic=0),
        encode_message_set([Record(4, 5, b"k", b"v")], magic=1),
        encode_message_set(
            [Record(5, 5, b"k", b"v")], magic=1, codec="gzip", timestamp_type="append"
        ),
    ]
    damaged = bytearray(encode_batch([Record(6, 1)], **appended))
    damaged[-1] ^= 1
    return b"".join(good) + damaged


APPEND_TIME = 0x08  # a bit of the attributes
BATCHES = [0, 1, -1, 0, 1, -1]
NAMES = {0: "CREATE_TIME", 1: "LOG_APPEND_TIME", -1: None}


def test_the_types_of_batches(log):
    batches = kafka.scan(log, errors="mark")
    assert batches["timestamp_type"].tolist() == BATCHES
    assert TimestampType(1).name == "LOG_APPEND_TIME"
    table = batches.to_arrow(["timestamp_type"])
    assert table["timestamp_type"].to_pylist() == [NAMES[number] for number in BATCHES]


def test_the_types_of_records(log):
    columns = ["offset", "timestamp_type"]
    batches = iter_batches(log, format="kafka.records", columns=columns, errors="skip")
    rows = pa.Table.from_batches(batches).to_pylist()
    expected = [NAMES[number] for number in (0, 0, 1, -1, 0, 1)]
    assert [row["timestamp_type"] for row in rows] == expected


@pytest.mark.parametrize("has_append_time", [False, True])
def test_a_message_of_magic_0_has_no_time_in_a_wrapper_of_magic_1(has_append_time):
    """The message of magic 1 beside it has the time of the wrapper, or its own."""
    messages = encode_message_set([Record(0, None, b"k", b"v")], magic=0)
    messages += encode_message_set([Record(1, 5, b"k", b"v")], magic=1)
    raw = make_wrapper(messages, attributes=APPEND_TIME if has_append_time else 0)
    batches = kafka.scan(raw)
    times = [-1, int(batches["max_timestamp"][0]) if has_append_time else 5]
    assert kafka.records(batches)["timestamp"].tolist() == times
    columns = iter_batches(raw, format="kafka.records", columns=["timestamp"])
    millis = pa.Table.from_batches(columns)["timestamp"].cast(pa.int64()).to_pylist()
    assert millis == [None, times[1]]


def test_conditions_name_the_type(log):
    appended = wirescan.where(
        wirescan.scan(log, "kafka.records", errors="skip"), "timestamp_type == LOG_APPEND_TIME"
    )
    assert appended["offset"].tolist() == [2, 5]
