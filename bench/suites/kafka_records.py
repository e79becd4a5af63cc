"""Kafka record data: wirescan compared with a copy of the bytes, with peers, and with codecs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import cramjam
import numpy as np

import wirescan
from bench import memory
from bench.peers import clients, compiled, java
from bench.report import Report, format_number, format_table, format_timings
from bench.timing import Contender, Times, interleave, time_call
from bench.workloads import records_and_events
from wirescan import kafka
from wirescan.frames.table import FrameTable

MIB = 1 << 20
COPY = "buf.copy()"
FULL = {"size": 256 * MIB, "rounds": 15}
QUICK = {"size": 4 * MIB, "rounds": 2}
AIOKAFKA_SLICE, KAFKA_PYTHON_SLICE = 64 * MIB, 8 * MIB
PACKAGES = ["numpy", "cramjam", "aiokafka", "kafka-python"]
CODECS = ["lz4", "zstd", "gzip", "snappy"]
BESIDE_PEERS = ["lz4", "zstd"]


def decompress_snappy(payload: bytes, out: memoryview) -> int:
    """Decompress a payload of Java's snappy: a header of 20 bytes and one block."""
    return cramjam.snappy.decompress_raw_into(payload[20:], out)


DECOMPRESS = {  # the codec alone, from the payload of a batch
    "lz4": cramjam.lz4.decompress_into,
    "zstd": cramjam.zstd.decompress_into,
    "gzip": cramjam.gzip.decompress_into,
    "snappy": decompress_snappy,
}


class Segment:
    """A workload in memory, and contenders over it."""

    def __init__(self, magic: int, codec: str, plain: int):
        self.magic = magic
        self.work = records_and_events.write_segment(magic, codec, plain)
        self.bytes = np.fromfile(self.work.path, np.uint8)
        self.batches = kafka.scan(self.bytes, check=False)

    def contender(self, name: str, call: Callable[[], Any], *, rehearse: bool = True) -> Contender:
        seconds = time_call(call, rehearse=rehearse)
        return Contender(name, seconds, self.work.records, self.work.plain)

    def records(self, name: str, *, check: bool) -> Contender:
        """Time wirescan from bytes to rows of records."""
        return self.contender(
            name,
            lambda: wirescan.scan(self.bytes, "kafka.records", check=check, workers=1),
        )

    def client(self, name: str, read: Callable[..., int], most: int, *, check: bool) -> Contender:
        """Time a Python client over whole batches of at most the first `most` bytes."""
        ends = self.batches["start"] + self.batches["size"]
        within = max(1, int(np.searchsorted(ends, most, "right")))
        raw = self.bytes[: int(ends[within - 1])].tobytes()
        count = len(kafka.records(kafka.scan(raw)))
        if read(raw, check=True) != count:
            raise ValueError(f"{name} finds another number of records")
        plain = self.work.plain * count // self.work.records
        seconds = time_call(lambda: read(raw, check=check), rehearse=False)
        return Contender(name, seconds, count, plain)

    def iterate(self) -> java.Iterate:
        return java.Iterate(self.work.path, self.work.records)

    def java(self, name: str, peer: java.Iterate, *, check: bool) -> Contender:
        def seconds() -> float:
            return peer.seconds(check=check)

        return Contender(name, seconds, self.work.records, self.work.plain)

    def start_decoders(self) -> list[compiled.Program]:
        """Start the programs in Go and Rust, which read only magic 2."""
        expected = compiled.sum_records([kafka.records(self.batches, check=False)])
        return compiled.start_decoders(self.work.path, expected)

    def decoder(self, name: str, program: compiled.Program, *, check: bool) -> Contender:
        def seconds() -> float:
            return program.seconds(check=check)

        return Contender(name, seconds, self.work.records, self.work.plain)


