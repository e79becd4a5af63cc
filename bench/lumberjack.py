"""Lumberjack: frames to rows beside Python loops, Java and the inflate alone; encoders, columns, and live receivers."""
from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from bench import data
from bench.measure import Contender, Times, interleave, timed
from bench.peers import lumberjack as peers
from bench.peers import lumberjack_live as live
from bench.report import Report, number, table, timings
from tests.peers.lumberjack import TstLj
from wirescan import arrow
from wirescan import lumberjack as ours
from wirescan.lumberjack.columns import documents
from wirescan.table import FrameTable

COPY = "buf.copy()"
FULL = {"events": 256 * data.IN_WINDOW, "part": 64 * data.IN_WINDOW, "rounds": 15, "live_rounds": 5, "seconds": 1.5}
QUICK = {"events": 8 * data.IN_WINDOW, "part": 4 * data.IN_WINDOW, "rounds": 2, "live_rounds": 2, "seconds": 0.3}
PACKAGES = ["numpy", "pyarrow", "pylogbeat", "go-lumber v0.2.0"]
SCHEMA = pa.schema([
    ("@timestamp", pa.timestamp("ns", "UTC")), ("host", pa.string()), ("offset", pa.int64()), ("message", pa.string()),
    ("@metadata", pa.struct([("beat", pa.string()), ("type", pa.string())]))])
GO_LUMBER = "tst-send to tst-lj (go-lumber)"


class Stream:
    """A workload in memory, and contenders over it."""

    def __init__(self, kind: str, events: int):
        self.path = data.stream(kind, events)
        self.bytes = np.fromfile(self.path, np.uint8)
        self.events = events

    def contender(self, name: str, call: Callable[[], Any], rehearse: bool = True) -> Contender:
        return Contender(name, timed(call, rehearse), self.events, len(self.bytes))

    def loop(self, name: str, read: Callable[[bytes], list[Any]]) -> Contender:
        """A loop of Python, which must find all events."""
        raw = self.bytes.tobytes()
        if len(read(raw)) != self.events:
            raise ValueError(f"{name} finds another number of events")
        return self.contender(name, lambda: read(raw), rehearse=False)

    def java(self, name: str, peer: peers.Java, how: str) -> Contender:
        peer.warm_up(how)
        return Contender(name, lambda: peer.seconds(how), self.events, len(self.bytes))


