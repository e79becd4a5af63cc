"""What the Thrift encoders write: by hand, as a plain writer has it, in every dialect."""
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

from guard import Guarded
from wirescan import thrift
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings
from wirescan.thrift.encode import (
    encode_frame, encode_framed, encode_framed_messages, encode_frames, encode_message, encode_messages)
from wirescan.thrift.kind import MessageType, Protocol, Transform
from wirescan.thrift.write import MOST_HEADER, MOST_LENGTH, write_frames, write_messages

quiet = settings(max_examples=150, deadline=None)
HMAC = Transform.HMAC
BYTES = st.sampled_from((b"", b"a", b"\x80\1\0\1", bytes(127), bytes(128), bytes(20_000))) | st.binary(max_size=20)
PAIRS = st.lists(st.tuples(BYTES, BYTES), max_size=3)
SEQS = st.sampled_from((0, 1, 0x0FFF0000, 2**31, 2**32 - 1, -1, -2**31)) | st.integers(-2**31, 2**32 - 1)
ORDERS = st.sampled_from(("normal", "persistent"))
FRAME = {"flags": st.integers(0, 65535), "seq": SEQS, "infos": PAIRS, "persistent": PAIRS}
DIALECT = {
    "protocol_id": st.sampled_from((0, 2, 127, 128, 255)), "padding": st.sampled_from(("0-3", "1-4")),
    "transforms": st.lists(st.sampled_from((0, 1, 8)), max_size=3), "infos_order": ORDERS, "big": st.booleans(),
    "key": st.none() | st.binary(max_size=5), "hash": st.sampled_from(("sha256", "md5", "sha512")),
    "level": st.none() | st.integers(0, 9)}
MESSAGE = {"method": BYTES, "kind": st.integers(1, 4), "seqid": SEQS, "arguments": BYTES,
           "service": st.none() | BYTES.filter(lambda one: b":" not in one)}
PROTOCOL = st.sampled_from(({}, {"strict": False}, {"protocol": "compact"}, {"protocol": "compact", "version": 2},
                            {"protocol": Protocol.COMPACT, "version": 1}, {"protocol": 0}))


def varint(number):
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


def text(data):
    return varint(len(data)) + data


def plain_frame(payload, protocol_id=0, flags=0, seq=0, transforms=(), infos=(), persistent=(), key=None,
                hash="sha256", padding="0-3", infos_order="normal", big=False, level=None):
    """A header frame as the format's document has it, byte after byte."""
    transforms = [*transforms, *([] if key is None else [HMAC])]
    header = varint(protocol_id) + varint(len(transforms)) + b"".join(map(varint, transforms))
    size_at = 10 + len(header)
    header += b"" if key is None else b"\0"
    for kind in (1, 2) if infos_order == "normal" else (2, 1):
        if pairs := (infos, persistent)[kind - 1]:
            header += varint(kind) + varint(len(pairs)) + b"".join(text(key) + text(value) for key, value in pairs)
    header += b"\0" if padding == "1-4" else b""
    while len(header) % 4:
        header += b"\0"
    for one in transforms:
        if one in (Transform.ZLIB, Transform.ZLIB_LESS):
            own = 1 if one == Transform.ZLIB_LESS else -1
            payload = zlib.compress(payload, own if level is None else level)
    frame = struct.pack(">HHIH", 0x0FFF, flags, seq % 2**32, len(header) // 4) + header + payload
    if key is not None:
        mac = hmac.new(key, frame, hash).digest()
        frame = frame[:size_at] + bytes([len(mac)]) + frame[size_at + 1:] + mac
    return (b"BIGF" + struct.pack(">Q", len(frame)) if big else struct.pack(">I", len(frame))) + frame


def plain_message(method, kind, seqid, arguments, service=None, protocol="binary", version=1, strict=True):
    name = method if service is None else service + b":" + method
    if protocol in ("compact", 2):
        return bytes([0x82, kind << 5 | version]) + varint(seqid % 2**32) + text(name) + arguments
    name = struct.pack(">I", len(name)) + name
    begin = b"\x80\1\0" + bytes([kind]) + name if strict else name + bytes([kind])
    return begin + struct.pack(">I", seqid % 2**32) + arguments


def drawn(dialect):
    """A level needs what has levels, and a key its transform."""
    dialect = dict(dialect)
    if not {*dialect["transforms"]} & {Transform.ZLIB, Transform.ZLIB_LESS}:
        dialect["level"] = None
    hashed = {} if dialect["key"] is None else {"transforms": [*dialect["transforms"], HMAC]}
    return dialect, {**dialect, **hashed}


def pieces(written):
    data, offsets = written
    assert type(data) is bytes and offsets.dtype == np.int64 and offsets[0] == 0 and offsets[-1] == len(data)
    return [data[start:end] for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist())]


