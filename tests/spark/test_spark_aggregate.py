"""Aggregates reduced in the tasks, beside the same computed from the rows, in Python and by Spark."""
from collections import Counter, defaultdict

import numpy as np
import pytest
from conftest import ORDERS, batch, expected
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import wirescan
from wirescan import kafka
from wirescan.reduce import Histogram
from wirescan.spark import grouping, read
from wirescan.spark.aggregation import aggregate
from wirescan.spark.ranges import ranges

pytestmark = pytest.mark.spark


@pytest.fixture
def parts(spark, log):
    return ranges(spark, log, bytes_per_partition=15_000)


def test_counts(spark, parts, log):
    assert aggregate(parts).columns == ["count"]
    assert aggregate(parts).first()["count"] == 1800
    found = {row.key and bytes(row.key): row["count"] for row in aggregate(parts, ["key"]).collect()}
    assert found == Counter(row[2] for row in expected(log))


def test_numbers_are_those_of_spark(spark, parts, log):
    measures = [(name, what) for name in ("offset", "value_size", "timestamp", "key", "value")
                for what in ("count", "sum", "min", "max", "mean")
                if what not in ("sum", "mean") or name in ("offset", "value_size")]
    by = ["header_count", "codec"]
    found = aggregate(parts, by, measures)
    names = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max, "mean": F.avg}
    rows = read(spark, log, columns=[*by, "offset", "value_size", "timestamp", "key", "value"])
    plain = rows.groupBy(*by).agg(F.count("*").alias("count"), *(
        names[what](name).alias(f"{name}_{what}") for name, what in measures))
    assert found.schema.simpleString() == plain.schema.simpleString()
    assert sorted(found.collect()) == sorted(plain.collect()) and found.count() == 15


def test_by_file_and_beside_spark(spark, parts, log):
    rows = aggregate(parts, ["_file"], [("offset", "min"), ("offset", "max")]).orderBy("_file").collect()
    assert [tuple(row)[1:] for row in rows] == [(600, 0, 599), (600, 600, 1199), (600, 1200, 1799)]
    assert [row._file for row in rows] == sorted(f"{log}/{base:020}.log" for base in (0, 600, 1200))


def test_distinct_is_exact_for_few_and_close_for_many(spark, parts, log):
    rows = aggregate(parts, ["header_count"], [("key", "distinct"), ("codec", "distinct")]).collect()
    keys = defaultdict(set)
    for _, _, key, _, headers, _ in expected(log):
        keys[len(headers)].add(key)
    for row in rows:
        exact = len(keys[row.header_count] - {None})
        assert abs(row.key_distinct - exact) < 0.08 * exact and row.codec_distinct == 5
    few = aggregate(ranges(spark, log, filters=[("offset", "<", 300)]), (), [("key", "distinct")]).first()
    assert few.key_distinct == 240


def test_sketches_of_all_sizes_merge_in_spark(spark):
    """What was made here is what Spark takes for its own; over lists, sets and registers."""
    from wirescan.reduce import coupons, fingerprints, sketches
    counts = [0, 1, 7, 8, 384, 385, 5000, 200_000]
    groups = [np.unique(coupons(fingerprints(np.arange(n)))) for n in counts]
    ends, data = sketches(np.concatenate(groups), np.cumsum([0, *map(len, groups)]))
    rows = [(n, bytearray(data[a:b])) for n, a, b in zip(counts, ends, ends[1:])]
    df = spark.createDataFrame(rows, "n long, s binary")
    alone = df.select("n", F.hll_sketch_estimate("s")).collect()
    merged = df.groupBy("n").agg(F.hll_sketch_estimate(F.hll_union_agg("s"))).collect()
    for count, estimate in [*alone, *merged]:
        assert estimate == count if count <= 384 else abs(estimate - count) < 0.05 * count
    together = df.agg(F.hll_sketch_estimate(F.hll_union_agg("s"))).first()[0]
    assert abs(together - 200_000) < 10_000


def test_histograms(spark, parts, log):
    row = aggregate(parts, (), [("value_size", "histogram"), ("offset", "histogram")]).first()
    table = wirescan.scan(f"{log}/*.log", "kafka.records")
    assert Histogram.of(row.offset_histogram) == Histogram().add(table["offset"])
    assert Histogram.of(row.value_size_histogram) == Histogram().add(table["value_size"])
    groups = aggregate(parts, ["codec"], [("offset", "histogram")]).collect()
    assert sum(len(Histogram.of(one.offset_histogram)) for one in groups) == 1800
    codecs = table.outer["codec"][table["parent"]]
    for one in groups:
        assert Histogram.of(one.offset_histogram) == Histogram().add(table["offset"][codecs == one.codec])


