"""MessagePack payloads beside the package `msgpack`: values, inference, hostile bytes."""

import json
import pickle
import random
import struct
import time

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import run
from tests.support.msgpack_bytes import MisfitError, convert, encode, read_with_msgpack
from tests.support.slowness import SLOWNESS
from wirescan.decoding.msgpack_values import MsgpackDecoder
from wirescan.decoding.notation import parse_decoder
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.kafka import encode_batch

POINT = pa.struct([("x", pa.int32()), ("y", pa.float64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("short", pa.uint16()),
        ("large", pa.uint64()),
        ("ratio", pa.float64()),
        ("single", pa.float32()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("ns", "UTC")),
        ("day", pa.timestamp("ms")),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("points", pa.list_(POINT)),
        ("inner", pa.struct([("a", pa.struct([("b", pa.string())])), ("7", pa.int64())])),
        ("by_name", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)


def decode(decoder, payloads):
    """Return (values, reasons) as lists. Times are numbers of their units."""
    values, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    assert len(values) == len(reasons) == len(payloads)
    listed = values.to_pylist() if not pa.types.is_struct(values.type) else list_structs(values)
    return listed, reasons.to_pylist()


def list_structs(values):
    columns = {}
    for i, field in enumerate(values.type):
        column = values.field(i)
        is_time = pa.types.is_timestamp(field.type)
        columns[field.name] = (column.cast(pa.int64()) if is_time else column).to_pylist()
    return [
        {name: column[row] for name, column in columns.items()} if is_valid else None
        for row, is_valid in enumerate(values.is_valid().to_pylist())
    ]


def make_map(chance):
    """Return a random map. Members are missing or null, and some are not in the schema."""

    def number(bits):
        return chance.randrange(-(1 << bits - 1), 1 << bits - 1) >> chance.randrange(bits)

    values = {
        "id": number(64),
        "small": number(8),
        "short": abs(number(16)),
        "large": chance.choice([0, 2**63, 2**64 - 1]),
        "ratio": chance.choice([0.1, float("nan"), float("-inf"), 3, -(2**63), 2**64 - 1]),
        "single": chance.choice([0.5, 1e-50, 2**63, float("inf"), -7]),
        "name": chance.choice(["", "Zoë", "x" * 300]),
        "raw": chance.choice([b"", b"\xff\xfe", "text", msgpack.ExtType(5, b"abc")]),
        "at": chance.choice([0, msgpack.Timestamp(number(34), 999_999_999), number(64)]),
        "day": chance.choice([1, msgpack.Timestamp(-1, 1), msgpack.Timestamp(2**40, 5)]),
        "ok": chance.random() < 0.5,
        "tags": ["a", None, "ü" * 20] * chance.randrange(8),
        "points": [{"y": i, "x": i, "z": [i]} for i in range(chance.randrange(4))],
        "inner": chance.choice([{"a": {"b": "deep"}}, {7: 8, "a": None}, {}]),
        "by_name": {str(i): [number(64)] * i for i in range(chance.randrange(4))},
        "other": {"nested": [{1: 2}, {None: [3.5]}, b"x"]},
    }
    kept = [(name, value) for name, value in values.items() if chance.random() < 0.8]
    chance.shuffle(kept)
    return {name: None if chance.random() < 0.1 else value for name, value in kept}


def expect(raw, schema=SCHEMA):
    """Return the value that msgpack reads, as the column has it; None if it must be refused."""
    try:
        value = read_with_msgpack(raw)
        if value is None:
            return None
        return convert(value, pa.struct(schema))
    except (ValueError, MisfitError):  # all errors of msgpack are ValueErrors
        return None


def assert_as_msgpack(payloads):
    """Assert that what msgpack reads is accepted, and nothing else. Return how many are."""
    values, reasons = decode(MsgpackDecoder(SCHEMA), payloads)
    for raw, value, reason in zip(payloads, values, reasons):
        assert repr(value) == repr(expect(raw)), raw  # NaN is not equal to itself
        assert (value is None) == (reason is not None)
    return reasons.count(None)


def test_values_are_those_of_msgpack():
    chance = random.Random(1)
    payloads = [encode(make_map(chance), chance) for _ in range(1000)]
    assert assert_as_msgpack(payloads) == 1000


def test_null_payloads_are_null():
    assert decode(MsgpackDecoder(SCHEMA), [None, b"\x80", None]) == (
        [None, dict.fromkeys(SCHEMA.names), None],
        [None] * 3,
    )
    assert decode(MsgpackDecoder(SCHEMA), []) == ([], [])


def test_cut_maps_are_refused():
    chance = random.Random(2)
    for _ in range(10):
        raw = encode(make_map(chance), chance)
        payloads = [raw[:end] for end in range(len(raw))]
        assert assert_as_msgpack(payloads) == 0


def test_changed_bytes_are_accepted_only_as_what_msgpack_reads():
    chance = random.Random(3)
    for _ in range(8):
        raw = encode(make_map(chance), chance)
        payloads = [
            raw[:at] + bytes([value]) + raw[at + 1 :]
            for at in range(min(len(raw), 300))
            for value in {0x80, 0xC0, 0xC1, 0xFF, chance.randrange(256), raw[at] ^ 1, raw[at] ^ 64}
        ]
        assert 0 < assert_as_msgpack(payloads) < len(payloads)


def test_random_bytes():
    chance = random.Random(4)
    payloads = [b"\x82" + chance.randbytes(chance.randrange(30)) for _ in range(5000)]
    payloads += [bytes([i]) + chance.randbytes(8) for i in range(256)]
    assert_as_msgpack(payloads)


def test_each_first_byte_of_a_value():
    """Each of the 256 bytes begins a value of an ignored member, and of one of each type."""
    chance = random.Random(5)
    payloads = [
        b"\x81" + encode(name, chance) + bytes([first]) + tail
        for name in (*SCHEMA.names, "ignored")
        for first in range(256)
        for tail in (b"", bytes(1), bytes(2), bytes(4), bytes(5), bytes(8), bytes(13), bytes(17))
    ]
    assert assert_as_msgpack(payloads) > 200


BAD = {
    "nothing": (b"", "it ends inside a value"),
    "nil": (b"\xc0", "it is not a map"),
    "array": (b"\x90", "it is not a map"),
    "more": (b"\x80\x80", "bytes follow the map"),
    "unused byte": (b"\x81\xa1x\xc1", "it has the byte c1, which MessagePack does not use"),
    "wrong type": (b"\x81\xa4name\x01", "name: a value has another type than its column"),
    "wrong type inside": (
        b"\x81\xa6points\x91\x81\xa1x\xa1a",
        "points.x: a value has another type than its column",
    ),
    "fraction": (b"\x81\xa2id\xca\x3f\x80\0\0", "id: a value has another type than its column"),
    "large": (b"\x81\xa5small\xcc\x80", "small: a number is outside its range"),
    "negative": (b"\x81\xa5large\xff", "large: a number is outside its range"),
    "large integer": (b"\x81\xa2id\xcf" + b"\xff" * 8, "id: a number is outside its range"),
    "no text": (b"\x81\xa4name\xa1\xff", "name: a string is not UTF-8"),
    "no text as a key": (b"\x81\xa1\xff\x01", "a string is not UTF-8"),
    "key": (b"\x81\xc2\x01", "a key is neither a string nor an integer"),
    "key of bytes": (b"\x81\xc4\x02id\x01", "a key is neither a string nor an integer"),
    "no key": (b"\x81\xa7by_name\x81\xc0\x90", "by_name: a key is neither a string nor an integer"),
    "twice": (b"\x82\xa2id\x01\xa2id\x01", "a map has a key twice"),
    "twice after null": (b"\x82\xa2id\xc0\xa2id\x01", "a map has a key twice"),
    "twice as number": (
        b"\x81\xa5inner\x82\x07\x01\xa17\x02",
        "inner: a map has a key twice",
    ),
    "key twice": (
        b"\x81\xa7by_name\x82\xa1a\x90\xa1a\x91\x01",
        "by_name: a map has a key twice",
    ),
    "late": (
        b"\x81\xa2at\xc7\x0c\xff\0\0\0\0\0\0\0\4\0\0\0\0",
        "at: a timestamp is outside its range",
    ),
    "nanoseconds": (
        b"\x81\xa2at\xd7\xff\xff\xff\xff\xff\0\0\0\0",
        "at: a timestamp is outside its range",
    ),
    "size of a timestamp": (b"\x81\xa2at\xd5\xff\0\0", "at: a timestamp is outside its range"),
    "four billion elements": (b"\x81\xa4tags\xdd\xff\xff\xff\xff", "tags: it ends inside a value"),
    "four billion pairs": (b"\x81\xa1x\xdf\xff\xff\xff\xff", "it ends inside a value"),
    "four billion members": (b"\xdf\xff\xff\xff\xff", "it ends inside a value"),
    "long string": (b"\x81\xa4name\xdb\xff\xff\xff\xff", "name: it ends inside a value"),
    "deep": (b"\x81\xa1x" + b"\x91" * 1_000_000, "it ends inside a value"),
    "deep maps": (b"\x81\xa1x" * 300_000, "it ends inside a value"),
    "full arrays": (b"\x81\xa1x" + b"\x9f" * 1_000_000, "it ends inside a value"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_payloads_are_null_with_a_reason(name):
    raw, reason = BAD[name]
    good = msgpack.packb({"id": 1, "tags": ["a"]})
    start = time.process_time()
    values, reasons = decode(MsgpackDecoder(SCHEMA), [good, raw, None, good])
    assert time.process_time() - start < 2 * SLOWNESS
    assert reasons == [None, reason, None, None]
    assert values[1] is None and values[2] is None
    assert values[0] == values[3] == expect(good)


def test_ignored_values_may_be_nested_in_any_way():
    raw = b"\x82\xa1x" + b"\x91" * 100_000 + b"\xc0\xa2id\x07"
    values, reasons = decode(MsgpackDecoder(SCHEMA), [raw])
    assert (values[0]["id"], reasons) == (7, [None])


def test_nulls_of_wide_maps_are_bounded():
    """A byte can stand for a struct of many members, so values are counted."""
    wide = pa.struct([(f"member {i}", pa.string()) for i in range(5000)])
    outer = pa.struct([("wide", wide)])
    decoder = MsgpackDecoder(pa.schema([("a", pa.list_(outer))]))
    raw = b"\x81\xa1a\xdd" + struct.pack(">I", 10_000) + b"\x80" * 10_000
    start = time.process_time()
    values, reasons = decode(decoder, [raw] * 3)
    assert time.process_time() - start < 20 * SLOWNESS
    assert values == [None] * 3
    assert reasons == ["a: it has too many values for its size"] * 3


def test_all_payloads_together_have_the_further_values_once():
    """A payload may have 4,194,304 more values than its bytes allow, if none before it had them."""
    wide = pa.struct([(f"member {i}", pa.string()) for i in range(5000)])
    decoder = MsgpackDecoder(pa.schema([("a", pa.list_(wide))]))
    raw = b"\x81\xa1a\xdd" + struct.pack(">I", 700) + b"\x80" * 700  # 3,500,000 nulls
    decoded = decoder.decode(pa.array([raw] * 2, pa.binary()))
    assert decoded.reasons.to_pylist() == [None, "a: it has too many values for its size"]
    assert len(decoded.values[0]["a"]) == 700


def test_unknown_names_of_wide_maps_cost_little():
    schema = pa.schema([(f"m{i:04}", pa.int8()) for i in range(9000)])
    raw = b"\xdf" + struct.pack(">I", 200_000) + b"\xa5n0000\1" * 200_000
    start = time.process_time()
    values, reasons = decode(MsgpackDecoder(schema), [raw])
    assert time.process_time() - start < 5 * SLOWNESS
    assert reasons == [None]


# ---------------------------------------------------------------------------------- inference


def infer(*values):
    decoder = MsgpackDecoder()
    decoder.fit(pa.array([msgpack.packb(value) for value in values], pa.binary()))
    return decoder


def test_types_are_inferred():
    decoder = infer(
        {"a": 1, "b": None, "c": "x", "d": b"x", "e": True, "f": 1, "g": 2**63, "h": 2**63},
        {"f": 0.5, "h": -1, "t": msgpack.Timestamp(1, 1), "x": msgpack.ExtType(4, b"z")},
        {"l": [], "m": [None, {"p": 1}], "n": {"q": {"r": [[1]]}}},
        {"l": ["x"], "m": [{"o": 2.5}], "empty": {}, "none": [], 5: "five"},
    )
    assert decoder.type == pa.struct(
        [
            ("a", pa.int64()),
            ("b", pa.null()),
            ("c", pa.string()),
            ("d", pa.binary()),
            ("e", pa.bool_()),
            ("f", pa.float64()),
            ("g", pa.uint64()),
            ("h", pa.int64()),
            ("t", pa.timestamp("ns", "UTC")),
            ("x", pa.binary()),
            ("l", pa.list_(pa.string())),
            ("m", pa.list_(pa.struct([("p", pa.int64()), ("o", pa.float64())]))),
            ("n", pa.struct([("q", pa.struct([("r", pa.list_(pa.list_(pa.int64())))]))])),
            ("empty", pa.null()),
            ("none", pa.list_(pa.string())),
            ("5", pa.string()),
        ]
    )


def test_the_inferred_types_fit_the_sample():
    chance = random.Random(6)
    maps = [make_map(chance) for _ in range(300)]
    for value in maps:
        value.pop("raw", None)  # has values of three types
        value.pop("at", None)
        value.pop("day", None)
        value.pop("other", None)
    payloads = [encode(value, chance) for value in maps]
    decoder = MsgpackDecoder()
    decoder.fit(pa.array(payloads, pa.binary()))
    values, reasons = decode(decoder, payloads)
    assert reasons == [None] * 300
    for raw, value in zip(payloads, values):
        assert repr(value) == repr(expect(raw, decoder.type))


def test_the_first_type_decides():
    decoder = infer({"a": "x"}, {"a": 1}, {"a": {"b": 1}}, {"a": [1]})
    assert decoder.type == pa.struct([("a", pa.string())])
    values, reasons = decode(decoder, [msgpack.packb({"a": value}) for value in ("x", 1, [1])])
    assert values == [{"a": "x"}, None, None]
    assert reasons[1:] == ["a: a value has another type than its column"] * 2


def test_empty_maps_fit_the_column_that_is_inferred_of_them():
    decoder = infer({"a": {}, "b": 1})
    values, reasons = decode(decoder, [msgpack.packb({"a": a}) for a in ({}, None, {"c": 1}, [])])
    assert values == [{"a": None, "b": None}] * 2 + [None] * 2
    assert [reason is None for reason in reasons] == [True, True, False, False]


def test_bad_payloads_of_the_sample_are_ignored():
    good = msgpack.packb({"a": 1})
    deep = b"\x81\xa1d" + b"\x91" * 60 + b"\x01"
    sample = [b"", b"\x81\xa1b", b"\xc1", b"\x91\x01", b"\x81\xa1c\x01\x01", deep, None, good]
    decoder = MsgpackDecoder()
    decoder.fit(pa.array(sample + [b"\x81\xa1\xff\x01"], pa.binary()))
    assert decoder.type == pa.struct([("a", pa.int64())])
    values, reasons = decode(decoder, sample)
    assert values == [None] * 5 + [{"a": None}, None, {"a": 1}]
    assert [reason is None for reason in reasons] == [False] * 5 + [True] * 3


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xc1"])
def test_payloads_without_members_stay_bytes(raw):
    decoder = MsgpackDecoder()
    decoder.fit(pa.array([raw], pa.binary()))
    assert decoder.type == pa.binary()
    later = msgpack.packb({"a": 1})
    values, reasons = decode(decoder, [b"\x80", later, b"\xc1", None])
    assert values == [b"\x80", later, None, None]
    assert [reason is None for reason in reasons] == [True, True, False, True]


def test_too_many_members_need_a_schema():
    with pytest.raises(ValueError, match="more than 1000 different members"):
        infer(*({f"m{i}": 1} for i in range(1001)))
    nested = {"a": [{f"m{i}": 1} for i in range(1001)]}
    with pytest.raises(ValueError, match="more than 1000 different members"):
        infer(nested)


def test_types_are_inferred_from_half_a_million_values():
    raw = b"\x81\xa1a\xdd" + struct.pack(">I", 530_000) + bytes(530_000)
    later = msgpack.packb({"b": 1})
    decoder = MsgpackDecoder()
    decoder.fit(pa.array([raw, later], pa.binary()))
    assert decoder.type == pa.struct([("a", pa.list_(pa.int64()))])


def test_decoding_needs_types():
    with pytest.raises(ValueError, match="call fit first"):
        MsgpackDecoder().decode(pa.array([b"\x80"]))


# ---------------------------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    "schema, message",
    [
        (pa.schema([]), "at least one member"),
        (pa.schema([("a", pa.date32())]), "member a: MessagePack has no values"),
        (pa.schema([("a", pa.list_(pa.float16()))]), "member a: MessagePack has no values"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "the schema has a member twice"),
        (pa.schema([("a", pa.struct([("b", pa.int8())] * 2))]), "a has a member twice"),
    ],
)
def test_schemas_that_cannot_be_used(schema, message):
    with pytest.raises(ValueError, match=message):
        MsgpackDecoder(schema)


def test_a_schema_is_a_schema():
    with pytest.raises(TypeError, match="pyarrow.Schema"):
        MsgpackDecoder({"a": "int64"})


def test_schemas_in_files(tmp_path):
    path = tmp_path / "order.json"
    path.write_text('{"order": "int32", "at": "timestamp[ms, UTC]", "tags": ["string"]}')
    decoder = parse_decoder(f"msgpack:{path}")
    raw = msgpack.packb({"at": msgpack.Timestamp(1, 2_999_999), "order": 7, "tags": ["x"]})
    assert decode(decoder, [raw])[0] == [{"order": 7, "at": 1002, "tags": ["x"]}]
    path.write_text('{"order": "date32"}')
    with pytest.raises(ValueError, match=r"order.json: member order: MessagePack has no values"):
        parse_decoder(f"msgpack:{path}")
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"^[^ ]*order.json: not a schema for decoder 'msgpack'"):
        parse_decoder(f"msgpack:{path}")
    with pytest.raises(OSError):
        parse_decoder("msgpack:nowhere.json")
    with pytest.raises(ValueError, match="nothing follows the colon"):
        parse_decoder("msgpack:")


def test_pickles_have_the_types():
    raw = msgpack.packb({"a": 1})
    for decoder in (infer({"a": 1}), MsgpackDecoder(pa.schema([("a", pa.int8())]))):
        copy = pickle.loads(pickle.dumps(decoder))
        assert copy.type == decoder.type
        assert decode(copy, [raw]) == decode(decoder, [raw]) == ([{"a": 1}], [None])


# ---------------------------------------------------------------------------------- commands


def test_convert_decodes_maps(tmp_path):
    payloads = [msgpack.packb({"item": "rug", "amount": 2.5}), b"\x81\xa4item", b"\xc1"]
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch(payloads))
    result = run("convert", path, tmp_path / "out.parquet", "--decode", "value=msgpack")
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["value"].to_pylist() == [{"item": "rug", "amount": 2.5}, None, None]
    assert table["value_fault"].to_pylist() == [
        None,
        "item: it ends inside a value",
        "it has the byte c1, which MessagePack does not use",
    ]
    (tmp_path / "types.json").write_text(json.dumps({"amount": "float", "price": "int8"}))
    text = f"value=msgpack:{tmp_path / 'types.json'}"
    result = run("convert", path, tmp_path / "given.parquet", "--decode", text)
    assert result.exit_code == 0, result.output
    table = pq.read_table(tmp_path / "given.parquet")
    assert table["value"].to_pylist() == [{"amount": 2.5, "price": None}, None, None]
    result = run("convert", path, tmp_path / "no", "--decode", "value=msgpck")
    assert result.exit_code == 2
    assert "msgpack" in result.output


def test_columns_of_batches():
    batch = pa.record_batch({"value": pa.array([msgpack.packb({"a": 1}), None])})
    decoded = pa.Table.from_batches(PayloadColumns({"value": "msgpack"}).decode_all([batch]))
    assert decoded["value"].to_pylist() == [{"a": 1}, None]
    assert decoded["value_fault"].to_pylist() == [None, None]
