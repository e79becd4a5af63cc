"""Tables to Arrow: every type, views without copies, lists, times, large buffers, other readers."""

import dataclasses
import gc
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import wirescan
from tests.support import thrift_bytes
from tests.support.liftbridge_bytes import (
    make_capture,
    make_entry,
    make_envelope,
    make_message,
    make_segment,
)
from tests.support.paths import ORDERS
from tests.support.places import copy_bytes
from wirescan import Fault, FrameError, FrameTable, Limits, kafka, liftbridge, nats
from wirescan.core.gather import Places
from wirescan.core.loop import HEAD
from wirescan.export.batches import iter_batches
from wirescan.export.table_parts import split_by_bytes, split_rows
from wirescan.files.source import MappedFile
from wirescan.frames import lookup, to_arrow
from wirescan.frames.columns import RESERVED
from wirescan.frames.lookup import find_column
from wirescan.frames.registry import format_of
from wirescan.frames.table import make_empty
from wirescan.kafka import Record, encode_batch
from wirescan.liftbridge import Kind
from wirescan.reading.chunked import iter_tables
from wirescan.reading.splits import plan

SEGMENT = str(ORDERS / "00000000000000001480.log")
LONG = b"longer than a view holds itself"
ROWS = [
    Record(0, 1_700_000_000_123, b"k", LONG, [("a", b"1"), ("a", None), ("", LONG)]),
    Record(1, -1, None, b""),
    Record(2, 0, b"", None, [("b", b"")]),
    Record(3, 5, LONG, b"exactly 12 b"),
    Record(4, 6, b"exactly 12+ b", b"v"),
]
RAW = encode_batch(ROWS, producer_id=77)


def scan_records(*parts, **options):
    return kafka.records(kafka.scan(list(parts), **options), **options)


def convert_table(table, columns=None, **options):
    batch = to_arrow.to_batch(table, columns, **options)
    batch.validate(full=True)
    assert batch.num_rows == len(table) or columns == []
    assert batch.schema == to_arrow.make_schema(
        table.format, columns, **{k: options[k] for k in ("binary", "types") if k in options}
    )
    return batch


def list_values(rows):
    return [
        [
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
        ]
        for row in rows
    ]


# ---- columns and types


def test_every_format_has_default_columns():
    assert to_arrow.list_default_columns("kafka.records") == [
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "is_control",
        "fault",
    ]
    assert to_arrow.list_default_columns("kafka.headers") == ["key", "value", "fault"]
    assert to_arrow.list_default_columns("kafka.batches") == [
        n for n in kafka.BATCH.names if n not in HEAD.names
    ] + ["fault"]
    with pytest.raises(ValueError, match="no format"):
        to_arrow.list_default_columns("kafka.nothing")


def test_columns_have_arrow_types():
    ms, us = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
    assert to_arrow.make_schema("kafka.batches").types == [
        pa.int64(),
        pa.int64(),
        ms,
        ms,
        pa.int64(),
        pa.int32(),
        pa.int32(),
        pa.int32(),
        pa.uint32(),
        pa.int16(),
        pa.int16(),
        pa.uint8(),
        pa.uint8(),
        pa.bool_(),
        pa.bool_(),
        pa.dictionary(pa.int32(), pa.string()),
    ]
    assert to_arrow.make_schema("kafka.batches", types="spark").types == [
        pa.int64(),
        pa.int64(),
        us,
        us,
        pa.int64(),
        pa.int32(),
        pa.int32(),
        pa.int32(),
        pa.int64(),
        pa.int16(),
        pa.int16(),
        pa.int16(),
        pa.int16(),
        pa.bool_(),
        pa.bool_(),
        pa.string(),
    ]
    for binary, kind in (
        ("view", pa.binary_view()),
        ("binary", pa.binary()),
        ("large_binary", pa.large_binary()),
    ):
        pairs = pa.list_(pa.struct([("key", kind), ("value", kind)]))
        assert to_arrow.make_schema("kafka.records", binary=binary).types == [
            pa.int64(),
            ms,
            kind,
            kind,
            pairs,
            pa.bool_(),
            pa.dictionary(pa.int32(), pa.string()),
        ]
    assert to_arrow.make_schema("kafka.records", ["buffer", "parent", "_file", "_start"]).types == [
        pa.uint16(),
        pa.int32(),
        pa.string(),
        pa.int64(),
    ]
    assert to_arrow.make_schema(
        "kafka.records", ["buffer", "value"], types="spark", binary="view"
    ).types == [
        pa.int32(),
        pa.binary(),
    ]


def test_types_of_nats_and_liftbridge():
    ns, us = pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")
    pairs = pa.list_(pa.struct([("key", pa.binary_view()), ("value", pa.binary_view())]))
    names = [
        "kind",
        "timestamp",
        "reception_timestamp",
        "commit_timestamp",
        "headers",
        "leader_epoch",
        "is_leader",
    ]

    def types_of(format, **options):
        columns = to_arrow.list_default_columns(format)
        return {
            name: to_arrow.make_schema(format, [name], **options).types[0]
            for name in names
            if name in columns
        }

    assert types_of("nats.messages") == {"kind": pa.string(), "headers": pairs}
    assert types_of("liftbridge.messages") == {
        "kind": pa.string(),
        "timestamp": ns,
        "headers": pairs,
    }
    assert types_of("liftbridge.acks") == {"reception_timestamp": ns, "commit_timestamp": ns}
    assert types_of("liftbridge.entries") == {
        "timestamp": ns,
        "headers": pairs,
        "leader_epoch": pa.uint64(),
    }
    assert types_of("liftbridge.internal") == {
        "kind": pa.string(),
        "leader_epoch": pa.uint64(),
        "is_leader": pa.bool_(),
    }
    assert types_of("liftbridge.acks", types="spark") == {
        "reception_timestamp": us,
        "commit_timestamp": us,
    }
    assert types_of("liftbridge.internal", types="spark")["leader_epoch"] == pa.int64()


