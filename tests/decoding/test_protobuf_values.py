"""Protobuf payloads beside the protobuf package: values, merged fields, hostile bytes."""

from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.protobuf_messages import CLASSES, FILES, ORACLES, SECOND, pack_files, sized, tag
from wirescan.decoding.protobuf_values import ProtobufDecoder

DECODERS = {name: ProtobufDecoder(pack_files(file), name) for name, file in FILES.items()}
NAMES = tuple(FILES)


def decode(name, payloads):
    """Return (values as an array, reasons as a list)."""
    values, reasons = DECODERS[name].decode(pa.array(payloads, pa.binary_view()))
    values.validate(full=True)
    assert len(values) == len(reasons) == len(payloads)
    has_reason = reasons.is_valid().to_pylist()
    for payload, value, refused in zip(payloads, values.is_valid().to_pylist(), has_reason):
        assert value == (payload is not None and not refused)
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
    if name == "old.All":
        # The protobuf package does not check strings of proto2 that a later one replaces.
        is_text = [reason != "a string is not UTF-8" for reason in reasons]
        expected = [value if fine else None for value, fine in zip(expected, is_text)]
    expected = pa.array(expected, DECODERS[name].type)
    if not values.equals(expected):  # or there is a NaN
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
    fields = [field_strategy(field) for field in descriptor.fields]
    return st.lists(st.one_of(fields), max_size=8) if fields else st.just([])


def field_strategy(field):
    """Generate (field name, value)."""
    strategy = value_strategy(field)
    if is_map(field):
        pairs = [value_strategy(item) for item in field.message_type.fields]
        strategy = st.lists(st.tuples(*pairs), max_size=3)
    elif field.is_repeated:
        strategy = st.lists(strategy, max_size=3)
    return st.tuples(st.just(field.name), strategy)


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def fill(message, pairs):
    """Set fields of a message."""
    for name, value in pairs:
        field = message.DESCRIPTOR.fields_by_name[name]
        target = getattr(message, name)
        if field.is_repeated and field.message_type is not None:
            if is_map(field):
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


@cache
def list_strategies(name):
    """Return a strategy for each field, and those for the members of a oneof."""
    fields = CLASSES[name].DESCRIPTOR.fields
    pairs = [(field, field_strategy(field)) for field in fields]
    return [pair for _, pair in pairs], [pair for field, pair in pairs if field.containing_oneof]


@st.composite
def encodings(draw, name):
    """Generate payloads: one message, or several that are merged, with a few different fields."""
    every, choices = list_strategies(name)
    some = every if draw(st.booleans()) else choices
    chosen = draw(st.lists(st.integers(0, len(some) - 1), min_size=1, max_size=6))
    raw = b""
    for _ in range(draw(st.integers(1, 3))):
        indexes = draw(st.lists(st.sampled_from(chosen), max_size=6))
        items = [draw(some[i]) for i in indexes]
        raw += fill(CLASSES[name](), items).SerializePartialToString()
    return raw


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


# ---------------------------------------------------------------------- all fields, twice


def list_values(field):
    """Return a few values of a field."""
    if field.message_type is None:
        values = {
            field.CPPTYPE_STRING: [b"", b"a\xff"] if field.type == field.TYPE_BYTES else ["", "é"],
            field.CPPTYPE_BOOL: [False, True],
            field.CPPTYPE_ENUM: [0, 1],
            field.CPPTYPE_FLOAT: [0.0, 1.5],
            field.CPPTYPE_DOUBLE: [0.0, 1.5],
        }.get(field.cpp_type, [0, 1])
    else:
        values = [[]]
        for inner in field.message_type.fields:
            values += [[(inner.name, value)] for value in list_values(inner)]
    if is_map(field):
        key, value = map(list_values, field.message_type.fields)
        return [[], [(key[0], value[0])], [(key[1], value[0]), (key[0], value[-1])]]
    return [[], values[:1], values[:2]] if field.is_repeated else values


