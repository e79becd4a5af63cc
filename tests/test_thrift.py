"""Thrift tables: every column, how frames are told apart, transforms, messages of each dialect, fields, limits."""
import hashlib
import hmac
import pickle
import struct
import zlib
from dataclasses import replace

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laws
import wirescan
from reference import thrift as reference
from reference import thrift_plain
from rooms import INFOS, PLAIN, THRIFT
from strategies import thrift as strategies
from strategies.thrift import (
    BOOL, BYTE, DOUBLE, FLOAT, GOLDEN, I16, I32, I64, LIST, MAP, SET, STRING, STRUCT, U64, UUID, big, block, chunked,
    double, framed, header, http, message, put_struct, transformed, ttheader, varint)
from test_laws import steady
from wirescan import Fault, FrameError, Limits, thrift
from wirescan.catalog import format_of
from wirescan.table import join
from wirescan.thrift.encode import encode_frame
from wirescan.thrift import InfoKind, Kind, MessageType, Role

ALL = b"".join(raw for name, raw in GOLDEN.items() if name != "http until the end")
GET = b"GET / HTTP/1.1"
PAIRS = block(2, (b"id", b"1")) + block(1, (b"k", b"v"), (b"k", b""))
FORMATS = ("thrift.frames", "thrift.infos", "thrift.plain", "thrift.messages", "thrift.fields")


def columns(table, names):
    return table.rows[names.split()].tolist()


def faults(table):
    return [Fault(fault).name for fault in table["fault"].tolist()]


def texts(table, name):
    return [None if (view := table.bytes(i, name)) is None else bytes(view) for i in range(len(table))]


# ------------------------------------------------------------------------------------------- frames

def test_frames():
    one = message()
    raw = b"".join((header(one, PAIRS, seq=2**32 - 1, flags=0xFFFF, protocol=2), big(one, transforms=[0, 1]),
                    double(one, b"\7rest"), framed(one), framed(message(version=1)), one, message(version=2), http(one),
                    chunked(one), ttheader()))
    table = thrift.scan(raw)
    assert table.name == "thrift.frames" and table.dtype == thrift.FRAME and table.dtype.itemsize == 64
    assert columns(table, "kind size body infos_at infos_size payload_at payload_size protocol_id header_words") == [
        (Kind.HEADER, 50, 34, 16, 16, 34, 16, 2, 5), (Kind.BIG_HEADER, 42, 26, 26, 0, 26, 16, 0, 1),
        (Kind.DOUBLE_HEADER, 42, 26, 20, 0, 26, 16, 0, 2), (Kind.FRAMED_BINARY, 20, 4, 0, -1, 4, 16, 0, 0),
        (Kind.FRAMED_COMPACT, 12, 4, 0, -1, 4, 8, 2, 0), (Kind.UNFRAMED_BINARY, 16, 0, 0, -1, 0, 16, 0, 0),
        (Kind.UNFRAMED_COMPACT, 8, 0, 0, -1, 0, 8, 2, 0), (Kind.HTTP, 58, 42, 0, -1, 42, 16, 0, 0),
        (Kind.HTTP_CHUNKED, 77, 50, 0, -1, 50, 27, 0, 0), (Kind.TTHEADER, 20, 4, 0, -1, 0, -1, 0, 0)]
    assert columns(table[:3], "seq flags info_count transform_count transform_0 transform_1 padding mac_size") == [
        (2**32 - 1, 0xFFFF, 3, 0, 0, 0, 2, 0), (0, 0, 0, 2, 0, 1, 0, 0), (0, 0, 0, 0, 0, 0, 0, 0)]
    assert (table["start"] == np.cumsum([0, *table["size"][:-1]])).all() and table.stop == (0, len(raw), 0)
    assert b"".join(laws.frames_of(table)) == raw and not table.bad.any() and (table["parent"] == -1).all()


def test_the_frames_of_others():
    """Two frames of fbthrift's tests of its Go library: a call and its reply, in version 2 of the compact protocol."""
    raw = bytes.fromhex("0000001c0fff0000000000000001020000008222000967657453746174757300"
                        "0000001f0fff0000000000000001020000008242000967657453746174757305000400")
    frames = thrift.scan(raw)
    assert columns(frames, "kind size protocol_id padding payload_at") == [(1, 32, 2, 2, 18), (1, 35, 2, 2, 18)]
    messages = thrift.messages(frames)
    assert columns(messages, "kind seqid protocol version") == [
        (MessageType.CALL, 0, 2, 2), (MessageType.REPLY, 0, 2, 2)]
    assert texts(messages, "method") == [b"getStatus"] * 2
    assert columns(thrift.fields(messages), "parent kind id integer") == [(1, I32, 0, 2)]


@pytest.mark.parametrize("zeros", [0, 1, 3, 4, 254, 255, 256, 1000])
def test_padding(zeros):
    infos = block(1, (b"k", bytes((1 - zeros) % 4)))
    frames = thrift.scan(header(message(), infos, padding=zeros))
    assert frames["padding"].tolist() == [min(zeros, 255)] and len(thrift.infos(frames)) == 1
    assert texts(frames, "infos") == [infos]


def test_transforms_beyond_four():
    ids = [1, 5, 6, 3, 0, 13, 8]
    frames = thrift.scan(header(transformed(message(), ids), transforms=ids))
    assert columns(frames, "transform_count transform_0 transform_1 transform_2 transform_3") == [(7, 1, 5, 6, 3)]
    assert texts(thrift.plain(frames), "payload") == [message()]


