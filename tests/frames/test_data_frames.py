"""Columns by name, tables of some columns, and tables as Arrow tables and data frames."""

import dataclasses
import itertools
import pickle
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wirescan
from tests.support.paths import ROOT
from wirescan import kafka
from wirescan.core.loop import HEAD
from wirescan.kafka import Record, encode_batch
from wirescan.testing.mutations import flip_bit

ROWS = [
    Record(7, 1_000, b"key", b"value" * 10, [("a", b"1"), ("b", None), ("a", b"")]),
    Record(8, 1_001, None, b""),
    Record(9, 1_002, b"", None, [("z", b"last")]),
]
SECOND = encode_batch([Record(10 + i, value=b"%d" % i) for i in range(20)])
RAW = encode_batch(ROWS) + SECOND


@pytest.fixture
def batches():
    return kafka.scan(RAW)


@pytest.fixture
def records(batches):
    return kafka.records(batches)


# ---- columns by name


def test_a_column_of_bytes_is_an_arrow_array():
    raw = kafka.encode_batch([kafka.Record(1, 0, None, b"one"), kafka.Record(2, 0, b"k", b"")])
    table = wirescan.scan([raw, raw[:-1] + b"\xff"], "kafka.records", errors="mark")
    keys = table["key"]
    assert isinstance(keys, pa.Array) and keys.type == table.to_arrow()["key"].type
    assert keys.to_pylist() == [None, b"k", None]
    assert table["value"].to_pylist() == [b"one", b"", None]
    assert table[:0]["value"].to_pylist() == []
    assert isinstance(table["value_size"], np.ndarray)
    assert table["value_size"].tolist() == table.rows["value_size"].tolist()
    rows = table.rows.copy()
    rows["value_size"][0] = 1 << 20
    with pytest.raises(ValueError, match="row 0 points outside its buffer"):
        dataclasses.replace(table, rows=rows)["value"]


def test_a_column_of_bytes_is_a_view_of_the_buffer():
    data = np.frombuffer(encode_batch([b"x" * 1000] * 50), np.uint8)
    values = kafka.records(kafka.scan(data))["value"]
    addresses = [buffer.address - data.ctypes.data for buffer in values.buffers()[2:]]
    assert addresses and all(0 <= address < len(data) for address in addresses)


def test_every_column_of_exports_can_be_read_by_its_name(records, batches):
    marked = wirescan.scan(RAW + flip_bit(SECOND), "kafka.records", errors="mark")
    for table in (records, batches, kafka.headers(records), marked, records[:0]):
        names = [*table.columns, "_start", "_fault", "_file"]
        arrow = table.to_arrow(names)
        for name in names:
            values = table[name]
            assert len(values) == len(table), name
            if isinstance(values, pa.Array):
                assert values.to_pylist() == arrow[name].to_pylist(), name
    assert records["headers"].to_pylist()[2] == [{"key": b"z", "value": b"last"}]
    assert records["_start"].tolist() == records.positions.tolist()
    assert marked["_fault"].to_pylist()[-1] == "BAD_CHECKSUM" and marked["fault"].dtype == np.uint8


def test_a_number_of_the_frames_around_is_an_array(records):
    offsets = records["base_offset"]
    assert isinstance(offsets, np.ndarray)
    assert offsets.tolist() == [7] * 3 + [10] * 20
    assert records[["base_offset"]]["base_offset"].tolist() == offsets.tolist()
    alone = dataclasses.replace(records, outer=None)
    for key in ("base_offset", ["offset", "base_offset"]):
        with pytest.raises(KeyError, match="'base_offset' is that of an enclosing frame"):
            alone[key]
    rows = records.rows.copy()
    rows["parent"][0] = 7
    with pytest.raises(ValueError, match="a row of kafka.records points outside the table"):
        dataclasses.replace(records, rows=rows)["base_offset"]


def test_a_place_of_numbers_is_a_column_of_lists():
    request = kafka.encode_request(
        "Metadata", 12, {"topics": [{"name": "orders"}]}, correlation_id=1
    )
    table = kafka.requests(bytes(request))
    format = dataclasses.replace(table.format, columns={"client_id": wirescan.Column(items="u1")})
    ids = dataclasses.replace(table, format=format)["client_id"]
    expected = [None if value is None else list(value) for value in table["client_id"].to_pylist()]
    assert ids.to_pylist() == expected


