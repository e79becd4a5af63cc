"""The Thrift encoders write the bytes of hand-made frames and of a plain writer."""

import hashlib
import hmac
import mmap
import struct
import zlib

import cramjam
import lz4.block
import numpy as np
import polars
import pyarrow as pa
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.encoded_columns import flatten_pairs as infos_as_lists
from tests.support.encoded_columns import split_strings as split
from tests.support.examples import read_example_count
from tests.support.varint import make_varint
from wirescan import thrift
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings
from wirescan.testing.guarded_memory import GuardedMemory
from wirescan.thrift.constants import MessageType, Protocol, Transform
from wirescan.thrift.encode import (
    encode_frame,
    encode_framed,
    encode_framed_messages,
    encode_frames,
    encode_message,
    encode_messages,
)
from wirescan.thrift.writer import MAX_HEADER, MAX_LENGTH, write_frames, write_messages

quiet = settings(max_examples=read_example_count(30), deadline=None)
HMAC = Transform.HMAC
BYTES = st.sampled_from(
    (b"", b"a", b"\x80\1\0\1", bytes(127), bytes(128), bytes(20_000))
) | st.binary(max_size=20)
PAIRS = st.lists(st.tuples(BYTES, BYTES), max_size=3)
SEQS = st.sampled_from((0, 1, 0x0FFF0000, 2**31, 2**32 - 1, -1, -(2**31))) | st.integers(
    -(2**31), 2**32 - 1
)
ORDERS = st.sampled_from(("normal", "persistent"))
FRAME = {"flags": st.integers(0, 65535), "seq": SEQS, "infos": PAIRS, "persistent": PAIRS}
DIALECT = {
    "protocol_id": st.sampled_from((0, 2, 127, 128, 255)),
    "padding": st.sampled_from(("0-3", "1-4")),
    "transforms": st.lists(st.sampled_from((0, 1, 8)), max_size=3),
    "infos_order": ORDERS,
    "big": st.booleans(),
    "key": st.none() | st.binary(max_size=5),
    "hash": st.sampled_from(("sha256", "md5", "sha512")),
    "level": st.none() | st.integers(0, 9),
}
MESSAGE = {
    "method": BYTES,
    "kind": st.integers(1, 4),
    "seqid": SEQS,
    "arguments": BYTES,
    "service": st.none() | BYTES.filter(lambda service: b":" not in service),
}
PROTOCOL = st.sampled_from(
    (
        {},
        {"strict": False},
        {"protocol": "compact"},
        {"protocol": "compact", "version": 2},
        {"protocol": Protocol.COMPACT, "version": 1},
        {"protocol": 0},
    )
)


def make_text(data):
    return make_varint(len(data)) + data


