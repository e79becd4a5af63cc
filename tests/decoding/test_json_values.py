"""JSON payloads: values beside Python's own parser, types, and hostile documents."""

import json
import time
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from tests.support.slowness import SLOWNESS
from wirescan.decoding import json_parser
from wirescan.decoding.json_values import JsonDecoder, read_json_schema
from wirescan.decoding.notation import parse_decoder

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.struct([("c", pa.list_(pa.string()))]))])
HOSTILE = {
    "deep": b'{"a":' + b"[" * 100_000,
    "deep and closed": b'{"x":' + b"[" * 60 + b"]" * 60 + b"}",
    "members": b"{" + b",".join(b'"%d":1' % i for i in range(10_000)) + b"}",
    "no object": b"[1]",
    "empty": b"",
    "two objects": b"{}{}",
    "cut": b'{"a":1',
    "no UTF-8": b'{"a":1,"d":"\xff"}',
    "another type": b'{"a":"x"}',
    "too large": b'{"a":99999999999999999999}',
    "twice": b'{"a":1,"a":2}',
    "half a pair": b'{"b":{"c":["\\ud800"]}}',
    "digits": b'{"a":' + b"9" * 1000 + b"}",
    "zeros": bytes(10),
}
GOOD = b'{"a":1,"b":{"c":["x",null]},"ignored":[{}]}'
VALUE = {"a": 1, "b": {"c": ["x", None]}}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_null_with_a_reason(name):
    payloads = pa.array([GOOD, HOSTILE[name], None, b"{}", GOOD], pa.binary_view())
    values, reasons = JsonDecoder(SCHEMA).decode(payloads)
    values.validate(full=True)
    assert values.to_pylist() == [VALUE, None, None, {"a": None, "b": None}, VALUE]
    assert reasons.is_valid().to_pylist() == [False, True, False, False, False]
    assert 0 < len(reasons[1].as_py()) <= 200


DECIMALS = [
    *("0", "-0", "1", "-1.5", "99.99", "100", "12.345", "12.3450", "0.1", "1e1", "1E2", "1e-1"),
    *("1e-50", "142.9325", "402", "9" * 10, "9" * 21, "9" * 38, "0.5", "123456789012345678.5"),
    *('"7.5"', '"+7"', '"x"', '"1e-99"', '"\\u0031e-99"', '"1234567890"', '""', "true", "[1]"),
]


DECIMAL_KINDS = [
    getattr(pa, f"decimal{bits}")(precision, scale)
    for bits, most in ((32, 9), (64, 18), (128, 38), (256, 38))
    if hasattr(pa, f"decimal{bits}")
    for precision, scale in ((4, 2), (5, 0), (9, 9), (20, 2), (38, 0), (38, 18), (38, 38))
    if precision <= most
]


@pytest.mark.parametrize("kind", DECIMAL_KINDS, ids=str)
def test_decimals_have_all_digits_or_are_refused(kind):
    """pyarrow's parser loses digits that do not fit, without an error."""
    precision, scale = kind.precision, kind.scale
    decoder = JsonDecoder(pa.schema([("d", kind), ("l", pa.list_(kind))]))
    documents = [b'{"d":%s,"l":[%s]}' % (text.encode(), text.encode()) for text in DECIMALS]
    values, reasons = decoder.decode(pa.array(documents, pa.binary()))
    values.validate(full=True)
    for text, value, reason in zip(DECIMALS, values.to_pylist(), reasons.to_pylist()):
        alone, _ = decoder.decode(pa.array([b'{"d":%s}' % text.encode()]))
        assert alone.is_valid()[0].as_py() == (reason is None), (text, reason)
        try:
            exact = Decimal(str(json.loads(text, parse_float=str)))
        except ArithmeticError:
            exact = None
        if value is not None:
            assert value["d"] == value["l"][0] == exact, text
        elif exact is not None and "0" not in text:
            unscaled = Fraction(exact) * 10**scale
            assert unscaled.denominator > 1 or abs(unscaled) >= 10**precision, text


def test_a_refused_decimal_is_shown_as_it_is_written():
    decoder = JsonDecoder(pa.schema([("d", pa.decimal128(38, 2))]))
    _, reasons = decoder.decode(pa.array([b'{"d":0.12345678901234567890123}']))
    assert "failed to convert 0.12345678901234567890123 to decimal128" in reasons[0].as_py()


@pytest.mark.parametrize(
    "odd, most",
    [
        (b'"a \\u0026 b"', 0),  # encoders write some letters so
        (b'"7e3c81a4-5d"', 0),
        (b'"12345678901234567890123456789012345678x"', 0),
        (b"1e-7", 3000),  # its segment
    ],
)
def test_few_documents_beside_decimals_are_read_one_by_one(monkeypatch, odd, most):
    lines = []
    original = json_parser._infer_and_refuse

    def count_lines(documents, *arguments, **options):
        lines.extend(documents)
        return original(documents, *arguments, **options)

    monkeypatch.setattr(json_parser, "_infer_and_refuse", count_lines)
    documents = [b'{"d":%d.25,"x":null}' % number for number in range(20_000)]
    documents[9000] = b'{"d":9000.25,"x":%s}' % odd
    schema = pa.schema([("d", pa.decimal128(10, 2))])
    values, reasons = JsonDecoder(schema).decode(pa.array(documents, pa.binary()))
    assert reasons.null_count == len(documents)
    assert values.field("d").to_pylist() == [Decimal(f"{n}.25") for n in range(20_000)]
    assert len(lines) <= most