def test_unknown_names_are_refused():
    for call in (
        lambda: to_arrow.make_schema("kafka.records", ["offset", "nothing"]),
        lambda: to_arrow.to_batch(scan_records(RAW), ["nothing"]),
        lambda: list(iter_batches(SEGMENT, format="kafka.records", columns=["nothing"])),
    ):
        with pytest.raises(
            ValueError, match="kafka.records has no column 'nothing'; it has offset, timestamp"
        ):
            call()
    with pytest.raises(ValueError, match="no format"):
        to_arrow.make_schema("nothing.at.all")


@pytest.mark.parametrize("wrong", [{"binary": "nothing"}, {"types": "nothing"}])
def test_unknown_kinds_are_refused(wrong):
    with pytest.raises(ValueError, match="must be one of .*, not 'nothing'"):
        to_arrow.make_schema("kafka.records", **wrong)


@pytest.mark.parametrize("types", ["arrow", "spark"])
@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
@pytest.mark.parametrize("format", ["kafka.batches", "kafka.records", "kafka.headers"])
def test_every_column_of_every_format(format, binary, types):
    table = wirescan.scan(ORDERS, format)
    names = list(
        dict.fromkeys(
            [*table.dtype.names, *to_arrow.list_default_columns(format), "_file", "_start"]
        )
    )
    batch = convert_table(table, names, binary=binary, types=types, file="here")
    for name in table.dtype.names:
        column, values = batch.column(name), table[name]
        if name == "fault":
            assert column.null_count == len(table) and not values.any()
        elif pa.types.is_timestamp(column.type):
            unit = 1000 if types == "spark" else 1
            expected = [None if v == -1 else v * unit for v in values.tolist()]
            assert column.cast(pa.int64()).to_pylist() == expected
        elif pa.types.is_boolean(column.type):
            assert column.to_pylist() == (values != 0).tolist()
        else:
            assert column.to_pylist() == values.tolist()
    for name in table.places:
        sizes = table[name + "_size"]
        column = batch.column(name)
        assert column.null_count == (sizes < 0).sum()
        for i in range(0, len(table), 97):
            view = table.bytes(i, name)
            assert column[i].as_py() == (None if view is None else bytes(view))
    assert batch.column("_start").to_pylist() == table.positions.tolist()
    assert set(batch.column("_file").to_pylist()) == {"here"}


@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
def test_values_and_nulls_are_kept(binary):
    table = scan_records(RAW)
    batch = convert_table(table, binary=binary)
    assert batch.column("key").to_pylist() == [r.key for r in ROWS]
    assert batch.column("value").to_pylist() == [r.value for r in ROWS]
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.column("headers").to_pylist() == [
        [{"key": b"a", "value": b"1"}, {"key": b"a", "value": None}, {"key": b"", "value": LONG}],
        [],
        [{"key": b"b", "value": b""}],
        [],
        [],
    ]
    assert batch.column("is_control").to_pylist() == [False] * 5
    part = convert_table(table[3:], binary=binary)
    assert (
        part.column("value").to_pylist() == [b"exactly 12 b", b"v"]
        and part.column("key").null_count == 0
    )
    some = convert_table(table[np.array([4, 0, 0])], ["value"], binary=binary)
    assert some.column(0).to_pylist() == [b"v", LONG, LONG]


@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
def test_byte_strings_of_every_size(binary):
    """The copies of short ones are of whole words, whose ends overlap."""
    pattern = np.random.default_rng(7).bytes(400)
    rows = [
        Record(size, 0, pattern[size : size + size % 40], pattern[:size]) for size in range(300)
    ]
    batch = convert_table(scan_records(encode_batch(rows)), ["key", "value"], binary=binary)
    assert batch["key"].to_pylist() == [row.key for row in rows]
    assert batch["value"].to_pylist() == [row.value for row in rows]


def test_columns_of_enclosing_frames():
    table = kafka.headers(
        scan_records(
            RAW, encode_batch([Record(9, 1, headers=[("z", b"")])], codec="zstd", control=True)
        )
    )
    batch = convert_table(
        table, ["key", "offset", "timestamp", "producer_id", "codec", "is_control", "_start"]
    )
    assert batch.column("offset").to_pylist() == [0, 0, 0, 2, 9]
    assert batch.column("producer_id").to_pylist() == [77] * 4 + [-1]
    assert batch.column("codec").to_pylist() == [0] * 4 + [4]
    assert batch.column("is_control").to_pylist() == [False] * 4 + [True]
    assert batch.column("timestamp").cast("int64").to_pylist() == [1_700_000_000_123] * 3 + [0, 1]


def make_nats_headers(number, reply, payload):
    """Return a message with `number` headers."""
    headers = b"NATS/1.0\r\n" + b"k: v\r\n" * number + b"\r\n"
    end = b"%d %d" % (len(headers), len(headers) + len(payload))
    start = b" ".join([b"HMSG a 1", *([] if reply is None else [reply]), end])
    return start + b"\r\n" + headers + payload + b"\r\n"


@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
@pytest.mark.parametrize("rows", [slice(None), [13, 0, 5, 5], slice(2, 4), slice(0, 0)])
def test_places_of_enclosing_frames(binary, rows):
    """Several headers have the same reply and payload: null, inside a view, or outside of it."""
    messages = [
        (None, LONG),
        (b"longer.than.a.view.holds", b""),
        (b"r", b"exactly 12 b"),
        (None, b"p"),
        (b"s", LONG),
    ]
    parts = [make_nats_headers(3, *message) for message in messages]
    table = nats.headers(nats.scan([b"".join(parts[:2]), b"".join(parts[2:])]))
    expected = [message for message in messages for _ in range(3)]
    chosen = [expected[row] for row in np.arange(len(expected))[rows]]
    batch = convert_table(table[rows], ["reply", "key", "payload"], binary=binary)
    assert batch.column("reply").to_pylist() == [reply for reply, _ in chosen]
    assert batch.column("payload").to_pylist() == [payload for _, payload in chosen]
    assert batch.column("key").to_pylist() == [b"k"] * len(chosen)


