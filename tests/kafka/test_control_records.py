"""The column `control` of kafka.records: the types of control records, everywhere by name."""

import csv
import dataclasses
import json
import pickle

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import run
from tests.support.paths import CORPUS, KAFKA_CORPUS
from wirescan import kafka
from wirescan.export.batches import iter_batches
from wirescan.export.parquet import convert
from wirescan.frames.registry import format_of
from wirescan.kafka import ControlType, Record, encode_batch
from wirescan.reading.expression import parse_expression
from wirescan.reading.filters import prune_frames

VALUE = b"\0\0\0\0\0\0"
TYPES = [
    (b"\0\0\0\0", "ABORT"),
    (b"\0\0\0\1", "COMMIT"),
    (b"\0\0\0\2", "LEADER_CHANGE"),
    (b"\0\0\0\3", "SNAPSHOT_HEADER"),
    (b"\0\0\0\4", "SNAPSHOT_FOOTER"),
    (b"\0\0\0\5", "KRAFT_VERSION"),
    (b"\0\0\0\6", "KRAFT_VOTERS"),
    (b"\0\1\0\1 and more", "COMMIT"),
    (b"\0\0\0\7", "UNKNOWN"),
    (b"\0\0\1\1", "UNKNOWN"),
    (b"\0\0\xff\xff", "UNKNOWN"),
    (b"\0\0\0", "UNKNOWN"),
    (b"", "UNKNOWN"),
    (None, "UNKNOWN"),
]
NAMES = [None, None, *(name for _, name in TYPES), None]


def make_log(codec="none"):
    """Two ordinary records, a control record of each key, and an ordinary one."""
    ordinary = [Record(0, key=b"\0\0\0\1", value=b"v"), Record(1, key=None, value=b"v")]
    batches = [encode_batch(ordinary, codec=codec)]
    for offset, (key, _) in enumerate(TYPES, 2):
        record = Record(offset, key=key, value=VALUE)
        batches.append(encode_batch([record], codec=codec, transactional=True, control=True))
    batches.append(encode_batch([Record(2 + len(TYPES), key=b"\0\0\0\0", value=b"v")]))
    return b"".join(batches)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "orders-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(make_log())
    return str(path)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_python_has_the_numbers_and_arrow_the_names(codec):
    table = wirescan.scan(make_log(codec), "kafka.records")
    numbers = table["control"]
    assert numbers.dtype == np.int8
    assert numbers.tolist() == [-1 if name is None else ControlType[name] for name in NAMES]
    arrow = table.to_arrow(["control", "offset"])
    assert arrow.schema.field("control").type == pa.string()
    assert arrow["control"].to_pylist() == NAMES
    assert table.to_polars(["control"])["control"].to_list() == NAMES
    assert "control" not in table.columns and "control" in table.format.all_columns


@pytest.mark.parametrize("path", sorted(KAFKA_CORPUS.rglob("*.log")), ids=lambda path: path.name)
def test_types_of_recorded_logs(path):
    table = wirescan.scan(path, "kafka.records", errors="mark")
    batches = table.outer
    expected = [
        int.from_bytes(row.key[2:4], "big")
        if not row.fault and batches[row.parent].is_control
        else -1
        for row in table
    ]
    assert table["control"].tolist() == expected


def test_exports_without_a_table_have_the_column():
    for codec in ("none", "zstd"):
        for columns in (["control"], ["start", "key", "control", "parent", "control"]):
            raw = make_log(codec) * 3
            batches = list(iter_batches(raw, format="kafka.records", columns=columns))
            table = wirescan.scan(raw, "kafka.records").to_arrow(columns, binary="binary")
            assert pa.Table.from_batches(batches).equals(table.combine_chunks())
    only_data = encode_batch([Record(0, key=b"\0\0\0\1")])
    (batch,) = iter_batches(only_data, format="kafka.records", columns=["control"])
    assert batch.to_pydict() == {"control": [None]}


