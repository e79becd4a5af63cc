"""NATS: what a server sends to rows, beside nats-py's parser, a loop of Python and a plain copy; and back."""
from __future__ import annotations

from typing import Any

import numpy as np

from bench import messages
from bench.measure import Contender, interleave
from bench.messages import Messages, rows_of
from bench.peers import nats as peers
from bench.report import Report, timings
from wirescan import nats as ours
from wirescan.nats.encode import encode_msgs, encode_pubs

COPY, PARSER, LOOP = "buf.copy()", "nats-py's Parser", "Python loop"
FULL = {"count": 1 << 20, "part": 1 << 17, "rounds": 15}
QUICK = {"count": 1 << 13, "part": 1 << 12, "rounds": 2}
PACKAGES = ["numpy", "nats-py"]
STRINGS = ["subject", "sid", "reply", "headers", "payload"]


class Stream(Messages):
    """MSG, or MSG and HMSG, and the readers of it, which must all find the same."""

    def __init__(self, kind: str, count: int):
        super().__init__(np.fromfile(messages.capture(kind, count), np.uint8), count)

    def scan(self, **options: Any) -> Any:
        return ours.scan(self.bytes, **options)

    def peers(self) -> list[Contender]:
        raw = self.bytes.tobytes()
        pieces, collector, nobody = peers.pieces(raw), peers.Collector(), peers.Nobody()
        peers.parse(collector, pieces)
        rows = [tuple(value or b"" for value in row) for row in rows_of(self.scan(), STRINGS)]
        if not rows == peers.split(raw) == collector.messages or len(rows) != self.count:
            raise ValueError("wirescan, nats-py and the loop do not find the same messages")
        return [self.contender(PARSER, lambda: peers.parse(nobody, pieces), rehearse=False),
                self.contender(LOOP, lambda: peers.split(raw), rehearse=False)]


def run(count: int, part: int, rounds: int) -> str:
    """The whole part as markdown. count: of messages in a stream. part: of them, for what takes long."""
    report = Report("NATS")
    report.say(
        f"Streams of {count:,} messages as a server sends them, in memory, warm, one thread; ratios are medians of the "
        f"rounds' own ratios. nats-py's parser is given {peers.READ // 1024} KiB at a time, as from a socket, by a "
        "client that does nothing with a message; the loop finds the end of each control line, splits it into words "
        f"and slices by its sizes. What is Python takes {part:,} messages.")
    for kind, title in (("capture", "MSG"), ("headers", "MSG and HMSG")):
        whole, some = Stream(kind, count), Stream(kind, part)
        frames(report, title, whole, some, rounds)
        encoders(report, title, whole, some, rounds)
    return report.markdown(PACKAGES)


def frames(report: Report, title: str, whole: Stream, some: Stream, rounds: int) -> None:
    """From bytes to rows."""
    into, scanned = np.ones(whole.count + 1, ours.MESSAGE), whole.scan()
    contenders = [
        whole.contender("scan", whole.scan),
        whole.contender(COPY, whole.bytes.copy),
        whole.contender("scan into warm rows", lambda: whole.scan(into=into)),
        *some.peers()]
    if scanned["header_count"].any():
        contenders.insert(1, whole.contender("headers alone", lambda: ours.headers(scanned)))
    times = interleave(contenders, rounds)
    report.at_least(f"{title}: `nats.scan`, times as fast as nats-py's parser", 60, times.ratio(PARSER, "scan"))
    report.at_least(f"{title}: `nats.scan`, times as fast as a Python loop", 15, times.ratio(LOOP, "scan"))
    against = {PARSER: "scan", LOOP: "scan", "scan": COPY}
    report.say(f"### {title}", "",
               f"Messages of {len(whole.bytes) / whole.count:.0f} bytes with their control lines.", "",
               timings(times, against, "message"))


def encoders(report: Report, title: str, whole: Stream, some: Stream, rounds: int) -> None:
    """From columns to bytes."""
    def columns(stream: Stream) -> dict[str, Any]:
        table = stream.scan()
        inside = ours.headers(table)
        return {"subjects": (table, "subject"), "payloads": (table, "payload"), "replies": (table, "reply"),
                "headers": (table["header_count"], (inside, "key"), (inside, "value"))}

    given, part = columns(whole), columns(some)
    rows = [(subject.decode(), (reply or b"").decode(), block or b"", payload)
            for subject, _, reply, block, payload in rows_of(some.scan(), STRINGS)]
    if encode_msgs(sids=messages.SID, **given) != whole.bytes.tobytes():
        raise ValueError("the encoder writes other bytes than those that the columns are from")
    theirs, written = ours.scan(b"".join(peers.published(rows))), ours.scan(encode_pubs(**part))
    if rows_of(theirs, STRINGS) != rows_of(written, STRINGS):
        raise ValueError("wirescan and nats-py do not write the same messages")
    times = interleave([
        whole.contender(COPY, whole.bytes.copy),
        whole.contender("encode_msgs", lambda: encode_msgs(sids=messages.SID, **given)),
        whole.contender("encode_pubs", lambda: encode_pubs(**given)),
        some.contender("nats-py's commands", lambda: peers.published(rows), rehearse=False),
    ], rounds)
    report.say(f"### {title} out of columns", "",
               "From the places of a table. nats-py makes one PUB or HPUB at a time, of a header block that is made "
               "before.", "",
               timings(times, {"encode_msgs": COPY, "encode_pubs": COPY, "nats-py's commands": "encode_pubs"},
                       "message"))