def lists_of(rows):
    """The infos of rows as (counts, keys, values)."""
    flat = [pair for pairs in rows for pair in pairs]
    return [*map(len, rows)], [key for key, _ in flat], [value for _, value in flat]


# --------------------------------------------------------------------------------------------- by hand

CALL = bytes.fromhex("0000001c0fff0000000000000001020000008222000967657453746174757300")     # of fbthrift's Go library
REPLY = bytes.fromhex("0000001f0fff0000000000000001020000008242000967657453746174757305000400")


@pytest.mark.parametrize("padding", ("0-3", "1-4"))         # two bytes, whichever
def test_frames_of_fbthrift(padding):
    for raw, kind, arguments in ((CALL, MessageType.CALL, b"\0"), (REPLY, MessageType.REPLY, b"\5\0\4\0")):
        message = encode_message("getStatus", kind, 0, arguments, protocol="compact", version=2)
        assert encode_frame(message, protocol_id=Protocol.COMPACT, padding=padding) == raw
        assert pieces(encode_frames([message], protocol_id=2, padding=padding)) == [raw]


def test_a_frame_with_infos_by_hand():
    """Of the shape of Apache's test for Node.js: 72 bytes behind the length, eight words, two pairs, a binary call."""
    arguments = b"\x08\0\1\0\0\0\1" b"\x08\0\2\0\0\0\2" b"\0"
    message = encode_message(b"add", MessageType.CALL, 7, arguments)
    assert message == b"\x80\1\0\1" b"\0\0\0\3add" b"\0\0\0\7" + arguments
    frame = encode_frame(message, seq=7, flags=1, infos={"Parent": "shoobar", "Trace": b"abcde"})
    assert frame == (b"\0\0\0\x48" b"\x0f\xff" b"\0\1" b"\0\0\0\7" b"\0\x08" b"\0\0" b"\1\2" b"\6Parent\7shoobar"
                     b"\5Trace\5abcde" b"\0") + message
    assert encode_frame(message, seq=7, flags=1, infos={"Parent": "shoobar", "Trace": b"abcde"}, big=True) == (
        b"BIGF\0\0\0\0" + frame)


