"""Lumberjack bytes for hypothesis: good and damaged frames of both versions.

window(), ack(), json(), data(), compressed()   one frame, field by field
frames()                                        one good frame
streams()                                       several good frames
tails()                                         bytes that may follow the last whole frame
mutations(raw)                                  damaged copies of `raw`
odd_streams()                                   sound frames whose contents may be bad
calls()                                         (events, keyword arguments) for encode_batch, and
                                                the rows that they give
GOLDEN                                          small good streams, one of each kind
"""

import gzip
import struct
import zlib

from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes

MOST_PAIRS = (2**32 - 11) // 8  # whose lengths fit into a frame of 32 bits
EXTREMES = (
    0,
    1,
    7,
    2**7 - 1,
    2**15 - 1,
    2**31 - 1,
    2**31,
    2**32 - 10,
    2**32 - 1,
    MOST_PAIRS,
    MOST_PAIRS + 1,
)
U32 = st.sampled_from(EXTREMES) | st.integers(0, 50) | st.integers(0, 2**32 - 1)
VERSIONS = st.sampled_from((1, 2))


# ---- frames


def make_window(count, version=2):
    return b"%dW" % version + struct.pack(">I", count)


def make_ack(sequence, version=2):
    return b"%dA" % version + struct.pack(">I", sequence)


def make_json(sequence, document=b"{}", version=2):
    return b"%dJ" % version + struct.pack(">II", sequence, len(document)) + document


def make_data(sequence, pairs=(), version=1):
    strings = b"".join(struct.pack(">I", len(string)) + string for pair in pairs for string in pair)
    return b"%dD" % version + struct.pack(">II", sequence, len(pairs)) + strings


def make_compressed(plain, version=2, level=3):
    return wrap_payload(zlib.compress(plain, level), version)


def wrap_payload(payload, version=2):
    """A compressed frame around any payload."""
    return b"%dC" % version + struct.pack(">I", len(payload)) + payload


def deflate_bytes(plain, ends=True, **options):
    """Return a zlib stream. Without `ends`, the writer flushed it but did not end it."""
    compressor = zlib.compressobj(6, **options)
    mode = zlib.Z_FINISH if ends else zlib.Z_SYNC_FLUSH
    return compressor.compress(plain) + compressor.flush(mode)


GOLDEN = {
    "window": make_window(0) + make_window(2**32 - 1, 1),
    "ack": make_ack(0) + make_ack(7, 1),
    "data none": make_data(1),
    "data": make_window(1, 1) + make_data(9, [(b"line", b"hello"), (b"", b"")]),
    "json": make_window(2) + make_json(1, b'{"a":1}') + make_json(2),
    "compressed": make_compressed(make_window(2) + make_json(1) + make_data(2, [(b"k", b"v")], 2)),
    "stored": make_compressed(make_json(3), 1, 0),
    "compressed none": make_compressed(b""),
}


# ---- good bytes

DOCUMENTS = (
    st.sampled_from((b"{}", b'{"message":"hello"}', b"[1,2]", b"7", b"null", '{"é":"ü"}'.encode()))
    | st.binary(min_size=1, max_size=30)
    | st.sampled_from((255, 256, 9000)).map(lambda size: b'"' + bytes(size) + b'"')
)
STRINGS = st.sampled_from((b"", b"line", b"line", b"host", b"\xff\xfe", "é".encode())) | st.binary(
    max_size=12
)
PAIRS = st.lists(st.tuples(STRINGS, STRINGS), max_size=5)


@st.builds_once
def plain_frames():
    """One uncompressed frame."""
    return st.one_of(
        st.builds(make_window, U32, VERSIONS),
        st.builds(make_ack, U32, VERSIONS),
        st.builds(make_json, U32, DOCUMENTS, VERSIONS),
        st.builds(make_data, U32, PAIRS, VERSIONS),
        st.builds(make_json, U32, DOCUMENTS, VERSIONS),
    )


@st.builds_once
def frames():
    inside = st.lists(plain_frames(), max_size=5).map(b"".join)
    return st.one_of(
        plain_frames(),
        plain_frames(),
        st.builds(make_compressed, inside, VERSIONS, st.sampled_from((0, 1, 3, 6, 9))),
    )