UNKNOWN = header(message(), PAIRS, transforms=[1, 4])
VERBS = b"POST", b"GET", b"HEAD", b"PUT", b"CONNECT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"
BEGINS = {                  # bytes: what the first row is, or why there is none
    "empty payload": (header(), Kind.HEADER), "framed, four bytes": (framed(b"\x80\1\0\1"), Kind.FRAMED_BINARY),
    "framed compact, version 3": (framed(b"\x82\x23\0\0\0"), "NOT_A_FRAME"),
    "framed compact, type 0": (framed(b"\x82\1\0\0\0"), "NOT_A_FRAME"),
    "framed compact, type 5": (framed(b"\x82\xa1\0\0\0"), "NOT_A_FRAME"),
    "compact, version 3": (b"\x82\x23\0\0", "NOT_A_FRAME"),
    "the header magic of Java": (framed(b"\x1f\xff" + bytes(12)), "NOT_A_FRAME"),
    "mesh": (framed(b"\xff\xaf" + bytes(12)), "NOT_A_FRAME"), "TTHeader": (ttheader(), Kind.TTHEADER),
    "double": (double(message()), Kind.DOUBLE_HEADER),
    "almost double": (framed(struct.pack(">I", 21) + header(message())[4:]), "NOT_A_FRAME"),
    "not strict, framed": (framed(message(strict=False)), "NOT_A_FRAME"),
    "not strict": (message(strict=False), "BAD_LENGTH"),
    "length 0": (bytes(8), "BAD_LENGTH"), "length 3": (b"\0\0\0\3\x0f\xff\0", "BAD_LENGTH"),
    "length 2**30": (b"\x40\0\0\0\x0f\xff\0\0", "NOT_A_FRAME"),
    "zeros in front": (b"\0" + header(message()), "BAD_LENGTH"),
    "the largest length": (b"\x3f\xff\xff\xff\x0f\xff\0\0", "BAD_LENGTH"),
    "big, of 2**63": (b"BIGF\x80" + bytes(7) + b"\x0f\xff", "BAD_LENGTH"),
    "big, framed inside": (b"BIGF" + struct.pack(">Q", 16) + message(), "NOT_A_FRAME"),
    "TLS": (b"\x16\3\1\2\0\1\0\1\xfc\3\3", "NOT_A_FRAME"), "SSH": (b"SSH-2.0-OpenSSH", "NOT_A_FRAME"),
    "HTTP": (http(first=b"HTTP/1.1 200 OK"), Kind.HTTP),
} | {verb.decode(): (http(first=verb + b" / HTTP/1.1"), Kind.HTTP) for verb in VERBS}


@pytest.mark.parametrize("raw, said", BEGINS.values(), ids=BEGINS)
def test_how_frames_are_told_apart(raw, said):
    table = thrift.scan(raw, errors="mark")
    assert (faults(table) if isinstance(said, str) else table["kind"].tolist())[0] == said
    laws.agrees_with_the_reference(THRIFT, raw)


def test_a_header_inside_a_header_is_a_payload():
    frames = thrift.scan(header(header(message())))
    assert columns(frames, "kind size payload_size") == [(1, 52, 34)]
    assert faults(thrift.messages(frames, errors="mark")) == ["TRUNCATED"]      # not strict, with a name of 30 bytes


@pytest.mark.parametrize("name", [b"", b"a", b"abcdefgh", bytes(300)])
@pytest.mark.parametrize("wrap", [framed, bytes], ids=["framed", "unframed"])
def test_binary_without_a_version_on_request(name, wrap):
    raw = wrap(message(name, 2, -5, put_struct([(1, I32, 1)], 0), strict=False))
    table = thrift.scan(raw * 2, non_strict=True)
    assert table["kind"].tolist() == [Kind.FRAMED_BINARY if wrap is framed else Kind.UNFRAMED_BINARY] * 2
    messages = thrift.messages(table)
    assert columns(messages, "kind seqid protocol version strict") == [(2, -5, 0, 0, 0)] * 2
    assert texts(messages, "method") == [name] * 2 and thrift.fields(messages)["integer"].tolist() == [1, 1]
    assert thrift.scan(ALL, non_strict=True).rows.tobytes() == thrift.scan(ALL).rows.tobytes()
    assert len(thrift.scan(raw[:-1], non_strict=True)) == 0
    for noise in (b"\0\0\0\5hello\7", b"\0\0\0\1a\7" + bytes(9), b"\0\0\xff\xff" + bytes(80)):
        with pytest.raises(FrameError, match="NOT_A_FRAME"):
            thrift.scan(noise, non_strict=True)


@steady
@given(strategies.damaged_streams() | st.builds(
    lambda first, second, wrap: wrap(first) + second, strategies.messages(0, False),
    strategies.messages(0, False).flatmap(strategies.mutations), st.sampled_from((framed, bytes))), st.booleans())
def test_non_strict_agrees_with_the_reference(raw, resync):
    want, fault, at = reference.frames(raw, resync, versions=False)
    from wirescan.thrift.scan import scan_any
    rows, bad, *stop = scan_any(raw, resync, Limits())
    assert laws.plain_rows(rows) == want and stop == [fault, at] and bad == sum(row["fault"] > 0 for row in want)


# ------------------------------------------------------------------------------------------- infos

