"""Events of Lumberjack as Arrow: documents parsed into typed columns, and refused one by one where they cannot be."""
import json
import mmap
import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wirescan import FrameError, lumberjack
from wirescan.core.strings import ByteStrings
from wirescan.lumberjack import columns
from wirescan.lumberjack.columns import documents
from wirescan.lumberjack.lines import WRONG, lines

UTC = pa.timestamp("ns", "UTC")
LIBBEAT = {
    "@timestamp": "2026-11-21T22:50:01.123Z",
    "@metadata": {"beat": "filebeat", "type": "_doc", "version": "9.1.0"},
    "message": "GET / \"quoted\"\n\té", "tags": ["web", "prod"],
    "log": {"offset": 220, "file": {"path": "/var/log/x"}},
}


def j(sequence, document):
    return b"2J" + struct.pack(">II", sequence, len(document)) + document


def d(sequence, *pairs):
    parts = (struct.pack(">I", len(part)) + part for pair in pairs for part in pair)
    return b"1D" + struct.pack(">II", sequence, len(pairs)) + b"".join(parts)


def events_of(*texts, errors="mark"):
    raw = b"2W" + struct.pack(">I", len(texts)) + b"".join(j(i + 1, text) for i, text in enumerate(texts))
    return lumberjack.events(lumberjack.scan(raw, errors=errors), errors=errors)


def read(*texts, errors="mark", **options):
    """The table, whole and sound; its documents and the reasons of those refused, as Python."""
    table = documents(events_of(*texts), errors=errors, **options)
    table.validate(full=True)
    return table, table["document"].to_pylist(), table["refused"].to_pylist()


def fields_of(table):
    return {field.name: field.type for field in table.schema.field("document").type}


# ---------------------------------------------------------------------------- what is read

def test_a_document_of_libbeat():
    table, (one, none), _ = read(json.dumps(LIBBEAT).encode(), b"{}", errors="strict")
    assert table.schema.names == ["sequence", "version", "window", "fault", "pairs", "document", "refused"]
    assert table["sequence"].to_pylist() == [1, 2] and table["window"].to_pylist() == [0, 0]
    assert table["version"].to_pylist() == [2, 2] and table["refused"].null_count == 2
    assert fields_of(table) == {
        "@timestamp": UTC, "@metadata": pa.struct([("beat", "string"), ("type", "string"), ("version", "string")]),
        "message": pa.string(), "tags": pa.list_(pa.string()),
        "log": pa.struct([("offset", pa.int64()), ("file", pa.struct([("path", pa.string())]))])}
    assert one.pop("@timestamp").isoformat() == "2026-11-21T22:50:01.123000+00:00"
    assert one == {name: value for name, value in LIBBEAT.items() if name != "@timestamp"}
    assert set(none.values()) == {None}
    flat = pa.Table.from_struct_array(table["document"])
    assert flat.num_rows == 2 and flat["message"].to_pylist() == [LIBBEAT["message"], None]


def test_timestamps_are_those_of_their_name():
    stamps = ["2026-11-21T22:50:01Z", "2026-11-21T22:50:01.5Z", "2026-11-21T22:50:01.123456789Z",
              "2026-11-22T00:50:01.000001+02:00", "2026-11-21T22:50:01"]
    texts = [b'{"@timestamp":"%s","day":"2026-11-21"}' % stamp.encode() for stamp in stamps]
    table, _, _ = read(*texts, errors="strict")
    first = 1_795_301_401_000_000_000
    flat = pa.Table.from_struct_array(table["document"])
    assert flat["@timestamp"].cast(pa.int64()).to_pylist() == [
        first, first + 500_000_000, first + 123_456_789, first + 1000, first]
    assert flat.schema.field("day").type == pa.string()         # and no other string is
    _, _, refused = read(*(b'{"@timestamp":%s}' % one for one in (b'"yesterday"', b"1", b'"3000-01-01T00:00:00Z"')))
    assert all(refused) and "yesterday" in refused[0]
    table, got, _ = read(b'{"@timestamp":"yesterday"}', schema=pa.schema([("@timestamp", pa.string())]), others=True)
    assert got == [{"@timestamp": "yesterday"}] and fields_of(table) == {"@timestamp": pa.string()}


