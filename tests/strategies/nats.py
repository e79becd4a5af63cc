"""NATS bytes for hypothesis: good and damaged messages of both directions.

line(), pub(), hpub(), msg(), hmsg()    one message, word by word
block()                                 the headers of a message
messages()                              one good message
streams()                               several good messages
tails()                                 bytes that may follow the last whole message
mutations(raw)                          damaged copies of `raw`
odd_blocks(), odd_streams()             sound messages with any headers and payload
GOLDEN                                  small good streams, one of each kind
"""

from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes

# ---- messages


def make_line(*words, blank=b" ", end=b"\r\n"):
    """Return a control line of words: bytes, text or numbers. None is no word."""
    present = [word for word in words if word is not None]
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in present]
    return blank.join(encoded) + end


def make_block(*pairs, status=b""):
    """Return the headers of a message, from their version to the empty line."""
    lines = b"".join(b"%b: %b\r\n" % pair for pair in pairs)
    return b"NATS/1.0" + status + b"\r\n" + lines + b"\r\n"


def make_pub(payload=b"", subject=b"a", reply=None, **shape):
    return make_line(b"PUB", subject, reply, len(payload), **shape) + payload + b"\r\n"


def make_hpub(payload=b"", headers=b"NATS/1.0\r\n\r\n", subject=b"a", reply=None, **shape):
    sizes = len(headers), len(headers + payload)
    return make_line(b"HPUB", subject, reply, *sizes, **shape) + headers + payload + b"\r\n"


def make_msg(payload=b"", subject=b"a", sid=b"1", reply=None, **shape):
    return make_line(b"MSG", subject, sid, reply, len(payload), **shape) + payload + b"\r\n"


def make_hmsg(
    payload=b"", headers=b"NATS/1.0\r\n\r\n", subject=b"a", sid=b"1", reply=None, **shape
):
    sizes = len(headers), len(headers + payload)
    return make_line(b"HMSG", subject, sid, reply, *sizes, **shape) + headers + payload + b"\r\n"


INFO = b'INFO {"server_id":"S","headers":true} \r\n'
CONNECT = b'CONNECT {"user":"me","pass":"secret","verbose":false}\r\n'
GOLDEN = {
    "beginning": INFO + CONNECT + b"PING\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\n",
    "subscribe": b"SUB a.* 1\r\nSUB b.> workers 2\r\nUNSUB 1\r\nUNSUB 2 7\r\n",
    "publish": make_pub(b"hello", b"a.b")
    + make_pub(b"", b"a", b"inbox.1")
    + make_pub(b"PING\r\nPUB a 1\r\nx\r\n"),
    "with headers": make_hpub(b"x", make_block((b"A", b"1"), (b"a", b"")))
    + make_hpub(b"", reply=b"r"),
    "deliver": make_msg(b"hello", b"a.b", b"17") + make_msg(b"", reply=b"r"),
    "deliver with headers": make_hmsg(b"", make_block(status=b" 503"), reply=b"r")
    + make_hmsg(b"x", make_block((b"K", b" v "))),
    "loose": b"pub\ta\t0000005\nhello\r\nping\nSub  a \t q   1 \r\n"
    b"hMsg a 1  12\t0012 \nNATS/1.0\r\n\r\n\r\n",
}

# ---- good bytes

LETTERS = st.sampled_from(b"abcXYZ019.*>_$-+:{}\r\x80\xff")
WORDS = st.sampled_from((b"a", b"foo.bar", b"_INBOX.x", b"1", b"PUB", b"0", b"99")) | st.lists(
    LETTERS, min_size=1, max_size=6
).map(bytes).filter(lambda word: word[-1:] != b"\r")
OPTIONAL = st.none() | WORDS
PLAIN_WORDS = WORDS.filter(lambda word: b"\r" not in word)  # words that an encoder accepts
PLAIN_OPTIONAL = st.none() | PLAIN_WORDS
PAYLOADS = st.binary(max_size=40) | st.sampled_from(
    (b"", b"", b"hello", b"\r\n", b"PING\r\n", make_pub(b"x"), b"\n\n", bytes(200), b"-ERR 'x'\r\n")
)
TEXT = st.sampled_from((b"{}", b'{"a": 1}', b"'Parser Error'", b"{ \t }", b"\xff")) | st.binary(
    max_size=20
).map(lambda raw: raw.replace(b"\n", b""))
STATUS = st.sampled_from(
    (b"", b"", b" 503", b" 100 Idle Heartbeat", b" 404 No Messages", b"  409", b" none", b" 7")
)
NAMES = st.sampled_from((b"A", b"a", b"Nats-Msg-Id", b"x y", b"\xff"))
VALUES = st.sampled_from((b"", b"1", b" a b ", b"\t", b"a:b", b"\xff", b"a\rb")) | st.text(
    "ab :\t", max_size=5
).map(str.encode)
BLOCKS = st.builds(
    lambda pairs, status: make_block(*pairs, status=status),
    st.lists(st.tuples(NAMES, VALUES), max_size=3),
    STATUS,
)
BLANKS = st.sampled_from((b" ", b" ", b" ", b"\t", b"  ", b" \t "))
ENDS = st.sampled_from((b"\r\n", b"\r\n", b"\r\n", b"\n", b" \r\n", b"\t\n"))
SHAPE = dict(blank=BLANKS, end=ENDS)


