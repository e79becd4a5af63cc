"""Lumberjack events as Arrow: documents become typed columns; each bad document is refused."""

import json
import mmap
import struct
import zlib
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wirescan import FrameError, lumberjack
from wirescan.core.strings import ByteStrings
from wirescan.decoding import json_parser as columns
from wirescan.decoding.json_lines import REASONS, make_lines
from wirescan.lumberjack.formats import documents

UTC = pa.timestamp("ns", "UTC")
LIBBEAT = {
    "@timestamp": "2026-11-21T22:50:01.123Z",
    "@metadata": {"beat": "filebeat", "type": "_doc", "version": "9.1.0"},
    "message": 'GET / "quoted"\n\té',
    "tags": ["web", "prod"],
    "log": {"offset": 220, "file": {"path": "/var/log/x"}},
}


def j(sequence, document):
    return b"2J" + struct.pack(">II", sequence, len(document)) + document


def d(sequence, *pairs):
    parts = (struct.pack(">I", len(part)) + part for pair in pairs for part in pair)
    return b"1D" + struct.pack(">II", sequence, len(pairs)) + b"".join(parts)


def scan_events(*texts, errors="mark"):
    header = b"2W" + struct.pack(">I", len(texts))
    raw = header + b"".join(j(i + 1, text) for i, text in enumerate(texts))
    return lumberjack.events(lumberjack.scan(raw, errors=errors), errors=errors)


def read(*texts, errors="mark", **options):
    """Return the validated table, and as lists its documents and its reasons for refusal."""
    table = documents(scan_events(*texts), errors=errors, **options)
    table.validate(full=True)
    return table, table["document"].to_pylist(), table["refused"].to_pylist()


def list_fields(table):
    return {field.name: field.type for field in table.schema.field("document").type}


# ---- accepted documents


def test_a_document_of_libbeat():
    table, (first, empty), _ = read(json.dumps(LIBBEAT).encode(), b"{}", errors="strict")
    names = "sequence version window fault pairs document refused"
    assert table.schema.names == names.split()
    assert table["sequence"].to_pylist() == [1, 2]
    assert table["window"].to_pylist() == [0, 0]
    assert table["version"].to_pylist() == [2, 2]
    assert table["refused"].null_count == 2
    assert list_fields(table) == {
        "@timestamp": UTC,
        "@metadata": pa.struct([("beat", "string"), ("type", "string"), ("version", "string")]),
        "message": pa.string(),
        "tags": pa.list_(pa.string()),
        "log": pa.struct([("offset", pa.int64()), ("file", pa.struct([("path", pa.string())]))]),
    }
    assert first.pop("@timestamp").isoformat() == "2026-11-21T22:50:01.123000+00:00"
    assert first == {name: value for name, value in LIBBEAT.items() if name != "@timestamp"}
    assert set(empty.values()) == {None}
    flat = pa.Table.from_struct_array(table["document"])
    assert flat.num_rows == 2
    assert flat["message"].to_pylist() == [LIBBEAT["message"], None]


def test_only_the_timestamp_field_is_a_timestamp():
    stamps = [
        "2026-11-21T22:50:01Z",
        "2026-11-21T22:50:01.5Z",
        "2026-11-21T22:50:01.123456789Z",
        "2026-11-22T00:50:01.000001+02:00",
        "2026-11-21T22:50:01",
    ]
    texts = [b'{"@timestamp":"%s","day":"2026-11-21"}' % stamp.encode() for stamp in stamps]
    table, _, _ = read(*texts, errors="strict")
    first = 1_795_301_401_000_000_000
    flat = pa.Table.from_struct_array(table["document"])
    assert flat["@timestamp"].cast(pa.int64()).to_pylist() == [
        first,
        first + 500_000_000,
        first + 123_456_789,
        first + 1000,
        first,
    ]
    assert flat.schema.field("day").type == pa.string()  # no other name is a timestamp
    bad = (b'"yesterday"', b"1", b'"3000-01-01T00:00:00Z"')
    _, _, refused = read(*(b'{"@timestamp":%s}' % value for value in bad))
    assert all(refused)
    assert "yesterday" in refused[0]
    schema = pa.schema([("@timestamp", pa.string())])
    table, got, _ = read(b'{"@timestamp":"yesterday"}', schema=schema, others=True)
    assert got == [{"@timestamp": "yesterday"}]
    assert list_fields(table) == {"@timestamp": pa.string()}