# ---- tables of some columns


def copies_of(table):
    """A table and others that must behave as it does."""
    return [table, pickle.loads(pickle.dumps(table)), table[:2], wirescan.join([table, table])[2:]]


def test_some_columns_are_a_table():
    raw = kafka.encode_batch([kafka.Record(1, 0, None, b"one"), kafka.Record(2, 0, b"k", b"")])
    table = wirescan.scan(raw, "kafka.records")
    some = table[["offset", "key"]]
    for selection in copies_of(some):
        assert selection.dtype.names == (*HEAD.names, "offset", "key_at", "key_size")
        assert repr(selection).splitlines()[0].split() == selection.columns == ["offset", "key"]
        assert [(row.offset, row.key) for row in selection] == [(1, None), (2, b"k")]
        assert selection._repr_html_().count("<tr>") == 3
        assert selection.to_arrow().equals(table.to_arrow(["offset", "key"]))
        assert selection.to_arrow(["key"]).equals(table.to_arrow(["key"]))
        assert selection.positions.tolist() == [0, 0]
    with pytest.raises(KeyError, match="kafka.records holds no 'headers'"):
        some.open("headers")
    assert len(table[[1, 0]]) == 2 and len(table[[]]) == 0  # rows by their numbers


@pytest.mark.parametrize(
    "names",
    [
        ["key", "offset"],
        ["headers"],
        ["headers", "is_control", "key"],
        ["value", "key", "headers", "offset"],
        ["codec", "_start", "base_offset", "_fault"],
        ["size", "start", "key_size"],
        ["fault", "offset", "_file"],
        ["fault"],
        ["_file"],
    ],
)
def test_a_table_of_some_columns_has_them_as_to_arrow(names):
    raw = RAW + flip_bit(SECOND)
    table = wirescan.scan(raw, "kafka.records", errors="mark")
    expected = table.to_arrow(names)
    for selection in (
        table[names],
        pickle.loads(pickle.dumps(table[tuple(names)])),
        table[names][names],
    ):
        assert selection.columns == names
        assert selection.to_arrow().equals(expected) and pa.table(selection).equals(expected)
        assert selection.to_polars().columns == names
        shown = [name for name in names if name != "_file"]
        assert repr(selection).splitlines()[0].split() == shown
        assert repr(selection[0]).startswith("<kafka.records ")
    assert table[names].bad.tolist() == table.bad.tolist()


# ---- data frames


@pytest.mark.parametrize("columns", [None, ["key", "offset"], ["is_control", "_start"]])
def test_a_table_becomes_a_data_frame(records, columns):
    names = records.columns if columns is None else columns
    arrow = records.to_arrow(columns)
    assert arrow.schema.names == names and len(arrow) == len(records)
    assert arrow.equals(records.to_arrow(columns=names))
    assert records.to_polars(columns).columns == names
    frame = records.to_pandas(columns)
    assert list(frame.columns) == names and len(frame) == len(records)
    if "key" in names:
        keys = [None if row.key is None else bytes(row.key) for row in records]
        assert arrow["key"].to_pylist() == frame["key"].tolist() == keys
        assert records.to_polars(columns)["key"].to_list() == keys
    assert records[:0].to_arrow(columns).schema.equals(arrow.schema)


def test_an_unknown_column_of_a_data_frame_is_refused(records):
    with pytest.raises(ValueError, match="kafka.records has no column 'nothing'; it has "):
        records.to_arrow(["nothing"])


def test_bytes_of_a_data_frame_may_be_copied(records):
    for binary, kind in (("binary", pa.binary()), ("large_binary", pa.large_binary())):
        arrow = records.to_arrow(["value", "offset"], binary=binary)
        assert arrow["value"].type == kind
        assert (
            pc.sum(pc.binary_length(arrow["value"])).as_py() == records["value_size"].clip(0).sum()
        )
    with pytest.raises(ValueError, match="binary must be one of view, binary, large_binary"):
        records.to_arrow(binary="views")