@pytest.mark.parametrize(
    "kind",
    [pa.decimal128(9, 2), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns")],
    ids=str,
)
@pytest.mark.parametrize("text", ['"x%d"', "%d.125", "-%d99999999999999999", "[%d]"])
def test_many_values_that_are_refused_take_little_time(kind, text):
    documents = [b'{"v":%s}' % text.encode() % number for number in range(20_000)]
    begun = time.process_time()
    decoded = JsonDecoder(pa.schema([("v", kind)])).decode(pa.array(documents, pa.binary()))
    assert time.process_time() - begun < 2 * SLOWNESS
    assert decoded.values.null_count == len(documents)


def test_ignored_names_may_occur_twice():
    documents = [b'{"x":1,"x":2,"a":3}', b'{"a":3,"x":{"y":1,"y":2}}', b'{"a":3,"b":{"z":1,"z":1}}']
    values, reasons = JsonDecoder(SCHEMA).decode(pa.array(documents, pa.binary()))
    assert values.field("a").to_pylist() == [3, 3, 3]
    assert reasons.to_pylist() == [None] * 3


def test_types_are_inferred_from_a_sample():
    documents = [
        {"id": 1, "name": "a", "tags": ["x"], "at": {"x": 0.5}},
        {"id": 2, "name": None, "more": True},
    ]
    payloads = pa.array([json.dumps(document).encode() for document in documents], pa.binary())
    decoder = parse_decoder("json")
    assert decoder.type is None
    decoder.fit(payloads)
    assert decoder.type == pa.struct(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.struct([("x", pa.float64())])),
            ("more", pa.bool_()),
        ]
    )
    later = pa.array([b'{"id":3,"new":1}', b'{"id":"x"}'], pa.binary())
    values, reasons = decoder.decode(later)
    empty = dict.fromkeys(("name", "tags", "at", "more"))
    assert values.to_pylist() == [{"id": 3, **empty}, None]
    assert reasons.is_valid().to_pylist() == [False, True]


def test_bad_documents_of_the_sample_give_no_types():
    decoder = parse_decoder("json")
    decoder.fit(pa.array([b'{"a":', None, b'{"b":1}', b"x"], pa.binary()))
    assert decoder.type == pa.struct([("b", pa.int64())])


def test_numbers_keep_their_digits_beside_and_in_text():
    schema = pa.schema([("d", pa.decimal128(38, 10)), ("x", pa.float64()), ("s", pa.string())])
    digits = "1234567890123456789.1234567891"
    documents = [
        b'{"d":%s,"x":-0,"s":"text"}' % digits.encode(),
        b'{"d":%s,"x":-0,"s":1.10}' % digits.encode(),
        b'{"s": {"\xc3\xa9": [%s, 1E400, -0, null, true, "\\u0022"]}}' % digits.encode(),
    ]
    values, reasons = JsonDecoder(schema).decode(pa.array(documents, pa.binary()))
    assert reasons.null_count == 3
    rows = values.to_pylist()
    assert [row["d"] for row in rows] == [Decimal(digits), Decimal(digits), None]
    assert [str(row["x"]) for row in rows] == ["-0.0", "-0.0", "None"]
    text = f'{{"é":[{digits},1E400,-0,null,true,"\\""]}}'
    assert [row["s"] for row in rows] == ["text", "1.10", text]


@pytest.mark.parametrize(
    "kind, numbers",
    [
        (pa.time32("s"), [0, 86_399, -1, 86_400]),
        (pa.time64("us"), [0, 86_399_999_999, -1, 86_400_000_000]),
        (pa.date64(), [0, -86_400_000, 1, 86_399_999]),
    ],
)
@pytest.mark.parametrize("member", ["%d", '{"x":%d}', "[null,%d]"])
def test_times_are_within_a_day_and_dates_are_days(kind, numbers, member):
    """Arrow has no others: DuckDB ends its database when it reads one."""
    types = {"%": kind, "{": pa.struct([("x", kind)]), "[": pa.list_(kind)}
    schema = pa.schema([("t", types[member[0]])])
    payloads = [b'{"t":%s}' % (member % number).encode() for number in numbers]
    values, reasons = JsonDecoder(schema).decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    assert values.is_valid().to_pylist() == [True, True, False, False]
    assert reasons.is_valid().to_pylist() == [False, False, True, True]


