"""Spark: top keys, percentiles and distinct counts by `aggregate`, and the same in SQL."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions

from bench.report import Report, format_table, format_timings
from bench.suites.spark import SCHEMA, SEGMENTS, VALUE, WARM_UP
from bench.timing import Contender, interleave, time_call
from bench.workloads import records_and_events
from wirescan import spark as wirescan_spark
from wirescan.export.sketches import Histogram

FULL = {"batches": 13_021, "rounds": 5}  # 5,000,064 records
QUICK = {"batches": 40, "rounds": 2}
TOP = 20  # keys
PERCENTILES = (0.5, 0.9, 0.99)
PACKAGES = ["pyspark", "pyarrow"]
SQL = {
    "top keys": "select key, count(*) as n from log group by key order by n desc, key limit {top}",
    "percentiles": "select percentile_approx(length(value), array{percentiles}, 100) from log",
    "distinct keys": "select approx_count_distinct(key, 0.0165) from log",
}


def run(batches: int, rounds: int) -> str:
    """Return the section as markdown. batches: record batches in each segment."""
    folder = f"v{records_and_events.VERSION}-spark-{batches}"
    segments = [
        records_and_events.write_segment(
            2, "none", batches * 16384, value=VALUE, part=i, folder=folder
        )
        for i in range(SEGMENTS)
    ]
    checkout = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [checkout, os.environ.get("PYTHONPATH")])
    )
    spark = wirescan_spark.session("wirescan bench", "local[2]")
    try:
        return _run(
            spark,
            str(segments[0].path.parent / "*.log"),
            sum(segment.records for segment in segments),
            sum(segment.plain for segment in segments),
            rounds,
        )
    finally:
        spark.stop()


def _run(spark: SparkSession, paths: str, records: int, size: int, rounds: int) -> str:
    source = spark.read.format("wirescan").schema(SCHEMA).load(paths)
    source.createOrReplaceTempView("log")
    results: dict[str, object] = {}

    def contender(name: str, call: Callable[[], object]) -> Contender:
        def compute() -> None:
            results[name] = call()

        return Contender(name, time_call(compute, rehearse=False), records, size)

    own = {
        "top keys": lambda: count_top_keys(spark, paths).collect(),
        "percentiles": lambda: find_percentiles(spark, paths),
        "distinct keys": lambda: count_distinct(spark, paths),
    }
    contenders = []
    for job, call in own.items():
        text = SQL[job].format(top=TOP, percentiles=PERCENTILES)
        contenders.append(contender(f"aggregate, {job}", call))
        contenders.append(contender(f"SQL, {job}", lambda text=text: spark.sql(text).collect()))
    times = interleave(contenders, rounds, WARM_UP)
    report = Report("Spark aggregates", threads="2")
    report.say(
        f"{records:,} records with values of {VALUE} bytes, local[2]. The SQL reads the same "
        "segments through the data source, with the columns that docs/spark.md names."
    )
    report.say(format_timings(times, {f"aggregate, {job}": f"SQL, {job}" for job in own}))
    report.say(
        "### Results of both",
        "",
        format_table(
            ["", "aggregate", "SQL"],
            [
                [job, f"{results[f'aggregate, {job}']!s:.80}", f"{results[f'SQL, {job}']!s:.80}"]
                for job in own
            ],
        ),
    )
    return report.markdown(PACKAGES)


def count_top_keys(spark: SparkSession, paths: str) -> DataFrame:
    counts = wirescan_spark.aggregate(wirescan_spark.ranges(spark, paths), ["key"])
    return counts.orderBy(functions.desc("count"), "key").limit(TOP)


def find_percentiles(spark: SparkSession, paths: str) -> list[int]:
    log = wirescan_spark.ranges(spark, paths)
    row = wirescan_spark.aggregate(log, (), [("value_size", "histogram")]).first()
    assert row is not None
    quantiles: list[int] = Histogram.from_buckets(row.value_size_histogram).quantile(PERCENTILES)
    return list(quantiles)


def count_distinct(spark: SparkSession, paths: str) -> int:
    log = wirescan_spark.ranges(spark, paths)
    row = wirescan_spark.aggregate(log, (), [("key", "distinct")]).first()
    assert row is not None
    return int(row.key_distinct)