@pytest.mark.parametrize("key, fewest, most", [(b"", 2, 2), (b"a", 1, 1), (b"ab", 0, 4), (b"abc", 3, 3)])
def test_padding(key, fewest, most):
    header = b"\0\0" b"\1\1" + bytes([len(key)]) + key + b"\0"
    for padding, zeros in (("0-3", fewest), ("1-4", most)):
        words = bytes([0, (len(header) + zeros) // 4])
        for frame in (encode_frame(b"payload", infos={key: b""}, padding=padding),
                      encode_frames([b"payload"], infos={key: [b""]}, padding=padding)[0]):
            assert frame[12:] == words + header + bytes(zeros) + b"payload"


def test_order_of_infos():
    normal, persistent = b"\1\2\1a\0011\1a\0012", b"\2\1\1b\0013"
    given = {"infos": [("a", "1"), ("a", "2")], "persistent": {b"b": b"3"}}
    assert encode_frame(b"", **given)[16:] == normal + persistent + b"\0\0"
    assert encode_frame(b"", **given, infos_order="persistent")[16:] == persistent + normal + b"\0\0"
    assert encode_frame(b"", persistent={}, infos=[])[12:] == b"\0\1\0\0\0\0"       # no block of no pairs


def test_a_mac_by_hand():
    signed = b"\x0f\xff\0\0\0\0\0\1\0\2" b"\0\1\2\0" b"\1\1\0\0" b"payload"
    mac = hmac.new(b"secret", signed, hashlib.md5).digest()
    frame = encode_frame(b"payload", seq=1, transforms=[HMAC], key=b"secret", hash="md5", infos={"": ""})
    assert frame == b"\0\0\0\x29" + signed[:13] + b"\x10" + signed[14:] + mac
    assert frame == encode_frame(b"payload", seq=1, transforms=[HMAC], key="secret", hash=hashlib.md5, infos={"": ""})


def test_the_mac_is_of_what_is_compressed_and_written_last():
    frames = {encode_frame(b"x" * 99, transforms=ids, key=b"") for ids in ((1, HMAC, 0), (HMAC, 1, 0), (1, 0, HMAC))}
    (frame,) = frames
    assert frame[14:20] == b"\0\3\1\0\2\x20" and zlib.decompress(frame[22:-32]) == b"x" * 99
    assert frame[-32:] == hmac.digest(b"", frame[4:19] + b"\0" + frame[20:-32], "sha256")


def unlz4(data):
    size = data[0] if data[0] < 128 else data[0] - 128 + 128 * data[1]
    return lz4.block.decompress(data[1 + (data[0] > 127):], uncompressed_size=size)


UNDO = {
    Transform.NONE: bytes, Transform.ZLIB: zlib.decompress, Transform.SNAPPY: snappy.decompress,
    Transform.ZSTD: zstandard.ZstdDecompressor().decompress,    # which wants the size in the frame, as fbthrift does
    Transform.LZ4: unlz4}
UNDO |= {Transform[f"{name}_{how}"]: UNDO[Transform[name]] for name in ("ZLIB", "ZSTD", "LZ4")
         for how in ("LESS", "MORE")}


def test_every_transform():
    payload = b"a payload of some bytes " * 20
    assert {*UNDO} == {*Transform} - {HMAC, Transform.QLZ, Transform.CUSTOM}
    for one, undo in UNDO.items():
        frame = encode_frame(payload, transforms=[one])
        assert frame[14:18] == bytes([0, 1, one, 0]) and undo(frame[18:]) == payload
        for other in UNDO:
            if Transform.LZ4 not in (one & ~8, other & ~8):
                frame = encode_frame(payload, transforms=(other, one))
                assert UNDO[other](undo(frame[18:])) == payload, (other, one)


def test_levels():
    payload = bytes(range(256)) * 4 + b"abcde" * 4000
    for name, module in (("ZLIB", zlib), ("ZSTD", cramjam.zstd)):
        best, least = {"ZLIB": (9, 1), "ZSTD": (19, 1)}[name]
        for one, level in ((f"{name}_MORE", best), (f"{name}_LESS", least)):
            assert encode_frame(payload, transforms=[Transform[one]])[18:] == bytes(module.compress(payload, level))
        for one in (name, f"{name}_MORE", f"{name}_LESS"):
            assert encode_frame(payload, transforms=[Transform[one]], level=3)[18:] == bytes(
                module.compress(payload, 3))
    frame = encode_frame(payload, transforms=[Transform.SNAPPY, Transform.ZLIB], level=np.int8(0))
    assert frame[18:] == zlib.compress(snappy.compress(payload), 0)


def test_messages_by_hand():
    assert encode_message("f", MessageType.ONEWAY, -1) == b"\x80\1\0\4" b"\0\0\0\1f" b"\xff\xff\xff\xff" b"\0"
    assert encode_message("f", 1, 2**32 - 1, strict=False) == b"\0\0\0\1f" b"\1" b"\xff\xff\xff\xff" b"\0"
    assert encode_message("f", 2, -1, b"", protocol="compact") == b"\x82\x41" b"\xff\xff\xff\xff\x0f" b"\1f"
    assert encode_message(b"f", 3, 300, protocol="compact", version=2) == b"\x82\x62" b"\xac\2" b"\1f" b"\0"
    assert encode_message("é", 1, 0, service="Calc") == b"\x80\1\0\1" b"\0\0\0\7Calc:\xc3\xa9" b"\0\0\0\0" b"\0"
    assert encode_framed("hello") == b"\0\0\0\5hello" and encode_framed(b"") == bytes(4)


# ------------------------------------------------------------------------------ as a plain writer has it

@quiet
@given(BYTES, st.fixed_dictionaries(FRAME), st.fixed_dictionaries(DIALECT))
def test_frame(payload, fields, dialect):
    plain, dialect = drawn(dialect)
    assert encode_frame(payload, **fields, **dialect) == plain_frame(payload, **fields, **plain)


@quiet
@given(st.lists(st.tuples(BYTES, st.fixed_dictionaries(FRAME)), max_size=5), st.fixed_dictionaries(DIALECT))
def test_frames(rows, dialect):
    plain, dialect = drawn(dialect)
    columns = {name: [fields[name] for _, fields in rows] for name in FRAME}
    for name in ("infos", "persistent"):
        columns[name] = lists_of(columns[name])
    assert pieces(encode_frames([payload for payload, _ in rows], **columns, **dialect)) == [
        plain_frame(payload, **fields, **plain) for payload, fields in rows]


@quiet
@given(st.lists(st.tuples(BYTES, SEQS, BYTES, st.none() | BYTES), min_size=1, max_size=5), PAIRS, ORDERS)
def test_one_for_all_frames(rows, pairs, order):
    payloads, seqs, one, two = map(list, zip(*rows))
    columns = [("One", one), (b"same", "x"), ("One", two), ("none", None)]
    found = [[(b"One", a), (b"same", b"x"), *([] if b is None else [(b"One", b)])] for a, b in zip(one, two)]
    assert pieces(encode_frames(payloads, seq=seqs, infos=columns, persistent=pairs, infos_order=order)) == [
        plain_frame(payload, seq=seq, infos=own, persistent=pairs, infos_order=order)
        for payload, seq, own in zip(payloads, seqs, found)]
    assert pieces(encode_frames(b"same", seq=seqs, infos=pairs, persistent=columns, infos_order=order)) == [
        plain_frame(b"same", seq=seq, infos=pairs, persistent=own, infos_order=order)
        for seq, own in zip(seqs, found)]


@quiet
@given(st.fixed_dictionaries(MESSAGE), PROTOCOL)
def test_message(fields, protocol):
    kind = fields.pop("kind")
    assert encode_message(message_type=kind, **fields, **protocol) == plain_message(kind=kind, **fields, **protocol)


@quiet
@given(st.lists(st.fixed_dictionaries(MESSAGE), max_size=5), PROTOCOL)
def test_messages(rows, protocol):
    columns = {name: [fields[name] for fields in rows] for name in MESSAGE}
    messages, offsets = encode_messages(columns.pop("method"), columns.pop("kind"), columns.pop("seqid"), **columns,
                                        **protocol)
    wanted = [plain_message(**fields, **protocol) for fields in rows]
    assert pieces((messages, offsets)) == wanted
    assert pieces(encode_framed_messages((offsets, messages))) == [struct.pack(">I", len(one)) + one for one in wanted]
    assert pieces(encode_frames((offsets, messages))) == [plain_frame(one) for one in wanted]


# ----------------------------------------------------------------------------------- as wirescan reads it

@quiet
@given(st.lists(st.tuples(BYTES, st.fixed_dictionaries(FRAME)), min_size=1, max_size=4),
       st.fixed_dictionaries(DIALECT), st.lists(st.sampled_from(sorted(UNDO)), max_size=3))
def test_frames_are_read_again(rows, dialect, transforms):
    signed = [] if dialect["key"] is None else [HMAC]
    dialect = {**dialect, "transforms": signed + transforms, "level": None}
    data = b"".join(encode_frame(payload, **fields, **dialect) for payload, fields in rows)
    frames = thrift.scan(data)
    assert frames["protocol_id"].tolist() == [dialect["protocol_id"]] * len(rows)
    assert set(frames["kind"].tolist()) == {thrift.Kind.BIG_HEADER if dialect["big"] else thrift.Kind.HEADER}
    assert set(frames["transform_count"].tolist()) == {len(dialect["transforms"])}
    least = 1 if dialect["padding"] == "1-4" else 0
    assert ((frames["padding"] >= least) & (frames["padding"] < 4 + least)).all()
    for name in ("flags", "seq"):
        assert frames[name].tolist() == [fields[name] % 2**32 for _, fields in rows]
    found = [(row.parent, row.kind, bytes(row.key), bytes(row.value)) for row in thrift.infos(frames)]
    order = ("infos", "persistent") if dialect["infos_order"] == "normal" else ("persistent", "infos")
    assert found == [(i, 1 if name == "infos" else 2, *pair) for i, (_, fields) in enumerate(rows) for name in order
                     for pair in fields[name]]
    plain = thrift.plain(frames, key=dialect["key"], hash=dialect["hash"])
    assert [bytes(row.payload) for row in plain] == [payload for payload, _ in rows]


@quiet
@given(st.lists(st.fixed_dictionaries(MESSAGE), max_size=5), PROTOCOL)
def test_messages_are_read_again(rows, protocol):
    columns = {name: [fields[name] for fields in rows] for name in MESSAGE}
    data, offsets = encode_messages(columns.pop("method"), columns.pop("kind"), columns.pop("seqid"), **columns,
                                    **protocol)
    compact = "version" in protocol or protocol.get("protocol") == "compact"
    frames, _ = encode_frames((offsets, data), protocol_id=Protocol.COMPACT if compact else Protocol.BINARY)
    messages = thrift.messages(thrift.scan(frames))
    assert set(messages["version"].tolist()) <= {protocol.get("version", int(protocol.get("strict", True)))}
    for message, fields in zip(messages, rows, strict=True):
        name = fields["method"] if fields["service"] is None else fields["service"] + b":" + fields["method"]
        read = bytes(message.method) if message.service is None else bytes(message.service) + b":" + bytes(
            message.method)
        assert (message.kind, message.seqid % 2**32, read, bytes(message.arguments)) == (
            fields["kind"], fields["seqid"] % 2**32, name, fields["arguments"])
        if fields["kind"] in (MessageType.CALL, MessageType.ONEWAY) and fields["service"] is not None:
            assert bytes(message.service) == fields["service"]


# ---------------------------------------------------------------------------------- columns of every kind

VALUES = [b"one", b"", b"a longer value of many bytes"]
NUMBERS = [1, 65535, 3]


def values_of_every_kind():
    long = pa.array([b"before", *VALUES, b"after"])[1:4]
    yield np.array(VALUES, object)
    yield np.array(VALUES)
    yield np.array([0, 3, 3, 31]), b"".join(VALUES)
    yield long
    yield pa.chunked_array([long[:1], long[1:]])
    for kind in (pa.large_binary(), pa.string(), pa.binary_view()):
        yield pa.array(VALUES, pa.binary()).cast(kind)
    yield polars.Series([one.decode() for one in VALUES])


@pytest.mark.parametrize("values", [*values_of_every_kind()], ids=lambda column: type(column).__name__)
def test_values_of_every_kind(values):
    assert pieces(encode_frames(values, infos={"k": values}, persistent=[("p", values)])) == [
        plain_frame(one, infos=[(b"k", one)], persistent=[(b"p", one)]) for one in VALUES]
    assert pieces(encode_frames(values, transforms=[1])) == [plain_frame(one, transforms=[1]) for one in VALUES]
    assert pieces(encode_messages(values, 1, 5, values, service=values)) == [
        plain_message(one, 1, 5, one, one) for one in VALUES]
    assert pieces(encode_framed_messages(values)) == [struct.pack(">I", len(one)) + one for one in VALUES]


@pytest.mark.parametrize("numbers", [
    NUMBERS, np.array(NUMBERS, np.uint16), np.array([0, 1, 9, 65535, 9, 3])[1::2], np.array(NUMBERS, ">i8"),
    pa.array(NUMBERS), pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]), polars.Series(NUMBERS),
], ids=lambda column: type(column).__name__)
def test_numbers_of_every_kind(numbers):
    assert pieces(encode_frames(VALUES, flags=numbers, seq=numbers)) == [
        plain_frame(one, flags=number, seq=number) for one, number in zip(VALUES, NUMBERS)]
    assert pieces(encode_messages("m", np.uint8(1), numbers, VALUES)) == [
        plain_message(b"m", 1, number, one) for one, number in zip(VALUES, NUMBERS)]
    assert pieces(encode_messages("m", 4, numbers, b"\0")) == [
        plain_message(b"m", 4, number, b"\0") for number in NUMBERS]


