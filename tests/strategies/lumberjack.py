"""Lumberjack bytes for hypothesis: good frames of both versions in any mix, and damage to them.

    window(), ack(), json(), data(), compressed()   one frame, field by field
    frames(), streams()                             bytes of one good frame; of some in a row
    tails()                                         what may follow the last whole frame
    mutations(raw)                                  bytes near `raw`
    odd_streams()                                   frames that are sound, around anything that may be wrong inside
    calls()                                         (events, keyword arguments) for encode_batch, and what they read as
    GOLDEN                                          small good streams, one of each kind
"""
import gzip
import struct
import zlib

from strategies import shared as st

MOST_PAIRS = (2**32 - 11) // 8
EXTREMES = (0, 1, 7, 2**7 - 1, 2**15 - 1, 2**31 - 1, 2**31, 2**32 - 10, 2**32 - 1, MOST_PAIRS, MOST_PAIRS + 1)
U32 = st.sampled_from(EXTREMES) | st.integers(0, 50) | st.integers(0, 2**32 - 1)
VERSIONS = st.sampled_from((1, 2))


# ------------------------------------------------------------------------------------------- frames

def window(count, version=2):
    return b"%dW" % version + struct.pack(">I", count)


def ack(sequence, version=2):
    return b"%dA" % version + struct.pack(">I", sequence)


def json(sequence, document=b"{}", version=2):
    return b"%dJ" % version + struct.pack(">II", sequence, len(document)) + document


def data(sequence, pairs=(), version=1):
    strings = b"".join(struct.pack(">I", len(string)) + string for pair in pairs for string in pair)
    return b"%dD" % version + struct.pack(">II", sequence, len(pairs)) + strings


def compressed(plain, version=2, level=3):
    return wrapped(zlib.compress(plain, level), version)


def wrapped(payload, version=2):
    """A compressed frame around any payload."""
    return b"%dC" % version + struct.pack(">I", len(payload)) + payload


def deflated(plain, ends=True, **options):
    """A zlib stream, or what there is of it when a writer flushed it and did not end it."""
    one = zlib.compressobj(6, **options)
    return one.compress(plain) + one.flush(zlib.Z_FINISH if ends else zlib.Z_SYNC_FLUSH)


GOLDEN = {
    "window": window(0) + window(2**32 - 1, 1), "ack": ack(0) + ack(7, 1), "data none": data(1),
    "data": window(1, 1) + data(9, [(b"line", b"hello"), (b"", b"")]),
    "json": window(2) + json(1, b'{"a":1}') + json(2),
    "compressed": compressed(window(2) + json(1) + data(2, [(b"k", b"v")], 2)), "stored": compressed(json(3), 1, 0),
    "compressed none": compressed(b""),
}


# ------------------------------------------------------------------------------------------- good bytes

DOCUMENTS = st.sampled_from((b"{}", b'{"message":"hello"}', b"[1,2]", b"7", b"null", '{"é":"ü"}'.encode())) \
    | st.binary(min_size=1, max_size=30) | st.sampled_from((255, 256, 9000)).map(lambda size: b'"' + bytes(size) + b'"')
STRINGS = st.sampled_from((b"", b"line", b"line", b"host", b"\xff\xfe", "é".encode())) | st.binary(max_size=12)
PAIRS = st.lists(st.tuples(STRINGS, STRINGS), max_size=5)


@st.builds_once
def plain_frames():
    """One frame that is not compressed."""
    return st.one_of(
        st.builds(window, U32, VERSIONS), st.builds(ack, U32, VERSIONS), st.builds(json, U32, DOCUMENTS, VERSIONS),
        st.builds(data, U32, PAIRS, VERSIONS), st.builds(json, U32, DOCUMENTS, VERSIONS))


@st.builds_once
def frames():
    inside = st.lists(plain_frames(), max_size=5).map(b"".join)
    return st.one_of(plain_frames(), plain_frames(),
                     st.builds(compressed, inside, VERSIONS, st.sampled_from((0, 1, 3, 6, 9))))