def test_only_control_batches_are_read(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("keys are read")

    table = wirescan.scan(encode_batch([Record(0, key=b"\0\0\0\1")]), "kafka.records")
    monkeypatch.setattr("wirescan.kafka.control_records._read_types", refuse)
    assert table["control"].tolist() == [-1]


def test_conditions_name_the_types(log):
    table = wirescan.scan(log, "kafka.records")
    for condition, passes in (
        ("control == COMMIT", lambda name: name == "COMMIT"),
        ("control == commit", lambda name: name == "COMMIT"),
        ("control != COMMIT", lambda name: name not in ("COMMIT", None)),
        ("control in (ABORT, KRAFT_VOTERS)", lambda name: name in ("ABORT", "KRAFT_VOTERS")),
        ("control not in (ABORT)", lambda name: name not in ("ABORT", None)),
        ("control starts_with 'SNAPSHOT'", lambda name: bool(name) and name[0] == "S"),
        ("control is null", lambda name: name is None),
        ("control is not null", lambda name: name is not None),
        ("not (control is null)", lambda name: name is not None),
        ("control == UNKNOWN or offset == 0", lambda name: name == "UNKNOWN"),
    ):
        expected = [row for row, name in enumerate(NAMES) if passes(name)]
        expected = [0, *expected] if "offset" in condition else expected
        assert wirescan.where(table, condition)["offset"].tolist() == expected, condition
        read = iter_batches(log, format="kafka.records", columns=["offset"], where=condition)
        assert [row["offset"] for batch in read for row in batch.to_pylist()] == expected, condition
        result = run("scan", log, "--columns", "offset", "--csv", "--where", condition)
        assert [int(line) for line in result.stdout.split()[1:]] == expected, condition
    with pytest.raises(ValueError, match="no value has the name COMIT; did you mean COMMIT"):
        wirescan.where(table, "control == COMIT")


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("control == COMMIT", "control"),
        ("control != COMMIT", "control"),
        ("control is not null", "control"),
        ("control ~ 'VOTERS$'", "control"),
        ("control in (ABORT, UNKNOWN)", "control"),
        ("control is null", "all"),
        ("control == COMMIT or offset == 0", "all"),
    ],
)
def test_conditions_exclude_data_batches(condition, kept):
    format = format_of("kafka.records")
    batches = wirescan.scan(make_log(), "kafka.batches")
    left = prune_frames(batches, format, parse_expression(condition, format), "strict")
    assert len(left) == (len(TYPES) if kept == "control" else len(batches))
    marked = prune_frames(batches, format, parse_expression(condition, format), "mark")
    assert len(marked) == len(batches)


def test_the_command_writes_names(log, tmp_path):
    columns = ("--columns", "offset,control")
    lines = run("scan", log, "--json", *columns).stdout.splitlines()
    assert [json.loads(line)["control"] for line in lines] == NAMES
    rows = list(csv.DictReader(run("scan", log, "--csv", *columns).stdout.splitlines()))
    assert [row["control"] or None for row in rows] == NAMES
    text = run("scan", log, *columns).stdout.splitlines()
    assert [line.split()[1] for line in text] == ["control", *(name or "-" for name in NAMES)]
    template = run("scan", log, "--template", "%{control},", "--null", "-").stdout
    assert template.split(",")[:-1] == [name or "-" for name in NAMES]
    output = tmp_path / "out.parquet"
    assert run("convert", log, output, *columns).exit_code == 0
    assert pq.read_table(output)["control"].to_pylist() == NAMES
    refused = run("scan", log, "--columns", "controls")
    assert "there is no column 'controls'" in refused.stderr and "control" in refused.stderr
    formats = map(json.loads, run("formats", "--json").stdout.splitlines())
    computed = {format["name"]: format["computed"] for format in formats}
    assert computed["kafka.records"] == ["control"]
    assert computed["kafka.batches"] == ["timestamp_type"]