# Timestamps in nanoseconds go from 1677-09-21T00:12:43.145224192 to 2262-04-11T23:47:16.854775807.
IN_RANGE = [
    "1677-09-21T00:12:44Z",
    "1678-01-01",
    "1969-12-31T23:59:59.999999Z",
    "2000-01-01T00:30:00+01:00",
    "1999-12-31T23:30:00-01:00",
    "2262-04-11T23:47:16.854775Z",
    "2262-04-12T01:00:00+02:00",
]
OUT_OF_RANGE = [
    "0000-01-01",
    "0001-01-01T00:00:00Z",
    "1677-09-21T00:12:43Z",
    "1677-09-21T01:00:00+02:00",
    "2262-04-11T23:47:17Z",
    "2262-04-11T23:00:00-02:00",
    "3000-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
]


def replace_units(kind):
    """Return the type with microseconds instead of nanoseconds in its timestamps."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, replace_units(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(replace_units(kind.value_type))
    return pa.timestamp("us", kind.tz) if str(kind).startswith("timestamp[ns") else kind


@pytest.fixture(params=["this version", "wraps"])
def reader(request, monkeypatch):
    """Test pyarrow's JSON reader, and a reader that wraps timestamps as pyarrow 22 does."""
    read_json = pa.json.read_json

    def wrap(source, options=None, parse_options=None):
        schema = parse_options.explicit_schema
        parse_options.explicit_schema = pa.schema(replace_units(pa.struct(schema)))
        table = read_json(source, options, parse_options)
        types = [
            schema.field(field.name) if field.name in schema.names else field
            for field in table.schema
        ]
        return table.cast(pa.schema(types), safe=False)

    if request.param == "wraps":
        monkeypatch.setattr(pa.json, "read_json", wrap)
        columns._wraps_timestamps.cache_clear()
        assert columns._wraps_timestamps()
    yield
    columns._wraps_timestamps.cache_clear()


NESTED = pa.schema(
    [
        ("s", pa.struct([("x", pa.string()), ("t", pa.list_(pa.timestamp("ns", "UTC")))])),
        ("l", pa.list_(pa.struct([("t", pa.timestamp("ns", "UTC"))]))),
    ]
)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2020-01-31", "2020-01-31T00:00"),
        ("2020-01-31T12Z", "2020-01-31T12:00"),
        ("2020-01-31 12:30", "2020-01-31T12:30"),
        ("2020-01-31T12:30:59.123456789Z", "2020-01-31T12:30:59.123456789"),
        ("2020-01-31T12:30:59+01", "2020-01-31T11:30:59"),
        ("2020-01-31T12:30:59-0130", "2020-01-31T14:00:59"),
        ("2020-01-31T12:30:59.5+23:59", "2020-01-30T12:31:59.5"),
        ("20200131T123059Z", None),
        ("2020-01-31T24:00:00Z", None),
        ("2020-01-31T12:30:59,5Z", None),
        ("2020-01-31T12:30:59.1234567891Z", None),
        ("2020-031T12:30:59Z", None),
        ("2020-W05-5T12:30:59Z", None),
        ("2016-12-31T23:59:60Z", None),
        ("2020-01-31T12:30:59+24:00", None),
        ("1600-01-31T12:30:59Z", None),
        ("2300-01-31T12:30:59Z", None),
    ],
)
def test_forms_of_the_timestamp(text, time):
    table, _, _ = read(b'{"@timestamp":"%b"}' % text.encode(), errors="mark")
    values = table["document"].combine_chunks().field("@timestamp").cast("int64").to_pylist()
    assert values == [None if time is None else int(np.datetime64(time, "ns").astype(np.int64))]


