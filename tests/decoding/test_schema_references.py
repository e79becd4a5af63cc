"""Avro schemas that refer to other schemas of a registry."""

import contextlib
import io
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.avro_bytes import array, encode, frame, record
from tests.support.fake_registry import serve_schemas
from wirescan.decoding.avro_references import include_references
from wirescan.decoding.avro_schema import parse_schema
from wirescan.decoding.avro_values import AvroDecoder
from wirescan.decoding.notation import parse_decoder
from wirescan.decoding.schema_registry import MOST_REFERENCES, SchemaRegistry

COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
# Declares two types, in the namespace paint.
PAINT = {**record(("color", COLOR), ("coats", "int"), name="Paint"), "namespace": "paint"}
# A full name, and the types of PAINT by their full names.
WALL = record(("paint", "paint.Paint"), ("before", ["null", "paint.Color"]), name="home.Wall")
# The inner type stands before the outer one, and names of the own namespace have no dots.
HOUSE = {
    **record(
        ("door", "paint.Color"),
        ("walls", array("Wall")),
        ("garden", {"type": "map", "values": ["null", "paint.Paint", "Wall"]}),
        ("size", {"type": "fixed", "name": "Size", "size": 2}),
        ("again", "Size"),
        name="House",
    ),
    "namespace": "home",
}
PAINTED = {"color": "BLUE", "coats": 2}
VALUE = {
    "door": "RED",
    "walls": [{"paint": PAINTED, "before": "RED"}, {"paint": PAINTED, "before": None}],
    "garden": {"a": None, "b": ("paint.Paint", PAINTED)},
    "size": b"ab",
    "again": b"cd",
}


def refer(name, subject=None, version=1):
    return {"name": name, "subject": subject or name, "version": version}


def answer(schema, *references):
    return json.dumps({"schema": json.dumps(schema), "references": references}).encode()


def encode_house(value):
    """Return Avro's bytes by fastavro, which is given the referred schemas by name."""
    named = {}
    for schema in (PAINT, WALL):
        fastavro.parse_schema(schema, named_schemas=named)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(HOUSE, named_schemas=named), value)
    return file.getvalue()


def test_types_of_other_schemas():
    """Both schemas refer to PAINT, and the subject of one has a slash."""
    answers = {
        "/schemas/ids/7": answer(HOUSE, refer("home.Wall", "the wall/s", 3), refer("paint.Paint")),
        "/subjects/the%20wall%2Fs/versions/3": answer(WALL, refer("paint.Paint")),
        "/subjects/paint.Paint/versions/1": answer(PAINT),
    }
    with serve_schemas(answers) as (address, asked):
        decoder = parse_decoder(f"avro:registry=http://{address}")
        payloads = pa.array([frame(7, encode_house(VALUE))] * 2)
        decoder.fit(payloads)
        values, reasons = decoder.decode(payloads)
    assert reasons.to_pylist() == [None, None]
    expected = {**VALUE, "garden": {"a": None, "b": {"Paint": PAINTED, "Wall": None}}}
    assert values.to_pylist(maps_as_pydicts="strict") == [expected] * 2
    assert sorted(asked) == sorted(answers)


def test_a_completed_schema_declares_each_type_once():
    text = include_references(json.dumps(HOUSE), [json.dumps(PAINT), json.dumps(WALL)])
    assert parse_schema(text).name == "home.House"
    fastavro.parse_schema(json.loads(text))
    assert text.count('"symbols"') == 1 and text.count('"coats"') == 1


