"""Spark: reading log segments with wirescan, compared with Parquet and with Python rows."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.peers.spark_rows import TupleSource, read_rows
from bench.report import Report, format_number, format_table, format_timings
from bench.timing import Contender, Times, interleave, read_cpu_of_children, time_call
from bench.workloads import records_and_events
from wirescan import spark as wirescan_spark
from wirescan.export.batches import iter_batches
from wirescan.reading.chunked import iter_tables
from wirescan.reading.chunks import read_chunks

SEGMENTS = 3
FULL = {"batches": 13_021, "rounds": 9, "slow_rounds": 2}  # 5,000,064 records
QUICK = {"batches": 40, "rounds": 2, "slow_rounds": 2}
WARM_UP = 4  # rounds until the JVM has compiled the hot code; Parquet gains most
COLUMNS = ["offset", "timestamp", "key", "value"]
SCHEMA = "offset bigint, timestamp timestamp, key binary, value binary"
COMPRESSION = "zstd"
VALUE = 100  # bytes
PACKAGES = ["pyspark", "pyarrow", "kafka-python", "aiokafka"]
READ, SOURCE, PARQUET = "wirescan.spark.read", "data source wirescan", "Parquet"
TWO = "read, offset and timestamp"
COUNTS = "aggregate, counts"
KEYS = "aggregate, counts for each key"
ROWS = {
    "RDD over kafka-python": ("kafka.record.memory_records", 10),
    "RDD over aiokafka": ("aiokafka.record.memory_records", 4),
}


def run(batches: int, rounds: int, slow_rounds: int) -> str:
    """Return the section as markdown. batches: record batches in each segment."""
    folder = f"v{records_and_events.VERSION}-spark-{batches}"
    segments = [
        records_and_events.write_segment(
            2, "none", batches * 16384, value=VALUE, part=i, folder=folder
        )
        for i in range(SEGMENTS)
    ]
    records = sum(segment.records for segment in segments)
    size = sum(segment.plain for segment in segments)
    log = segments[0].path.parent
    checkout = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [checkout, os.environ.get("PYTHONPATH")])
    )
    spark = wirescan_spark.session("wirescan bench", "local[2]")
    try:
        return _run(spark, log, records, size, rounds, slow_rounds)
    finally:
        spark.stop()


def _run(
    spark: SparkSession, log: Path, records: int, size: int, rounds: int, slow_rounds: int
) -> str:
    parquet = log / "records.parquet"
    segments = str(log / "*.log")
    if not (parquet / "_SUCCESS").exists():
        writer = read_fast(spark, segments).write.mode("overwrite")
        writer.option("compression", COMPRESSION).parquet(str(parquet))
    if spark.read.parquet(str(parquet)).count() != records:
        raise ValueError(
            f"{parquet} does not hold the {records} records of the segments: remove it"
        )
    spark.dataSource.register(TupleSource)

    def contender(name: str, call: Callable[[], object]) -> Contender:
        return Contender(name, time_call(call, rehearse=False), records, size)

    report = Report("Spark", threads="2")
    report.say(
        f"{records:,} records (offset, timestamp, key of 16 bytes, value of {VALUE}) in {SEGMENTS} "
        f"uncompressed segments of {size / SEGMENTS / 2**20:.0f} MiB; local[2], one session for "
        "all, wirescan's settings, checksums verified. GB/s is of the segments' bytes."
    )
    times = interleave(
        [
            contender(PARQUET, lambda: drain(spark.read.parquet(str(parquet)).select(COLUMNS))),
            contender(SOURCE, lambda: drain(read_source(spark, segments))),
            contender(READ, lambda: drain(read_fast(spark, segments))),
            contender(TWO, lambda: drain(read_fast(spark, segments, COLUMNS[:2]))),
            contender(COUNTS, lambda: drain(aggregate(spark, segments))),
            contender(KEYS, lambda: drain(aggregate(spark, segments, "key"))),
        ],
        rounds,
        WARM_UP,
    )
    report.at_most(
        f"`{READ}`, of Spark reading the same columns from Parquet",
        0.85,
        times.ratio(READ, PARQUET),
    )
    report.at_most("data source, of the same", 1.1, times.ratio(SOURCE, PARQUET))
    report.at_most("two columns, of four", 0.75, times.ratio(TWO, READ))
    report.at_most("counts in the tasks, of reading four columns", 0.5, times.ratio(COUNTS, READ))
    report.at_most("counts for each key in the tasks, of the same", 0.5, times.ratio(KEYS, READ))
    report.say(
        "### To nowhere (the sink `noop`)",
        "",
        f"There are {count_distinct(spark, parquet):,} keys.",
        "",
        format_timings(
            times, {SOURCE: PARQUET, READ: PARQUET, TWO: READ, COUNTS: READ, KEYS: READ}
        ),
    )
    report_shares(report, spark, segments, times, records)
    measure_writing(report, spark, segments, parquet, contender, rounds)
    measure_row_sources(report, spark, segments, contender, rounds, slow_rounds)
    return report.markdown(PACKAGES)


def measure_row_sources(
    report: Report,
    spark: SparkSession,
    segments: str,
    contender: Callable[..., Contender],
    rounds: int,
    slow_rounds: int,
) -> None:
    """Compare with sources that yield a tuple for every record, as is usual with Spark."""
    report.say(
        "### Beside Python rows (the sink `noop`)",
        "",
        "The source of tuples parses with wirescan too; all of them give timestamps as numbers.",
    )
    ours = contender(SOURCE, lambda: drain(read_source(spark, segments)))
    tuples = contender(
        "data source that yields tuples",
        lambda: drain(spark.read.format(TupleSource.name()).load(segments)),
    )
    others = [(tuples, 4.5, rounds)]
    for name, (library, bound) in ROWS.items():
        others.append(
            (
                contender(name, lambda library=library: drain(read_rows(spark, segments, library))),
                bound,
                slow_rounds,
            )
        )
    for other, bound, turns in others:
        times = interleave([ours, other], turns)
        report.at_least(
            f"times as fast as: {other.name}", bound, times.ratio(other.name, ours.name)
        )
        report.say(format_timings(times, {other.name: ours.name}))


def report_shares(
    report: Report, spark: SparkSession, segments: str, times: Times, records: int
) -> None:
    """Report the shares of processor time.

    wirescan's steps run one after another in this process. The rest of the job's time is Spark's.
    """
    paths = [part.path for part in wirescan_spark.ranges(spark, segments).plan.slices]
    files = list(dict.fromkeys(paths))

    def used(call: Callable[[], object]) -> float:
        call()
        begun = time.process_time()
        call()
        return (time.process_time() - begun) * 1e9 / records

    reading = used(
        lambda: [
            len(chunk) for path in files for chunk in read_chunks(path, 0, os.path.getsize(path))
        ]
    )
    tables = used(
        lambda: [
            len(chunk) for path in files for chunk in iter_tables(path, format="kafka.records")
        ]
    )
    batches = used(
        lambda: [
            len(batch)
            for path in files
            for batch in iter_batches(path, format="kafka.records", columns=COLUMNS, types="spark")
        ]
    )
    before = read_cpu_of_children()
    drain(read_fast(spark, segments))
    job = (read_cpu_of_children() - before) * 1e9 / records
    lines = [
        ("files read", reading),
        ("kernels: scan, checksums, records", tables - reading),
        ("columns gathered", batches - tables),
        ("Spark's bridge and the rest", job - batches),
        ("the job", job),
    ]
    report.say(
        f"### Processor time of `{READ}`, all processes",
        "",
        format_table(
            ["", "ns per record", "share"],
            [[step, format_number(spent), f"{spent / job:.0%}"] for step, spent in lines],
        ),
        "",
        f"Two processors ran for {format_number(times.median(READ))} ns a record.",
    )


def measure_writing(
    report: Report,
    spark: SparkSession,
    segments: str,
    parquet: Path,
    contender: Callable[..., Contender],
    rounds: int,
) -> None:
    """Write Parquet in the tasks, compared with Spark copying that Parquet."""
    copied = parquet.with_name("copied.parquet")
    converted = parquet.with_name("converted.parquet")

    def copy() -> None:
        writer = spark.read.parquet(str(parquet)).write.mode("overwrite")
        writer.option("compression", COMPRESSION).parquet(str(copied))

    def convert() -> None:
        wirescan_spark.to_parquet(
            spark, segments, converted, columns=COLUMNS, compression=COMPRESSION, overwrite=True
        )

    times = interleave(
        [contender("Spark copies Parquet", copy), contender("wirescan.spark.to_parquet", convert)],
        max(2, rounds // 2),
        WARM_UP // 2,
    )
    sizes = {
        "Spark copies Parquet": measure_size(copied),
        "wirescan.spark.to_parquet": measure_size(converted),
    }
    report.at_most(
        "segments to Parquet, of Spark copying that Parquet",
        0.5,
        times.ratio("wirescan.spark.to_parquet", "Spark copies Parquet"),
    )
    report.at_most(
        "size of that Parquet, of Spark's",
        1.1,
        (sizes["wirescan.spark.to_parquet"] / sizes["Spark copies Parquet"],),
    )
    report.say(
        f"### To Parquet ({COMPRESSION})",
        "",
        format_timings(times, {"wirescan.spark.to_parquet": "Spark copies Parquet"}),
        "",
        format_table(
            ["", "MiB"], [[name, format_number(size / 2**20)] for name, size in sizes.items()]
        ),
    )
    shutil.rmtree(copied)
    shutil.rmtree(converted)


def read_source(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("wirescan").option("format", "kafka.records").schema(SCHEMA).load(path)


def read_fast(spark: SparkSession, path: str, columns: list[str] = COLUMNS) -> DataFrame:
    return wirescan_spark.read(spark, path, "kafka.records", columns=columns)


def aggregate(spark: SparkSession, path: str, *by: str) -> DataFrame:
    return wirescan_spark.aggregate(wirescan_spark.ranges(spark, path, "kafka.records"), by)


def count_distinct(spark: SparkSession, parquet: Path) -> int:
    return spark.read.parquet(str(parquet)).select("key").distinct().count()


def drain(frame: DataFrame) -> None:
    """Compute every row and column of a DataFrame, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def measure_size(directory: Path) -> int:
    """Return the bytes of the Parquet files in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*.parquet"))
