"""Hostile Thrift bytes.

Frames that real readers read differently, every small damage to small streams, false claims of
sizes, and bombs.
"""

import random
import struct
import time
import zlib

import pytest

import wirescan
from tests.laws.packages import INFOS, PLAIN, THRIFT
from tests.reference import thrift as reference
from tests.strategies.bombs import compress_zeros
from tests.strategies.thrift import (
    GOLDEN,
    LIST,
    MAP,
    RUNS,
    STRING,
    STRUCT,
    apply_transforms,
    make_big_frame,
    make_block,
    make_chunked,
    make_double_frame,
    make_framed,
    make_header_frame,
    make_http,
    make_message,
    make_struct,
    make_ttheader,
    make_varint,
)
from tests.support import many_streams
from tests.support.children import run_each_in_little_memory, run_in_little_memory, run_scans
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, Limits, thrift
from wirescan.testing import laws

ALL = b"".join(raw for name, raw in GOLDEN.items() if name != "http until the end")
every_stream = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
KEYS = make_block(1, (b"k", b"v"))
PERSISTENT = make_block(2, (b"id", b"1"))
NEXT = make_header_frame(make_message(), KEYS, seq=7)


# ---- readers disagree


def read_frames(raw):
    """Return (fault, pairs, method) of each frame. A bad message has its fault as its method."""
    frames = thrift.scan(raw, errors="mark")
    infos = thrift.infos(frames, errors="mark")
    messages = thrift.messages(frames, errors="mark")
    verdicts = []
    for i, fault in enumerate(frames["fault"].tolist()):
        pairs = [
            b"=".join(map(bytes, row)).decode()
            for row in infos.where((infos["parent"] == i) & ~infos.bad)
        ]
        calls = [
            Fault(row.fault).name if row.fault else bytes(row.method).decode()
            for row in messages
            if row.parent == i
        ]
        verdicts.append((Fault(fault).name, " ".join(pairs), " ".join(calls)))
    return verdicts


def compress_message(size):
    """The zlib stream of a message. Its argument is a string of `size` zeros."""
    plain = make_message(arguments=make_struct([(1, STRING, b"")], 0))
    assert plain.endswith(bytes(4) + b"\0")
    return compress_zeros(plain[:-5] + struct.pack(">I", size), size + 1)


