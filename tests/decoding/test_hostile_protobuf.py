"""Hostile Protobuf: bytes that are damaged everywhere, deep nesting, costs, hostile descriptors."""

import sys
import time

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from tests.support.children import run_scans
from tests.support.protobuf_messages import (
    FILES,
    ORACLES,
    add_enum,
    add_field,
    add_map,
    make_new_file,
    make_samples,
    pack_files,
    sized,
    tag,
)
from tests.support.slowness import SLOWNESS
from tests.support.varint import make_varint
from wirescan.decoding.protobuf_values import ProtobufDecoder

DECODERS = {name: ProtobufDecoder(pack_files(file), name) for name, file in FILES.items()}
DEEPEST = 100


def decode(name, payloads):
    return decode_with(DECODERS[name], payloads)


def decode_with(decoder, payloads):
    """Return (values as an array, reasons as a list)."""
    values, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    values.validate(full=True)
    has_reason = reasons.is_valid().to_pylist()
    for payload, value, refused in zip(payloads, values.is_valid().to_pylist(), has_reason):
        assert value == (payload is not None and not refused)
    return values, reasons.to_pylist()


def make_file(syntax="proto3"):
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x", syntax=syntax)
    return file, file.message_type.add(name="M")


def damage(raw):
    """Yield a payload cut at each byte, without each byte, and with each bit flipped."""
    for at in range(len(raw)):
        yield raw[:at]
        yield raw[:at] + raw[at + 1 :]
        for bit in range(8):
            yield raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_each_damage_has_the_verdict_and_value_of_the_protobuf_package(name):
    payloads = [item for raw in make_samples(name) for item in (raw, *damage(raw))]
    expected = []
    for raw in payloads:
        try:
            expected.append(ORACLES[name].read(raw))
        except ValueError:
            expected.append(None)
    values, reasons = decode(name, payloads)
    expected = pa.array(expected, DECODERS[name].type).to_pylist()
    for raw, value, other, reason in zip(payloads, values.to_pylist(), expected, reasons):
        assert repr(value) == repr(other), (raw.hex(), reason)
    refused = sum(reason is not None for reason in reasons)
    assert refused > len(payloads) / 10
    assert len(payloads) - refused > len(payloads) / 10


