"""Lumberjack: reading frames, encoding, JSON columns and live receivers.

They are compared with Python loops, Java, pylogbeat, go-lumber and zlib alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from bench.peers import lumberjack as peers
from bench.peers import lumberjack_live as live
from bench.peers.programs import TstLj
from bench.report import Report, format_number, format_table, format_timings
from bench.timing import Contender, Times, interleave, time_call
from bench.workloads import records_and_events
from wirescan import lumberjack as ours
from wirescan.frames import to_arrow
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.formats import documents

COPY = "buf.copy()"
FULL = {
    "events": 256 * records_and_events.IN_WINDOW,
    "part": 64 * records_and_events.IN_WINDOW,
    "rounds": 15,
    "live_rounds": 5,
    "seconds": 1.5,
}
QUICK = {
    "events": 8 * records_and_events.IN_WINDOW,
    "part": 4 * records_and_events.IN_WINDOW,
    "rounds": 2,
    "live_rounds": 2,
    "seconds": 0.3,
}
PACKAGES = ["numpy", "pyarrow", "pylogbeat", "go-lumber v0.2.0"]
SCHEMA = pa.schema(
    [
        ("@timestamp", pa.timestamp("ns", "UTC")),
        ("host", pa.string()),
        ("offset", pa.int64()),
        ("message", pa.string()),
        ("@metadata", pa.struct([("beat", pa.string()), ("type", pa.string())])),
    ]
)
GO_LUMBER = "tst-send to tst-lj (go-lumber)"


class Stream:
    """A workload in memory, and contenders over it."""

    def __init__(self, kind: str, events: int):
        self.path = records_and_events.write_stream(kind, events)
        self.bytes = np.fromfile(self.path, np.uint8)
        self.events = events

    def contender(self, name: str, call: Callable[[], Any], *, rehearse: bool = True) -> Contender:
        return Contender(name, time_call(call, rehearse=rehearse), self.events, len(self.bytes))

    def loop(self, name: str, read: Callable[[bytes], list[Any]]) -> Contender:
        """Time a Python loop. Raises ValueError if it does not find all events."""
        raw = self.bytes.tobytes()
        if len(read(raw)) != self.events:
            raise ValueError(f"{name} finds another number of events")
        return self.contender(name, lambda: read(raw), rehearse=False)

    def java(self, name: str, peer: peers.Java, how: str) -> Contender:
        peer.warm_up(how)
        return Contender(name, lambda: peer.seconds(how), self.events, len(self.bytes))


def run(events: int, part: int, rounds: int, live_rounds: int, seconds: float) -> str:
    """Return the section as markdown.

    events: events in a stream. part: events for slow readers. seconds: duration of go-lumber runs.
    """
    whole = Stream("json", events)
    some = Stream("json", part)
    report = Report("Lumberjack")
    report.say(
        f"Streams have {events:,} events in windows of {records_and_events.IN_WINDOW:,}. A JSON "
        f"frame has {len(whole.bytes) / events:.0f} bytes. Streams are in memory, warm, and read "
        "by one thread, except for the receivers. GB/s counts bytes before compression. Ratios "
        f"are medians of the rounds' ratios. Slow readers read {part:,} events."
    )
    measure_json_frames(report, whole, some, rounds)
    measure_data_frames(report, Stream("data", events), Stream("data", part), max(2, rounds // 3))
    packed = Stream("compressed", events)
    measure_compressed(report, whole, packed, max(2, rounds // 2))
    measure_encoders(report, whole, some, rounds)
    measure_columns(report, some, max(2, rounds // 3))
    measure_receivers(report, whole, packed, live_rounds, seconds)
    return report.markdown([*PACKAGES, f"camel-lumberjack {peers.read_camel_version()}"])


def read_events(data: np.ndarray) -> FrameTable:
    """Read bytes into rows of events."""
    return ours.events(ours.scan(data))


def list_texts(stream: Stream) -> pa.Array:
    """Return the JSON texts of a stream."""
    return to_arrow.to_batch(read_events(stream.bytes), ["json"], binary="large_binary")["json"]


def measure_json_frames(report: Report, whole: Stream, some: Stream, rounds: int) -> None:
    """Read uncompressed J frames of version 2."""
    into = np.ones(len(ours.scan(whole.bytes)) + 1, ours.FRAME)
    names = {"scan": "`lumberjack.scan`", "scan and events": "`lumberjack.scan` and `events`"}
    times = interleave(
        [
            whole.contender(COPY, whole.bytes.copy),
            whole.contender("scan", lambda: ours.scan(whole.bytes)),
            whole.contender("scan into warm rows", lambda: ours.scan(whole.bytes, into=into)),
            whole.contender("scan and events", lambda: read_events(whole.bytes)),
            whole.loop("Python loop", peers.read_json_events),
        ],
        rounds,
    )
    with closing(peers.Java(some.path, some.events)) as java:
        beside = interleave(
            [
                some.contender("scan and events", lambda: read_events(some.bytes)),
                some.java("Camel (Java)", java, "camel"),
                some.java("Java loop", java, "loop"),
            ],
            max(2, rounds // 3),
        )
    for name, calls in names.items():
        report.at_least(
            f"J frames: {calls}, times as fast as a Python loop",
            8,
            times.ratio("Python loop", name),
        )
    report.at_least(
        "J frames: the same, times as fast as Camel's decoder (Java), which parses the JSON, too",
        10,
        beside.ratio("Camel (Java)", "scan and events"),
    )
    report.say(
        "### J frames",
        "",
        "The Python loop unpacks each header with `struct` and slices its text. Logstash's "
        "BeatsParser is not on Maven Central, so Java is Apache Camel's decoder. It gets 64 KiB "
        "at a time, as from a socket, and always parses each JSON text, which wirescan does not. "
        "D frames need no such parsing. The Java loop is the least work that gives events: it "
        "checks headers and makes a byte array for each text.",
        "",
        format_timings(
            times, compare_with_first(times) | {"Python loop": "scan and events"}, "event"
        ),
        "",
        format_timings(beside, compare_with_first(beside), "event"),
    )


def measure_data_frames(report: Report, whole: Stream, some: Stream, rounds: int) -> None:
    """Read D frames of four pairs."""

    def pairs(data: np.ndarray) -> FrameTable:
        return ours.pairs(read_events(data))

    with closing(peers.Java(some.path, some.events)) as java:
        times = interleave(
            [
                whole.contender("scan, events and pairs", lambda: pairs(whole.bytes)),
                whole.contender("scan and events", lambda: read_events(whole.bytes)),
                whole.contender("scan", lambda: ours.scan(whole.bytes)),
                some.loop("Python loop, dicts", peers.read_data_events),
                some.java("Camel (Java), maps", java, "camel"),
            ],
            rounds,
        )
    first = "scan, events and pairs"
    for name in ("scan", "scan and events", first):
        report.at_least(
            f"D frames, four pairs: {name}, times as fast as a Python loop that makes dicts",
            150,
            times.ratio("Python loop, dicts", name),
        )
    report.at_least(
        "D frames: the same, times as fast as Camel's decoder (Java)",
        10,
        times.ratio("Camel (Java), maps", first),
    )
    report.say(
        "### D frames of four pairs", "", format_timings(times, compare_with_first(times), "event")
    )


def measure_compressed(report: Report, plain: Stream, packed: Stream, rounds: int) -> None:
    """Compare with zlib alone over the same payloads."""
    frames = ours.scan(packed.bytes)
    payloads = [
        bytes(frames.payload(row))
        for row in np.flatnonzero(frames["kind"] == ours.Kind.COMPRESSED).tolist()
    ]

    def decompress() -> None:
        for payload in payloads:
            zlib.decompress(payload)

    def contender(name: str, call: Callable[[], Any]) -> Contender:
        return Contender(name, time_call(call), plain.events, len(plain.bytes))

    alone = "zlib.decompress"
    all_kept = "zlib.decompress, all kept"
    whole = "scan and events"
    times = interleave(
        [
            contender(alone, decompress),
            contender(all_kept, lambda: [zlib.decompress(payload) for payload in payloads]),
            contender(whole, lambda: read_events(packed.bytes)),
            contender("uncompressed", lambda: read_events(plain.bytes)),
        ],
        rounds,
    )
    report.at_most(
        f"compressed: `lumberjack.scan` and `events`, of `{alone}` of the same payloads",
        1.15,
        times.ratio(whole, alone),
    )
    report.say(
        f"### Compressed, zlib level {records_and_events.ZLIB_LEVEL}",
        "",
        f"Each window is a C frame of {records_and_events.IN_WINDOW:,} J frames, which is "
        f"{len(plain.bytes) / len(packed.bytes):.1f} times smaller. zlib alone decompresses one "
        "payload after another and drops each result. wirescan keeps all results, because they "
        "hold the events.",
        "",
        format_timings(times, {all_kept: alone, whole: alone, "uncompressed": whole}, "event"),
    )


def measure_encoders(report: Report, whole: Stream, some: Stream, rounds: int) -> None:
    """Write J frames from arrays, compared with a copy of the bytes and with pylogbeat."""
    texts = list_texts(whole)
    part = list_texts(some)
    encoded = ours.encode_batches(texts, window=records_and_events.IN_WINDOW)
    if bytes(encoded) != whole.bytes.tobytes():
        raise ValueError("the encoder writes other bytes than those that the texts are from")
    listed = part.to_pylist()

    def pylogbeat(*, compress: bool) -> list[bytes]:
        return peers.encode_windows(listed, records_and_events.IN_WINDOW, compress=compress)

    times = interleave(
        [
            whole.contender(COPY, whole.bytes.copy),
            whole.contender(
                "encode_batches",
                lambda: ours.encode_batches(texts, window=records_and_events.IN_WINDOW),
            ),
            some.contender(
                "pylogbeat, not compressed", lambda: pylogbeat(compress=False), rehearse=False
            ),
        ],
        rounds,
    )
    packed = interleave(
        [
            some.contender(
                "encode_batches, level 6",
                lambda: ours.encode_batches(part, window=records_and_events.IN_WINDOW, level=6),
            ),
            some.contender("pylogbeat", lambda: pylogbeat(compress=True), rehearse=False),
        ],
        max(2, rounds // 3),
    )
    report.say(
        "### Encoders",
        "",
        "JSON texts become J frames in windows. wirescan gets an Arrow array (large_binary), and "
        "pylogbeat gets a list of bytes that exists before. pylogbeat always compresses, at "
        "level 6; in one line this step is skipped.",
        "",
        format_timings(
            times, {"encode_batches": COPY, "pylogbeat, not compressed": "encode_batches"}, "event"
        ),
        "",
        format_timings(packed, compare_with_first(packed), "event"),
    )


def measure_columns(report: Report, some: Stream, rounds: int) -> None:
    """Read JSON into typed Arrow columns, compared with the objects of `json.loads`."""
    events = read_events(some.bytes)
    listed = list_texts(some).to_pylist()
    lines = b"\n".join(listed)
    times = interleave(
        [
            some.contender("documents, of a schema", lambda: documents(events, schema=SCHEMA)),
            some.contender("documents, types inferred", lambda: documents(events)),
            some.contender("json.loads", lambda: peers.parse_json(listed), rehearse=False),
            some.contender(
                "json.loads and Table.from_pylist",
                lambda: pa.Table.from_pylist(peers.parse_json(listed)),
                rehearse=False,
            ),
            some.contender(
                "pyarrow.json alone, lines", lambda: arrow_json.read_json(pa.BufferReader(lines))
            ),
        ],
        rounds,
    )
    report.say(
        "### JSON to columns",
        "",
        "`documents` reads a table of events, and `json.loads` a list of the same texts. "
        "pyarrow's own reader gets lines that exist before. It uses several threads, alone and "
        "inside `documents`.",
        "",
        format_timings(times, compare_with_first(times), "event"),
    )


def measure_receivers(
    report: Report, whole: Stream, packed: Stream, rounds: int, seconds: float
) -> None:
    """Send windows over loopback until they are acked."""
    texts = list_texts(whole)
    events = whole.events
    windows = live.split_windows(whole.bytes.tobytes())
    small = live.split_windows(packed.bytes.tobytes())
    some = max(1, len(windows) // 4)  # number of windows for slow receivers

    def contender(name: str, call: Callable[[], float], count: int = len(windows)) -> Contender:
        size = len(whole.bytes) * count // len(windows)
        return Contender(name, call, count * records_and_events.IN_WINDOW, size)

    with TstLj() as server:
        times = interleave(
            [
                contender(GO_LUMBER, lambda: live.time_go_lumber(server.address, events, seconds)),
                contender(
                    "replay to wirescan, nothing kept",
                    lambda: live.time_receiver("nothing", windows),
                ),
                contender(
                    "replay to wirescan, frames", lambda: live.time_receiver("frames", windows)
                ),
                contender("the same into a file alone", lambda: live.time_file(windows)),
                contender(
                    "replay to wirescan, Parquet", lambda: live.time_receiver("parquet", windows)
                ),
                contender(
                    "tst-send to wirescan, nothing kept",
                    lambda: live.time_go_lumber_to_wirescan(events, seconds),
                ),
                contender(
                    "lumberjack.Client to wirescan, nothing kept", lambda: live.time_client(texts)
                ),
                contender(
                    "replay to tst-lj", lambda: live.replay(server.address, windows[:some]), some
                ),
                contender(
                    "compressed replay to wirescan, nothing kept",
                    lambda: live.time_receiver("nothing", small),
                ),
                contender(
                    "compressed replay to tst-lj",
                    lambda: live.replay(server.address, small[:some]),
                    some,
                ),
            ],
            rounds,
            warm_up=0,
        )
    for sink, description in (
        ("nothing kept", "nothing kept"),
        ("frames", "frames on the disk before each ack"),
    ):
        report.at_least(
            f"receiver, {description}: times as fast as go-lumber's own server with its own client",
            5,
            times.ratio(GO_LUMBER, f"replay to wirescan, {sink}"),
        )
    report.say(
        "### Receivers",
        "",
        f"One connection over loopback has {live.PIPELINING} windows in flight. Receiver and "
        "sender are separate processes. tst-send, go-lumber's client, encodes its own, slightly "
        "smaller events as JSON. tst-lj, its server, parses them into maps and drops them. A "
        "replay sends windows that exist before. Frames: `wirescan receive` syncs each file "
        "before it acks the events in it. A file alone: this process writes the same bytes, and "
        f"syncs the file after every {live.PIPELINING} windows. Parquet: as frames; the time ends "
        "when all events are in Parquet and the process has ended.",
        "",
        format_table(
            ["", "events/s", "times go-lumber"],
            [
                [
                    name,
                    format_number(1e9 / times.median(name)),
                    format_number(times.ratio(GO_LUMBER, name)[0]),
                ]
                for name in times.contenders
            ],
        ),
    )


def compare_with_first(times: Times) -> dict[str, str]:
    """Compare every contender with the first one."""
    first, *others = times.contenders
    return dict.fromkeys(others, first)