MESSAGES = st.one_of(
    st.builds(make_pub, PAYLOADS, WORDS, OPTIONAL, **SHAPE),
    st.builds(make_msg, PAYLOADS, WORDS, WORDS, OPTIONAL, **SHAPE),
    st.builds(make_hpub, PAYLOADS, BLOCKS, WORDS, OPTIONAL, **SHAPE),
    st.builds(make_hmsg, PAYLOADS, BLOCKS, WORDS, WORDS, OPTIONAL, **SHAPE),
    st.builds(make_line, st.just(b"SUB"), WORDS, OPTIONAL, WORDS, **SHAPE),
    st.builds(make_line, st.just(b"UNSUB"), WORDS, st.none() | st.integers(0, 10**9 - 1), **SHAPE),
    st.builds(make_line, st.sampled_from((b"INFO", b"CONNECT", b"-ERR")), TEXT, **SHAPE),
    st.builds(make_line, st.sampled_from((b"PING", b"PONG", b"+OK")), **SHAPE),
)


@st.builds_once
@st.composite
def messages(draw):
    """One good message. Its operation is in upper, lower or mixed case."""
    raw = draw(MESSAGES)
    name = raw.split(maxsplit=1)[0]
    return draw(st.sampled_from((name, name, name.lower(), name.title()))) + raw[len(name) :]


@st.builds_once
def streams(least=0, most=5):
    return st.lists(messages(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, or a cut message."""
    cuts = st.tuples(messages(), st.integers(0, 10_000))
    return st.just(b"") | cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])


# ---- damage

NUMBERS = (
    b"",
    b"0",
    b"00",
    b"1",
    b"000000012",
    b"0000000012",
    b"999999999",
    b"1000000000",
    b"104857600",
    b"-1",
    b"+5",
    b"5x",
    b"1 2",
    b"1 2 3",
    b"4294967301",
    b"18446744073709551621",
    b"\xb2",
)
RUNS = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\0",
    b"\xff",
    b":",
    b"NATS/1.0",
    b"\r\n\r\n",
    b"PING\r\n",
    b"PUB a 1\r\n",
    b"HPUB a 12 13\r\n",
    b"MSG a 1 2 3\r\n",
    b"SUB\r\n",
    b"UNSUB 1 x\r\n",
    b"PUBX ",
    b"P",
    b"+",
    b"-ER",
)

INSERTED = st.sampled_from(RUNS) | st.binary(min_size=1, max_size=6)


def find_numbers(raw):
    """Return [(begin, end)] of the numbers in `raw`."""
    spans, at = [], 0
    while at < len(raw):
        end = at
        while end < len(raw) and raw[end] in b"0123456789":
            end += 1
        if end > at:
            spans.append((at, end))
        at = end + 1
    return spans


@st.composite
def mutations(draw, raw, steps=3):
    """Copies of `raw` with flipped bits, changed, removed or inserted bytes, extreme numbers."""
    for _ in range(draw(st.integers(1, steps))):
        if not raw:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 1))
        kinds = ("flip", "run", "insert", "cut", "tail", "number", "number", "message")
        kind = draw(st.sampled_from(kinds))
        if kind in BYTE_CHANGES:
            change_bytes(draw, out, at, kind, inserted=INSERTED, longest=8)
        elif kind == "run":
            run = draw(st.sampled_from(RUNS))
            out[at : at + len(run)] = run
        elif kind == "number":
            begin, end = draw(st.sampled_from(find_numbers(raw) or [(at, at)]))
            near = [b"%d" % (int(raw[begin:end] or b"0") + step) for step in (-1, 1, 2)]
            out[begin:end] = draw(st.sampled_from([*NUMBERS, *near]))
        else:
            out[at:at] = draw(messages())
        raw = bytes(out)
    return raw


@st.builds_once
@st.composite
def odd_blocks(draw):
    """Damaged and unusual headers of a message."""
    good = draw(BLOCKS)
    odd = (
        b"",
        b"\r\n\r\n",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        good[:-2],
        good[:-1],
        good[1:],
        good + good,
        good + b"\r\n",
        good.replace(b":", b"", 1),
        good.replace(b"\r", b"", 1),
        good.replace(b"\r\n", b"\r\n:", 1),
        good.replace(b":", b"\n", 1),
        good.lower(),
        b"NATS/1.0 99999\r\n\r\n",
        b"NATS/1.0 65536\r\n\r\n",
        b"NATS/1.0\r\nA:\r\n:\r\nB\r\n\r\n",
    )
    return draw(st.sampled_from(odd) | mutations(good))


@st.builds_once
@st.composite
def odd_streams(draw):
    """Messages with any headers, and lines with too few or too many words."""
    return b"".join(draw(st.lists(odd_messages(), min_size=1, max_size=4)))


@st.builds_once
def odd_messages():
    lines = st.builds(
        make_line, st.sampled_from((b"SUB", b"UNSUB", b"PING", b"+OK")), *4 * [OPTIONAL]
    )
    published = st.builds(make_hpub, PAYLOADS, odd_blocks(), WORDS, OPTIONAL)
    with_headers = published | st.builds(make_hmsg, PAYLOADS, odd_blocks())
    # The size of the headers may be above the whole size.
    with_odd_size = st.builds(
        lambda header, size: make_line(b"HPUB", b"a", header, size) + bytes(size) + b"\r\n",
        st.integers(0, 30),
        st.integers(0, 20),
    )
    return st.one_of(with_headers, with_headers, lines, with_odd_size, messages())


@st.builds_once
def damaged_streams():
    return streams(least=1).flatmap(mutations) | odd_streams() | odd_streams().flatmap(mutations)
