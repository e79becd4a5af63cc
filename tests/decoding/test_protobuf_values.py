"""Protobuf payloads beside the protobuf package: values, merged fields, hostile bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.protobuf_messages import CLASSES, FILES, ORACLES, SECOND, pack_files
from wirescan.decoding.protobuf_values import ProtobufDecoder

DECODERS = {name: ProtobufDecoder(pack_files(file), name) for name, file in FILES.items()}
NAMES = tuple(FILES)


def decode(name, payloads):
    """Return (values as an array, reasons as a list)."""
    values, reasons = DECODERS[name].decode(pa.array(payloads, pa.binary_view()))
    values.validate(full=True)
    assert len(values) == len(reasons) == len(payloads)
    assert values.is_valid().to_pylist() == reasons.is_null().to_pylist()
    return values, reasons.to_pylist()


def compare_with_oracle(name, payloads):
    """Check that verdicts and values are those of the oracle. Return the verdicts."""
    expected = []
    for raw in payloads:
        try:
            expected.append(ORACLES[name].read(raw))
        except ValueError:
            expected.append(None)
    values, reasons = decode(name, payloads)
    expected = pa.array(expected, DECODERS[name].type)
    if show(values) != show(expected):
        for raw, value, other, reason in zip(payloads, values, expected, reasons):
            assert show([value]) == show([other]), (raw.hex(), reason)
    return [reason is None for reason in reasons]


def show(values):
    """Return values as text, in which NaN is equal to itself."""
    return repr([value.as_py() for value in values])


# ---------------------------------------------------------------------- generated messages


def numbers(bits, is_signed):
    low = -(1 << bits - 1) if is_signed else 0
    high = (1 << bits - is_signed) - 1
    return st.one_of(st.integers(low, high), st.sampled_from([low, 0, 1, high]))


def value_strategy(field):
    if field.message_type is not None:
        return message_strategy(field.message_type)
    if field.enum_type is not None:
        known = [value.number for value in field.enum_type.values]
        other = [] if field.enum_type.is_closed else [9, -(2**31)]
        return st.sampled_from(known + other)
    kinds = {
        "DOUBLE": st.floats(),
        "FLOAT": st.floats(width=32),
        "BOOL": st.booleans(),
        "STRING": st.text(max_size=9),
        "BYTES": st.binary(max_size=9),
    }
    for kind, strategy in kinds.items():
        if field.type == getattr(field, f"TYPE_{kind}"):
            return strategy
    is_long = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    is_signed = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32)
    return numbers(64 if is_long else 32, is_signed)


def message_strategy(descriptor):
    """Generate (field name, value) of some fields of a message."""
    if descriptor.full_name == "google.protobuf.Timestamp":
        return st.tuples(
            st.tuples(st.just("seconds"), st.integers(-9 * SECOND, 9 * SECOND)),
            st.tuples(st.just("nanos"), st.integers(0, SECOND - 1)),
        )
    if descriptor.full_name == "google.protobuf.Duration":
        sign = st.sampled_from([-1, 1])
        return st.tuples(sign, st.integers(0, 9 * SECOND), st.integers(0, SECOND - 1)).map(
            lambda parts: (("seconds", parts[0] * parts[1]), ("nanos", parts[0] * parts[2]))
        )
    fields = []
    for field in descriptor.fields:
        strategy = value_strategy(field)
        if field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
            pairs = [value_strategy(item) for item in field.message_type.fields]
            strategy = st.lists(st.tuples(*pairs), max_size=3)
        elif field.is_repeated:
            strategy = st.lists(strategy, max_size=3)
        fields.append(st.tuples(st.just(field.name), strategy))
    return st.lists(st.one_of(fields), max_size=8) if fields else st.just([])


def fill(message, pairs):
    """Set fields of a message."""
    for name, value in pairs:
        field = message.DESCRIPTOR.fields_by_name[name]
        target = getattr(message, name)
        if field.is_repeated and field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                is_message = field.message_type.fields_by_name["value"].message_type is not None
                for key, item in value:
                    if is_message:
                        fill(target[key], item)
                    else:
                        target[key] = item
            else:
                for item in value:
                    fill(target.add(), item)
        elif field.is_repeated:
            target.extend(value)
        elif field.message_type is not None:
            target.SetInParent()
            fill(target, value)
        else:
            setattr(message, name, value)
    return message


def encodings(name):
    """Generate payloads: one message, or several that are merged."""
    pairs = message_strategy(CLASSES[name].DESCRIPTOR)
    raw = pairs.map(lambda items: fill(CLASSES[name](), items).SerializePartialToString())
    return st.lists(raw, min_size=1, max_size=3).map(b"".join)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_protobuf_package(name):
    @given(st.lists(encodings(name), max_size=4))
    def check(payloads):
        assert all(compare_with_oracle(name, payloads))

    check()


@pytest.mark.parametrize("name", NAMES)
def test_damaged_payloads_have_the_verdict_of_the_protobuf_package(name):
    @given(encodings(name), st.data())
    def check(raw, data):
        damaged = [raw]
        for _ in range(5):
            octets = bytearray(raw)
            at = data.draw(st.integers(0, len(raw)))
            octets[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
            damaged.append(bytes(octets))
        compare_with_oracle(name, damaged)

    check()
