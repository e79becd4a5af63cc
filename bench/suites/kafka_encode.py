"""Encoding Kafka record data from arrays, compared with a copy, with peers, and with codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka.record.default_records
import kafka.record.default_records
import numpy as np
import pyarrow as pa

from bench.report import Report, format_number, format_table, format_timings
from bench.timing import Contender, interleave, time_call
from bench.workloads import records_and_events
from wirescan import kafka as ours
from wirescan.frames import to_arrow
from wirescan.frames.table import FrameTable
from wirescan.kafka.encode.records import find_codec

MIB = 1 << 20
COPY = "buf.copy()"
BATCH_BYTES = 16 << 10
FULL = {"size": 256 * MIB, "rounds": 15}
QUICK = {"size": 4 * MIB, "rounds": 2}
PYTHON_SLICE = 200_000  # records, for encoders that take them one by one
PACKAGES = ["numpy", "pyarrow", "cramjam", "aiokafka", "kafka-python"]
CODECS = ["lz4", "zstd", "gzip", "snappy"]


class Columns(NamedTuple):
    """The records of a workload, as Arrow arrays and as a table over their segment."""

    records: FrameTable
    values: pa.Array
    keys: pa.Array
    timestamps: np.ndarray

    def rows(self) -> list[tuple]:
        """Return (offset, timestamp, key, value) tuples of Python objects."""
        timestamps = self.timestamps.tolist()
        keys = self.keys.to_pylist()
        values = self.values.to_pylist()
        return list(zip(range(len(values)), timestamps, keys, values))

    def encode(self, **options: Any) -> memoryview:
        return ours.encode_batches(
            self.values,
            keys=self.keys,
            timestamps=self.timestamps,
            batch_bytes=BATCH_BYTES,
            **options,
        )


def make_columns(size: int) -> Columns:
    raw = np.fromfile(records_and_events.write_segment(2, "none", size).path, np.uint8)
    records = ours.records(ours.scan(raw))
    batch = to_arrow.to_batch(records, ["value", "key"], binary="large_binary")
    return Columns(records, batch["value"], batch["key"], records["timestamp"].copy())


def run(size: int, rounds: int) -> str:
    """Return the section as markdown. size: bytes of records, before compression."""
    source = make_columns(size)
    out = np.frombuffer(source.encode(), np.uint8)
    count = len(source.records)
    report = Report("Kafka record data, encoded")
    report.say(
        f"{count:,} records of {len(out) / count:.0f} bytes, with keys and timestamps, are encoded "
        f"from Arrow arrays (large_binary) into batches of {BATCH_BYTES // 1024} KiB; warm, one "
        "thread. GB/s counts bytes before compression. Ratios are medians of the rounds' ratios."
    )
    measure_copies(report, source, out, rounds)
    measure_peers(report, source, len(out), max(2, rounds // 3))
    measure_compressed(report, source, len(out), max(2, rounds // 3))
    return report.markdown(PACKAGES)


def measure_copies(report: Report, source: Columns, out: np.ndarray, rounds: int) -> None:
    """Compare with a copy of the written bytes."""
    count, size = len(source.records), len(out)
    order = np.argsort(ours.partition_of(source.keys, 12), kind="stable")
    random_order = np.random.default_rng(3).permutation(count)

    def contender(name: str, call: Callable[[], Any]) -> Contender:
        return Contender(name, time_call(call), count, size)

    times = interleave(
        [
            contender(COPY, out.copy),
            contender("batches", source.encode),
            contender(
                "batches, from a table",
                lambda: ours.encode_batches(
                    (source.records, "value"),
                    keys=(source.records, "key"),
                    timestamps=source.timestamps,
                    batch_bytes=BATCH_BYTES,
                ),
            ),
            contender("batches, rows by partition", lambda: source.encode(select=order)),
            contender("batches, rows at random", lambda: source.encode(select=random_order)),
            contender(
                "messages of magic 1",
                lambda: ours.encode_message_sets(
                    source.values, keys=source.keys, timestamps=source.timestamps
                ),
            ),
            contender("partition_of, murmur2", lambda: ours.partition_of(source.keys, 12)),
            contender("partition_of, crc32", lambda: ours.partition_of(source.keys, 12, "crc32")),
        ],
        rounds,
    )
    report.at_most(
        f"`kafka.encode_batches` with checksums, of `{COPY}` of what it writes",
        3,
        times.ratio("batches", COPY),
    )
    report.say(
        "### Magic 2, uncompressed, beside a copy of the bytes written",
        "",
        format_timings(times, dict.fromkeys(times.contenders, COPY) | {COPY: ""}),
    )


def measure_peers(report: Report, source: Columns, size: int, rounds: int) -> None:
    """Compare with the batch builders of the Python clients, and with wirescan's Record encoder."""
    count = min(PYTHON_SLICE, len(source.records))
    part = Columns(
        source.records, source.values[:count], source.keys[:count], source.timestamps[:count]
    )
    rows = part.rows()
    records = [ours.Record(*row) for row in rows]
    of_aiokafka, of_kafka_python = (
        module.default_records.DefaultRecordBatchBuilder
        for module in (aiokafka.record, kafka.record)
    )
    calls = {
        "aiokafka": lambda: build_batches(of_aiokafka, part.rows()),
        "aiokafka, objects made before": lambda: build_batches(of_aiokafka, rows),
        "kafka-python": lambda: build_batches(of_kafka_python, part.rows()),
        "wirescan, Python records": lambda: [
            ours.encode_batch(records[at : at + records_and_events.IN_BATCH])
            for at in range(0, count, records_and_events.IN_BATCH)
        ],
    }
    times = interleave(
        [
            Contender("wirescan", time_call(source.encode), len(source.records), size),
            *(
                Contender(
                    name,
                    time_call(call, rehearse=False),
                    count,
                    size * count // len(source.records),
                )
                for name, call in calls.items()
            ),
        ],
        rounds,
    )
    for name, bound in (("aiokafka", 20), ("kafka-python", 100)):
        report.at_least(
            f"times as fast as {name}'s batch builder, from the same arrays",
            bound,
            times.ratio(name, "wirescan"),
        )
    report.say(
        "### Magic 2, uncompressed, beside peers",
        "",
        f"The others encode {count:,} records one by one, so keys and values first become Python "
        "objects. In two lines, these objects exist before.",
        "",
        format_timings(times, dict.fromkeys(calls, "wirescan")),
    )


