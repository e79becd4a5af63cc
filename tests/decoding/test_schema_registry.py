"""Avro after Confluent's header: several schemas in a topic, servers and directories of schemas."""

import io
import json
import os
import pickle
import random
import socket

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro.utils import generate_many

from tests.support.avro_bytes import array, encode, frame, record
from tests.support.command import run
from tests.support.fake_registry import USER, serve_schemas
from wirescan.decoding import schema_registry
from wirescan.decoding.avro_values import AvroDecoder
from wirescan.decoding.notation import parse_decoder
from wirescan.decoding.schema_registry import SchemaRegistry
from wirescan.kafka import Record, encode_batch

FIRST = record(("id", "int"), ("name", "string"), ("old", array("int")))
SECOND = record(("id", "long"), ("name", ["null", "string"]), ("more", "double", 0.5))
NAMED = record(("e", {"type": "enum", "name": "E", "symbols": ["A"]}), ("again", "E"), name="N")
MAPS = {"type": "map", "values": array("long")}
# Pairs of a writer's schema and a reader's schema that fits.
PAIRS = {
    "numbers": (record(("a", "int"), ("b", "int"), ("c", "long"), ("d", "float")),
                record(("a", "long"), ("b", "float"), ("c", "double"), ("d", "double"))),
    "order and skipped": (record(("a", "int"), ("b", "string"), ("c", array("long"))),
                          record(("c", array("double")), ("a", "int"))),
    "skipped names": (record(("a", NAMED), ("m", MAPS), ("z", "int"), name="Outer"),
                      record(("z", "int"), name="Outer")),
    "defaults": (record(("z", "int")), record(
        ("z", "int"), ("a", "int", -3), ("b", "string", "é"), ("c", array("int"), [1, 2]),
        ("d", {"type": "map", "values": "boolean"}, {"k": True}), ("e", ["null", "int"], None),
        ("f", "double", 1.5), ("g", "boolean", False), ("h", "float", 2))),
    "to union": (record(("a", "int"), ("b", "string")),
                 record(("a", ["null", "int"]), ("b", ["string", "null"]))),
    "from union": (record(("a", ["int", "long"])), record(("a", "long"))),
    "text": (record(("a", "string")), record(("a", "bytes"))),
}  # fmt: skip


def write_schemas(folder, schemas):
    for number, schema in schemas.items():
        (folder / f"{number}.avsc").write_text(json.dumps(schema))
    return str(folder)


def decode(decoder, payloads):
    values, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    return values.to_pylist(maps_as_pydicts="strict"), reasons.to_pylist()


@pytest.mark.parametrize("name", PAIRS)
def test_resolved_values_are_those_of_fastavro(name, tmp_path):
    writer, reader = PAIRS[name]
    random.seed(name)
    registry = SchemaRegistry(write_schemas(tmp_path, {7: writer}))
    raw = [encode(writer, value) for value in generate_many(fastavro.parse_schema(writer), 50)]
    decoder = AvroDecoder(json.dumps(reader), registry=registry)
    values, reasons = decode(decoder, [frame(7, payload) for payload in raw])
    assert reasons == [None] * 50
    schemas = [fastavro.parse_schema(schema) for schema in (writer, reader)]
    for value, item in zip(values, raw):
        expected = fastavro.schemaless_reader(io.BytesIO(item), *schemas)
        if name == "numbers":
            expected["b"] = float(np.float32(expected["b"]))  # fastavro does not round it
        assert value == expected


def test_several_schemas_become_columns_of_the_latest(tmp_path):
    location = write_schemas(tmp_path, {1: FIRST, 2: SECOND})
    first = [frame(1, encode(FIRST, {"id": i, "name": "a", "old": [i]})) for i in range(3)]
    second = [frame(2, encode(SECOND, {"id": 9, "name": None, "more": 2.0}))]
    decoder = parse_decoder(f"avro:registry={location}")
    decoder.fit(pa.array([None, *first, *second], pa.binary()))
    assert decoder.type == pa.struct(
        [("id", pa.int64()), ("name", pa.string()), ("more", pa.float64())]
    )
    values, reasons = decode(decoder, [first[0], *second, first[2], None])
    assert reasons == [None] * 4
    assert values == [
        {"id": 0, "name": "a", "more": 0.5},
        {"id": 9, "name": None, "more": 2.0},
        {"id": 2, "name": "a", "more": 0.5},
        None,
    ]