FULL_COLOR = {**COLOR, "namespace": ""}
NAMED_COLOR = {**COLOR, "namespace": "n"}
# A schema, one that it refers to, and the whole schema.
NAMES = {
    "in a union": (["string", "Color"], COLOR, ["string", FULL_COLOR]),
    "the whole schema": ("Color", COLOR, FULL_COLOR),
    "in an object": ({"type": "Color", "x": 1}, COLOR, {"type": FULL_COLOR, "x": 1}),
    "in maps and arrays": (
        [{"type": "map", "values": "Color"}, {"type": "array", "items": "Color"}],
        COLOR,
        [{"type": "map", "values": FULL_COLOR}, {"type": "array", "items": "Color"}],
    ),
    "of one of several types": ("paint.Color", [COLOR, PAINT], {**COLOR, "namespace": "paint"}),
    "in its own namespace": (
        {**record(("c", "Color"), name="n.R"), "namespace": "ignored"},
        NAMED_COLOR,
        {**record(("c", NAMED_COLOR)), "namespace": "n"},
    ),
    "without a namespace": (
        {**record(("c", "Color")), "namespace": "n"},
        {**COLOR, "name": "Color"},
        {**record(("c", FULL_COLOR)), "namespace": "n"},
    ),
    "a full name": ("n.Color", {**COLOR, "name": "n.Color"}, NAMED_COLOR),
    "words of schemas": (
        {**record(("a", array("int"))), "namespace": "n"},
        [{**COLOR, "name": f"n.{name}"} for name in ("array", "int", "record", "map")],
        {**record(("a", array("int"))), "namespace": "n"},
    ),
    "itself": (
        record(("r", ["null", "R"], None), ("c", "Color", "RED")),
        COLOR,
        {**record(("r", ["null", "R"], None), ("c", FULL_COLOR, "RED")), "namespace": ""},
    ),
    "aliases": (
        "n.Color",
        {**NAMED_COLOR, "aliases": ["Old"], "doc": "Color"},
        {**NAMED_COLOR, "aliases": ["Old"], "doc": "Color"},
    ),
    "unknown": ({"type": "array", "items": "Q"}, COLOR, {"type": "array", "items": "Q"}),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_become_declarations(name):
    schema, other, expected = NAMES[name]
    assert json.loads(include_references(json.dumps(schema), [json.dumps(other)])) == expected


BAD = {
    "no JSON": (WALL, ["{"]),
    "a number": (WALL, ["3"]),
    "no type": (WALL, ['{"name": "x"}']),
    "twice": (WALL, [json.dumps(PAINT)] * 2),
    "missing": (WALL, ["[]"]),
    "fields": (WALL, ['{"type": "record", "name": "Q", "fields": 3}']),
    "a field": (WALL, ['{"type": "record", "name": "Q", "fields": [3]}']),
    "a field's type": (WALL, ['{"type": "record", "name": "Q", "fields": [{"name": "a"}]}']),
    "a name": (WALL, ['{"type": "record", "name": {}, "fields": []}']),
    "a namespace": (WALL, ['{"type": "record", "name": "Q", "namespace": [], "fields": []}']),
    "fields of an array": ({"type": "array", "items": "Q", "fields": 3}, ["[]"]),
    "items of a record": ({"type": "record", "name": "R", "items": 3, "fields": 3}, ["[]"]),
    "deep": (WALL, ["[" * 100_000]),
    "deep and whole": (WALL, ['{"type":' * 900 + '"int"' + "}" * 900]),
    "an endless number": (WALL, ['{"type": "fixed", "name": "F", "size": 1e999}']),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_schemas_refuse_their_payloads(name):
    schema, others = BAD[name]
    answers = {
        "/schemas/ids/1": answer(schema, *(refer(str(i)) for i in range(len(others)))),
        "/schemas/ids/2": answer(record(("a", "int"))),
    }
    for i, other in enumerate(others):
        answers[f"/subjects/{i}/versions/1"] = json.dumps({"schema": other}).encode()
    with serve_schemas(answers) as (address, _):
        decoder = AvroDecoder(registry=SchemaRegistry(f"http://{address}"))
        payloads = pa.array([frame(1, b"\0\0"), frame(2, b"\2")])
        decoder.fit(payloads)
        values, reasons = decoder.decode(payloads)
        assert values.to_pylist() == [None, {"a": 1}]
        assert reasons[0].as_py().startswith("schema 1")
        with pytest.raises(ValueError, match=r"that the registry has \(schema 1.*: give a schema"):
            AvroDecoder(registry=SchemaRegistry(f"http://{address}")).fit(payloads[:1])


BAD_REFERENCES = {
    "no object": (3, "a reference has no name"),
    "no subject": ({"name": "a", "version": 1}, "a reference has no name"),
    "a version": ({"name": "a", "subject": "a", "version": "latest"}, "a reference has no name"),
    "infinite": ({"name": "a", "subject": "a", "version": float("inf")}, "a reference has no name"),
    "lost": (refer("a"), "the registry has no version 1 of a"),
    "of another kind": (refer("b"), "it is not an Avro schema"),
}


@pytest.mark.parametrize("name", BAD_REFERENCES)
def test_bad_references(name):
    reference, message = BAD_REFERENCES[name]
    answers = {
        "/schemas/ids/1": answer(WALL, reference),
        "/subjects/a/versions/1": None,
        "/subjects/b/versions/1": b'{"schema": "{}", "schemaType": "JSON"}',
    }
    with serve_schemas(answers) as (address, _):
        found = SchemaRegistry(f"http://{address}").find(1)
    assert found.text is None
    assert found.reason.startswith(f"schema 1 of the registry: {message}")


WORDS = st.sampled_from(["record", "enum", "array", "map", "int", "Q", "n.Q", "n", ""])
KEYS = ("name", "namespace", "fields", "items", "values", "symbols")
CONTENTS = st.recursive(
    WORDS | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {"type": inner},
            optional={key: inner | st.lists(inner, max_size=2) for key in KEYS},
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(CONTENTS, st.lists(CONTENTS, max_size=3))
def test_any_json_is_a_schema_or_refused(schema, others):
    with contextlib.suppress(ValueError):
        text = include_references(json.dumps(schema), [json.dumps(other) for other in others])
        parse_schema(text)


def test_references_that_lead_back_and_many_of_them():
    answers = {
        "/schemas/ids/1": answer(record(("c", "Color")), refer("Color", "0")),
        "/schemas/ids/2": answer(record(("c", "int")), refer("1", "1")),
        "/subjects/0/versions/1": answer(COLOR, refer("Color", "0")),
    }
    for i in range(1, 1000):
        answers[f"/subjects/{i}/versions/1"] = answer("int", refer(str(i + 1)))
    with serve_schemas(answers) as (address, asked):
        registry = SchemaRegistry(f"http://{address}")
        assert parse_schema(registry.find(1).text).fields[0].schema.symbols == ("RED", "BLUE")
        assert len(asked) == 2
        found = registry.find(2)
        assert len(asked) == 2 + 1 + MOST_REFERENCES
    assert found == (
        None,
        f"schema 2 of the registry: it refers to more than {MOST_REFERENCES} schemas",
    )


def test_a_saved_schema_needs_no_others(tmp_path):
    answers = {
        "/schemas/ids/3": answer(WALL, refer("paint.Paint")),
        "/subjects/paint.Paint/versions/1": answer(PAINT),
    }
    with serve_schemas(answers) as (address, _):
        registry = SchemaRegistry(f"http://{address}")
        registry.save([3], str(tmp_path / "schemas"))
        with pytest.raises(ValueError, match="the registry has no schema 4"):
            registry.save([4], str(tmp_path / "schemas"))
    assert [path.name for path in (tmp_path / "schemas").iterdir()] == ["3.avsc"]
    value = {"paint": PAINTED, "before": None}
    schema = json.loads((tmp_path / "schemas/3.avsc").read_text())
    payloads = pa.array([frame(3, encode(schema, value))])
    decoder = parse_decoder(f"avro:registry={tmp_path}/schemas")
    decoder.fit(payloads)
    assert decoder.decode(payloads).values.to_pylist() == [value]