def plain_frame(
    payload,
    protocol_id=0,
    flags=0,
    seq=0,
    transforms=(),
    infos=(),
    persistent=(),
    key=None,
    hash="sha256",
    padding="0-3",
    infos_order="normal",
    big=False,
    level=None,
):
    """A header frame, written field by field as the format's document describes it."""
    transforms = [*transforms, *([] if key is None else [HMAC])]
    header = (
        make_varint(protocol_id)
        + make_varint(len(transforms))
        + b"".join(map(make_varint, transforms))
    )
    size_at = 10 + len(header)
    header += b"" if key is None else b"\0"
    for kind in (1, 2) if infos_order == "normal" else (2, 1):
        if pairs := (infos, persistent)[kind - 1]:
            header += make_varint(kind) + make_varint(len(pairs))
            for info_key, info_value in pairs:
                header += make_text(info_key) + make_text(info_value)
    header += b"\0" if padding == "1-4" else b""
    while len(header) % 4:
        header += b"\0"
    for transform in transforms:
        if transform in (Transform.ZLIB, Transform.ZLIB_LESS):
            default = 1 if transform == Transform.ZLIB_LESS else -1
            payload = zlib.compress(payload, default if level is None else level)
    frame = struct.pack(">HHIH", 0x0FFF, flags, seq % 2**32, len(header) // 4) + header + payload
    if key is not None:
        mac = hmac.new(key, frame, hash).digest()
        frame = frame[:size_at] + bytes([len(mac)]) + frame[size_at + 1 :] + mac
    if big:
        return b"BIGF" + struct.pack(">Q", len(frame)) + frame
    return struct.pack(">I", len(frame)) + frame


def plain_message(
    method, kind, seqid, arguments, service=None, protocol="binary", version=1, strict=True
):
    name = method if service is None else service + b":" + method
    if protocol in ("compact", 2):
        return (
            bytes([0x82, kind << 5 | version])
            + make_varint(seqid % 2**32)
            + make_text(name)
            + arguments
        )
    name = struct.pack(">I", len(name)) + name
    begin = b"\x80\1\0" + bytes([kind]) + name if strict else name + bytes([kind])
    return begin + struct.pack(">I", seqid % 2**32) + arguments


def make_options(dialect):
    """Return the options of plain_frame and those of the encoders.

    A level needs a transform with levels. A key needs the transform HMAC.
    """
    plain = dict(dialect)
    if not {*plain["transforms"]} & {Transform.ZLIB, Transform.ZLIB_LESS}:
        plain["level"] = None
    options = dict(plain)
    if plain["key"] is not None:
        options["transforms"] = [*plain["transforms"], HMAC]
    return plain, options


# ---- frames made by hand

# A call and its reply from the tests of fbthrift's Go library.
CALL = bytes.fromhex("0000001c0fff0000000000000001020000008222000967657453746174757300")
REPLY = bytes.fromhex("0000001f0fff0000000000000001020000008242000967657453746174757305000400")


@pytest.mark.parametrize("padding", ("0-3", "1-4"))  # both pad with two bytes
def test_frames_equal_those_of_fbthrift(padding):
    for raw, kind, arguments in (
        (CALL, MessageType.CALL, b"\0"),
        (REPLY, MessageType.REPLY, b"\5\0\4\0"),
    ):
        message = encode_message("getStatus", kind, 0, arguments, protocol="compact", version=2)
        assert encode_frame(message, protocol_id=Protocol.COMPACT, padding=padding) == raw
        assert split(encode_frames([message], protocol_id=2, padding=padding)) == [raw]


def test_a_frame_with_infos_by_hand():
    """Apache's test for Node.js has a frame of this shape.

    It has 72 bytes after the length, a header of eight words, two pairs and a binary call.
    """
    arguments = b"\x08\0\1\0\0\0\1\x08\0\2\0\0\0\2\0"
    message = encode_message(b"add", MessageType.CALL, 7, arguments)
    assert message == b"\x80\1\0\1\0\0\0\3add\0\0\0\7" + arguments
    infos = {"Parent": "shoobar", "Trace": b"abcde"}
    frame = encode_frame(message, seq=7, flags=1, infos=infos)
    begin = b"\0\0\0\x48\x0f\xff\0\1\0\0\0\7\0\x08"
    header = b"\0\0\1\2\6Parent\7shoobar\5Trace\5abcde\0"
    assert frame == begin + header + message
    big_frame = encode_frame(message, seq=7, flags=1, infos=infos, big=True)
    assert big_frame == b"BIGF\0\0\0\0" + frame


@pytest.mark.parametrize(
    "key, fewest, most", [(b"", 2, 2), (b"a", 1, 1), (b"ab", 0, 4), (b"abc", 3, 3)]
)
def test_headers_are_padded_to_words(key, fewest, most):
    header = b"\0\0\1\1" + bytes([len(key)]) + key + b"\0"
    for padding, zeros in (("0-3", fewest), ("1-4", most)):
        words = bytes([0, (len(header) + zeros) // 4])
        for frame in (
            encode_frame(b"payload", infos={key: b""}, padding=padding),
            encode_frames([b"payload"], infos={key: [b""]}, padding=padding)[0],
        ):
            assert frame[12:] == words + header + bytes(zeros) + b"payload"


def test_infos_have_either_order():
    normal, persistent = b"\1\2\1a\0011\1a\0012", b"\2\1\1b\0013"
    options = {"infos": [("a", "1"), ("a", "2")], "persistent": {b"b": b"3"}}
    frame = encode_frame(b"", **options)
    assert frame[16:] == normal + persistent + b"\0\0"
    frame = encode_frame(b"", **options, infos_order="persistent")
    assert frame[16:] == persistent + normal + b"\0\0"


def test_without_pairs_no_block_is_written():
    frame = encode_frame(b"", persistent={}, infos=[])
    assert frame[12:] == b"\0\1\0\0\0\0"


def test_a_mac_by_hand():
    signed = b"\x0f\xff\0\0\0\0\0\1\0\2\0\1\2\0\1\1\0\0payload"
    mac = hmac.new(b"secret", signed, hashlib.md5).digest()
    options = {"seq": 1, "transforms": [HMAC], "infos": {"": ""}}
    frame = encode_frame(b"payload", key=b"secret", hash="md5", **options)
    assert frame == b"\0\0\0\x29" + signed[:13] + b"\x10" + signed[14:] + mac
    assert frame == encode_frame(b"payload", key="secret", hash=hashlib.md5, **options)


def test_the_mac_covers_the_compressed_payload_and_is_written_last():
    frames = {
        encode_frame(b"x" * 99, transforms=ids, key=b"")
        for ids in ((1, HMAC, 0), (HMAC, 1, 0), (1, 0, HMAC))
    }
    (frame,) = frames
    assert frame[14:20] == b"\0\3\1\0\2\x20"
    assert zlib.decompress(frame[22:-32]) == b"x" * 99
    assert frame[-32:] == hmac.digest(b"", frame[4:19] + b"\0" + frame[20:-32], "sha256")


def decompress_lz4(data):
    size = data[0] if data[0] < 128 else data[0] - 128 + 128 * data[1]
    return lz4.block.decompress(data[1 + (data[0] > 127) :], uncompressed_size=size)


DECOMPRESS = {
    Transform.NONE: bytes,
    Transform.ZLIB: zlib.decompress,
    Transform.SNAPPY: snappy.decompress,
    # This decompressor needs the size in the frame, as fbthrift does.
    Transform.ZSTD: zstandard.ZstdDecompressor().decompress,
    Transform.LZ4: decompress_lz4,
}
DECOMPRESS |= {
    Transform[f"{name}_{suffix}"]: DECOMPRESS[Transform[name]]
    for name in ("ZLIB", "ZSTD", "LZ4")
    for suffix in ("LESS", "MORE")
}


def test_every_transform_is_applied():
    payload = b"a payload of some bytes " * 20
    assert {*DECOMPRESS} == {*Transform} - {HMAC, Transform.QLZ, Transform.CUSTOM}
    for transform, decompress in DECOMPRESS.items():
        frame = encode_frame(payload, transforms=[transform])
        assert frame[14:18] == bytes([0, 1, transform, 0])
        assert decompress(frame[18:]) == payload
        for other in DECOMPRESS:
            if Transform.LZ4 not in (transform & ~8, other & ~8):
                frame = encode_frame(payload, transforms=(other, transform))
                assert DECOMPRESS[other](decompress(frame[18:])) == payload, (other, transform)


def test_transforms_have_their_levels():
    payload = bytes(range(256)) * 4 + b"abcde" * 4000
    for name, module, best, least in (("ZLIB", zlib, 9, 1), ("ZSTD", cramjam.zstd, 19, 1)):
        for transform, level in ((f"{name}_MORE", best), (f"{name}_LESS", least)):
            frame = encode_frame(payload, transforms=[Transform[transform]])
            assert frame[18:] == bytes(module.compress(payload, level))
        for transform in (name, f"{name}_MORE", f"{name}_LESS"):
            frame = encode_frame(payload, transforms=[Transform[transform]], level=3)
            assert frame[18:] == bytes(module.compress(payload, 3))
    frame = encode_frame(payload, transforms=[Transform.SNAPPY, Transform.ZLIB], level=np.int8(0))
    assert frame[18:] == zlib.compress(snappy.compress(payload), 0)


def test_messages_have_the_expected_bytes():
    assert encode_message("f", MessageType.ONEWAY, -1) == b"\x80\1\0\4\0\0\0\1f\xff\xff\xff\xff\0"
    assert encode_message("f", 1, 2**32 - 1, strict=False) == b"\0\0\0\1f\1\xff\xff\xff\xff\0"
    assert encode_message("f", 2, -1, b"", protocol="compact") == b"\x82\x41\xff\xff\xff\xff\x0f\1f"
    assert encode_message(b"f", 3, 300, protocol="compact", version=2) == b"\x82\x62\xac\2\1f\0"
    assert encode_message("é", 1, 0, service="Calc") == b"\x80\1\0\1\0\0\0\7Calc:\xc3\xa9\0\0\0\0\0"
    assert encode_framed("hello") == b"\0\0\0\5hello"
    assert encode_framed(b"") == bytes(4)


# ---- the same bytes as a plain writer


@quiet
@given(BYTES, st.fixed_dictionaries(FRAME), st.fixed_dictionaries(DIALECT))
def test_a_frame_equals_the_plain_encoder(payload, fields, dialect):
    plain, options = make_options(dialect)
    assert encode_frame(payload, **fields, **options) == plain_frame(payload, **fields, **plain)


@quiet
@given(
    st.lists(st.tuples(BYTES, st.fixed_dictionaries(FRAME)), max_size=5),
    st.fixed_dictionaries(DIALECT),
)
def test_columns_of_frames_equal_single_frames(rows, dialect):
    plain, options = make_options(dialect)
    columns = {name: [fields[name] for _, fields in rows] for name in FRAME}
    for name in ("infos", "persistent"):
        columns[name] = infos_as_lists(columns[name])
    encoded = split(encode_frames([payload for payload, _ in rows], **columns, **options))
    assert encoded == [plain_frame(payload, **fields, **plain) for payload, fields in rows]


@quiet
@given(
    st.lists(st.tuples(BYTES, SEQS, BYTES, st.none() | BYTES), min_size=1, max_size=5),
    PAIRS,
    ORDERS,
)
def test_columns_and_single_values(rows, pairs, order):
    """A column has a value for each frame. A single value holds for all frames."""
    payloads, seqs, first, second = map(list, zip(*rows))
    columns = [("One", first), (b"same", "x"), ("One", second), ("none", None)]
    infos_of_rows = [
        [(b"One", a), (b"same", b"x"), *([] if b is None else [(b"One", b)])]
        for a, b in zip(first, second)
    ]
    options = {"infos_order": order}
    encoded = encode_frames(payloads, seq=seqs, infos=columns, persistent=pairs, **options)
    assert split(encoded) == [
        plain_frame(payload, seq=seq, infos=infos, persistent=pairs, **options)
        for payload, seq, infos in zip(payloads, seqs, infos_of_rows)
    ]
    encoded = encode_frames(b"same", seq=seqs, infos=pairs, persistent=columns, **options)
    assert split(encoded) == [
        plain_frame(b"same", seq=seq, infos=pairs, persistent=infos, **options)
        for seq, infos in zip(seqs, infos_of_rows)
    ]


@quiet
@given(st.fixed_dictionaries(MESSAGE), PROTOCOL)
def test_a_message_equals_the_plain_encoder(fields, protocol):
    kind = fields.pop("kind")
    encoded = encode_message(message_type=kind, **fields, **protocol)
    assert encoded == plain_message(kind=kind, **fields, **protocol)


@quiet
@given(st.lists(st.fixed_dictionaries(MESSAGE), max_size=5), PROTOCOL)
def test_columns_of_messages_equal_single_messages(rows, protocol):
    columns = {name: [fields[name] for fields in rows] for name in MESSAGE}
    messages, offsets = encode_messages(
        columns.pop("method"), columns.pop("kind"), columns.pop("seqid"), **columns, **protocol
    )
    expected = [plain_message(**fields, **protocol) for fields in rows]
    assert split((messages, offsets)) == expected
    encoded = split(encode_framed_messages((offsets, messages)))
    assert encoded == [struct.pack(">I", len(message)) + message for message in expected]
    encoded = split(encode_frames((offsets, messages)))
    assert encoded == [plain_frame(message) for message in expected]


# ---- wirescan reads the bytes again


@quiet
@given(
    st.lists(st.tuples(BYTES, st.fixed_dictionaries(FRAME)), min_size=1, max_size=4),
    st.fixed_dictionaries(DIALECT),
    st.lists(st.sampled_from(sorted(DECOMPRESS)), max_size=3),
)
def test_frames_are_read_again(rows, dialect, transforms):
    signed = [] if dialect["key"] is None else [HMAC]
    dialect = {**dialect, "transforms": signed + transforms, "level": None}
    data = b"".join(encode_frame(payload, **fields, **dialect) for payload, fields in rows)
    frames = thrift.scan(data)
    assert frames["protocol_id"].tolist() == [dialect["protocol_id"]] * len(rows)
    kind = thrift.Kind.BIG_HEADER if dialect["big"] else thrift.Kind.HEADER
    assert set(frames["kind"].tolist()) == {kind}
    assert set(frames["transform_count"].tolist()) == {len(dialect["transforms"])}
    least = 1 if dialect["padding"] == "1-4" else 0
    assert (frames["padding"] >= least).all()
    assert (frames["padding"] < 4 + least).all()
    for name in ("flags", "seq"):
        assert frames[name].tolist() == [fields[name] % 2**32 for _, fields in rows]
    infos = [
        (row.parent, row.kind, bytes(row.key), bytes(row.value)) for row in thrift.infos(frames)
    ]
    order = [("infos", 1), ("persistent", 2)]
    if dialect["infos_order"] == "persistent":
        order.reverse()
    assert infos == [
        (i, kind, *pair)
        for i, (_, fields) in enumerate(rows)
        for name, kind in order
        for pair in fields[name]
    ]
    plain = thrift.plain(frames, key=dialect["key"], hash=dialect["hash"])
    assert [bytes(row.payload) for row in plain] == [payload for payload, _ in rows]


@quiet
@given(st.lists(st.fixed_dictionaries(MESSAGE), max_size=5), PROTOCOL)
def test_messages_are_read_again(rows, protocol):
    columns = {name: [fields[name] for fields in rows] for name in MESSAGE}
    data, offsets = encode_messages(
        columns.pop("method"), columns.pop("kind"), columns.pop("seqid"), **columns, **protocol
    )
    compact = "version" in protocol or protocol.get("protocol") == "compact"
    protocol_id = Protocol.COMPACT if compact else Protocol.BINARY
    frames, _ = encode_frames((offsets, data), protocol_id=protocol_id)
    messages = thrift.messages(thrift.scan(frames))
    version = protocol.get("version", int(protocol.get("strict", True)))
    assert set(messages["version"].tolist()) <= {version}
    for message, fields in zip(messages, rows, strict=True):
        assert message.kind == fields["kind"]
        assert message.seqid % 2**32 == fields["seqid"] % 2**32
        assert full_name(message.service, message.method) == full_name(
            fields["service"], fields["method"]
        )
        assert bytes(message.arguments) == fields["arguments"]
        is_call = fields["kind"] in (MessageType.CALL, MessageType.ONEWAY)
        if is_call and fields["service"] is not None:
            assert bytes(message.service) == fields["service"]


def full_name(service, method):
    """The name of a method on the wire."""
    return bytes(method) if service is None else bytes(service) + b":" + bytes(method)


def test_messages_without_a_version_word():
    data, offsets = encode_messages([b"f", b"name"], [1, 4], [7, -1], [b"\0", b""], strict=False)
    expected = [
        encode_message("f", 1, 7, b"\0", strict=False),
        encode_message("name", 4, -1, b"", strict=False),
    ]
    assert data == b"".join(expected)
    assert offsets.tolist() == [0, len(expected[0]), len(data)]


# ---- columns of every kind

VALUES = [b"one", b"", b"a longer value of many bytes"]
NUMBERS = [1, 65535, 3]


def make_values_of_every_kind():
    long = pa.array([b"before", *VALUES, b"after"])[1:4]
    yield np.array(VALUES, object)
    yield np.array(VALUES)
    yield np.array([0, 3, 3, 31]), b"".join(VALUES)
    yield long
    yield pa.chunked_array([long[:1], long[1:]])
    for kind in (pa.large_binary(), pa.string(), pa.binary_view()):
        yield pa.array(VALUES, pa.binary()).cast(kind)
    yield polars.Series([value.decode() for value in VALUES])


@pytest.mark.parametrize(
    "values", [*make_values_of_every_kind()], ids=lambda column: type(column).__name__
)
def test_values_of_every_kind(values):
    encoded = split(encode_frames(values, infos={"k": values}, persistent=[("p", values)]))
    assert encoded == [
        plain_frame(value, infos=[(b"k", value)], persistent=[(b"p", value)]) for value in VALUES
    ]
    encoded = split(encode_frames(values, transforms=[1]))
    assert encoded == [plain_frame(value, transforms=[1]) for value in VALUES]
    encoded = split(encode_messages(values, 1, 5, values, service=values))
    assert encoded == [plain_message(value, 1, 5, value, value) for value in VALUES]
    encoded = split(encode_framed_messages(values))
    assert encoded == [struct.pack(">I", len(value)) + value for value in VALUES]


@pytest.mark.parametrize(
    "numbers",
    [
        NUMBERS,
        np.array(NUMBERS, np.uint16),
        np.array([0, 1, 9, 65535, 9, 3])[1::2],
        np.array(NUMBERS, ">i8"),
        pa.array(NUMBERS),
        pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]),
        polars.Series(NUMBERS),
    ],
    ids=lambda column: type(column).__name__,
)
def test_numbers_of_every_kind(numbers):
    encoded = split(encode_frames(VALUES, flags=numbers, seq=numbers))
    assert encoded == [
        plain_frame(value, flags=number, seq=number) for value, number in zip(VALUES, NUMBERS)
    ]
    encoded = split(encode_messages("m", np.uint8(1), numbers, VALUES))
    assert encoded == [
        plain_message(b"m", 1, number, value) for value, number in zip(VALUES, NUMBERS)
    ]
    encoded = split(encode_messages("m", 4, numbers, b"\0"))
    assert encoded == [plain_message(b"m", 4, number, b"\0") for number in NUMBERS]


def test_infos_of_every_kind():
    rows = [[(b"A", b"1"), (b"A", b"")], [], [(b"", b"2")]]
    structs = [[{"key": key, "value": value} for key, value in pairs] for pairs in rows]
    pair = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    for infos in (
        infos_as_lists(rows),
        pa.array([None, *structs], pa.list_(pair))[1:],
        pa.array(rows, pa.map_(pa.binary(), pa.binary())),
    ):
        encoded = split(encode_frames(VALUES, infos=infos, persistent={"p": "q"}))
        assert encoded == [
            plain_frame(value, infos=pairs, persistent=[(b"p", b"q")])
            for value, pairs in zip(VALUES, rows)
        ]


def test_no_rows_give_no_bytes():
    for infos in (
        None,
        (),
        {},
        {"A": []},
        {"A": b"1"},
        ([], [], []),
        pa.array([], pa.map_("string", "string")),
    ):
        for more in ({}, {"transforms": [1, HMAC], "key": b"k"}):
            data, offsets = encode_frames([], seq=[], infos=infos, persistent=infos, **more)
            assert data == b""
            assert offsets.tolist() == [0]
    assert encode_messages([], 1, [])[0] == b""
    assert encode_framed_messages([])[0] == b""


@pytest.mark.parametrize("size", [*range(1, 150), 4096])
def test_nothing_is_read_outside(size):
    guarded = GuardedMemory(size)
    value = b"x" * size
    for put in (guarded.place_at_end, guarded.place_at_beginning):
        data = put(value)
        column = [0, size], data
        encoded, _ = encode_frames(column, infos={"k": column})
        assert encoded == plain_frame(value, infos=[(b"k", value)])
        encoded, _ = encode_messages(column, 1, 1, column, service=column)
        assert encoded == plain_message(value, 1, 1, value, value)
        assert encode_framed_messages(column)[0] == encode_framed(value)
        del data, column


# ---- limits


def test_headers_have_a_largest_size():
    # The rest of the header: protocol, transforms and block; the empty key; the value's length.
    largest = MAX_HEADER - 4 - 1 - 3
    for size, padding, good in (
        (largest, "0-3", True),
        (largest + 1, "0-3", False),
        (largest, "1-4", False),
        (largest - 1, "1-4", True),
    ):
        value = bytes(size)
        for infos in ({"": value}, {"": [value]}):
            if good:
                (frame,) = split(encode_frames([b"payload"], infos=infos, padding=padding))
                assert frame[12:14] == b"\xff\xff"
                assert frame[-7:] == b"payload"
                assert frame == encode_frame(b"payload", infos={"": value}, padding=padding)
            else:
                with pytest.raises(ValueError, match="row 0: a header has at most 262140 bytes"):
                    encode_frames([b"payload"], infos=infos, padding=padding)
        if not good:
            with pytest.raises(ValueError, match="at most 262140 bytes, not 262144"):
                encode_frame(b"payload", infos={"": value}, padding=padding)


def test_frames_have_a_largest_size():
    blank = mmap.mmap(-1, MAX_LENGTH + 1)  # its pages are never touched
    limit = "row 1: a frame has at most 1073741823 bytes after its length"
    for size, encode in (
        (MAX_LENGTH - 13, encode_frames),
        (MAX_LENGTH + 1, encode_framed_messages),
        (MAX_LENGTH - 45, lambda column: encode_frames(column, transforms=[HMAC], key=b"")),
    ):
        with pytest.raises(ValueError, match=limit):
            encode(([0, 0, size], blank))
    with pytest.raises(ValueError, match="bytes after its length, not 1073741824"):
        encode_frame(bytes(MAX_LENGTH - 13))
    with pytest.raises(ValueError, match="a framed message has at most .* bytes, not 1073741824"):
        encode_framed(bytes(MAX_LENGTH + 1))


# ---- invalid arguments

SURROGATE = "\ud800"
LONG = bytes(2**31 - 1)  # its pages are never touched


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_frame(SURROGATE), "payload has a surrogate at 0"),
        (lambda: encode_frame(b"", protocol_id=256), "protocol_id must be from 0 to 255"),
        (lambda: encode_frame(b"", flags=65536), "flags must be from 0 to 65535"),
        (lambda: encode_frame(b"", flags=-1), "flags must be from"),
        (lambda: encode_frame(b"", seq=2**32), "seq must be from -2147483648 to 4294967295"),
        (
            lambda: encode_frame(b"", transforms=[1, Transform.QLZ, Transform.CUSTOM]),
            "transform 4 is not known",
        ),
        (lambda: encode_frame(b"", transforms=[14]), "transform 14 is not known"),
        (lambda: encode_frame(b"", transforms=[65537]), "a transform must be from 0 to 65535"),
        (lambda: encode_frame(b"", transforms=[0] * 256), "at most 255 transforms"),
        (lambda: encode_frame(b"", transforms=[2, 2], key=b""), "HMAC once"),
        (lambda: encode_frame(b"", transforms=[2]), "HMAC needs a key"),
        (lambda: encode_frame(b"", key=b"k"), "without HMAC"),
        (
            lambda: encode_frame(b"", transforms=[2], key=b"k", hash="sha257"),
            "hash 'sha257' is not a hash of hashlib",
        ),
        (
            lambda: encode_frame(b"", transforms=[2], key=b"k", hash="shake_128"),
            "hash 'shake_128' is not a hash",
        ),
        (lambda: encode_frame(b"", transforms=[2], key=b"k", hash=int), "is not a hash of hashlib"),
        (lambda: encode_frame(b"", padding="0-4"), "padding must be '0-3' or '1-4', not '0-4'"),
        (lambda: encode_frame(b"", padding=None), "padding must be"),
        (
            lambda: encode_frame(b"", infos_order="both"),
            "infos_order must be 'normal' or 'persistent', not 'both'",
        ),
        (lambda: encode_frame(b"", level=3), "level needs a zlib or zstd"),
        (lambda: encode_frame(b"", transforms=[6], level=3), "level needs a zlib or zstd"),
        (lambda: encode_frame(b"", transforms=[1], level=10), "10"),
        (lambda: encode_frame(b"", infos={"a": SURROGATE}), "info b'a' has a surrogate"),
        (lambda: encode_message("a", 0, 0), "message_type must be from 1 to 4, not 0"),
        (lambda: encode_message("a", 5, 0), "message_type must be from 1 to 4, not 5"),
        (lambda: encode_message("a", 1, -(2**31) - 1), "seqid must be from"),
        (
            lambda: encode_message("a", 1, 0, service="a:b"),
            "a service must not hold a colon: b'a:b'",
        ),
        (
            lambda: encode_message("a", 1, 0, protocol="json"),
            "protocol must be 'binary' or 'compact', not 'json'",
        ),
        (lambda: encode_message("a", 1, 0, protocol=1), "protocol must be"),
        (lambda: encode_message("a", 1, 0, protocol=None), "protocol must be"),
        (lambda: encode_message("a", 1, 0, version=1), "version needs the compact protocol"),
        (
            lambda: encode_message("a", 1, 0, protocol="compact", version=3),
            "version must be from 1 to 2, not 3",
        ),
        (lambda: encode_message("a", 1, 0, protocol="compact", strict=False), "always strict"),
        (lambda: encode_message("", 1, 0, LONG), "bytes, not 2147483659"),
        (lambda: encode_frames(b"x"), "no column says how many rows"),
        (lambda: encode_frames([b"x"] * 2, seq=[1]), "unequal length: 2 in payload, 1 in seq"),
        (
            lambda: encode_frames([b"x"], infos={"a": []}),
            "unequal length: 1 in payload, 0 in header b'a'",
        ),
        (
            lambda: encode_frames([b"x"], persistent=([1, 1], [b"a"] * 2, [b""] * 2)),
            "unequal length",
        ),
        (lambda: encode_frames([b"x", None]), "row 1: a payload must not be null"),
        (lambda: encode_frames([b"x", None], transforms=[1]), "row 1: a payload must not be null"),
        (
            lambda: encode_frames([b"x"] * 2, infos=([1, 1], [b"a"] * 2, [b"", None])),
            "row 1: the value of an info",
        ),
        (
            lambda: encode_frames([b"x"], infos=([1], [None], [b""])),
            "row 0: a header's key must not be null",
        ),
        (
            lambda: encode_frames([b"x"], infos=([2], [b"a"], [b""])),
            "the counts of headers do not fit",
        ),
        (
            lambda: encode_frames([b"x"], infos={"a": [LONG]}),
            "row 0: a header has at most 262140 bytes",
        ),
        (
            lambda: encode_frames([b"x"], infos=([2**17], *2 * [[b""] * 2**17])),
            "row 0: a header has at most",
        ),
        (lambda: encode_frames([b"x"], seq=[2**32]), "seq must be from"),
        (lambda: encode_frames([b"x"], flags=[-1]), "flags must be from"),
        (lambda: encode_frames([b"x"], padding="4"), "padding must be"),
        (lambda: encode_frames(([0, 9], b"")), "payload: string 0"),
        (lambda: encode_messages("a", [1], 0, protocol="json"), "protocol must be"),
        (lambda: encode_messages("a", 1, 0), "no column says how many rows"),
        (lambda: encode_messages([b"a"], [1, 2], 0), "unequal length"),
        (lambda: encode_messages("a", [1, 5], 0), "type must be from 1 to 4, not 5"),
        (lambda: encode_messages("a", None, [0]), "type must be from 1 to 4, not 0"),
        (lambda: encode_messages([b"a", None], 1, 0), "row 1: a method must not be null"),
        (lambda: encode_messages("a", 1, 0, [b"", None]), "row 1: arguments must not be null"),
        (
            lambda: encode_messages("a", 1, [0, 1], service=[None, b"a:b"]),
            "row 1: a service must not hold a colon",
        ),
        (
            lambda: encode_messages("a", 1, 0, [b"", LONG]),
            "row 1: a message has at most 2147483647 bytes",
        ),
        (
            lambda: encode_messages([b"", LONG], 1, 0, service=b"s", protocol="compact"),
            "row 1: a message has at most",
        ),
        (lambda: encode_framed_messages(b"x"), "no column says how many rows"),
        (lambda: encode_framed_messages([None]), "row 0: a message must not be null"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert caught.type is ValueError


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_frame(None), "payload must be bytes or str, not NoneType"),
        (lambda: encode_frame(b"", protocol_id="compact"), "protocol_id must be an integer"),
        (lambda: encode_frame(b"", seq=1.0), "seq must be an integer, not 1.0"),
        (
            lambda: encode_frame(b"", transforms=1),
            "transforms must be an iterable of integers, not int",
        ),
        (lambda: encode_frame(b"", transforms="zlib"), "a transform must be an integer, not 'z'"),
        (lambda: encode_frame(b"", transforms=[2], key=1), "key must be bytes or str"),
        (
            lambda: encode_frame(b"", transforms=[2], key=b"", hash=None),
            "hash must be a name or a constructor",
        ),
        (lambda: encode_frame(b"", transforms=[1], level="3"), "integer"),
        (lambda: encode_frame(b"", infos=7), "headers are a mapping or pairs"),
        (lambda: encode_frame(b"", infos={"a": 1}), "info b'a' must be bytes or str, not int"),
        (
            lambda: encode_frame(b"", infos={"a": None}),
            "info b'a' must be bytes or str, not NoneType",
        ),
        (lambda: encode_frame(b"", persistent={None: b""}), "a header's key must be bytes or str"),
        (lambda: encode_framed(7), "message must be bytes or str"),
        (lambda: encode_message(None, 1, 0), "method must be bytes or str"),
        (lambda: encode_message("a", "call", 0), "message_type must be an integer"),
        (lambda: encode_message("a", 1, None), "seqid must be an integer"),
        (lambda: encode_message("a", 1, 0, None), "arguments must be bytes or str"),
        (lambda: encode_message("a", 1, 0, service=1), "service must be bytes or str"),
        (
            lambda: encode_message("a", 1, 0, protocol="compact", version="2"),
            "version must be an integer",
        ),
        (lambda: encode_frames(7), "payload: byte strings are"),
        (lambda: encode_frames(["x"]), "payload: string 0 must be bytes or None, not str"),
        (lambda: encode_frames([b"x"], seq=[1.5]), "seq must be integers"),
        (lambda: encode_frames([b"x"], seq=np.ma.array([1], mask=[True])), "seq: a masked array"),
        (lambda: encode_frames([b"x"], infos=7), "headers are a mapping or list"),
        (lambda: encode_frames([b"x"], infos={"a": 7}), "header b'a': byte strings are"),
        (lambda: encode_messages(7, 1, [0]), "method: byte strings are"),
        (lambda: encode_messages("a", ["CALL"], 0), "type must be integers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_kernels_reject_columns_of_unequal_length():
    strings = ByteStrings([b"a"] * 3)
    two_strings = ByteStrings([b"a"] * 2)
    number = np.zeros(1, np.int64)
    two_numbers = np.zeros(2, np.int64)
    two_pairs = Pairs.of_columns([], [], 2)
    blank = [b"\0\0"]
    frame = {"padding": False, "big": False}
    message = {"compact": 0, "strict": True}
    for call in (
        lambda: write_frames(strings, two_numbers, number, blank, **frame),
        lambda: write_frames(strings, number, two_numbers, blank, **frame),
        lambda: write_frames(strings, number, number, [*blank, (1, two_pairs)], **frame),
        lambda: write_messages(strings, two_strings, number, number, strings, **message),
        lambda: write_messages(strings, strings, two_numbers, number, strings, **message),
        lambda: write_messages(strings, strings, number, two_numbers, strings, **message),
    ):
        with pytest.raises(ValueError, match="columns of unequal length"):
            call()