@pytest.mark.parametrize("member", ["%s", '{"x":%s}', "[null,%s]"])
def test_numbers_that_are_too_large_for_a_float_are_refused(member):
    types = {"%": pa.float32(), "{": pa.struct([("x", pa.float32())]), "[": pa.list_(pa.float32())}
    schema = pa.schema([("t", types[member[0]])])
    numbers = ["3.4028235e38", "-1e38", "1e39", "-3.5e38", "9" * 39]
    payloads = [b'{"t":%s}' % (member % number).encode() for number in numbers]
    values, reasons = JsonDecoder(schema).decode(pa.array(payloads, pa.binary()))
    assert values.is_valid().to_pylist() == [True, True, False, False, False]
    assert all("to float" in reason.as_py() for reason in reasons[2:])


def test_objects_without_members_stay_text():
    decoder = parse_decoder("json")
    payloads = pa.array([b"{}", b" { } ", b"[]", None], pa.binary_view())
    decoder.fit(payloads)
    values, reasons = decoder.decode(payloads)
    assert values.to_pylist() == ["{}", " { } ", None, None]
    assert reasons.to_pylist() == [None, None, "it is not an object", None]


def test_types_must_be_known():
    with pytest.raises(ValueError, match="give a schema, or call fit"):
        parse_decoder("json").decode(pa.array([b"{}"], pa.binary()))


def test_many_refused_documents_cost_little():
    payloads = pa.array([b'{"a":"%d"}' % i for i in range(20_000)] + [b'{"a":1}'], pa.binary())
    start = time.perf_counter()
    values, reasons = JsonDecoder(SCHEMA).decode(payloads)
    assert time.perf_counter() - start < 20 * SLOWNESS
    assert values.null_count == 20_000 and reasons.null_count == 1


def test_schema_files(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(
        '{"a": "int64", "b": {"c": ["string"]}, "t": "timestamp[ms, UTC]", "u": "timestamp[us]"}'
    )
    times = [("t", pa.timestamp("ms", "UTC")), ("u", pa.timestamp("us"))]
    assert read_json_schema(str(path)) == pa.schema([*SCHEMA, *times])
    decoder = parse_decoder(f"json:{path}")
    values, reasons = decoder.decode(pa.array([GOOD], pa.binary()))
    assert values.to_pylist() == [VALUE | {"t": None, "u": None}]


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a": "text"}', '{"a": 1}', '{"a": []}', "[" * 100_000, "{}", "\ud800"]
)
def test_other_schema_files_are_refused(text, tmp_path):
    path = tmp_path / "schema.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(ValueError):
        parse_decoder(f"json:{path}")


NO_HEADER = "it does not begin with Confluent's header"


def test_documents_after_confluents_header():
    header = b"\0\0\0\1\7"
    documents = [
        *(
            header + GOOD,
            GOOD,
            None,
            b"",
            header[:4],
            header,
            header + b"{}",
            b"\1" + header + GOOD,
        ),
        *(header + b"[1]", header + GOOD),
    ]
    decoder = JsonDecoder(SCHEMA, has_header=True)
    empty = {"a": None, "b": None}
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        for start in range(3):
            payloads = pa.array([*documents, header], kind).slice(start, 10 - start)
            values, reasons = decoder.decode(payloads)
            expected = [VALUE, None, None, None, None, None, empty, None, None, VALUE]
            assert values.to_pylist() == expected[start:]
            others = [NO_HEADER, None, NO_HEADER, NO_HEADER]
            wrong = ["it is not an object", None, NO_HEADER, "it is not an object", None]
            assert reasons.to_pylist() == [None, *others, *wrong][start:]


@pytest.mark.parametrize("payloads", [[], [None, None], [b"", b"x"]])
def test_no_payload_has_a_header(payloads):
    decoder = JsonDecoder(SCHEMA, has_header=True)
    values, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    assert values.null_count == len(payloads)
    assert reasons.to_pylist() == [raw if raw is None else NO_HEADER for raw in payloads]


@pytest.mark.parametrize("file", ["", "types.json,"])
def test_the_text_names_the_header(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "types.json").write_text('{"a": "int64"}')
    payloads = pa.array([GOOD, b"\0\0\0\0\1" + b'{"a": 5}'])
    decoder = parse_decoder(f"json:{file}header=confluent")
    decoder.fit(payloads)
    assert decoder.type == pa.struct([("a", pa.int64())])
    assert decoder.decode(payloads).values.to_pylist() == [None, {"a": 5}]
    with pytest.raises(ValueError, match="header is confluent, not 'avro'"):
        parse_decoder(f"json:{file}header=avro")


def test_without_members_the_values_are_the_text_after_the_header():
    decoder = JsonDecoder(has_header=True)
    payloads = pa.array([b"\0\0\0\0\1{ }", b"{}"])
    decoder.fit(payloads)
    values, reasons = decoder.decode(payloads)
    assert values.to_pylist() == ["{ }", None]
    assert reasons.to_pylist() == [None, NO_HEADER]


def test_the_message_about_a_schema_names_the_decoder(tmp_path):
    path = tmp_path / "order.json"
    path.write_text('{"a": "int6"}')
    for name in ("json", "msgpack"):
        with pytest.raises(ValueError, match=f"order.json: not a schema for decoder '{name}': "):
            parse_decoder(f"{name}:{path}")
