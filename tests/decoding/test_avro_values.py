"""Avro payloads beside fastavro: values, schema resolution, hostile bytes."""

import io
import json
import random
import time
from decimal import Decimal
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from fastavro.utils import generate_many

from tests.support.avro_bytes import array, encode, record
from tests.support.slowness import SLOWNESS
from wirescan.decoding.avro_schema import parse_schema
from wirescan.decoding.avro_values import AvroDecoder
from wirescan.decoding.notation import parse_decoder

SIMPLE = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 3}
INNER = record(("x", "int"), ("y", array(["null", "string"])), name="Inner")
SCHEMAS = {
    "simple": record(*((name, name) for name in SIMPLE)),
    "optional": record(*((name, ["null", name]) for name in SIMPLE[1:])),
    "named": record(("e", ENUM), ("f", FIXED), ("again", "E"), ("more", array("F"))),
    "nested": record(("i", INNER), ("a", array(array("Inner"))), ("o", ["Inner", "null"])),
    "maps": record(("m", {"type": "map", "values": {"type": "map", "values": "long"}})),
    "namespace": {**record(("e", {**ENUM, "namespace": "a.b"}), ("g", "a.b.E")), "namespace": "n"},
    "long": "long",
    "strings": array("string"),
    "empty": record(("r", record(name="Nothing"))),
}
HUGE_COUNT = b"\x80" * 8 + b"\x40\0"
HOSTILE = {
    "nothing": (record(("a", "long")), b""),
    "cut": (record(("a", "string")), b"\x08ab"),
    "leftover": (record(("a", "int")), b"\x02\x02"),
    "no text": (record(("a", "string")), b"\x04\xff\xfe"),
    "huge string": (record(("a", "string")), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    "negative size": (record(("a", "bytes")), b"\x01"),
    "huge count of nulls": (
        record(("a", array("null"))),
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x40\0",
    ),
    "huge count of records": (record(("a", array(record(name="N")))), HUGE_COUNT),
    "smallest count": (
        record(("a", array("null"))),
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0",
    ),
    "negative count": (record(("a", array("int"))), b"\xff\xff\xff\xff\x0f\x02\0"),
    "long varint": (record(("a", "long")), b"\xff" * 20),
    "large int": (record(("a", "int")), b"\x80\x80\x80\x80\x80\x01"),
    "boolean": (record(("a", "boolean")), b"\x02"),
    "symbol": (record(("a", ENUM)), b"\x06"),
    "negative symbol": (record(("a", ENUM)), b"\x01"),
    "branch": (record(("a", ["null", "int"])), b"\x04"),
    "negative branch": (record(("a", ["null", "int"])), b"\x01"),
    "key": (record(("a", {"type": "map", "values": "int"})), b"\x02\x02\xff\x02\0"),
    "decimal": (
        record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1})),
        b"\x04\x27\x10",
    ),
    "wide decimal": (
        record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 38})),
        b"\x22" + b"\x7f" * 17,
    ),
}


def make_values(schema, count):
    """Return random values of a record. fastavro's own decimals may have too many digits."""
    values = list(generate_many(fastavro.parse_schema(schema), count))
    for i, value in enumerate(values):
        for field in schema["fields"]:
            if isinstance(field["type"], dict) and field["type"].get("logicalType") == "decimal":
                value[field["name"]] = Decimal(-i).scaleb(-field["type"].get("scale", 0))
    return values


def read_with_fastavro(raw, writer, reader=None):
    """Return the value; raise an error of fastavro, or ValueError if bytes follow it."""
    file = io.BytesIO(raw)
    schemas = [None if s is None else fastavro.parse_schema(s) for s in (writer, reader)]
    value = fastavro.schemaless_reader(file, *schemas)
    if file.read(1):
        raise ValueError("bytes follow")
    return value


def decode(schema, payloads):
    """Return (values, reasons) as lists."""
    values, reasons = AvroDecoder(json.dumps(schema)).decode(pa.array(payloads, pa.binary_view()))
    values.validate(full=True)
    assert len(values) == len(reasons) == len(payloads)
    return values.to_pylist(maps_as_pydicts="strict"), reasons.to_pylist()