@pytest.mark.parametrize(
    "form, value, options",
    [
        (b'{"n":[],"@timestamp":"%s"}', lambda document: document["@timestamp"], {}),
        (
            b'{"s":{"t":[null,"2026-11-21","%s"],"x":"y"}}',
            lambda document: document["s"]["t"][2],
            {"schema": NESTED},
        ),
        (
            b'{"n":1,"l":[null,{},{"t":"%s"}]}',
            lambda document: document["l"][2]["t"],
            {"schema": NESTED, "others": True},
        ),
    ],
    ids=["top", "list", "struct"],
)
def test_timestamps_out_of_range_are_refused(reader, form, value, options):
    stamps = IN_RANGE + OUT_OF_RANGE + IN_RANGE
    texts = [form % stamp.encode() for stamp in stamps] + [b"{}"]
    _, got, refused = read(*texts, **options)
    assert [stamp for stamp, why in zip(stamps, refused) if why] == OUT_OF_RANGE
    assert refused[-1] is None
    assert all(stamp in why for stamp, why in zip(stamps, refused) if why)
    times = [datetime.fromisoformat(stamp) for stamp in IN_RANGE]
    times = [time.replace(tzinfo=time.tzinfo or timezone.utc) for time in times]
    assert [value(document) for document in got[:-1] if document is not None] == times * 2
    with pytest.raises(ValueError, match=f"event {len(IN_RANGE)} is refused: .*0000-01-01"):
        read(*texts, errors="strict", **options)


def test_types_cover_all_documents(monkeypatch):
    # With small blocks, the last documents are not in the first block.
    monkeypatch.setattr(columns, "HEAVIEST", 32)
    texts = [b'{"a":null,"l":[]}'] * 50 + [
        b'{"a":1,"l":[null,{"x":1}]}',
        b'{"a":1.5}',
        b'{"late":{"b":true}}',
    ]
    table, got, _ = read(*texts, errors="strict")
    assert list_fields(table) == {
        "@timestamp": UTC,
        "a": pa.float64(),
        "l": pa.list_(pa.struct([("x", pa.int64())])),
        "late": pa.struct([("b", pa.bool_())]),
    }
    assert [document["a"] for document in got[-3:]] == [1.0, 1.5, None]
    assert got[50]["l"] == [None, {"x": 1}]
    assert got[-1]["late"] == {"b": True}
    assert got[0]["l"] == []


def test_numbers_keep_their_values():
    digits = b"9" * 300
    text = b'{"i":-9223372036854775808,"u":9223372036854775808,"d":1e2,"n":-0,"l":%s}' % digits
    _, got, _ = read(text, errors="strict")
    assert got[0] == {
        "@timestamp": None,
        "i": -(2**63),
        "u": 2.0**63,
        "d": 100.0,
        "n": 0,
        "l": 1e300,
    }
    schema = pa.schema([("u", pa.uint64())])
    _, got, _ = read(b'{"u":18446744073709551615}', schema=schema)
    assert got == [{"u": 2**64 - 1}]


def test_white_space_around_and_inside_documents():
    pretty = json.dumps(LIBBEAT, indent=2).replace("\n", "\r\n").encode()
    plain = json.dumps(LIBBEAT).encode()
    _, got, refused = read(b" \n\r\t" + pretty + b"\n\n", plain, b"\n{\n}\r", errors="strict")
    assert got[0] == got[1]
    assert refused == [None] * 3
    # The reader's blocks may end anywhere except inside a line.
    _, got, _ = read(*[b'{\r"a":\n%d\r}' % i for i in range(200_000)], errors="strict")
    assert [document["a"] for document in got] == list(range(200_000))


def test_documents_longer_than_a_block(monkeypatch):
    sizes = (10, 3 << 20, 0, 1 << 20, (1 << 20) - 9, (1 << 20) - 8)
    texts = [json.dumps({"a": "x" * size}).encode() for size in sizes]
    _, got, _ = read(*texts, errors="strict")
    assert got == [{"@timestamp": None, "a": json.loads(text)["a"]} for text in texts]