def test_many_bytes_of_enclosing_frames_are_gathered_by_the_writer(monkeypatch):
    """Arrow's own function would overflow 32-bit offsets. The writer refuses so many bytes."""
    table = nats.headers(nats.scan(make_nats_headers(40, b"r", LONG)))
    expected = convert_table(table, ["payload"], binary="binary")
    counts = []
    write_places = to_arrow.write_places

    def note_rows(table, fields):
        counts.append(len(table))
        return write_places(table, fields)

    monkeypatch.setattr(to_arrow, "write_places", note_rows)
    for largest, written in ((40 * len(LONG), [1]), (40 * len(LONG) - 1, [1, 40])):
        monkeypatch.setattr(to_arrow, "LARGEST", largest)
        counts.clear()
        assert convert_table(table, ["payload"], binary="binary") == expected
        assert counts == written


def test_an_error_names_the_exported_row():
    messages = nats.scan(make_nats_headers(2, b"r", b"p") * 3)
    table = nats.headers(messages)
    rows = messages.rows.copy()
    rows["payload_at"][2] = 1000
    damaged = dataclasses.replace(table, outer=dataclasses.replace(messages, rows=rows))
    for binary in to_arrow.BINARY:
        with pytest.raises(ValueError, match="^row 4 points outside its buffer$"):
            to_arrow.to_batch(damaged, ["payload"], binary=binary)


def test_rows_of_the_tables_around_are_found_once(monkeypatch):
    """Each column of the frames around would otherwise read the parents of all rows again."""
    calls = []
    find_parents = lookup.find_parents

    def count_call(table, rows):
        calls.append(table.format.name)
        return find_parents(table, rows)

    monkeypatch.setattr(lookup, "find_parents", count_call)
    table = kafka.headers(scan_records(RAW))
    convert_table(table, ["offset", "timestamp", "producer_id", "codec", "is_control"])
    assert calls == ["kafka.headers", "kafka.records"]


def test_file_and_start_are_columns():
    table = scan_records(RAW + RAW)
    assert convert_table(table, ["_file"]).column(0).null_count == 10
    batch = convert_table(table, ["_start", "_file"], file="a.log")
    assert batch.column("_start").to_pylist() == [0] * 5 + [len(RAW)] * 5
    assert batch.column("_file").to_pylist() == ["a.log"] * 10
    unreadable = os.fsdecode(b"a\xff.log")
    assert convert_table(table, ["_file"], file=unreadable).column(0).unique().to_pylist() == [
        r"a\udcff.log"
    ]


NATS = [
    "nats.messages",
    "nats.headers",
    "liftbridge.envelopes",
    "liftbridge.messages",
    "liftbridge.acks",
    "liftbridge.internal",
    "liftbridge.headers",
    "liftbridge.entries",
]
THRIFT = ["thrift.frames", "thrift.infos", "thrift.plain", "thrift.messages", "thrift.fields"]


def read_corpus(format):
    made = (
        RAW
        if format.startswith("kafka")
        else make_segment(0)
        if format == "liftbridge.entries"
        else make_capture(0)
    )
    return thrift_bytes.make_capture(0) if format in THRIFT else made


@pytest.mark.parametrize("types", ["arrow", "spark"])
@pytest.mark.parametrize("format", [*NATS, *THRIFT])
def test_every_column_of_other_formats(format, types):
    table = wirescan.scan(read_corpus(format), format)
    assert len(table) > 5
    own_names = [name for name in table.dtype.names if name != RESERVED]
    names = list(dict.fromkeys([*own_names, *to_arrow.list_default_columns(format), "_start"]))
    batch = convert_table(table, names, types=types)
    for name in own_names:
        column, values = batch.column(name), table[name].tolist()
        if name == "fault":
            assert column.to_pylist() == [None] * len(table)
        elif name == "kind" and (kinds := table.format.get_column("kind").number_names):
            assert column.to_pylist() == [kinds[value] for value in values]
        elif pa.types.is_timestamp(column.type):
            unit = 1000 if types == "spark" else 1
            assert column.cast(pa.int64()).to_pylist() == [
                value // unit if value else None for value in values
            ]
        else:
            assert column.to_pylist() == list(
                map(bool, values) if pa.types.is_boolean(column.type) else values
            )
    for name in set(table.places) - set(table.format.lists):
        views = [table.bytes(i, name) for i in range(len(table))]
        assert batch.column(name).to_pylist() == [
            None if view is None else bytes(view) for view in views
        ]
    for name in table.format.lists:
        lists = [
            [
                {"key": copy_bytes(pair.key), "value": copy_bytes(pair.value)}
                for pair in getattr(row, name)
            ]
            for row in table
        ]
        assert batch.column(name).to_pylist() == lists and any(lists)
    assert batch.column("_start").to_pylist() == table.positions.tolist()


