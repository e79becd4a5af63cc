"""Thrift bytes that mean harm: what real readers disagree on, every small damage to small streams, lies, bombs."""
import random
import struct
import time
import zlib

import pytest

import laws
import many_streams
import wirescan
from children import in_a_small_room, in_small_rooms, scanned
from reference import thrift as reference
from rooms import INFOS, PLAIN, THRIFT
from strategies.bombs import zlib_with_zeros
from strategies.thrift import (
    GOLDEN, LIST, MAP, RUNS, STRING, STRUCT, big, block, chunked, double, framed, header, http, message, put_struct,
    transformed, ttheader, varint)
from wirescan import Fault, FrameError, Limits, thrift

ALL = b"".join(raw for name, raw in GOLDEN.items() if name != "http until the end")
every_stream = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
KEYS = block(1, (b"k", b"v"))
PERSISTENT = block(2, (b"id", b"1"))
NEXT = header(message(), KEYS, seq=7)


# ------------------------------------------------------------------------------- where readers disagree

def of(raw):
    """Of each frame its fault, or its pairs, and the method of its message, or the fault of that."""
    frames = thrift.scan(raw, errors="mark")
    infos = thrift.infos(frames, errors="mark")
    messages = thrift.messages(frames, errors="mark")
    said = []
    for i, fault in enumerate(frames["fault"].tolist()):
        pairs = [b"=".join(map(bytes, row)).decode() for row in infos.where((infos["parent"] == i) & ~infos.bad)]
        calls = [Fault(row.fault).name if row.fault else bytes(row.method).decode()
                 for row in messages if row.parent == i]
        said.append((Fault(fault).name, " ".join(pairs), " ".join(calls)))
    return said


def unzipped(size):
    """The zlib stream of a message that has a string of so many zeros."""
    plain = message(arguments=put_struct([(1, STRING, b"")], 0))
    assert plain.endswith(bytes(4) + b"\0")
    return zlib_with_zeros(plain[:-5] + struct.pack(">I", size), size + 1)


