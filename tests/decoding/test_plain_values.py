"""Numbers and text: the values of independent encoders, and hostile sizes."""

import struct
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirescan.decoding.notation import PLAIN_NAMES, parse_decoder
from wirescan.decoding.plain_values import NUMBERS

BINARY = [pa.binary(), pa.large_binary(), pa.binary_view()]
PACKED = {
    "short": (">h", pa.int16(), [0, -1, 32767, -32768]),
    "int": (">i", pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "long": (">q", pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "float": (">f", pa.float32(), [0.0, -1.5, float("inf")]),
    "double": (">d", pa.float64(), [0.0, -0.1, 1e308]),
}


def decode(text, payloads, kind=None):
    """Return (values, reasons) as lists. The type of the values is that of the decoder."""
    decoder = parse_decoder(text)
    array = pa.array(payloads, kind or pa.binary())
    values, reasons = decoder.decode(array)
    values.validate(full=True)
    assert values.type == decoder.type
    assert len(values) == len(reasons) == len(payloads)
    return values.to_pylist(), reasons.to_pylist()


@pytest.mark.parametrize("kind", BINARY, ids=str)
@pytest.mark.parametrize("name", PACKED)
def test_numbers(name, kind):
    form, arrow_type, numbers = PACKED[name]
    payloads = [struct.pack(form, number) for number in numbers]
    assert parse_decoder(name).type == arrow_type
    values, reasons = decode(name, [*payloads, None], kind)
    assert values == [*numbers, None]
    assert reasons == [None] * len(values)


@pytest.mark.parametrize("name", PACKED)
def test_numbers_of_another_size_are_refused(name):
    size = struct.calcsize(PACKED[name][0])
    values, reasons = decode(name, [b"", b"\0" * (size - 1), b"\0" * size, b"\0" * (size + 1)])
    assert values == [None, None, 0, None]
    reason = f"it does not have {size} bytes"
    assert reasons == [reason, reason, None, reason]


def test_a_slice_has_its_own_numbers():
    array = pa.array([b"\0\0\0\1", b"x", None, b"\0\0\0\4"], pa.binary()).slice(1)
    decoded = parse_decoder("int").decode(array)
    assert decoded.values.to_pylist() == [None, None, 4]
    assert decoded.reasons.is_valid().to_pylist() == [True, False, False]


def test_no_payloads():
    for name in (*PACKED, "uuid", "string"):
        assert decode(name, []) == ([], [])
        assert decode(name, [None]) == ([None], [None])


@given(st.lists(st.none() | st.text().map(str.encode) | st.binary(max_size=4), max_size=20))
def test_text_is_refused_where_python_refuses_it(payloads):
    values, reasons = decode("string", payloads)
    for payload, value, reason in zip(payloads, values, reasons):
        try:
            expected = None if payload is None else payload.decode()
        except UnicodeDecodeError:
            assert (value, reason) == (None, "it is not UTF-8")
        else:
            assert (value, reason) == (expected, None)


def test_uuids():
    one = uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
    payloads = [str(one).encode(), str(one).upper().encode(), one.hex.encode(), b"\xff", None]
    values, reasons = decode("uuid", payloads)
    assert values == [str(one), str(one), None, None, None]
    assert reasons == [None, None, "it is not a UUID", "it is not a UUID", None]


@pytest.mark.parametrize("text", ["xml", "", "int:4", "json:", ":", "string:x"])
def test_other_texts_name_no_decoder(text):
    with pytest.raises(ValueError):
        parse_decoder(text)


def test_other_arrays_are_no_payloads():
    with pytest.raises(TypeError, match="not of string"):
        parse_decoder("int").decode(pa.array(["a"]))


def test_every_plain_decoder_has_a_name():
    assert set(PLAIN_NAMES) == {*NUMBERS, "uuid", "string"}
