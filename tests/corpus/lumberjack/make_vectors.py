"""Write the test vectors of docs/lumberjack.md: `python make_vectors.py [folder]`.

What is expected of each stream comes from how it is put together here, never from a parser. Only
struct, zlib and json are used, so that the vectors owe nothing to what they test.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

TOP = 2**32 - 1
FOLDER = Path(__file__).with_name("vectors")
VECTORS: dict[str, dict] = {}


def encode_text(raw: bytes) -> str | dict[str, str]:
    """Bytes as JSON holds them: a string where they are UTF-8, else {"hex": ...}."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}


def store_blocks(data: bytes) -> bytes:
    """A zlib stream of stored blocks: the same bytes whatever zlib makes them, and they can be read
    in a dump.
    """
    return (
        b"\x78\x01\x01"
        + struct.pack("<HH", len(data), len(data) ^ 0xFFFF)
        + data
        + make_checksum(data)
    )


def make_checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.adler32(data))


def level(number: int) -> Callable[[bytes], bytes]:
    return lambda data: zlib.compress(data, number)


class Stream:
    """A stream, and with it what a reader that takes all that any real reader takes finds in it."""

    def __init__(self, version: int = 2):
        self.raw, self.version = b"", version
        self.frames: list[dict] = []
        self.found: list[dict] = []  # windows, events and faults in stream order, those in C too

    def frame(self, kind: str, rest: bytes, version: int | None, **fields: int) -> Stream:
        version = version or self.version
        self.frames.append(
            {
                "start": len(self.raw),
                "size": 2 + len(rest),
                "type": kind,
                "version": version,
                "sequence": 0,
                "count": 0,
                "length": 0,
            }
            | fields
        )
        self.raw += b"%d%c" % (version, ord(kind)) + rest
        return self

    def note(self, **found) -> None:
        self.found.append({"depth": 0, "frame": len(self.frames) - 1, **found})

    def w(self, count: int, version: int | None = None) -> Stream:
        self.frame("W", struct.pack(">I", count), version, count=count)
        self.note(window=count, version=version or self.version)
        return self

    def a(self, sequence: int, version: int | None = None) -> Stream:
        return self.frame("A", struct.pack(">I", sequence), version, sequence=sequence)

    def j(self, sequence: int, document: bytes | None = None, version: int | None = None) -> Stream:
        document = b'{"n":%d}' % sequence if document is None else document
        self.frame(
            "J",
            struct.pack(">II", sequence, len(document)) + document,
            version,
            sequence=sequence,
            length=len(document),
        )
        if not document:
            self.frames[-1]["fault"] = "EMPTY"
            self.fault("EMPTY")
        else:
            self.note(
                type="J",
                version=version or self.version,
                sequence=sequence,
                json=encode_text(document),
            )
        return self

    def d(self, sequence: int, *pairs: tuple[bytes, bytes], version: int | None = None) -> Stream:
        parts = b"".join(struct.pack(">I", len(part)) + part for pair in pairs for part in pair)
        self.frame(
            "D",
            struct.pack(">II", sequence, len(pairs)) + parts,
            version,
            sequence=sequence,
            count=len(pairs),
        )
        self.note(
            type="D",
            version=version or self.version,
            sequence=sequence,
            pairs=[[encode_text(key), encode_text(value)] for key, value in pairs],
        )
        return self

    def c(
        self,
        inner: Stream,
        pack: Callable[[bytes], bytes] = store_blocks,
        version: int | None = None,
        closed: str = "",
        behind: str = "",
        loose: str = "",
    ) -> Stream:
        """A compressed frame. closed: why a reader does not open it. behind: what is wrong after
        the last frame in it; loose: with its zlib stream only, as some readers take it.
        """
        payload = pack(inner.raw)
        self.frame("C", struct.pack(">I", len(payload)) + payload, version, length=len(payload))
        if closed:
            return self.fault(closed)
        at = len(self.frames) - 1
        self.found += [{**entry, "depth": entry["depth"] + 1, "frame": at} for entry in inner.found]
        if behind or loose:
            self.fault(behind or loose, depth=1, loose=bool(loose))
        return self

    def fault(self, fault: str, **where) -> Stream:
        self.note(fault=fault, **where)
        return self

    def bad(self, raw: bytes, fault: str) -> Stream:
        """Bytes that are no frame, or the beginning of one that has no end here: what follows is
        not reached.
        """
        self.raw += raw
        self.found.append({"depth": 0, "frame": len(self.frames), "fault": fault})
        return self