def run(size: int, rounds: int) -> str:
    """Return the section as markdown. size: bytes of records in a segment, before compression."""
    plain = Segment(2, "none", size)
    report = Report("Kafka record data")
    shape = plain.work
    header_share = 61 / records_and_events.IN_BATCH  # bytes of a batch header per record
    record_size = shape.plain / shape.records - header_share
    report.say(
        f"Segments of {shape.records:,} records of {record_size:.0f} bytes in {shape.batches:,} "
        f"batches of {shape.plain / shape.batches / 1024:.1f} KiB, {shape.plain / MIB:.0f} MiB "
        "before compression. They are in memory, warm, and read by one thread. GB/s counts bytes "
        "before compression. Ratios are medians of the rounds' ratios."
    )
    measure_copies(report, plain, rounds)
    measure_batches(report, plain, rounds)
    measure_peers(report, plain, max(2, rounds // 3))
    measure_compressed(report, plain, size, max(2, rounds // 2))
    measure_legacy(report, size, max(2, rounds // 3))
    decoders = compiled.list_versions(compiled.build_decoders())
    return report.markdown([*PACKAGES, f"kafka-clients {java.read_client_version()}", *decoders])


def measure_copies(report: Report, plain: Segment, rounds: int) -> None:
    """Compare with a copy of the same bytes."""
    into = allocate_touched(plain.work.records + 1, kafka.RECORD)
    warm = allocate_touched(len(plain.bytes), np.uint8)
    times = interleave(
        [
            plain.contender(COPY, plain.bytes.copy),
            plain.contender("records", lambda: kafka.records(plain.batches, check=False)),
            measure_in_new_memory(plain),
            plain.contender("records, checksums", lambda: kafka.records(plain.batches)),
            plain.records("batches and records, checksums", check=True),
            plain.records("batches and records", check=False),
            plain.contender("copy into warm memory", lambda: np.copyto(warm, plain.bytes)),
            plain.contender(
                "records into warm rows",
                lambda: kafka.records(plain.batches, check=False, into=into),
            ),
        ],
        rounds,
    )
    for name, calls, bound in (
        ("records", "`kafka.records`, own rows", 0.7),
        ("records, checksums", "`kafka.records` with checksums", 1.0),
        ("batches and records, checksums", "`wirescan.scan` of records, checksums", 1.0),
    ):
        report.at_most(f"{calls}, of `{COPY}`", bound, times.ratio(name, COPY))
    report.at_most(
        "`kafka.records(into=)`, of a copy into warm memory",
        0.9,
        times.ratio("records into warm rows", "copy into warm memory"),
    )
    against = dict.fromkeys(times.contenders, COPY)
    against |= {
        COPY: "",
        "copy into warm memory": "",
        "records into warm rows": "copy into warm memory",
    }
    report.say(
        "### Magic 2, uncompressed, beside a copy",
        "",
        "wirescan keeps the memory of freed tables for the next ones, as long as the system does "
        "not need it. While many tables live, a call gets memory that is new to the process. "
        "`kafka.records` verifies the checksums that `kafka.scan` did not, in the same pass.",
        "",
        format_timings(times, against),
    )


def measure_in_new_memory(segment: Segment) -> Contender:
    """Time kafka.records while so many tables live that no kept memory is left."""

    def records() -> FrameTable:
        return kafka.records(segment.batches, check=False)

    def seconds() -> float:
        older = [records() for _ in range(5)]
        allocate_touched(
            len(older[0]), kafka.RECORD
        )  # freed at once, like the rehearsal of `timed`
        spent = time_call(records, rehearse=False)()
        del older
        return spent

    return Contender(
        "records, in memory new to the process", seconds, segment.work.records, segment.work.plain
    )


def allocate_touched(count: int, dtype: Any) -> np.ndarray:
    """Return an array whose pages are mapped. The system maps a page at its first write."""
    array = np.empty(count, dtype)
    array.view(np.uint8).fill(1)
    return array


def measure_batches(report: Report, plain: Segment, rounds: int) -> None:
    """Measure the cost of planning, and the memory of a scan."""
    count = plain.work.batches
    into = allocate_touched(count + 1, kafka.BATCH)
    size = int(plain.batches.consumed)
    times = interleave(
        [
            time_repeatedly("batches", lambda: kafka.scan(plain.bytes, check=False), count, size),
            time_repeatedly(
                "batches into warm rows",
                lambda: kafka.scan(plain.bytes, check=False, into=into),
                count,
                size,
            ),
        ],
        rounds,
    )
    cold_times = interleave(
        [
            Contender(
                "batches, checksums", time_call(lambda: kafka.scan(plain.bytes)), count, size
            ),
            Contender(
                "cold",
                time_call(lambda: kafka.scan(plain.bytes, check=False), rehearse=False),
                count,
                size,
            ),
        ],
        rounds,
    )
    report.at_most("batches only, warm", 100, times.quartiles("batches"), " ns")
    used = memory.measure(plain.work.path)
    report.at_most(
        "peak memory of a scan of a mapped file, of its rows", 1.1, (used["peak"] / used["rows"],)
    )
    checked = cold_times.median("batches, checksums")
    unchecked = cold_times.median("cold")
    report.say(
        "### Batches only",
        "",
        format_timings(times, unit="batch"),
        "",
        f"A batch takes {format_number(checked)} ns with checksums. Without checksums, it takes "
        f"{format_number(unchecked)} ns right after a pass with checksums, which leaves no headers "
        "in the processor's caches.",
        "",
        f"A mapped file of {os.path.getsize(plain.work.path) / MIB:.0f} MiB, batches and records: "
        f"the rows have {used['rows'] / MIB:.0f} MiB, and the peak memory is "
        f"{used['peak'] / MIB:.0f} MiB above the start.",
    )


def time_repeatedly(
    name: str, call: Callable[[], Any], units: int, size: int, turns: int = 20
) -> Contender:
    """Time several calls together, because one short call depends on the caches left before it."""

    def calls() -> None:
        for _ in range(turns):
            call()

    return Contender(name, time_call(calls), turns * units, turns * size)


def measure_peers(report: Report, plain: Segment, rounds: int) -> None:
    """Compare with other readers of records, with and without checksums on both sides."""
    times = time_readers(plain, rounds)
    for name, bound in (("aiokafka", 12), ("kafka-python", 250), ("kafka-clients (Java)", 3)):
        for how in (", checksums", ""):
            report.at_least(
                f"times as fast as {name}{how or ', no checksums'}",
                bound,
                times.ratio(name + how, "wirescan" + how),
            )
    report.say(
        "### Magic 2, uncompressed, beside peers",
        "",
        "From bytes to records: every record's offset, timestamp, key and value. wirescan's time "
        "includes batches and records, by `wirescan.scan`. The Python clients read a part of the "
        "segment. franz-go is the Go module: `kmsg.RecordBatch` and `kmsg.Record`, and the "
        "decompressor of `kgo`. kafka-protocol is the Rust crate: `RecordBatchDecoder`, which "
        "always verifies checksums. Every pass of these two has as many records, bytes of keys and "
        "bytes of values as wirescan, and the same last offset.",
        "",
        format_timings(times, pair_with_wirescan(times)),
    )
    for text in compiled.build_decoders().missing:
        report.say(text)


def time_readers(segment: Segment, rounds: int, more: Sequence[Contender] = ()) -> Times:
    """Time wirescan, its peers and other contenders."""
    with ExitStack() as stack:
        peer = stack.enter_context(closing(segment.iterate()))
        decoders = segment.start_decoders() if segment.magic == 2 else []
        for decoder in decoders:
            stack.enter_context(closing(decoder))
        return interleave([*more, *list_readers(segment, peer, decoders)], rounds)


def list_readers(
    segment: Segment, peer: java.Iterate, decoders: Sequence[compiled.Program]
) -> list[Contender]:
    """Return contenders for wirescan and its peers, without and with checksums."""
    contenders = []
    for check, how in ((False, ""), (True, ", checksums")):
        contenders += [
            segment.records(f"wirescan{how}", check=check),
            segment.java(f"kafka-clients (Java){how}", peer, check=check),
            segment.client(
                f"aiokafka{how}", clients.count_aiokafka_records, AIOKAFKA_SLICE, check=check
            ),
            segment.client(
                f"kafka-python{how}",
                clients.count_kafka_python_records,
                KAFKA_PYTHON_SLICE,
                check=check,
            ),
        ]
        contenders += [
            segment.decoder(decoder.name + how, decoder, check=check)
            for decoder in decoders
            if check or decoder.name not in compiled.ALWAYS_CHECKS
        ]
    return contenders


def pair_with_wirescan(times: Times) -> dict[str, str]:
    """Map each peer to wirescan, with checksums if the peer has them; and wirescan to a copy."""
    against = {
        name: "wirescan" + ", checksums" * name.endswith(", checksums") for name in times.contenders
    }
    copy = COPY if COPY in against else ""
    return against | {COPY: "", "wirescan": copy, "wirescan, checksums": copy}


def measure_compressed(report: Report, plain: Segment, size: int, rounds: int) -> None:
    """Compare with the codec alone and with uncompressed records, and some codecs with peers."""
    rows = []
    beside = []
    for codec in CODECS:
        segment = Segment(2, codec, size)
        payloads = [bytes(segment.batches.payload(i)) for i in range(len(segment.batches))]
        out = allocate_touched(size + MIB, np.uint8)
        times = interleave(
            [
                plain.contender("uncompressed", lambda: kafka.records(plain.batches, check=False)),
                segment.contender(
                    "codec", lambda: decompress_all(DECOMPRESS[codec], payloads, memoryview(out))
                ),
                segment.contender(
                    "records", lambda: kafka.records(segment.batches, check=False, workers=1)
                ),
                segment.records("batches and records, checksums", check=True),
            ],
            rounds,
        )
        ratio = times.ratio("records", ("codec", "uncompressed"))
        report.at_most(
            f"{codec}: `kafka.records`, of the codec's own time and the uncompressed scan",
            1.25,
            ratio,
        )
        rows.append(
            [
                codec,
                f"{segment.work.plain / len(segment.bytes):.1f}",
                format_number(times.median("codec")),
                format_number(times.median("uncompressed")),
                format_number(times.median("records")),
                format_number(ratio[0]),
                format_number(times.median("batches and records, checksums")),
                format_number(times.rate("records")),
            ]
        )
        if codec in BESIDE_PEERS:
            beside += [
                "",
                f"### Magic 2, {codec}, beside peers",
                "",
                measure_with_peers(segment, max(2, rounds // 2)),
            ]
    report.say(
        "### Magic 2, compressed",
        "",
        "The codec alone is a loop of cramjam's `decompress_into` over the same payloads, into "
        "warm memory. The ratio is the time of records to the times of the codec alone and the "
        "uncompressed records together. Times are nanoseconds per record.",
        "",
        format_table(
            [
                "",
                "compressed",
                "codec alone",
                "uncompressed records",
                "records",
                "ratio",
                "batches and records, checksums",
                "GB/s of records",
            ],
            rows,
        ),
        *beside,
    )


def decompress_all(
    decompress_into: Callable[[bytes, memoryview], int], payloads: list[bytes], out: memoryview
) -> None:
    """Decompress payloads one after another into one buffer."""
    at = 0
    for payload in payloads:
        at += decompress_into(payload, out[at:])


def measure_legacy(report: Report, size: int, rounds: int) -> None:
    """Read magic 1: every message has its own checksum, alone or in wrappers."""
    for codec, title in (("none", "uncompressed messages"), ("lz4", "lz4 wrappers")):
        segment = Segment(1, codec, size)
        copy = [segment.contender(COPY, segment.bytes.copy)] if codec == "none" else []
        report.say(f"### Magic 1, {title}", "", measure_with_peers(segment, rounds, copy))


def measure_with_peers(segment: Segment, rounds: int, copy: Sequence[Contender] = ()) -> str:
    """Return a table of wirescan, its peers and the given contenders."""
    times = time_readers(segment, rounds, copy)
    return format_timings(times, pair_with_wirescan(times))