def test_infos_of_every_kind():
    rows = [[(b"A", b"1"), (b"A", b"")], [], [(b"", b"2")]]
    structs = [[{"key": key, "value": value} for key, value in pairs] for pairs in rows]
    pair = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    for infos in (lists_of(rows), pa.array([None, *structs], pa.list_(pair))[1:],
                  pa.array(rows, pa.map_(pa.binary(), pa.binary()))):
        assert pieces(encode_frames(VALUES, infos=infos, persistent={"p": "q"})) == [
            plain_frame(value, infos=pairs, persistent=[(b"p", b"q")]) for value, pairs in zip(VALUES, rows)]


def test_no_rows():
    for infos in (None, (), {}, {"A": []}, {"A": b"1"}, ([], [], []), pa.array([], pa.map_("string", "string"))):
        for more in ({}, {"transforms": [1, HMAC], "key": b"k"}):
            data, offsets = encode_frames([], seq=[], infos=infos, persistent=infos, **more)
            assert data == b"" and offsets.tolist() == [0]
    assert encode_messages([], 1, [])[0] == encode_framed_messages([])[0] == b""


@pytest.mark.parametrize("size", [*range(1, 150), 4096])
def test_nothing_is_read_outside(size):
    guarded = Guarded(size)
    for put in (guarded.at_the_end, guarded.at_the_beginning):
        data, same = put(b"x" * size), b"x" * size
        column = [0, size], data
        assert encode_frames(column, infos={"k": column})[0] == plain_frame(same, infos=[(b"k", same)])
        assert encode_messages(column, 1, 1, column, service=column)[0] == plain_message(same, 1, 1, same, same)
        assert encode_framed_messages(column)[0] == encode_framed(same)
        del data, column