def test_lazy_sources_and_parquet_have_the_column(log, tmp_path):
    frame = wirescan.scan_polars(log, format="kafka.records", columns=["offset", "control"])
    assert frame.collect()["control"].to_list() == NAMES
    commits = frame.filter(pl.col("control") == "COMMIT").collect()
    assert commits["offset"].to_list() == [3, 9]
    frames = wirescan.dataset(log, format="kafka.records", columns=["offset", "control"])  # noqa: F841
    query = "SELECT control, count(*) FROM frames WHERE control <> 'UNKNOWN' GROUP BY 1 ORDER BY 1"
    counts = duckdb.sql(query).fetchall()
    assert counts[:2] == [("ABORT", 1), ("COMMIT", 2)] and len(counts) == 7
    convert(log, tmp_path / "out", "kafka.records", columns=["control"])
    assert pq.read_table(tmp_path / "out")["control"].to_pylist() == NAMES


def test_parts_joins_and_pickles_keep_the_column(log):
    table = wirescan.scan(log, "kafka.records")
    numbers = table["control"].tolist()
    assert table[3:5]["control"].tolist() == numbers[3:5]
    assert wirescan.join([table, table])["control"].tolist() == numbers * 2
    assert pickle.loads(pickle.dumps(table))["control"].tolist() == numbers
    some = table[["control", "offset"]]
    assert some.columns == ["control", "offset"]
    for selected in (some, pickle.loads(pickle.dumps(some)), wirescan.join([some])):
        assert selected.to_arrow()["control"].to_pylist() == NAMES
        assert repr(selected).splitlines()[0].split() == ["control", "offset"]
        assert repr(selected).splitlines()[4].split() == ["COMMIT", "3"]
    without = table[["offset", "value"]]
    assert "control" not in without.format.all_columns
    with pytest.raises(KeyError, match="no column 'control'"):
        without["control"]
    alone = dataclasses.replace(table, outer=None)
    with pytest.raises(KeyError, match="'control' follows from 'is_control'"):
        alone["control"]


def test_headers_have_the_column_of_their_record():
    raw = encode_batch([Record(0, headers=[("a", b"1")])])
    raw += encode_batch([Record(1, key=b"\0\0\0\1", headers=[("b", None)])], control=True)
    headers = wirescan.scan(raw, "kafka.headers")
    assert headers["control"].tolist() == [-1, ControlType.COMMIT]
    assert headers.to_arrow(["control"])["control"].to_pylist() == [None, "COMMIT"]


def test_bad_records_have_no_type():
    raw = bytearray(make_log())
    last_control = wirescan.scan(raw, "kafka.batches")["start"][len(TYPES)]
    raw[int(last_control) + 70] ^= 1
    table = wirescan.scan(bytes(raw), "kafka.records", errors="mark")
    assert table["fault"].nonzero()[0].tolist() == [1 + len(TYPES)]
    assert table["control"].tolist()[-2:] == [-1, -1]
    arrow = [
        row["control"]
        for batch in iter_batches(
            bytes(raw), format="kafka.records", columns=["control"], errors="mark"
        )
        for row in batch.to_pylist()
    ]
    assert arrow == table.to_arrow(["control"])["control"].to_pylist()


@pytest.mark.parametrize(
    ("column", "value"),
    [("start", 1 << 40), ("start", -5), ("key_at", 1 << 31), ("buffer", 9), ("parent", 99)],
)
def test_rows_that_point_outside_are_refused(column, value):
    table = wirescan.scan(make_log(), "kafka.records")
    rows = table.rows.copy()
    rows[column][3] = value
    with pytest.raises(ValueError, match="outside|not there"):
        dataclasses.replace(table, rows=rows)["control"]


def test_the_columns_of_messages_of_old_versions():
    for path in sorted((CORPUS / "kafka").glob("*/*.log")):
        table = wirescan.scan(path, "kafka.records", errors="skip")
        old = table["kind"] < 2
        assert (table["control"][old] == -1).all()
    raw = kafka.encode_message_set([b"a", b"b"])
    assert wirescan.scan(raw, "kafka.records")["control"].tolist() == [-1, -1]