@pytest.mark.parametrize("name", SCHEMAS)
def test_values_are_those_of_fastavro(name):
    schema = SCHEMAS[name]
    random.seed(name)
    expected = list(generate_many(fastavro.parse_schema(schema), 200))
    payloads = [encode(schema, value) for value in expected]
    values, reasons = decode(schema, [*payloads, None])
    assert reasons == [None] * 201
    assert values == [*(read_with_fastavro(raw, schema) for raw in payloads), None]


@pytest.mark.parametrize("name", SCHEMAS)
def test_damaged_bytes_are_accepted_only_as_what_fastavro_reads(name):
    schema = SCHEMAS[name]
    random.seed(name)
    payloads = []
    for value in generate_many(fastavro.parse_schema(schema), 100):
        raw = bytearray(encode(schema, value))
        for _ in range(random.randint(1, 2)):
            raw[random.randrange(len(raw) + 1) :][:1] = b""
            if raw:
                raw[random.randrange(len(raw))] = random.choice([0, 1, 2, 3, 4, 127, 128, 255])
        payloads.append(bytes(raw[: random.randint(0, len(raw))] if random.random() < 0.3 else raw))
    values, reasons = decode(schema, payloads)
    for raw, value, reason in zip(payloads, values, reasons):
        if reason is None:
            assert repr(value) == repr(
                read_with_fastavro(raw, schema)
            )  # NaN is not equal to itself
        else:
            assert value is None


@pytest.mark.parametrize("count", [2, 16, 17, 1000])
def test_the_last_entry_of_a_key_counts(count):
    """fastavro takes the last one too. DuckDB refuses all rows if a map has a key twice."""
    schema = {"type": "map", "values": array("string")}
    maps = [{f"key {i}": [f"value {i}"]} for i in range(count)]
    maps += [{f"key {i}": [f"last {i}"] * 2} for i in range(0, count, 3)]
    raw = b"".join(encode(schema, entry)[:-1] for entry in maps) + b"\0"
    values, reasons = decode(schema, [raw, raw])
    assert reasons == [None, None]
    assert values == [read_with_fastavro(raw, schema)] * 2


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_null_with_a_reason(name):
    schema, raw = HOSTILE[name]
    good = encode(schema, make_values(schema, 1)[0])
    start = time.process_time()
    values, reasons = decode(schema, [good, raw, None, good])
    assert time.process_time() - start < 5 * SLOWNESS
    assert [reason is None for reason in reasons] == [True, False, True, True]
    assert values[1] is None and values[2] is None
    assert values[0] == values[3] is not None


def test_nulls_of_wide_records_are_bounded():
    """A byte can stand for a record of many fields, so values are counted."""
    wide = record(*((f"f{i}", "string") for i in range(5000)), name="Wide")
    schema = record(("a", array(["null", wide])))
    raw = b"\xc0\x9a\x0c" + b"\0" * 100_000 + b"\0"
    values, reasons = decode(schema, [raw] * 3)
    assert values == [None] * 3
    assert reasons == ["it has too many values for its size"] * 3


def test_logical_types():
    def logical(kind, name, **more):
        return {"type": kind, "logicalType": name, **more}

    schema = record(
        ("date", logical("int", "date")),
        ("ms", logical("long", "timestamp-millis")),
        ("us", logical("long", "timestamp-micros")),
        ("local", logical("long", "local-timestamp-micros")),
        ("time", logical("int", "time-millis")),
        ("time_us", logical("long", "time-micros")),
        ("uuid", logical("string", "uuid")),
        ("decimal", logical("bytes", "decimal", precision=9, scale=2)),
        (
            "fixed",
            {"type": "fixed", "name": "D", "size": 8}
            | logical("fixed", "decimal", precision=12, scale=3),
        ),
    )
    random.seed(1)
    payloads = [encode(schema, value) for value in make_values(schema, 50)]
    values, reasons = decode(schema, payloads)
    assert reasons == [None] * 50
    for raw, value in zip(payloads, values):
        expected = read_with_fastavro(raw, schema)
        assert value | {"uuid": UUID(value["uuid"])} == expected
    kinds = [str(field.type) for field in AvroDecoder(json.dumps(schema)).type]
    assert kinds == [
        "date32[day]",
        "timestamp[ms, tz=UTC]",
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
        "time32[ms]",
        "time64[us]",
        "string",
        "decimal128(9, 2)",
        "decimal128(12, 3)",
    ]


