"""Thrift tables.

Every column, the kinds of frames, transforms, messages of each dialect, fields and limits.
"""

import hashlib
import hmac
import pickle
import struct
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import partial

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.laws.cases import steady
from tests.laws.packages import INFOS, PLAIN, THRIFT
from tests.reference import thrift as reference
from tests.reference import thrift_plain
from tests.strategies import thrift as strategies
from tests.strategies.thrift import (
    BOOL,
    BYTE,
    DOUBLE,
    FLOAT,
    GOLDEN,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRING,
    STRUCT,
    U64,
    UUID,
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
from tests.support.tables import list_columns
from wirescan import Fault, FrameError, Limits, thrift
from wirescan.frames.registry import format_of
from wirescan.frames.table import join
from wirescan.testing import laws
from wirescan.thrift import InfoKind, Kind, MessageType, Role
from wirescan.thrift.encode import encode_frame

ALL = b"".join(raw for name, raw in GOLDEN.items() if name != "http until the end")
GET = b"GET / HTTP/1.1"
PAIRS = make_block(2, (b"id", b"1")) + make_block(1, (b"k", b"v"), (b"k", b""))
FORMATS = ("thrift.frames", "thrift.infos", "thrift.plain", "thrift.messages", "thrift.fields")


def list_faults(table):
    return [Fault(fault).name for fault in table["fault"].tolist()]


def list_strings(table, name):
    """Return the bytes of a column of strings. A null is None."""
    views = [table.bytes(i, name) for i in range(len(table))]
    return [None if view is None else bytes(view) for view in views]


def list_pairs(infos):
    return [tuple(map(bytes, pair)) for pair in infos]


def scan_fields(raw, **options):
    return thrift.fields(thrift.messages(thrift.scan(raw)), **options)


# ---- frames


def test_frames_have_columns():
    binary = make_message()
    raw = b"".join(
        (
            make_header_frame(binary, PAIRS, seq=2**32 - 1, flags=0xFFFF, protocol=2),
            make_big_frame(binary, transforms=[0, 1]),
            make_double_frame(binary, b"\7rest"),
            make_framed(binary),
            make_framed(make_message(version=1)),
            binary,
            make_message(version=2),
            make_http(binary),
            make_chunked(binary),
            make_ttheader(),
        )
    )
    table = thrift.scan(raw)
    assert table.name == "thrift.frames"
    assert table.dtype == thrift.FRAME
    assert table.dtype.itemsize == 64
    places = "kind size body infos_at infos_size payload_at payload_size protocol_id header_words"
    assert list_columns(table, places) == [
        (Kind.HEADER, 50, 34, 16, 16, 34, 16, 2, 5),
        (Kind.BIG_HEADER, 42, 26, 26, 0, 26, 16, 0, 1),
        (Kind.DOUBLE_HEADER, 42, 26, 20, 0, 26, 16, 0, 2),
        (Kind.FRAMED_BINARY, 20, 4, 0, -1, 4, 16, 0, 0),
        (Kind.FRAMED_COMPACT, 12, 4, 0, -1, 4, 8, 2, 0),
        (Kind.UNFRAMED_BINARY, 16, 0, 0, -1, 0, 16, 0, 0),
        (Kind.UNFRAMED_COMPACT, 8, 0, 0, -1, 0, 8, 2, 0),
        (Kind.HTTP, 58, 42, 0, -1, 42, 16, 0, 0),
        (Kind.HTTP_CHUNKED, 77, 50, 0, -1, 50, 27, 0, 0),
        (Kind.TTHEADER, 20, 4, 0, -1, 0, -1, 0, 0),
    ]
    numbers = "seq flags info_count transform_count transform_0 transform_1 padding mac_size"
    assert list_columns(table[:3], numbers) == [
        (2**32 - 1, 0xFFFF, 3, 0, 0, 0, 2, 0),
        (0, 0, 0, 2, 0, 1, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert (table["start"] == np.cumsum([0, *table["size"][:-1]])).all()
    assert table.stop == (0, len(raw), 0)
    assert b"".join(laws.list_frames(table)) == raw
    assert not table.bad.any()
    assert (table["parent"] == -1).all()


def test_frames_of_fbthrift_are_read():
    """The tests of its Go library have this call and its reply, in version 2 of compact."""
    raw = bytes.fromhex(
        "0000001c0fff0000000000000001020000008222000967657453746174757300"
        "0000001f0fff0000000000000001020000008242000967657453746174757305000400"
    )
    frames = thrift.scan(raw)
    assert list_columns(frames, "kind size protocol_id padding payload_at") == [
        (1, 32, 2, 2, 18),
        (1, 35, 2, 2, 18),
    ]
    messages = thrift.messages(frames)
    assert list_columns(messages, "kind seqid protocol version") == [
        (MessageType.CALL, 0, 2, 2),
        (MessageType.REPLY, 0, 2, 2),
    ]
    assert list_strings(messages, "method") == [b"getStatus"] * 2
    assert list_columns(thrift.fields(messages), "parent kind id integer") == [(1, I32, 0, 2)]


@pytest.mark.parametrize("zeros", [0, 1, 3, 4, 254, 255, 256, 1000])
def test_zeros_after_infos_are_padding(zeros):
    infos = make_block(1, (b"k", bytes((1 - zeros) % 4)))
    frames = thrift.scan(make_header_frame(make_message(), infos, padding=zeros))
    assert frames["padding"].tolist() == [min(zeros, 255)]
    assert len(thrift.infos(frames)) == 1
    assert list_strings(frames, "infos") == [infos]


def test_transforms_beyond_four_are_counted():
    ids = [1, 5, 6, 3, 0, 13, 8]
    frames = thrift.scan(make_header_frame(apply_transforms(make_message(), ids), transforms=ids))
    assert list_columns(
        frames, "transform_count transform_0 transform_1 transform_2 transform_3"
    ) == [(7, 1, 5, 6, 3)]
    assert list_strings(thrift.plain(frames), "payload") == [make_message()]


UNKNOWN = make_header_frame(make_message(), PAIRS, transforms=[1, 4])
VERBS = b"POST", b"GET", b"HEAD", b"PUT", b"CONNECT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"
# bytes: the kind of the first frame, or its fault
BEGINS = {
    "empty payload": (make_header_frame(), Kind.HEADER),
    "framed, four bytes": (make_framed(b"\x80\1\0\1"), Kind.FRAMED_BINARY),
    "framed compact, version 3": (make_framed(b"\x82\x23\0\0\0"), "NOT_A_FRAME"),
    "framed compact, type 0": (make_framed(b"\x82\1\0\0\0"), "NOT_A_FRAME"),
    "framed compact, type 5": (make_framed(b"\x82\xa1\0\0\0"), "NOT_A_FRAME"),
    "compact, version 3": (b"\x82\x23\0\0", "NOT_A_FRAME"),
    "the header magic of Java": (make_framed(b"\x1f\xff" + bytes(12)), "NOT_A_FRAME"),
    "mesh": (make_framed(b"\xff\xaf" + bytes(12)), "NOT_A_FRAME"),
    "TTHeader": (make_ttheader(), Kind.TTHEADER),
    "double": (make_double_frame(make_message()), Kind.DOUBLE_HEADER),
    "almost double": (
        make_framed(struct.pack(">I", 21) + make_header_frame(make_message())[4:]),
        "NOT_A_FRAME",
    ),
    "not strict, framed": (make_framed(make_message(strict=False)), "NOT_A_FRAME"),
    "not strict": (make_message(strict=False), "BAD_LENGTH"),
    "length 0": (bytes(8), "BAD_LENGTH"),
    "length 3": (b"\0\0\0\3\x0f\xff\0", "BAD_LENGTH"),
    "length 2**30": (b"\x40\0\0\0\x0f\xff\0\0", "NOT_A_FRAME"),
    "zeros in front": (b"\0" + make_header_frame(make_message()), "BAD_LENGTH"),
    "the largest length": (b"\x3f\xff\xff\xff\x0f\xff\0\0", "BAD_LENGTH"),
    "big, of 2**63": (b"BIGF\x80" + bytes(7) + b"\x0f\xff", "BAD_LENGTH"),
    "big, framed inside": (b"BIGF" + struct.pack(">Q", 16) + make_message(), "NOT_A_FRAME"),
    "TLS": (b"\x16\3\1\2\0\1\0\1\xfc\3\3", "NOT_A_FRAME"),
    "SSH": (b"SSH-2.0-OpenSSH", "NOT_A_FRAME"),
    "HTTP": (make_http(first=b"HTTP/1.1 200 OK"), Kind.HTTP),
} | {verb.decode(): (make_http(first=verb + b" / HTTP/1.1"), Kind.HTTP) for verb in VERBS}


@pytest.mark.parametrize("raw, expected", BEGINS.values(), ids=BEGINS)
def test_frames_have_kinds(raw, expected):
    table = thrift.scan(raw, errors="mark")
    if isinstance(expected, str):
        assert list_faults(table)[0] == expected
    else:
        assert table["kind"].tolist()[0] == expected
    laws.agrees_with_the_reference(THRIFT, raw)


def test_a_header_inside_a_header_is_a_payload():
    frames = thrift.scan(make_header_frame(make_header_frame(make_message())))
    assert list_columns(frames, "kind size payload_size") == [(1, 52, 34)]
    # The payload reads as a message without a version, with a name of 30 bytes.
    assert list_faults(thrift.messages(frames, errors="mark")) == ["TRUNCATED"]


@pytest.mark.parametrize("name", [b"", b"a", b"abcdefgh", bytes(300)])
@pytest.mark.parametrize("wrap", [make_framed, bytes], ids=["framed", "unframed"])
def test_binary_without_a_version_on_request(name, wrap):
    raw = wrap(make_message(name, 2, -5, make_struct([(1, I32, 1)], 0), strict=False))
    table = thrift.scan(raw * 2, non_strict=True)
    kind = Kind.FRAMED_BINARY if wrap is make_framed else Kind.UNFRAMED_BINARY
    assert table["kind"].tolist() == [kind] * 2
    messages = thrift.messages(table)
    assert list_columns(messages, "kind seqid protocol version strict") == [(2, -5, 0, 0, 0)] * 2
    assert list_strings(messages, "method") == [name] * 2
    assert thrift.fields(messages)["integer"].tolist() == [1, 1]
    assert thrift.scan(ALL, non_strict=True).rows.tobytes() == thrift.scan(ALL).rows.tobytes()
    assert len(thrift.scan(raw[:-1], non_strict=True)) == 0
    for noise in (b"\0\0\0\5hello\7", b"\0\0\0\1a\7" + bytes(9), b"\0\0\xff\xff" + bytes(80)):
        with pytest.raises(FrameError, match="NOT_A_FRAME"):
            thrift.scan(noise, non_strict=True)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_stream_of_binary_without_a_version(size):
    old = make_message(
        b"old", 2, -5, make_struct([(1, I32, 1), (2, STRING, b"text")], 0), strict=False
    )
    raw = b"".join((old, make_framed(old), make_chunked(old), ALL, old, make_http(old), old))
    stream = wirescan.stream("thrift.messages?non_strict=true")
    methods = []
    for position in range(0, len(raw), size):
        methods += list_strings(stream.feed(raw[position : position + size]), "method")
    methods += list_strings(stream.close(), "method")
    assert methods == list_strings(thrift.messages(thrift.scan(raw, non_strict=True)), "method")
    assert methods.count(b"old") == 6
    assert stream.offset == len(raw)


def test_an_unframed_message_without_a_version_is_walked_once():
    from wirescan.thrift.scan import bytes_needed

    raw = make_message(b"old", 1, 0, b"\2\0\1\1" * 400 + b"\0", strict=False)
    state = ()
    positions = []
    for cut in range(4, len(raw) + 1, 4):
        least, *state = bytes_needed(raw[:cut], *state, versions=False)
        positions.append(state[0])
        assert cut < least or cut == len(raw) == least
    assert positions == sorted(positions)
    assert len(set(positions)) > 350


@steady
@given(
    strategies.damaged_streams()
    | st.builds(
        lambda first, second, wrap: wrap(first) + second,
        strategies.messages(0, strict=False),
        strategies.messages(0, strict=False).flatmap(strategies.mutations),
        st.sampled_from((make_framed, bytes)),
    ),
    st.booleans(),
)
def test_non_strict_agrees_with_the_reference(raw, resync):
    from wirescan.thrift.scan import scan_stream

    expected, fault, position = reference.read_frames(raw, resync, versions=False)
    rows, bad, *stop = scan_stream(raw, check=True, resync=resync, limits=Limits(), versions=False)
    assert laws.convert_rows(rows) == expected
    assert stop == [fault, position]
    assert bad == sum(row["fault"] > 0 for row in expected)


# ---- infos


def test_infos_have_columns():
    infos = PAIRS + make_block(1, (b"\xff", b"last")) + b"\3?"
    frames = thrift.scan(make_framed(make_message()) + make_header_frame(make_message(), infos))
    table = thrift.infos(frames)
    assert table.dtype == thrift.INFO
    assert table.dtype.itemsize == 40
    assert table.outer is frames
    assert list_columns(
        table, "parent kind start size body key_at key_size value_at value_size"
    ) == [
        (1, InfoKind.PKEYVALUE, 38, 5, 4, 1, 2, 4, 1),
        (1, InfoKind.KEYVALUE, 45, 4, 3, 1, 1, 3, 1),
        (1, InfoKind.KEYVALUE, 49, 3, 3, 1, 1, 3, 0),
        (1, InfoKind.KEYVALUE, 54, 7, 3, 1, 1, 3, 4),
    ]
    pairs = [(b"id", b"1"), (b"k", b"v"), (b"k", b""), (b"\xff", b"last")]
    assert list_pairs(table) == pairs
    assert list_pairs(frames[1].infos) == pairs


def test_infos_of_an_unknown_transform_are_read():
    frames = thrift.scan(UNKNOWN, errors="mark")
    assert list_faults(frames) == ["BAD_CODEC"]
    assert list_columns(frames, "transform_0 transform_1 info_count") == [(1, 4, 3)]
    assert frames["payload_size"].tolist() == [16]
    assert list_strings(thrift.infos(frames), "key") == [b"id", b"k", b"k"]
    for read in (thrift.plain, thrift.messages):
        table = read(frames, errors="mark")
        assert list_faults(table) == ["BAD_CODEC"]
        assert table["size"].tolist() == [16]
    messages = thrift.messages(frames, errors="mark")
    assert list_faults(thrift.fields(messages, errors="mark")) == ["BAD_CODEC"]


def test_long_strings_and_many_pairs():
    pairs = [(b"%d" % i, bytes(i)) for i in range(300)]
    table = thrift.infos(thrift.scan(make_header_frame(make_message(), make_block(1, *pairs))))
    assert list_pairs(table) == pairs
    frames = thrift.scan(
        make_header_frame(make_message(), make_block(1, (b"k" * 32768, b"v" * (262140 - 32778))))
    )
    assert frames["header_words"].tolist() == [65535]
    assert list_strings(thrift.infos(frames), "value") == [b"v" * 229362]


# ---- transforms


@pytest.mark.parametrize(
    "ids",
    [
        [1],
        [8],
        [11],
        [3],
        [5],
        [9],
        [12],
        [6],
        [10],
        [13],
        [0],
        [1, 1, 0],
        [1, 5],
        [5, 1],
        [3, 6, 5, 1, 0, 1],
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [0, 1, 100, 70_000])
def test_each_transform_is_undone(ids, size):
    payload = make_message(arguments=make_struct([(1, STRING, bytes(size))], 0))
    frames = thrift.scan(
        make_header_frame(apply_transforms(payload, ids), PAIRS, transforms=ids)
        + make_header_frame(payload)
    )
    table = thrift.plain(frames)
    assert table.dtype == thrift.PLAIN
    assert table.dtype.itemsize == 32
    assert table.outer is frames
    assert list_strings(table, "payload") == [payload] * 2
    assert table["parent"].tolist() == [0, 1]
    assert table["buffer"].tolist() == [0 if ids == [0] else 1, 0]
    assert table.buffers[0] is frames.buffers[0]
    for messages in (thrift.messages(frames), thrift.messages(table)):
        assert messages["parent"].tolist() == [0, 1]
        assert messages.outer is frames
        assert list_strings(thrift.fields(messages), "value") == [bytes(size)] * 2


def test_zstd_without_its_size():
    stream = cramjam.zstd.Compressor()
    stream.compress(make_message())
    payload = bytes(stream.finish())
    table = thrift.plain(thrift.scan(make_header_frame(payload, transforms=[5])))
    assert list_strings(table, "payload") == [make_message()]


def test_transforms_of_empty_payloads():
    """Writers compress empty payloads too. Zero bytes are not a stream of any codec."""
    for id in (1, 3, 5, 6):
        table = thrift.plain(
            thrift.scan(make_header_frame(apply_transforms(b"", [id]), transforms=[id]))
        )
        assert list_strings(table, "payload") == [b""]
        table = thrift.plain(thrift.scan(make_header_frame(transforms=[id])), errors="mark")
        assert list_faults(table) == ["TRUNCATED" if id == 1 else "BAD_COMPRESSION"]


DEFLATED = zlib.compress(make_message())
TWO = apply_transforms(make_message(), [1, 5])
BAD_PAYLOADS = {
    "cut": (DEFLATED[:-6], [1], "TRUNCATED"),
    "no Adler-32": (DEFLATED[:-4], [1], "TRUNCATED"),
    "half an Adler-32": (DEFLATED[:-1], [1], "TRUNCATED"),
    "wrong Adler-32": (DEFLATED[:-1] + b"?", [1], "BAD_CHECKSUM"),
    "trailing bytes": (DEFLATED + b"\0", [1], "LEFTOVER"),
    "two streams": (DEFLATED * 2, [1], "LEFTOVER"),
    "raw deflate": (DEFLATED[2:-4], [1], "BAD_COMPRESSION"),
    "not compressed": (make_message(), [1], "BAD_COMPRESSION"),
    "undone in the wrong order": (TWO, [5, 1], "BAD_COMPRESSION"),
    "the inner one cut": (apply_transforms(DEFLATED[:-5], [5]), [1, 5], "TRUNCATED"),
    "zstd cut": (apply_transforms(make_message(), [5])[:-1], [5], "BAD_COMPRESSION"),
    "zstd and more": (apply_transforms(make_message(), [5]) + b"\0", [5], "BAD_COMPRESSION"),
    "snappy cut": (apply_transforms(make_message(), [3])[:-1], [3], "BAD_COMPRESSION"),
    "snappy and more": (apply_transforms(make_message(), [3]) + b"\0", [3], "BAD_COMPRESSION"),
    "xerial's snappy": (b"\x82SNAPPY\0" + bytes(8), [3], "BAD_COMPRESSION"),
    "lz4 cut": (apply_transforms(make_message(), [6])[:-1], [6], "BAD_COMPRESSION"),
    "lz4 and more": (apply_transforms(make_message(), [6]) + b"\0", [6], "BAD_COMPRESSION"),
    "lz4 says too little": (
        make_varint(15) + apply_transforms(make_message(), [6])[1:],
        [6],
        "BAD_COMPRESSION",
    ),
    "lz4 says too much": (
        make_varint(17) + apply_transforms(make_message(), [6])[1:],
        [6],
        "BAD_COMPRESSION",
    ),
    "lz4 says 2**31": (
        make_varint(1 << 31) + apply_transforms(make_message(), [6])[1:],
        [6],
        "TOO_LARGE",
    ),
    "lz4 without a size": (b"\x80\x80", [6], "BAD_COMPRESSION"),
    "an lz4 frame": (bytes(cramjam.lz4.compress(make_message())), [6], "BAD_COMPRESSION"),
}


@pytest.mark.parametrize("payload, ids, fault", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_bad_payloads_have_faults(payload, ids, fault):
    raw = make_header_frame(payload, PAIRS, transforms=ids) + make_header_frame(make_message())
    table = thrift.plain(thrift.scan(raw), errors="mark")
    assert list_faults(table) == [fault, "OK"]
    assert bytes(table.frame(0)) == payload
    assert table["body"].tolist() == [0, 0]
    assert list_faults(thrift.messages(thrift.scan(raw), errors="mark")) == [fault, "OK"]
    assert len(thrift.infos(thrift.scan(raw))) == 3
    with pytest.raises(FrameError, match=fault):
        thrift.messages(thrift.scan(raw))
    for check in (True, False):
        for package in (PLAIN, THRIFT, INFOS):
            laws.keeps_every_law(package, raw, list(range(0, len(raw), 9)), check=check)
    if fault in ("LEFTOVER", "BAD_CHECKSUM"):
        # Without the check the payload is read. Many readers never check.
        table = thrift.plain(thrift.scan(raw), check=False)
        assert list_strings(table, "payload") == [make_message()] * 2


def test_every_transform_is_listed():
    rows = [[], [1], [1, 5, 6, 3], [1, 5, 6, 3, 13, 11], [7, 300, 2**16 - 1, 0, 4], [0] * 255]
    raw = b"".join(
        make(make_message(), PAIRS, transforms=ids)
        for make in (make_header_frame, make_big_frame, make_double_frame)
        for ids in rows
    )
    signed = make_header_frame(
        make_message(), PAIRS, transforms=b"\1\5\6\3\2\4\1", count=6, mac=bytes(4)
    )
    frames = thrift.scan(
        raw + signed + make_framed(make_message()) + make_chunked(make_message()), errors="mark"
    )
    offsets, ids = thrift.transform_ids(frames)
    lists = [ids[start:stop].tolist() for start, stop in zip(offsets, offsets[1:])]
    assert lists == rows * 3 + [[1, 5, 6, 3, 2, 1], [], []]
    assert ids.dtype == np.uint16
    assert thrift.transform_ids(frames[:0])[0].tolist() == [0]
    raw = make_header_frame(make_message(), transforms=b"\1" * 5 + b"\xff", count=6, padding=0)
    bad = thrift.scan(raw, errors="mark")
    assert bad.bad.all()
    assert len(thrift.transform_ids(bad)[1]) == 0


def test_transforms_of_invalid_rows():
    frames = thrift.scan(make_header_frame(make_message(), transforms=[0] * 6))
    for column, value, text in (
        ("start", 2**40, "outside its buffer"),
        ("payload_at", 16, "number of transforms"),
        ("transform_count", 5, "number of transforms"),
        ("kind", 4, "number of transforms"),
    ):
        rows = frames.rows.copy()
        rows[column] = value
        with pytest.raises(ValueError, match=text):
            thrift.transform_ids(replace(frames, rows=rows))
    with pytest.raises(TypeError, match="not thrift.messages"):
        thrift.transform_ids(thrift.messages(frames))


def test_only_mark_has_the_infos_of_an_unknown_transform():
    # The frame is bad, and so is all that is inside it for the other modes.
    assert len(wirescan.scan(UNKNOWN, "thrift.infos", errors="mark")) == 3
    assert len(wirescan.scan(UNKNOWN, "thrift.infos", errors="skip")) == 0
    with pytest.raises(FrameError, match="BAD_CODEC"):
        wirescan.scan(UNKNOWN, "thrift.infos", errors="strict")


PAIRS_OF_INFOS = [(b"id", b"1"), (b"k", b"v"), (b"k", b"")]


def scan_unknown_transforms(errors):
    """Scan two frames with an unknown transform and a good frame between them."""
    raw = (
        UNKNOWN
        + make_header_frame(make_message(), PAIRS)
        + make_header_frame(make_message(), transforms=[4])
    )
    table = thrift.scan(raw, errors="mark")
    assert list_faults(table) == ["BAD_CODEC", "OK", "BAD_CODEC"]
    return replace(table, errors=errors)


@pytest.mark.parametrize("errors", ["mark", "strict"])
def test_infos_of_frames_with_an_unknown_transform(errors):
    table = scan_unknown_transforms(errors)  # the infos are good in every mode
    for i, expected in enumerate((PAIRS_OF_INFOS, PAIRS_OF_INFOS, [])):
        assert list_pairs(table[i].infos) == expected
    assert list(table[0].messages) == []


@pytest.mark.parametrize("errors", ["mark", "strict"])
def test_infos_of_frames_with_an_unknown_transform_are_exported(errors):
    pytest.importorskip("pyarrow")
    from wirescan.frames import to_arrow

    batch = to_arrow.to_batch(scan_unknown_transforms(errors), ["infos"])
    pairs = [[tuple(pair.values()) for pair in row] for row in batch["infos"].to_pylist()]
    assert pairs == [PAIRS_OF_INFOS, PAIRS_OF_INFOS, []]


# ---- HMAC

KEY = b"secret"
MAGIC_AT = {make_header_frame: 4, make_big_frame: 12, make_double_frame: 8}


def sign_frame(
    payload=make_message(), infos=PAIRS, before=(), key=KEY, hash="sha256", make=make_header_frame
):
    """A frame with a code. The code covers all bytes after the length.

    The byte for the size of the code is 0 while the code is computed.
    """
    size = hashlib.new(hash).digest_size
    prefix = b"".join(map(make_varint, before)) + b"\2"
    count = len(before) + 1
    unsigned = make(payload, infos, transforms=prefix + b"\0", count=count, mac=bytes(size))
    code = hmac.digest(key, unsigned[MAGIC_AT[make] : -size], hash)
    return make(payload, infos, transforms=prefix + bytes([size]), count=count, mac=code)


@pytest.mark.parametrize("make", [make_header_frame, make_big_frame, make_double_frame])
@pytest.mark.parametrize("hash", ["sha256", "sha1", "md5", "sha512"])
def test_codes_are_verified(make, hash):
    raw = sign_frame(apply_transforms(make_message(), [1, 5]), before=(1, 5), hash=hash, make=make)
    frames = thrift.scan(raw)
    assert frames["mac_size"].tolist() == [hashlib.new(hash).digest_size]
    assert frames["transform_2"].tolist() == [2]
    assert len(thrift.infos(frames)) == 3
    for options in ({}, dict(key=KEY, hash=hash), dict(key=bytearray(KEY), hash=hash)):
        assert list_strings(thrift.plain(frames, **options), "payload") == [make_message()]
    assert list_faults(thrift.plain(frames, key=b"other", hash=hash, errors="mark")) == [
        "BAD_CHECKSUM"
    ]
    for position in range(MAGIC_AT[make], len(raw)):
        damaged = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        table = thrift.scan(damaged, errors="mark")
        if (
            list_faults(table) == ["OK"]
            and table["mac_size"].tolist() == frames["mac_size"].tolist()
        ):
            plain = thrift.plain(table, key=KEY, hash=hash, errors="mark")
            assert list_faults(plain) == ["BAD_CHECKSUM"], position


def test_codes_of_the_encoder_are_verified():
    raw = encode_frame(make_message(), transforms=[2, 1], infos={b"k": b"v"}, key=KEY)
    assert list_strings(thrift.plain(thrift.scan(raw), key=KEY), "payload") == [make_message()]
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        thrift.plain(thrift.scan(raw), key=b"")
    assert thrift_plain.read_plain(raw, reference.read_frames(raw)[0][0], key=KEY)[0]["fault"] == 0


def test_an_empty_code_is_a_bad_checksum():
    frames = thrift.scan(make_header_frame(make_message(), transforms=b"\2\0", count=1))
    assert list_strings(thrift.plain(frames), "payload") == [make_message()]
    assert list_faults(thrift.plain(frames, key=KEY, errors="mark")) == ["BAD_CHECKSUM"]


def test_a_frame_without_a_code_is_accepted():
    table = thrift.plain(thrift.scan(make_header_frame(make_message())), key=KEY)
    assert list_strings(table, "payload") == [make_message()]


def test_invalid_keys_are_refused():
    frames = thrift.scan(sign_frame())
    assert list_strings(thrift.plain(frames, key=memoryview(KEY)), "payload") == [make_message()]
    with pytest.raises(TypeError, match="key must be bytes or str, not int"):
        thrift.plain(frames, key=5)
    for hash in ("nope", "shake_128"):
        with pytest.raises(ValueError, match="is not a hash of hashlib"):
            thrift.plain(frames, key=KEY, hash=hash)


# ---- HTTP

BODY = make_message(version=1)
OK = b"HTTP/1.1 200 OK"
# bytes, the rows as (kind, payload size) or fault, and the size of the tail
BODIES = {
    "a request": (make_http(BODY), [(8, 8)], 0),
    "line feeds alone": (make_http(BODY, end=b"\n"), [(8, 8)], 0),
    "any case": (make_http(BODY).replace(b"Content-Length", b"cOnTeNt-lEnGtH"), [(8, 8)], 0),
    "blanks": (make_http(BODY).replace(b": 8", b":\t 008 \t"), [(8, 8)], 0),
    "the length twice": (make_http(BODY, fields=[b"Content-Length: 8"]), [(8, 8)], 0),
    "two lengths": (make_http(BODY, fields=[b"Content-Length: 9"]), ["BAD_LENGTH"], 0),
    "no number": (make_http(BODY).replace(b": 8", b": 0x8"), ["BAD_LENGTH"], 0),
    "a sign": (make_http(BODY).replace(b": 8", b": +8"), ["BAD_LENGTH"], 0),
    "no digits": (make_http(BODY).replace(b": 8", b":"), ["BAD_LENGTH"], 0),
    "2**64 + 8": (make_http(BODY).replace(b": 8", b": 18446744073709551624"), ["BAD_LENGTH"], 0),
    "a get": (make_http(first=GET, told=False) * 2, [(8, -1)] * 2, 0),
    "a response": (make_http(BODY, OK) + make_http(BODY, OK), [(8, 8)] * 2, 0),
    "until the end": (make_http(BODY, OK, told=False), [(8, 8)], 0),
    "until the end, nothing": (make_http(b"", OK, told=False), [(8, -1)], 0),
    "204": (make_http(first=b"HTTP/1.1 204 x", told=False) + make_http(BODY), [(8, -1), (8, 8)], 0),
    "304": (make_http(first=b"HTTP/1.1 304 x", told=False) + make_http(BODY), [(8, -1), (8, 8)], 0),
    "100": (make_http(first=b"HTTP/1.1 100 x", told=False) + make_http(BODY), [(8, -1), (8, 8)], 0),
    "a 304 with a length": (
        make_http(first=b"HTTP/1.1 304 x", told=False, fields=[b"Content-Length: 28"])
        + make_http(BODY, OK),
        [(8, -1), (8, 8)],
        0,
    ),
    "a 204 with two lengths": (
        make_http(first=b"HTTP/1.1 204 x", fields=[b"Content-Length: x"]) + make_http(BODY, OK),
        [(8, -1), (8, 8)],
        0,
    ),
    "a 103 with chunks": (
        make_http(first=b"HTTP/1.1 103 x", told=False, fields=[b"Transfer-Encoding: chunked"])
        + make_chunked(BODY, first=OK),
        [(8, -1), (9, 18)],
        0,
    ),
    "a request 304": (make_http(BODY, b"POST /304 304"), [(8, 8)], 0),
    "cut in the head": (make_http(BODY)[:30], [], 30),
    "cut in the body": (make_http(BODY)[:-1], [], 48),
    "chunks": (make_chunked(BODY[:1], BODY[1:]), [(9, 23)], 0),
    "no chunk": (make_chunked(), [(9, 5)], 0),
    "extensions and a trailer": (
        make_chunked(BODY, extension=b" ;a=b", trailer=b"A: b\r\n"),
        [(9, 29)],
        0,
    ),
    "chunks and a length": (make_chunked(BODY, fields=[b"Content-Length: 3"]), [(9, 18)], 0),
    "another coding": (
        make_http(BODY, OK, told=False, fields=[b"Transfer-Encoding: xchunked"]),
        [(8, 8)],
        0,
    ),
    "another coding of a request": (
        make_chunked(BODY).replace(b": chunked", b": xchunked"),
        ["BAD_LENGTH"],
        0,
    ),
    "another coding and a length": (
        make_http(b"", OK, fields=[b"Transfer-Encoding: gzip"]) + BODY,
        [(8, 8)],
        0,
    ),
    "two lines of codings": (
        make_chunked(BODY, fields=[b"Transfer-Encoding: gzip,"]),
        [(9, 18)],
        0,
    ),
    "an empty line of codings": (
        make_chunked(BODY).replace(b": chunked", b": chunked\r\nTransfer-Encoding: ,"),
        [(9, 18)],
        0,
    ),
    "chunks inside another coding": (
        make_chunked(BODY).replace(b": chunked", b": chunked\r\nTransfer-Encoding: gzip"),
        ["BAD_LENGTH"],
        0,
    ),
    "identity": (make_http(BODY, fields=[b"Transfer-Encoding: Identity"]), [(8, 8)], 0),
    "gzip, chunked": (make_chunked(BODY).replace(b": chunked", b": gzip, Chunked"), [(9, 18)], 0),
    "a chunk without its end": (
        make_chunked(BODY).replace(BODY + b"\r\n", BODY + b"\n\n"),
        ["BAD_LENGTH"],
        0,
    ),
    "a size that is none": (
        make_chunked(BODY).replace(b"\r\n8\r\n", b"\r\ng\r\n"),
        ["BAD_LENGTH"],
        0,
    ),
    "no size": (make_chunked(BODY).replace(b"\r\n8\r\n", b"\r\n\r\n"), ["BAD_LENGTH"], 0),
    "a negative size": (make_chunked(BODY).replace(b"\r\n8\r\n", b"\r\n-8\r\n"), ["BAD_LENGTH"], 0),
    "a size of 2**32": (
        make_chunked(BODY).replace(b"\r\n8\r\n", b"\r\n100000000\r\n"),
        ["BAD_LENGTH"],
        0,
    ),
    "a size of 2**32 - 1": (
        make_chunked(BODY).replace(b"\r\n8\r\n", b"\r\nffffffff\r\n"),
        ["BAD_LENGTH"],
        0,
    ),
    "chunks cut": (make_chunked(BODY)[:-1], [], 67),
    "a head of 64 KiB": (make_http(BODY, fields=[b"x" * 65490]), [(8, 8)], 0),
    "a longer head": (make_http(BODY, fields=[b"x" * 65536]), ["BAD_LENGTH"], 0),
    "a head without an end": (b"POST " + b"x" * 65532, ["BAD_LENGTH"], 0),
}


@pytest.mark.parametrize("raw, expected, tail", BODIES.values(), ids=BODIES)
def test_http_messages_are_frames(raw, expected, tail):
    table = thrift.scan(raw, errors="mark")
    rows = [
        Fault(fault).name if fault else (kind, size)
        for kind, size, fault in list_columns(table, "kind payload_size fault")
    ]
    assert rows == expected
    assert len(table.tail) == tail
    laws.agrees_with_the_reference(THRIFT, raw)
    if len(raw) < 1000:
        laws.streams_lose_nothing(THRIFT, raw, list(range(1, len(raw))))
    for i in np.flatnonzero((table["payload_size"] > 5) & ~table.bad).tolist():
        assert list_strings(thrift.plain(table[i : i + 1]), "payload") == [BODY]


def test_chunks_are_joined():
    value = bytes(range(256)) * 40
    body = make_message(arguments=make_struct([(1, STRING, value)], 0))
    raw = make_chunked(*(body[i : i + 100] for i in range(0, len(body), 100))) + make_chunked(body)
    table = thrift.plain(thrift.scan(raw))
    assert list_strings(table, "payload") == [body] * 2
    assert set(table["buffer"].tolist()) == {1}
    assert list_strings(thrift.fields(thrift.messages(table)), "value") == [value] * 2
    refused = thrift.plain(thrift.scan(raw), limits=Limits(inflated=len(body) - 1), errors="mark")
    assert list_faults(refused) == ["TOO_LARGE"] * 2


def test_a_response_without_a_length_ends_with_its_connection():
    stream = wirescan.stream("thrift.messages")
    raw = make_http(make_message(), OK, told=False)
    for i in range(len(raw)):
        assert len(stream.feed(raw[i : i + 1])) == 0
    assert list_strings(stream.close(), "method") == [b"add"]


@pytest.mark.parametrize(
    "body, expected",
    [
        (make_message(), (0, "OK")),
        (make_message(strict=False), (0, "OK")),
        (make_message(version=2), (2, "OK")),
        (b'[1,"add",1,0,{}]', (1, "BAD_KIND")),
        (b"{}", (0, "TRUNCATED")),
    ],
    ids=str,
)
def test_the_protocol_of_a_body(body, expected):
    for make in (make_http, make_chunked):
        frames = thrift.scan(make(body))
        assert (
            frames["protocol_id"][0],
            *list_faults(thrift.messages(frames, errors="mark")),
        ) == expected


# ---- messages


@pytest.mark.parametrize(
    "raw",
    [
        make_header_frame(),
        make_header_frame(b"", PAIRS),
        make_big_frame(b""),
        make_double_frame(b""),
        make_http(b""),
        make_chunked(),
        make_header_frame(apply_transforms(b"", [1]), transforms=[1]),
        make_header_frame(apply_transforms(b"", [5, 1]), transforms=[5, 1]),
    ],
)
def test_an_empty_payload_has_no_message(raw):
    for data in (
        raw + make_header_frame(make_message()),
        make_header_frame(make_message()) + raw,
        raw + make_header_frame(apply_transforms(make_message(), [5]), transforms=[5]),
    ):
        frames = thrift.scan(data)
        for table in (thrift.messages(frames), thrift.messages(thrift.plain(frames))):
            assert list_strings(table, "method") == [b"add"]
            assert len(frames) == 2
            empty = frames.where(frames["payload_size"] == 0)
            assert thrift.infos(empty, errors="strict").bad.sum() == 0
        laws.agrees_with_the_reference(THRIFT, data)
    assert len(thrift.messages(thrift.scan(raw))) == 0


def test_messages_have_columns():
    raw = b"".join(
        (
            make_framed(make_message(b"S:a:b", 1, -1)),
            make_framed(make_message(b"S:a", 2, 2**31 - 1)),
            make_framed(make_message(b":a", 4, -(2**31), version=1)),
            make_framed(make_message(b"a", 3, -1, version=2)),
            make_header_frame(make_message(b"old", strict=False)),
            make_http(first=GET, told=False),
        )
    )
    frames = thrift.scan(raw)
    table = thrift.messages(frames)
    assert table.name == "thrift.messages"
    assert table.dtype == thrift.MESSAGE
    assert table.dtype.itemsize == 56
    assert list_columns(table, "parent kind seqid protocol version strict") == [
        (0, MessageType.CALL, -1, 0, 1, 1),
        (1, MessageType.REPLY, 2**31 - 1, 0, 1, 1),
        (2, MessageType.ONEWAY, -(2**31), 2, 1, 1),
        (3, MessageType.EXCEPTION, -1, 2, 2, 1),
        (4, MessageType.CALL, 0, 0, 0, 0),
    ]
    # Only the names of calls begin with a service.
    assert list_strings(table, "method") == [b"a:b", b"S:a", b"a", b"a", b"old"]
    assert list_strings(table, "service") == [b"S", None, b"", None, None]
    assert list_strings(table, "arguments") == [b"\0"] * 5
    assert (table["body"] == table["arguments_at"]).all()
    assert list_columns(table[:1], "start size body method_at service_at service_size") == [
        (4, 18, 17, 10, 8, 1)
    ]
    assert laws.describe_rows(wirescan.scan(raw, "thrift.messages")) == laws.describe_rows(table)


@pytest.mark.parametrize("unused", [0, 1, 255])
def test_the_unused_byte_of_strict_messages_is_ignored(unused):
    raw = make_message()
    raw = raw[:2] + bytes([unused]) + raw[3:]
    for wrapped in (raw, make_framed(raw), make_header_frame(raw)):
        assert list_columns(thrift.messages(thrift.scan(wrapped)), "kind version") == [(1, 1)]


def test_the_protocol_is_that_of_the_header():
    for raw, protocol, fault in (
        (make_message(), 2, "BAD_MAGIC"),
        (make_message(version=1), 0, "BAD_MAGIC"),
        (make_message(), 1, "BAD_KIND"),
    ):
        frames = thrift.scan(make_header_frame(raw, protocol=protocol))
        assert list_faults(thrift.messages(frames, errors="mark")) == [fault]


# ---- fields

EVERY = [
    (1, BOOL, True),
    (2, BOOL, False),
    (3, BYTE, -128),
    (4, I16, -32768),
    (5, I32, -(2**31)),
    (6, I64, -(2**63)),
    (7, DOUBLE, -0.1),
    (300, STRING, b"\xff"),
    (8, STRUCT, [(1, I32, 5), (2, STRUCT, [])]),
    (9, LIST, (BOOL, [True, False])),
    (10, SET, (STRING, [b"", b"b"])),
    (11, MAP, (I16, LIST, [(1, (BYTE, [7])), (-1, (BYTE, []))])),
    (-1, I16, 3),
]
# depth, role, id, type, integer, count, key type, element type, row around
EVERY_ROW = [
    (1, 0, 1, BOOL, 1, 0, 0, 0, -1),
    (1, 0, 2, BOOL, 0, 0, 0, 0, -1),
    (1, 0, 3, BYTE, -128, 0, 0, 0, -1),
    (1, 0, 4, I16, -32768, 0, 0, 0, -1),
    (1, 0, 5, I32, -(2**31), 0, 0, 0, -1),
    (1, 0, 6, I64, -(2**63), 0, 0, 0, -1),
    (1, 0, 7, DOUBLE, 0, 0, 0, 0, -1),
    (1, 0, 300, STRING, 0, 0, 0, 0, -1),
    (1, 0, 8, STRUCT, 0, 0, 0, 0, -1),
    (2, 0, 1, I32, 5, 0, 0, 0, 8),
    (2, 0, 2, STRUCT, 0, 0, 0, 0, 8),
    (1, 0, 9, LIST, 0, 2, 0, BOOL, -1),
    (2, 1, 0, BOOL, 1, 0, 0, 0, 11),
    (2, 1, 1, BOOL, 0, 0, 0, 0, 11),
    (1, 0, 10, SET, 0, 2, 0, STRING, -1),
    (2, 1, 0, STRING, 0, 0, 0, 0, 14),
    (2, 1, 1, STRING, 0, 0, 0, 0, 14),
    (1, 0, 11, MAP, 0, 2, I16, LIST, -1),
    (2, 2, 0, I16, 1, 0, 0, 0, 17),
    (2, 3, 0, LIST, 0, 1, 0, BYTE, 17),
    (3, 1, 0, BYTE, 7, 0, 0, 0, 19),
    (2, 2, 1, I16, -1, 0, 0, 0, 17),
    (2, 3, 1, LIST, 0, 0, 0, BYTE, 17),
    (1, 0, -1, I16, 3, 0, 0, 0, -1),
]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fields_have_columns(version):
    table = scan_fields(make_message(arguments=make_struct(EVERY, version), version=version))
    assert table.dtype == thrift.FIELD
    assert table.dtype.itemsize == 64
    assert (table["parent"] == 0).all()
    names = "depth role id kind integer count key_type element_type enclosing"
    assert list_columns(table, names) == EVERY_ROW
    assert table["real"].tolist() == [-0.1 if row[3] == DOUBLE else 0.0 for row in EVERY_ROW]
    values = list_strings(table, "value")
    assert values[:2] == ([b"", b""] if version else [b"\1", b"\0"])
    assert len(values[6]) == 8
    assert values[7] == b"\xff"
    assert values[8] == make_struct([(1, I32, 5), (2, STRUCT, [])], version)
    assert values[10] == b"\0"
    assert values[15] == b""
    assert values[16] == b"b"
    assert bytes(table.frame(9)) == (b"\x15\x0a" if version else b"\x08\0\1\0\0\0\5")
    assert (table["body"] == table["value_at"]).all()
    assert {Role(row[1]).name for row in EVERY_ROW} == {"FIELD", "ELEMENT", "KEY", "VALUE"}


def test_types_of_one_protocol():
    fields = {
        0: [(1, U64, -1), (2, UUID, bytes(range(16))), (3, FLOAT, 0.1)],
        1: [(2, UUID, bytes(range(16)))],
        2: [(3, FLOAT, 0.1), (4, DOUBLE, 0.1)],
    }
    for version, struct_ in fields.items():
        table = scan_fields(make_message(arguments=make_struct(struct_, version), version=version))
        assert list_columns(table, "id kind") == [field[:2] for field in struct_]
        for row, (_, kind, value) in zip(table, struct_):
            if kind == UUID:
                assert bytes(row.value) == value
            else:
                value = float(np.float32(value)) if kind == FLOAT else value
                assert (row.integer if kind == U64 else row.real) == value


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("depth", [1, 2, 3, 64])
def test_depth_selects_outer_fields(version, depth):
    raw = make_message(arguments=make_struct(EVERY, version), version=version) * 2
    whole = scan_fields(raw)
    table = scan_fields(raw, depth=depth)
    expected = whole.where(whole["depth"] <= depth)
    names = (
        "start size body parent kind integer count id depth role "
        "value_at value_size key_type element_type"
    )
    assert list_columns(table, names) == list_columns(expected, names)
    inside = table["enclosing"] >= 0
    assert (table["depth"][table["enclosing"][inside]] == table["depth"][inside] - 1).all()
    assert (inside == (table["depth"] > 1)).all()


def test_fields_have_values():
    arguments = make_struct(
        [
            (1, LIST, (I32, [1, 2])),
            (2, STRUCT, [(1, STRING, b"text")]),
            (3, SET, (I32, [])),
            (4, MAP, (BYTE, BYTE, [(1, 2)])),
            (5, BOOL, True),
        ],
        0,
    )
    table = scan_fields(make_message(arguments=arguments))
    outer = [bytes(table.bytes(i, "value")) for i in np.flatnonzero(table["depth"] == 1).tolist()]
    assert outer == [struct.pack(">ii", 1, 2), b"\x0b\0\1\0\0\0\4text\0", b"", b"\1\2", b"\1"]
    compact = make_message(arguments=make_struct([(1, BOOL, True)], 1), version=1)
    assert list_strings(scan_fields(compact), "value") == [b""]


@pytest.mark.parametrize("depth", [0, -1, 65])
def test_invalid_depths_are_refused(depth):
    with pytest.raises(ValueError, match="depth"):
        scan_fields(make_message(), depth=depth)


@steady
@given(strategies.damaged_streams() | strategies.streams(), st.integers(1, 5))
def test_depths_agree_with_the_reference(raw, depth):
    messages = thrift.messages(thrift.scan(raw, errors="mark"), errors="mark")
    expected = thrift_plain.read_all_fields(
        thrift_plain.read_messages(raw, reference.read_frames(raw)[0]), depth
    )
    rows = laws.list_rows(thrift.fields(messages, errors="mark", depth=depth))
    assert len(rows) == len(expected)
    for row, (other, _) in zip(rows, expected):
        for name, value in other.items():
            is_nan = value != value
            if name not in ("start", "buffer") and not is_nan:
                assert row[name] == value, name


# ---- arguments


def list_arguments(raw=ALL):
    """Return {function: a table that it takes}."""
    frames = thrift.scan(raw)
    messages = thrift.messages(frames)
    return {
        thrift.infos: frames,
        thrift.plain: frames,
        thrift.messages: frames,
        thrift.fields: messages,
    }


def test_invalid_arguments_are_refused():
    for call, table in list_arguments().items():
        for wrong in (
            ALL,
            7,
            None,
            thrift.infos(thrift.scan(ALL)),
            scan_fields(ALL),
        ):
            with pytest.raises(TypeError, match="takes a table of thrift"):
                call(wrong)
        with pytest.raises(ValueError, match="errors"):
            call(table, errors="ignore")
        with pytest.raises(TypeError, match="limits"):
            call(table, limits=7)
    with pytest.raises(TypeError, match="neither a path nor a bytes-like object: int"):
        thrift.scan(7)
    for depth in (1.5, "1", None):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            thrift.fields(thrift.messages(thrift.scan(ALL)), depth=depth)


def test_a_scan_into_an_array():
    count = len(thrift.scan(ALL))
    out = np.empty(count + 1, thrift.FRAME)
    table = thrift.scan(ALL, into=out)
    assert np.shares_memory(table.rows, out)
    assert table.rows.tobytes() == thrift.scan(ALL).rows.tobytes()
    with pytest.raises(ValueError, match="into has 19 rows"):
        thrift.scan(ALL, into=np.empty(count - 1, thrift.FRAME))
    with pytest.raises(TypeError, match="into"):
        thrift.scan(ALL, into=np.empty(count, thrift.INFO))
    with pytest.raises(ValueError, match="one buffer"):
        thrift.scan([ALL, ALL], into=out)


def test_no_bytes_give_no_rows():
    for name in FORMATS:
        table = wirescan.scan(b"", name)
        assert len(table) == 0
        assert table.dtype == format_of(name).dtype


def test_the_limit_on_rows():
    for call, table in list_arguments().items():
        rows = len(call(table))
        assert len(call(table, limits=Limits(rows=rows))) == rows
        if rows and call is not thrift.plain:
            with pytest.raises(FrameError, match="LIMIT"):
                call(table, limits=Limits(rows=rows - 1))


def test_the_limit_on_a_frame():
    for raw in (
        make_header_frame(bytes(100)),
        make_framed(make_message(arguments=bytes(0))) + make_header_frame(bytes(200)),
        make_message(b"a" * 200),
    ):
        largest = int(thrift.scan(raw)["size"].max())
        assert len(thrift.scan(raw, limits=Limits(frame=largest))) == len(thrift.scan(raw))
        with pytest.raises(FrameError, match="BAD_LENGTH"):
            thrift.scan(raw, limits=Limits(frame=largest - 1))


def test_limits_on_decompressed_bytes():
    size = len(make_message())
    for ids in ([1], [3], [5], [6], [1, 5]):
        frames = thrift.scan(
            make_header_frame(apply_transforms(make_message(), ids), transforms=ids) * 3
        )
        # The bytes between two transforms count too.
        between = len(apply_transforms(make_message(), ids[:1])) if len(ids) > 1 else 0
        limits = Limits(inflated_total=2 * (size + between) + 1)
        table = thrift.plain(frames, errors="mark", limits=limits)
        assert list_faults(table) == ["OK", "OK", "TOO_LARGE"]
        if len(ids) == 1:
            table = thrift.plain(frames, errors="mark", limits=Limits(inflated=size))
            assert list_faults(table) == ["OK"] * 3
            table = thrift.plain(frames, errors="mark", limits=Limits(inflated=size - 1))
            assert list_faults(table) == ["TOO_LARGE"] * 3


@pytest.mark.parametrize(
    "column, value",
    [
        ("start", -1),
        ("start", 1 << 40),
        ("start", 2**63 - 1),
        ("size", 2**32 - 1),
        ("buffer", 9),
        ("body", 2**32 - 1),
        ("payload_at", 2**32 - 1),
        ("payload_size", 2**31 - 1),
        ("infos_at", 2**32 - 1),
        ("infos_size", 2**31 - 1),
        ("info_count", 2**32 - 1),
        ("transform_count", 255),
        ("mac_size", 255),
        ("header_words", 65535),
        ("kind", 9),
        ("kind", 1),
        ("arguments_at", 2**32 - 1),
        ("arguments_size", 2**31 - 1),
        ("protocol", 9),
        ("version", 9),
        ("parent", -5),
        ("parent", 99),
        ("transform_0", 4),
        ("payload_at", 0),
        ("payload_at", 3),
    ],
)
def test_kernels_reject_or_read_invalid_rows(column, value):
    """Rows may come from a user. They give ValueError or rows within the buffers."""
    frames = thrift.scan(ALL)
    with_key = partial(thrift.plain, key=KEY)
    for table, functions in (
        (frames, (thrift.infos, thrift.plain, with_key, thrift.messages)),
        (thrift.plain(frames), (thrift.messages,)),
        (thrift.messages(frames), (thrift.fields,)),
    ):
        if column not in table.dtype.names:
            continue
        rows = table.rows.copy()
        rows[column] = value
        forged = replace(table, rows=rows)
        for read in functions:
            try:
                inner = read(forged, errors="mark")
            except ValueError:
                continue
            for i, row in enumerate(inner):
                # A row that is still invalid raises ValueError here.
                with suppress(ValueError):
                    assert len(inner.frame(i)) == row.size
                    assert all(len(string) <= row.size for string in row if string is not None)


# ---- tables and streams


def test_tables_can_be_pickled_and_joined():
    fields = scan_fields([ALL, GOLDEN["zlib"]])
    copy = pickle.loads(pickle.dumps(fields))
    assert laws.describe_rows(copy) == laws.describe_rows(fields)
    assert copy.format is fields.format
    both = join([thrift.messages(thrift.scan(ALL)), thrift.messages(thrift.scan(GOLDEN["zlib"]))])
    expected = laws.describe_rows(fields, parents=False)
    assert laws.describe_rows(thrift.fields(both), parents=False) == expected


@pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
def test_streams_cut_at_every_byte(raw, stride):
    for package in (THRIFT, INFOS, PLAIN):
        for errors in ("strict", "mark"):
            laws.streams_agree(package, raw, list(range(1, len(raw))), errors)
        for cut in range(1, len(raw), stride):
            laws.streams_agree(package, raw, [cut])


@steady
@given(
    strategies.damaged_streams() | strategies.streams(least=1),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_a_frame_needs_more_than_a_part_and_at_most_its_size(raw, cuts):
    bytes_needed = format_of("thrift.frames").parser.bytes_needed
    try:
        row = reference.read_frame(raw, 0)
    except reference.BadBytesError as bad:
        if bad.fault != reference.SHORT:
            return
        row = None
    size = None if row is None else row["size"]
    is_response = row is not None and row["kind"] == Kind.HTTP and raw[:4] == b"HTTP"
    if is_response and b"content-length" not in raw[:300].lower():
        return  # a response without a length has the size of the stream
    state = ()
    for cut in sorted({*(cut % (len(raw) + 1) for cut in cuts), len(raw)} - {0}):
        least, *state = bytes_needed(raw[:cut], *state)
        if size is None:
            assert cut < least
        elif cut < size:
            assert cut < least <= size
        else:
            assert least <= cut


@pytest.mark.parametrize(
    "raw",
    [
        make_message(arguments=make_struct([(1, LIST, (BYTE, [0] * 6000))], 0)),
        make_message(arguments=b"\2\0\1\1" * 2000 + b"\0"),
        make_message(arguments=b"\x11" * 6000 + b"\0", version=1),
        make_chunked(*[b"abc"] * 1000),
        make_chunked(trailer=b"A: b\r\n" * 1000),
        make_http(fields=[b"A: b"] * 2000),
        make_header_frame(bytes(6000)),
    ],
    ids=["list", "fields", "compact", "chunks", "trailer", "head", "header"],
)
def test_frames_in_single_bytes_cost_linear_work(raw):
    from wirescan.reading.stream import Stream

    sizes = []
    frames = format_of("thrift.frames")

    def scan(view, *arguments, **options):
        sizes.append(len(view))
        return frames.parser.scan(view, *arguments, **options)

    stream = Stream(replace(frames, parser=replace(frames.parser, scan=scan)))
    assert sum(len(stream.feed(raw[i : i + 1])) for i in range(len(raw))) == 1
    assert len(stream.close()) == 0
    assert sum(sizes) <= 2 * len(raw) + 1000


@pytest.mark.parametrize(
    "raw",
    [b"\x16\3\1\2\0\1\0\1", b"SSH-2.0-", bytes(8), b"\0\0\0\x20\x20\0\0\0", b"BIGF" + bytes(10)],
)
def test_bytes_that_are_not_a_frame_raise_at_once(raw):
    stream = wirescan.stream("thrift.frames")
    stream.feed(make_header_frame(make_message()))
    with pytest.raises(FrameError) as caught:
        for i in range(len(raw)):
            stream.feed(raw[i : i + 1])
    assert caught.value.offset == len(make_header_frame(make_message()))
    assert caught.value.fault in (Fault.BAD_LENGTH, Fault.NOT_A_FRAME)