READ, AND = ("OK", "", "add"), ("OK", "k=v", "add")
LARGE = block(1, (b"k", bytes(32767)), (b"l", bytes(32767)), (b"m", b""))
# Each of them is taken by one reader in use and refused by another, or read differently by two. Here everything is
# taken that can be read without a guess, and what cannot has a fault that names the reason; the next frame is read.
VERDICTS = {
    "persistent infos, then others": (header(message(), PERSISTENT + KEYS), ("OK", "id=1 k=v", "add")),
    "infos, then persistent ones": (header(message(), KEYS + PERSISTENT), ("OK", "k=v id=1", "add")),
    "several blocks of one kind": (header(message(), KEYS + KEYS), ("OK", "k=v k=v", "add")),
    "infos behind padding": (header(message(), b"\0" + KEYS), READ),
    "infos behind an unknown one": (header(message(), KEYS + b"\3" + KEYS), AND),
    "an unknown info of 32 bits": (header(message(), KEYS + b"\xff\xff\xff\xff\x0f"), AND),
    "a header of 16,384 words": (header(message(), KEYS, padding=65536 - 6 - 2), AND),
    "a header of 65,535 words": (header(message(), KEYS, padding=262140 - 6 - 2), AND),
    "a word more than the frame has": (header(message(), KEYS, words=7), ("BAD_HEADER", "", "BAD_HEADER")),
    "65,535 words in a small frame": (header(message(), KEYS, words=65535), ("BAD_HEADER", "", "BAD_HEADER")),
    "16,384 words, 0 in 16 bits of bytes": (header(message(), KEYS, words=16384), ("BAD_HEADER", "", "BAD_HEADER")),
    "no header": (header(message(), words=0), ("TRUNCATED", "", "TRUNCATED")),
    "transform 0": (header(message(), transforms=[0]), READ),
    "zlib twice, and none": (header(transformed(message(), [1, 1]), transforms=[1, 1, 0]), READ),
    "zlib, then zstd": (header(transformed(message(), [1, 5]), transforms=[1, 5]), READ),
    "snappy": (header(transformed(message(), [3]), transforms=[3]), READ),
    "lz4": (header(transformed(message(), [6]), transforms=[6]), READ),
    "zstd": (header(transformed(message(), [5]), transforms=[5]), READ),
    "QuickLZ": (header(message(), KEYS, transforms=[4]), ("BAD_CODEC", "k=v", "BAD_CODEC")),
    "a custom transform": (header(message(), KEYS, transforms=[7]), ("BAD_CODEC", "k=v", "BAD_CODEC")),
    "transform 14": (header(message(), KEYS, transforms=[14]), ("BAD_CODEC", "k=v", "BAD_CODEC")),
    "transform 65535": (header(message(), KEYS, transforms=[65535]), ("BAD_CODEC", "k=v", "BAD_CODEC")),
    "transform 65537, zlib in 16 bits": (
        header(transformed(message(), [1]), KEYS, transforms=[65537]), ("BAD_FIELD", "", "BAD_FIELD")),
    "2**32 - 1 transforms": (header(message(), transforms=b"", count=2**32 - 1), ("BAD_COUNT", "", "BAD_COUNT")),
    "256 transforms": (header(message(), transforms=[0] * 256), ("BAD_COUNT", "", "BAD_COUNT")),
    "255 transforms": (header(message(), transforms=[0] * 255), READ),
    "a transform that padding stands for": (header(message(), transforms=b"", count=2), READ),
    "more transforms than the header has bytes": (
        header(message(), transforms=b"", count=3), ("BAD_COUNT", "", "BAD_COUNT")),
    "HMAC without its size": (header(message(), transforms=b"\2", count=1), READ),
    "HMAC at the header's end": (
        header(message(), transforms=b"\0\2", count=2, padding=0), ("TRUNCATED", "", "TRUNCATED")),
    "HMAC larger than the payload": (
        header(message(), transforms=b"\2\xff", count=1), ("BAD_HEADER", "", "BAD_HEADER")),
    "HMAC, all of the payload": (header(b"", transforms=b"\2\4", count=1, mac=b"1234"), ("OK", "", "TRUNCATED")),
    "HMAC twice": (header(message(), transforms=b"\2\1\2\1", count=2), ("BAD_HEADER", "", "BAD_HEADER")),
    "a small big frame": (big(message(), KEYS), AND),
    "framed compact, version 2": (framed(message(version=2)), READ),
    "framed binary without a version": (framed(message(strict=False)), ("NOT_A_FRAME", "", "NOT_A_FRAME")),
    "a key past the header": (header(message(), b"\1\1\1k\x7f"), ("TRUNCATED", "", "TRUNCATED")),
    "a value in the payload": (header(message(), b"\1\1\1k\4"), ("TRUNCATED", "", "TRUNCATED")),
    "a value to the header's end": (header(message(), b"\1\1\1k\1v"), AND),
    "a value of 2**32 - 1 bytes": (header(message(), b"\1\1\0\xff\xff\xff\xff\x0f"), ("TRUNCATED", "", "TRUNCATED")),
    "50 pairs, and one is there": (
        header(message(), block(1, (b"k", b"v"), count=50)), ("BAD_COUNT", "", "BAD_COUNT")),
    "two pairs in the bytes of one": (
        header(message(), block(1, (b"kk", b"vv"), count=2) + b"\1"), ("TRUNCATED", "", "TRUNCATED")),
    "2**32 - 1 pairs": (header(message(), block(1, count=2**32 - 1)), ("BAD_COUNT", "", "BAD_COUNT")),
    "2**31 pairs, 0 in 32 bits when doubled": (
        header(message(), block(1, count=2**31)), ("BAD_COUNT", "", "BAD_COUNT")),
    "no pairs": (header(message(), block(1) + KEYS + block(2)), AND),
    "a varint cut by the header's end": (
        header(message(), b"\1\x80", padding=0), ("TRUNCATED", "", "TRUNCATED")),
    "a varint that would go on in the payload": (
        header(message(version=1), b"\1\1\0\x80", protocol=2, padding=2), ("OK", "=", "add")),
    "a long varint of a small number": (header(message(), KEYS, protocol=varint(0, 5)), AND),
    "a varint of six bytes": (header(message(), KEYS, protocol=varint(0, 6)), ("BAD_VARINT", "", "BAD_VARINT")),
    "a varint of 33 bits": (header(message(), b"\xff\xff\xff\xff\x1f"), ("BAD_VARINT", "", "BAD_VARINT")),
    "protocol 1, JSON": (header(message(), KEYS, protocol=1), ("OK", "k=v", "BAD_KIND")),
    "protocol 3": (header(message(), KEYS, protocol=3), ("OK", "k=v", "BAD_KIND")),
    "protocol 256": (header(message(), KEYS, protocol=256), ("BAD_FIELD", "", "BAD_FIELD")),
    "zlib cut": (header(unzipped(510)[:-9], KEYS, transforms=[1]), ("OK", "k=v", "TRUNCATED")),
    "bytes after zlib": (header(unzipped(510) + b"more", KEYS, transforms=[1]), ("OK", "k=v", "LEFTOVER")),
    "zlib of 40 MB": (lambda: header(unzipped(40_000_000), KEYS, transforms=[1]), AND),
    "zlib of 70 MB": (lambda: header(unzipped(70_000_000), KEYS, transforms=[1]), ("OK", "k=v", "TOO_LARGE")),
    "zlib of 1,000 bytes": (header(unzipped(1000), KEYS, transforms=[1]), AND),
    "double length": (double(message(), KEYS), AND),
    "double length, too small": (framed(framed(b"\x0f\xff\0\0")), ("TRUNCATED", "", "TRUNCATED")),
    "length 4": (framed(b"\x0f\xff\0\0"), ("TRUNCATED", "", "TRUNCATED")),
    "length 9": (framed(b"\x0f\xff" + bytes(7)), ("TRUNCATED", "", "TRUNCATED")),
    "length 10": (framed(b"\x0f\xff" + bytes(8)), ("TRUNCATED", "", "TRUNCATED")),
    "length 13": (framed(b"\x0f\xff" + bytes(7) + b"\1\0\0\0"), ("BAD_HEADER", "", "BAD_HEADER")),
    "length 14, no payload": (header(), ("OK", "", "TRUNCATED")),
    "length 0": (bytes(4), ("BAD_LENGTH", "", "BAD_LENGTH")),
    "length 3": (b"\0\0\0\3\x0f\xff\0", ("BAD_LENGTH", "", "BAD_LENGTH")),
    "length 2**30": (b"\x40\0\0\0" + header(message())[4:], ("NOT_A_FRAME", "", "NOT_A_FRAME")),
    "a big frame of 2**64 - 1 bytes": (
        b"BIGF" + b"\xff" * 8 + big(message())[12:], ("BAD_LENGTH", "", "BAD_LENGTH")),
    "a big frame of 0 bytes": (b"BIGF" + bytes(8), ("NOT_A_FRAME", "", "NOT_A_FRAME")),
    "TTHeader": (ttheader(), ("OK", "", "")),
    "flags and seq of all ones": (header(message(), KEYS, flags=0xFFFF, seq=0xFFFFFFFF), AND),
    "strings of 32,767 bytes": (header(message(), block(1, (b"k", b"v" * 32767))), ("OK", "k=" + "v" * 32767, "add")),
}