def test_data_frames_and_bad_frames():
    pairs = [(b"k", b"\xff"), (b"k", b""), (b"", b"v")]
    raw = d(5, *pairs) + j(6, b'{"a":1}') + d(7) + j(8, b"") + b"9Z"
    frames = lumberjack.scan(raw, errors="mark")
    table = documents(lumberjack.events(frames, errors="mark"))
    table.validate(full=True)
    assert table.schema.field("pairs").type == pa.map_(pa.binary(), pa.binary())
    assert table["pairs"].to_pylist() == [pairs, None, [], None, None]
    values = [document and document["a"] for document in table["document"].to_pylist()]
    assert values == [None, 1, None, None, None]
    assert [fault is not None for fault in table["fault"].to_pylist()] == [False] * 3 + [True] * 2
    assert table["refused"].null_count == 5
    skipped = documents(lumberjack.events(frames, errors="mark"), errors="skip")
    assert skipped["sequence"].to_pylist() == [5, 6, 7]


def test_tables_without_documents_have_no_rows():
    for options in ({}, {"schema": pa.schema([("a", pa.int8())])}):
        table = documents(lumberjack.events(lumberjack.scan(b"")), **options)
        table.validate(full=True)
        assert len(table) == 0
        assert len(documents(scan_events(), **options)) == 0
    table = documents(lumberjack.events(lumberjack.scan(d(1, (b"a", b"b")) * 3)))
    assert table["pairs"].to_pylist() == [[(b"a", b"b")]] * 3
    assert table["document"].null_count == 3


def test_compressed_frames_and_selected_events():
    inner = zlib.compress(b"".join(j(i, b'{"n":%d}' % i) for i in range(9)))
    raw = b"2C" + struct.pack(">I", len(inner)) + inner + j(9, b'{"n":9}')
    events = lumberjack.events(lumberjack.scan(raw))
    numbers = [document["n"] for document in documents(events)["document"].to_pylist()]
    assert numbers == list(range(10))
    chosen = events.where(events["sequence"] % 3 == 0)[::-1]
    table = documents(chosen)
    assert table["sequence"].to_pylist() == [9, 6, 3, 0]
    assert [document["n"] for document in table["document"].to_pylist()] == [9, 6, 3, 0]


# ---- refused documents

REFUSED = {
    b" ": "not an object",
    b"null": "not an object",
    b"[{}]": "not an object",
    b'"{}"': "not an object",
    b"7": "not an object",
    b"\xef\xbb\xbf{}": "not an object",
    b"{": "ends inside",
    b'{"a":"': "ends inside",
    b'{"a":"\\': "ends inside",
    b'{"a":"\\"}': "ends inside",
    b"{}{}": "follows",
    b"{} {}": "follows",
    b"{}]": "follows",
    b"{}\0": "follows",
    b'{"a":"\n"}': "control",
    b'{"a":"\\\n"}': "control",
    b'{"a":"\0"}': "control",
    b'{"a":1\0}': "outside strings",
    b'{"a":NaN}': "outside strings",
    b'{"a":-Infinity}': "outside strings",
    b"{'a':1}": "outside strings",
    b'{"a":1}//': "follows",
    b'{"a":\xc3\xa9}': "outside strings",
    **{
        b'{"a":"' + raw + b'"}': "UTF-8"
        for raw in (
            b"\xff",
            b"\x80",
            b"\xc3",
            b"\xc0\xaf",
            b"\xc1\xbf",
            b"\xe0\x9f\xbf",
            b"\xed\xa0\x80",
            b"\xe2\x82",
            b"\xe2\x28\xa1",
            b"\xf0\x8f\xbf\xbf",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
            b"\xf0\x9f\x98",
            b"\xf0\x9f\x28\x80",
            b"12345678\xff",
        )
    },
    b'{"\xff":1}': "UTF-8",
    b'{"a":%s}' % (b"9" * 301): "digits",
    b'{"a":0.%s}' % (b"0" * 5000): "digits",
    # pyarrow's reader refuses the rest.
    b"{]": "",
    b'{"a":[1}': "",
    b'{"a" 1}': "",
    b'{"a":01}': "",
    b'{"a":1,}': "",
    b'{"a":tru}': "",
    b'{"a":"\\x"}': "",
    b'{"a":1,"a":2}': "twice",
    b'{"s":{"a":1,"a":2}}': "twice",
    b'{"a":"\\ud800"}': "surrogate",
    b'{"a":"\\ud83dx"}': "surrogate",
    b'{"a":1e400}': "double",
    b'{"a":[1,"x"]}': "changed from number to string",
}


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_a_bad_document_is_refused_alone(text):
    """Alone or among others, a bad document is refused in its own row only."""
    good = b'{"b":"x"}'
    for texts in ([text], [good, text, good], [text, good, good, text], [good] * 5 + [text] * 3):
        table, got, refused = read(*texts)
        is_bad = [other == text for other in texts]
        assert [document is None for document in got] == is_bad
        assert [why is not None for why in refused] == is_bad
        assert all(REFUSED[text] in why for why in refused if why)
        _, got, refused = read(*texts, errors="skip")
        assert len(got) == texts.count(good)
        assert not any(refused)
        with pytest.raises(ValueError, match=f"event {texts.index(text)} is refused: ") as raised:
            documents(scan_events(*texts), errors="strict")
        assert not isinstance(raised.value, (FrameError, pa.ArrowInvalid))
        assert repr(text[:60]) in str(raised.value)