def test_fields_without_a_default_and_other_types(tmp_path):
    reader = record(("id", "long"), ("new", "string"), ("name", "int"))
    decoder = AvroDecoder(
        json.dumps(reader), registry=SchemaRegistry(write_schemas(tmp_path, {1: FIRST, 2: SECOND}))
    )
    payloads = [
        frame(1, encode(FIRST, {"id": 1, "name": "x", "old": []})),
        frame(2, encode(SECOND, {"id": 1, "name": None, "more": 1.0})),
        frame(2, encode(SECOND, {"id": 1, "name": "x", "more": 1.0})),
    ]
    values, reasons = decode(decoder, payloads)
    assert values == [None, {"id": 1, "new": None, "name": None}, None]
    reason = "a value has a type that the reader's schema does not have"
    assert reasons == [reason, None, reason]


UNFIT_DEFAULTS = [
    *(("float", 1e39), ("double", 10**400), (array("float"), [-1e300])),
    *(("int", 1 << 31), ("int", -(1 << 31) - 1), ("long", 1 << 63)),
    *(("string", 5), ("boolean", 0), (record(("x", "int"), name="I"), {})),
]


@pytest.mark.parametrize("kind, default", UNFIT_DEFAULTS, ids=lambda value: f"{value!r:.20}")
def test_a_default_that_does_not_fit_refuses_the_payload(kind, default, tmp_path):
    writer, reader = record(("a", "int")), record(("a", "int"), ("b", kind, default))
    registry = SchemaRegistry(write_schemas(tmp_path, {1: writer}))
    decoder = AvroDecoder(json.dumps(reader), registry=registry)
    values, reasons = decode(decoder, [frame(1, encode(writer, {"a": 1}))])
    assert values == [None]
    assert reasons == ["schema 1: field b has a default that does not fit its type"]


@pytest.mark.parametrize("kinds, default", [(["float", "double"], 1e39), (["int", "long"], 2**40)])
def test_the_default_of_a_union_is_of_the_first_type_that_has_it(kinds, default, tmp_path):
    writer, reader = record(("a", "int")), record(("a", "int"), ("b", kinds, default))
    registry = SchemaRegistry(write_schemas(tmp_path, {1: writer}))
    decoder = AvroDecoder(json.dumps(reader), registry=registry)
    values, reasons = decode(decoder, [frame(1, encode(writer, {"a": 1}))])
    assert reasons == [None]
    assert values == [{"a": 1, "b": {kinds[0]: None, kinds[1]: default}}]


def test_enums_and_aliases(tmp_path):
    writer = record(
        ("e", {"type": "enum", "name": "E", "symbols": ["A", "B", "X"]}), ("was", "int")
    )
    reader = record(("e", {"type": "enum", "name": "E", "symbols": ["B", "A"]}))
    reader["fields"].append({"name": "now", "type": "int", "aliases": ["was"]})
    registry = SchemaRegistry(write_schemas(tmp_path, {1: writer}))
    payloads = [frame(1, encode(writer, {"e": symbol, "was": 5})) for symbol in "ABX"]
    values, reasons = decode(AvroDecoder(json.dumps(reader), registry=registry), payloads)
    assert values == [{"e": "A", "now": 5}, {"e": "B", "now": 5}, None]
    reader["fields"][0]["type"]["default"] = "B"
    values, reasons = decode(AvroDecoder(json.dumps(reader), registry=registry), payloads)
    assert values[2] == {"e": "B", "now": 5}


def test_a_skipped_type_may_contain_itself(tmp_path):
    inner = record(("next", ["null", "L"]), name="L")
    writer = record(("l", inner), ("z", "int"))
    registry = SchemaRegistry(write_schemas(tmp_path, {1: writer}))
    decoder = AvroDecoder(json.dumps(record(("z", "int"))), registry=registry)
    values, reasons = decode(
        decoder, [frame(1, b"\x02" * n + b"\0" + b"\x0a") for n in (0, 9, 9999)]
    )
    assert values == [{"z": 5}, {"z": 5}, None]
    assert reasons == [None, None, "its values are nested too deeply"]


