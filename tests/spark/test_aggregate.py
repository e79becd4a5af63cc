"""Aggregates that are reduced in the tasks equal those of the rows, in Python and in Spark."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions

import wirescan
from tests.spark.records import ORDERS, make_batch, read_expected_rows
from wirescan import kafka
from wirescan.export import grouping
from wirescan.export.sketches import Histogram
from wirescan.spark import read
from wirescan.spark.aggregation import aggregate
from wirescan.spark.ranges import ranges

pytestmark = pytest.mark.spark


@pytest.fixture
def parts(spark, log):
    return ranges(spark, log, bytes_per_partition=15_000)


def test_counts_equal_a_local_count(spark, parts, log):
    assert aggregate(parts).columns == ["count"]
    assert aggregate(parts).first()["count"] == 1800
    rows = aggregate(parts, ["key"]).collect()
    counts = {row.key and bytes(row.key): row["count"] for row in rows}
    assert counts == Counter(row[2] for row in read_expected_rows(log))


def test_numbers_are_those_of_spark(spark, parts, log):
    measures = [
        (name, measure)
        for name in ("offset", "value_size", "timestamp", "key", "value")
        for measure in ("count", "sum", "min", "max", "mean")
        if measure not in ("sum", "mean") or name in ("offset", "value_size")
    ]
    by = ["header_count", "codec"]
    aggregates = aggregate(parts, by, measures)
    of_spark = {
        "count": functions.count,
        "sum": functions.sum,
        "min": functions.min,
        "max": functions.max,
        "mean": functions.avg,
    }
    rows = read(spark, log, columns=[*by, "offset", "value_size", "timestamp", "key", "value"])
    expected = rows.groupBy(*by).agg(
        functions.count("*").alias("count"),
        *(of_spark[measure](name).alias(f"{name}_{measure}") for name, measure in measures),
    )
    assert aggregates.schema.simpleString() == expected.schema.simpleString()
    assert sorted(aggregates.collect()) == sorted(expected.collect())
    assert aggregates.count() == 15


def test_rows_are_grouped_by_file(spark, parts, log):
    measures = [("offset", "min"), ("offset", "max")]
    rows = aggregate(parts, ["_file"], measures).orderBy("_file").collect()
    assert [tuple(row)[1:] for row in rows] == [(600, 0, 599), (600, 600, 1199), (600, 1200, 1799)]
    assert [row._file for row in rows] == sorted(f"{log}/{base:020}.log" for base in (0, 600, 1200))


def test_distinct_is_exact_for_few_and_close_for_many(spark, parts, log):
    rows = aggregate(
        parts, ["header_count"], [("key", "distinct"), ("codec", "distinct")]
    ).collect()
    keys = defaultdict(set)
    for _, _, key, _, headers, _ in read_expected_rows(log):
        keys[len(headers)].add(key)
    for row in rows:
        exact = len(keys[row.header_count] - {None})
        assert abs(row.key_distinct - exact) < 0.08 * exact
        assert row.codec_distinct == 5
    few = ranges(spark, log, filters=[("offset", "<", 300)])
    assert aggregate(few, (), [("key", "distinct")]).first().key_distinct == 240


def test_sketches_of_all_sizes_merge_in_spark(spark):
    """Spark reads our sketches: lists, sets and registers."""
    from wirescan.export.sketches import compute_fingerprints, make_coupons, make_sketches

    counts = [0, 1, 7, 8, 384, 385, 5000, 200_000]
    groups = [np.unique(make_coupons(compute_fingerprints(np.arange(n)))) for n in counts]
    ends, data = make_sketches(np.concatenate(groups), np.cumsum([0, *map(len, groups)]))
    rows = [(n, bytearray(data[a:b])) for n, a, b in zip(counts, ends, ends[1:])]
    df = spark.createDataFrame(rows, "n long, s binary")
    alone = df.select("n", functions.hll_sketch_estimate("s")).collect()
    merged = (
        df.groupBy("n").agg(functions.hll_sketch_estimate(functions.hll_union_agg("s"))).collect()
    )
    for count, estimate in [*alone, *merged]:
        error = abs(estimate - count)
        assert error <= (0 if count <= 384 else 0.05 * count)
    together = df.agg(functions.hll_sketch_estimate(functions.hll_union_agg("s"))).first()[0]
    assert abs(together - 200_000) < 10_000


def test_histograms_equal_local_ones(spark, parts, log):
    row = aggregate(parts, (), [("value_size", "histogram"), ("offset", "histogram")]).first()
    table = wirescan.scan(f"{log}/*.log", "kafka.records")
    assert Histogram.from_buckets(row.offset_histogram) == Histogram().add(table["offset"])
    assert Histogram.from_buckets(row.value_size_histogram) == Histogram().add(table["value_size"])
    groups = aggregate(parts, ["codec"], [("offset", "histogram")]).collect()
    assert sum(len(Histogram.from_buckets(group.offset_histogram)) for group in groups) == 1800
    codecs = table.outer["codec"][table["parent"]]
    for group in groups:
        expected = Histogram().add(table["offset"][codecs == group.codec])
        assert Histogram.from_buckets(group.offset_histogram) == expected


def test_the_last_bucket_of_a_histogram(spark, tmp_path):
    """Its upper end is the largest number of 64 bits. A larger sum is an error."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(kafka.encode_batch([b""] * 20, base_offset=2**63 - 30))
    row = aggregate(ranges(spark, str(path)), (), [("offset", "histogram")]).first()
    assert row.offset_histogram[-1].asDict() == {"low": 63 << 57, "high": 2**63 - 1, "count": 20}
    assert len(row.offset_histogram) == 1
    message = "OverflowError: the sum of offset may be beyond 64 bits"
    with pytest.raises(PythonException, match=message):
        aggregate(ranges(spark, str(path)), (), [("offset", "sum")]).collect()