def list_windows(entries: list[dict]) -> list[dict]:
    """The windows that the events make, as section 8 of the document has it."""
    made: list[dict] = []
    for entry in entries:
        open_ = bool(made) and not made[-1]["complete"]
        if "window" in entry:
            if open_:  # a short window ends where the next begins
                made[-1]["complete"] = True
            made.append(
                {
                    "announced": entry["window"],
                    "version": entry["version"],
                    "events": 0,
                    "ack": 0,
                    "complete": entry["window"] == 0,
                }
            )
        elif "type" in entry:
            if not open_:  # no window announced these events
                made.append(
                    {
                        "announced": None,
                        "version": entry["version"],
                        "events": 0,
                        "ack": 0,
                        "complete": False,
                    }
                )
            last = made[-1]
            last["events"], last["ack"] = last["events"] + 1, entry["sequence"]
            last["complete"] = last["events"] == last["announced"]
    for last in made:
        last["complete"] |= last["announced"] is None  # as many as came
        if not last["complete"]:
            last["ack"] = None
    return made


def add_vector(
    name: str,
    about: str,
    stream: Stream,
    strict: str | None = None,
    depth: int = 1,
    inflated: int = 1 << 26,
    reader: bool = False,
) -> None:
    """strict: why a strict reader closes, where that is none of the faults of the frames."""
    events, faults, number = [], [], -1
    for entry in stream.found:
        if "window" in entry:
            number += 1
        elif "fault" in entry:
            faults.append(
                {"fault": entry["fault"], "depth": entry["depth"], "frame": entry["frame"]}
            )
        else:
            events.append(
                {
                    "type": entry["type"],
                    "version": entry["version"],
                    "sequence": entry["sequence"],
                    "window": number,
                    "depth": entry["depth"],
                    "frame": entry["frame"],
                    **{key: entry[key] for key in ("json", "pairs") if key in entry},
                }
            )
    end = {"offset": sum(frame["size"] for frame in stream.frames), "why": "end"}
    if end["offset"] < len(stream.raw):
        end["why"] = (
            faults.pop()["fault"] if faults[-1]["fault"] == "SHORT" else faults[-1]["fault"]
        )
    lenient = next(
        (
            one["fault"]
            for one in stream.found
            if one.get("fault", "SHORT") != "SHORT" and not one.get("loose")
        ),
        None,
    )
    assert name not in VECTORS and (strict is None or lenient is None)
    VECTORS[name] = {
        "name": name,
        "about": about,
        "from": "reader" if reader else "writer",
        "depth": depth,
        "inflated": inflated,
        "stream": stream.raw.hex(),
        "frames": stream.frames,
        "events": events,
        "faults": faults,
        "end": end,
        "strict": strict or lenient,
        "lenient": lenient,
        "windows": None if lenient or reader else list_windows(stream.found),
    }