@pytest.mark.parametrize("raw, said", VERDICTS.values(), ids=VERDICTS)
def test_verdicts(raw, said):
    raw = raw() if callable(raw) else raw           # what is large is not made while tests are collected
    assert of(raw + NEXT) == [said, AND]
    fault = next((one for one in (said[0], said[2].upper()) if one in Fault.__members__ and one != "OK"), None)
    if fault is None:
        assert len(thrift.messages(thrift.scan(raw + NEXT))) == 2 - (said[2] == "")
    else:
        with pytest.raises(FrameError, match=fault) as caught:
            thrift.messages(thrift.scan(raw + NEXT))
        assert caught.value.fault.name == fault and caught.value.offset <= len(raw)
    assert thrift.scan(raw + NEXT, errors="skip")["seq"].tolist()[-1] == 7
    for room in (THRIFT, INFOS):
        if len(raw) < 2000:
            laws.all_of_them(room, raw + NEXT, list(range(0, len(raw), 7)))


def test_what_follows_a_bad_frame_is_read_where_its_length_says():
    """A fault inside a header is no reason to doubt its length: whatever follows is not swallowed."""
    bad = header(message(), words=0)
    for next in (message(), message(version=1), framed(message()), ttheader(), http(message()), big(message()),
                 double(message())):
        assert of(bad + next + NEXT)[0][0] == "TRUNCATED"
        assert thrift.scan(bad + next + NEXT, errors="mark")["size"].tolist() == [len(bad), len(next), len(NEXT)]


# ------------------------------------------------------------------------------- messages and their structs

def rows_of(struct, version):
    """Of each row of a struct (depth, id, fault), of what cannot be read only its fault; and whether all that is bad
    goes on to the end of the message."""
    frames = thrift.scan(framed(message(arguments=struct, version=version)) + NEXT, errors="mark")
    messages = thrift.messages(frames, errors="mark")
    assert messages["fault"].tolist() == [0, 0]
    table = thrift.fields(messages, errors="mark")
    ends = table["start"] + table["size"] == messages["start"][0] + messages["size"][0]
    return [(depth, id, Fault(fault).name) if kind else Fault(fault).name for kind, depth, id, fault in table.rows[
        ["kind", "depth", "id", "fault"]].tolist()], ends[table.bad].all()