@st.builds_once
def streams(least=0, most=5):
    return st.lists(frames(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """Nothing, or a frame that was cut."""
    cut = st.tuples(frames(), st.integers(0, 10_000)).map(lambda pair: pair[0][:pair[1] % len(pair[0])])
    return st.just(b"") | cut


# ------------------------------------------------------------------------------------------- damage

def numbers_in(raw):
    """Where a count or length may stand: behind every header that seems to be one, and behind the field after it."""
    for at in range(len(raw) - 5):
        if raw[at] in b"12" and raw[at + 1] in b"WADJC":
            yield at + 2
            if at + 10 <= len(raw):
                yield at + 6
            if raw[at + 1] in b"D" and at + 14 <= len(raw):
                yield at + 10


SET_BYTES = st.sampled_from(b"\0\1\x7f\x80\xff12WADJC") | st.integers(0, 255)


@st.builds_once
def inserted_bytes():
    return st.binary(min_size=1, max_size=12) | st.just(bytes(16)) | frames()


@st.composite
def mutations(draw, raw, steps=3):
    """Bytes near `raw`: bits flipped, bytes set, cut out, put in, numbers driven to extremes."""
    for _ in range(draw(st.integers(1, steps))):
        if len(raw) < 4:
            break
        out, at = bytearray(raw), draw(st.integers(0, len(raw) - 1))
        kind = draw(st.sampled_from(("flip", "byte", "cut", "tail", "insert", "number", "number", "letter")))
        if kind == "flip":
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte":
            out[at] = draw(SET_BYTES)
        elif kind == "cut":
            del out[at:at + draw(st.integers(1, 12))]
        elif kind == "tail":
            del out[at:]
        elif kind == "insert":
            out[at:at] = draw(inserted_bytes())
        elif kind == "number":
            at = draw(st.sampled_from(list(numbers_in(raw)) or [min(at, len(raw) - 4)]))
            true, = struct.unpack_from(">I", raw, at)
            near = [true - 1, true + 1, len(raw) - at, len(raw)]
            struct.pack_into(">I", out, at, draw(st.sampled_from([*EXTREMES, *near])) % 2**32)
        else:
            headers = [i for i in range(len(raw) - 1) if raw[i] in b"12" and raw[i + 1] in b"WADJC"]
            at = draw(st.sampled_from(headers or [at]))
            out[at:at + 2] = draw(st.sampled_from((b"1D", b"2J", b"1J", b"2C", b"2A", b"1W", b"3J", b"2K", b"\x16\3")))
        raw = bytes(out)
    return raw


@st.builds_once
def payload_frames():
    return st.lists(frames() | st.just(json(1, b"")), max_size=4).map(b"".join)


@st.builds_once
@st.composite
def odd_payloads(draw):
    """Payloads of compressed frames that some readers take, and some that none does."""
    plain = draw(payload_frames())
    if draw(st.booleans()):
        plain = draw(mutations(plain))
    good = zlib.compress(plain)
    odd = {
        "no checksum": good[:-4], "short checksum": good[:-1 - len(plain) % 3],
        "bad checksum": good[:-1] + bytes([good[-1] ^ 1]), "unfinished": deflated(plain, ends=False),
        "garbage": good + b"garbage"[:1 + len(plain) % 7], "two": good + good, "empty": b"",
        "gzip": gzip.compress(plain, mtime=0), "raw": deflated(plain, wbits=-15),
        "dictionary": deflated(plain, zdict=b"message"), "cut": good[:draw(st.integers(0, len(good)))],
        "damaged": draw(mutations(good)),
    }
    return draw(st.just(good) | st.sampled_from(list(odd.values())))


@st.builds_once
def odd_streams():
    """Good frames, compressed ones whose payload is anything, and J that have no document."""
    odd = st.builds(wrapped, odd_payloads(), VERSIONS)
    return st.lists(odd | odd | frames() | st.just(json(3, b"")), min_size=1, max_size=4).map(b"".join)


@st.builds_once
def damaged_streams():
    return streams(least=1).flatmap(mutations) | odd_streams() | odd_streams().flatmap(mutations)


# ------------------------------------------------------------------------------------------- for the encoders

@st.builds_once
@st.composite
def calls(draw):
    """Events and keyword arguments of encode_batch, and [(sequence, version, document or None, pairs)] as they read."""
    version, kind = draw(VERSIONS), draw(st.sampled_from((None, "json", "data")))
    as_data = (kind or ("json" if version == 2 else "data")) == "data"
    events = draw(st.lists(PAIRS if as_data else DOCUMENTS, max_size=4))
    first = draw(st.sampled_from((1, 1, 5, 2**31)))
    read = [(first + i, version, None if as_data else event, tuple(event) if as_data else ())
            for i, event in enumerate(events)]
    call = dict(version=version, sequence=first, level=draw(st.sampled_from((None, 0, 3, 9))))
    return events, call | (dict(frames=kind) if kind else {}), read