MISSING = """
import sys
sys.modules.update(dict.fromkeys({missing}))
import wirescan
from wirescan import kafka, lumberjack
table = kafka.records(kafka.scan(kafka.encode_batch([b"a"])))
try:
    {call}
except ImportError as error:
    print(type(error).__name__, error.name, error)
"""


@pytest.mark.parametrize(
    "missing, call, expected",
    [
        (["pyarrow"], "table.to_arrow()", "Arrow needs pyarrow: pip install 'wirescan[arrow]'"),
        (["pyarrow"], "table['key']", "Arrow needs pyarrow: pip install 'wirescan[arrow]'"),
        (["pyarrow"], "table.to_polars()", "Arrow needs pyarrow: pip install 'wirescan[arrow]'"),
        (["pyarrow"], "table.to_pandas()", "Arrow needs pyarrow: pip install 'wirescan[arrow]'"),
        (
            ["pyarrow"],
            "wirescan.dataset('a.log', format='kafka.records')",
            "dataset needs pyarrow: pip install 'wirescan[arrow]'",
        ),
        (
            ["pyarrow"],
            "wirescan.scan_polars('a.log', format='kafka.records')",
            "scan_polars needs pyarrow: pip install 'wirescan[polars]'",
        ),
        (
            ["polars"],
            "wirescan.scan_polars('a.log', format='kafka.records')",
            "scan_polars needs polars: pip install 'wirescan[polars]'",
        ),
        (
            ["pyarrow"],
            "wirescan.scan('s3://bucket/a.log', 'kafka.records')",
            "an object store needs pyarrow: pip install 'wirescan[arrow]'",
        ),
        (
            ["pyarrow"],
            "lumberjack.documents(lumberjack.events(lumberjack.scan(b'')))",
            "documents needs pyarrow: pip install 'wirescan[arrow]'",
        ),
        (
            ["pyarrow"],
            "wirescan.where(table, 'key ~ \"a\"')",
            "a regular expression needs pyarrow: pip install 'wirescan[arrow]'",
        ),
        (["polars"], "table.to_polars()", "to_polars needs polars: pip install 'wirescan[polars]'"),
        (
            ["pandas"],
            "table.to_pandas()",
            "to_pandas needs pandas: pip install 'wirescan[arrow]' pandas",
        ),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(missing, call, expected):
    program = MISSING.format(missing=missing, call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == f"ModuleNotFoundError {missing[0]} {expected}\n", done.stderr


# ---- all formats

CORPUS = ROOT / "tests/corpus"
SOURCES = {
    "kafka.batches": "kafka/orders-0/00000000000000000000.log",
    "kafka.requests": "kafka-streams/java-4/group-1.requests.bin",
    "lumberjack.frames": "lumberjack/recorded",
    "nats.messages": "nats/recorded",
    "liftbridge.entries": "liftbridge/single/logs/keyed-0-live",
    "thrift.frames": "thrift-go",
}


def iter_nested(table):
    """Yield the first rows of a table and of the tables that can be opened from it."""
    yield table[:50]
    for name in table.format.children:
        inner = table.open(name)
        if len(inner) and inner.format is not table.format:
            yield from iter_nested(inner)


def can_be_read(table, column):
    """Return whether a table has a column: frames of two formats may contain those of one."""
    try:
        table[column]
    except KeyError as error:
        assert "is that of an enclosing frame" in str(error)
        return False
    return True


@pytest.mark.parametrize("name", SOURCES)
def test_any_columns_of_any_format_are_read_shown_and_exported(name):
    choose = random.Random(name)
    path = CORPUS / SOURCES[name]
    paths = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    tables = [wirescan.scan(file, name, errors="mark") for file in paths[:4]]
    for table in itertools.chain.from_iterable(map(iter_nested, tables)):
        columns = [*table.format.all_columns, "_fault"]
        columns = [column for column in columns if can_be_read(table, column)]
        for column in columns:
            values = table[column]
            assert len(values) == len(table)
            if isinstance(values, pa.Array):
                assert values.to_pylist() == table.to_arrow([column])[column].to_pylist()
        for _ in range(5):
            names = choose.sample(columns, min(len(columns), choose.randint(1, 5)))
            some = table[names]
            assert some.columns == names and some.to_arrow().equals(table.to_arrow(names))
            assert "cannot be read" not in repr(some) + some._repr_html_() + repr(list(some[:2]))
