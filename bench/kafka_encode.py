"""Kafka record data out of arrays: beside a copy of the same bytes, beside its peers, and beside the codecs alone."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka.record.default_records
import kafka.record.default_records
import numpy as np
import pyarrow as pa

from bench import data
from bench.measure import Contender, interleave, timed
from bench.report import Report, number, table, timings
from wirescan import arrow
from wirescan import kafka as ours
from wirescan.kafka.encode import codec_of
from wirescan.table import FrameTable

MIB = 1 << 20
COPY = "buf.copy()"
BATCH_BYTES = 16 << 10
FULL = {"size": 256 * MIB, "rounds": 15}
QUICK = {"size": 4 * MIB, "rounds": 2}
PYTHON_SLICE = 200_000                      # records, for what takes them one by one
PACKAGES = ["numpy", "pyarrow", "cramjam", "aiokafka", "kafka-python"]
CODECS = ["lz4", "zstd", "gzip", "snappy"]


class Columns(NamedTuple):
    """The records of a workload, as arrays of Arrow and as a table over their segment."""
    records: FrameTable
    values: pa.Array
    keys: pa.Array
    timestamps: np.ndarray

    def rows(self) -> list[tuple]:
        """(offset, timestamp, key, value) as Python objects."""
        return list(zip(range(len(self.values)), self.timestamps.tolist(), self.keys.to_pylist(),
                        self.values.to_pylist()))

    def encode(self, **options: Any) -> memoryview:
        return ours.encode_batches(self.values, keys=self.keys, timestamps=self.timestamps, batch_bytes=BATCH_BYTES,
                                   **options)


def columns(size: int) -> Columns:
    raw = np.fromfile(data.segment(2, "none", size).path, np.uint8)
    records = ours.records(ours.scan(raw))
    batch = arrow.to_batch(records, ["value", "key"], binary="large_binary")
    return Columns(records, batch["value"], batch["key"], records["timestamp"].copy())


def run(size: int, rounds: int) -> str:
    """The whole part as markdown. size: bytes of records, before compression."""
    given = columns(size)
    out = np.frombuffer(given.encode(), np.uint8)
    count = len(given.records)
    report = Report("Kafka record data, encoded")
    report.say(
        f"{count:,} records of {len(out) / count:.0f} bytes, with keys and timestamps, out of arrays of Arrow "
        f"(large_binary) into batches of {BATCH_BYTES // 1024} KiB; warm, one thread. GB/s is of bytes before "
        "compression; ratios are medians of the rounds' own ratios.")
    copies(report, given, out, rounds)
    peers(report, given, len(out), max(2, rounds // 3))
    compressed(report, given, len(out), max(2, rounds // 3))
    return report.markdown(PACKAGES)


def copies(report: Report, given: Columns, out: np.ndarray, rounds: int) -> None:
    """Against moving the bytes that are written."""
    count, size = len(given.records), len(out)
    order = np.argsort(ours.partition_of(given.keys, 12), kind="stable")
    anyhow = np.random.default_rng(3).permutation(count)

    def contender(name: str, call: Callable[[], Any]) -> Contender:
        return Contender(name, timed(call), count, size)

    times = interleave([
        contender(COPY, out.copy),
        contender("batches", given.encode),
        contender("batches, from a table", lambda: ours.encode_batches(
            (given.records, "value"), keys=(given.records, "key"), timestamps=given.timestamps,
            batch_bytes=BATCH_BYTES)),
        contender("batches, rows by partition", lambda: given.encode(select=order)),
        contender("batches, rows at random", lambda: given.encode(select=anyhow)),
        contender("messages of magic 1", lambda: ours.encode_message_sets(
            given.values, keys=given.keys, timestamps=given.timestamps)),
        contender("partition_of, murmur2", lambda: ours.partition_of(given.keys, 12)),
        contender("partition_of, crc32", lambda: ours.partition_of(given.keys, 12, "crc32")),
    ], rounds)
    report.at_most(f"`kafka.encode_batches` with checksums, of `{COPY}` of what it writes", 3,
                   times.ratio("batches", COPY))
    report.say("### Magic 2, uncompressed, beside a copy of the bytes written", "",
               timings(times, dict.fromkeys(times.contenders, COPY) | {COPY: ""}))


def peers(report: Report, given: Columns, size: int, rounds: int) -> None:
    """Against the batch builders of the Python clients, and our own encoder of Python records."""
    count = min(PYTHON_SLICE, len(given.records))
    part = Columns(given.records, given.values[:count], given.keys[:count], given.timestamps[:count])
    rows = part.rows()
    records = [ours.Record(*row) for row in rows]
    of_aiokafka, of_kafka_python = (module.default_records.DefaultRecordBatchBuilder for module in
                                    (aiokafka.record, kafka.record))
    calls = {
        "aiokafka": lambda: built(of_aiokafka, part.rows()),
        "aiokafka, objects made before": lambda: built(of_aiokafka, rows),
        "kafka-python": lambda: built(of_kafka_python, part.rows()),
        "wirescan, Python records": lambda: [
            ours.encode_batch(records[at:at + data.IN_BATCH]) for at in range(0, count, data.IN_BATCH)],
    }
    times = interleave([
        Contender("wirescan", timed(given.encode), len(given.records), size),
        *(Contender(name, timed(call, rehearse=False), count, size * count // len(given.records))
          for name, call in calls.items()),
    ], rounds)
    for name, bound in (("aiokafka", 20), ("kafka-python", 100)):
        report.at_least(f"times as fast as {name}'s batch builder, from the same arrays", bound,
                        times.ratio(name, "wirescan"))
    report.say("### Magic 2, uncompressed, beside peers", "",
               f"The others take {count:,} records one by one, so that keys and values first become Python objects; in "
               "two lines they are made before.", "", timings(times, dict.fromkeys(calls, "wirescan")))


def built(builder: Callable[..., Any], rows: list[tuple]) -> list[bytes]:
    """Batches of rows (offset, timestamp, key, value), as full as they may be."""
    batches, open_batch, first = [], None, 0
    for offset, timestamp, key, value in rows:
        if open_batch is None or open_batch.append(offset - first, timestamp, key, value, []) is None:
            if open_batch is not None:
                batches.append(bytes(open_batch.build()))
            open_batch, first = builder(2, 0, False, -1, -1, -1, BATCH_BYTES), offset
            open_batch.append(0, timestamp, key, value, [])
    batches.append(bytes(open_batch.build()))
    return batches


def compressed(report: Report, given: Columns, size: int, rounds: int) -> None:
    """Against the codec alone over the same payloads, and the same records uncompressed."""
    plain = ours.scan(given.encode(), check=False)
    payloads = [plain.payload(i) for i in range(len(plain))]
    count, rows = len(given.records), []
    for codec in CODECS:
        _, pack = codec_of(codec, None)
        out = len(given.encode(codec=codec))
        times = interleave([
            Contender("uncompressed", timed(given.encode), count, size),
            Contender("codec", timed(lambda: [pack(payload) for payload in payloads]), count, size),
            Contender("batches", timed(lambda: given.encode(codec=codec)), count, size),
        ], rounds)
        ratio = times.ratio("batches", ("codec", "uncompressed"))
        report.at_most(f"{codec}: `kafka.encode_batches`, of the codec's own time and the uncompressed batches", 1.25,
                       ratio)
        rows.append([codec, f"{size / out:.1f}", number(times.median("codec")), number(times.median("uncompressed")),
                     number(times.median("batches")), number(ratio[0]), number(times.rate("batches"))])
    report.say("### Magic 2, compressed", "",
               "The codec alone: a loop of the codec over the same payloads. The ratio is of batches to the codec "
               "alone and the uncompressed batches together. Nanoseconds per record.", "",
               table(["", "compressed", "codec alone", "uncompressed batches", "batches", "ratio", "GB/s of batches"],
                     rows))