def encode_fields(name, fields):
    """Return messages that have one of some fields."""
    kind = CLASSES[name]
    return [
        fill(kind(), [(field.name, value)]).SerializePartialToString()
        for field in fields
        for value in list_values(field)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_fields_that_occur_again(name):
    """Each field has each pair of values. The last one counts, or they are merged."""
    for field in CLASSES[name].DESCRIPTOR.fields:
        raws = encode_fields(name, [field])
        assert all(compare_with_oracle(name, [a + b for a in raws for b in raws]))


@pytest.mark.parametrize("name", NAMES)
def test_members_of_a_oneof_that_follow_each_other(name):
    fields = CLASSES[name].DESCRIPTOR.oneofs_by_name["choice"].fields
    raws = encode_fields(name, fields)
    assert all(compare_with_oracle(name, [a + b for a in raws for b in raws]))
    few = [raw for field in fields for raw in encode_fields(name, [field])[:2]]
    assert all(compare_with_oracle(name, [a + b + c for a in few for b in few for c in few]))


def test_numbers_that_a_closed_enum_does_not_have():
    """They count as unknown fields: another value stays, and the entry of a map is left out."""
    fields = CLASSES["old.All"].DESCRIPTOR.fields_by_name
    one, many, chosen, number, entries = (
        fields[name].number
        for name in ("one_closed", "many_closed", "chosen_enum", "chosen_number", "closed")
    )
    payloads = [
        tag(one, 0) + b"\7",
        tag(one, 0) + b"\5" + tag(one, 0) + b"\7",
        sized(many, b"\1\7\5\7"),
        tag(many, 0) + b"\7" + tag(many, 0) + b"\1",
        tag(number, 1) + b"12345678" + tag(chosen, 0) + b"\7",
        sized(entries, sized(1, b"a") + tag(2, 0) + b"\5") * 2,
        sized(entries, sized(1, b"a") + tag(2, 0) + b"\7"),
        sized(entries, sized(1, b"a") + tag(2, 0) + b"\5")
        + sized(entries, sized(1, b"a") + tag(2, 0) + b"\7"),
    ]
    assert all(compare_with_oracle("old.All", payloads))
    values, _ = decode("old.All", payloads)
    assert values.field("one_closed").to_pylist()[:2] == [None, "FIVE"]
    assert values.field("many_closed").to_pylist()[2:4] == [["ONE", "FIVE"], ["ONE"]]
    assert values.field("chosen_number")[4].as_py() is not None
    closed = values.field("closed").to_pylist()[5:]
    assert closed == [[("a", "FIVE")], [], [("a", "FIVE")]]


@pytest.mark.parametrize("name", NAMES)
def test_the_type_names_each_field(name):
    names = [field.name for field in CLASSES[name].DESCRIPTOR.fields]
    assert [member.name for member in DECODERS[name].type] == names
    kinds = {member.name: str(member.type) for member in DECODERS[name].type}
    expected = {
        "new.All": {
            "one_uint32": "uint32",
            "many_fixed64": "list<item: uint64>",
            "one_color": "string",
            "one_timestamp": "timestamp[ns, tz=UTC]",
            "many_duration": "list<item: duration[ns]>",
            "one_stringvalue": "string",
            "choice6": "string",
            "many_boolvalue": "list<item: bool>",
            "counts": "map<string, int64>",
            "nothing": "struct<>",
        },
        "old.All": {
            "set_float": "float",
            "closed": "map<string, string>",
            "one": "struct<a: int32, b: list<item: string>, deep: struct<c: uint32>>",
        },
    }[name]
    assert {field: kinds[field] for field in expected} == expected


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_payload_has_the_defaults(name):
    values, reasons = decode(name, [b"", None])
    value = values[0].as_py()
    assert reasons == [None, None]
    assert values[1].as_py() is None
    if name == "new.All":
        expected = {"one_int32": 0, "one_string": "", "one_color": "RED", "optional_int32": None}
        expected |= {"many_bool": [], "counts": [], "inner": None, "one_stringvalue": None}
    else:
        expected = {"one_int32": None, "set_int32": -3, "set_string": "hé", "set_closed": "FIVE"}
        expected |= {"set_bytes": b"a\xff", "set_uint64": 2**64 - 1, "must": None}
    assert {field: value[field] for field in expected} == expected