def test_infos():
    frames = thrift.scan(framed(message()) + header(message(), PAIRS + block(1, (b"\xff", b"last")) + b"\3?"))
    table = thrift.infos(frames)
    assert table.dtype == thrift.INFO and table.dtype.itemsize == 40 and table.outer is frames
    assert columns(table, "parent kind start size body key_at key_size value_at value_size") == [
        (1, InfoKind.PKEYVALUE, 38, 5, 4, 1, 2, 4, 1), (1, InfoKind.KEYVALUE, 45, 4, 3, 1, 1, 3, 1),
        (1, InfoKind.KEYVALUE, 49, 3, 3, 1, 1, 3, 0), (1, InfoKind.KEYVALUE, 54, 7, 3, 1, 1, 3, 4)]
    assert [tuple(map(bytes, row)) for row in table] == [(b"id", b"1"), (b"k", b"v"), (b"k", b""), (b"\xff", b"last")]
    assert [tuple(map(bytes, one)) for one in frames[1].infos] == [tuple(map(bytes, row)) for row in table]


def test_infos_of_an_unknown_transform_are_read():
    frames = thrift.scan(UNKNOWN, errors="mark")
    assert faults(frames) == ["BAD_CODEC"] and columns(frames, "transform_0 transform_1 info_count") == [(1, 4, 3)]
    assert frames["payload_size"].tolist() == [16]
    assert texts(thrift.infos(frames), "key") == [b"id", b"k", b"k"]
    for open_, size in ((thrift.plain, 16), (thrift.messages, 16)):
        table = open_(frames, errors="mark")
        assert faults(table) == ["BAD_CODEC"] and table["size"].tolist() == [size]
    assert faults(thrift.fields(thrift.messages(frames, errors="mark"), errors="mark")) == ["BAD_CODEC"]


def test_long_strings_and_many_pairs():
    pairs = [(b"%d" % i, bytes(i)) for i in range(300)]
    table = thrift.infos(thrift.scan(header(message(), block(1, *pairs))))
    assert [tuple(map(bytes, row)) for row in table] == pairs
    frames = thrift.scan(header(message(), block(1, (b"k" * 32768, b"v" * (262140 - 32778)))))
    assert frames["header_words"].tolist() == [65535] and texts(thrift.infos(frames), "value") == [b"v" * 229362]


# ------------------------------------------------------------------------------------------- transforms

@pytest.mark.parametrize("ids", [[1], [8], [11], [3], [5], [9], [12], [6], [10], [13], [0], [1, 1, 0], [1, 5], [5, 1],
                                 [3, 6, 5, 1, 0, 1]], ids=str)
@pytest.mark.parametrize("size", [0, 1, 100, 70_000])
def test_each_transform(ids, size):
    payload = message(arguments=put_struct([(1, STRING, bytes(size))], 0))
    frames = thrift.scan(header(transformed(payload, ids), PAIRS, transforms=ids) + header(payload))
    table = thrift.plain(frames)
    assert table.dtype == thrift.PLAIN and table.dtype.itemsize == 32 and table.outer is frames
    assert texts(table, "payload") == [payload] * 2 and table["parent"].tolist() == [0, 1]
    assert table["buffer"].tolist() == [0 if ids == [0] else 1, 0] and table.buffers[0] is frames.buffers[0]
    for messages in (thrift.messages(frames), thrift.messages(table)):
        assert messages["parent"].tolist() == [0, 1] and messages.outer is frames
        assert texts(thrift.fields(messages), "value") == [bytes(size)] * 2


def test_zstd_without_its_size():
    stream = cramjam.zstd.Compressor()
    stream.compress(message())
    payload = bytes(stream.finish())
    assert texts(thrift.plain(thrift.scan(header(payload, transforms=[5]))), "payload") == [message()]


def test_transforms_of_nothing():
    """Writers compress an empty payload too; nothing at all is no stream of any codec."""
    for id in (1, 3, 5, 6):
        assert texts(thrift.plain(thrift.scan(header(transformed(b"", [id]), transforms=[id]))), "payload") == [b""]
        table = thrift.plain(thrift.scan(header(transforms=[id])), errors="mark")
        assert faults(table) == ["TRUNCATED" if id == 1 else "BAD_COMPRESSION"]


DEFLATED, TWO = zlib.compress(message()), transformed(message(), [1, 5])
BAD_PAYLOADS = {
    "cut": (DEFLATED[:-6], [1], "TRUNCATED"), "no Adler-32": (DEFLATED[:-4], [1], "TRUNCATED"),
    "half an Adler-32": (DEFLATED[:-1], [1], "TRUNCATED"),
    "wrong Adler-32": (DEFLATED[:-1] + b"?", [1], "BAD_CHECKSUM"),
    "trailing bytes": (DEFLATED + b"\0", [1], "LEFTOVER"), "two streams": (DEFLATED * 2, [1], "LEFTOVER"),
    "raw deflate": (DEFLATED[2:-4], [1], "BAD_COMPRESSION"), "not compressed": (message(), [1], "BAD_COMPRESSION"),
    "undone in the wrong order": (TWO, [5, 1], "BAD_COMPRESSION"), "the inner one cut": (
        transformed(DEFLATED[:-5], [5]), [1, 5], "TRUNCATED"),
    "zstd cut": (transformed(message(), [5])[:-1], [5], "BAD_COMPRESSION"),
    "zstd and more": (transformed(message(), [5]) + b"\0", [5], "BAD_COMPRESSION"),
    "snappy cut": (transformed(message(), [3])[:-1], [3], "BAD_COMPRESSION"),
    "snappy and more": (transformed(message(), [3]) + b"\0", [3], "BAD_COMPRESSION"),
    "xerial's snappy": (b"\x82SNAPPY\0" + bytes(8), [3], "BAD_COMPRESSION"),
    "lz4 cut": (transformed(message(), [6])[:-1], [6], "BAD_COMPRESSION"),
    "lz4 and more": (transformed(message(), [6]) + b"\0", [6], "BAD_COMPRESSION"),
    "lz4 says too little": (varint(15) + transformed(message(), [6])[1:], [6], "BAD_COMPRESSION"),
    "lz4 says too much": (varint(17) + transformed(message(), [6])[1:], [6], "BAD_COMPRESSION"),
    "lz4 says 2**31": (varint(1 << 31) + transformed(message(), [6])[1:], [6], "TOO_LARGE"),
    "lz4 without a size": (b"\x80\x80", [6], "BAD_COMPRESSION"), "an lz4 frame": (
        bytes(cramjam.lz4.compress(message())), [6], "BAD_COMPRESSION"),
}