def format_vector(vector: dict) -> str:
    """JSON with a line for each frame, event, fault and window."""
    lines = []
    for key, value in vector.items():
        if isinstance(value, list) and value:
            value = (
                "[\n  "
                + ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in value)
                + "\n ]"
            )
        else:
            value = json.dumps(value, ensure_ascii=False)
        lines.append(f' "{key}": {value}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def make_three(version: int = 2) -> Stream:
    return Stream(version).j(1).j(2).j(3)


ONE, TWO = Stream().j(1), Stream().j(1).j(2)

# ---- the frames as they are

add_vector("nothing", "A connection that is closed before anything was said.", Stream())
add_vector(
    "json",
    "Version 2 at its simplest: a window of one, and its event.",
    Stream().w(1).j(1, b'{"message":"hi"}'),
)
add_vector(
    "data",
    "Version 1 at its simplest: a window of one, and its event of two pairs.",
    Stream(1).w(1).d(1, (b"line", b"hi"), (b"host", b"a")),
)
add_vector(
    "compressed",
    "A window of two in one compressed frame, of a stored block so that it can be read.",
    Stream().w(2).c(TWO),
)
add_vector(
    "compressed-data",
    "What logstash-forwarder sends: version 1, a window, its D in one compressed frame.",
    Stream(1)
    .w(2)
    .c(
        Stream(1)
        .d(1, (b"line", b"one"), (b"offset", b"0"))
        .d(2, (b"line", b"two"), (b"offset", b"4")),
        level(3),
    ),
)
add_vector(
    "compression-levels",
    "Four windows, compressed as zlib does it at the levels 1, 5, 6 and 9.",
    Stream()
    .w(2)
    .c(TWO, level(1))
    .w(2)
    .c(TWO, level(5))
    .w(2)
    .c(TWO, level(6))
    .w(2)
    .c(TWO, level(9)),
)
add_vector(
    "acks",
    "A reader that is busy says so, acknowledges a window of five in two parts, "
    "and then one of three.",
    Stream().a(0).a(2).a(0).a(5).a(3),
    reader=True,
)
add_vector(
    "acks-version-1",
    "Version 1: an ack for each window; logstash-input-beats puts keep-alives of version 2 in.",
    Stream(1).a(2).a(0, version=2).a(4),
    reader=True,
)
add_vector(
    "data-strange-pairs",
    "Keys and values may be empty, long, or not UTF-8; a key may come twice; order counts.",
    Stream(1)
    .w(1)
    .d(
        1,
        (b"", b"no key"),
        (b"no value", b""),
        (b"", b""),
        (b"twice", b"1"),
        (b"twice", b"2"),
        (b"latin", b"caf\xe9"),
        (b"\xff\xfe", b"\x00"),
        (b"long", b"x" * 300),
    ),
)
add_vector(
    "json-strange-documents",
    "A document is bytes to the framing: arrays, scalars, what is no JSON, what is not "
    "UTF-8, what looks like frames.",
    Stream()
    .w(7)
    .j(1, b"[1,2]")
    .j(2, b"3")
    .j(3, b"null")
    .j(4, b'{"cut":')
    .j(5, b'{"a":"\xe9"}')
    .j(6, b"2W\0\0\0\x012J\0\0\0\1")
    .j(7, '{"m":"grüß Gott 🪵"}'.encode()),
    "NOT_AN_OBJECT",
)

# ---- versions and mixing

add_vector(
    "mixed-1j",
    "J frames of version 1, as the client of ruby-lumberjack writes them.",
    Stream(1).w(2).j(1).j(2),
    "WRONG_VERSION",
)
add_vector(
    "mixed-2d",
    "D frames of version 2.",
    Stream().w(2).d(1, (b"line", b"a")).d(2, (b"line", b"b")),
    "WRONG_VERSION",
)
add_vector(
    "mixed-in-a-window",
    "The versions change inside a window, and so do the types.",
    Stream().w(4).j(1).d(2, (b"k", b"v"), version=1).j(3, version=1).d(4, (b"k", b"v")),
    "MIXED_VERSIONS",
)
add_vector(
    "mixed-inside-compressed",
    "The version of a compressed frame says nothing of the frames in it.",
    Stream(1).w(2).c(Stream(1).d(1, (b"k", b"v")).d(2, (b"k", b"v")), version=2),
    "MIXED_VERSIONS",
)

# ---- windows

add_vector(
    "windows-in-flight",
    "Two windows are sent before the ack for the first one comes.",
    Stream().w(2).c(TWO).w(3).c(make_three()),
)
add_vector(
    "window-over-two-compressed",
    "The events of a window lie in two compressed frames.",
    Stream().w(3).c(TWO).c(Stream().j(3)),
    "SPLIT_WINDOW",
)
add_vector(
    "window-compressed-and-plain",
    "A window of a compressed frame, a plain one, and another compressed one.",
    Stream().w(4).c(ONE).j(2).c(Stream().j(3).j(4)),
    "SPLIT_WINDOW",
)
add_vector(
    "window-inside-compressed",
    "The W lies in the compressed frame with its events.",
    Stream().c(Stream().w(2).j(1).j(2)),
    "WINDOW_INSIDE",
)
add_vector(
    "windows-inside-compressed",
    "Two windows in one compressed frame.",
    Stream().c(Stream().w(2).j(1).j(2).w(1).j(1)),
    "WINDOW_INSIDE",
)
add_vector(
    "window-begun-inside-compressed",
    "The W lies in a compressed frame, the last of its events behind it.",
    Stream().c(Stream().w(2).j(1)).j(2),
    "WINDOW_INSIDE",
)
add_vector(
    "window-short",
    "A window of three is left at two, and the next begins.",
    Stream().w(3).j(1).j(2).w(1).j(3),
    "SHORT_WINDOW",
)
add_vector(
    "window-short-inside-compressed",
    "The same in one compressed frame.",
    Stream().c(Stream().w(3).j(1).j(2).w(1).j(3)),
    "WINDOW_INSIDE",
)
add_vector(
    "window-surplus",
    "Three events for a window of two.",
    Stream().w(2).j(1).j(2).j(3).w(1).j(1),
    "SURPLUS_EVENT",
)
add_vector(
    "window-surplus-inside-compressed",
    "A compressed frame with three events for a window of two.",
    Stream().w(2).c(make_three()).w(1).j(1),
    "SURPLUS_EVENT",
)
add_vector("window-none", "Events that no window announces.", Stream().j(1).j(2), "NO_WINDOW")
add_vector(
    "window-none-compressed", "The same in a compressed frame.", Stream().c(TWO), "NO_WINDOW"
)
add_vector(
    "window-zero", "A window of no events, between two others.", Stream().w(1).j(1).w(0).w(1).j(1)
)
add_vector(
    "window-zero-and-nothing-compressed",
    "What pylogbeat sends for no events: W(0), and a compressed frame that inflates to nothing.",
    Stream().w(0).c(Stream(), level(6)),
    "EMPTY_PAYLOAD",
)
add_vector(
    "window-once",
    "What npm's lumberjack-protocol sends: one window of 1000 for the connection, then events.",
    Stream(1).w(1000).d(1, (b"line", b"a")).d(2, (b"line", b"b")).d(3, (b"line", b"c")),
)
add_vector(
    "window-10001", "A window above what go-lumber takes.", Stream().w(10_001).j(1), "LARGE_WINDOW"
)
add_vector(
    "window-largest",
    "A window of 2^32 - 1: nothing may be allocated for it.",
    Stream().w(TOP).j(1),
    "LARGE_WINDOW",
)

# ---- sequences

add_vector(
    "sequence-restarts",
    "Sequence numbers that begin at 1 in each window, as libbeat sends them.",
    Stream().w(2).j(1).j(2).w(2).j(1).j(2),
)
add_vector(
    "sequence-cumulative",
    "Sequence numbers that go on over the connection, as pylogbeat sends them.",
    Stream().w(2).j(1).j(2).w(2).j(3).j(4),
)
add_vector(
    "sequence-rolls-to-zero",
    "0 follows 2^32 - 1, within a window.",
    Stream(1).w(4).d(TOP - 1, (b"k", b"")).d(TOP, (b"k", b"")).d(0, (b"k", b"")).d(1, (b"k", b"")),
    "LARGE_SEQUENCE",
)
add_vector(
    "sequence-rolls-to-one",
    "1 follows 2^32 - 1: the client of ruby-lumberjack leaves 0 out.",
    Stream(1).w(3).d(TOP - 1, (b"k", b"")).d(TOP, (b"k", b"")).d(1, (b"k", b"")),
    "LARGE_SEQUENCE",
)
add_vector(
    "sequence-ends-at-zero",
    "The last number of the window is 0: so is its ack, which a keep-alive resembles.",
    Stream().w(2).j(TOP).j(0),
    "LARGE_SEQUENCE",
)
add_vector(
    "sequence-top-bit",
    "All numbers of the window are 2^31 or more.",
    Stream().w(2).j(1 << 31).j((1 << 31) + 1),
    "LARGE_SEQUENCE",
)
add_vector("sequence-same", "Every event has the number 0.", Stream().w(2).j(0, b"{}").j(0, b"{}"))

# ---- what some take and some do not

add_vector("data-no-pairs", "A D of no pairs.", Stream(1).w(2).d(1).d(2, (b"k", b"v")), "NO_PAIRS")
add_vector(
    "ack-from-a-writer",
    "An A where only a reader should send one.",
    Stream().w(1).a(7).j(1),
    "ACK_FROM_WRITER",
)
add_vector(
    "json-empty",
    "A J of no bytes: the frame ends where it says, and is no event.",
    Stream().w(2).j(1, b"").j(2),
)
add_vector(
    "compressed-no-adler",
    "The zlib stream ends where its checksum should be.",
    Stream().w(2).c(TWO, lambda data: store_blocks(data)[:-4], loose="TRUNCATED"),
    "CUT_PAYLOAD",
)
add_vector(
    "compressed-short-adler",
    "Two of the four bytes of the checksum.",
    Stream().w(2).c(TWO, lambda data: store_blocks(data)[:-2], loose="TRUNCATED"),
    "CUT_PAYLOAD",
)
add_vector(
    "compressed-wrong-adler",
    "A checksum that is not that of the inflated bytes.",
    Stream().w(2).c(TWO, lambda data: store_blocks(data)[:-4] + b"\0\0\0\1", closed="BAD_CHECKSUM"),
)
add_vector(
    "compressed-no-final-block",
    "Deflate data that is flushed (Z_SYNC_FLUSH), not ended: no last block, no sum.",
    Stream()
    .w(2)
    .c(
        TWO,
        lambda data: b"\x78\x01\x00" + store_blocks(data)[3:-4] + bytes.fromhex("000000ffff"),
        loose="TRUNCATED",
    ),
    "CUT_PAYLOAD",
)
add_vector(
    "compressed-trailing-bytes",
    "Four bytes behind the zlib stream, within the compressed frame.",
    Stream().w(2).c(TWO, lambda data: store_blocks(data) + b"\xde\xad\xbe\xef", loose="LEFTOVER"),
    "LONG_PAYLOAD",
)
add_vector(
    "compressed-two-members",
    "Two zlib streams in one compressed frame: only the first is read.",
    Stream()
    .w(2)
    .c(ONE, lambda data: store_blocks(data) + store_blocks(Stream().j(2).raw), loose="LEFTOVER"),
    "LONG_PAYLOAD",
)
add_vector(
    "compressed-of-length-zero",
    "A compressed frame of no bytes.",
    Stream().w(1).c(Stream(), lambda _: b"", loose="TRUNCATED").j(1),
    "CUT_PAYLOAD",
)
add_vector(
    "compressed-only-a-header",
    "A compressed frame that ends behind the header of its zlib stream.",
    Stream().w(1).c(Stream(), lambda _: b"\x78\x9c", loose="TRUNCATED").j(1),
    "CUT_PAYLOAD",
)
add_vector(
    "compressed-to-nothing",
    "A compressed frame that inflates to no bytes.",
    Stream().w(1).c(Stream()).j(1),
    "EMPTY_PAYLOAD",
)
add_vector(
    "nested-2",
    "A compressed frame in a compressed frame, for a reader that opens two.",
    Stream().w(2).c(Stream().c(TWO)),
    depth=2,
)
add_vector(
    "nested-2-refused",
    "The same for a reader that opens one, as this library does unless told otherwise.",
    Stream().w(2).c(Stream().c(TWO, closed="NESTED")),
)
deep = TWO
for _ in range(4):
    deep = Stream().c(deep)
add_vector(
    "nested-5",
    "Five compressed frames around two events, for a reader that opens five.",
    Stream().w(2).c(deep),
    depth=5,
)
add_vector(
    "nested-beside-plain",
    "What lies around a nested frame that is refused is kept.",
    Stream().w(4).c(Stream().j(1).c(Stream().j(2), closed="NESTED").j(3)).j(4),
)

# ---- what no reader takes

add_vector(
    "compressed-gzip",
    "A gzip stream (RFC 1952) in place of a zlib stream; the next frame is intact.",
    Stream()
    .w(2)
    .c(
        ONE,
        lambda data: (
            bytes.fromhex("1f8b08000000000000ff")
            + store_blocks(data)[2:-4]
            + struct.pack("<II", zlib.crc32(data), len(data))
        ),
        closed="BAD_COMPRESSION",
    )
    .j(2),
)
add_vector(
    "compressed-raw-deflate",
    "Deflate data (RFC 1951) without the zlib header and checksum.",
    Stream().w(1).c(ONE, lambda data: store_blocks(data)[2:-4], closed="BAD_COMPRESSION"),
)
add_vector(
    "compressed-dictionary",
    "A zlib stream that asks for a preset dictionary.",
    Stream()
    .w(1)
    .c(
        ONE,
        lambda data: b"\x78\x20" + make_checksum(b"dictionary") + store_blocks(data)[2:],
        closed="BAD_COMPRESSION",
    ),
)
add_vector(
    "compressed-bad-header",
    "A zlib header whose check bits are wrong.",
    Stream()
    .w(1)
    .c(ONE, lambda data: b"\x78\x9d" + store_blocks(data)[2:], closed="BAD_COMPRESSION"),
)
add_vector(
    "compressed-bad-block",
    "A deflate block of the type 3, which there is not.",
    Stream()
    .w(1)
    .c(ONE, lambda data: b"\x78\x9c\x07" + data + make_checksum(data), closed="BAD_COMPRESSION"),
)
add_vector(
    "compressed-cut-frame",
    "The last frame in a compressed frame is cut; the next frame behind it is intact.",
    Stream()
    .w(3)
    .c(TWO, lambda data: store_blocks(data + b'2J\0\0\0\3\0\0\0\x07{"n'), behind="TRUNCATED")
    .j(3),
)
add_vector(
    "compressed-garbage-inside",
    "Behind the first frame in a compressed frame lies what is none.",
    Stream().w(2).c(ONE, lambda data: store_blocks(data + b"garbage"), behind="NOT_A_FRAME").j(2),
)
add_vector(
    "compressed-impossible-length-inside",
    "A J of 2^31 bytes in a compressed frame.",
    Stream()
    .w(2)
    .c(ONE, lambda data: store_blocks(data + b"2J\0\0\0\2\x80\0\0\0{}"), behind="BAD_LENGTH")
    .j(2),
)
add_vector(
    "bomb",
    "A document of four million blanks in some 4000 bytes, "
    "for a reader that inflates 2^20 to the frame.",
    Stream().w(1).c(Stream().j(1, b"{" + b" " * (4 << 20) + b"}"), level(9), closed="TOO_LARGE"),
    inflated=1 << 20,
)
add_vector(
    "bomb-of-two-layers",
    "32 MB in two compressed frames, for a reader that opens two and inflates 2^20 to each.",
    Stream()
    .w(1)
    .c(
        Stream().c(Stream().j(1, b"{" + b" " * (32 << 20) + b"}"), level(9), closed="TOO_LARGE"),
        level(9),
    ),
    depth=2,
    inflated=1 << 20,
)
add_vector(
    "json-impossible-length",
    "A J whose length has the top bit set.",
    Stream().w(1).bad(b"2J\0\0\0\1\x80\0\0\0{}", "BAD_LENGTH"),
)
add_vector(
    "json-largest-length",
    "A J that claims 2^32 - 1 bytes.",
    Stream().w(1).bad(b"2J\0\0\0\1" + b"\xff" * 4, "BAD_LENGTH"),
)
add_vector(
    "compressed-impossible-length",
    "A C whose length has the top bit set: six bytes not to be believed.",
    Stream().bad(b"2C\xff\xff\xff\xff", "BAD_LENGTH"),
)
add_vector(
    "data-impossible-count",
    "A D of 2^32 - 1 pairs: even empty ones would not fit in 4 GiB.",
    Stream(1).w(1).bad(b"1D\0\0\0\1" + b"\xff" * 4, "BAD_LENGTH"),
)
add_vector(
    "data-impossible-key",
    "A D whose first key has 2^31 bytes.",
    Stream(1).w(1).bad(b"1D\0\0\0\1\0\0\0\1\x80\0\0\0key", "BAD_LENGTH"),
)
add_vector(
    "data-impossible-value",
    "A D whose second value has 2^32 - 1 bytes.",
    Stream(1)
    .w(1)
    .bad(b"1D\0\0\0\1\0\0\0\2\0\0\0\1a\0\0\0\1b\0\0\0\1c" + b"\xff" * 4, "BAD_LENGTH"),
)
add_vector(
    "version-3",
    "A version that does not exist.",
    Stream().w(1).j(1).bad(b"3J\0\0\0\1\0\0\0\2{}", "NOT_A_FRAME"),
)
add_vector(
    "version-in-binary",
    "The version as the number 2, not as the digit.",
    Stream().bad(b"\x02W\0\0\0\1", "NOT_A_FRAME"),
)
add_vector(
    "type-unknown", "A type that does not exist.", Stream().w(1).bad(b"2X\0\0\0\1", "NOT_A_FRAME")
)
add_vector(
    "type-in-lower-case", "Types are upper case.", Stream().bad(b"2w\0\0\0\1", "NOT_A_FRAME")
)
add_vector(
    "garbage-between",
    "Nothing behind a bad byte can be trusted, though intact frames follow.",
    Stream().w(1).j(1).bad(b"\0" + Stream().w(1).j(2).raw, "NOT_A_FRAME"),
)
add_vector(
    "tls-hello",
    "A client that speaks TLS to a plain port.",
    Stream().bad(bytes.fromhex("16030100a5010000a10303"), "NOT_A_FRAME"),
)
add_vector(
    "http-request",
    "A client that speaks HTTP.",
    Stream().bad(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "NOT_A_FRAME"),
)
add_vector(
    "syslog-line",
    "A client that speaks syslog.",
    Stream().bad(b"<34>1 2003-10-11T22:14:15.003Z host su - - - failed\n", "NOT_A_FRAME"),
)

# ---- streams that are cut

add_vector(
    "cut-version", "The stream ends behind a version byte.", Stream().w(1).bad(b"2", "SHORT")
)
add_vector("cut-type", "The stream ends behind a type.", Stream().w(1).bad(b"2J", "SHORT"))
add_vector("cut-window", "The stream ends inside a count.", Stream().bad(b"2W\0\0", "SHORT"))
add_vector(
    "cut-json-header",
    "The stream ends inside the length of a J.",
    Stream().w(1).bad(b"2J\0\0\0\1\0\0", "SHORT"),
)
add_vector(
    "cut-json",
    "The stream ends inside a document.",
    Stream().w(2).j(1).bad(b'2J\0\0\0\2\0\0\0\x07{"n"', "SHORT"),
)
add_vector(
    "cut-compressed",
    "The stream ends inside a compressed frame: nothing of it is an event.",
    Stream().w(2).bad(Stream().c(TWO).raw[:-1], "SHORT"),
)
add_vector(
    "cut-data-between",
    "The stream ends behind the first of two pairs.",
    Stream(1).w(1).bad(b"1D\0\0\0\1\0\0\0\2\0\0\0\1a\0\0\0\1b", "SHORT"),
)
add_vector(
    "cut-data-key",
    "The stream ends inside a key.",
    Stream(1).w(1).bad(b"1D\0\0\0\1\0\0\0\1\0\0\0\4li", "SHORT"),
)
add_vector(
    "cut-data-value",
    "The stream ends inside a value.",
    Stream(1).w(1).bad(b"1D\0\0\0\1\0\0\0\1\0\0\0\4line\0\0\0\5val", "SHORT"),
)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    for name, one in VECTORS.items():
        (folder / f"{name}.json").write_text(format_vector(one), encoding="utf-8")
