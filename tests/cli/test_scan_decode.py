"""`wirescan scan --decode`: decoded payloads in each output, with selections and --follow."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import parse_lines, run
from tests.support.follower import append, start
from wirescan.decoding.json_output import iter_json_values
from wirescan.kafka import Record, encode_batch

PAYLOADS = [b'{"a": 1, "b": {"c": "\xc3\xa9,\\n"}}', b'{"a":', None, b'{"a": 2, "b": null}']
REASON = "it ends inside its object"
VALUES = [{"a": 1, "b": {"c": "é,\n"}}, None, None, {"a": 2, "b": None}]
DECODE = ("--decode", "value=json")


def make_records(payloads, first=0):
    return [
        Record(first + i, 1_700_000_000_000, b"k%d" % i, payload, [])
        for i, payload in enumerate(payloads)
    ]


@pytest.fixture
def segment(tmp_path):
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch(make_records(PAYLOADS)))
    return path


def test_json_has_nested_values_and_reasons(segment):
    result = run("scan", segment, "--json", *DECODE, "--columns", "offset,value,key")
    assert result.exit_code == 0, result.output
    rows = parse_lines(result)
    assert [list(row) for row in rows] == [["offset", "value", "value_fault", "key"]] * 4
    assert [row["value"] for row in rows] == VALUES
    assert [row["value_fault"] for row in rows] == [None, REASON, None, None]
    assert [row["key"] for row in rows] == ["k0", "k1", "k2", "k3"]


def test_csv_has_json_in_its_cells(segment):
    result = run("scan", segment, "--csv", *DECODE, "--columns", "offset,value")
    head, *rows = csv.reader(io.StringIO(result.stdout_bytes.decode(), newline=""))
    assert head == ["offset", "value", "value_fault"]
    assert [json.loads(row[1]) if row[1] else None for row in rows] == VALUES
    assert [row[2] for row in rows] == ["", REASON, "", ""]


def test_text_has_json_or_the_reason(segment):
    result = run("scan", segment, *DECODE, "--columns", "offset,value")
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert lines == [
        ["offset", "value"],
        ["0", '{"a":1,"b":{"c":"é,\\n"}}'],
        ["1", f"!! {REASON}"],
        ["2", "-"],
        ["3", '{"a":2,"b":null}'],
    ]


def test_text_of_a_hostile_payload_is_safe_and_short(tmp_path):
    path = tmp_path / f"{0:020}.log"
    hostile = json.dumps({"a": "\x1b[2J\u202e" * 1000}, ensure_ascii=False)
    path.write_bytes(encode_batch(make_records([hostile.replace("\x1b", "\\u001b").encode()])))
    line = run("scan", path, *DECODE, "--columns", "value").stdout.splitlines()[1]
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert line.startswith('{"a":"\\u001b[2J\\u202e')
    assert len(line) == 1000


def test_text_of_a_text_is_the_text(segment):
    result = run("scan", segment, "--decode", "key=string", "--columns", "key")
    assert result.stdout.split() == ["key", "k0", "k1", "k2", "k3"]


def test_arrow_and_parquet_have_typed_columns(segment, tmp_path):
    out = tmp_path / "out"
    tables = []
    for suffix in ("arrow", "parquet"):
        file = out.with_suffix(f".{suffix}")
        result = run("scan", segment, *DECODE, "--columns", "offset,value", "-o", file)
        assert result.exit_code == 0, result.output
        is_arrow = suffix == "arrow"
        tables.append(pa.ipc.open_stream(file).read_all() if is_arrow else pq.read_table(file))
    for table in tables:
        assert table.column_names == ["offset", "value", "value_fault"]
        assert table["value"].to_pylist() == VALUES
        assert table["value"].type.field("a").type == pa.int64()
        assert table["value_fault"].to_pylist() == [None, REASON, None, None]
    stdout = run("scan", segment, *DECODE, "--arrow", "--limit", 1).stdout_bytes
    assert pa.ipc.open_stream(stdout).read_all()["value"].to_pylist() == VALUES[:1]


def test_arrow_of_no_rows_has_the_column_of_reasons(segment):
    result = run("scan", segment, *DECODE, "--arrow", "--limit", 0, "--columns", "value")
    assert result.exit_code == 0, result.output
    table = pa.ipc.open_stream(result.stdout_bytes).read_all()
    assert table.column_names == ["value", "value_fault"]
    assert len(table) == 0


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%o %s\\n", '0 {"a":1,"b":{"c":"\\u00e9,\\n"}}\n1 -\n2 -\n3 {"a":2,"b":null}\n'),
        ("%{value_fault};", f"-;{REASON};-;-;"),
        ("%S %k,", f"{len(PAYLOADS[0])} k0,5 k1,-1 k2,{len(PAYLOADS[3])} k3,"),
    ],
)
def test_a_template_has_json(segment, template, expected):
    result = run("scan", segment, *DECODE, "--template", template, "--null", "-")
    assert result.exit_code == 0, result.output
    assert result.stdout == expected


@pytest.mark.parametrize(
    ("selection", "offsets"),
    [
        (("--limit", 1), [0]),
        (("--tail", 2), [2, 3]),
        (("--key", "k3"), [3]),
        (("--where", "offset >= 1"), [1, 2, 3]),
    ],
)
def test_selections_apply_to_the_payloads(segment, selection, offsets):
    # JSON FILE gives the types, so that a selection does not change them.
    types = segment.with_name("types.json")
    types.write_text('{"a": "int64", "b": {"c": "string"}}')
    rows = parse_lines(
        run("scan", segment, "--json", "--decode", f"value=json:{types}", *selection)
    )
    assert [row["offset"] for row in rows] == offsets
    assert [row["value"] for row in rows] == [VALUES[offset] for offset in offsets]


def test_types_are_those_of_the_first_payloads_of_all_files(tmp_path):
    for i, payload in enumerate((b'{"a": 1}', b'{"a": 2, "b": "x"}')):
        path = tmp_path / f"{i:020}.log"
        path.write_bytes(encode_batch(make_records([payload], first=i)))
    rows = parse_lines(run("scan", tmp_path, "--json", *DECODE))
    assert [row["value"] for row in rows] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_rows_before_damage_are_written_in_strict_mode(segment):
    raw = segment.read_bytes()
    second = bytearray(encode_batch(make_records(PAYLOADS[:1], first=4)))
    second[-1] ^= 1
    segment.write_bytes(raw + second + encode_batch(make_records(PAYLOADS[:1], first=5)))
    result = run("scan", segment, "--json", *DECODE, "--errors", "strict")
    assert result.exit_code == 1
    assert [json.loads(line)["value"] for line in result.stdout.splitlines()] == VALUES
    assert "BAD_CHECKSUM" in result.stderr


def test_bytes_inside_payloads_are_in_the_encoding(tmp_path):
    schema = tmp_path / "order.avsc"
    schema.write_text(
        '{"type": "record", "name": "R", "fields": [{"name": "raw", "type": "bytes"}]}'
    )
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch(make_records([b"\x04\xff\x00", b"\x04\xff"])))
    options = ("--decode", f"value=avro:{schema}", "--encoding", "value=hex", "--json")
    rows = parse_lines(run("scan", path, *options))
    assert [row["value"] for row in rows] == [{"raw": "ff00"}, None]
    assert rows[1]["value_fault"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--decode", "valu=json"), "valu"),
        (("--decode", "offset=json", "--json"), "its values are not byte strings"),
        (("--decode", "offset=json", "--template", "%o"), "its values are not byte strings"),
        (("--decode", "value=jso"), "there is no decoder 'jso'"),
        (("--decode", "value=json", "--columns", "offset"), "the columns are offset"),
        (("--decode", "value=avro:missing.avsc"), "missing.avsc: no such file"),
    ],
)
def test_what_cannot_be_decoded(segment, options, message):
    result = run("scan", segment, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_followed_rows_are_decoded_as_they_come(segment):
    with start(segment, "--json", "--follow", "--tail", "1", *DECODE) as follower:
        assert json.loads(follower.read(1)[0])["value"] == {"a": 2, "b": None}
        append(segment, encode_batch(make_records([b'{"a": 7}', b"x"], first=4)))
        rows = [json.loads(line) for line in follower.read(2)]
    assert [row["value"] for row in rows] == [{"a": 7, "b": None}, None]
    assert rows[1]["value_fault"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (
            pa.array([0, None, -(2**63)], pa.timestamp("ms", "UTC")),
            ["1970-01-01T00:00:00.000Z", None, -(2**63)],
        ),
        (pa.array([1], pa.timestamp("s")), ["1970-01-01T00:00:01"]),
        (pa.array([-1, 2**31 - 1], pa.date32()), ["1969-12-31", "5881580-07-11"]),
        (pa.array([1, 86_400_000], pa.int32()).view(pa.time32("ms")), ["00:00:00.001", 86_400_000]),
        (pa.array([-1_500_000_000, 0], pa.duration("ns")), ["-1.5s", "0s"]),
        (pa.array([0.1, float("nan"), None], pa.float32()), [0.1, "NaN", None]),
        (
            pa.array([[("a", 1), ("a", 2)], None], pa.map_(pa.string(), pa.int32())),
            [{"a": 2}, None],
        ),
        (pa.array([[(True, 1)]], pa.map_(pa.bool_(), pa.int32())), [{"true": 1}]),
        (
            pa.array([[(1.5, b"a")]], pa.map_(pa.float64(), pa.binary())),
            [[{"key": 1.5, "value": "61"}]],
        ),
        (pa.array([[1], None, [2, 3], []]), [[1], None, [2, 3], []]),
        (pa.array([{}, None], pa.struct([])), [{}, None]),
    ],
)
def test_values_of_json(array, expected):
    assert list(iter_json_values(array, "hex")) == expected
    assert list(iter_json_values(array.slice(1), "hex")) == expected[1:]


def test_few_rows_are_converted_at_a_time_if_they_have_many_values(monkeypatch):
    monkeypatch.setattr("wirescan.decoding.json_output.MOST_VALUES", 10)
    lists = pa.array([[i] * 7 for i in range(9)])
    rows = iter_json_values(lists, "utf8")
    assert next(rows) == [0] * 7
    held = rows.gi_frame.f_locals["todo"]
    assert sum(map(len, held)) == 8
    assert [row[0] for row in rows] == list(range(1, 9))