BINARY_STRUCTS = {
    "nothing": (b"", ["TRUNCATED"]), "only fields": (b"\2\0\1\1", [(1, 1, "OK"), "TRUNCATED"]),
    "half a header": (b"\2\0", ["TRUNCATED"]), "half a value": (b"\x08\0\1\0\0\0", ["TRUNCATED"]),
    "more behind it": (b"\0\0", ["LEFTOVER"]),
    "fields behind it": (b"\2\0\1\1\0\2\0\2\1\0", [(1, 1, "OK"), "LEFTOVER"]),
    **{f"type {type}": (bytes([type]) + b"\0\1" + bytes(20), ["BAD_FIELD"])
       for type in (1, 5, 7, 17, 18, 20, 127, 128, 255)},
    "a string past the end": (b"\x0b\0\1\0\0\0\2a", ["TRUNCATED"]),
    "a string of -1": (b"\x0b\0\1\xff\xff\xff\xff", ["TRUNCATED"]),
    "a string of 2**31 - 1": (b"\x0b\0\1\x7f\xff\xff\xff\0", ["TRUNCATED"]),
    "a list of -1": (b"\x0f\0\1\2\xff\xff\xff\xff\0", ["BAD_COUNT"]),
    "a list of 2**31 - 1 bytes": (b"\x0f\0\1\3\x7f\xff\xff\xff\0", ["BAD_COUNT"]),
    "a list of 2**29 i64, 0 bytes in 32 bits": (b"\x0f\0\1\x0a\x20\0\0\0\0", ["BAD_COUNT"]),
    "a list of 2**31 - 1 empty structs": (b"\x0f\0\1\x0c\x7f\xff\xff\xff\0", ["BAD_COUNT"]),
    "a list of voids": (b"\x0f\0\1\1\0\0\0\1\0", ["BAD_FIELD"]),
    "a set of stops": (b"\x0e\0\1\0\0\0\0\1\0", ["BAD_FIELD"]),
    "an empty list of voids": (b"\x0f\0\1\1\0\0\0\0\0", [(1, 1, "OK")]),
    "an empty map of nothing": (b"\x0d\0\1\0\xff\0\0\0\0\0", [(1, 1, "OK")]),
    "a map of unknown keys": (b"\x0d\0\1\5\2\0\0\0\1\0\0", ["BAD_FIELD"]),
    "a map of -2": (b"\x0d\0\1\2\2\xff\xff\xff\xfe\0", ["BAD_COUNT"]),
    "a map, half of a pair": (b"\x0d\0\1\x0b\x0b\0\0\0\1\0\0\0\4aaaa",
                              [(1, 1, "TRUNCATED"), (2, 0, "OK"), "TRUNCATED"]),
    "a bad value in a list": (b"\x0f\0\1\x0b\0\0\0\2\0\0\0\1a\0\0\0\x7f\0",
                              [(1, 1, "TRUNCATED"), (2, 0, "OK"), "TRUNCATED"]),
    "a bad type in a struct": (b"\x0c\0\1\2\0\1\1\x63\0\0\0", [(1, 1, "BAD_FIELD"), (2, 1, "OK"), "BAD_FIELD"]),
    "ids again, and backwards": (b"\2\x7f\xff\1\2\x80\0\0\2\x80\0\0\0", [
        (1, 32767, "OK"), (1, -32768, "OK"), (1, -32768, "OK")]),
}
COMPACT_STRUCTS = {
    "nothing": (b"", ["TRUNCATED"]), "booleans": (b"\x11\x12\0", [(1, 1, "OK"), (1, 2, "OK")]),
    "an id in full": (b"\x05\x02\2\0", [(1, 1, "OK")]), "a stop with a delta": (b"\x10\0", ["BAD_FIELD"]),
    "type 14": (b"\x1e\0\0", ["BAD_FIELD"]), "type 15": (b"\x1f\0\0", ["BAD_FIELD"]),
    "an id of 32768": (b"\x03\x80\x80\4\1\0", ["BAD_FIELD"]), "an id of -32769": (b"\x03\x81\x80\4\1\0", ["BAD_FIELD"]),
    "an id of -32768": (b"\x03\xff\xff\3\1\0", [(1, -32768, "OK")]),
    "a delta above 32767": (b"\x03\xfe\xff\3\1\x13\1\0", [(1, 32767, "OK"), "BAD_FIELD"]),
    "a long varint": (b"\x15\x82\x80\x80\x80\0\0", [(1, 1, "OK")]),
    "a varint of six bytes": (b"\x15\x80\x80\x80\x80\x80\0\0", ["BAD_VARINT"]),
    "a varint of 33 bits": (b"\x15\xff\xff\xff\xff\x1f\0", ["BAD_VARINT"]),
    "a varint of eleven bytes": (b"\x16" + b"\x80" * 10 + b"\0\0", ["BAD_VARINT"]),
    "a varint of 65 bits": (b"\x16" + b"\xff" * 9 + b"\2\0", ["BAD_VARINT"]),
    "the least i64": (b"\x16" + b"\xff" * 9 + b"\1\0", [(1, 1, "OK")]),
    "a varint cut": (b"\x16\x80\x80", ["TRUNCATED"]),
    "a string past the end": (b"\x18\3ab", ["TRUNCATED"]),
    "a string of 2**32 - 1": (b"\x18\xff\xff\xff\xff\x0f\0", ["TRUNCATED"]),
    "a long list of 2": (b"\x19\xf3\2ab\0", [(1, 1, "OK"), (2, 0, "OK"), (2, 1, "OK")]),
    "a list past the end": (b"\x19\x43abc", ["BAD_COUNT"]),
    "a list of 2**31 - 1": (b"\x19\xf1\xff\xff\xff\xff\7\0", ["BAD_COUNT"]),
    "a list of 2**32 - 1 structs": (b"\x19\xfc\xff\xff\xff\xff\x0f\0", ["BAD_COUNT"]),
    "booleans in a list": (b"\x19\x31\1\2\xff\0", [(1, 1, "OK"), (2, 0, "OK"), (2, 1, "OK"), (2, 2, "OK")]),
    "a list of nothing": (b"\x19\x10a\0", ["BAD_FIELD"]), "an empty list of type 15": (b"\x19\x0f\0", [(1, 1, "OK")]),
    "an empty map": (b"\x1b\0\0", [(1, 1, "OK")]), "a map of unknown types": (b"\x1b\1\xee\0\0\0", ["BAD_FIELD"]),
    "a map without types": (b"\x1b\1", ["TRUNCATED"]), "a map past the end": (b"\x1b\2\x33abc", ["BAD_COUNT"]),
    "more behind it": (b"\0\0", ["LEFTOVER"]),
}
STRUCTS = {f"binary, {name}": (0, *one) for name, one in BINARY_STRUCTS.items()} | {
    f"compact, {name}": (1, *one) for name, one in COMPACT_STRUCTS.items()}