def test_valid_json_is_accepted():
    for text in (
        b'{"a":"\xf0\x9f\x98\x80 \xed\x9f\xbf \xef\xbf\xbf \xf4\x8f\xbf\xbf \xe0\xa0\x80"}',
        b'{"a":"\\ud83d\\ude00"}',
        b'{"a":"\x7f\\u0000\\"}{\\\\"}',
        b'{"a":"\\\\"}',
        b'{"\xc3\xa9":"1"}',
        b'{"":"1"}',
        b'{"a":""}',
        b"{}",
    ):
        _, got, _ = read(text, errors="strict")
        assert got == [{"@timestamp": None, **json.loads(text)}]


def test_depth_and_weight_are_bounded():
    def nested(depth):
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    unclosed = (b'{"a":' * 1_000_000, b'{"a":' + b"[" * 1_000_000)
    _, got, refused = read(nested(50), nested(51), nested(1_000_000), *unclosed)
    assert [why and why.split()[-1] for why in refused] == [None, *["deeply"] * 4]
    assert got[0]["a"] is not None
    schema = pa.schema([("b", pa.int8())])
    for depth in (51, 100_000):
        _, _, refused = read(b'{"a":' * depth + b"1" + b"}" * depth, schema=schema)
        assert refused != [None]
    heavy = b'{"a":[' + b"{}," * 8189 + b"{}]}"  # 8,192 with the member and its object
    _, _, refused = read(heavy, heavy.replace(b"[", b"[{},"))
    assert refused == [None, "it has too many objects and members"]


def test_fields_have_a_limit():
    wide = b"{" + b",".join(b'"k%d":1' % i for i in range(999)) + b"}"
    assert len(list_fields(read(wide, errors="strict")[0])) == 1000
    for texts in ([wide, b'{"x":{"y":1}}'], [b'{"k%d":{}}' % i for i in range(20_000)]):
        with pytest.raises(ValueError, match="more than 1000 different fields, .* give a schema"):
            documents(scan_events(*texts))
        table, got, _ = read(*texts, schema=pa.schema([("k7", pa.null())]))
        assert len(got) == len(texts)


def test_a_field_that_changes_its_type_is_refused():
    texts = [
        b'{"a":1,"b":{"c":1}}',
        b'{"a":"x","b":{"c":1}}',
        b'{"a":2,"b":{"c":[1]}}',
        b'{"a":{"x":1.50}}',
        b'{"a":null}',
    ]
    _, got, refused = read(*texts)
    assert [document and document["a"] for document in got] == [1, None, None, None, None]
    assert [bool(why) for why in refused] == [False, True, True, True, False]
    message = "event 1 is refused: Field a changed from number to string; it begins"
    with pytest.raises(ValueError, match=message):
        documents(scan_events(*texts), errors="strict")
    schema = pa.schema([("a", pa.string()), ("b", pa.struct([("c", pa.string())]))])
    _, got, _ = read(*texts, schema=schema, errors="strict")
    assert [document["a"] for document in got] == ["1", "x", "2", '{"x":1.50}', None]
    inner = [document["b"] and document["b"]["c"] for document in got]
    assert inner == ["1", "1", "[1]", None, None]
    lists = pa.schema([("a", pa.list_(pa.string()))])
    _, got, _ = read(b'{"a":[1,null,"x",[true]]}', b'{"a":1}', schema=lists)
    assert got == [{"a": ["1", None, "x", "[true]"]}, None]