def test_many_groups_are_returned_in_several_results(parts, log, monkeypatch):
    """The small limits hold in this process. The results together are the same."""
    from wirescan.spark.aggregation import Aggregation

    job = Aggregation("kafka.records", ("key",), (("value_size", "histogram"), ("key", "distinct")))
    located = [
        pair
        for task in range(len(parts.plan))
        for pair in parts.reading.read_tables(parts.plan[task])
    ]
    whole = list(job.iter_partials(iter(located)))
    monkeypatch.setattr(grouping, "MERGE_BYTES", 10_000)
    monkeypatch.setattr(grouping, "GROUP_BYTES", 5_000)
    several = list(job.iter_partials(iter(located)))
    assert len(whole) == 3
    assert len(several) > 3

    def counts(batches):
        total = Counter()
        for group_batch in batches:
            for row in group_batch.to_pylist():
                total[row["key"]] += row[grouping.COUNT] or 0
        return total

    expected = Counter(row[2] for row in read_expected_rows(log))
    assert counts(whole) == expected
    assert counts(several) == expected


def test_an_empty_file_has_no_groups(spark, tmp_path):
    (tmp_path / "00000000000000000000.log").touch()
    empty = ranges(spark, str(tmp_path))
    measures = [
        ("offset", "max"),
        ("key", "distinct"),
        ("offset", "histogram"),
        ("offset", "mean"),
        ("key", "count"),
    ]
    assert tuple(aggregate(empty, (), measures).first()) == (0, None, 0, [], None, 0)
    assert aggregate(empty, ["key"], [("key", "distinct")]).collect() == []


def test_values_of_a_dataframe(spark):
    df = spark.createDataFrame(
        [(bytearray(make_batch(20 * i, codec="zstd")),) for i in range(10)], "v binary"
    )
    rows = aggregate(df, ["codec"], [("offset", "max")], column="v").collect()
    assert [tuple(row) for row in rows] == [(int(kafka.Codec.ZSTD), 200, 199)]
    assert aggregate(df, column="v", format="kafka.batches").first()["count"] == 10


def test_other_formats_and_names_of_kinds(spark):
    path = ORDERS.parents[1] / "nats" / "recorded" / "nats-py-verbose.server.bin"
    messages = ranges(spark, str(path), "nats.messages")
    rows = aggregate(messages, ["kind"], [("subject", "distinct")]).collect()
    counts = {row.kind: row["count"] for row in rows}
    table = wirescan.scan(str(path), "nats.messages")
    names = table.format.get_column("kind").number_names
    assert counts == Counter(names.get(int(kind)) for kind in table["kind"])


def test_damage_follows_the_mode(spark, damaged):
    path, _ = damaged
    with pytest.raises(PythonException, match="BAD_CHECKSUM"):
        aggregate(ranges(spark, path)).collect()
    rows = aggregate(ranges(spark, path, errors="mark"), ["fault"]).collect()
    assert {row.fault: row["count"] for row in rows} == {None: 180, "BAD_CHECKSUM": 1}
    assert aggregate(ranges(spark, path, errors="skip")).first()["count"] == 180


@pytest.mark.parametrize(
    "by, measures, message",
    [
        (["no"], [], "no column 'no'"),
        ([], [("no", "sum")], "no column 'no'"),
        ([], [("offset", "median")], "a measure is"),
        ([], ["offset"], "a measure is"),
        ([], [("offset",)], "a measure is"),
        ([], [("key", "sum")], "key is binary, which has no sum"),
        ([], [("timestamp", "mean")], "which has no mean"),
        ([], [("key", "histogram")], "which has no histogram"),
        ([], [("headers", "max")], "which has no max"),
        (["headers"], [], "lists cannot be grouped by"),
        ([], [("offset", "max"), ("offset", "max")], "two columns would be named 'offset_max'"),
        (["key", "key"], [], "two columns would be named 'key'"),
    ],
)
def test_invalid_arguments_are_refused(spark, parts, by, measures, message):
    with pytest.raises(ValueError, match=message):
        aggregate(parts, by, measures)


def test_ranges_have_a_format_of_their_own(parts):
    with pytest.raises(ValueError, match="Ranges have their own format"):
        aggregate(parts, format="kafka.batches")


def test_places_have_no_measures(spark, log):
    df = spark.createDataFrame([(bytearray(make_batch(0)),)], "v binary")
    with pytest.raises(ValueError, match="_file can be grouped by, but has no min"):
        aggregate(ranges(spark, log), (), [("_file", "min")])
    with pytest.raises(ValueError, match="_start is a byte position in a file"):
        aggregate(df, (), [("_start", "max")], column="v")


def test_groups_by_topic_and_partition(spark, tmp_path):
    """The columns follow from the names of directories."""
    for name, count in (("a-0", 3), ("a-1", 4), ("b-0", 5)):
        (tmp_path / name).mkdir()
        records = [kafka.Record(value=b"v" * number) for number in range(count)]
        (tmp_path / name / f"{0:020}.log").write_bytes(kafka.encode_batch(records))
    log = ranges(spark, str(tmp_path), "kafka.records")
    rows = aggregate(log, ["topic", "partition"], [("value_size", "sum")]).collect()
    found = sorted(
        (row["topic"], row["partition"], row["count"], row["value_size_sum"]) for row in rows
    )
    assert found == [("a", 0, 3, 3), ("a", 1, 4, 6), ("b", 0, 5, 10)]