@st.builds_once
def streams(least=0, most=5):
    return st.lists(frames(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, or a cut frame."""
    cuts = st.tuples(frames(), st.integers(0, 10_000))
    return st.just(b"") | cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])


# ---- damage


def find_numbers(raw):
    """Yield positions of counts and lengths behind all bytes that look like a header."""
    for at in range(len(raw) - 5):
        if raw[at] in b"12" and raw[at + 1] in b"WADJC":
            yield at + 2
            if at + 10 <= len(raw):
                yield at + 6
            if raw[at + 1] in b"D" and at + 14 <= len(raw):
                yield at + 10


# Versions and types of frames. The last three are unknown.
TYPES = (b"1D", b"2J", b"1J", b"2C", b"2A", b"1W", b"3J", b"2K", b"\x16\3")
SET_BYTES = st.sampled_from(b"\0\1\x7f\x80\xff12WADJC") | st.integers(0, 255)


@st.builds_once
def inserted_bytes():
    return st.binary(min_size=1, max_size=12) | st.just(bytes(16)) | frames()


@st.composite
def mutations(draw, raw, steps=3):
    """Copies of `raw` with flipped bits, changed, removed or inserted bytes, extreme numbers."""
    for _ in range(draw(st.integers(1, steps))):
        if len(raw) < 4:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 1))
        kinds = ("flip", "byte", "cut", "tail", "insert", "number", "number", "letter")
        kind = draw(st.sampled_from(kinds))
        if kind in BYTE_CHANGES:
            change_bytes(
                draw, out, at, kind, inserted=inserted_bytes(), values=SET_BYTES, longest=12
            )
        elif kind == "number":
            at = draw(st.sampled_from(list(find_numbers(raw)) or [min(at, len(raw) - 4)]))
            (true,) = struct.unpack_from(">I", raw, at)
            near = [true - 1, true + 1, len(raw) - at, len(raw)]
            struct.pack_into(">I", out, at, draw(st.sampled_from([*EXTREMES, *near])) % 2**32)
        else:
            headers = [i for i in range(len(raw) - 1) if raw[i] in b"12" and raw[i + 1] in b"WADJC"]
            at = draw(st.sampled_from(headers or [at]))
            out[at : at + 2] = draw(st.sampled_from(TYPES))
        raw = bytes(out)
    return raw


@st.builds_once
def payload_frames():
    return st.lists(frames() | st.just(make_json(1, b"")), max_size=4).map(b"".join)


@st.builds_once
@st.composite
def odd_payloads(draw):
    """Payloads of compressed frames. Some readers accept some of them; others are bad."""
    plain = draw(payload_frames())
    if draw(st.booleans()):
        plain = draw(mutations(plain))
    good = zlib.compress(plain)
    odd = {
        "no checksum": good[:-4],
        "short checksum": good[: -1 - len(plain) % 3],
        "bad checksum": good[:-1] + bytes([good[-1] ^ 1]),
        "unfinished": deflate_bytes(plain, ends=False),
        "garbage": good + b"garbage"[: 1 + len(plain) % 7],
        "two": good + good,
        "empty": b"",
        "gzip": gzip.compress(plain, mtime=0),
        "raw": deflate_bytes(plain, wbits=-15),
        "dictionary": deflate_bytes(plain, zdict=b"message"),
        "cut": good[: draw(st.integers(0, len(good)))],
        "damaged": draw(mutations(good)),
    }
    return draw(st.just(good) | st.sampled_from(list(odd.values())))


@st.builds_once
def odd_streams():
    """Good frames, compressed frames with any payload, and J frames without a document."""
    odd = st.builds(wrap_payload, odd_payloads(), VERSIONS)
    any_frames = odd | odd | frames() | st.just(make_json(3, b""))
    return st.lists(any_frames, min_size=1, max_size=4).map(b"".join)


@st.builds_once
def damaged_streams():
    return streams(least=1).flatmap(mutations) | odd_streams() | odd_streams().flatmap(mutations)


# ---- for the encoders


@st.builds_once
@st.composite
def calls(draw):
    """Events and keyword arguments of encode_batch, and the rows that they give.

    A row is (sequence, version, document or None, pairs).
    """
    version = draw(VERSIONS)
    kind = draw(st.sampled_from((None, "json", "data")))
    default_kind = "json" if version == 2 else "data"
    as_data = (kind or default_kind) == "data"
    events = draw(st.lists(PAIRS if as_data else DOCUMENTS, max_size=4))
    first = draw(st.sampled_from((1, 1, 5, 2**31)))
    rows = [
        (first + i, version, None if as_data else event, tuple(event) if as_data else ())
        for i, event in enumerate(events)
    ]
    call = dict(version=version, sequence=first, level=draw(st.sampled_from((None, 0, 3, 9))))
    if kind:
        call["frames"] = kind
    return events, call, rows