def test_across_blocks_of_the_reader(monkeypatch):
    """pyarrow's own type inference would abort the process here, or lose values."""
    pairs = [({"k": 1}, [1]), ([1], {"k": 1}), ("2026-11-21", {"k": 1}), ({"k": 1}, 1)]
    for size in (columns.HEAVIEST, 16):
        monkeypatch.setattr(columns, "HEAVIEST", size)
        monkeypatch.setattr(columns, "BLOCK", 64)
        for pair in pairs:
            texts = [json.dumps({"a": value}).encode() for value in pair for _ in range(50)]
            _, got, refused = read(*texts)
            values = [document and document["a"] for document in got]
            assert values == [pair[0]] * 50 + [None] * 50
            assert all(refused[50:])
            assert not any(refused[:50])


# ---- schema


def test_a_schema_selects_and_casts_fields():
    texts = [b'{"a":1,"b":{"x":"y","z":[1]},"c":true,"c":false}', b'{"b":null}', b'{"a":300}']
    schema = pa.schema(
        [
            pa.field("a", pa.int8(), nullable=False),
            ("b", pa.struct([("z", pa.list_(pa.float32()))])),
        ]
    )
    table, got, refused = read(*texts, schema=schema)
    assert list(list_fields(table)) == ["a", "b"]
    assert got == [{"a": 1, "b": {"z": [1.0]}}, {"a": None, "b": None}, None]
    assert "300" in refused[2]
    table, got, refused = read(*texts[1:], b'{"b":{"x":1}}', schema=schema, others=True)
    assert list_fields(table) == {
        "a": pa.int8(),
        "b": pa.struct([("z", pa.list_(pa.float32())), ("x", pa.int64())]),
        "@timestamp": UTC,
    }
    assert got[2]["b"] == {"z": None, "x": 1}
    assert refused[2] is None


def test_bad_arguments_are_refused():
    events = scan_events(b"{}")
    kinds = [
        pa.map_(pa.string(), pa.string()),
        pa.struct([("b", pa.duration("s"))]),
        pa.large_list(pa.int8()),
    ]
    for fields in ([], [("a", pa.int8())] * 2, *([("a", kind)] for kind in kinds)):
        with pytest.raises(ValueError, match="schema"):
            documents(events, schema=pa.schema(fields))
    with pytest.raises(TypeError, match="pyarrow.Schema"):
        documents(events, schema={"a": "string"})
    with pytest.raises(TypeError, match="lumberjack.events"):
        documents(lumberjack.scan(b""))
    with pytest.raises(TypeError, match="lumberjack.events"):
        documents(b"")
    with pytest.raises(ValueError, match="errors must be"):
        documents(events, errors="ignore")


# ---- arbitrary documents

NAMES = st.sampled_from(["a", "b", "", "é", "@metadata"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "2026-11-21", "2026-11-21T00:00:00Z", 'é"\\\n\0', "😀"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=3),
    max_leaves=6,
)
TEXTS = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent).encode(),
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
)
TOKENS = st.sampled_from([*(b"%c" % byte for byte in b'{}[]"\\,:\n\r0e-'), b"{}\n"])


@st.composite
def damaged_documents(draw):
    text = bytearray(draw(TEXTS))
    at = draw(st.integers(0, len(text)))
    text[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2) | TOKENS)
    return bytes(text)


def object_in(text):
    """Return the object that the text is in strict JSON.

    Raise ValueError if the text is not one object, repeats a name, or has text that Arrow cannot
    hold.
    """

    def refuse_repeated_names(pairs):
        members = dict(pairs)
        if len(members) < len(pairs):
            raise ValueError
        return members

    value = json.loads(
        text.decode(), object_pairs_hook=refuse_repeated_names, parse_constant=float.fromhex
    )
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    if not isinstance(value, dict):
        raise ValueError
    return value


