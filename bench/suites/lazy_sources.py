"""Queries of DuckDB and polars over a segment, beside the same queries over Parquet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

import wirescan
from bench.report import Report, format_number, format_table
from bench.suites.kafka_arrow import COLUMNS, write_parquet
from bench.timing import Contender, interleave, time_call
from bench.workloads.irregular_records import SHAPES, make_segment

FULL = {"records": 2_000_000, "rounds": 7}
QUICK = {"records": 20_000, "rounds": 2}
COPIED = "wirescan"
MAPPED = "wirescan, mapped"
PARQUET = "Parquet"
SOURCES = (COPIED, MAPPED, PARQUET)

BOUND = 1.0
SUM = "SELECT count(*), sum(octet_length(value)) FROM frames"
GROUPS = 'SELECT octet_length("key") AS size, count(*), max("offset") FROM frames GROUP BY size'


def run(records: int, rounds: int) -> str:
    """Return the section as markdown. records: in the regular workload."""
    report = Report("Lazy sources", threads=f"{os.cpu_count()}, as each engine chooses")
    rows = []
    for shape in SHAPES:
        raw, count = make_segment(shape, records)
        with tempfile.TemporaryDirectory() as folder:
            segment = Path(folder, f"{0:020}.log")
            parquet = Path(folder, "records.parquet")
            raw.tofile(segment)
            write_parquet(raw, parquet)
            for name, call in list_queries(str(segment), str(parquet)).items():
                times = interleave(
                    [
                        Contender(source, time_call(partial(call, source)), count, len(raw))
                        for source in SOURCES
                    ],
                    rounds,
                )
                report.at_most(
                    f"{shape}: {name}, mapped, of Parquet", BOUND, times.ratio(MAPPED, PARQUET)
                )
                figures = (format_number(times.median(source)) for source in SOURCES)
                rows.append([f"{shape}: {name}", *figures])
    report.say(
        "Uncompressed segments, whose checksums wirescan verifies, and the same rows as "
        "uncompressed Parquet, which has none. The files are in the page cache. `sum` counts the "
        "records and adds the sizes of the values. `groups` counts the records, and finds the last "
        "offset, for each size of a key. A column of Parquet is read alone; a segment is read "
        "whole.",
        "",
        format_table(["ns per record", *SOURCES], rows),
    )
    return report.markdown(["duckdb", "polars", "pyarrow"])


def list_queries(segment: str, parquet: str) -> dict[str, Callable[[str], Any]]:
    """Return the queries by their names. Each takes a name of SOURCES."""
    options: dict[str, Any] = {"format": "kafka.records", "columns": COLUMNS}
    datasets = {
        COPIED: wirescan.dataset(segment, **options),
        MAPPED: wirescan.dataset(segment, mapped=True, **options),
    }
    frames = {
        COPIED: wirescan.scan_polars(segment, **options),
        MAPPED: wirescan.scan_polars(segment, mapped=True, **options),
        PARQUET: pl.scan_parquet(parquet),
    }

    connection = duckdb.connect()

    def ask_duckdb(query: str, source: str) -> Any:
        if source == PARQUET:
            query = query.replace("FROM frames", f"FROM '{parquet}'")
        else:
            connection.register("frames", datasets[source])
        return sorted(connection.execute(query).fetchall(), key=str)

    def sum_in_polars(source: str) -> Any:
        sums = frames[source].select(pl.len(), pl.col("value").bin.size().sum())
        return sums.collect().rows()

    def group_in_polars(source: str) -> Any:
        groups = frames[source].group_by(pl.col("key").bin.size().alias("size"))
        return sorted(groups.agg(pl.len(), pl.col("offset").max()).collect().rows(), key=str)

    queries = {
        "DuckDB, sum": partial(ask_duckdb, SUM),
        "DuckDB, groups": partial(ask_duckdb, GROUPS),
        "polars, sum": sum_in_polars,
        "polars, groups": group_in_polars,
    }
    for name, call in queries.items():
        if not str(call(COPIED)) == str(call(MAPPED)) == str(call(PARQUET)):
            raise ValueError(f"{name}: the sources give different results")
    return queries
