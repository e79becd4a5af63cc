"""The column `timestamp_type` of kafka.batches, also of the records inside."""

import pyarrow as pa
import pytest

import wirescan
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


def test_conditions_name_the_type(log):
    appended = wirescan.where(
        wirescan.scan(log, "kafka.records", errors="skip"), "timestamp_type == LOG_APPEND_TIME"
    )
    assert appended["offset"].tolist() == [2, 5]
