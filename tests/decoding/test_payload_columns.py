"""Decoded columns of record batches, tables, files and Parquet."""

import json
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import run
from tests.support.paths import ORDERS
from wirescan.decoding.json_values import JsonDecoder
from wirescan.decoding.payload_columns import PayloadColumns, decode_table
from wirescan.export.batches import iter_batches
from wirescan.export.parquet import convert
from wirescan.files.source import expand
from wirescan.kafka import Record, encode_batch

COLUMNS = ["offset", "key", "value"]


def read(source, decode, **options):
    batches = iter_batches(
        source, format="kafka.records", columns=COLUMNS, decode=decode, **options
    )
    return pa.Table.from_batches(batches)


def parse_slowly(payload):
    """Return (the object in a payload, whether it is refused)."""
    if payload is None:
        return None, False
    try:
        value = json.loads(payload)
    except ValueError:
        return None, True
    return (value, False) if isinstance(value, dict) else (None, True)


def write_segment(path, values, size=100):
    """Write records with these values, `size` in a batch. Their keys are Kafka's integers."""
    bounds = [*range(0, len(values), size), len(values)]
    with open(path, "wb") as file:
        for start, stop in pairwise(bounds):
            records = [Record(i, 1000, i.to_bytes(4, "big"), values[i]) for i in range(start, stop)]
            file.write(encode_batch(records))
    return str(path)


def test_the_corpus_is_what_a_slow_decoder_reads():
    for path in expand(str(ORDERS), files=r"\.log$"):
        raw = read(path, None)
        table = read(path, {"value": "json", "key": "string"})
        assert table.column_names == ["offset", "key", "key_fault", "value", "value_fault"]
        slow = [parse_slowly(payload) for payload in raw["value"].to_pylist()]
        assert table["value"].to_pylist() == [value for value, _ in slow]
        assert table["value_fault"].is_valid().to_pylist() == [refused for _, refused in slow]
        keys = [None if key is None else key.decode() for key in raw["key"].to_pylist()]
        assert table["key"].to_pylist() == keys


@pytest.mark.parametrize("binary", ["binary", "view", "large_binary"])
@pytest.mark.parametrize("filters", [(), [("offset", ">=", 10)]], ids=["columns", "tables"])
def test_each_way_of_reading_decodes(tmp_path, binary, filters):
    values = [None, b'{"a":1.5}', b"x", *(b'{"a":%d}' % i for i in range(297))]
    path = write_segment(tmp_path / "0.log", values)
    table = read(path, {"value": "json", "key": "int"}, binary=binary, filters=filters)
    first = 10 if filters else 0
    assert table["key"].to_pylist() == list(range(300))[first:]
    expected = [parse_slowly(value)[0] for value in values]
    assert table["value"].to_pylist() == expected[first:]
    assert table["value_fault"].null_count == 300 - 1 + (first > 2) - first


def test_nulls_before_the_first_payload(tmp_path):
    """The batches of nulls have the type of the payloads that come later."""
    values = [None] * 500 + [b'{"a":1}'] * 500
    path = write_segment(tmp_path / "0.log", values)
    batches = iter_batches(
        path, format="kafka.records", columns=COLUMNS, batch_bytes=2000, decode={"value": "json"}
    )
    batches = list(batches)
    assert batches[0].column("value").null_count == len(batches[0])
    assert pa.Table.from_batches(batches)["value"].to_pylist() == [None] * 500 + [{"a": 1}] * 500


def test_tables_are_decoded():
    table = wirescan.scan(encode_batch([b'{"a":1}', b"", Record()]), "kafka.records")
    decoded = decode_table(table, {"value": "json"}).read_all()
    assert decoded["value"].to_pylist() == [{"a": 1}, None, None]
    assert decoded["value_fault"].is_valid().to_pylist() == [False, True, False]
    names = pa.table(table).column_names
    names.insert(names.index("value") + 1, "value_fault")
    assert decoded.column_names == names
    noted = pa.table(table).replace_schema_metadata({"source": "orders-0"})
    assert decode_table(noted, {"value": "json"}).schema.metadata == {b"source": b"orders-0"}
    empty = decode_table(table[:0], {"value": JsonDecoder()})
    assert empty.read_all().num_rows == 0
    assert empty.schema.field("value").type == pa.string()


@pytest.mark.parametrize(
    "decode, message",
    [
        ({"nothing": "json"}, "the columns are offset"),
        ({"offset": "json"}, "not byte strings"),
        ({"value": "xml"}, "no decoder"),
    ],
)
def test_other_columns_are_refused(decode, message, tmp_path):
    path = write_segment(tmp_path / "0.log", [b"x"])
    with pytest.raises(ValueError, match=message):
        read(path, decode)
    with pytest.raises(ValueError, match=message):
        convert(path, tmp_path / "out", "kafka.records", decode=decode)
    assert not (tmp_path / "out").exists()


def test_a_column_of_reasons_must_be_new():
    schema = pa.schema([("value", pa.binary()), ("value_fault", pa.string())])
    with pytest.raises(ValueError, match="value_fault exists"):
        PayloadColumns({"value": "json"}).check(schema)


@pytest.mark.parametrize("decode", [["value"], {"value": 3}])
def test_other_types_are_refused(decode):
    with pytest.raises(TypeError):
        PayloadColumns(decode)


def test_parquet_has_the_decoded_columns(tmp_path):
    out = tmp_path / "out"
    arguments = ["convert", ORDERS, out, "--columns", "offset,key,value", "--decode", "value=json"]
    result = run(*arguments, "--decode", "key=string")
    assert result.exit_code == 0, result.output
    expected = pa.concat_tables(
        read(path, {"value": "json", "key": "string"})
        for path in expand(str(ORDERS), files=r"\.log$")
    )
    written = pq.read_table(out)
    assert written.replace_schema_metadata().equals(expected)
    assert written["value"].type == expected["value"].type


def test_parquet_of_payloads_without_members(tmp_path):
    path = write_segment(tmp_path / "0.log", [b"x"])
    result = run("convert", path, tmp_path / "out", "--decode", "value=json", "--decode", "key=int")
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out")
    assert table["value"].to_pylist() == [None]
    assert table["value_fault"].to_pylist() == ["it is not an object"]
    assert table["key"].to_pylist() == [0]
    assert "top key" not in result.output  # the first query needs the bytes


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["value"], "is not COLUMN=DECODER"),
        (["value=json", "--decode", "value=int"], "named twice"),
        (["value=json:nowhere.json"], "nowhere.json: no such file"),
    ],
)
def test_the_command_refuses(arguments, message, tmp_path):
    path = write_segment(tmp_path / "0.log", [b"x"])
    result = run("convert", path, tmp_path / "out", "--decode", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
