"""Spark: log segments through wirescan beside the same columns in Parquet, and beside Python rows."""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench import data
from bench.measure import Contender, interleave, timed
from bench.peers.spark_rows import TupleSource, kafka_python_rows
from bench.report import Report, number, table, timings
from wirescan import spark as wirescan_spark

SEGMENTS = 3
FULL = {"batches": 13_021, "rounds": 9, "slow_rounds": 2}       # 5,000,064 records
QUICK = {"batches": 40, "rounds": 2, "slow_rounds": 2}
WARM_UP = 4                 # rounds until the JVM has compiled what matters; Parquet gains the most by it
COLUMNS = ["offset", "timestamp", "key", "value"]
SCHEMA = "offset bigint, timestamp timestamp, key binary, value binary"
COMPRESSION = "zstd"
VALUE = 100                 # bytes
PACKAGES = ["pyspark", "pyarrow", "kafka-python"]


def run(batches: int, rounds: int, slow_rounds: int) -> str:
    """The whole part as markdown. batches: record batches in each segment."""
    folder = f"v{data.VERSION}-spark-{batches}"
    parts = [data.segment(2, "none", batches * 16384, value=VALUE, part=i, folder=folder) for i in range(SEGMENTS)]
    records, size = sum(p.records for p in parts), sum(p.plain for p in parts)
    log = parts[0].path.parent
    checkout = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))
    spark = wirescan_spark.session("wirescan bench", "local[2]")
    try:
        return _run(spark, log, records, size, rounds, slow_rounds)
    finally:
        spark.stop()


def _run(spark: SparkSession, log: Path, records: int, size: int, rounds: int, slow_rounds: int) -> str:
    parquet = log / "records.parquet"
    segments = str(log / "*.log")
    if not (parquet / "_SUCCESS").exists():
        writer = read_fast(spark, segments).write.mode("overwrite")
        writer.option("compression", COMPRESSION).parquet(str(parquet))
    if spark.read.parquet(str(parquet)).count() != records:
        raise ValueError(f"{parquet} does not hold the {records} records of the segments: remove it")
    spark.dataSource.register(TupleSource)

    def contender(name: str, call: Callable[[], object]) -> Contender:
        return Contender(name, timed(call, rehearse=False), records, size)

    report = Report("Spark")
    report.say(f"{records:,} records (offset, timestamp, key of 16 bytes, value of {VALUE}) in {SEGMENTS} "
               f"uncompressed segments of {size / SEGMENTS / 2**20:.0f} MiB; local[2], one session for all, "
               "wirescan's settings, checksums verified. GB/s is of the segments' bytes.")
    times = interleave([
        contender("Parquet", lambda: drain(spark.read.parquet(str(parquet)).select(COLUMNS))),
        contender("data source wirescan", lambda: drain(read_source(spark, segments))),
        contender("wirescan.spark.read", lambda: drain(read_fast(spark, segments))),
    ], rounds, WARM_UP)
    report.at_most("data source, of Spark reading the same columns from Parquet", 1.3,
                   times.ratio("data source wirescan", "Parquet"))
    report.at_most("`wirescan.spark.read`, of the same", 1.05, times.ratio("wirescan.spark.read", "Parquet"))
    report.say("### To nowhere (the sink `noop`)", "",
               timings(times, dict.fromkeys(["data source wirescan", "wirescan.spark.read"], "Parquet")))
    writing(report, spark, segments, parquet, contender, rounds)
    report.say("### Beside Python rows (the sink `noop`)", "",
               "The source of tuples parses with wirescan too; both give timestamps as numbers.")
    ours = contender("data source wirescan", lambda: drain(read_source(spark, segments)))
    tuples = contender("data source that yields tuples", lambda: drain(
        spark.read.format(TupleSource.name()).load(segments)))
    rdd = contender("RDD over kafka-python", lambda: drain(kafka_python_rows(spark, segments)))
    for other, bound, turns in ((tuples, 4, rounds), (rdd, 8, slow_rounds)):
        times = interleave([ours, other], turns)
        report.at_least(f"times as fast as: {other.name}", bound, times.ratio(other.name, ours.name))
        report.say(timings(times, {other.name: ours.name}))
    return report.markdown(PACKAGES)


def writing(report: Report, spark: SparkSession, segments: str, parquet: Path,
            contender: Callable[..., Contender], rounds: int) -> None:
    """Parquet written in the tasks, beside Spark copying that Parquet."""
    copied, converted = parquet.with_name("copied.parquet"), parquet.with_name("converted.parquet")

    def copy() -> None:
        writer = spark.read.parquet(str(parquet)).write.mode("overwrite")
        writer.option("compression", COMPRESSION).parquet(str(copied))

    def convert() -> None:
        wirescan_spark.to_parquet(spark, segments, converted, columns=COLUMNS, compression=COMPRESSION,
                                  overwrite=True)

    times = interleave([contender("Spark copies Parquet", copy), contender("wirescan.spark.to_parquet", convert)],
                       max(2, rounds // 2), WARM_UP // 2)
    sizes = {"Spark copies Parquet": size_of(copied), "wirescan.spark.to_parquet": size_of(converted)}
    report.at_most("segments to Parquet, of Spark copying that Parquet", 0.6,
                   times.ratio("wirescan.spark.to_parquet", "Spark copies Parquet"))
    report.at_most("size of that Parquet, of Spark's", 1.1,
                   (sizes["wirescan.spark.to_parquet"] / sizes["Spark copies Parquet"],))
    report.say(f"### To Parquet ({COMPRESSION})", "",
               timings(times, {"wirescan.spark.to_parquet": "Spark copies Parquet"}), "",
               table(["", "MiB"], [[name, number(found / 2**20)] for name, found in sizes.items()]))
    shutil.rmtree(copied)
    shutil.rmtree(converted)


def read_source(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("wirescan").option("format", "kafka.records").schema(SCHEMA).load(path)


def read_fast(spark: SparkSession, path: str) -> DataFrame:
    return wirescan_spark.read(spark, path, "kafka.records", columns=COLUMNS)


def drain(frame: DataFrame) -> None:
    """Compute every row and column of a DataFrame, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def size_of(directory: Path) -> int:
    """The bytes of the Parquet files in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*.parquet"))