def test_nanoseconds_and_epochs_of_any_value():
    times = [0, -1, 1, -(2**63), 2**63 - 1, 1_700_000_000_123_456_789]
    epochs = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 7]
    table = wirescan.scan(
        b"".join(
            make_entry(i, time, None, b"", epoch=epoch)
            for i, (time, epoch) in enumerate(zip(times, epochs))
        ),
        "liftbridge.entries",
    )
    names = ["timestamp", "leader_epoch"]
    exact, spark = convert_table(table, names), convert_table(table, names, types="spark")
    assert exact["timestamp"].cast("int64").to_pylist() == [None, *times[1:]]
    assert exact["leader_epoch"].to_pylist() == epochs
    assert spark["timestamp"].cast("int64").to_pylist() == [
        None,
        *(time // 1000 for time in times[1:]),
    ]
    assert spark["leader_epoch"].to_pylist() == [0, 1, 2**63 - 1, None, None, 7]


def test_what_frames_hold_by_other_ways():
    """Records of replication, and headers of records: the formats of what encloses them differ."""
    response = make_envelope(Kind.REPLICATION_RESPONSE, bytes(16) + make_segment(0, 9))
    entries, alone = (
        liftbridge.scan(response).open("entries"),
        liftbridge.entries(make_segment(0, 9)),
    )
    assert convert_table(entries) == convert_table(alone)
    headers = wirescan.formats()["liftbridge.headers"]
    for table in (entries, alone):
        assert convert_table(headers.inside(table), ["key", "value", "timestamp"]).num_rows == 12
    assert (
        headers.in_values.name == "liftbridge.envelopes"
        and entries.format.in_values is entries.format
    )
    assert wirescan.formats()["kafka.headers"].in_values.name == "kafka.batches"


def add_texts(table, texts):
    """A table with a column more, as rows have that were given names."""
    rows = np.zeros(len(table), [*table.dtype.descr, ("text", np.asarray(texts).dtype)])
    for name in table.dtype.names:
        rows[name] = table[name]
    rows["text"] = texts
    return dataclasses.replace(table, rows=rows)


@pytest.mark.parametrize("types", ["arrow", "spark"])
def test_text_in_rows_loses_its_zeros(types):
    """Text that zeros fill up; none is null; the column is not one of the format."""
    texts, expected = [b"", b"n", "ä€".encode(), b"longest"], [None, "n", "ä€", "longest"]
    headers = kafka.headers(scan_records(RAW))
    table = add_texts(headers, texts)
    batch = to_arrow.to_batch(table, types=types)
    batch.validate(full=True)
    assert (
        batch.schema.names == ["text", "key", "value", "fault"]
        and batch.schema.field("text").type == pa.string()
    )
    assert batch["text"].to_pylist() == expected and batch["key"].to_pylist() == [
        b"a",
        b"a",
        b"",
        b"b",
    ]
    assert to_arrow.to_batch(table[::-2], ["text", "offset"], types=types)["text"].to_pylist() == [
        "longest",
        "n",
    ]
    for same in (table, pickle.loads(pickle.dumps(table)), dataclasses.replace(table, format=None)):
        assert pa.table(same)["text"].to_pylist() == expected
    assert to_arrow.to_batch(table[:0], ["text"], types=types).num_rows == 0
    assert (
        to_arrow.to_batch(add_texts(headers, np.zeros(4, "S0")), types=types)["text"].null_count
        == 4
    )


def test_text_in_rows_that_is_none():
    with pytest.raises(ValueError, match="UTF8"):
        to_arrow.to_batch(add_texts(scan_records(RAW), [b"\xff"] * 5), ["text"])
    with pytest.raises(ValueError, match="has no column 'text'"):
        to_arrow.to_batch(scan_records(RAW), ["text"])


@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
@pytest.mark.parametrize(
    "format", ["kafka.batches", "kafka.records", "kafka.headers", *NATS, *THRIFT]
)
def test_empty_tables_have_all_columns(format, binary):
    for table in (wirescan.scan(b"", format), wirescan.scan(read_corpus(format), format)[:0]):
        batch = convert_table(
            table, [*to_arrow.list_default_columns(format), "_start", "_file"], binary=binary
        )
        assert batch.num_rows == 0
        assert pa.table(table).num_rows == 0


def make_empty_levels(format):
    """Return an empty table of a format, inside empty tables of the formats around it."""
    table = make_empty(format)
    if format.within is None:
        return table
    return dataclasses.replace(table, outer=make_empty_levels(format_of(format.within)))


@pytest.mark.parametrize("types", ["arrow", "spark"])
@pytest.mark.parametrize("name", wirescan.formats())
def test_all_columns_of_each_format_have_a_type_of_arrow(name, types):
    format = wirescan.formats()[name]
    columns = [*format.all_columns, "_fault"]
    assert RESERVED not in columns
    schema = to_arrow.make_schema(format, columns, types=types)
    batch = convert_table(make_empty_levels(format), columns, types=types)
    assert batch.schema == schema and schema.names == columns


def test_the_padding_of_rows_is_no_column():
    table = wirescan.scan(read_corpus("liftbridge.envelopes"), "liftbridge.envelopes")
    assert RESERVED in table.dtype.names
    with pytest.raises(ValueError, match="has no column 'reserved'"):
        table.to_arrow([RESERVED])
    with pytest.raises(ValueError, match="has no column reserved"):
        wirescan.where(table, "reserved == 0")


def test_an_empty_table_has_no_parts():
    assert list(split_by_bytes(wirescan.scan(b"", "kafka.records"), 100)) == []


@example(sizes=[1, 1, 1], size=100, most=2)
@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100), st.integers(1, 20))
def test_parts_hold_as_many_rows_as_fit(sizes, size, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirescan.export.table_parts.BATCH_ROWS", most)
        parts = list(split_rows(np.array(sizes, np.int64), size))
    rows = [row for part in parts for row in range(part.start, part.stop)]
    assert rows == list(range(len(sizes)))
    for part in parts:
        assert 1 <= part.stop - part.start <= most
        assert sum(sizes[part]) <= size or part.stop - part.start == 1
        is_full = part.stop - part.start == most
        assert is_full or part.stop == len(sizes) or sum(sizes[part.start : part.stop + 1]) > size


@pytest.mark.parametrize("format", ["nats.headers", "liftbridge.messages"])
def test_parts_count_the_bytes_of_enclosing_frames(format):
    """The payload of a NATS message is repeated in each row inside it."""
    if format == "nats.headers":
        raw = nats.encode_msg("s", 1, b"x" * 1000, headers=[("a", "b")] * 10) * 5
    else:
        payload = make_envelope(Kind.PUBLISH, make_message(b"k", b"x" * 1000))
        raw = nats.encode_msg("s", 1, payload) * 20
    table = wirescan.scan(raw, format)
    parts = list(split_by_bytes(table, 5000, ["key", "payload"]))
    assert sum(map(len, parts)) == len(table)
    for part in parts:
        payloads = to_arrow.to_batch(part, ["payload"], binary="binary").column(0).to_pylist()
        assert 0 < sum(map(len, payloads)) <= 5000 and len(payloads[0]) >= 1000


def test_no_columns_keep_the_number_of_rows():
    assert to_arrow.to_batch(scan_records(RAW), []).num_rows == 5


# ---- times


def convert_times(values, **options):
    raw = encode_batch(
        [Record(i, value, value=b"") for i, value in enumerate(values)], max_timestamp=0
    )
    return convert_table(scan_records(raw), ["timestamp"], **options).column(0)


def test_negative_times_are_null():
    assert convert_times([-1, 0, 1, -2]).cast("int64").to_pylist() == [None, 0, 1, -2]
    assert convert_times([-1, 0, 1, -2], types="spark").cast("int64").to_pylist() == [
        None,
        0,
        1000,
        -2000,
    ]
    assert convert_times([0, 1]).null_count == 0
    extremes = [
        2**63 - 1,
        -(2**63),
        2**62,
        2**63 // 1000 + 1,
        -(2**63) // 1000 - 1,
        9_000_000_000_000_000,
    ]
    assert convert_times(extremes).cast("int64").to_pylist() == extremes
    assert convert_times(extremes, types="spark").cast("int64").to_pylist() == [None] * 5 + [
        9_000_000_000_000_000_000
    ]


# ---- zero copy


def test_views_point_into_the_mapped_file():
    table = scan_records(Path(SEGMENT))
    plain = table.where(table["buffer"] == 0)
    batch = convert_table(plain, ["key", "value", "headers"])
    where = np.frombuffer(plain.buffers[0], np.uint8)
    low, high = where.ctypes.data, where.ctypes.data + len(where)
    for name in ("key", "value"):
        validity, views, *parts = batch.column(name).buffers()
        assert len(parts) == (1 if (plain[name + "_size"] > 12).any() else 0)
        for part in parts:
            assert low <= part.address and part.address + part.size <= high
    headers = batch.column("headers").values.field(1).buffers()
    assert all(low <= part.address < high for part in headers[2:])


def test_arenas_are_viewed_too():
    table = scan_records(encode_batch([LONG * 10] * 3, codec="zstd"))
    part = convert_table(table, ["value"]).column(0).buffers()[2]
    arena = np.frombuffer(table.buffers[1], np.uint8)
    assert arena.ctypes.data <= part.address < arena.ctypes.data + len(arena)


def test_a_batch_keeps_its_buffers_alive(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(RAW)
    batch = convert_table(scan_records(path))
    packed = convert_table(scan_records(encode_batch([LONG] * 3, codec="gzip")), ["value"])
    path.unlink()
    gc.collect()
    assert batch.column("value").to_pylist() == [r.value for r in ROWS]
    assert packed.column(0).to_pylist() == [LONG] * 3


def test_views_allocate_nothing_for_payloads():
    table = scan_records(encode_batch([bytes(1 << 20)] * 8))
    tracemalloc.start()
    pool = pa.total_allocated_bytes()
    batch = to_arrow.to_batch(table, ["value"])
    assert pa.total_allocated_bytes() - pool < 1 << 20
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert batch.column(0)[7].as_py() == bytes(1 << 20)


def test_a_slice_serialises_small():
    table = scan_records(encode_batch([b"%04d" % i * 25 for i in range(1000)]))

    def size(batch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue().size

    whole, part = (
        size(to_arrow.to_batch(table, ["value"])),
        size(to_arrow.to_batch(table[500:510], ["value"])),
    )
    assert whole > 100_000 and part < 3_000
    read = pa.ipc.open_stream
    sink = pa.BufferOutputStream()
    batch = to_arrow.to_batch(table[500:510])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert read(sink.getvalue()).read_all().to_pylist() == batch.to_pylist()


# ---- hostile rows, large buffers


def make_table_by_hand(buffers, places):
    """A table of kafka.records whose values are these (buffer, start, size)."""
    rows = np.zeros(len(places), kafka.RECORD)
    for row, (buffer, start, size) in zip(rows, places):
        row["buffer"], row["start"], row["size"], row["value_size"], row["key_size"] = (
            buffer,
            start,
            max(size, 0),
            size,
            -1,
        )
    return FrameTable(
        tuple(memoryview(b).cast("B") for b in buffers),
        rows,
        (),
        wirescan.formats()["kafka.records"],
    )


@pytest.mark.parametrize(
    "place", [(0, 0, 11), (0, 11, 1), (0, -1, 2), (1, 0, 1), (0, 2**62, 5), (0, 0, 2**31 - 1)]
)
@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
def test_rows_that_point_outside_are_refused(place, binary):
    with pytest.raises(ValueError, match="row 1 points outside"):
        to_arrow.to_batch(
            make_table_by_hand([b"0123456789"], [(0, 0, 10), place]), ["value"], binary=binary
        )


@pytest.mark.parametrize("size", [6, 2**31 - 1])
@pytest.mark.parametrize("binary", ["view", "binary", "large_binary"])
def test_places_outside_their_frame_are_refused(size, binary):
    table = make_table_by_hand([b"0123456789"], [(0, 0, 5), (0, 0, 5)])
    rows = table.rows.copy()
    rows["value_size"][1] = size
    with pytest.raises(ValueError, match="row 1 points outside"):
        to_arrow.to_batch(dataclasses.replace(table, rows=rows), ["value"], binary=binary)


def test_rows_at_the_edge():
    table = make_table_by_hand(
        [b"0123456789" * 2, b""],
        [(0, 0, 20), (0, 20, 0), (0, 7, 13), (1, 0, 0), (0, 99, -1), (5, 0, -1)],
    )
    for binary in ("view", "binary", "large_binary"):
        column = convert_table(table, ["value"], binary=binary).column(0)
        assert column.to_pylist() == [b"0123456789" * 2, b"", b"7890123456789", b"", None, None]


def test_bad_rows_are_null():
    table = make_table_by_hand([b"0123456789" * 2], [(0, 0, 20), (0, 0, 20)])
    rows = table.rows.copy()
    rows["fault"][1] = Fault.TRUNCATED
    assert convert_table(dataclasses.replace(table, rows=rows), ["value", "fault"]).to_pylist() == [
        {"value": b"0123456789" * 2, "fault": None},
        {"value": None, "fault": "TRUNCATED"},
    ]


WINDOW = 1 << 30  # bytes between the beginnings of two windows


def test_buffers_above_2_gib_are_seen_through_windows(tmp_path):
    path = tmp_path / "sparse"
    size = (5 << 30) + 123
    spots = [
        0,
        100,
        WINDOW - 10,
        WINDOW,
        2 * WINDOW - 20,
        2 * WINDOW - 1,
        2 * WINDOW,
        (3 << 30) - 7,
        (4 << 30) + 5,
        size - 40,
    ]
    with open(path, "wb") as file:
        for number, spot in enumerate(spots):
            file.seek(spot)
            file.write(
                b"%02d:" % number + b"x" * 37 if number < 9 else b"%02d:" % number + b"y" * 37
            )
        file.truncate(size)
    mapped = memoryview(MappedFile(str(path)))
    table = make_table_by_hand(
        [b"small buffer first" * 2, mapped],
        [(0, 0, 20)] + [(1, spot, 40) for spot in spots[::-1]],
    )
    expected = [bytes(table.bytes(i, "value")) for i in range(len(table))]
    batch = convert_table(table, ["value"])
    assert batch.column(0).to_pylist() == expected and expected[-1][:3] == b"00:"
    parts = batch.column(0).buffers()[2:]
    assert len(parts) > 4 and max(part.size for part in parts) < 1 << 31
    far = convert_table(table[1:2], ["value"])
    assert [part.size for part in far.column(0).buffers()[2:]] == [40]  # only what is touched
    for binary in ("binary", "large_binary"):
        assert convert_table(table, ["value"], binary=binary).column(0).to_pylist() == expected
    longest = make_table_by_hand([mapped], [(0, 5, WINDOW - 1)])
    assert convert_table(longest, ["value"]).column(0).buffers()[2].size == WINDOW - 1
    with pytest.raises(ValueError, match="too long for a view"):
        to_arrow.to_batch(make_table_by_hand([mapped], [(0, 0, WINDOW)]), ["value"])


def test_more_than_2_gib_in_a_column_of_binary_is_refused(tmp_path):
    """It is refused before the bytes are copied."""
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.truncate(WINDOW)
    table = make_table_by_hand([memoryview(MappedFile(str(path)))], [(0, 0, WINDOW - 1)] * 3)
    with pytest.raises(ValueError, match="column 'value' has more than 2147483647 bytes"):
        to_arrow.to_batch(table, ["value"], binary="binary")


def test_places_count_nulls_and_bytes():
    places = Places(scan_records(RAW), "key")
    assert (places.nulls, places.total, places.longest) == (1, 1 + len(LONG) + 13, len(LONG))
    assert to_arrow.to_batch(scan_records(RAW)[:1], ["key"]).column(0).buffers()[0] is None


# ---- bad headers


def make_batch_with_long_header(number):
    """Records of which one has a header that runs past its record."""
    rows = [
        Record(i, 0, value=b"v", headers=[("good", b"1"), ("bad", b"%d" % i)]) for i in range(4)
    ]
    raw = bytearray(encode_batch(rows))
    at = raw.index(b"\x06bad\x02%d" % number)
    raw[at] = 0x7E
    return bytes(raw)


def test_bad_headers_follow_the_mode():
    table = scan_records(make_batch_with_long_header(2), check=False)
    with pytest.raises(FrameError, match="TRUNCATED"):
        to_arrow.to_batch(table)
    assert to_arrow.to_batch(table, ["offset", "value"]).num_rows == 4  # not asked for, not opened
    marked = convert_table(table, ["headers"], errors="mark").column(0).to_pylist()
    assert [len(headers) for headers in marked] == [2] * 4
    assert marked[2] == [{"key": b"good", "value": b"1"}, {"key": None, "value": None}]
    skipped = convert_table(table, ["headers"], errors="skip").column(0).to_pylist()
    assert skipped[2] == [{"key": b"good", "value": b"1"}] and skipped[3] == marked[3]


def test_bad_records_have_no_headers():
    table = scan_records(RAW, RAW[:-1] + b"\xff", errors="mark")
    batch = convert_table(table, errors="mark")
    assert batch.column("headers").to_pylist()[-1] is None
    assert batch.column("fault").to_pylist() == [None] * 5 + ["BAD_CHECKSUM"]
    assert batch.column("value").to_pylist()[-1] is None


@pytest.mark.parametrize("types", ["arrow", "spark"])
def test_what_was_not_read_of_a_bad_frame_is_null(types):
    """Neither 0 nor 1970; what was read before the fault stays."""
    bad = RAW[:-1] + b"\xff"
    columns = [
        "offset",
        "timestamp",
        "is_control",
        "base_offset",
        "last_offset",
        "codec",
        "_fault",
        "fault",
        "size",
    ]
    batch = convert_table(
        scan_records(RAW, bad, b"\xff" * 99, RAW, errors="mark"), columns, types=types
    ).to_pylist()
    assert [row["fault"] for row in batch] == [None] * 5 + ["BAD_CHECKSUM", "BAD_LENGTH"] + [
        None
    ] * 5
    assert [row["_fault"] for row in batch] == [row["fault"] for row in batch]
    assert (
        batch[0]["timestamp"] is not None
        and batch[0]["is_control"] is False
        and batch[0]["codec"] == 0
    )
    for row in batch[5:7]:
        assert row["offset"] is row["timestamp"] is row["is_control"] is None and row["size"] > 0
    assert batch[5]["last_offset"] == batch[0]["last_offset"] and batch[6]["last_offset"] is None
    batches = convert_table(
        wirescan.kafka.scan([RAW, b"\xff" * 99], errors="mark"), types=types
    ).to_pylist()
    assert {name for name, value in batches[1].items() if value is not None} == {"fault"}


def test_a_default_that_nothing_was_read_over_is_null():
    """A request that is cut inside its numbers: the numbers after the cut have their defaults."""
    whole = bytes(kafka.encode_request("Fetch", 11, {"topics": []}, correlation_id=1))
    size = len(whole) - 4 - 19
    table = kafka.body(
        kafka.requests([whole, size.to_bytes(4, "big") + whole[4 : 4 + size]]),
        "Fetch",
        errors="mark",
    )
    good, bad = convert_table(
        table, ["min_bytes", "max_bytes", "session_id", "session_epoch", "fault"]
    ).to_pylist()
    assert good["session_epoch"] == -1 and None not in [
        value for name, value in good.items() if name != "fault"
    ]
    assert bad == dict.fromkeys(good) | {"fault": "TRUNCATED"} and table[
        "session_epoch"
    ].tolist() == [-1, -1]


def test_the_name_of_a_fault_is_the_same_in_every_batch():
    """So that a stream has one dictionary; a number that is no fault keeps its digits."""
    table = scan_records(RAW, RAW[:-1] + b"\xff", errors="mark")
    good, bad = (
        convert_table(table[:5], ["fault"]).column(0),
        convert_table(table[5:], ["fault"]).column(0),
    )
    assert (
        good.type == bad.type == pa.dictionary(pa.int32(), pa.string())
        and good.dictionary == bad.dictionary
    )
    assert bad.dictionary.to_pylist() == [fault.name for fault in Fault if fault]
    rows = table.rows.copy()
    rows["fault"][:2] = 77, Fault.LIMIT
    other = convert_table(dataclasses.replace(table, rows=rows), ["fault", "_fault"])
    assert other.column(0).to_pylist() == ["77", "LIMIT", None, None, None, "BAD_CHECKSUM"]
    assert other.column(1).to_pylist() == other.column(0).to_pylist()
    assert convert_table(dataclasses.replace(table, rows=rows), ["fault"], types="spark").column(
        0
    ).to_pylist() == ["77", "LIMIT", None, None, None, "BAD_CHECKSUM"]


# ---- other readers of the interface


def test_pyarrow_takes_a_table():
    table = scan_records(RAW, RAW)
    whole = pa.table(table)
    whole.validate(full=True)
    assert whole.num_rows == 10 and whole.schema == to_arrow.make_schema("kafka.records")
    assert whole.equals(table.to_arrow()) and whole.schema.names == table.columns
    assert whole["value"].to_pylist() == [r.value for r in ROWS] * 2
    assert pa.schema(table) == whole.schema
    for _ in range(2):  # the table can be read again
        assert pa.RecordBatchReader.from_stream(table).read_all() == whole


def test_what_was_marked_is_exported_as_marked():
    """One bad header is no reason to give nothing."""
    raw = make_batch_with_long_header(1)
    table = scan_records(raw, errors="mark")
    exported = pa.table(table)
    assert (
        exported.num_rows == len(table)
        and exported["headers"].to_pylist()
        == convert_table(table, ["headers"], errors="mark").column(0).to_pylist()
    )
    with pytest.raises(ValueError, match="at least 1 row, not 0"):
        to_arrow.make_reader(table, rows=0)


def test_nothing_shares_the_memory_of_rows():
    """A row alone is contiguous for numpy, and the memory may be the caller's, to be used again."""
    into = np.empty(2, kafka.BATCH)
    batch = to_arrow.to_batch(
        kafka.scan(encode_batch([Record(5, 1_000)]), into=into), ["base_offset", "max_timestamp"]
    )
    before = batch.to_pylist()
    kafka.scan(encode_batch([Record(777, 2_000)]), into=into)
    assert batch.to_pylist() == before


def test_the_stream_is_in_parts():
    table = wirescan.scan(ORDERS, "kafka.records")
    reader = to_arrow.make_reader(table, rows=5000)
    parts = [batch.num_rows for batch in reader]
    assert parts == [5000] * 5 + [2708] and sum(parts) == len(table)


def test_polars_takes_a_table():
    import polars

    table = wirescan.scan(ORDERS, "kafka.records")
    frame = polars.DataFrame(table)
    assert frame.height == len(table) and frame["offset"].to_list() == table["offset"].tolist()
    assert [[k, v] for k, v in frame.select("key", "value").head(50).rows()] == list_values(
        table[:50]
    )
    assert frame["key"].null_count() == (table["key_size"] < 0).sum()


def test_duckdb_takes_a_table():
    import duckdb

    table = wirescan.scan(ORDERS, "kafka.records")
    connection = duckdb.connect()
    connection.register("records", table)
    count, last, longest = connection.sql(
        'select count(*), max("offset"), max(octet_length(value)) from records'
    ).fetchall()[0]
    assert (count, last, longest) == (
        len(table),
        int(table["offset"].max()),
        int(table["value_size"].max()),
    )
    rows = connection.sql('select key, value from records order by "offset" limit 50').fetchall()
    assert [list(row) for row in rows] == list_values(table[:50])


def test_pandas_takes_a_table():
    import pandas

    table = scan_records(RAW)
    take = getattr(
        pandas.DataFrame, "from_arrow", None
    )  # since pandas 3; pyarrow is the way before
    frame = take(table) if take else pa.table(table).to_pandas()
    assert frame["offset"].tolist() == [0, 1, 2, 3, 4] and frame["value"].iloc[0] == LONG
    assert frame["key"].isna().tolist() == [False, True, False, False, False]


def test_tables_without_a_format():
    rows = np.zeros(2, HEAD)
    rows["size"] = 1, 2
    table = FrameTable((memoryview(b"abc"),), rows)
    assert table.to_arrow(["size"])["size"].to_pylist() == [1, 2]
    assert pa.table(table).schema.names == table.columns == ["fault"]


# ---- files, piece by piece


@pytest.mark.parametrize("format", ["kafka.batches", "kafka.records", "kafka.headers"])
@pytest.mark.parametrize("size", [1, 30_000, 1 << 30])
def test_batches_over_slices_are_the_whole(format, size):
    columns = [*to_arrow.list_default_columns(format), "_file", "_start"]
    whole = convert_table(wirescan.scan(SEGMENT, format), columns, binary="binary", file=SEGMENT)
    slices = plan(SEGMENT, format, size)
    parts = [
        part
        for piece in slices
        for part in iter_batches(
            piece.path, piece.start, piece.stop, format=format, columns=columns
        )
    ]
    for part in parts:
        part.validate(full=True)
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]))