@pytest.mark.parametrize(
    "kind, name, per_day",
    [("int", "time-millis", 86_400_000), ("long", "time-micros", 86_400_000_000)],
)
def test_times_are_within_a_day(kind, name, per_day):
    """Arrow has no other times of day: DuckDB ends its database when it reads one."""
    numbers = [0, per_day - 1, -1, per_day, 2**31 - 1 if kind == "int" else 2**63 - 1]
    payloads = [encode(record(("time", kind)), {"time": number}) for number in numbers]
    schema = record(("time", {"type": kind, "logicalType": name}))
    decoded = AvroDecoder(json.dumps(schema)).decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.is_valid().to_pylist() == [True, True, False, False, False]
    assert decoded.reasons.to_pylist() == [None] * 2 + ["a number is outside its range"] * 3


@pytest.mark.parametrize("number", [0, 1, -1, 127, -128, 10**38 - 1, -(10**38) + 1])
@pytest.mark.parametrize("extra", [0, 1, 5])
def test_decimals_of_any_width(number, extra):
    schema = record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 38}))
    size = (number.bit_length() + 8) // 8 + extra
    raw = bytes([2 * size]) + number.to_bytes(size, "big", signed=True)
    values, reasons = decode(schema, [raw])
    assert (int(values[0]["a"]), reasons) == (number, [None])


def test_unions_become_structs():
    schema = record(("u", ["null", "int", "string", ENUM]))
    payloads = [encode(schema, {"u": value}) for value in (None, 1, "x", ("E", "B"))]
    values, reasons = decode(schema, payloads)
    assert reasons == [None] * 4
    nothing = {"int": None, "string": None, "E": None}
    assert [value["u"] for value in values] == [
        None,
        nothing | {"int": 1},
        nothing | {"string": "x"},
        nothing | {"E": "B"},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '"nothing"',
        '{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}',
        json.dumps(record(("a", "int"), ("a", "int"))),
        '{"type": "array"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "enum", "name": "E", "symbols": 3}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": ["A"]}',
        json.dumps({**record(), "fields": [{"name": "a", "type": "int", "aliases": [[]]}]}),
        '["int", "int"]',
        "[" * 100_000,
        '{"type": ' * 1000 + '"int"' + "}" * 1000,
        '{"type": "array", "items": ' * 70 + '"int"' + "}" * 70,
        "3",
        "null",
    ],
)
def test_bad_schemas_are_refused(text, tmp_path):
    with pytest.raises(ValueError):
        AvroDecoder(text)
    path = tmp_path / "schema.avsc"
    path.write_text(text)
    with pytest.raises(ValueError, match="schema.avsc"):
        parse_decoder(f"avro:{path}")


def test_schemas_that_grow_without_bound_are_refused():
    """Each record has two fields of the record before it."""
    text = '"int"'
    for i in range(40):
        text = (
            f'{{"type":"record","name":"R{i}","fields":'
            f'[{{"name":"a","type":{text}}},{{"name":"b","type":"R{i - 1}"}}]}}'
        ).replace('"R-1"', '"int"')
    with pytest.raises(ValueError, match="too many fields"):
        AvroDecoder(text)


def test_names_of_types_are_resolved():
    schema = parse_schema(json.dumps(SCHEMAS["namespace"]))
    assert schema.name == "n.R"
    assert schema.fields[1].schema is schema.fields[0].schema
    assert schema.fields[0].schema.name == "a.b.E"