# ------------------------------------------------------------------------------------------- limits

def test_the_largest_header():
    room = MOST_HEADER - 4 - 1 - 3              # protocol, transforms, block; the empty key; the value's length
    for value, padding, good in ((room, "0-3", True), (room + 1, "0-3", False), (room, "1-4", False),
                                 (room - 1, "1-4", True)):
        value = bytes(value)
        for infos in ({"": value}, {"": [value]}):
            if good:
                (frame,) = pieces(encode_frames([b"payload"], infos=infos, padding=padding))
                assert frame[12:14] == b"\xff\xff" and frame[-7:] == b"payload"
                assert frame == encode_frame(b"payload", infos={"": value}, padding=padding)
            else:
                with pytest.raises(ValueError, match="row 0: a header has at most 262140 bytes"):
                    encode_frames([b"payload"], infos=infos, padding=padding)
        if not good:
            with pytest.raises(ValueError, match="a header of 262144 bytes"):
                encode_frame(b"payload", infos={"": value}, padding=padding)


def test_the_largest_frame():
    blank = mmap.mmap(-1, MOST_LENGTH + 1)      # nobody touches it
    for size, call in ((MOST_LENGTH - 13, encode_frames), (MOST_LENGTH + 1, encode_framed_messages), (
            MOST_LENGTH - 45, lambda column: encode_frames(column, transforms=[HMAC], key=b""))):
        with pytest.raises(ValueError, match="row 1: a frame has at most 1073741823 bytes behind its length"):
            call(([0, 0, size], blank))
    with pytest.raises(ValueError, match="a frame of 1073741824 bytes behind its length"):
        encode_frame(bytes(MOST_LENGTH - 13))
    with pytest.raises(ValueError, match="a message of 1073741824 bytes"):
        encode_framed(bytes(MOST_LENGTH + 1))