def test_types_are_those_of_all_documents(monkeypatch):
    monkeypatch.setattr(columns, "HEAVIEST", 32)            # those that come late are not among the first looked at
    texts = [b'{"a":null,"l":[]}'] * 50 + [b'{"a":1,"l":[null,{"x":1}]}', b'{"a":1.5}', b'{"late":{"b":true}}']
    table, got, _ = read(*texts, errors="strict")
    assert fields_of(table) == {
        "@timestamp": UTC, "a": pa.float64(), "l": pa.list_(pa.struct([("x", pa.int64())])),
        "late": pa.struct([("b", pa.bool_())])}
    assert [one["a"] for one in got[-3:]] == [1.0, 1.5, None] and got[50]["l"] == [None, {"x": 1}]
    assert got[-1]["late"] == {"b": True} and got[0]["l"] == []


def test_numbers():
    text = b'{"i":-9223372036854775808,"u":9223372036854775808,"d":1e2,"n":-0,"l":%s}' % (b"9" * 300)
    _, got, _ = read(text, errors="strict")
    assert got[0] == {"@timestamp": None, "i": -2**63, "u": 2.0**63, "d": 100.0, "n": 0, "l": 1e300}
    assert read(b'{"u":18446744073709551615}', schema=pa.schema([("u", pa.uint64())]))[1] == [{"u": 2**64 - 1}]


def test_white_space_is_kept_out_of_the_lines():
    pretty = json.dumps(LIBBEAT, indent=2).replace("\n", "\r\n").encode()
    plain = json.dumps(LIBBEAT).encode()
    _, got, refused = read(b" \n\r\t" + pretty + b"\n\n", plain, b"\n{\n}\r", errors="strict")
    assert got[0] == got[1] and refused == [None] * 3
    # A block of the reader may end anywhere but within a line.
    _, got, _ = read(*[b'{\r"a":\n%d\r}' % i for i in range(200_000)], errors="strict")
    assert [one["a"] for one in got] == list(range(200_000))


def test_documents_longer_than_a_block(monkeypatch):
    texts = [json.dumps({"a": "x" * size}).encode() for size in (10, 3 << 20, 0, 1 << 20, (1 << 20) - 9, (1 << 20) - 8)]
    _, got, _ = read(*texts, errors="strict")
    assert got == [{"@timestamp": None, "a": json.loads(text)["a"]} for text in texts]


def test_data_frames_and_bad_ones():
    raw = d(5, (b"k", b"\xff"), (b"k", b""), (b"", b"v")) + j(6, b'{"a":1}') + d(7) + j(8, b"") + b"9Z"
    frames = lumberjack.scan(raw, errors="mark")
    table = documents(lumberjack.events(frames, errors="mark"))
    table.validate(full=True)
    assert table.schema.field("pairs").type == pa.map_(pa.binary(), pa.binary())
    assert table["pairs"].to_pylist() == [[(b"k", b"\xff"), (b"k", b""), (b"", b"v")], None, [], None, None]
    assert [one and one["a"] for one in table["document"].to_pylist()] == [None, 1, None, None, None]
    assert [fault > 0 for fault in table["fault"].to_pylist()] == [False] * 3 + [True] * 2
    assert table["refused"].null_count == 5
    skipped = documents(lumberjack.events(frames, errors="mark"), errors="skip")
    assert skipped["sequence"].to_pylist() == [5, 6, 7]


def test_no_events_and_only_data():
    for options in ({}, {"schema": pa.schema([("a", pa.int8())])}):
        table = documents(lumberjack.events(lumberjack.scan(b"")), **options)
        table.validate(full=True)
        assert len(table) == 0 and len(documents(events_of(), **options)) == 0
    table = documents(lumberjack.events(lumberjack.scan(d(1, (b"a", b"b")) * 3)))
    assert table["pairs"].to_pylist() == [[(b"a", b"b")]] * 3 and table["document"].null_count == 3


def test_events_of_compressed_frames_and_of_a_selection():
    inner = zlib.compress(b"".join(j(i, b'{"n":%d}' % i) for i in range(9)))
    raw = b"2C" + struct.pack(">I", len(inner)) + inner + j(9, b'{"n":9}')
    events = lumberjack.events(lumberjack.scan(raw))
    assert [one["n"] for one in documents(events)["document"].to_pylist()] == list(range(10))
    chosen = events.where(events["sequence"] % 3 == 0)[::-1]
    table = documents(chosen)
    assert table["sequence"].to_pylist() == [9, 6, 3, 0]
    assert [one["n"] for one in table["document"].to_pylist()] == [9, 6, 3, 0]


