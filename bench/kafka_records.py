"""Kafka record data: wirescan beside a copy of the same bytes, beside its peers, and beside the codecs alone."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import cramjam
import numpy as np

from bench import data, memory
from bench.measure import Contender, Times, interleave, timed
from bench.peers import clients, java
from bench.report import Report, number, table, timings
from wirescan import kafka
from wirescan.table import FrameTable

MIB = 1 << 20
COPY = "buf.copy()"
FULL = {"size": 256 * MIB, "rounds": 15}
QUICK = {"size": 4 * MIB, "rounds": 2}
AIOKAFKA_SLICE, KAFKA_PYTHON_SLICE = 64 * MIB, 8 * MIB
PACKAGES = ["numpy", "cramjam", "aiokafka", "kafka-python"]
CODECS = ["lz4", "zstd", "gzip", "snappy"]
BESIDE_PEERS = ["lz4", "zstd"]
INFLATE = {                     # the codec alone, from the payload as it lies in a batch
    "lz4": cramjam.lz4.decompress_into,
    "zstd": cramjam.zstd.decompress_into,
    "gzip": cramjam.gzip.decompress_into,
    "snappy": lambda payload, out: cramjam.snappy.decompress_raw_into(payload[20:], out),   # one block, after a header
}


class Segment:
    """A workload in memory, and contenders over it."""

    def __init__(self, magic: int, codec: str, plain: int):
        self.work = data.segment(magic, codec, plain)
        self.bytes = np.fromfile(self.work.path, np.uint8)
        self.batches = kafka.scan(self.bytes, check=False)

    def contender(self, name: str, call: Callable[[], Any], rehearse: bool = True) -> Contender:
        return Contender(name, timed(call, rehearse), self.work.records, self.work.plain)

    def records(self, name: str, check: bool) -> Contender:
        """From bytes to rows of records."""
        return self.contender(name, lambda: kafka.records(kafka.scan(self.bytes, check=check), check=check))

    def client(self, name: str, read: Callable[[bytes, bool], int], check: bool, most: int) -> Contender:
        """A Python client over the first bytes, up to a batch's end."""
        ends = self.batches["start"] + self.batches["size"]
        within = max(1, int(np.searchsorted(ends, most, "right")))
        raw = self.bytes[:int(ends[within - 1])].tobytes()
        count = len(kafka.records(kafka.scan(raw)))
        if read(raw, True) != count:
            raise ValueError(f"{name} finds another number of records")
        plain = self.work.plain * count // self.work.records
        return Contender(name, timed(lambda: read(raw, check), rehearse=False), count, plain)

    def iterate(self) -> java.Iterate:
        return java.Iterate(self.work.path, self.work.records)

    def java(self, name: str, peer: java.Iterate, check: bool) -> Contender:
        return Contender(name, lambda: peer.seconds(check), self.work.records, self.work.plain)


