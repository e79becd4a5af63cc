"""NATS: reading and writing the messages of a server.

They are compared with nats-py, a Python loop and a plain copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.peers import nats as peers
from bench.report import Report, format_timings
from bench.timing import Contender, interleave
from bench.workloads import nats_messages
from bench.workloads.nats_messages import Messages, list_rows
from wirescan import nats as ours
from wirescan.nats.encode import encode_msgs, encode_pubs

COPY = "buf.copy()"
PARSER = "nats-py's Parser"
LOOP = "Python loop"
FULL = {"count": 1 << 20, "part": 1 << 17, "rounds": 15}
QUICK = {"count": 1 << 13, "part": 1 << 12, "rounds": 2}
PACKAGES = ["numpy", "nats-py"]
STRINGS = ["subject", "sid", "reply", "headers", "payload"]


class Stream(Messages):
    """A stream of MSG, or of MSG and HMSG, and its readers, which must all agree."""

    def __init__(self, kind: str, count: int):
        super().__init__(np.fromfile(nats_messages.write_capture(kind, count), np.uint8), count)

    def scan(self, **options: Any) -> Any:
        return ours.scan(self.bytes, **options)

    def peers(self) -> list[Contender]:
        raw = self.bytes.tobytes()
        pieces = peers.cut_pieces(raw)
        collector = peers.CollectingClient()
        nobody = peers.DroppingClient()
        peers.parse(collector, pieces)
        rows = [tuple(value or b"" for value in row) for row in list_rows(self.scan(), STRINGS)]
        if not rows == peers.split(raw) == collector.messages or len(rows) != self.count:
            raise ValueError("wirescan, nats-py and the loop do not find the same messages")
        return [
            self.contender(PARSER, lambda: peers.parse(nobody, pieces), rehearse=False),
            self.contender(LOOP, lambda: peers.split(raw), rehearse=False),
        ]


def run(count: int, part: int, rounds: int) -> str:
    """Return the section as markdown.

    count: number of messages in a stream. part: number of messages for slow readers.
    """
    report = Report("NATS")
    report.say(
        f"Streams of {count:,} messages from a server, in memory, warm, one thread. Ratios are "
        f"medians of the rounds' ratios. nats-py's parser gets {peers.READ // 1024} KiB at a time, "
        "as from a socket, and its client drops each message. The loop finds the end of each "
        "control line, splits it into words and slices by its sizes. The Python readers read "
        f"{part:,} messages."
    )
    for kind, title in (("capture", "MSG"), ("headers", "MSG and HMSG")):
        whole, some = Stream(kind, count), Stream(kind, part)
        measure_frames(report, title, whole, some, rounds)
        measure_encoders(report, title, whole, some, rounds)
    return report.markdown(PACKAGES)


def measure_frames(report: Report, title: str, whole: Stream, some: Stream, rounds: int) -> None:
    """Read bytes into rows."""
    into = np.ones(whole.count + 1, ours.MESSAGE)
    scanned = whole.scan()
    contenders = [
        whole.contender("scan", whole.scan),
        whole.contender(COPY, whole.bytes.copy),
        whole.contender("scan into warm rows", lambda: whole.scan(into=into)),
        *some.peers(),
    ]
    if scanned["header_count"].any():
        contenders.insert(1, whole.contender("headers alone", lambda: ours.headers(scanned)))
    times = interleave(contenders, rounds)
    report.at_least(
        f"{title}: `nats.scan`, times as fast as nats-py's parser", 60, times.ratio(PARSER, "scan")
    )
    report.at_least(
        f"{title}: `nats.scan`, times as fast as a Python loop", 15, times.ratio(LOOP, "scan")
    )
    against = {PARSER: "scan", LOOP: "scan", "scan": COPY}
    report.say(
        f"### {title}",
        "",
        f"Messages have {len(whole.bytes) / whole.count:.0f} bytes with their control lines.",
        "",
        format_timings(times, against, "message"),
    )


def measure_encoders(report: Report, title: str, whole: Stream, some: Stream, rounds: int) -> None:
    """Write columns to bytes."""

    def columns(stream: Stream) -> dict[str, Any]:
        table = stream.scan()
        inside = ours.headers(table)
        return {
            "subjects": (table, "subject"),
            "payloads": (table, "payload"),
            "replies": (table, "reply"),
            "headers": (table["header_count"], (inside, "key"), (inside, "value")),
        }

    whole_columns = columns(whole)
    some_columns = columns(some)
    rows = [
        (subject.decode(), (reply or b"").decode(), block or b"", payload)
        for subject, _, reply, block, payload in list_rows(some.scan(), STRINGS)
    ]
    if encode_msgs(sids=nats_messages.SID, **whole_columns) != whole.bytes.tobytes():
        raise ValueError("the encoder writes other bytes than those that the columns are from")
    from_peer = ours.scan(b"".join(peers.encode_commands(rows)))
    from_wirescan = ours.scan(encode_pubs(**some_columns))
    if list_rows(from_peer, STRINGS) != list_rows(from_wirescan, STRINGS):
        raise ValueError("wirescan and nats-py do not write the same messages")
    times = interleave(
        [
            whole.contender(COPY, whole.bytes.copy),
            whole.contender(
                "encode_msgs", lambda: encode_msgs(sids=nats_messages.SID, **whole_columns)
            ),
            whole.contender("encode_pubs", lambda: encode_pubs(**whole_columns)),
            some.contender(
                "nats-py's commands", lambda: peers.encode_commands(rows), rehearse=False
            ),
        ],
        rounds,
    )
    report.say(
        f"### {title} out of columns",
        "",
        "Columns are the places of a table. nats-py makes one PUB or HPUB at a time, from a "
        "header block that exists before.",
        "",
        format_timings(
            times,
            {"encode_msgs": COPY, "encode_pubs": COPY, "nats-py's commands": "encode_pubs"},
            "message",
        ),
    )