# ------------------------------------------------------------------------------------ hostile and unfit

SURROGATE = "\ud800"
LONG = bytes(2**31 - 1)             # nobody touches it


@pytest.mark.parametrize("call, words", [
    (lambda: encode_frame(SURROGATE), "payload has a surrogate at 0"),
    (lambda: encode_frame(b"", protocol_id=256), "protocol_id must be from 0 to 255"),
    (lambda: encode_frame(b"", flags=65536), "flags must be from 0 to 65535"),
    (lambda: encode_frame(b"", flags=-1), "flags must be from"),
    (lambda: encode_frame(b"", seq=2**32), "seq must be from -2147483648 to 4294967295"),
    (lambda: encode_frame(b"", transforms=[1, Transform.QLZ, Transform.CUSTOM]), "transform 4 is not known"),
    (lambda: encode_frame(b"", transforms=[14]), "transform 14 is not known"),
    (lambda: encode_frame(b"", transforms=[65537]), "a transform must be from 0 to 65535"),
    (lambda: encode_frame(b"", transforms=[0] * 256), "at most 255 transforms"),
    (lambda: encode_frame(b"", transforms=[2, 2], key=b""), "HMAC once"),
    (lambda: encode_frame(b"", transforms=[2]), "HMAC needs a key"),
    (lambda: encode_frame(b"", key=b"k"), "nothing else does"),
    (lambda: encode_frame(b"", transforms=[2], key=b"k", hash="sha257"), "hash 'sha257' is not one of hashlib"),
    (lambda: encode_frame(b"", transforms=[2], key=b"k", hash="shake_128"), "hash 'shake_128' is not one"),
    (lambda: encode_frame(b"", transforms=[2], key=b"k", hash=int), "is not one of hashlib"),
    (lambda: encode_frame(b"", padding="0-4"), "padding must be '0-3' or '1-4', not '0-4'"),
    (lambda: encode_frame(b"", padding=None), "padding must be"),
    (lambda: encode_frame(b"", infos_order="both"), "infos_order must be 'normal' or 'persistent', not 'both'"),
    (lambda: encode_frame(b"", level=3), "a level is one of zlib or zstd"),
    (lambda: encode_frame(b"", transforms=[6], level=3), "a level is one of zlib or zstd"),
    (lambda: encode_frame(b"", transforms=[1], level=10), "10"),
    (lambda: encode_frame(b"", infos={"a": SURROGATE}), "info b'a' has a surrogate"),
    (lambda: encode_message("a", 0, 0), "message_type must be from 1 to 4, not 0"),
    (lambda: encode_message("a", 5, 0), "message_type must be from 1 to 4, not 5"),
    (lambda: encode_message("a", 1, -2**31 - 1), "seqid must be from"),
    (lambda: encode_message("a", 1, 0, service="a:b"), "a service must not hold a colon: b'a:b'"),
    (lambda: encode_message("a", 1, 0, protocol="json"), "protocol must be 'binary' or 'compact', not 'json'"),
    (lambda: encode_message("a", 1, 0, protocol=1), "protocol must be"),
    (lambda: encode_message("a", 1, 0, protocol=None), "protocol must be"),
    (lambda: encode_message("a", 1, 0, version=1), "a version is one of the compact protocol"),
    (lambda: encode_message("a", 1, 0, protocol="compact", version=3), "version must be from 1 to 2, not 3"),
    (lambda: encode_message("a", 1, 0, protocol="compact", strict=False), "always strict"),
    (lambda: encode_message("", 1, 0, LONG), "a message of 2147483659 bytes"),
    (lambda: encode_frames(b"x"), "no column says how many rows"),
    (lambda: encode_frames([b"x"] * 2, seq=[1]), "unequal length: 2 in payload, 1 in seq"),
    (lambda: encode_frames([b"x"], infos={"a": []}), "unequal length: 1 in payload, 0 in header b'a'"),
    (lambda: encode_frames([b"x"], persistent=([1, 1], [b"a"] * 2, [b""] * 2)), "unequal length"),
    (lambda: encode_frames([b"x", None]), "row 1: a payload must not be null"),
    (lambda: encode_frames([b"x", None], transforms=[1]), "row 1: a payload must not be null"),
    (lambda: encode_frames([b"x"] * 2, infos=([1, 1], [b"a"] * 2, [b"", None])), "row 1: the value of an info"),
    (lambda: encode_frames([b"x"], infos=([1], [None], [b""])), "row 0: a header's key must not be null"),
    (lambda: encode_frames([b"x"], infos=([2], [b"a"], [b""])), "the counts of headers do not fit"),
    (lambda: encode_frames([b"x"], infos={"a": [LONG]}), "row 0: a header has at most 262140 bytes"),
    (lambda: encode_frames([b"x"], infos=([2**17], *2 * [[b""] * 2**17])), "row 0: a header has at most"),
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
    (lambda: encode_messages("a", 1, [0, 1], service=[None, b"a:b"]), "row 1: a service must not hold a colon"),
    (lambda: encode_messages("a", 1, 0, [b"", LONG]), "row 1: a message has at most 2147483647 bytes"),
    (lambda: encode_messages([b"", LONG], 1, 0, service=b"s", protocol="compact"), "row 1: a message has at most"),
    (lambda: encode_framed_messages(b"x"), "no column says how many rows"),
    (lambda: encode_framed_messages([None]), "row 0: a message must not be null"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_bad_arguments(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert caught.type is ValueError


@pytest.mark.parametrize("call, words", [
    (lambda: encode_frame(None), "payload must be bytes or str, not NoneType"),
    (lambda: encode_frame(b"", protocol_id="compact"), "protocol_id must be an integer"),
    (lambda: encode_frame(b"", seq=1.0), "seq must be an integer, not 1.0"),
    (lambda: encode_frame(b"", transforms=1), "transforms must be an iterable of integers, not int"),
    (lambda: encode_frame(b"", transforms="zlib"), "a transform must be an integer, not 'z'"),
    (lambda: encode_frame(b"", transforms=[2], key=1), "key must be bytes or str"),
    (lambda: encode_frame(b"", transforms=[2], key=b"", hash=None), "hash must be a name or a constructor"),
    (lambda: encode_frame(b"", transforms=[1], level="3"), "integer"),
    (lambda: encode_frame(b"", infos=7), "headers are a mapping or pairs"),
    (lambda: encode_frame(b"", infos={"a": 1}), "info b'a' must be bytes or str, not int"),
    (lambda: encode_frame(b"", infos={"a": None}), "info b'a' must be bytes or str, not NoneType"),
    (lambda: encode_frame(b"", persistent={None: b""}), "a header's key must be bytes or str"),
    (lambda: encode_framed(7), "message must be bytes or str"),
    (lambda: encode_message(None, 1, 0), "method must be bytes or str"),
    (lambda: encode_message("a", "call", 0), "message_type must be an integer"),
    (lambda: encode_message("a", 1, None), "seqid must be an integer"),
    (lambda: encode_message("a", 1, 0, None), "arguments must be bytes or str"),
    (lambda: encode_message("a", 1, 0, service=1), "service must be bytes or str"),
    (lambda: encode_message("a", 1, 0, protocol="compact", version="2"), "version must be an integer"),
    (lambda: encode_frames(7), "payload: byte strings are"),
    (lambda: encode_frames(["x"]), "payload: string 0 must be bytes or None, not str"),
    (lambda: encode_frames([b"x"], seq=[1.5]), "seq must be integers"),
    (lambda: encode_frames([b"x"], seq=np.ma.array([1], mask=[True])), "seq: a masked array"),
    (lambda: encode_frames([b"x"], infos=7), "headers are a mapping or list"),
    (lambda: encode_frames([b"x"], infos={"a": 7}), "header b'a': byte strings are"),
    (lambda: encode_messages(7, 1, [0]), "method: byte strings are"),
    (lambda: encode_messages("a", ["CALL"], 0), "type must be integers"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_kernels_refuse_columns_that_do_not_fit():
    three, two, one = ByteStrings([b"a"] * 3), np.zeros(2, np.int64), np.zeros(1, np.int64)
    pairs = Pairs.of_columns([], [], 2)
    for call in (lambda: write_frames(three, two, one, [b"\0\0"], False, False),
                 lambda: write_frames(three, one, two, [b"\0\0"], False, False),
                 lambda: write_frames(three, one, one, [b"\0\0", (1, pairs)], False, False),
                 lambda: write_messages(three, ByteStrings([b"a"] * 2), one, one, three, 0, True),
                 lambda: write_messages(three, three, two, one, three, 0, True),
                 lambda: write_messages(three, three, one, two, three, 0, True)):
        with pytest.raises(ValueError, match="columns of unequal length"):
            call()
