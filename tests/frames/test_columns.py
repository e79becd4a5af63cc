"""What `Format.describe_column` says of the columns of exports."""

from dataclasses import replace
from enum import IntEnum

import numpy as np
import pytest

import wirescan
from wirescan import Column
from wirescan.frames.columns import ColumnKind
from wirescan.frames.registry import format_of
from wirescan.frames.to_arrow import to_batch


class Color(IntEnum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    "format, name, kind",
    [
        ("kafka.records", "_file", ColumnKind.PATH),
        ("kafka.records", "_start", ColumnKind.POSITION),
        ("kafka.records", "_fault", ColumnKind.INNERMOST_FAULT),
        ("kafka.records", "fault", ColumnKind.FAULT),
        ("kafka.records", "offset", ColumnKind.NUMBER),
        ("kafka.records", "kind", ColumnKind.NUMBER),
        ("nats.messages", "kind", ColumnKind.NAME),
        ("kafka.batches", "codec", ColumnKind.NUMBER),
        ("kafka.records", "timestamp", ColumnKind.TIME),
        ("kafka.records", "is_control", ColumnKind.FLAG),
        ("thrift.fields", "real", ColumnKind.FLOAT),
        ("kafka.records", "key", ColumnKind.BYTES),
        ("kafka.records", "headers", ColumnKind.PAIRS),
        ("nats.messages", "headers", ColumnKind.PAIRS),
        ("liftbridge.envelopes", "headers", ColumnKind.BYTES),
        ("kafka.metadata_response.partitions", "replica_nodes", ColumnKind.NUMBERS),
    ],
)
def test_each_kind_of_column(format, name, kind):
    assert format_of(format).describe_column(name).kind is kind


def test_a_column_has_an_owner_and_its_name_there():
    messages = format_of("liftbridge.messages")
    for name, owner, own_name in (
        ("subject", "liftbridge.messages", "subject"),
        ("nats_subject", "nats.messages", "subject"),
        ("payload", "nats.messages", "payload"),
    ):
        column = messages.describe_column(name)
        assert (column.owner, column.name) == (format_of(owner), own_name)
    assert messages.describe_column("_file").owner is None
    assert messages.describe_column("nothing") is None


def test_the_numbers_of_a_place_have_a_dtype():
    column = format_of("kafka.metadata_response.partitions").describe_column("replica_nodes")
    assert column.dtype == np.dtype(">i4")
    assert format_of("kafka.records").describe_column("key").dtype is None


@pytest.mark.parametrize("names", [Color, {1: "RED", 2: "BLUE"}])
def test_numbers_have_names(names):
    column = Column(names=names)
    assert column.number_names == {1: "RED", 2: "BLUE"}
    assert [column.name_number(number) for number in (1, 2, 3)] == ["red", "blue", "3"]


def test_the_unit_decides_which_number_is_no_time():
    assert [Column(unit=unit).no_time for unit in ("ms", "ns", None)] == [-1, 0, None]


def test_bad_rows_have_the_columns_of_each_scan():
    """Zero is a value in `start` and `buffer`, also in a table without a format."""
    table = wirescan.scan(b"nothing", "nats.messages", errors="mark")
    for same in (table, replace(table, format=None)):
        assert same.bad.tolist() == [True]
        assert to_batch(same, ["start", "buffer", "size"]).to_pylist() == [
            {"start": 0, "buffer": 0, "size": 7}
        ]