CUT = "it ends inside a field"
LONG = "a varint has too many bytes"
HOSTILE = {
    "cut tag": (b"\x80", CUT),
    "cut varint": (tag(5, 0) + b"\xff", CUT),
    "cut word": (tag(1, 1) + b"1234567", CUT),
    "cut string": (tag(9, 2) + b"\2a", CUT),
    "cut message": (sized(50, tag(1, 0)), CUT),
    "cut unknown": (tag(999, 5) + b"123", CUT),
    "cut unknown group": (tag(999, 3) + tag(1, 0) + b"\1", CUT),
    "huge size": (tag(9, 2) + b"\xff\xff\xff\xff\x0f", CUT),
    "varint of 11 bytes": (tag(5, 0) + b"\xff" * 10 + b"\1", LONG),
    "unknown varint of 11 bytes": (tag(999, 0) + b"\xff" * 10 + b"\1" + b"\0" * 9, LONG),
    "tag of 6 bytes": (b"\x88\x80\x80\x80\x80\0\1", LONG),
    "tag of 33 bits": (b"\x88\x80\x80\x80\x10\1", LONG),
    "size of 6 bytes": (tag(9, 2) + b"\x80\x80\x80\x80\x80\0", LONG),
    "field 0": (b"\0\1", "a field has the number 0"),
    "field 0 in a message": (sized(50, b"\2\0"), "a field has the number 0"),
    "wire type 6": (tag(5, 6) + b"\1", "a field has a wire type that does not exist"),
    "wire type 7": (tag(999, 7) + b"\1", "a field has a wire type that does not exist"),
    "end of no group": (tag(5, 4), "a group ends that did not begin"),
    "end of another group": (tag(998, 3) + tag(999, 4), "a group ends that did not begin"),
    "group that a message ends": (sized(50, tag(9, 4)), "a group ends that did not begin"),
    "packed words": (
        sized(207, b"12345"),
        "the size of packed numbers is no multiple of their width",
    ),
    "packed varint": (sized(205, b"\x80"), CUT),
    "text": (sized(9, b"\xff"), "a string is not UTF-8"),
    "text of a map": (sized(60, sized(1, b"\xed\xa0\x80")), "a string is not UTF-8"),
    "text that another one replaces": (sized(9, b"\xff") + sized(9, b"a"), "a string is not UTF-8"),
    "nanos": (
        sized(401, tag(2, 0) + make_varint(10**9)),
        "the nanos of a Timestamp or Duration are out of range",
    ),
    "negative nanos": (
        sized(401, tag(2, 0) + make_varint(-1)),
        "the nanos of a Timestamp or Duration are out of range",
    ),
    "signs": (
        sized(402, tag(1, 0) + b"\1" + tag(2, 0) + make_varint(-1)),
        "the nanos of a Timestamp or Duration are out of range",
    ),
    "far": (
        sized(401, tag(1, 0) + make_varint(253402300799)),
        "a Timestamp or Duration does not fit into 64 bits of nanoseconds",
    ),
    "farthest": (
        sized(402, tag(1, 0) + make_varint(-(2**63))),
        "a Timestamp or Duration does not fit into 64 bits of nanoseconds",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_null_with_a_reason(name):
    raw, expected = HOSTILE[name]
    values, reasons = decode("new.All", [sized(9, b"a"), raw, None, raw, b""])
    assert reasons == [None, expected, None, expected, None]
    assert values[0]["one_string"].as_py() == "a"
    assert values[4]["one_string"].as_py() == ""


def test_the_number_0_is_refused_where_the_protobuf_package_accepts_it():
    payloads = [tag(999, 3) + raw + tag(999, 4) for raw in (b"\0\1", b"\2\0", b"\1" + bytes(8))]
    payloads += [sized(48, b"\0\1"), sized(48, b"\2\0")]
    _, reasons = decode("new.All", payloads)
    assert reasons == ["a field has the number 0"] * 5
    for raw in payloads:
        ORACLES["new.All"].read(raw)


def test_strings_of_proto2_must_be_text():
    assert decode("old.All", [sized(9, b"\xff")])[1] == ["a string is not UTF-8"]


@pytest.mark.parametrize("seconds, nanos, is_fine", [
    (9223372036, 854775807, True),
    (9223372036, 854775808, False),
    (-9223372037, 145224193, True),
    (-9223372037, 145224192, False),  # the number that stands for "not a time"
    (-9223372038, 999999999, False),
    (9223372037, 0, False),
    (-1, 1, True),
    (0, 0, True),
])  # fmt: skip
def test_the_edges_of_timestamps(seconds, nanos, is_fine):
    raw = sized(401, tag(1, 0) + make_varint(seconds) + tag(2, 0) + make_varint(nanos))
    values, reasons = decode("new.All", [raw])
    assert (reasons[0] is None) == is_fine
    if is_fine:
        column = values.field("one_timestamp").cast(pa.int64())
        assert column.to_pylist() == [seconds * 10**9 + nanos]


# ---------------------------------------------------------------------- depth


@pytest.mark.parametrize("depth, is_fine", [(DEEPEST, True), (DEEPEST + 1, False)])
def test_unknown_groups_are_skipped_to_a_depth(depth, is_fine):
    raw = tag(999, 3) * depth + tag(999, 4) * depth
    inside = sized(50, tag(999, 3) * (depth - 1) + tag(999, 4) * (depth - 1))
    for payload in (raw, inside):
        reasons = decode("new.All", [payload])[1]
        assert reasons == [None if is_fine else "its values are nested too deeply"]


def test_a_million_groups_are_refused():
    reasons = decode("new.All", [tag(15, 3) * 1_000_000, tag(40, 3) * 1_000_000])[1]
    assert reasons == ["its values are nested too deeply"] * 2
    group = tag(40, 3) + tag(3, 3)
    assert decode("old.All", [group * 500_000])[1] == ["its values are nested too deeply"]


# ---------------------------------------------------------------------- costs


def measure(decoder, payload):
    """Return the reasons of a payload and the seconds that it takes."""
    start = time.process_time()
    reasons = decode_with(decoder, [payload])[1]
    return reasons[0], time.process_time() - start


def make_wide_file():
    """Return messages of 1,000 fields, in lists, maps and a oneof."""
    file, message = make_file()
    wide = file.message_type.add(name="Wide")
    for i in range(1000):
        add_field(wide, f"f{i}", i + 1, "sint64" if i % 2 else "string")
    message.oneof_decl.add(name="choice")
    add_field(message, "a", 1, "message .x.Wide", oneof_index=0)
    add_field(message, "b", 2, "message .x.Wide", oneof_index=0)
    add_field(message, "many", 3, "message .x.Wide", "repeated")
    add_map(message, ".x.M", "map", 4, "string", "message .x.Wide")
    add_map(message, ".x.M", "numbers", 5, "string", "int32")
    return file


WIDE = ProtobufDecoder(pack_files(make_wide_file()), "x.M")


@pytest.mark.parametrize(
    "raw",
    [sized(1, b"") + sized(2, b""), sized(3, b""), sized(4, b"")],
    ids=["oneof", "list", "map"],
)
def test_wide_messages_in_few_bytes_are_bounded(raw):
    reason, seconds = measure(WIDE, raw * 40_000)
    assert reason == "it has too many values for its size"
    assert seconds < 3 * SLOWNESS
    assert measure(WIDE, raw * 100)[0] is None


def test_fields_out_of_order_take_little_time():
    file, message = make_file()
    for i in range(9000):
        add_field(message, f"f{i}", i + 1, "int32")
    decoder = ProtobufDecoder(pack_files(file), "x.M")
    raw = (tag(9000, 0) + b"\1" + tag(1, 0) + b"\2") * 500_000
    reason, seconds = measure(decoder, raw)
    assert (reason, seconds < SLOWNESS) == (None, True)


@pytest.mark.parametrize("is_same", [True, False])
def test_many_entries_of_a_map_take_little_time(is_same):
    prefix = b"k" * 50
    entries = (
        sized(5, sized(1, prefix + b"%06d" % (7 if is_same else i % 150_000)) + tag(2, 0) + b"\1")
        for i in range(200_000)
    )
    reason, seconds = measure(WIDE, b"".join(entries))
    assert (reason, seconds < 3 * SLOWNESS) == (None, True)


def test_the_last_entry_of_a_key_counts():
    """The values of the other ones disappear, with everything in them."""
    file, message = make_file()
    inner = file.message_type.add(name="Inner")
    add_field(inner, "a", 1, "int32", "repeated")
    add_field(inner, "b", 2, "string")
    add_field(inner, "c", 3, "message .x.Inner2")
    add_field(file.message_type.add(name="Inner2"), "d", 1, "bytes", "repeated")
    add_map(message, ".x.M", "map", 1, "string", "message .x.Inner")
    add_map(message, ".x.M", "numbers", 2, "sint32", "bool")
    decoder = ProtobufDecoder(pack_files(file), "x.M")
    payloads = []
    expected = []
    for count in (1, 3, 16, 17, 40, 2000):
        raw, values = b"", {}
        for i in range(count):
            key = f"{i * 7 % (count // 2 + 1)}"
            inside = sized(1, bytes([i % 100] * (i % 3))) + sized(2, b"t" * (i % 5))
            inside += sized(3, sized(1, b"d" * (i % 4)) * (i % 3)) if i % 2 else b""
            raw += sized(1, sized(1, key.encode()) + sized(2, inside))
            values.pop(key, None)
            values[key] = {
                "a": [i % 100] * (i % 3),
                "b": "t" * (i % 5),
                "c": {"d": [b"d" * (i % 4)] * (i % 3)} if i % 2 else None,
            }
        payloads.append(raw + sized(2, b"") + sized(2, tag(2, 0) + b"\1"))
        expected.append({"map": list(values.items()), "numbers": [(0, True)]})
    values, reasons = decode_with(decoder, [*payloads, *payloads])
    assert reasons == [None] * 12
    assert values.to_pylist() == expected * 2


# ---------------------------------------------------------------------- memory


GUARD = """
import random
import sys
import pyarrow as pa
from tests.support.protobuf_messages import FILES, make_samples, pack_files
from wirescan.decoding.protobuf_values import ProtobufDecoder
from wirescan.testing.guarded_memory import GuardedMemory

chance = random.Random(1)
guarded = GuardedMemory(4000)
decoders = {name: ProtobufDecoder(pack_files(file), name) for name, file in FILES.items()}
scans = 0

def scan(name, raw):
    global scans
    view = guarded.place_at_end(raw)
    offsets = pa.array([0, len(raw)], pa.int32()).buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(view)])
    decoders[name].decode(array)
    scans += 1

for name in FILES:
    for raw in make_samples(name):
        for cut in range(len(raw) + 1):
            scan(name, raw[:cut])
            scan(name, raw[cut:])
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice((0, 1, 8, 0x7F, 0x80, 0xFF))
            scan(name, bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside():
    """Read every cut, with some damage, next to unreadable pages."""
    assert run_scans(GUARD) > 500


# ---------------------------------------------------------------------- descriptors


def make_recursive():
    file, message = make_file()
    add_field(message, "inner", 1, "message .x.N")
    add_field(file.message_type.add(name="N"), "outer", 1, "message .x.M", "repeated")
    return pack_files(file)


def make_growing():
    file, message = make_file()
    for i in range(20):
        inner = file.message_type.add(name=f"M{i}")
        for number, name in enumerate("ab", 1):
            kind = f"message .x.M{i + 1}" if i < 19 else "int32"
            add_field(inner, name, number, kind)
    add_field(message, "m", 1, "message .x.M0")
    return pack_files(file)


def make_deep():
    file, message = make_file()
    for i in range(100):
        inner = file.message_type.add(name=f"M{i}")
        add_field(inner, "a", 1, f"message .x.M{i + 1}" if i < 99 else "int32")
    add_field(message, "m", 1, "message .x.M0")
    return pack_files(file)


def make_large_default():
    file, message = make_file("proto2")
    add_field(message, "a", 1, "string", default_value="x" * 1025)
    return pack_files(file)


def make_large_name():
    file, message = make_file()
    add_enum(file, "E", **{"N" * 1025: 0})
    add_field(message, "a", 1, "enum .x.E")
    return pack_files(file)


def make_without_import(name):
    file, message = make_file()
    file.dependency.append(name)
    add_field(message, "a", 1, "message .google.protobuf.Struct")
    return pack_files(file)


def make_unresolved():
    file, message = make_file()
    add_field(message, "a", 1, "message .x.Nowhere")
    return pack_files(file)


def make_import_circle():
    files = [descriptor_pb2.FileDescriptorProto(name=name) for name in ("a.proto", "b.proto")]
    files[0].dependency.append("b.proto")
    files[1].dependency.append("a.proto")
    return pack_files(*files)


def make_import_chain():
    files = [descriptor_pb2.FileDescriptorProto(name=f"{i}.proto") for i in range(5000)]
    for i in range(4999):
        files[i].dependency.append(f"{i + 1}.proto")
    return pack_files(*files)


BAD_FILES = {
    "recursive": (make_recursive(), "Protobuf message x.M contains itself"),
    "struct": (
        make_without_import("google/protobuf/struct.proto"),
        r"google.protobuf.\w+ contains itself",
    ),
    "growing": (make_growing(), "too many fields"),
    "deep": (make_deep(), "nested too deeply"),
    "default": (make_large_default(), "the default of field x.M.a has 1,025 bytes"),
    "enum name": (make_large_name(), "a name of enum x.E has 1,025 bytes"),
    "missing import": (make_without_import("other.proto"), "lacks the imported file other.proto"),
    "unresolved": (make_unresolved(), "file x.proto of the FileDescriptorSet"),
    "circle": (make_import_circle(), "file a.proto imports itself"),
    "chain": (make_import_chain(), "import each other too deeply"),
    "twice": (make_recursive() * 2, "has a file twice"),
    "empty": (b"", "has no file"),
    "junk": (b"\xff", "not a FileDescriptorSet"),
    "text": (b'syntax = "proto3";', "not a FileDescriptorSet"),
    "large": (bytes(1 << 24) + b"\0", "at most"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_descriptors_are_refused(name):
    raw, message = BAD_FILES[name]
    with pytest.raises(ValueError, match=message):
        ProtobufDecoder(raw, "x.M")


def test_times_of_another_shape_are_messages():
    """A file may declare google.protobuf.Timestamp with fields of its own."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="google.protobuf")
    message = file.message_type.add(name="Timestamp")
    add_field(message, "seconds", 1, "string")
    add_field(file.message_type.add(name="StringValue"), "value", 1, "string", "repeated")
    for name in ("Timestamp", "StringValue"):
        decoder = ProtobufDecoder(pack_files(file), f"google.protobuf.{name}")
        assert pa.types.is_struct(decoder.type)
        assert decode_with(decoder, [sized(1, b"a")])[1] == [None]


@pytest.mark.parametrize(
    "fields, kind, value",
    [
        ([("value", 2), ("key", 1)], "map<int32, int32>", [(1, 5)]),
        ([("k", 1), ("v", 2)], "map<int32, int32>", [(1, 5)]),
        (
            [("key", 1), ("value", 5)],
            "list<item: struct<key: int32, value: int32>>",
            [{"key": 1, "value": 0}],
        ),
    ],
)
def test_entries_of_another_shape(fields, kind, value):
    """protoc declares the key before the value, and gives them the numbers 1 and 2."""
    file, message = make_file()
    entry = message.nested_type.add(name="E")
    entry.options.map_entry = True
    for name, number in fields:
        add_field(entry, name, number, "int32")
    add_field(message, "m", 1, "message .x.M.E", "repeated")
    decoder = ProtobufDecoder(pack_files(file), "x.M")
    assert str(decoder.type.field("m").type) == kind
    values, reasons = decode_with(decoder, [sized(1, tag(1, 0) + b"\1" + tag(2, 0) + b"\5")])
    assert (values[0]["m"].as_py(), reasons) == (value, [None])


def test_a_column_may_be_the_entry_of_a_map_or_a_time():
    file = make_new_file()
    entry = ProtobufDecoder(pack_files(file), "new.All.InsidesEntry")
    values, reasons = decode_with(entry, [b"", sized(2, sized(2, b"a"))])
    assert reasons == [None, None]
    assert [value["key"] for value in values.to_pylist()] == [0, 0]
    assert [value["value"]["names"] for value in values.to_pylist()] == [[], ["a"]]
    time_decoder = ProtobufDecoder(pack_files(file), "google.protobuf.Timestamp")
    payloads = [b"", tag(1, 0) + b"\5", None, tag(2, 0) + make_varint(10**9), b"\x08"]
    values, reasons = decode_with(time_decoder, payloads)
    assert values.cast(pa.int64()).to_pylist() == [0, 5 * 10**9, None, None, None]
    text = ProtobufDecoder(pack_files(file), "google.protobuf.StringValue")
    values, _ = decode_with(text, [b"", sized(1, b"a") + sized(1, b"b"), None, b"\xff"])
    assert values.to_pylist() == ["", "b", None, None]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ImportError, match=r"pip install 'wirescan\[protobuf\]'"):
        ProtobufDecoder(make_recursive(), "x.M")