def test_batches_have_about_the_given_size():
    parts = list(iter_batches(SEGMENT, format="kafka.records", batch_bytes=20_000))
    assert (
        sum(part.num_rows for part in parts) == len(wirescan.scan(SEGMENT, "kafka.records"))
        and len(parts) > 12
    )


def test_iter_tables_yields_all_rows():
    tables = list(iter_tables(SEGMENT, format="kafka.records", piece=10_000))
    whole = wirescan.scan(SEGMENT, "kafka.records")
    assert [row for table in tables for row in list_values(table)] == list_values(whole)
    assert sum((table.positions.tolist() for table in tables), []) == whole.positions.tolist()


def test_batches_without_records_are_tables_without_rows(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(encode_batch([], base_offset=5) * 3)
    tables = list(iter_tables(str(path), format="kafka.records"))
    assert [len(table) for table in tables] == [0] and len(tables[0].outer) == 3
    assert list(iter_batches(str(path), format="kafka.records")) == []
    path.write_bytes(encode_batch([], base_offset=5) * 3 + RAW)
    assert [batch.num_rows for batch in iter_batches(str(path), format="kafka.records")] == [5]


def test_iter_tables_takes_bounded_memory(tmp_path):
    path = tmp_path / "large.log"
    path.write_bytes(encode_batch([b"x" * 1000] * 16) * 2000)  # 32 MB
    tracemalloc.start()
    count = sum(
        len(table) for table in iter_tables(str(path), format="kafka.records", piece=1 << 20)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 32_000 and peak < 8 << 20


def test_errors_name_the_file_and_the_offset_in_it(tmp_path):
    path = str(tmp_path / "bad.log")
    Path(path).write_bytes(RAW * 3 + RAW[:-1] + b"\xff" + RAW)
    for piece in (100, 1 << 20):
        with pytest.raises(FrameError) as caught:
            list(iter_batches(path, len(RAW), format="kafka.records", batch_bytes=piece))
        assert (caught.value.source, caught.value.offset) == (path, 3 * len(RAW))
        for errors, rows in (("mark", 21), ("skip", 20)):
            parts = list(
                iter_batches(path, format="kafka.records", errors=errors, batch_bytes=piece)
            )
            assert sum(part.num_rows for part in parts) == rows


@pytest.mark.parametrize("tail", [RAW[:-1], RAW[:9], bytes(5000)])
def test_a_file_that_ends_inside_a_batch(tmp_path, tail):
    path = tmp_path / "cut.log"
    path.write_bytes(RAW * 2 + tail)
    for errors in ("strict", "mark", "skip"):
        for piece in (100, 1 << 20):
            parts = iter_batches(
                str(path), format="kafka.records", errors=errors, batch_bytes=piece
            )
            assert (
                sum((part.column("offset").to_pylist() for part in parts), [])
                == [0, 1, 2, 3, 4] * 2
            )


def test_bad_headers_in_a_file_name_the_file(tmp_path):
    path = str(tmp_path / "bad.log")
    Path(path).write_bytes(RAW + make_batch_with_long_header(1))
    with pytest.raises(FrameError) as caught:
        list(iter_batches(path, format="kafka.records", check=False))
    assert caught.value.source == path and caught.value.offset > len(RAW)


def test_a_file_that_shrank(tmp_path):
    path = str(tmp_path / "shrinks.log")
    Path(path).write_bytes(RAW * 100)
    reading = iter_tables(path, format="kafka.records", piece=len(RAW) * 10)
    assert len(next(reading)) == 50
    os.truncate(path, len(RAW) * 15)
    ends = f"ends at {len(RAW) * 15}, before {len(RAW) * 100}: it was cut while it was read"
    with pytest.raises(EOFError, match=ends):
        list(reading)
    with pytest.raises(EOFError, match="it was cut while it was read"):
        list(iter_batches(path, 0, len(RAW) * 20, format="kafka.records"))


def test_a_file_with_nothing_to_read(tmp_path):
    path = tmp_path / "empty.log"
    path.touch()
    assert list(iter_batches(str(path), format="kafka.records")) == []
    path.write_bytes(bytes(5000))
    assert list(iter_batches(str(path), format="kafka.records")) == []
    with pytest.raises(FileNotFoundError, match="No such file.*empty.log.none"):
        list(iter_batches(str(path) + ".none", format="kafka.records"))


def test_limits_and_checks_are_passed_on(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(RAW[:-1] + b"\1")
    assert (
        sum(
            part.num_rows
            for part in iter_batches(
                str(path), format="kafka.records", check=False, columns=["offset"], errors="mark"
            )
        )
        >= 5
    )
    with pytest.raises(FrameError, match="LIMIT"):
        list(iter_batches(SEGMENT, format="kafka.records", limits=Limits(rows=10)))


def test_batches_pickle():
    batch = convert_table(scan_records(RAW), binary="binary")
    assert pickle.loads(pickle.dumps(batch)).equals(batch)


def test_a_forged_place_is_refused_and_nothing_wraps():
    table = kafka.records(kafka.scan(RAW))
    for start in (2**63 - 1, 2**40, -1):
        rows = table.rows.copy()
        rows["start"][0] = start
        with pytest.raises(ValueError, match="points outside"):
            to_arrow.to_batch(FrameTable(table.buffers, rows, (), table.format), ["key", "value"])


def test_selected_columns_alone_are_exported():
    raw = encode_batch([Record(1, 0, None, b"one"), Record(2, 0, b"k", b"")])
    some = wirescan.scan(raw, "kafka.records")[["offset", "key"]]
    for selection in (some, some[:2], wirescan.join([some, some])[2:]):
        exported = pa.table(selection)
        assert exported.schema.names == ["offset", "key"]
        assert exported["key"].to_pylist() == [None, b"k"]


def test_pandas_and_numpy_are_told_what_to_call():
    """Both would take a table for a list of rows, and these for lists of bytes."""
    import pandas

    table = wirescan.scan(kafka.encode_batch([b"one", b"two"]), "kafka.records")
    for call in pandas.DataFrame, pandas.Series, np.asarray, np.array:
        with pytest.raises(
            TypeError,
            match=r"kafka.records is not an array: use table.to_pandas\(\) for pandas",
        ):
            call(table)
    assert table.to_pandas()["value"].tolist() == [b"one", b"two"]


@pytest.mark.parametrize("rows", [slice(7, 9), slice(0, 0), [11, 3, 3, 8]])
def test_few_rows_read_few_rows_of_the_table_around_them(rows):
    """An export of many batches of one record would otherwise be quadratic."""
    batches = b"".join(
        encode_batch([Record(offset=number, timestamp=1000 + number)]) for number in range(12)
    )
    records = kafka.records(kafka.scan(batches))
    chosen = records[rows]
    offsets = chosen["offset"].tolist()
    found = find_column(chosen, "base_timestamp")
    assert len(found.table) <= max(offsets, default=-1) - min(offsets, default=0) + 1
    assert found.read_numbers().tolist() == [1000 + offset for offset in offsets]
    for name in ("base_timestamp", "timestamp_type", "codec", "control"):
        values = records.to_arrow([name])[name].to_pylist()
        assert chosen.to_arrow([name])[name].to_pylist() == [values[offset] for offset in offsets]
    for row in chosen:
        assert row.base_timestamp == 1000 + row.offset