def run(size: int, rounds: int) -> str:
    """The whole part as markdown. size: bytes of records in a segment, before compression."""
    plain = Segment(2, "none", size)
    report = Report("Kafka record data")
    shape = plain.work
    report.say(
        f"Segments of {shape.records:,} records of {shape.plain / shape.records - 61 / data.IN_BATCH:.0f} bytes in "
        f"{shape.batches:,} batches of {shape.plain / shape.batches / 1024:.1f} KiB, {shape.plain / MIB:.0f} MiB "
        "before compression; in memory, warm, one thread. GB/s is of bytes before compression; ratios are medians of "
        "the rounds' own ratios.")
    copies(report, plain, rounds)
    batches_only(report, plain, rounds)
    peers(report, plain, max(2, rounds // 3))
    compressed(report, plain, size, max(2, rounds // 2))
    legacy(report, size, max(2, rounds // 3))
    return report.markdown([*PACKAGES, f"kafka-clients {java.client_version()}"])


def copies(report: Report, plain: Segment, rounds: int) -> None:
    """Against moving the same bytes."""
    into, warm = touched(plain.work.records + 1, kafka.RECORD), touched(len(plain.bytes), np.uint8)
    times = interleave([
        plain.contender(COPY, plain.bytes.copy),
        plain.contender("records", lambda: kafka.records(plain.batches, check=False)),
        in_new_memory(plain),
        plain.contender("records, checksums", lambda: kafka.records(plain.batches)),
        plain.records("batches and records, checksums", True),
        plain.records("batches and records", False),
        plain.contender("copy into warm memory", lambda: np.copyto(warm, plain.bytes)),
        plain.contender("records into warm rows", lambda: kafka.records(plain.batches, check=False, into=into)),
    ], rounds)
    for name, what, bound in (("records", "`kafka.records`, own rows", 0.7),
                              ("records, checksums", "`kafka.records` with checksums", 1.0),
                              ("batches and records, checksums", "`kafka.scan` with checksums, `kafka.records`", 1.0)):
        report.at_most(f"{what}, of `{COPY}`", bound, times.ratio(name, COPY))
    report.at_most("`kafka.records(into=)`, of a copy into warm memory", 0.9,
                   times.ratio("records into warm rows", "copy into warm memory"))
    against = dict.fromkeys(times.contenders, COPY)
    against |= {COPY: "", "copy into warm memory": "", "records into warm rows": "copy into warm memory"}
    report.say("### Magic 2, uncompressed, beside a copy", "",
               "wirescan keeps the memory of the last tables that were freed for the next ones, as long as the system "
               "does not need it; while many tables live, a call gets memory that is new to the process. Checksums are "
               "verified by `kafka.records` in one pass where `kafka.scan` did not.", "",
               timings(times, against))


def in_new_memory(segment: Segment) -> Contender:
    """kafka.records, but while more tables live than wirescan keeps the memory of."""
    def records() -> FrameTable:
        return kafka.records(segment.batches, check=False)

    def seconds() -> float:
        older = [records() for _ in range(5)]
        touched(len(older[0]), kafka.RECORD)        # given back at once: what `timed` rehearses for
        spent = timed(records, rehearse=False)()
        del older
        return spent
    return Contender("records, in memory new to the process", seconds, segment.work.records, segment.work.plain)


def touched(count: int, dtype: Any) -> np.ndarray:
    """An array whose memory is there: the system gives it at the first write."""
    array = np.empty(count, dtype)
    array.view(np.uint8).fill(1)
    return array


def batches_only(report: Report, plain: Segment, rounds: int) -> None:
    """What planning costs, and the memory that a scan takes."""
    count = plain.work.batches
    into = touched(count + 1, kafka.BATCH)
    size = int(plain.batches.consumed)
    times = interleave([
        over_and_over("batches", lambda: kafka.scan(plain.bytes, check=False), count, size),
        over_and_over("batches into warm rows", lambda: kafka.scan(plain.bytes, check=False, into=into), count, size),
    ], rounds)
    through = interleave([
        Contender("batches, checksums", timed(lambda: kafka.scan(plain.bytes)), count, size),
        Contender("cold", timed(lambda: kafka.scan(plain.bytes, check=False), rehearse=False), count, size),
    ], rounds)
    report.at_most("batches only, warm", 100, times.quartiles("batches"), " ns")
    seen = memory.measured(plain.work.path)
    report.at_most("peak memory of a scan of a mapped file, of its rows", 1.1, (seen["peak"] / seen["rows"],))
    report.say("### Batches only", "", timings(times, unit="batch"), "",
               f"With checksums {number(through.median('batches, checksums'))} ns per batch; without, but right after "
               "those, which leave none of the headers in the processor's caches, "
               f"{number(through.median('cold'))} ns.",
               "",
               f"A mapped file of {os.path.getsize(plain.work.path) / MIB:.0f} MiB, batches and records: rows of "
               f"{seen['rows'] / MIB:.0f} MiB, memory at its highest {seen['peak'] / MIB:.0f} MiB above the start.")


def over_and_over(name: str, call: Callable[[], Any], units: int, size: int, turns: int = 20) -> Contender:
    """What is done in so short a time that a single call would tell of the caches that the one before it left."""
    def calls() -> None:
        for _ in range(turns):
            call()
    return Contender(name, timed(calls), turns * units, turns * size)


def peers(report: Report, plain: Segment, rounds: int) -> None:
    """Against other readers of records, with and without checksums on both sides."""
    with closing(plain.iterate()) as peer:
        times = interleave(readers(plain, peer), rounds)
    for name, bound in (("aiokafka", 12), ("kafka-python", 250), ("kafka-clients (Java)", 3)):
        report.at_least(f"times as fast as {name}, no checksums", bound, times.ratio(name, "wirescan"))
    report.say("### Magic 2, uncompressed, beside peers", "",
               "From bytes to records: every record's offset, timestamp, key and value. wirescan's time is that of "
               "batches and records. The Python clients read a part of the segment.", "",
               timings(times, beside_wirescan(times)))


def readers(segment: Segment, peer: java.Iterate) -> list[Contender]:
    """wirescan and its peers, without checksums and with."""
    found = []
    for check, how in ((False, ""), (True, ", checksums")):
        found += [
            segment.records(f"wirescan{how}", check),
            segment.java(f"kafka-clients (Java){how}", peer, check),
            segment.client(f"aiokafka{how}", clients.aiokafka_records, check, AIOKAFKA_SLICE),
            segment.client(f"kafka-python{how}", clients.kafka_python_records, check, KAFKA_PYTHON_SLICE),
        ]
    return found


def beside_wirescan(times: Times) -> dict[str, str]:
    """Each peer's counterpart: wirescan, with checksums where it has them; and wirescan's is a copy if there is one."""
    against = {name: "wirescan" + ", checksums" * name.endswith(", checksums") for name in times.contenders}
    copy = COPY if COPY in against else ""
    return against | {COPY: "", "wirescan": copy, "wirescan, checksums": copy}


def compressed(report: Report, plain: Segment, size: int, rounds: int) -> None:
    """Against the codec alone and the same records uncompressed; for some codecs beside the peers too."""
    rows, beside = [], []
    for codec in CODECS:
        segment = Segment(2, codec, size)
        payloads = [bytes(segment.batches.payload(i)) for i in range(len(segment.batches))]
        out = touched(size + MIB, np.uint8)
        times = interleave([
            plain.contender("uncompressed", lambda: kafka.records(plain.batches, check=False)),
            segment.contender("codec", lambda: inflate(INFLATE[codec], payloads, memoryview(out))),
            segment.contender("records", lambda: kafka.records(segment.batches, check=False)),
            segment.records("batches and records, checksums", True),
        ], rounds)
        ratio = times.ratio("records", ("codec", "uncompressed"))
        report.at_most(f"{codec}: `kafka.records`, of the codec's own time and the uncompressed scan", 1.25, ratio)
        rows.append([codec, f"{segment.work.plain / len(segment.bytes):.1f}", number(times.median("codec")),
                     number(times.median("uncompressed")), number(times.median("records")), number(ratio[0]),
                     number(times.median("batches and records, checksums")), number(times.rate("records"))])
        if codec in BESIDE_PEERS:
            beside += ["", f"### Magic 2, {codec}, beside peers", "", beside_peers(segment, max(2, rounds // 2))]
    report.say("### Magic 2, compressed", "",
               "The codec alone: a loop of cramjam's `decompress_into` over the same payloads, one after another "
               "into warm memory. The ratio is of records to the codec alone and the uncompressed records "
               "together. Nanoseconds per record.", "",
               table(["", "compressed", "codec alone", "uncompressed records", "records", "ratio",
                      "batches and records, checksums", "GB/s of records"], rows), *beside)


def inflate(decompress_into: Callable[[bytes, memoryview], int], payloads: list[bytes], out: memoryview) -> None:
    at = 0
    for payload in payloads:
        at += decompress_into(payload, out[at:])


def legacy(report: Report, size: int, rounds: int) -> None:
    """Magic 1: every message with a checksum of its own, alone or in wrappers."""
    for codec, title in (("none", "uncompressed messages"), ("lz4", "lz4 wrappers")):
        segment = Segment(1, codec, size)
        copy = [segment.contender(COPY, segment.bytes.copy)] if codec == "none" else []
        report.say(f"### Magic 1, {title}", "", beside_peers(segment, rounds, copy))


def beside_peers(segment: Segment, rounds: int, copy: Sequence[Contender] = ()) -> str:
    """A table of wirescan and its peers, and of what else is given."""
    with closing(segment.iterate()) as peer:
        times = interleave([*copy, *readers(segment, peer)], rounds)
    return timings(times, beside_wirescan(times))