@pytest.mark.parametrize("payload, ids, fault", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_bad_payloads(payload, ids, fault):
    raw = header(payload, PAIRS, transforms=ids) + header(message())
    table = thrift.plain(thrift.scan(raw), errors="mark")
    assert faults(table) == [fault, "OK"] and bytes(table.frame(0)) == payload and table["body"].tolist() == [0, 0]
    assert faults(thrift.messages(thrift.scan(raw), errors="mark")) == [fault, "OK"]
    assert len(thrift.infos(thrift.scan(raw))) == 3
    with pytest.raises(FrameError, match=fault):
        thrift.messages(thrift.scan(raw))
    for check in (True, False):
        for room in (PLAIN, THRIFT, INFOS):
            laws.all_of_them(room, raw, list(range(0, len(raw), 9)), check)
    if fault in ("LEFTOVER", "BAD_CHECKSUM"):               # as many readers have it
        assert texts(thrift.plain(thrift.scan(raw), check=False), "payload") == [message()] * 2


# ------------------------------------------------------------------------------------------- HMAC

KEY = b"secret"
MAGIC_AT = {header: 4, big: 12, double: 8}


def signed(payload=message(), infos=PAIRS, before=(), key=KEY, hash="sha256", make=header):
    """A frame with a code, by the rules: 0 for its size while it is made, and it covers all behind the length."""
    size = hashlib.new(hash).digest_size
    prefix, call = b"".join(map(varint, before)) + b"\2", dict(count=len(before) + 1)
    unsigned = make(payload, infos, transforms=prefix + b"\0", mac=bytes(size), **call)[MAGIC_AT[make]:-size]
    code = hmac.digest(key, unsigned, hash)
    return make(payload, infos, transforms=prefix + bytes([size]), mac=code, **call)


@pytest.mark.parametrize("make", [header, big, double])
@pytest.mark.parametrize("hash", ["sha256", "sha1", "md5", "sha512"])
def test_codes_are_verified(make, hash):
    raw = signed(transformed(message(), [1, 5]), before=(1, 5), hash=hash, make=make)
    frames = thrift.scan(raw)
    assert frames["mac_size"].tolist() == [hashlib.new(hash).digest_size] and frames["transform_2"].tolist() == [2]
    assert len(thrift.infos(frames)) == 3
    for options in ({}, dict(key=KEY, hash=hash), dict(key=bytearray(KEY), hash=hash)):
        assert texts(thrift.plain(frames, **options), "payload") == [message()]
    assert faults(thrift.plain(frames, key=b"other", hash=hash, errors="mark")) == ["BAD_CHECKSUM"]
    for at in range(MAGIC_AT[make], len(raw)):
        damaged = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:]
        table = thrift.scan(damaged, errors="mark")
        if faults(table) == ["OK"] and table["mac_size"].tolist() == frames["mac_size"].tolist():
            assert faults(thrift.plain(table, key=KEY, hash=hash, errors="mark")) == ["BAD_CHECKSUM"], at


def test_what_the_encoder_signed():
    raw = encode_frame(message(), transforms=[2, 1], infos={b"k": b"v"}, key=KEY)
    assert texts(thrift.plain(thrift.scan(raw), key=KEY), "payload") == [message()]
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        thrift.plain(thrift.scan(raw), key=b"")
    assert thrift_plain.plain(raw, reference.frames(raw)[0][0], key=KEY)[0]["fault"] == 0


def test_a_code_of_no_bytes_proves_nothing():
    frames = thrift.scan(header(message(), transforms=b"\2\0", count=1))
    assert texts(thrift.plain(frames), "payload") == [message()]
    assert faults(thrift.plain(frames, key=KEY, errors="mark")) == ["BAD_CHECKSUM"]


def test_a_frame_without_a_code_is_not_refused():
    assert texts(thrift.plain(thrift.scan(header(message())), key=KEY), "payload") == [message()]


def test_unfit_keys():
    frames = thrift.scan(signed())
    assert texts(thrift.plain(frames, key=memoryview(KEY)), "payload") == [message()]
    with pytest.raises(TypeError):
        thrift.plain(frames, key=5)
    for hash in ("nope", "shake_128"):
        with pytest.raises(ValueError):
            thrift.plain(frames, key=KEY, hash=hash)


# ------------------------------------------------------------------------------------------- HTTP

