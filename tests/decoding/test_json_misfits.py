"""The search for refused documents decodes one document of each shape, and finds the same ones."""

import json

import numpy as np
import pyarrow as pa
import pytest

from wirescan import lumberjack
from wirescan.decoding import json_misfits
from wirescan.decoding.json_lines import extract_shape

TIMES = [
    "2026-11-21T22:50:01Z",
    "2026-11-21T22:50:01.123456789Z",
    "2026-11-21T22:50:01.Z",
    "2026-11-21T22:50:01.1234567890Z",
    "2026-02-28T00:00:00.0Z",
    "2026-02-29T00:00:00.0Z",
    "2028-02-29T00:00:00.0Z",
    "2026-04-30T00:00:00.0Z",
    "2026-04-31T00:00:00.0Z",
    "2026-12-31T23:59:59.999Z",
    "2026-12-32T23:59:59.999Z",
    "2026-13-01T00:00:00Z",
    "2026-11-21T24:00:00Z",
    "2026-11-21T23:60:00Z",
    "2026-11-21T23:59:60Z",
    "1677-12-31T00:00:00Z",
    "1678-01-01T00:00:00Z",
    "2261-12-31T23:59:59Z",
    "2262-12-31T00:00:00Z",
    "2026-11-21T22:50:01+01:00",
    "2026-11-21 22:50:01Z",
    "2026-11-21",
    "21 November 2026",
    "2026",
    "2026-",
    "",
]
NUMBERS = ["0", "-0", "7", "-12", "01", "-01", "-", "1.", ".5", "1.5", "-0.25", "1e5", "1E400"]
NUMBERS += ["127", "128", "-129", "999999999999999999", "9223372036854775808", "9" * 30]
OTHERS = [
    "true",
    "false",
    "tru",
    "null",
    '"a"',
    r'"\ud800"',
    r'"\u00e9"',
    '"é"',
    '"a,b"',
    "[]",
    "{}",
]
OTHERS += [
    '["a","b"]',
    '["a",1]',
    "[1,2]",
    "[1,null]",
    "[1 2]",
    '{"b":1}',
    '{"b":"x"}',
    '{"b":1,"b":2}',
]
VALUES = [json.dumps(time) for time in TIMES] + NUMBERS + OTHERS
SCHEMAS = {
    "inferred": {},
    "int8": {"schema": pa.schema([("a", pa.int8())]), "others": True},
    "int64": {"schema": pa.schema([("a", pa.int64())])},
    "uint64": {"schema": pa.schema([("a", pa.uint64())])},
    "time": {"schema": pa.schema([("a", pa.timestamp("ns", "UTC"))])},
    "seconds": {"schema": pa.schema([("a", pa.timestamp("s"))]), "others": True},
    "string": {"schema": pa.schema([("a", pa.string())])},
}


def make_documents(seed: int, count: int) -> list[bytes]:
    """Return documents of few shapes, half of whose values are of one kind."""
    random = np.random.default_rng(seed)
    common = [TIMES, NUMBERS][seed % 2]
    documents = []
    for _ in range(count):
        name = random.choice(["a", "@timestamp"], p=[0.8, 0.2])
        value = random.choice(VALUES)
        if random.random() < 0.5:
            value = random.choice(common)
            value = value if common is NUMBERS else json.dumps(value)
        rest = random.choice(["", ',"c":1', ', "c":"x"'], p=[0.5, 0.4, 0.1])
        documents.append(f'{{"{name}":{value}{rest}}}'.encode())
    return documents


def parse(documents: list[bytes], **options) -> pa.Table:
    frames = lumberjack.scan(
        b"".join(map(lumberjack.encode_json, range(len(documents)), documents))
    )
    return lumberjack.documents(lumberjack.events(frames), errors="mark", **options)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_shapes_decide_as_documents_do(name, seed, monkeypatch):
    """The result is the same if every document has a shape of its own."""
    documents = make_documents(seed, 600)
    table = parse(documents, **SCHEMAS[name])
    calls = []
    monkeypatch.setattr(
        json_misfits, "extract_shape", lambda line: calls.append(line) or b"%d" % len(calls)
    )
    expected = parse(documents, **SCHEMAS[name])
    assert calls
    assert table["refused"].is_valid().to_pylist() == expected["refused"].is_valid().to_pylist()
    assert table.drop_columns("refused").equals(expected.drop_columns("refused"))


@pytest.mark.parametrize("value", VALUES)
def test_a_value_decides_like_the_first_of_its_shape(value):
    """Each value is checked after each other value of the same shape."""
    for kind in (pa.timestamp("ns", "UTC"), pa.int64(), pa.string(), pa.float64()):
        schema = pa.schema([("a", kind)])

        def reason(fields, value):
            return fields.find_misfit(b'{"a":%s}\n' % value.encode())

        alone = reason(json_misfits.Types(schema, schema, infers=False), value)
        for other in VALUES:
            fields = json_misfits.Types(schema, schema, infers=False)
            reason(fields, other)
            assert (reason(fields, value) is None) == (alone is None), (kind, other)


def test_plain_values_become_markers():
    line = b'{"name": "x", "n":1,"f":-0.5,"b":false,"t":"2026-11-21T22:50:01.5Z","z":null}\n'
    shape = extract_shape(line)
    assert shape == b'{"name": \x01, "n":\x03,"f":\x04,"b":\x05,"t":\x02,"z":null}\n'


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":"\\u0041"}\n',
        b'{"a":1e5}\n',
        b'{"a":01}\n',
        b'{"a":1234567890123456789}\n',
        b'{"a":"2026-02-29T00:00:00Z"}\n',
        b'{"a":tru}\n',
    ],
)
def test_other_values_stay(line):
    assert extract_shape(line) == line


def test_documents_of_one_shape_are_decoded_once(monkeypatch):
    calls = []
    check = json_misfits.Types._check_document
    monkeypatch.setattr(
        json_misfits.Types,
        "_check_document",
        lambda fields, line: calls.append(line) or check(fields, line),
    )
    documents = [b'{"a":%d,"b":"%d"}' % (i, i) for i in range(500)]
    documents += [b'{"a":"%d","b":"%d"}' % (i, i) for i in range(500)]
    assert parse(documents)["refused"].is_valid().to_pylist() == [False] * 500 + [True] * 500
    assert len(calls) == 2