HEADERS = [b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x63ab"]


def test_bad_headers_are_refused(tmp_path):
    decoder = parse_decoder(f"avro:registry={write_schemas(tmp_path, {1: FIRST})}")
    good = frame(1, encode(FIRST, {"id": 1, "name": "", "old": []}))
    decoder.fit(pa.array([*HEADERS, good], pa.binary()))
    values, reasons = decode(decoder, [*HEADERS, good, None])
    assert [value is None for value in values] == [True] * len(HEADERS) + [False, True]
    header = "it does not begin with Confluent's header"
    unknown = [f"the registry has no schema {number}" for number in (2**32 - 1, 99)]
    assert reasons == [header] * 4 + [*unknown, None, None]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_directory_with_other_files_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "1.avsc")
    (tmp_path / "2.avsc").mkdir()
    decoder = parse_decoder(f"avro:registry={write_schemas(tmp_path, {3: FIRST})}")
    good = frame(3, encode(FIRST, {"id": 1, "name": "", "old": []}))
    payloads = [frame(1, b""), frame(2, b""), good]
    decoder.fit(pa.array(payloads, pa.binary()))
    values, reasons = decode(decoder, payloads)
    assert values[2] is not None
    assert reasons == [f"schema {n} of the registry: it is no regular file" for n in (1, 2)] + [
        None
    ]


def test_the_size_of_a_schema_counts_bytes():
    text = json.dumps({**FIRST, "doc": "é" * 700_000}, ensure_ascii=False)
    answer = json.dumps({"schema": text}, ensure_ascii=False).encode()
    with serve_schemas({1: answer}) as (address, _):
        found = SchemaRegistry(f"http://{address}").find(1)
    assert found == (None, "schema 1 of the registry: it has more than 1,048,576 bytes")


def test_a_server_is_asked_once_for_each_id():
    with serve_schemas({1: FIRST, 2: SECOND}, asks_user=True) as (address, asked):
        user = USER.replace(":", "%3A").replace("%3A", ":", 1)
        decoder = parse_decoder(f"avro:registry=http://{user}@{address}/path/")
        payloads = [
            frame(1, encode(FIRST, {"id": i, "name": "", "old": []})) for i in range(10)
        ] + [frame(5, b"")] * 10
        decoder.fit(pa.array(payloads, pa.binary()))
        for _ in range(3):
            values, reasons = decode(decoder, payloads)
            assert [value["id"] for value in values[:10]] == list(range(10))
            assert reasons[10:] == ["the registry has no schema 5"] * 10
        assert sorted(asked) == ["/path/schemas/ids/1", "/path/schemas/ids/5"]


def test_the_user_may_be_in_the_environment(monkeypatch):
    name, _, password = USER.partition(":")
    with serve_schemas({1: FIRST}, asks_user=True) as (address, _):
        hint = "status 401 for /schemas/ids/1: give the user in the URL"
        with pytest.raises(ConnectionError, match=hint) as error:
            SchemaRegistry(f"http://{address}").find(1)
        copied = pickle.loads(pickle.dumps(error.value))  # from a task of Spark, for example
        assert (str(copied), copied.status) == (str(error.value), 401)
        monkeypatch.setenv("WIRESCAN_REGISTRY_USER", name)
        monkeypatch.setenv("WIRESCAN_REGISTRY_PASSWORD", password)
        assert json.loads(SchemaRegistry(f"http://{address}").find(1).text) == FIRST


@pytest.mark.parametrize(
    "answer",
    [b"", b"[1]", b'{"schema": 3}', b"\xff", b"[" * 100_000, b'{"schema":"' + b"a" * 3_000_000],
)
def test_bad_answers_refuse_the_payloads(answer):
    with serve_schemas({1: answer, 2: SECOND}) as (address, _):
        decoder = AvroDecoder(json.dumps(SECOND), registry=SchemaRegistry(f"http://{address}"))
        good = frame(2, encode(SECOND, {"id": 1, "name": "x", "more": 1.0}))
        values, reasons = decode(decoder, [frame(1, b"\0"), good])
        assert values == [None, {"id": 1, "name": "x", "more": 1.0}]
        assert reasons[0].startswith("schema 1 of the registry: ")


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_schemas_of_other_kinds_are_refused(kind):
    answer = json.dumps({"schema": "{}", "schemaType": kind}).encode()
    with serve_schemas({1: answer}) as (address, _):
        found = SchemaRegistry(f"http://{address}").find(1)
        assert found.reason == "schema 1 of the registry: it is not an Avro schema"