GOOD = ("OK", "", "add")
WITH_INFO = ("OK", "k=v", "add")
# Some readers accept these frames and others reject them, or two readers read them differently.
# Our scan accepts every frame that can be read without a guess. Another frame has a fault that
# names the reason. The next frame is always read.
VERDICTS = {
    "persistent infos, then others": (
        make_header_frame(make_message(), PERSISTENT + KEYS),
        ("OK", "id=1 k=v", "add"),
    ),
    "infos, then persistent ones": (
        make_header_frame(make_message(), KEYS + PERSISTENT),
        ("OK", "k=v id=1", "add"),
    ),
    "several blocks of one kind": (
        make_header_frame(make_message(), KEYS + KEYS),
        ("OK", "k=v k=v", "add"),
    ),
    "infos behind padding": (make_header_frame(make_message(), b"\0" + KEYS), GOOD),
    "infos behind an unknown one": (
        make_header_frame(make_message(), KEYS + b"\3" + KEYS),
        WITH_INFO,
    ),
    "an unknown info of 32 bits": (
        make_header_frame(make_message(), KEYS + b"\xff\xff\xff\xff\x0f"),
        WITH_INFO,
    ),
    "a header of 16,384 words": (
        make_header_frame(make_message(), KEYS, padding=65536 - 6 - 2),
        WITH_INFO,
    ),
    "a header of 65,535 words": (
        make_header_frame(make_message(), KEYS, padding=262140 - 6 - 2),
        WITH_INFO,
    ),
    "a word more than the frame has": (
        make_header_frame(make_message(), KEYS, words=7),
        ("BAD_HEADER", "", "BAD_HEADER"),
    ),
    "65,535 words in a small frame": (
        make_header_frame(make_message(), KEYS, words=65535),
        ("BAD_HEADER", "", "BAD_HEADER"),
    ),
    "16,384 words, 0 in 16 bits of bytes": (
        make_header_frame(make_message(), KEYS, words=16384),
        ("BAD_HEADER", "", "BAD_HEADER"),
    ),
    "no header": (make_header_frame(make_message(), words=0), ("TRUNCATED", "", "TRUNCATED")),
    "transform 0": (make_header_frame(make_message(), transforms=[0]), GOOD),
    "zlib twice, and none": (
        make_header_frame(apply_transforms(make_message(), [1, 1]), transforms=[1, 1, 0]),
        GOOD,
    ),
    "zlib, then zstd": (
        make_header_frame(apply_transforms(make_message(), [1, 5]), transforms=[1, 5]),
        GOOD,
    ),
    "snappy": (make_header_frame(apply_transforms(make_message(), [3]), transforms=[3]), GOOD),
    "lz4": (make_header_frame(apply_transforms(make_message(), [6]), transforms=[6]), GOOD),
    "zstd": (make_header_frame(apply_transforms(make_message(), [5]), transforms=[5]), GOOD),
    "QuickLZ": (
        make_header_frame(make_message(), KEYS, transforms=[4]),
        ("BAD_CODEC", "k=v", "BAD_CODEC"),
    ),
    "a custom transform": (
        make_header_frame(make_message(), KEYS, transforms=[7]),
        ("BAD_CODEC", "k=v", "BAD_CODEC"),
    ),
    "transform 14": (
        make_header_frame(make_message(), KEYS, transforms=[14]),
        ("BAD_CODEC", "k=v", "BAD_CODEC"),
    ),
    "transform 65535": (
        make_header_frame(make_message(), KEYS, transforms=[65535]),
        ("BAD_CODEC", "k=v", "BAD_CODEC"),
    ),
    "transform 65537, zlib in 16 bits": (
        make_header_frame(apply_transforms(make_message(), [1]), KEYS, transforms=[65537]),
        ("BAD_FIELD", "", "BAD_FIELD"),
    ),
    "2**32 - 1 transforms": (
        make_header_frame(make_message(), transforms=b"", count=2**32 - 1),
        ("BAD_COUNT", "", "BAD_COUNT"),
    ),
    "256 transforms": (
        make_header_frame(make_message(), transforms=[0] * 256),
        ("BAD_COUNT", "", "BAD_COUNT"),
    ),
    "255 transforms": (make_header_frame(make_message(), transforms=[0] * 255), GOOD),
    "a transform that padding stands for": (
        make_header_frame(make_message(), transforms=b"", count=2),
        GOOD,
    ),
    "more transforms than the header has bytes": (
        make_header_frame(make_message(), transforms=b"", count=3),
        ("BAD_COUNT", "", "BAD_COUNT"),
    ),
    "HMAC without its size": (make_header_frame(make_message(), transforms=b"\2", count=1), GOOD),
    "HMAC at the header's end": (
        make_header_frame(make_message(), transforms=b"\0\2", count=2, padding=0),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "HMAC larger than the payload": (
        make_header_frame(make_message(), transforms=b"\2\xff", count=1),
        ("BAD_HEADER", "", "BAD_HEADER"),
    ),
    "HMAC, all of the payload": (
        make_header_frame(b"", transforms=b"\2\4", count=1, mac=b"1234"),
        ("OK", "", ""),
    ),
    "HMAC twice": (
        make_header_frame(make_message(), transforms=b"\2\1\2\1", count=2),
        ("BAD_HEADER", "", "BAD_HEADER"),
    ),
    "a small big frame": (make_big_frame(make_message(), KEYS), WITH_INFO),
    "framed compact, version 2": (make_framed(make_message(version=2)), GOOD),
    "framed binary without a version": (
        make_framed(make_message(strict=False)),
        ("NOT_A_FRAME", "", "NOT_A_FRAME"),
    ),
    "a key past the header": (
        make_header_frame(make_message(), b"\1\1\1k\x7f"),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "a value in the payload": (
        make_header_frame(make_message(), b"\1\1\1k\4"),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "a value to the header's end": (make_header_frame(make_message(), b"\1\1\1k\1v"), WITH_INFO),
    "a value of 2**32 - 1 bytes": (
        make_header_frame(make_message(), b"\1\1\0\xff\xff\xff\xff\x0f"),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "50 pairs, and one is there": (
        make_header_frame(make_message(), make_block(1, (b"k", b"v"), count=50)),
        ("BAD_COUNT", "", "BAD_COUNT"),
    ),
    "two pairs in the bytes of one": (
        make_header_frame(make_message(), make_block(1, (b"kk", b"vv"), count=2) + b"\1"),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "2**32 - 1 pairs": (
        make_header_frame(make_message(), make_block(1, count=2**32 - 1)),
        ("BAD_COUNT", "", "BAD_COUNT"),
    ),
    "2**31 pairs, 0 in 32 bits when doubled": (
        make_header_frame(make_message(), make_block(1, count=2**31)),
        ("BAD_COUNT", "", "BAD_COUNT"),
    ),
    "no pairs": (
        make_header_frame(make_message(), make_block(1) + KEYS + make_block(2)),
        WITH_INFO,
    ),
    "a varint cut by the header's end": (
        make_header_frame(make_message(), b"\1\x80", padding=0),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "a varint that would go on in the payload": (
        make_header_frame(make_message(version=1), b"\1\1\0\x80", protocol=2, padding=2),
        ("OK", "=", "add"),
    ),
    "a long varint of a small number": (
        make_header_frame(make_message(), KEYS, protocol=make_varint(0, 5)),
        WITH_INFO,
    ),
    "a varint of six bytes": (
        make_header_frame(make_message(), KEYS, protocol=make_varint(0, 6)),
        ("BAD_VARINT", "", "BAD_VARINT"),
    ),
    "a varint of 33 bits": (
        make_header_frame(make_message(), b"\xff\xff\xff\xff\x1f"),
        ("BAD_VARINT", "", "BAD_VARINT"),
    ),
    "protocol 1, JSON": (
        make_header_frame(make_message(), KEYS, protocol=1),
        ("OK", "k=v", "BAD_KIND"),
    ),
    "protocol 3": (make_header_frame(make_message(), KEYS, protocol=3), ("OK", "k=v", "BAD_KIND")),
    "protocol 256": (
        make_header_frame(make_message(), KEYS, protocol=256),
        ("BAD_FIELD", "", "BAD_FIELD"),
    ),
    "zlib cut": (
        make_header_frame(compress_message(510)[:-9], KEYS, transforms=[1]),
        ("OK", "k=v", "TRUNCATED"),
    ),
    "bytes after zlib": (
        make_header_frame(compress_message(510) + b"more", KEYS, transforms=[1]),
        ("OK", "k=v", "LEFTOVER"),
    ),
    "zlib of 40 MB": (
        lambda: make_header_frame(compress_message(40_000_000), KEYS, transforms=[1]),
        WITH_INFO,
    ),
    "zlib of 70 MB": (
        lambda: make_header_frame(compress_message(70_000_000), KEYS, transforms=[1]),
        ("OK", "k=v", "TOO_LARGE"),
    ),
    "zlib of 1,000 bytes": (
        make_header_frame(compress_message(1000), KEYS, transforms=[1]),
        WITH_INFO,
    ),
    "double length": (make_double_frame(make_message(), KEYS), WITH_INFO),
    "double length, too small": (
        make_framed(make_framed(b"\x0f\xff\0\0")),
        ("TRUNCATED", "", "TRUNCATED"),
    ),
    "length 4": (make_framed(b"\x0f\xff\0\0"), ("TRUNCATED", "", "TRUNCATED")),
    "length 9": (make_framed(b"\x0f\xff" + bytes(7)), ("TRUNCATED", "", "TRUNCATED")),
    "length 10": (make_framed(b"\x0f\xff" + bytes(8)), ("TRUNCATED", "", "TRUNCATED")),
    "length 13": (
        make_framed(b"\x0f\xff" + bytes(7) + b"\1\0\0\0"),
        ("BAD_HEADER", "", "BAD_HEADER"),
    ),
    "length 14, no payload": (make_header_frame(), ("OK", "", "")),
    "length 0": (bytes(4), ("BAD_LENGTH", "", "BAD_LENGTH")),
    "length 3": (b"\0\0\0\3\x0f\xff\0", ("BAD_LENGTH", "", "BAD_LENGTH")),
    "length 2**30": (
        b"\x40\0\0\0" + make_header_frame(make_message())[4:],
        ("NOT_A_FRAME", "", "NOT_A_FRAME"),
    ),
    "a big frame of 2**64 - 1 bytes": (
        b"BIGF" + b"\xff" * 8 + make_big_frame(make_message())[12:],
        ("BAD_LENGTH", "", "BAD_LENGTH"),
    ),
    "a big frame of 0 bytes": (b"BIGF" + bytes(8), ("NOT_A_FRAME", "", "NOT_A_FRAME")),
    "TTHeader": (make_ttheader(), ("OK", "", "")),
    "flags and seq of all ones": (
        make_header_frame(make_message(), KEYS, flags=0xFFFF, seq=0xFFFFFFFF),
        WITH_INFO,
    ),
    "strings of 32,767 bytes": (
        make_header_frame(make_message(), make_block(1, (b"k", b"v" * 32767))),
        ("OK", "k=" + "v" * 32767, "add"),
    ),
}


@pytest.mark.parametrize("raw, verdict", VERDICTS.values(), ids=VERDICTS)
def test_hostile_frames_have_their_verdicts(raw, verdict):
    if callable(raw):
        raw = raw()  # large frames are not made while tests are collected
    frame_fault, _, method = verdict
    assert read_frames(raw + NEXT) == [verdict, WITH_INFO]
    names = (frame_fault, method.upper())
    faults = [name for name in names if name in Fault.__members__ and name != "OK"]
    if not faults:
        assert len(thrift.messages(thrift.scan(raw + NEXT))) == (1 if method == "" else 2)
    else:
        with pytest.raises(FrameError, match=faults[0]) as caught:
            thrift.messages(thrift.scan(raw + NEXT))
        assert caught.value.fault.name == faults[0]
        assert caught.value.offset <= len(raw)
    assert thrift.scan(raw + NEXT, errors="skip")["seq"].tolist()[-1] == 7
    for package in (THRIFT, INFOS):
        if len(raw) < 2000:
            laws.keeps_every_law(package, raw + NEXT, list(range(0, len(raw), 7)))


def test_the_next_frame_starts_after_the_length_of_a_bad_frame():
    """A fault inside a header does not make its length doubtful."""
    bad = make_header_frame(make_message(), words=0)
    for second in (
        make_message(),
        make_message(version=1),
        make_framed(make_message()),
        make_ttheader(),
        make_http(make_message()),
        make_big_frame(make_message()),
        make_double_frame(make_message()),
    ):
        raw = bad + second + NEXT
        assert read_frames(raw)[0][0] == "TRUNCATED"
        sizes = thrift.scan(raw, errors="mark")["size"].tolist()
        assert sizes == [len(bad), len(second), len(NEXT)]


# ---- messages and their structs


def read_rows(struct, version):
    """Return (depth, id, fault) of each row of a struct. A row without a type has its fault only.

    Every bad row ends at the end of the message.
    """
    frames = thrift.scan(
        make_framed(make_message(arguments=struct, version=version)) + NEXT, errors="mark"
    )
    messages = thrift.messages(frames, errors="mark")
    assert messages["fault"].tolist() == [0, 0]
    table = thrift.fields(messages, errors="mark")
    stops = table["start"] + table["size"]
    assert (stops[table.bad] == messages["start"][0] + messages["size"][0]).all()
    return [
        (depth, id, Fault(fault).name) if kind else Fault(fault).name
        for kind, depth, id, fault in table.rows[["kind", "depth", "id", "fault"]].tolist()
    ]


BINARY_STRUCTS = {
    "nothing": (b"", ["TRUNCATED"]),
    "only fields": (b"\2\0\1\1", [(1, 1, "OK"), "TRUNCATED"]),
    "half a header": (b"\2\0", ["TRUNCATED"]),
    "half a value": (b"\x08\0\1\0\0\0", ["TRUNCATED"]),
    "more behind it": (b"\0\0", ["LEFTOVER"]),
    "fields behind it": (b"\2\0\1\1\0\2\0\2\1\0", [(1, 1, "OK"), "LEFTOVER"]),
    **{
        f"type {type}": (bytes([type]) + b"\0\1" + bytes(20), ["BAD_FIELD"])
        for type in (1, 5, 7, 17, 18, 20, 127, 128, 255)
    },
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
    "a map, half of a pair": (
        b"\x0d\0\1\x0b\x0b\0\0\0\1\0\0\0\4aaaa",
        [(1, 1, "TRUNCATED"), (2, 0, "OK"), "TRUNCATED"],
    ),
    "a bad value in a list": (
        b"\x0f\0\1\x0b\0\0\0\2\0\0\0\1a\0\0\0\x7f\0",
        [(1, 1, "TRUNCATED"), (2, 0, "OK"), "TRUNCATED"],
    ),
    "a bad type in a struct": (
        b"\x0c\0\1\2\0\1\1\x63\0\0\0",
        [(1, 1, "BAD_FIELD"), (2, 1, "OK"), "BAD_FIELD"],
    ),
    "ids again, and backwards": (
        b"\2\x7f\xff\1\2\x80\0\0\2\x80\0\0\0",
        [(1, 32767, "OK"), (1, -32768, "OK"), (1, -32768, "OK")],
    ),
}
COMPACT_STRUCTS = {
    "nothing": (b"", ["TRUNCATED"]),
    "booleans": (b"\x11\x12\0", [(1, 1, "OK"), (1, 2, "OK")]),
    "an id in full": (b"\x05\x02\2\0", [(1, 1, "OK")]),
    "a stop with a delta": (b"\x10\0", ["BAD_FIELD"]),
    "type 14": (b"\x1e\0\0", ["BAD_FIELD"]),
    "type 15": (b"\x1f\0\0", ["BAD_FIELD"]),
    "an id of 32768": (b"\x03\x80\x80\4\1\0", ["BAD_FIELD"]),
    "an id of -32769": (b"\x03\x81\x80\4\1\0", ["BAD_FIELD"]),
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
    "booleans in a list": (
        b"\x19\x31\1\2\xff\0",
        [(1, 1, "OK"), (2, 0, "OK"), (2, 1, "OK"), (2, 2, "OK")],
    ),
    "a list of nothing": (b"\x19\x10a\0", ["BAD_FIELD"]),
    "an empty list of type 15": (b"\x19\x0f\0", [(1, 1, "OK")]),
    "an empty map": (b"\x1b\0\0", [(1, 1, "OK")]),
    "a map of unknown types": (b"\x1b\1\xee\0\0\0", ["BAD_FIELD"]),
    "a map without types": (b"\x1b\1", ["TRUNCATED"]),
    "a map past the end": (b"\x1b\2\x33abc", ["BAD_COUNT"]),
    "more behind it": (b"\0\0", ["LEFTOVER"]),
}
STRUCTS = {f"binary, {name}": (0, *case) for name, case in BINARY_STRUCTS.items()} | {
    f"compact, {name}": (1, *case) for name, case in COMPACT_STRUCTS.items()
}


@pytest.mark.parametrize("version, struct, rows", STRUCTS.values(), ids=STRUCTS)
def test_hostile_structs_have_their_rows(version, struct, rows):
    assert read_rows(struct, version) == rows
    raw = make_framed(make_message(arguments=struct, version=version)) + NEXT
    laws.keeps_every_law(THRIFT, raw, list(range(0, len(raw), 3)))
    # Without a frame, the end of the message is unknown or at another position.
    unframed = make_message(arguments=struct, version=version)
    laws.agrees_with_the_reference(THRIFT, unframed)
    laws.agrees_with_the_reference(THRIFT, unframed + NEXT)
    laws.streams_lose_nothing(THRIFT, unframed + NEXT, list(range(1, len(unframed))))


@pytest.mark.parametrize(
    "raw, fault",
    [
        (b"\x80\2\0\1", "BAD_MAGIC"),
        (b"\xff" * 8, "BAD_MAGIC"),
        (b"\x80\1\0\0", "BAD_KIND"),
        (b"\x80\1\0\5", "BAD_KIND"),
        (b"\x80\1\0\1", "TRUNCATED"),
        (b"\x80\1\0\1\x7f\xff\xff\xff", "TRUNCATED"),
        (b"\x80\1\0\1\xff\xff\xff\xff", "TRUNCATED"),
        (b"\x80\1\0\1\0\0\0\1a\0\0\0", "TRUNCATED"),
        (b"\0\0\0\1a\0", "BAD_KIND"),
        (b"\0\0\0\1a", "TRUNCATED"),
        (b"\0\0\0", "TRUNCATED"),
        (b"\0\0\0\1a\1\0\0\0", "TRUNCATED"),
    ],
    ids=str,
)
def test_bad_binary_messages_have_faults(raw, fault):
    table = thrift.messages(thrift.scan(make_header_frame(raw) + NEXT), errors="mark")
    assert table["fault"].tolist() == [Fault[fault], 0]
    assert table["size"][0] == len(raw)
    laws.keeps_every_law(THRIFT, make_header_frame(raw) + NEXT, [len(make_header_frame(raw)) - 1])


@pytest.mark.parametrize(
    "raw, fault",
    [
        (b"\x80\1", "BAD_MAGIC"),
        (b"\x82\x20\0\0", "BAD_VERSION"),
        (b"\x82\x23\0\0", "BAD_VERSION"),
        (b"\x82\1\0\0", "BAD_KIND"),
        (b"\x82\xa1\0\0", "BAD_KIND"),
        (b"\x82", "TRUNCATED"),
        (b"\x82\x21", "TRUNCATED"),
        (b"\x82\x21\x80", "TRUNCATED"),
        (b"\x82\x21\xff\xff\xff\xff\x1f\0", "BAD_VARINT"),
        (b"\x82\x21\0\xff\xff\xff\xff\x0f", "TRUNCATED"),
        (b"\x82\x21\0\2a", "TRUNCATED"),
        (b"\x82\x21\0" + b"\x80" * 6, "BAD_VARINT"),
    ],
    ids=str,
)
def test_bad_compact_messages_have_faults(raw, fault):
    table = thrift.messages(thrift.scan(make_header_frame(raw, protocol=2) + NEXT), errors="mark")
    assert table["fault"].tolist() == [Fault[fault], 0]
    laws.keeps_every_law(
        THRIFT, make_header_frame(raw, protocol=2) + NEXT, [len(make_header_frame(raw)) - 1]
    )


def make_nested(layers, version, kind=STRUCT):
    """A struct of one field. `layers` structs or lists are nested in it."""
    if kind == STRUCT:
        return (b"\x1c" if version else b"\x0c\0\1") * layers + bytes(layers + 1)
    if version:
        return b"\x19" + b"\x19" * (layers - 1) + b"\x03\0"
    return b"\x0f\0\1" + b"\x0f\0\0\0\1" * (layers - 1) + b"\x03\0\0\0\0\0"


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("kind", [STRUCT, LIST])
@pytest.mark.parametrize("wrap", [make_framed, bytes], ids=["framed", "unframed"])
def test_nested_values_have_a_limit(version, kind, wrap):
    for layers in (1, 63, 64, 100, 100_000):
        raw = wrap(make_message(arguments=make_nested(layers, version, kind), version=version))
        frames = thrift.scan(raw, errors="mark")
        if layers < 64:
            table = thrift.fields(thrift.messages(frames))
            assert table["depth"].tolist() == list(range(1, layers + 1))
            for depth in (1, 2, layers):
                upper = thrift.fields(thrift.messages(frames), depth=depth)
                assert len(upper) == min(depth, layers)
                assert upper["size"].tolist() == table["size"][: len(upper)].tolist()
        elif wrap is bytes:
            assert frames["fault"].tolist() == [Fault.BAD_LENGTH]
        else:
            table = thrift.fields(thrift.messages(frames), errors="mark")
            assert table["fault"].tolist() == [Fault.NESTED] * 64
            assert table["kind"].tolist() == [kind] * 63 + [0]
            upper = thrift.fields(thrift.messages(frames), errors="mark", depth=1)
            assert upper["fault"].tolist() == [Fault.NESTED]
        if layers < 1000:
            laws.keeps_every_law(THRIFT, raw, [len(raw) // 2])


# ---- each byte, each number, each cut


def agree_with_the_reference(packages, streams):
    many_streams.agree_with_the_reference(
        packages, streams, outermost=lambda raw: reference.read_frames(raw, resync=False)
    )


@every_stream
def test_changes_of_every_byte_keep_the_laws(raw, stride):
    def values(old):
        return {0, 1, 2, 0x0F, 0x7F, 0x80, 0x82, 0xFF, old ^ 1, old ^ 0x10}

    agree_with_the_reference([THRIFT, INFOS], many_streams.replace_bytes(raw, values, stride))


@every_stream
def test_every_damaged_byte_gives_rows_or_an_error(raw, stride):
    streams = [
        raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :] + NEXT
        for at in many_streams.sample_positions(len(raw), stride)
    ]
    for package in (THRIFT, INFOS, PLAIN):
        many_streams.end_well(package, streams, check=False)
    for at, damaged in enumerate(streams):
        laws.covers_every_byte(THRIFT, damaged)
        laws.streams_lose_nothing(THRIFT, damaged, [at])


@every_stream
def test_every_deleted_and_inserted_byte(raw, stride):
    streams = []
    for at in many_streams.sample_positions(len(raw), stride):
        streams.append(raw[:at] + raw[at + 1 :] + NEXT)
        for run in (b"\0", b"\x80", b"\xff"):
            streams.append(raw[:at] + run + raw[at:])
    agree_with_the_reference([THRIFT], streams)


def test_cut_at_each_byte():
    for name in ("thrift.fields", "thrift.infos"):
        whole = laws.describe_rows(wirescan.scan(ALL, name))
        boundaries = [0]
        for size in thrift.scan(ALL)["size"].tolist():
            boundaries.append(boundaries[-1] + size)
        for cut in range(len(ALL)):
            table = wirescan.scan(ALL[:cut], name)
            assert laws.describe_rows(table) == whole[: len(table)]
            fault, position = laws.list_tables(table)[0].stop[:2]
            assert fault == (Fault.OK if cut in boundaries else Fault.SHORT)
            assert position == max(boundary for boundary in boundaries if boundary <= cut)


def test_damage_at_each_byte_of_a_compressed_payload(stride):
    struct = make_struct([(1, MAP, (STRING, LIST, [(b"k", (STRING, [b"a", b""]))]))], 0)
    plain = make_message(arguments=struct)
    second = make_header_frame(apply_transforms(plain, [5, 6]), transforms=[5, 6])
    for position in range(0, len(plain), stride):
        for run in (b"", b"\0", b"\xff", *RUNS[:4]):
            damaged = plain[:position] + run + plain[position + 1 :]
            raw = make_header_frame(apply_transforms(damaged, [1]), transforms=[1]) + second
            laws.agrees_with_the_reference(THRIFT, raw)
            laws.modes_agree(THRIFT, raw)


GUARD = """
import random
import sys
import numpy as np
from wirescan.testing.guarded_memory import GuardedMemory
from tests.strategies.thrift import GOLDEN, make_message
import wirescan
from wirescan import thrift
from wirescan.frames.registry import format_of

chance = random.Random(1)
scans = 0
guarded = GuardedMemory(600)
frames = thrift.scan(make_message())
messages = thrift.messages(frames)
bytes_needed = format_of("thrift.frames").parser.bytes_needed

def scan(raw):
    global scans
    for view in (guarded.place_at_end(raw), guarded.place_at_beginning(raw)):
        for non_strict in (False, True):
            table = thrift.scan(view, errors="mark", non_strict=non_strict)
            thrift.infos(table, errors="mark")
            inner = thrift.messages(table, errors="mark")
            thrift.fields(inner, errors="mark", depth=1 + scans % 64)
        least, *state = bytes_needed(view)
        bytes_needed(view, *state)
        for compact in (False, True):  # the bytes are the struct of a message
            rows = messages.rows.copy()
            rows["start"] = 0
            rows["size"] = len(raw)
            rows["arguments_at"] = 0
            rows["arguments_size"] = len(raw)
            rows["protocol"] = 2 * compact
            rows["version"] = 1 + scans % 2
            table = wirescan.FrameTable((view,), rows, (), thrift.FORMATS[3], frames)
            thrift.fields(table, errors="mark")
    scans += 1

values = (0, 1, 2, 0x0F, 0x7F, 0x80, 0x82, 0xFF)
for raw in GOLDEN.values():
    for cut in range(0, len(raw) + 1, int(sys.argv[2])):
        scan(raw[:cut])
        scan(raw[cut:])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice(values)
            scan(bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside(stride):
    """Unreadable pages surround every cut and some damage.

    test_guard.py verifies that a read of such a page ends the process.
    """
    assert run_scans(GUARD, 2, stride) > 4000 // stride


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert run_scans(GUARD, 10, 1) > 8000


# ---- memory and time

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
        infos = thrift.infos(frames, errors=errors)
        fields = thrift.fields(messages, errors=errors)
        print(len(frames), len(infos), len(fields), sep="/", end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""


HUGE = b"\x7f\xff\xff\xff"
CLAIMS = {
    "a frame": b"\3\xff\xff\xff" + NEXT[4:],
    "a big frame": b"BIGF" + struct.pack(">Q", 1 << 40) + NEXT[4:],
    "pairs": make_header_frame(make_message(), make_block(1, count=2**32 - 1)),
    "an lz4 block": make_header_frame(HUGE, transforms=[6]),
    "a snappy block": make_header_frame(b"\xff\xff\xff\xff\x07\0", transforms=[3]),
    "a zstd frame": make_header_frame(b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8, transforms=[5]),
    "a list": make_framed(make_message(arguments=b"\x0f\0\1\2" + HUGE + b"\0")),
    "a list, compact": make_framed(
        make_message(arguments=b"\x19\xf1\xff\xff\xff\xff\7\0", version=1)
    ),
    "a list, unframed": make_message(arguments=b"\x0f\0\1\2" + HUGE + b"\0"),
    "a map of lists": make_framed(make_message(arguments=b"\x0d\0\1\x0f\x0f" + HUGE + b"\0")),
    "a body": make_http(b"").replace(b": 0", b": 99999999"),
    "a chunk": make_chunked(b"a").replace(b"\r\n1\r\n", b"\r\n5ffffff\r\n"),
}


@pytest.fixture(scope="module")
def outputs_of_claims():
    inputs = {claim: raw * 3 for claim, raw in CLAIMS.items()}
    return run_each_in_little_memory(CHILD, inputs, 96)


@pytest.mark.parametrize("claim", CLAIMS)
def test_no_memory_is_allocated_for_a_claim(outputs_of_claims, claim):
    output, seconds = outputs_of_claims[claim]
    assert seconds < 2 * SLOWNESS
    assert output


@pytest.mark.slow
@pytest.mark.parametrize("id", [1, 6, *(pytest.param(id, marks=pytest.mark.slow) for id in (3, 5))])
def test_bombs_are_refused(id):
    """A bomb of each codec gives 100 MiB."""
    size = 100 << 20
    bomb = compress_zeros(b"", size) if id == 1 else apply_transforms(bytes(size), [id])
    table = thrift.plain(
        thrift.scan(make_header_frame(bomb, transforms=[id]) + NEXT), errors="mark"
    )
    assert table["fault"].tolist() == [Fault.TOO_LARGE, 0]
    assert sum(map(len, table.buffers[1:])) < 1000
    output, seconds = run_in_little_memory(CHILD, make_header_frame(bomb, transforms=[id]), 320)
    assert output == ["1/0/1", "TOO_LARGE"]
    assert seconds < 5 * SLOWNESS


def test_bombs_of_two_layers():
    raw = make_header_frame(
        apply_transforms(compress_zeros(b"", 100 << 20), [5]), transforms=[1, 5]
    )
    assert len(raw) < 5000
    assert thrift.plain(thrift.scan(raw), errors="mark")["fault"].tolist() == [Fault.TOO_LARGE]
    output, seconds = run_in_little_memory(CHILD, raw * 20, 256)
    assert output == ["20/0/20", "TOO_LARGE"]
    assert seconds < 10 * SLOWNESS


def test_many_small_bombs_exceed_the_total_limit():
    """Each frame is within the limits. All frames together exceed them."""
    for ids in ([1], [5], [6, 1]):
        frames = thrift.scan(
            make_header_frame(apply_transforms(bytes(1 << 20), ids), transforms=ids) * 40
        )
        table = thrift.plain(frames, errors="mark", limits=Limits(inflated_total=10 << 20))
        # The bytes between two transforms count too.
        good = 10 if len(ids) == 1 else 9
        assert (~table.bad).sum() == good
        assert sum(map(len, table.buffers[1:])) <= 10 << 20
        assert set(table["fault"].tolist()) == {0, Fault.TOO_LARGE}


# Functions of a size. A reader with quadratic time is very slow on each of these streams.
SLOW_STREAMS = {
    "pairs of no bytes": lambda size: make_header_frame(
        make_message(), make_block(1, *[(b"", b"")] * 100_000)
    ),
    "frames of one pair": lambda size: (
        make_header_frame(b"", make_block(1, (b"", b""))) * (size // 18)
    ),
    "empty headers": lambda size: make_header_frame() * (size // 18),
    "bad headers": lambda size: make_header_frame(words=0) * (size // 18),
    "headers in one another": lambda size: b"".join(
        struct.pack(">IHHIHH", size - at, 0x0FFF, 0, 0, 1, 0) + bytes(2)
        for at in range(0, size, 18)
    ),
    "claims": lambda size: struct.pack(">IHHIH", 0x3FFFFF, 0x0FFF, 0, 0, 1) * (size // 14),
    "claims of words": lambda size: struct.pack(">IHHIH", 70000, 0x0FFF, 0, 0, 9000) * (size // 14),
    "claims of big frames": lambda size: (
        (b"BIGF" + struct.pack(">QHHIH", 1 << 22, 0x0FFF, 0, 0, 1)) * (size // 22)
    ),
    "unframed": lambda size: make_message() * (size // 16),
    "unframed, without an end": lambda size: make_message(arguments=b"\2\0\1\1" * (size // 4)),
    "unframed lists that claim the rest": lambda size: make_message(
        arguments=b"\x0f\0\1\3\x7f\0\0\0" * (size // 8)
    ),
    "begins of unframed": lambda size: (
        b"\x80\1\0\1\0\0\0\0\0\0\0\0\x0f\0\1\x0c\0\0\xff\xff" * (size // 20)
    ),
    "begins of compact": lambda size: b"\x82\x21\0\0" * (size // 4),
    "begins of HTTP": lambda size: b"POST" * (size // 4),
    "lines of HTTP": lambda size: b"GET \n\n" * (size // 6),
    "chunks": lambda size: make_chunked(*[b"a"] * (size // 6)),
    "a trailer without an end": lambda size: make_chunked()[:-2] + b"a\r\n" * (size // 3),
    "frames in unframed ones": lambda size: (
        (
            2 * make_framed(make_message())
            + make_message(arguments=b"\x0b\0\1")[:-1]
            + struct.pack(">I", 50)
        )
        * (size // 59)
    ),
    "frames in chunks": lambda size: (
        (2 * make_framed(make_message()) + make_chunked()[:-5] + b"0044\r\n") * (size // 70)
    ),
    "zlib of nothing": lambda size: (
        make_header_frame(zlib.compress(b""), transforms=[1]) * (size // 26)
    ),
    "bad zlib": lambda size: make_header_frame(b"??", transforms=[1]) * (size // 20),
    "all transforms": lambda size: make_header_frame(b"", transforms=[0] * 255) * (size // 290),
    "an element a byte": lambda size: make_framed(
        make_message(arguments=make_struct([(1, LIST, (3, [0] * size))], 0))
    ),
    "zeros": bytes,
    "noise": lambda size: random.Random(1).randbytes(size),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", SLOW_STREAMS.values(), ids=SLOW_STREAMS)
def test_time_is_linear(make):
    raw = make(1 << 19)
    start = time.process_time()
    frames = thrift.scan(raw, errors="mark")
    thrift.infos(frames, errors="mark")
    thrift.fields(thrift.messages(frames, errors="mark"), errors="mark")
    seconds = time.process_time() - start
    assert seconds < 2 * SLOWNESS, f"{seconds} seconds for half a mebibyte"
    assert sum(frames["size"].tolist()) + len(frames.tail) == len(raw)


@pytest.mark.slow
@pytest.mark.parametrize("make", SLOW_STREAMS.values(), ids=SLOW_STREAMS)
def test_streams_take_linear_time(make):
    raw = make(1 << 17)
    start = time.process_time()
    stream = wirescan.stream("thrift.frames", errors="mark")
    for position in range(0, len(raw), 100):
        stream.feed(raw[position : position + 100])
    stream.close()
    seconds = time.process_time() - start
    assert seconds < 3 * SLOWNESS, f"{seconds} seconds for 128 KiB in chunks of 100 bytes"


def test_a_stream_holds_at_most_a_frame_and_a_chunk():
    limits = Limits(frame=1000)
    long = make_struct([(1, STRING, bytes(2000))], 0)
    for raw in (
        make_header_frame(bytes(2000)),
        make_big_frame(bytes(2000)),
        make_framed(make_message(arguments=long)),
        make_message(arguments=long),
        make_message(arguments=b"\2\0\1\1" * 500 + b"\0"),
        make_http(bytes(2000)),
        make_chunked(*[bytes(100)] * 20),
        make_http(first=b"GET / HTTP/1.1", fields=[b"a"] * 1000),
    ):
        for size in (1, 7, 300, 5000):
            stream = wirescan.stream("thrift.frames", limits=limits)
            with pytest.raises(FrameError) as caught:
                for position in range(0, len(raw), size):
                    stream.feed(raw[position : position + size])
                    assert stream.held <= 1000 + size
            assert caught.value.fault == Fault.BAD_LENGTH
            assert caught.value.offset == 0