def run(events: int, part: int, rounds: int, live_rounds: int, seconds: float) -> str:
    """The whole part as markdown. events: in a stream. part: of them, for what takes long. seconds: of go-lumber."""
    whole, some = Stream("json", events), Stream("json", part)
    report = Report("Lumberjack")
    report.say(
        f"Streams of {events:,} events in windows of {data.IN_WINDOW:,}; a JSON frame has "
        f"{len(whole.bytes) / events:.0f} bytes. In memory, warm, one thread, but for the receivers. GB/s is of bytes "
        f"before compression; ratios are medians of the rounds' own ratios. What takes long takes {part:,} events.")
    json_frames(report, whole, some, rounds)
    data_frames(report, Stream("data", events), Stream("data", part), max(2, rounds // 3))
    packed = Stream("compressed", events)
    compressed(report, whole, packed, max(2, rounds // 2))
    encoders(report, whole, some, rounds)
    columns(report, some, max(2, rounds // 3))
    receivers(report, whole, packed, live_rounds, seconds)
    return report.markdown([*PACKAGES, f"camel-lumberjack {peers.camel_version()}"])


def opened(data: np.ndarray) -> FrameTable:
    """From bytes to rows of events."""
    return ours.events(ours.scan(data))


def texts_of(stream: Stream) -> pa.Array:
    """The JSON texts of a stream."""
    return arrow.to_batch(opened(stream.bytes), ["json"], binary="large_binary")["json"]


def json_frames(report: Report, whole: Stream, some: Stream, rounds: int) -> None:
    """J frames of version 2, uncompressed."""
    into = np.ones(len(ours.scan(whole.bytes)) + 1, ours.FRAME)
    names = {"scan": "`lumberjack.scan`", "scan and events": "`lumberjack.scan` and `events`"}
    times = interleave([
        whole.contender(COPY, whole.bytes.copy),
        whole.contender("scan", lambda: ours.scan(whole.bytes)),
        whole.contender("scan into warm rows", lambda: ours.scan(whole.bytes, into=into)),
        whole.contender("scan and events", lambda: opened(whole.bytes)),
        whole.loop("Python loop", peers.json_events),
    ], rounds)
    with closing(peers.Java(some.path, some.events)) as java:
        beside = interleave([
            some.contender("scan and events", lambda: opened(some.bytes)),
            some.java("Camel (Java)", java, "camel"),
            some.java("Java loop", java, "loop"),
        ], max(2, rounds // 3))
    for name, what in names.items():
        report.at_least(f"J frames: {what}, times as fast as a Python loop", 8, times.ratio("Python loop", name))
    report.at_least("J frames: the same, times as fast as Camel's decoder (Java), which parses the JSON, too", 10,
                    beside.ratio("Camel (Java)", "scan and events"))
    report.say(
        "### J frames", "",
        "The Python loop unpacks each header with `struct` and slices its text. Java: Logstash's BeatsParser is not on "
        "Maven Central; Apache Camel's decoder is, and takes 64 KiB at a time as from a socket, but always makes an "
        "object of each JSON text, which wirescan does not: see D frames, where nothing is parsed. The Java loop is "
        "the least that gives events: headers checked, and an array of bytes for each text.", "",
        timings(times, beside_first(times) | {"Python loop": "scan and events"}, "event"), "",
        timings(beside, beside_first(beside), "event"))


def data_frames(report: Report, whole: Stream, some: Stream, rounds: int) -> None:
    """D frames of four pairs."""
    def pairs(data: np.ndarray) -> FrameTable:
        return ours.pairs(opened(data))

    with closing(peers.Java(some.path, some.events)) as java:
        times = interleave([
            whole.contender("scan, events and pairs", lambda: pairs(whole.bytes)),
            whole.contender("scan and events", lambda: opened(whole.bytes)),
            whole.contender("scan", lambda: ours.scan(whole.bytes)),
            some.loop("Python loop, dicts", peers.data_events),
            some.java("Camel (Java), maps", java, "camel"),
        ], rounds)
    first = "scan, events and pairs"
    for name in ("scan", "scan and events", first):
        report.at_least(f"D frames, four pairs: {name}, times as fast as a Python loop that makes dicts", 150,
                        times.ratio("Python loop, dicts", name))
    report.at_least("D frames: the same, times as fast as Camel's decoder (Java)", 10,
                    times.ratio("Camel (Java), maps", first))
    report.say("### D frames of four pairs", "", timings(times, beside_first(times), "event"))


def compressed(report: Report, plain: Stream, packed: Stream, rounds: int) -> None:
    """Against the inflate alone over the same payloads."""
    frames = ours.scan(packed.bytes)
    payloads = [bytes(frames.payload(row)) for row in np.flatnonzero(frames["kind"] == ours.Kind.COMPRESSED).tolist()]

    def inflate() -> None:
        for payload in payloads:
            zlib.decompress(payload)

    def contender(name: str, call: Callable[[], Any]) -> Contender:
        return Contender(name, timed(call), plain.events, len(plain.bytes))

    alone, kept, whole = "zlib.decompress", "zlib.decompress, all kept", "scan and events"
    times = interleave([
        contender(alone, inflate),
        contender(kept, lambda: [zlib.decompress(payload) for payload in payloads]),
        contender(whole, lambda: opened(packed.bytes)),
        contender("uncompressed", lambda: opened(plain.bytes)),
    ], rounds)
    report.at_most(f"compressed: `lumberjack.scan` and `events`, of `{alone}` of the same payloads", 1.15,
                   times.ratio(whole, alone))
    report.say(
        f"### Compressed, zlib level {data.ZLIB_LEVEL}", "",
        f"A C frame of {data.IN_WINDOW:,} J frames in each window, {len(plain.bytes) / len(packed.bytes):.1f} times "
        "smaller. Alone: each payload after another, what it gives dropped at once; wirescan keeps all, since the "
        "events lie there.", "",
        timings(times, {kept: alone, whole: alone, "uncompressed": whole}, "event"))


def encoders(report: Report, whole: Stream, some: Stream, rounds: int) -> None:
    """J frames out of arrays: against a copy of what is written, and pylogbeat."""
    texts, part = texts_of(whole), texts_of(some)
    if bytes(ours.encode_batches(texts, window=data.IN_WINDOW)) != whole.bytes.tobytes():
        raise ValueError("the encoder writes other bytes than those that the texts are from")
    listed = part.to_pylist()

    def pylogbeat(compress: bool) -> list[bytes]:
        return peers.pylogbeat_windows(listed, data.IN_WINDOW, compress)

    times = interleave([
        whole.contender(COPY, whole.bytes.copy),
        whole.contender("encode_batches", lambda: ours.encode_batches(texts, window=data.IN_WINDOW)),
        some.contender("pylogbeat, not compressed", lambda: pylogbeat(False), rehearse=False),
    ], rounds)
    packed = interleave([
        some.contender("encode_batches, level 6", lambda: ours.encode_batches(part, window=data.IN_WINDOW, level=6)),
        some.contender("pylogbeat", lambda: pylogbeat(True), rehearse=False),
    ], max(2, rounds // 3))
    report.say(
        "### Encoders", "",
        "J frames in windows, from JSON texts: in an array of Arrow (large_binary), for pylogbeat in a list of bytes "
        "that is made before. pylogbeat always compresses, at level 6; in one line it is kept from it.", "",
        timings(times, {"encode_batches": COPY, "pylogbeat, not compressed": "encode_batches"}, "event"), "",
        timings(packed, beside_first(packed), "event"))


def columns(report: Report, some: Stream, rounds: int) -> None:
    """JSON to typed columns of Arrow, beside the objects of `json.loads`."""
    events, listed = opened(some.bytes), texts_of(some).to_pylist()
    lines = b"\n".join(listed)
    times = interleave([
        some.contender("documents, of a schema", lambda: documents(events, schema=SCHEMA)),
        some.contender("documents, types inferred", lambda: documents(events)),
        some.contender("json.loads", lambda: peers.parsed(listed), rehearse=False),
        some.contender("json.loads and Table.from_pylist", lambda: pa.Table.from_pylist(peers.parsed(listed)),
                       rehearse=False),
        some.contender("pyarrow.json alone, lines", lambda: arrow_json.read_json(pa.BufferReader(lines))),
    ], rounds)
    report.say("### JSON to columns", "",
               "From a table of events, beside `json.loads` of a list of the same texts. pyarrow's own reader, alone "
               "on lines that are there before, takes several threads, as it does beneath `documents`.", "",
               timings(times, beside_first(times), "event"))


def receivers(report: Report, whole: Stream, packed: Stream, rounds: int, seconds: float) -> None:
    """Windows over loopback, until they are acked."""
    texts, events = texts_of(whole), whole.events
    windows, small = live.windows_of(whole.bytes.tobytes()), live.windows_of(packed.bytes.tobytes())
    some = max(1, len(windows) // 4)            # windows, for what is slower

    def contender(name: str, call: Callable[[], float], part: int = len(windows)) -> Contender:
        return Contender(name, call, part * data.IN_WINDOW, len(whole.bytes) * part // len(windows))

    with TstLj() as server:
        times = interleave([
            contender(GO_LUMBER, lambda: live.go_lumber(server.address, events, seconds)),
            contender("replay to wirescan, nothing kept", lambda: live.received("nothing", windows)),
            contender("replay to wirescan, frames", lambda: live.received("frames", windows)),
            contender("the same into a file alone", lambda: live.synced(windows)),
            contender("replay to wirescan, Parquet", lambda: live.received("parquet", windows)),
            contender("tst-send to wirescan, nothing kept", lambda: live.go_lumber_to_nothing(events, seconds)),
            contender("lumberjack.Client to wirescan, nothing kept", lambda: live.client(texts)),
            contender("replay to tst-lj", lambda: live.replay(server.address, windows[:some]), some),
            contender("compressed replay to wirescan, nothing kept", lambda: live.received("nothing", small)),
            contender("compressed replay to tst-lj", lambda: live.replay(server.address, small[:some]), some),
        ], rounds, warm_up=0)
    for kept, what in (("nothing kept", "nothing kept"), ("frames", "frames on the disk before each ack")):
        report.at_least(f"receiver, {what}: times as fast as go-lumber's own server with its own client", 5,
                        times.ratio(GO_LUMBER, f"replay to wirescan, {kept}"))
    report.say(
        "### Receivers", "",
        f"One connection over loopback, {live.PIPELINING} windows in flight; receiver and sender in processes of "
        "their own. tst-send, go-lumber's client, makes JSON of events of its own, somewhat smaller ones; tst-lj, its "
        "server, parses that into maps and drops them. A replay sends windows that are made before. Frames: `wirescan "
        "receive`, each file synced before what is in it is acked; a file alone: the same bytes written in this "
        f"process, and synced behind every {live.PIPELINING} windows. Parquet: as frames, until all of it is in "
        "Parquet, too, and the process has ended.", "",
        table(["", "events/s", "times go-lumber"],
              [[name, number(1e9 / times.median(name)), number(times.ratio(GO_LUMBER, name)[0])]
               for name in times.contenders]))


def beside_first(times: Times) -> dict[str, str]:
    """Every contender against the first."""
    first, *others = times.contenders
    return dict.fromkeys(others, first)