# ---------------------------------------------------------------------------- what is refused

REFUSED = {
    b" ": "no object", b"null": "no object", b"[{}]": "no object", b'"{}"': "no object", b"7": "no object",
    b"\xef\xbb\xbf{}": "no object", b"{": "ends inside", b'{"a":"': "ends inside", b'{"a":"\\': "ends inside",
    b'{"a":"\\"}': "ends inside", b"{}{}": "follows", b"{} {}": "follows", b"{}]": "follows", b"{}\0": "follows",
    b'{"a":"\n"}': "control", b'{"a":"\\\n"}': "control", b'{"a":"\0"}': "control", b'{"a":1\0}': "outside strings",
    b'{"a":NaN}': "outside strings", b'{"a":-Infinity}': "outside strings", b"{'a':1}": "outside strings",
    b'{"a":1}//': "follows", b'{"a":\xc3\xa9}': "outside strings",
    **{b'{"a":"' + raw + b'"}': "UTF-8" for raw in (
        b"\xff", b"\x80", b"\xc3", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xe2\x82",
        b"\xe2\x28\xa1", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf0\x9f\x98",
        b"\xf0\x9f\x28\x80", b"12345678\xff")},
    b'{"\xff":1}': "UTF-8", b'{"a":%s}' % (b"9" * 301): "digits", b'{"a":0.%s}' % (b"0" * 5000): "digits",
    # From here on it is the reader that refuses.
    b"{]": "", b'{"a":[1}': "", b'{"a" 1}': "", b'{"a":01}': "", b'{"a":1,}': "", b'{"a":tru}': "", b'{"a":"\\x"}': "",
    b'{"a":1,"a":2}': "twice", b'{"s":{"a":1,"a":2}}': "twice", b'{"a":"\\ud800"}': "surrogate",
    b'{"a":"\\ud83dx"}': "surrogate", b'{"a":1e400}': "double", b'{"a":[1,"x"]}': "changed from number to string",
}


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_refused(text):
    """Alone or among others; and its row is its own."""
    good = b'{"b":"x"}'
    for texts in ([text], [good, text, good], [text, good, good, text], [good] * 5 + [text] * 3):
        table, got, refused = read(*texts)
        assert [one is None for one in got] == [why is not None for why in refused] == [one == text for one in texts]
        assert all(REFUSED[text] in why for why in refused if why)
        _, got, refused = read(*texts, errors="skip")
        assert len(got) == texts.count(good) and not any(refused)
        with pytest.raises(ValueError, match=f"event {texts.index(text)} is refused: ") as raised:
            documents(events_of(*texts), errors="strict")
        assert not isinstance(raised.value, (FrameError, pa.ArrowInvalid)) and repr(text[:60]) in str(raised.value)


def test_what_json_allows_is_not_refused():
    for text in (
        b'{"a":"\xf0\x9f\x98\x80 \xed\x9f\xbf \xef\xbf\xbf \xf4\x8f\xbf\xbf \xe0\xa0\x80"}',
        b'{"a":"\\ud83d\\ude00"}', b'{"a":"\x7f\\u0000\\"}{\\\\"}', b'{"a":"\\\\"}', b'{"\xc3\xa9":"1"}', b'{"":"1"}',
        b'{"a":""}', b"{}",
    ):
        _, got, _ = read(text, errors="strict")
        assert got == [{"@timestamp": None, **json.loads(text)}]


def test_depth_and_weight_are_bounded():
    def nested(depth):
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    _, got, refused = read(nested(50), nested(51), nested(1_000_000), b'{"a":' * 1_000_000, b'{"a":' + b"[" * 1_000_000)
    assert [why and why.split()[-1] for why in refused] == [None, *["other"] * 4] and got[0]["a"] is not None
    for depth in (51, 100_000):
        assert read(b'{"a":' * depth + b"1" + b"}" * depth, schema=pa.schema([("b", pa.int8())]))[2] != [None]
    heavy = b'{"a":[' + b"{}," * 8189 + b"{}]}"            # with the member and its object, 8,192
    assert read(heavy, heavy.replace(b"[", b"[{},"))[2] == [None, "it has too many objects and members"]


