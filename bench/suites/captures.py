"""Captures of packets: packets, connections, and the requests and records of Kafka in them.

They are compared with dpkt, with tshark's fields, and with the reading of bytes that are in order.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import wirescan
from bench.report import Report, format_timings
from bench.timing import Contender, interleave, time_call
from bench.workloads.captures import (
    BROKER_PORT,
    LUMBERJACK_PORT,
    NATS_PORT,
    PACKETS_EACH,
    make_capture,
    make_exchanges,
    make_publishes,
    make_short_connections,
    make_windows,
)
from wirescan import FrameTable, kafka, pcap
from wirescan.core.parallel import FixedWorkers
from wirescan.reading.chunked import iter_tables

FULL = {
    "count": 1_100_000,
    "part": 20_000,
    "most_connections": 1_000_000,
    "exchanges": 200_000,
    "inside": 200_000,
    "rounds": 5,
}
QUICK = {
    "count": 4_000,
    "part": 1_000,
    "most_connections": 2_000,
    "exchanges": 4_000,
    "inside": 4_000,
    "rounds": 2,
}
CONNECTIONS = 64
FORMAT = "kafka.requests"
RECORDS = "dpkt, records"
LAYERS = "dpkt, Ethernet, IP, TCP"
TSHARK = "tshark -T fields"
IN_ORDER = "kafka.records of the bytes in order"
IN_CAPTURE = "kafka.records in the capture"
FIELDS = (
    "frame.time_epoch",
    "ip.src",
    "kafka.topic_name",
    "kafka.partition_id",
    "kafka.message_timestamp",
    "kafka.message_key",
    "kafka.message_value",
)
PACKAGES = ["numpy", "dpkt"]
# format: (the function that makes what packets have, the port)
INSIDE = {
    "lumberjack.frames": (make_windows, LUMBERJACK_PORT),
    "nats.messages": (make_publishes, NATS_PORT),
}


def read_records(raw: bytes) -> int:
    """Read the records of a capture with dpkt."""
    import dpkt

    return sum(1 for _ in dpkt.pcap.Reader(BytesIO(raw)))


def read_layers(raw: bytes) -> int:
    """Read the records of a capture with dpkt, up to TCP."""
    import dpkt

    total = 0
    for _, data in dpkt.pcap.Reader(BytesIO(raw)):
        total += len(dpkt.ethernet.Ethernet(data).data.data.data)
    return total


def time_tshark(raw: bytes, count: int) -> float:
    """Return the seconds in which tshark prints the fields of the records in a capture."""
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(raw)
        file.flush()
        command = ["tshark", "-r", file.name, "-d", f"tcp.port=={BROKER_PORT},kafka"]
        command += ["-T", "fields", *(word for name in FIELDS for word in ("-e", name))]
        start = time.perf_counter()
        result = subprocess.run(command, capture_output=True, check=True)
        seconds = time.perf_counter() - start
    # A version of Produce that tshark does not know has packets, but no fields of records.
    if result.stdout.count(b"\torders\t0\t") != count:
        raise ValueError("tshark does not find the records")
    return seconds


def read_pieces(
    path: str, format: str = "kafka.records", errors: str = "strict", workers: int = 1
) -> int:
    """Read the frames of a capture in pieces."""
    with FixedWorkers(workers):
        tables = iter_tables(path, format=f"{format}?capture=true", mapped=True, errors=errors)
        return sum(len(table) for table in tables)


def read_in_order(data: bytes) -> FrameTable:
    """Read the records of Produce requests that are in order."""
    bodies = kafka.body(kafka.requests(data), "Produce")
    return kafka.records(kafka.scan(bodies.open("topic_data").open("partition_data")))


def run(
    count: int, part: int, most_connections: int, exchanges: int, inside: int, rounds: int
) -> str:
    """Return the section as markdown.

    count: number of packets. part: number of packets for slow readers. most_connections: of the
    capture with many connections. exchanges: number of requests of a capture with their responses.
    inside: number of packets of a capture that begins inside connections.
    """
    report = Report("Captures")
    raw, streams = make_capture(count, CONNECTIONS)
    some, _ = make_capture(part, CONNECTIONS)
    report.say(
        f"A pcap file of {count:,} packets of {len(raw) / count:.0f} bytes, in memory, warm, "
        f"of {CONNECTIONS} connections. Each packet has one Produce request with one batch of "
        f"{len(wirescan.scan(some, 'kafka.records')) / part:.1f} records. dpkt and tshark read "
        f"{part:,} packets. tshark's time includes its start. Ratios are medians of the rounds' "
        "ratios."
    )
    measure_readers(report, raw, some, streams, count, part, rounds)
    measure_connections(report, raw, count, most_connections, rounds)
    measure_exchanges(report, exchanges, rounds)
    measure_inside(report, inside, rounds)
    return report.markdown(PACKAGES)


def measure_readers(
    report: Report,
    raw: bytes,
    some: bytes,
    streams: list[bytes],
    count: int,
    part: int,
    rounds: int,
) -> None:
    """Read packets and requests, beside other programs and the scan of bytes in order."""
    if read_records(some) != part or read_layers(some) == 0:
        raise ValueError("dpkt does not find the packets")
    if not len(wirescan.scan(raw, FORMAT)) == len(kafka.requests(streams)) == count:
        raise ValueError("the requests of the capture are not those of the streams")
    joined = b"".join(streams)
    if len(wirescan.scan(raw, "kafka.records")) != len(read_in_order(joined)):
        raise ValueError("the records of the capture are not those of the streams")
    blocks = pcap.scan(raw)

    def contend(name: str, call: Any, units: int = count, size: int = len(raw)) -> Contender:
        return Contender(name, time_call(call), units, size)

    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(raw)
        file.flush()
        contenders = [
            contend("pcap.scan", lambda: pcap.scan(raw)),
            contend("pcap.packets", lambda: pcap.packets(blocks)),
            contend("kafka.requests in the capture", lambda: wirescan.scan(raw, FORMAT)),
            contend(IN_CAPTURE, lambda: wirescan.scan(raw, "kafka.records")),
            contend("the same in pieces of a mapped file", lambda: read_pieces(file.name)),
            contend(IN_ORDER, lambda: read_in_order(joined), size=len(joined)),
            contend("kafka.requests in order", lambda: kafka.requests(joined), size=len(joined)),
            contend("copy of the capture", lambda: np.frombuffer(raw, np.uint8).copy()),
            contend(RECORDS, lambda: read_records(some), part, len(some)),
            contend(LAYERS, lambda: read_layers(some), part, len(some)),
            Contender(TSHARK, lambda: time_tshark(some, part), part, len(some)),
        ]
        times = interleave(contenders, rounds)
    report.at_least(
        "packets to rows, times as fast as dpkt's reader", 20, times.ratio(RECORDS, "pcap.scan")
    )
    report.at_least(
        "with Ethernet, IP and TCP, times as fast as dpkt",
        50,
        times.ratio(LAYERS, ("pcap.scan", "pcap.packets")),
    )
    report.at_least(
        "records of Kafka, times as fast as tshark's fields",
        200,
        times.ratio(TSHARK, IN_CAPTURE),
    )
    report.at_most(
        "records of Kafka, times the reading of the bytes in order",
        1.6,
        times.ratio(IN_CAPTURE, IN_ORDER),
    )
    against = {
        RECORDS: "pcap.scan",
        LAYERS: "pcap.packets",
        TSHARK: IN_CAPTURE,
        IN_CAPTURE: IN_ORDER,
        "kafka.requests in the capture": "kafka.requests in order",
        "pcap.scan": "copy of the capture",
    }
    report.say("### Readers", "", format_timings(times, against, "packet"))


def measure_connections(
    report: Report, raw: bytes, count: int, most_connections: int, rounds: int
) -> None:
    """Read the requests of many connections, beside those of few."""
    many, streams = make_capture(count, most_connections)
    if len(wirescan.scan(many, "pcap.flows")) != len(streams):
        raise ValueError("the connections are not found")
    few = f"{CONNECTIONS} connections"
    most = f"{most_connections:,} connections"
    contenders = [
        Contender(name, time_call(lambda data=data: wirescan.scan(data, FORMAT)), count, len(data))
        for name, data in ((few, raw), (most, many))
    ]
    times = interleave(contenders, rounds)
    report.at_most(f"requests of {most}, times those of {CONNECTIONS}", 3, times.ratio(most, few))
    report.say("### Connections", "", format_timings(times, {most: few}, "packet"))


def measure_exchanges(report: Report, count: int, rounds: int) -> None:
    """Read a capture of requests and their responses, whole and in pieces."""
    raw, packets = make_exchanges(count, CONNECTIONS)
    whole = wirescan.scan(raw, "kafka.records")
    if len(wirescan.scan(raw, "kafka.exchanges")) != count:
        raise ValueError("not all requests have their responses")
    contenders = []
    against = {}
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(raw)
        file.flush()
        if read_pieces(file.name) != len(whole):
            raise ValueError("pieces do not have the records of the whole")
        formats = ("kafka.requests", "kafka.responses", "kafka.records", "kafka.exchanges")
        for format, workers in product(formats, (1, 2)):
            threads = ", two threads" if workers == 2 else ""
            scan = partial(wirescan.scan, raw, format, workers=workers)
            contenders.append(Contender(format + threads, time_call(scan), packets, len(raw)))
            if threads:
                against[format + threads] = format
            if format == "kafka.exchanges":
                continue
            read = partial(read_pieces, file.name, format, workers=workers)
            name = f"{format}, in pieces"
            contenders.append(Contender(name + threads, time_call(read), packets, len(raw)))
            against[name + threads] = name if threads else format
        times = interleave(contenders, rounds)
    report.say(
        "### Requests and responses",
        "",
        f"{count:,} requests of {CONNECTIONS} connections and their responses, in {packets:,} "
        f"packets of {len(raw) / packets:.0f} bytes with {len(whole) / packets:.1f} records. Half "
        "of the connections produce, and half fetch responses of several packets. Pieces "
        "are read from a mapped file.",
        "",
        format_timings(times, against, "packet"),
    )


def measure_inside(report: Report, count: int, rounds: int) -> None:
    """Read captures that begin inside the first frames of their connections."""
    contenders = []
    against = {}
    with tempfile.TemporaryDirectory() as directory:
        for format in INSIDE:
            begun = make_inside_contenders(format, count, directory, has_beginning=True)
            inside = make_inside_contenders(format, count, directory, has_beginning=False)
            against |= {own.name: other.name for own, other in zip(inside, begun)}
            contenders += [*begun, *inside]
        times = interleave(contenders, rounds)
    for own, other in against.items():
        report.at_most(f"{own}, times that with beginnings", 3, times.ratio(own, other))
    report.say(
        "### Captures that begin inside connections",
        "",
        f"{count:,} packets with several frames, {PACKETS_EACH} of each connection. The first "
        "frame of each connection is cut, and the next one is searched for.",
        "",
        format_timings(times, against, "packet"),
    )


def make_inside_contenders(
    format: str, count: int, directory: str, *, has_beginning: bool
) -> list[Contender]:
    """Return contenders that read a capture, whole and in pieces of a mapped file."""
    make_payloads, port = INSIDE[format]
    raw = make_short_connections(make_payloads(), port, count, has_beginning=has_beginning)
    if int(wirescan.scan(raw, format, errors="mark").bad.sum()) != (
        0 if has_beginning else count // PACKETS_EACH
    ):
        raise ValueError("not all frames behind the first ones are found")
    name = f"{format}, {'with beginnings' if has_beginning else 'begun inside'}"
    path = Path(directory) / f"{name}.pcap"
    path.write_bytes(raw)
    scan = time_call(lambda: wirescan.scan(raw, format, errors="mark"))
    read = time_call(lambda: read_pieces(str(path), format, "mark"))
    return [
        Contender(name, scan, count, len(raw)),
        Contender(f"{name}, in pieces", read, count, len(raw)),
    ]