@pytest.mark.parametrize("version, struct, said", STRUCTS.values(), ids=STRUCTS)
def test_structs(version, struct, said):
    assert rows_of(struct, version) == (said, True)
    raw = framed(message(arguments=struct, version=version)) + NEXT
    laws.all_of_them(THRIFT, raw, list(range(0, len(raw), 3)))
    unframed = message(arguments=struct, version=version)           # its end is not known, or it is another one
    laws.agrees_with_the_reference(THRIFT, unframed)
    laws.agrees_with_the_reference(THRIFT, unframed + NEXT)
    laws.streams_lose_nothing(THRIFT, unframed + NEXT, list(range(1, len(unframed))))


@pytest.mark.parametrize("raw, fault", [
    (b"\x80\2\0\1", "BAD_MAGIC"), (b"\xff" * 8, "BAD_MAGIC"), (b"\x80\1\0\0", "BAD_KIND"), (b"\x80\1\0\5", "BAD_KIND"),
    (b"\x80\1\0\1", "TRUNCATED"), (b"\x80\1\0\1\x7f\xff\xff\xff", "TRUNCATED"),
    (b"\x80\1\0\1\xff\xff\xff\xff", "TRUNCATED"), (b"\x80\1\0\1\0\0\0\1a\0\0\0", "TRUNCATED"),
    (b"\0\0\0\1a\0", "BAD_KIND"), (b"\0\0\0\1a", "TRUNCATED"), (b"", "TRUNCATED"),
    (b"\0\0\0", "TRUNCATED"), (b"\0\0\0\1a\1\0\0\0", "TRUNCATED")], ids=str)
def test_binary_messages(raw, fault):
    table = thrift.messages(thrift.scan(header(raw) + NEXT), errors="mark")
    assert table["fault"].tolist() == [Fault[fault], 0] and table["size"][0] == len(raw)
    laws.all_of_them(THRIFT, header(raw) + NEXT, [len(header(raw)) - 1])


@pytest.mark.parametrize("raw, fault", [
    (b"\x80\1", "BAD_MAGIC"), (b"\x82\x20\0\0", "BAD_VERSION"), (b"\x82\x23\0\0", "BAD_VERSION"),
    (b"\x82\1\0\0", "BAD_KIND"), (b"\x82\xa1\0\0", "BAD_KIND"), (b"\x82", "TRUNCATED"),
    (b"\x82\x21", "TRUNCATED"), (b"\x82\x21\x80", "TRUNCATED"),
    (b"\x82\x21\xff\xff\xff\xff\x1f\0", "BAD_VARINT"), (b"\x82\x21\0\xff\xff\xff\xff\x0f", "TRUNCATED"),
    (b"\x82\x21\0\2a", "TRUNCATED"), (b"\x82\x21\0" + b"\x80" * 6, "BAD_VARINT")], ids=str)
def test_compact_messages(raw, fault):
    table = thrift.messages(thrift.scan(header(raw, protocol=2) + NEXT), errors="mark")
    assert table["fault"].tolist() == [Fault[fault], 0]
    laws.all_of_them(THRIFT, header(raw, protocol=2) + NEXT, [len(header(raw)) - 1])