def test_an_avro_schema_may_have_a_kind_of_null():
    answer = json.dumps({"schema": '"int"', "schemaType": None, "references": None}).encode()
    with serve_schemas({1: answer}) as (address, _):
        assert SchemaRegistry(f"http://{address}").find(1).text == '"int"'


@pytest.mark.parametrize(
    "status, hint",
    [(404, "the URL must have the path of its interface"), (403, "give the user"), (500, "")],
)
@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_an_error_that_is_not_about_the_id_ends_the_decoding(kind, status, hint):
    with serve_schemas({1: status}) as (address, _):
        decoder = parse_decoder(f"{kind}:registry=http://{address}")
        with pytest.raises(ConnectionError, match=f"status {status} for /schemas/ids/1.*{hint}"):
            decoder.fit(pa.array([frame(1, b"\0")]))


@pytest.mark.parametrize(
    "body, is_missing",
    [
        (b'{"error_code": 40403, "message": "Schema not found"}', True),
        (b'{"error_code": 404, "message": "HTTP 404 Not Found"}', False),
        (b'{"error_code": "40403"}', False),
        (b"[40403]", False),
        (b"", False),
        (b"[" * 100_000, False),
        (b"\xff", False),
    ],
)
def test_bodies_of_status_404(body, is_missing):
    assert schema_registry._is_error_of_registry(body) == is_missing


def test_hostile_ids_cause_few_requests(monkeypatch):
    monkeypatch.setattr(schema_registry, "MAX_UNKNOWN", 5)
    with serve_schemas({1: FIRST}) as (address, asked):
        decoder = AvroDecoder(json.dumps(FIRST), registry=SchemaRegistry(f"http://{address}"))
        values, reasons = decode(decoder, [frame(i, b"") for i in range(100, 200)])
        assert len(asked) == 5
        assert reasons[-1] == "the registry was asked for too many unknown schemas"


def test_a_server_that_does_not_answer_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match=r"schema registry 127.0.0.1: timed out"):
            SchemaRegistry(f"http://u:secret@{address}", seconds=0.2).find(1)
    with pytest.raises(OSError, match="refused"):
        SchemaRegistry(f"http://{address}").find(1)


@pytest.mark.parametrize("location", ["ftp://a", "http://", "http://a:b"])
def test_other_locations_are_refused(location):
    with pytest.raises(ValueError):
        SchemaRegistry(location)


def test_a_directory_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        parse_decoder(f"avro:registry={tmp_path / 'nowhere'}")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        parse_decoder(f"avro:registry={tmp_path / 'file'}")


def test_decoders_are_pickled(tmp_path):
    decoder = AvroDecoder(
        json.dumps(FIRST), registry=SchemaRegistry(write_schemas(tmp_path, {1: FIRST}))
    )
    payload = frame(1, encode(FIRST, {"id": 1, "name": "x", "old": []}))
    expected = decode(decoder, [payload])
    assert decode(pickle.loads(pickle.dumps(decoder)), [payload]) == expected


def test_a_sample_without_schemas_gives_no_type(tmp_path):
    with pytest.raises(ValueError, match="give a schema"):
        AvroDecoder(registry=SchemaRegistry(str(tmp_path))).fit(pa.array([b"x"], pa.binary()))
    with pytest.raises(ValueError, match="needs a schema or a registry"):
        AvroDecoder()


@pytest.mark.parametrize("schema", ["", "reader.avsc,"])
def test_the_command_converts(schema, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_schemas(tmp_path, {1: FIRST, 2: SECOND})
    (tmp_path / "reader.avsc").write_text(json.dumps(record(("id", "long"))))
    values = [frame(1, encode(FIRST, {"id": i, "name": "n", "old": [i]})) for i in range(5)]
    values += [None, b"x", frame(2, encode(SECOND, {"id": 8, "name": None, "more": 1.0}))]
    records = [Record(i, 1000, None, value) for i, value in enumerate(values)]
    (tmp_path / "0.log").write_bytes(encode_batch(records))
    result = run("convert", "0.log", "out", "--decode", f"value=avro:{schema}registry=.")
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out")
    ids = [value and value["id"] for value in table["value"].to_pylist()]
    assert ids == [0, 1, 2, 3, 4, None, None, 8]
    assert table["value_fault"].is_valid().to_pylist() == [False] * 6 + [True, False]
    names = ["id"] if schema else ["id", "name", "more"]
    assert [field.name for field in table["value"].type] == names