def test_the_last_bucket_of_all(spark, tmp_path):
    """Its upper end is the largest number of all, which no sum may pass."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(kafka.encode_batch([b""] * 20, base_offset=2**63 - 30))
    row = aggregate(ranges(spark, str(path)), (), [("offset", "histogram")]).first()
    assert row.offset_histogram[-1].asDict() == {"low": 63 << 57, "high": 2**63 - 1, "count": 20}
    assert len(row.offset_histogram) == 1
    with pytest.raises(PythonException, match="OverflowError: the sum of offset may be beyond 64 bits"):
        aggregate(ranges(spark, str(path)), (), [("offset", "sum")]).collect()


def test_groups_are_handed_over_when_they_are_many(parts, log, monkeypatch):
    """In this process, with room for little: results in parts, which come to the same."""
    from wirescan.spark.aggregation import Aggregation
    job = Aggregation("kafka.records", ("key",), (("value_size", "histogram"), ("key", "distinct")))
    located = [pair for task in range(len(parts.plan)) for pair in parts.reading.located(parts.plan[task])]
    (*_, whole) = [list(job.partials(iter(located)))]
    monkeypatch.setattr(grouping, "HELD", 10_000)
    monkeypatch.setattr(grouping, "TOGETHER", 5_000)
    several = list(job.partials(iter(located)))
    assert len(several) > len(whole) == 3

    def counts(batches):
        total = Counter()
        for one in batches:
            for row in one.to_pylist():
                total[row["key"]] += row[grouping.COUNT] or 0
        return total
    assert counts(several) == counts(whole) == Counter(row[2] for row in expected(log))


def test_nothing_to_count(spark, tmp_path):
    (tmp_path / "00000000000000000000.log").touch()
    none = ranges(spark, str(tmp_path))
    row = aggregate(none, (), [("offset", "max"), ("key", "distinct"), ("offset", "histogram"), ("offset", "mean"),
                               ("key", "count")]).first()
    assert tuple(row) == (0, None, 0, [], None, 0)
    assert aggregate(none, ["key"], [("key", "distinct")]).collect() == []


def test_values_of_a_dataframe(spark):
    df = spark.createDataFrame([(bytearray(batch(20 * i, codec="zstd")),) for i in range(10)], "v binary")
    rows = aggregate(df, ["codec"], [("offset", "max")], column="v").collect()
    assert [tuple(row) for row in rows] == [(int(kafka.Codec.ZSTD), 200, 199)]
    found = aggregate(df, column="v", format="kafka.batches").first()
    assert found["count"] == 10


def test_other_formats_and_texts(spark):
    path = ORDERS.parents[1] / "nats" / "recorded" / "nats-py-verbose.server.bin"
    found = {row.kind: row["count"] for row in aggregate(
        ranges(spark, str(path), "nats.messages"), ["kind"], [("subject", "distinct")]).collect()}
    table = wirescan.scan(str(path), "nats.messages")
    names = table.format.kinds
    assert found == Counter(names.get(int(kind)) for kind in table["kind"])


def test_damage(spark, damaged):
    path, _ = damaged
    with pytest.raises(PythonException, match="BAD_CHECKSUM"):
        aggregate(ranges(spark, path)).collect()
    marked = {row.fault: row["count"] for row in aggregate(ranges(spark, path, errors="mark"), ["fault"]).collect()}
    assert marked == {0: 180, int(wirescan.Fault.BAD_CHECKSUM): 1}
    assert aggregate(ranges(spark, path, errors="skip")).first()["count"] == 180


@pytest.mark.parametrize("by, measures, message", [
    (["no"], [], "no column 'no'"), ([], [("no", "sum")], "no column 'no'"),
    ([], [("offset", "median")], "a measure is"), ([], ["offset"], "a measure is"), ([], [("offset",)], "a measure is"),
    ([], [("key", "sum")], "key is binary, which has no sum"),
    ([], [("timestamp", "mean")], "which has no mean"), ([], [("key", "histogram")], "which has no histogram"),
    ([], [("headers", "max")], "which has no max"), (["headers"], [], "make no groups"),
    ([], [("offset", "max"), ("offset", "max")], "two columns would be named 'offset_max'"),
    (["key", "key"], [], "two columns would be named 'key'"),
])
def test_unfit_arguments(spark, parts, by, measures, message):
    with pytest.raises(ValueError, match=message):
        aggregate(parts, by, measures)


def test_places_that_are_no_values_are_refused(spark, log):
    df = spark.createDataFrame([(bytearray(batch(0)),)], "v binary")
    with pytest.raises(ValueError, match="_file makes groups, and has no min"):
        aggregate(ranges(spark, log), (), [("_file", "min")])
    with pytest.raises(ValueError, match="_start is a place in a file"):
        aggregate(df, (), [("_start", "max")], column="v")