def nested(layers, version, kind=STRUCT):
    """A struct of one field that is so many structs or lists in one another; each is one deeper."""
    if kind == STRUCT:
        return (b"\x1c" if version else b"\x0c\0\1") * layers + bytes(layers + 1)
    if version:
        return b"\x19" + b"\x19" * (layers - 1) + b"\x03\0"
    return b"\x0f\0\1" + b"\x0f\0\0\0\1" * (layers - 1) + b"\x03\0\0\0\0\0"


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("kind", [STRUCT, LIST])
@pytest.mark.parametrize("wrap", [framed, bytes], ids=["framed", "unframed"])
def test_recursion(version, kind, wrap):
    for layers in (1, 63, 64, 100, 100_000):
        raw = wrap(message(arguments=nested(layers, version, kind), version=version))
        frames = thrift.scan(raw, errors="mark")
        if layers < 64:
            table = thrift.fields(thrift.messages(frames))
            assert table["depth"].tolist() == list(range(1, layers + 1))
            for depth in (1, 2, layers):
                shown = thrift.fields(thrift.messages(frames), depth=depth)
                assert len(shown) == min(depth, layers)
                assert shown["size"].tolist() == table["size"][:len(shown)].tolist()
        elif wrap is bytes:
            assert frames["fault"].tolist() == [Fault.BAD_LENGTH]
        else:
            table = thrift.fields(thrift.messages(frames), errors="mark")
            assert table["fault"].tolist() == [Fault.NESTED] * 64 and table["kind"].tolist() == [kind] * 63 + [0]
            assert thrift.fields(thrift.messages(frames), errors="mark", depth=1)["fault"].tolist() == [Fault.NESTED]
        if layers < 1000:
            laws.all_of_them(THRIFT, raw, [len(raw) // 2])


# ------------------------------------------------------------------------------- each byte, each number, each cut

def agree_with_the_reference(rooms, streams):
    many_streams.agree_with_the_reference(rooms, streams, outermost=lambda raw: reference.frames(raw, False))


@every_stream
def test_every_byte(raw):
    def values(old):
        return {0, 1, 2, 0x0F, 0x7F, 0x80, 0x82, 0xFF, old ^ 1, old ^ 0x10}
    agree_with_the_reference([THRIFT, INFOS], many_streams.replace_bytes(raw, values))


@every_stream
def test_every_byte_ends_well(raw):
    streams = [raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1:] + NEXT for at in range(len(raw))]
    for room in (THRIFT, INFOS, PLAIN):
        many_streams.end_well(room, streams, False)
    for at, damaged in enumerate(streams):
        laws.covers_every_byte(THRIFT, damaged)
        laws.streams_lose_nothing(THRIFT, damaged, [at])


@every_stream
def test_a_byte_less_and_a_byte_more(raw):
    streams = []
    for at in range(len(raw)):
        streams.append(raw[:at] + raw[at + 1:] + NEXT)
        for run in (b"\0", b"\x80", b"\xff"):
            streams.append(raw[:at] + run + raw[at:])
    agree_with_the_reference([THRIFT], streams)


def test_cut_at_each_byte():
    for name in ("thrift.fields", "thrift.infos"):
        whole, ends = laws.meaning(wirescan.scan(ALL, name)), [0]
        for size in thrift.scan(ALL)["size"].tolist():
            ends.append(ends[-1] + size)
        for cut in range(len(ALL)):
            table = wirescan.scan(ALL[:cut], name)
            assert laws.meaning(table) == whole[:len(table)]
            stop = laws.tables_of(table)[0].stop
            assert stop[:2] == (Fault.OK if cut in ends else Fault.SHORT, max(end for end in ends if end <= cut))


def test_what_is_inflated_is_damaged_at_each_byte():
    plain = message(arguments=put_struct([(1, MAP, (STRING, LIST, [(b"k", (STRING, [b"a", b""]))]))], 0))
    for at in range(len(plain)):
        for run in (b"", b"\0", b"\xff", *RUNS[:4]):
            damaged = plain[:at] + run + plain[at + 1:]
            raw = header(transformed(damaged, [1]), transforms=[1]) + header(
                transformed(plain, [5, 6]), transforms=[5, 6])
            laws.agrees_with_the_reference(THRIFT, raw)
            laws.modes_agree(THRIFT, raw)


GUARD = """
import random
import sys
import numpy as np
from guard import Guarded
from strategies.thrift import GOLDEN, message
from wirescan import thrift
from wirescan.catalog import format_of

chance, scans = random.Random(1), 0
room = Guarded(600)
frames = thrift.scan(message())
messages = thrift.messages(frames)
needed = format_of("thrift.frames").needed

def scan(raw):
    global scans
    for view in (room.at_the_end(raw), room.at_the_beginning(raw)):
        for non_strict in (False, True):
            found = thrift.scan(view, errors="mark", non_strict=non_strict)
            thrift.infos(found, errors="mark")
            thrift.fields(thrift.messages(found, errors="mark"), errors="mark", depth=1 + scans % 64)
        least, *given = needed(view)
        needed(view, *given)
        for compact in (False, True):               # as if it were the struct of a message
            rows = messages.rows.copy()
            rows["start"], rows["size"], rows["arguments_at"], rows["arguments_size"] = 0, len(raw), 0, len(raw)
            rows["protocol"], rows["version"] = 2 * compact, 1 + scans % 2
            thrift.fields(thrift.FrameTable((view,), rows, (), thrift.FORMATS[3], frames), errors="mark")
    scans += 1

for raw in GOLDEN.values():
    for cut in range(len(raw) + 1):
        scan(raw[:cut])
        scan(raw[cut:])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice((0, 1, 2, 0x0F, 0x7F, 0x80, 0x82, 0xFF))
            scan(bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside():
    """Every cut and some damage, against pages that cannot be read: test_guard.py proves that these bite."""
    assert scanned(GUARD, 2) > 4000


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert scanned(GUARD, 10) > 8000


# ------------------------------------------------------------------------------- memory and time

CHILD = """
import resource, sys, time
from wirescan import FrameError, thrift
thrift.messages(thrift.scan(b""))
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
for errors in ("mark", "strict"):
    try:
        frames = thrift.scan(raw, errors=errors)
        messages = thrift.messages(frames, errors=errors)
        print(len(frames), len(thrift.infos(frames, errors=errors)), len(thrift.fields(messages, errors=errors)),
              sep="/", end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""


HUGE = b"\x7f\xff\xff\xff"
CLAIMS = {
    "a frame": b"\3\xff\xff\xff" + NEXT[4:], "a big frame": b"BIGF" + struct.pack(">Q", 1 << 40) + NEXT[4:],
    "pairs": header(message(), block(1, count=2**32 - 1)), "an lz4 block": header(HUGE, transforms=[6]),
    "a snappy block": header(b"\xff\xff\xff\xff\x07\0", transforms=[3]),
    "a zstd frame": header(b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8, transforms=[5]),
    "a list": framed(message(arguments=b"\x0f\0\1\2" + HUGE + b"\0")),
    "a list, compact": framed(message(arguments=b"\x19\xf1\xff\xff\xff\xff\7\0", version=1)),
    "a list, unframed": message(arguments=b"\x0f\0\1\2" + HUGE + b"\0"),
    "a map of lists": framed(message(arguments=b"\x0d\0\1\x0f\x0f" + HUGE + b"\0")),
    "a body": http(b"").replace(b": 0", b": 99999999"),
    "a chunk": chunked(b"a").replace(b"\r\n1\r\n", b"\r\n5ffffff\r\n"),
}


@pytest.fixture(scope="module")
def claims_read():
    return dict(zip(CLAIMS, in_small_rooms(CHILD, [raw * 3 for raw in CLAIMS.values()], 96)))


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_from_a_claim(claims_read, claim):
    said, seconds = claims_read[claim]
    assert seconds < 2 and said


@pytest.mark.parametrize("id", [1, 3, 5, 6])
def test_bombs(id):
    """100 MB in each, and of zstd after zlib in few bytes."""
    size = 100 << 20
    bomb = zlib_with_zeros(b"", size) if id == 1 else transformed(bytes(size), [id])
    table = thrift.plain(thrift.scan(header(bomb, transforms=[id]) + NEXT), errors="mark")
    assert table["fault"].tolist() == [Fault.TOO_LARGE, 0] and sum(map(len, table.buffers[1:])) < 1000
    said, seconds = in_a_small_room(CHILD, header(bomb, transforms=[id]), 320)
    assert said == ["1/0/1", "TOO_LARGE"] and seconds < 5


def test_bombs_of_two_layers():
    raw = header(transformed(zlib_with_zeros(b"", 100 << 20), [5]), transforms=[1, 5])
    assert len(raw) < 5000
    assert thrift.plain(thrift.scan(raw), errors="mark")["fault"].tolist() == [Fault.TOO_LARGE]
    said, seconds = in_a_small_room(CHILD, raw * 20, 256)
    assert said == ["20/0/20", "TOO_LARGE"] and seconds < 10


def test_many_small_bombs():
    """Each is within the limits; all together are not."""
    for ids in ([1], [5], [6, 1]):
        frames = thrift.scan(header(transformed(bytes(1 << 20), ids), transforms=ids) * 40)
        table = thrift.plain(frames, errors="mark", limits=Limits(inflated_total=10 << 20))
        assert (~table.bad).sum() == 10 and sum(map(len, table.buffers[1:])) <= 10 << 20
        assert set(table["fault"].tolist()) == {0, Fault.TOO_LARGE}


TRAPS = {
    "pairs of no bytes": lambda size: header(message(), block(1, *[(b"", b"")] * 100_000)),
    "frames of one pair": lambda size: header(b"", block(1, (b"", b""))) * (size // 18),
    "empty headers": lambda size: header() * (size // 18), "bad headers": lambda size: header(words=0) * (size // 18),
    "headers in one another": lambda size: b"".join(
        struct.pack(">IHHIHH", size - at, 0x0FFF, 0, 0, 1, 0) + bytes(2) for at in range(0, size, 18)),
    "claims": lambda size: struct.pack(">IHHIH", 0x3FFFFF, 0x0FFF, 0, 0, 1) * (size // 14),
    "claims of words": lambda size: struct.pack(">IHHIH", 70000, 0x0FFF, 0, 0, 9000) * (size // 14),
    "claims of big frames": lambda size: (b"BIGF" + struct.pack(">QHHIH", 1 << 22, 0x0FFF, 0, 0, 1)) * (size // 22),
    "unframed": lambda size: message() * (size // 16),
    "unframed, without an end": lambda size: message(arguments=b"\2\0\1\1" * (size // 4)),
    "unframed lists that claim the rest": lambda size: message(arguments=b"\x0f\0\1\3\x7f\0\0\0" * (size // 8)),
    "begins of unframed": lambda size: b"\x80\1\0\1\0\0\0\0\0\0\0\0\x0f\0\1\x0c\0\0\xff\xff" * (size // 20),
    "begins of compact": lambda size: b"\x82\x21\0\0" * (size // 4),
    "begins of HTTP": lambda size: b"POST" * (size // 4), "lines of HTTP": lambda size: b"GET \n\n" * (size // 6),
    "chunks": lambda size: chunked(*[b"a"] * (size // 6)),
    "a trailer without an end": lambda size: chunked()[:-2] + b"a\r\n" * (size // 3),
    "frames in unframed ones": lambda size: (
        2 * framed(message()) + message(arguments=b"\x0b\0\1")[:-1] + struct.pack(">I", 50)) * (size // 59),
    "frames in chunks": lambda size: (2 * framed(message()) + chunked()[:-5] + b"0044\r\n") * (size // 70),
    "zlib of nothing": lambda size: header(zlib.compress(b""), transforms=[1]) * (size // 26),
    "bad zlib": lambda size: header(b"??", transforms=[1]) * (size // 20),
    "all transforms": lambda size: header(b"", transforms=[0] * 255) * (size // 290),
    "an element a byte": lambda size: framed(message(arguments=put_struct([(1, LIST, (3, [0] * size))], 0))),
    "zeros": bytes, "noise": lambda size: random.Random(1).randbytes(size),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    raw = trap(1 << 19)
    start = time.process_time()
    frames = thrift.scan(raw, errors="mark")
    thrift.infos(frames, errors="mark")
    thrift.fields(thrift.messages(frames, errors="mark"), errors="mark")
    taken = time.process_time() - start
    assert taken < 2, f"{taken} seconds for half a mebibyte"
    assert sum(frames["size"].tolist()) + len(frames.tail) == len(raw)


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_streams_take_linear_time(trap):
    raw = trap(1 << 17)
    start = time.process_time()
    stream = wirescan.stream("thrift.frames", errors="mark")
    for at in range(0, len(raw), 100):
        stream.feed(raw[at:at + 100])
    stream.close()
    taken = time.process_time() - start
    assert taken < 3, f"{taken} seconds for 128 KiB in pieces of 100 bytes"


def test_a_stream_holds_no_more_than_a_frame_may_have():
    limits = Limits(frame=1000)
    long = put_struct([(1, STRING, bytes(2000))], 0)
    for raw in (header(bytes(2000)), big(bytes(2000)), framed(message(arguments=long)), message(arguments=long),
                message(arguments=b"\2\0\1\1" * 500 + b"\0"), http(bytes(2000)), chunked(*[bytes(100)] * 20),
                http(first=b"GET / HTTP/1.1", fields=[b"a"] * 1000)):
        for size in (1, 7, 300, 5000):
            stream = wirescan.stream("thrift.frames", limits=limits)
            with pytest.raises(FrameError) as caught:
                for at in range(0, len(raw), size):
                    stream.feed(raw[at:at + size])
                    assert stream.held <= 1000 + size
            assert (caught.value.fault, caught.value.offset) == (Fault.BAD_LENGTH, 0)