def build_batches(builder: Callable[..., Any], rows: list[tuple]) -> list[bytes]:
    """Return batches of (offset, timestamp, key, value) rows, each as full as possible."""
    options = {
        "magic": 2,
        "compression_type": 0,
        "is_transactional": False,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "batch_size": BATCH_BYTES,
    }
    batches = []
    open_batch = None
    first = 0
    for offset, timestamp, key, value in rows:
        if (
            open_batch is None
            or open_batch.append(offset - first, timestamp, key, value, []) is None
        ):
            if open_batch is not None:
                batches.append(bytes(open_batch.build()))
            open_batch = builder(**options)
            first = offset
            open_batch.append(0, timestamp, key, value, [])
    batches.append(bytes(open_batch.build()))
    return batches


def measure_compressed(report: Report, source: Columns, size: int, rounds: int) -> None:
    """Compare with the codec alone over the same payloads, and with uncompressed batches."""
    plain = ours.scan(source.encode(), check=False)
    payloads = [plain.payload(i) for i in range(len(plain))]
    count = len(source.records)
    rows = []
    for codec in CODECS:
        _, pack = find_codec(codec, None)
        out = len(source.encode(codec=codec))
        times = interleave(
            [
                Contender("uncompressed", time_call(source.encode), count, size),
                Contender(
                    "codec", time_call(lambda: [pack(payload) for payload in payloads]), count, size
                ),
                Contender("batches", time_call(lambda: source.encode(codec=codec)), count, size),
            ],
            rounds,
        )
        ratio = times.ratio("batches", ("codec", "uncompressed"))
        report.at_most(
            f"{codec}: `kafka.encode_batches`, of the codec's own time and the uncompressed "
            "batches",
            1.25,
            ratio,
        )
        rows.append(
            [
                codec,
                f"{size / out:.1f}",
                format_number(times.median("codec")),
                format_number(times.median("uncompressed")),
                format_number(times.median("batches")),
                format_number(ratio[0]),
                format_number(times.rate("batches")),
            ]
        )
    report.say(
        "### Magic 2, compressed",
        "",
        "The codec alone is a loop of the codec over the same payloads. The ratio is the time of "
        "batches to the times of the codec alone and the uncompressed batches together. Times "
        "are nanoseconds per record.",
        "",
        format_table(
            [
                "",
                "compressed",
                "codec alone",
                "uncompressed batches",
                "batches",
                "ratio",
                "GB/s of batches",
            ],
            rows,
        ),
    )