def test_many_fields():
    wide = b"{" + b",".join(b'"k%d":1' % i for i in range(999)) + b"}"
    assert len(fields_of(read(wide, errors="strict")[0])) == 1000
    for texts in ([wide, b'{"x":{"y":1}}'], [b'{"k%d":{}}' % i for i in range(20_000)]):
        with pytest.raises(ValueError, match="more than 1000 different fields, .* give a schema"):
            documents(events_of(*texts))
        table, got, _ = read(*texts, schema=pa.schema([("k7", pa.null())]))
        assert len(got) == len(texts)


def test_fields_that_change_their_type():
    texts = [b'{"a":1,"b":{"c":1}}', b'{"a":"x","b":{"c":1}}', b'{"a":2,"b":{"c":[1]}}', b'{"a":{"x":1.50}}',
             b'{"a":null}']
    _, got, refused = read(*texts)
    assert [one and one["a"] for one in got] == [1, None, None, None, None]
    assert [bool(why) for why in refused] == [False, True, True, True, False]
    with pytest.raises(ValueError, match="event 1 is refused: .*Field a .*int64.*string.*begins"):
        documents(events_of(*texts), errors="strict")
    schema = pa.schema([("a", pa.string()), ("b", pa.struct([("c", pa.string())]))])
    _, got, _ = read(*texts, schema=schema, errors="strict")
    assert [one["a"] for one in got] == ["1", "x", "2", '{"x":1.5}', None]
    assert [one["b"] and one["b"]["c"] for one in got] == ["1", "1", "[1]", None, None]
    lists = pa.schema([("a", pa.list_(pa.string()))])
    assert read(b'{"a":[1,null,"x",[true]]}', b'{"a":1}', schema=lists)[1] == [{"a": ["1", None, "x", "[true]"]}, None]


def test_across_blocks_of_the_reader(monkeypatch):
    """Its own inference would end the process here, or lose values."""
    pairs = [({"k": 1}, [1]), ([1], {"k": 1}), ("2026-11-21", {"k": 1}), ({"k": 1}, 1)]
    for size in (columns.HEAVIEST, 16):
        monkeypatch.setattr(columns, "HEAVIEST", size)
        monkeypatch.setattr(columns, "BLOCK", 64)
        for pair in pairs:
            _, got, refused = read(*[json.dumps({"a": one}).encode() for one in pair for _ in range(50)])
            assert [one and one["a"] for one in got] == [pair[0]] * 50 + [None] * 50
            assert all(refused[50:]) and not any(refused[:50])


# ---------------------------------------------------------------------------- schema

def test_schema():
    texts = [b'{"a":1,"b":{"x":"y","z":[1]},"c":true,"c":false}', b'{"b":null}', b'{"a":300}']
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.struct([("z", pa.list_(pa.float32()))]))])
    table, got, refused = read(*texts, schema=schema)
    assert list(fields_of(table)) == ["a", "b"]
    assert got == [{"a": 1, "b": {"z": [1.0]}}, {"a": None, "b": None}, None] and "300" in refused[2]
    table, got, refused = read(*texts[1:], b'{"b":{"x":1}}', schema=schema, others=True)
    assert fields_of(table) == {"a": pa.int8(), "b": pa.struct([("z", pa.list_(pa.float32())), ("x", pa.int64())]),
                                "@timestamp": UTC}
    assert got[2]["b"] == {"z": None, "x": 1} and refused[2] is None


def test_unfit_arguments():
    events = events_of(b"{}")
    kinds = [pa.map_(pa.string(), pa.string()), pa.struct([("b", pa.duration("s"))]), pa.large_list(pa.int8())]
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


# ---------------------------------------------------------------------------- anything

NAMES = st.sampled_from(["a", "b", "", "é", "@metadata"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "2026-11-21", "2026-11-21T00:00:00Z", "é\"\\\n\0", "😀"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=3), max_leaves=6)
TEXTS = st.builds(lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent).encode(),
                  st.dictionaries(NAMES, VALUES, max_size=3), st.booleans(), st.sampled_from([None, 1]))


