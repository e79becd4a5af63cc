"""The fast way to read files: slices through `mapInArrow`, which costs the JVM less than a source.

`wirescan.spark.read` is defined here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from wirescan.decoding.decoder import Decoder
from wirescan.frames.limits import Limits
from wirescan.spark.hadoop_settings import use_session
from wirescan.spark.payload_types import make_payloads
from wirescan.spark.plan import make_plan
from wirescan.spark.run import (
    DEFAULT_FORMAT,
    Paths,
    find_format,
    list_paths,
    make_reading,
    run_tasks,
)


def read(
    spark: SparkSession,
    paths: Paths,
    format: str = DEFAULT_FORMAT,
    columns: Sequence[str] | None = None,
    errors: str = "strict",
    *,
    check: bool = True,
    filters: Sequence[tuple[Any, ...]] = (),
    bytes_per_partition: int | None = None,
    limits: Limits = Limits(),
    decode: Mapping[str, str | Decoder] | None = None,
    schema: str | None = None,
    include_headers: bool = False,
) -> DataFrame:
    """Return the frames in files as a DataFrame with one row for each frame.

    spark: the session.
    paths: files, globs and directories. Every executor must be able to read them.
    format: a name of `wirescan.formats()`. Options may follow the name as in a URL, such as
        "thrift.fields?non_strict=true&idl=/data/calc.thrift". Each executor reads that IDL file.
        If the first file is a capture of packets, "kafka.requests" means
        "kafka.requests?capture=true". The driver looks at its first bytes.
    columns: names in the order of the result, as in `wirescan.frames.to_arrow.make_schema`. Each
        column takes time.
    errors: what happens at bad bytes. "strict": the task fails, and the message names the file and
        the byte position. "mark": a bad frame is a row. Its column `fault` has the name of the
        fault, and a column is null if it was not read. The column `fault` is null in good rows.
        "skip": bad frames are discarded.
    check: verify checksums.
    filters: conditions that every row must pass, such as
        [("offset", ">=", 1000), ("key", "==", b"a")]. See `wirescan.reading.filters`. Batches that
        cannot have such rows are not opened. Files and byte ranges that names and indexes exclude
        are not read.
    bytes_per_partition: bytes of files for one task, on average; the tasks have about the same
        work. None: every core gets the same share, in tasks of at most 512 MiB. Spark Connect does
        not report the cores, so there it is 128 MiB.
    limits: the argument of `wirescan.scan`. Files are not cut after a frame of more than 100 MiB:
        one task reads the rest of the file.
    decode: columns of byte strings whose payloads become typed columns, such as {"value": "json"}.
        `wirescan.decoding.notation` lists the decoders, and `wirescan.spark.payload_types` the
        types. A payload that cannot be decoded is null, and the column after it, such as
        `value_fault`, says why. The driver infers types that are not given from the first rows.
        Every executor must be able to read the registry of schemas that a decoder names.
    schema: "kafka" gives exactly the columns of Spark's own Kafka source, for "kafka.records". See
        `wirescan.spark.kafka_schema`. None, the default: the columns of the format.
    include_headers: with "kafka", the column `headers` too.

    Raises ValueError for an unknown format, column, mode, operator or decoder, and for payloads
    whose type cannot be inferred; TypeError for a filter's value of the wrong type;
    FileNotFoundError and OSError.
    """
    use_session(spark, list_paths(paths))
    format = find_format(paths, format)
    payloads = make_payloads(decode)
    reading = make_reading(
        format,
        columns,
        schema,
        include_headers=include_headers,
        errors=errors,
        check=check,
        limits=limits,
        filters=filters,
        payloads=payloads,
    )
    plan = make_plan(spark, reading, paths, bytes_per_partition)
    reading.fit_payloads(plan.slices)
    return run_tasks(spark, plan, reading.read_batches, reading.struct)