BODY = message(version=1)
OK, GET = b"HTTP/1.1 200 OK", b"GET / HTTP/1.1"
BODIES = {                  # bytes: what the rows are, and the tail
    "a request": (http(BODY), [(8, 8)], 0), "line feeds alone": (http(BODY, end=b"\n"), [(8, 8)], 0),
    "any case": (http(BODY).replace(b"Content-Length", b"cOnTeNt-lEnGtH"), [(8, 8)], 0),
    "blanks": (http(BODY).replace(b": 8", b":\t 008 \t"), [(8, 8)], 0),
    "the length twice": (http(BODY, fields=[b"Content-Length: 8"]), [(8, 8)], 0),
    "two lengths": (http(BODY, fields=[b"Content-Length: 9"]), ["BAD_LENGTH"], 0),
    "no number": (http(BODY).replace(b": 8", b": 0x8"), ["BAD_LENGTH"], 0),
    "a sign": (http(BODY).replace(b": 8", b": +8"), ["BAD_LENGTH"], 0),
    "no digits": (http(BODY).replace(b": 8", b":"), ["BAD_LENGTH"], 0),
    "2**64 + 8": (http(BODY).replace(b": 8", b": 18446744073709551624"), ["BAD_LENGTH"], 0),
    "a get": (http(first=GET, told=False) * 2, [(8, -1)] * 2, 0),
    "a response": (http(BODY, OK) + http(BODY, OK), [(8, 8)] * 2, 0),
    "until the end": (http(BODY, OK, told=False), [(8, 8)], 0),
    "until the end, nothing": (http(b"", OK, told=False), [(8, -1)], 0),
    "204": (http(first=b"HTTP/1.1 204 x", told=False) + http(BODY), [(8, -1), (8, 8)], 0),
    "304": (http(first=b"HTTP/1.1 304 x", told=False) + http(BODY), [(8, -1), (8, 8)], 0),
    "100": (http(first=b"HTTP/1.1 100 x", told=False) + http(BODY), [(8, -1), (8, 8)], 0),
    "cut in the head": (http(BODY)[:30], [], 30), "cut in the body": (http(BODY)[:-1], [], 48),
    "chunks": (chunked(BODY[:1], BODY[1:]), [(9, 23)], 0), "no chunk": (chunked(), [(9, 5)], 0),
    "extensions and a trailer": (chunked(BODY, extension=b" ;a=b", trailer=b"A: b\r\n"), [(9, 29)], 0),
    "chunks and a length": (chunked(BODY, fields=[b"Content-Length: 3"]), [(9, 18)], 0),
    "gzip, chunked": (chunked(BODY).replace(b": chunked", b": gzip, Chunked"), [(9, 18)], 0),
    "a chunk without its end": (chunked(BODY).replace(BODY + b"\r\n", BODY + b"\n\n"), ["BAD_LENGTH"], 0),
    "a size that is none": (chunked(BODY).replace(b"\r\n8\r\n", b"\r\ng\r\n"), ["BAD_LENGTH"], 0),
    "no size": (chunked(BODY).replace(b"\r\n8\r\n", b"\r\n\r\n"), ["BAD_LENGTH"], 0),
    "a negative size": (chunked(BODY).replace(b"\r\n8\r\n", b"\r\n-8\r\n"), ["BAD_LENGTH"], 0),
    "a size of 2**32": (chunked(BODY).replace(b"\r\n8\r\n", b"\r\n100000000\r\n"), ["BAD_LENGTH"], 0),
    "a size of 2**32 - 1": (chunked(BODY).replace(b"\r\n8\r\n", b"\r\nffffffff\r\n"), ["BAD_LENGTH"], 0),
    "chunks cut": (chunked(BODY)[:-1], [], 67),
    "a head of 64 KiB": (http(BODY, fields=[b"x" * 65490]), [(8, 8)], 0),
    "a longer head": (http(BODY, fields=[b"x" * 65536]), ["BAD_LENGTH"], 0),
    "a head without an end": (b"POST " + b"x" * 65532, ["BAD_LENGTH"], 0),
}


@pytest.mark.parametrize("raw, said, tail", BODIES.values(), ids=BODIES)
def test_http(raw, said, tail):
    table = thrift.scan(raw, errors="mark")
    assert [Fault(fault).name if fault else (kind, size) for kind, size, fault in columns(
        table, "kind payload_size fault")] == said
    assert len(table.tail) == tail
    laws.agrees_with_the_reference(THRIFT, raw)
    if len(raw) < 1000:
        laws.streams_lose_nothing(THRIFT, raw, list(range(1, len(raw))))
    for i in np.flatnonzero((table["payload_size"] > 5) & ~table.bad).tolist():
        assert texts(thrift.plain(table[i:i + 1]), "payload") == [BODY]


def test_chunks_are_put_together():
    body = message(arguments=put_struct([(1, STRING, bytes(range(256)) * 40)], 0))
    raw = chunked(*(body[i:i + 100] for i in range(0, len(body), 100))) + chunked(body)
    table = thrift.plain(thrift.scan(raw))
    assert texts(table, "payload") == [body] * 2 and set(table["buffer"].tolist()) == {1}
    assert texts(thrift.fields(thrift.messages(table)), "value") == [bytes(range(256)) * 40] * 2
    refused = thrift.plain(thrift.scan(raw), limits=Limits(inflated=len(body) - 1), errors="mark")
    assert faults(refused) == ["TOO_LARGE"] * 2


def test_a_response_ends_with_its_connection():
    stream, raw = wirescan.stream("thrift.messages"), http(message(), OK, told=False)
    for i in range(len(raw)):
        assert len(stream.feed(raw[i:i + 1])) == 0
    assert texts(stream.close(), "method") == [b"add"]


@pytest.mark.parametrize("body, said", [
    (message(), (0, "OK")), (message(strict=False), (0, "OK")), (message(version=2), (2, "OK")),
    (b'[1,"add",1,0,{}]', (1, "BAD_KIND")), (b"{}", (0, "BAD_MAGIC"))], ids=str)
def test_the_protocol_of_a_body(body, said):
    if body == b"{}":
        said = 0, "TRUNCATED"
    for make in (http, chunked):
        frames = thrift.scan(make(body))
        assert (frames["protocol_id"][0], *faults(thrift.messages(frames, errors="mark"))) == said


