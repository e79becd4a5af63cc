"""Small calls: the time to scan a buffer of about 200 bytes, and to feed it to a stream."""

from __future__ import annotations

import json
import struct
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import wirescan
from bench.peers.clients import count_aiokafka_records, count_kafka_python_records
from bench.report import Report, format_timings
from bench.timing import Contender, interleave
from wirescan import kafka, liftbridge, lumberjack, nats, thrift

FULL = {"calls": 20_000, "rounds": 15}
QUICK = {"calls": 100, "rounds": 2}
PACKAGES = ["numpy", "aiokafka", "kafka-python"]
VALUE = b"v" * 100
FEED = "Stream.feed"
SCAN_NS = 1500
FEED_NS = 3000
PEERS = {"aiokafka": count_aiokafka_records, "kafka-python": count_kafka_python_records}


def run(calls: int, rounds: int) -> str:
    """Return the section as markdown. calls: number of calls of a contender in a round."""
    batch = kafka.encode_batch([kafka.Record(key=b"key", value=VALUE)])
    document = json.dumps({"message": VALUE.decode()}).encode()
    event = struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, len(document)) + document
    message = b"PUB subject 100\r\n" + VALUE + b"\r\n"
    call = struct.pack(">II4sIBHI", 0x80010001, 4, b"ping", 1, 11, 1, len(VALUE)) + VALUE + b"\0"
    frame = struct.pack(">I", len(call)) + call
    envelope = liftbridge.encode_message(value=VALUE)
    small_calls: dict[str, tuple[Callable[[], Any], bytes]] = {
        "kafka.scan": (partial(kafka.scan, batch), batch),
        "lumberjack.scan": (partial(lumberjack.scan, event), event),
        "nats.scan": (partial(nats.scan, message), message),
        "thrift.scan": (partial(thrift.scan, frame), frame),
        "liftbridge.scan": (partial(liftbridge.scan, envelope), envelope),
    }
    for name, data in (
        ("kafka.batches", batch),
        ("lumberjack.frames", event),
        ("nats.messages", message),
        ("thrift.frames", frame),
    ):
        small_calls[f"{FEED} of {name}"] = (partial(wirescan.stream(name).feed, data), data)
    for name, read in PEERS.items():
        small_calls[name] = (partial(read, batch, check=True), batch)
    times = interleave(
        [
            Contender(name, partial(timeit.timeit, call, number=calls), calls, len(data) * calls)
            for name, (call, data) in small_calls.items()
        ],
        rounds,
    )
    report = Report("Small calls")
    for name in small_calls:
        if name not in PEERS:
            bound = FEED_NS if name.startswith(FEED) else SCAN_NS
            report.at_most(name, bound, times.quartiles(name), " ns")
    report.say(
        "Each call gets one small buffer that holds whole frames. A call makes a table with its "
        "rows and stops. The Python clients read the batch of `kafka.scan` and its one record."
    )
    report.say(format_timings(times, unit="call"))
    return report.markdown(PACKAGES)