def equal(value, got):
    if isinstance(value, dict):
        members_equal = all(equal(value.get(name), member) for name, member in got.items())
        return set(value) <= set(got) and members_equal
    if isinstance(value, list):
        return len(value) == len(got) and all(map(equal, value, got))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(got) in (int, float) and float(value) == float(got)
    return type(value) is type(got) and value == got


@given(st.lists(TEXTS | damaged_documents(), max_size=6), st.sampled_from([16, 1 << 13]))
@example([b'{"a":[null,1]}'], 16)
@example([b'{"a":[null,null]}', b'{"a":[[null,null]]}'], 16)
def test_any_document_equals_the_json_module(texts, heaviest):
    """Each document keeps its row and its values as `json` reads them, or is refused with cause."""
    texts = [text or b"{}" for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "HEAVIEST", heaviest)
        table, got, refused = read(*texts)
    assert len(table) == len(texts)
    for text, document, why in zip(texts, got, refused):
        if why is None:
            document.pop("@timestamp")
            assert equal(object_in(text), document)
        else:
            assert document is None
            try:
                object_in(text)
            except ValueError:
                continue
            assert "changed" in why or "incompatible" in why or "objects and members" in why


@given(
    st.lists(st.one_of(st.none(), TEXTS, damaged_documents(), st.binary(max_size=20)), max_size=8)
)
def test_any_line_is_a_text_or_an_object(texts):
    """Each line is a text without line breaks, or {}. A text that is one object has no error."""
    text, bounds, weights, wrong = make_lines(ByteStrings(texts), 50, 1 << 13)
    lines = [bytes(text[start:stop]) for start, stop in zip(bounds[:-1], bounds[1:])]
    assert b"".join(lines) == bytes(text)
    assert len(lines) == len(weights) == len(wrong) == len(texts)
    for document, line, weight, number in zip(texts, lines, weights, wrong):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert b"\r" not in line
        if document is None or number:
            assert line == b"{}\n"
            assert weight == 1
            assert (document is None) == (number == 0)
        else:
            assert line == document.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
            assert weight == weight_of(line)
        try:
            object_in(document or b"")
        except ValueError:
            continue
        assert not number, REASONS[number]


def weight_of(line):
    """Count the objects and members: braces and colons outside strings."""
    weight = 0
    inside = False
    escaped = False
    for byte in line:
        if inside:
            inside = byte != 0x22 or escaped
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        else:
            weight += byte in b"{:"
    return weight


def test_a_document_of_a_gibibyte_is_refused_unread():
    offsets = np.array([0, 1 << 30, 1 << 30])
    with mmap.mmap(-1, 1 << 30) as zeros:
        text, bounds, _, wrong = make_lines(ByteStrings((offsets, zeros)), 50, 10)
        assert bytes(text) == b"{}\n{}\n"
        assert REASONS[wrong[0]] == "it has 1 GiB or more"
        assert bounds.tolist() == [0, 3, 6]
        assert REASONS[wrong[1]] == "it is not an object"


# ---- other programs


def test_to_parquet_polars_and_duckdb(tmp_path):
    import duckdb
    import polars
    from pyarrow import parquet

    texts = [json.dumps({**LIBBEAT, "n": i}).encode() for i in range(100)]
    raw = b"".join(j(i, text) for i, text in enumerate(texts))
    raw += d(100, (b"k", b"v")) + j(101, b"[]")
    table = documents(lumberjack.events(lumberjack.scan(raw)), errors="mark")
    parquet.write_table(table, tmp_path / "events.parquet")
    assert parquet.read_table(tmp_path / "events.parquet").equals(table)
    frame = polars.DataFrame(table).unnest("document")
    assert frame["n"].to_list() == [*range(100), None, None]
    assert frame["pairs"].null_count() == 101
    events = table  # noqa: F841 (duckdb finds it by its name)
    result = duckdb.sql("select sum(document.n), count(refused) from events")
    assert result.fetchall() == [(4950, 1)]