# ------------------------------------------------------------------------------------------- messages

def test_messages():
    raw = b"".join((framed(message(b"S:a:b", 1, -1)), framed(message(b"S:a", 2, 2**31 - 1)),
                    framed(message(b":a", 4, -2**31, version=1)), framed(message(b"a", 3, -1, version=2)),
                    header(message(b"old", strict=False)), http(first=GET, told=False)))
    frames = thrift.scan(raw)
    table = thrift.messages(frames)
    assert table.name == "thrift.messages" and table.dtype == thrift.MESSAGE and table.dtype.itemsize == 56
    assert columns(table, "parent kind seqid protocol version strict") == [
        (0, MessageType.CALL, -1, 0, 1, 1), (1, MessageType.REPLY, 2**31 - 1, 0, 1, 1),
        (2, MessageType.ONEWAY, -2**31, 2, 1, 1), (3, MessageType.EXCEPTION, -1, 2, 2, 1),
        (4, MessageType.CALL, 0, 0, 0, 0)]
    assert texts(table, "method") == [b"a:b", b"S:a", b"a", b"a", b"old"]           # only calls name their service
    assert texts(table, "service") == [b"S", None, b"", None, None]
    assert texts(table, "arguments") == [b"\0"] * 5 and (table["body"] == table["arguments_at"]).all()
    assert columns(table[:1], "start size body method_at service_at service_size") == [(4, 18, 17, 10, 8, 1)]
    assert laws.meaning(wirescan.scan(raw, "thrift.messages")) == laws.meaning(table)


@pytest.mark.parametrize("unused", [0, 1, 255])
def test_the_byte_that_strict_messages_do_not_use(unused):
    raw = message()
    raw = raw[:2] + bytes([unused]) + raw[3:]
    for wrapped in (raw, framed(raw), header(raw)):
        assert columns(thrift.messages(thrift.scan(wrapped)), "kind version") == [(1, 1)]


def test_the_protocol_of_the_header_counts():
    for raw, protocol, fault in (
            (message(), 2, "BAD_MAGIC"), (message(version=1), 0, "BAD_MAGIC"), (message(), 1, "BAD_KIND")):
        assert faults(thrift.messages(thrift.scan(header(raw, protocol=protocol)), errors="mark")) == [fault]


# ------------------------------------------------------------------------------------------- fields

EVERY = [(1, BOOL, True), (2, BOOL, False), (3, BYTE, -128), (4, I16, -32768), (5, I32, -2**31), (6, I64, -2**63),
         (7, DOUBLE, -0.1), (300, STRING, b"\xff"), (8, STRUCT, [(1, I32, 5), (2, STRUCT, [])]),
         (9, LIST, (BOOL, [True, False])), (10, SET, (STRING, [b"", b"b"])),
         (11, MAP, (I16, LIST, [(1, (BYTE, [7])), (-1, (BYTE, []))])), (-1, I16, 3)]