@st.composite
def damaged(draw):
    text = bytearray(draw(TEXTS))
    at = draw(st.integers(0, len(text)))
    text[at:at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2) | st.sampled_from(
        [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\n", b"\r", b"0", b"e", b"-", b"{}\n"]))
    return bytes(text)


def object_in(text):
    """What strict JSON says that the text is; ValueError if not one object of unlike names that Arrow can hold."""
    def once(pairs):
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError
        return found

    value = json.loads(text.decode(), object_pairs_hook=once, parse_constant=float.fromhex)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    if not isinstance(value, dict):
        raise ValueError
    return value


def same(value, got):
    if isinstance(value, dict):
        return set(value) <= set(got) and all(same(value.get(name), one) for name, one in got.items())
    if isinstance(value, list):
        return len(value) == len(got) and all(map(same, value, got))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(got) in (int, float) and float(value) == float(got)
    return type(value) is type(got) and value == got


@given(st.lists(TEXTS | damaged(), max_size=6), st.sampled_from([16, 1 << 13]))
@example([b'{"a":[null,1]}'], 16)
@example([b'{"a":[null,null]}', b'{"a":[[null,null]]}'], 16)
def test_any_documents(texts, heaviest):
    """Rows stay, values are those of the standard library, and only what has no place is refused."""
    texts = [text or b"{}" for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "HEAVIEST", heaviest)
        table, documents_got, refused = read(*texts)
    assert len(table) == len(texts)
    for text, got, why in zip(texts, documents_got, refused):
        if why is None:
            got.pop("@timestamp")
            assert same(object_in(text), got)
        else:
            assert got is None
            try:
                object_in(text)
            except ValueError:
                continue
            assert "changed" in why or "incompatible" in why or "objects and members" in why


@given(st.lists(st.one_of(st.none(), TEXTS, damaged(), st.binary(max_size=20)), max_size=8))
def test_any_lines(texts):
    """Each line is one text without its line breaks, or {}: and a text that is one object is never wrong."""
    text, bounds, weights, wrong = lines(ByteStrings(texts), 50, 1 << 13)
    found = [bytes(text[start:stop]) for start, stop in zip(bounds[:-1], bounds[1:])]
    assert b"".join(found) == bytes(text) and len(found) == len(weights) == len(wrong) == len(texts)
    for one, line, weight, number in zip(texts, found, weights, wrong):
        assert line.endswith(b"\n") and line.count(b"\n") == 1 and b"\r" not in line
        if one is None or number:
            assert line == b"{}\n" and weight == 1 and (one is None) == (number == 0)
        else:
            assert line == one.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" and weight == weight_of(line)
        try:
            object_in(one or b"")
        except ValueError:
            continue
        assert not number, WRONG[number]


def weight_of(line):
    """Objects and members, by the bytes outside strings."""
    weight, inside, escaped = 0, False, False
    for byte in line:
        if inside:
            inside, escaped = byte != 0x22 or escaped, byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        else:
            weight += byte in b"{:"
    return weight


def test_a_document_of_a_gibibyte_is_not_looked_at():
    with mmap.mmap(-1, 1 << 30) as zeros:
        import numpy as np
        text, bounds, _, wrong = lines(ByteStrings((np.array([0, 1 << 30, 1 << 30]), zeros)), 50, 10)
        assert bytes(text) == b"{}\n{}\n" and WRONG[wrong[0]] == "it has 1 GiB or more" and bounds.tolist() == [0, 3, 6]
        assert WRONG[wrong[1]] == "it is no object"


# ---------------------------------------------------------------------------- where it goes

def test_to_parquet_polars_and_duckdb(tmp_path):
    import duckdb
    import polars
    from pyarrow import parquet
    texts = [json.dumps({**LIBBEAT, "n": i}).encode() for i in range(100)]
    raw = b"".join(j(i, text) for i, text in enumerate(texts)) + d(100, (b"k", b"v")) + j(101, b"[]")
    table = documents(lumberjack.events(lumberjack.scan(raw)), errors="mark")
    parquet.write_table(table, tmp_path / "events.parquet")
    assert parquet.read_table(tmp_path / "events.parquet").equals(table)
    frame = polars.DataFrame(table).unnest("document")
    assert frame["n"].to_list() == [*range(100), None, None] and frame["pairs"].null_count() == 101
    events = table  # noqa: F841 (duckdb finds it by its name)
    assert duckdb.sql("select sum(document.n), count(refused) from events").fetchall() == [
        (4950, 1)]