SAID = [                    # depth, role, id, type, integer, count, key type, element type, row around
    (1, 0, 1, BOOL, 1, 0, 0, 0, -1), (1, 0, 2, BOOL, 0, 0, 0, 0, -1), (1, 0, 3, BYTE, -128, 0, 0, 0, -1),
    (1, 0, 4, I16, -32768, 0, 0, 0, -1), (1, 0, 5, I32, -2**31, 0, 0, 0, -1), (1, 0, 6, I64, -2**63, 0, 0, 0, -1),
    (1, 0, 7, DOUBLE, 0, 0, 0, 0, -1), (1, 0, 300, STRING, 0, 0, 0, 0, -1), (1, 0, 8, STRUCT, 0, 0, 0, 0, -1),
    (2, 0, 1, I32, 5, 0, 0, 0, 8), (2, 0, 2, STRUCT, 0, 0, 0, 0, 8), (1, 0, 9, LIST, 0, 2, 0, BOOL, -1),
    (2, 1, 0, BOOL, 1, 0, 0, 0, 11), (2, 1, 1, BOOL, 0, 0, 0, 0, 11), (1, 0, 10, SET, 0, 2, 0, STRING, -1),
    (2, 1, 0, STRING, 0, 0, 0, 0, 14), (2, 1, 1, STRING, 0, 0, 0, 0, 14), (1, 0, 11, MAP, 0, 2, I16, LIST, -1),
    (2, 2, 0, I16, 1, 0, 0, 0, 17), (2, 3, 0, LIST, 0, 1, 0, BYTE, 17), (3, 1, 0, BYTE, 7, 0, 0, 0, 19),
    (2, 2, 1, I16, -1, 0, 0, 0, 17), (2, 3, 1, LIST, 0, 0, 0, BYTE, 17), (1, 0, -1, I16, 3, 0, 0, 0, -1)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fields(version):
    table = thrift.fields(thrift.messages(thrift.scan(message(arguments=put_struct(EVERY, version), version=version))))
    assert table.dtype == thrift.FIELD and table.dtype.itemsize == 64 and (table["parent"] == 0).all()
    assert columns(table, "depth role id kind integer count key_type element_type enclosing") == SAID
    assert table["real"].tolist() == [-0.1 if row[3] == DOUBLE else 0.0 for row in SAID]
    values = texts(table, "value")
    assert (values[7], values[15], values[16]) == (b"\xff", b"", b"b")
    assert values[8] == put_struct([(1, I32, 5), (2, STRUCT, [])], version) and values[10] == b"\0"
    assert values[:2] == ([b"", b""] if version else [b"\1", b"\0"]) and len(values[6]) == 8
    assert bytes(table.frame(9)) == (b"\x15\x0a" if version else b"\x08\0\1\0\0\0\5")
    assert (table["body"] == table["value_at"]).all()
    assert {Role(row[1]).name for row in SAID} == {"FIELD", "ELEMENT", "KEY", "VALUE"}


def test_types_of_one_protocol():
    fields = {0: [(1, U64, -1), (2, UUID, bytes(range(16))), (3, FLOAT, 0.1)], 1: [(2, UUID, bytes(range(16)))],
              2: [(3, FLOAT, 0.1), (4, DOUBLE, 0.1)]}
    for version, struct_ in fields.items():
        raw = message(arguments=put_struct(struct_, version), version=version)
        table = thrift.fields(thrift.messages(thrift.scan(raw)))
        assert columns(table, "id kind") == [field[:2] for field in struct_]
        for row, (_, kind, value) in zip(table, struct_):
            if kind == UUID:
                assert bytes(row.value) == value
            else:
                value = float(np.float32(value)) if kind == FLOAT else value
                assert (row.integer if kind == U64 else row.real) == value


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("depth", [1, 2, 3, 64])
def test_depth(version, depth):
    raw = message(arguments=put_struct(EVERY, version), version=version) * 2
    whole = thrift.fields(thrift.messages(thrift.scan(raw)))
    table = thrift.fields(thrift.messages(thrift.scan(raw)), depth=depth)
    shown = whole.where(whole["depth"] <= depth)
    names = "start size body parent kind integer count id depth role value_at value_size key_type element_type"
    assert columns(table, names) == columns(shown, names)
    inside = table["enclosing"] >= 0
    assert (table["depth"][table["enclosing"][inside]] == table["depth"][inside] - 1).all()
    assert (inside == (table["depth"] > 1)).all()


@pytest.mark.parametrize("depth", [0, -1, 65])
def test_no_such_depth(depth):
    with pytest.raises(ValueError, match="depth"):
        thrift.fields(thrift.messages(thrift.scan(message())), depth=depth)


@steady
@given(strategies.damaged_streams() | strategies.streams(), st.integers(1, 5))
def test_depths_agree_with_the_reference(raw, depth):
    messages = thrift.messages(thrift.scan(raw, errors="mark"), errors="mark")
    want = thrift_plain.all_fields(thrift_plain.messages(raw, reference.frames(raw)[0]), depth)
    rows = laws.rows_of(thrift.fields(messages, errors="mark", depth=depth))
    assert len(rows) == len(want)
    for row, (other, _) in zip(rows, want):
        same = {name: value for name, value in other.items() if value == value}
        assert {name: row[name] for name in same} | dict(start=0, buffer=0) == same | dict(start=0, buffer=0)


# ------------------------------------------------------------------------------------------- arguments

def opened(raw=ALL):
    """A table of each format, by the function that gives the next."""
    frames = thrift.scan(raw)
    messages = thrift.messages(frames)
    return {thrift.infos: frames, thrift.plain: frames, thrift.messages: frames, thrift.fields: messages}


def test_unfit_arguments():
    for call, table in opened().items():
        for wrong in (ALL, 7, None, thrift.infos(thrift.scan(ALL)), thrift.fields(thrift.messages(thrift.scan(ALL)))):
            with pytest.raises(TypeError):
                call(wrong)
        with pytest.raises(ValueError, match="errors"):
            call(table, errors="ignore")
        with pytest.raises(TypeError, match="limits"):
            call(table, limits=7)
    with pytest.raises(TypeError):
        thrift.scan(7)
    for depth in (1.5, "1", None):
        with pytest.raises(TypeError):
            thrift.fields(thrift.messages(thrift.scan(ALL)), depth=depth)


def test_rows_that_the_caller_gives():
    count = len(thrift.scan(ALL))
    room = np.empty(count + 1, thrift.FRAME)
    table = thrift.scan(ALL, into=room)
    assert np.shares_memory(table.rows, room) and table.rows.tobytes() == thrift.scan(ALL).rows.tobytes()
    with pytest.raises(ValueError, match="room for"):
        thrift.scan(ALL, into=np.empty(count - 1, thrift.FRAME))
    with pytest.raises(TypeError, match="into"):
        thrift.scan(ALL, into=np.empty(count, thrift.INFO))
    with pytest.raises(ValueError, match="one buffer"):
        thrift.scan([ALL, ALL], into=room)


def test_nothing():
    for name in FORMATS:
        table = wirescan.scan(b"", name)
        assert len(table) == 0 and table.dtype == format_of(name).dtype


def test_limits():
    for call, table in opened().items():
        rows = len(call(table))
        assert len(call(table, limits=Limits(rows=rows))) == rows
        if rows and call is not thrift.plain:
            with pytest.raises(FrameError, match="LIMIT"):
                call(table, limits=Limits(rows=rows - 1))
    for raw in (header(bytes(100)), framed(message(arguments=bytes(0))) + header(bytes(200)), message(b"a" * 200)):
        largest = int(thrift.scan(raw)["size"].max())
        assert len(thrift.scan(raw, limits=Limits(frame=largest))) == len(thrift.scan(raw))
        with pytest.raises(FrameError, match="BAD_LENGTH"):
            thrift.scan(raw, limits=Limits(frame=largest - 1))
    size = len(message())
    for ids in ([1], [3], [5], [6], [1, 5]):
        frames = thrift.scan(header(transformed(message(), ids), transforms=ids) * 3)
        table = thrift.plain(frames, errors="mark", limits=Limits(inflated_total=2 * size + 1))
        assert faults(table) == ["OK", "OK", "TOO_LARGE"]
        if len(ids) == 1:
            assert faults(thrift.plain(frames, errors="mark", limits=Limits(inflated=size))) == ["OK"] * 3
            assert faults(thrift.plain(frames, errors="mark", limits=Limits(inflated=size - 1))) == ["TOO_LARGE"] * 3


@pytest.mark.parametrize("column, value", [
    ("start", -1), ("start", 1 << 40), ("start", 2**63 - 1), ("size", 2**32 - 1), ("buffer", 9), ("body", 2**32 - 1),
    ("payload_at", 2**32 - 1), ("payload_size", 2**31 - 1), ("infos_at", 2**32 - 1), ("infos_size", 2**31 - 1),
    ("info_count", 2**32 - 1), ("transform_count", 255), ("mac_size", 255), ("header_words", 65535), ("kind", 9),
    ("kind", 1), ("arguments_at", 2**32 - 1), ("arguments_size", 2**31 - 1), ("protocol", 9), ("version", 9),
    ("parent", -5), ("parent", 99), ("transform_0", 4), ("payload_at", 0), ("payload_at", 3)])
def test_rows_that_lie_lead_no_kernel_astray(column, value):
    """Rows may come from anywhere."""
    frames = thrift.scan(ALL)
    for table, opens in ((frames, (thrift.infos, thrift.plain, thrift.messages)),
                         (thrift.plain(frames), (thrift.messages,)), (thrift.messages(frames), (thrift.fields,))):
        if column not in table.dtype.names:
            continue
        rows = table.rows.copy()
        rows[column] = value
        forged = replace(table, rows=rows)
        for open_ in opens:
            for options in ({}, dict(key=KEY)) if open_ is thrift.plain else ({},):
                try:
                    found = open_(forged, errors="mark", **options)
                except ValueError:
                    continue
                for i, row in enumerate(found):
                    try:
                        assert len(found.frame(i)) == row.size
                        assert all(len(string) <= row.size for string in row if string is not None)
                    except ValueError:
                        pass        # the row lies still, and says so where it is asked


# ------------------------------------------------------------------------------------------- tables and streams

def test_tables_travel():
    frames = thrift.scan([ALL, GOLDEN["zlib"]])
    fields = thrift.fields(thrift.messages(frames))
    back = pickle.loads(pickle.dumps(fields))
    assert laws.meaning(back) == laws.meaning(fields) and back.format is fields.format
    both = join([thrift.messages(thrift.scan(ALL)), thrift.messages(thrift.scan(GOLDEN["zlib"]))])
    assert laws.meaning(thrift.fields(both), False) == laws.meaning(fields, False)


@pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
def test_streams_cut_at_every_byte(raw):
    for room in (THRIFT, INFOS, PLAIN):
        for errors in ("strict", "mark"):
            laws.streams_agree(room, raw, list(range(1, len(raw))), errors)
        for cut in range(1, len(raw)):
            laws.streams_agree(room, raw, [cut])


@steady
@given(strategies.damaged_streams() | strategies.streams(least=1), st.lists(st.integers(0, 300), max_size=4))
def test_what_a_frame_needs_is_never_more_than_it_has(raw, cuts):
    """And as long as a good frame is not whole, it is more than there is."""
    needed, given = format_of("thrift.frames").needed, ()
    try:
        row = reference.frame(raw, 0)
    except reference.Bad as bad:
        row = None if bad.fault == reference.SHORT else dict(size=0, kind=0)
    if row and row["kind"] == Kind.HTTP and not raw[:300].lower().count(b"content-length") and raw[:4] == b"HTTP":
        return                      # its size is that of the stream
    for cut in sorted({*(cut % (len(raw) + 1) for cut in cuts), len(raw)}):
        if cut and (row is None or row["size"]):
            least, *given = needed(raw[:cut], *given)
            if row is None or cut < row["size"]:
                assert cut < least and (row is None or least <= row["size"])
            else:
                assert least <= cut


@pytest.mark.parametrize("raw", [
    message(arguments=put_struct([(1, LIST, (BYTE, [0] * 6000))], 0)),
    message(arguments=b"\2\0\1\1" * 2000 + b"\0"),
    message(arguments=b"\x11" * 6000 + b"\0", version=1), chunked(*[b"abc"] * 1000),
    chunked(trailer=b"A: b\r\n" * 1000), http(fields=[b"A: b"] * 2000), header(bytes(6000)),
], ids=["list", "fields", "compact", "chunks", "trailer", "head", "header"])
def test_frames_in_single_bytes_cost_linear_work(raw):
    from wirescan.stream import Stream
    scanned, known = [], format_of("thrift.frames")

    def scan(view, *arguments, **options):
        scanned.append(len(view))
        return known.scan(view, *arguments, **options)

    stream = Stream(replace(known, scan=scan))
    found = sum(len(stream.feed(raw[i:i + 1])) for i in range(len(raw)))
    assert found == 1 and len(stream.close()) == 0 and sum(scanned) <= 2 * len(raw) + 1000


@pytest.mark.parametrize("raw", [
    b"\x16\3\1\2\0\1\0\1", b"SSH-2.0-", bytes(8), b"\0\0\0\x20\x20\0\0\0", b"BIGF" + bytes(10)])
def test_what_is_no_frame_is_told_at_once(raw):
    stream = wirescan.stream("thrift.frames")
    stream.feed(header(message()))
    with pytest.raises(FrameError) as caught:
        for i in range(len(raw)):
            stream.feed(raw[i:i + 1])
    assert caught.value.offset == len(header(message())) and caught.value.fault in (Fault.BAD_LENGTH, Fault.NOT_A_FRAME)
