"""Filters: those of `read`, and those that Spark hands to the data source. The rows are the same; less is read."""
from datetime import datetime, timedelta, timezone

import pytest
from conftest import ORDERS, batch, segment
from fake_broker import FakeCluster, Server
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualNullSafe, EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, IsNull, LessThan, LessThanOrEqual, Not,
    StringContains, StringStartsWith)

import wirescan
from wirescan import kafka
from wirescan.catalog import format_of
from wirescan.filters import Filter
from wirescan.spark import read
from wirescan.spark.pushdown import PushdownReader, told
from wirescan.spark.source import reading_of

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
RECORDS = ["_file", "_start", "_fault", "offset", "timestamp", "key", "value", "is_control", "producer_id", "fault"]
LIFTBRIDGE = ORDERS.parents[1] / "liftbridge"
ROLLED = LIFTBRIDGE / "single" / "logs" / "rolled-0"
MICROSECONDS = int(wirescan.scan(ROLLED, "liftbridge.entries")["timestamp"][20]) // 1000


@pytest.fixture
def pushing(spark):
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def load(spark, path, **options):
    return spark.read.format("wirescan").options(**options).load(path)


QUERIES = [
    ("kafka.records", RECORDS, [
        "offset >= 100 and offset < 130", "offset = 77", "offset <=> 77", "offset in (5, 6, 700, null)", "offset != 3",
        "not offset in (1, 2)", "timestamp > timestamp'2023-11-14 22:13:20.5Z'", "key is null", "value is not null",
        "timestamp = timestamp'2023-11-14 22:13:20.001Z'", "key = X'6b65792037' or offset = 1", "key = X'6b65792037'",
        "key >= X'6b6579203936'", "_file like '%a.log'", "_file like '%b.log'", "_start > 1000", "_fault is null",
        "_fault = 'BAD_CHECKSUM'", "fault = 0", "fault > 0", "is_control", "not is_control", "producer_id = -1",
        "offset > 90 and value > X'76' and length(key) > 5 and timestamp is not null", "offset + 1 = 8",
        "offset > 99999999999", "timestamp is null", "offset < 10"]),
    ("liftbridge.entries", ["offset", "timestamp", "key", "value", "leader_epoch"], [
        "offset > 12", "offset in (3, 14)", "leader_epoch = 1", "leader_epoch is null", "timestamp is not null",
        *(f"timestamp {op} timestamp_micros({MICROSECONDS})" for op in ("=", "!=", "<", "<=", ">", ">="))]),
    ("liftbridge.messages", ["kind", "timestamp", "stream", "subject", "offset"], [
        "kind = 'PUBLISH'", "kind like 'P%'", "kind in ('ACK', 'PLAIN')", "kind != 'PUBLISH'", "timestamp is null"]),
    ("thrift.fields", ["kind", "real", "integer", "method", "seqid"], [
        "real > 1.5", "real != 0", "kind = 'I32' and integer > 3", "method = X'616464'"]),
]


@pytest.mark.parametrize("format, columns, queries", QUERIES, ids=[one[0] for one in QUERIES])
def test_the_rows_are_those_that_spark_finds_alone(pushing, tmp_path, format, columns, queries):
    if format == "kafka.records":
        segment(tmp_path / "a.log", 8)
        bad = bytearray(batch(160) + batch(180, codec="zstd") + batch(200))
        bad[-3] ^= 1
        (tmp_path / "b.log").write_bytes(bad)
        path = [str(tmp_path / "*.log"), str(ORDERS / "00000000000000001480.log")]
    elif format == "liftbridge.entries":
        path = str(ROLLED)
    else:
        path = sorted(map(str, (LIFTBRIDGE / "single").glob("*.bin") if "lift" in format else
                          (ORDERS.parents[1] / "thrift").glob("*.theader")))
    options, met = {"format": format, "columns": ",".join(columns)}, 0
    frames = {errors: load(pushing, path, errors=errors, **options).cache() for errors in ("mark", "skip")}
    for number, query in enumerate(queries):            # what is cached Spark filters alone
        errors = "mark" if number % 3 else "skip"
        want = sorted(map(repr, frames[errors].where(query).collect()))
        got = load(pushing, path, errors=errors, pushdown="true", **options).where(query).collect()
        assert sorted(map(repr, got)) == want, query
        met += bool(want)
    for frame in frames.values():
        frame.unpersist()
    assert met > len(queries) // 2


def test_what_no_wanted_row_is_in_is_not_met(pushing, tmp_path):
    bad = bytearray(batch(0) + batch(20))
    bad[-3] ^= 1
    (tmp_path / "bad.log").write_bytes(bad)
    (tmp_path / "good.log").write_bytes(batch(40))
    path = str(tmp_path / "*.log")
    wanted = "_file like '%good.log'"
    options = {"columns": "_file,offset"}
    with pytest.raises(PySparkException, match="BAD_CHECKSUM"):
        load(pushing, path, **options).where(wanted).collect()
    assert load(pushing, path, pushdown="true", **options).where(wanted).count() == 20
    assert read(pushing, path, columns=["offset"], filters=[("_file", "ends_with", "good.log")]).count() == 20
    plan = load(pushing, path, pushdown="true", **options).where(wanted)
    assert plan.rdd.getNumPartitions() == 1


def test_an_option_of_its_own(spark, log):
    assert load(spark, log, pushdown="false").where("offset < 3").count() == 3
    with pytest.raises(PySparkException, match="filterPushdown"):
        load(spark, log, pushdown="true").where("offset < 3").count()
    with pytest.raises(PySparkException, match="pushdown must be true or false"):
        load(spark, log, pushdown="maybe").count()


# ----------------------------------------------------------------------------------------------- without a session

@pytest.mark.parametrize("given, want", [
    (EqualTo(("offset",), 3), [("offset", "==", 3)]),
    (EqualNullSafe(("key",), None), [("key", "is_null", None)]),
    (EqualNullSafe(("key",), b"a"), [("key", "==", b"a")]),
    (Not(EqualNullSafe(("key",), b"a")), []),
    (In(("offset",), (1, None)), [("offset", "in", (1,))]),
    (Not(In(("offset",), (1, None))), []),
    (Not(In(("offset",), (1, 2))), [("offset", "not in", (1, 2))]),
    (Not(GreaterThan(("offset",), 7)), [("offset", "<=", 7)]),
    (Not(StringContains(("_file",), "a")), []),
    (StringStartsWith(("_file",), "a"), [("_file", "starts_with", "a")]),
    (IsNull(("timestamp",)), []),
    (Not(IsNull(("timestamp",))), [("timestamp", "is_not_null", None)]),
    (EqualTo(("headers",), []), []),
    (EqualTo(("a", "b"), 1), []),
    (EqualTo(("colour",), 1), []),
    (LessThan(("offset",), "a"), [])])
def test_what_spark_says_in_the_terms_of_a_format(given, want):
    assert list(told([given], format_of("kafka.records"))) == [Filter(*one) for one in want]


def test_microseconds_are_wider_than_nanoseconds():
    at = datetime(2024, 1, 1, 0, 0, 0, 1, timezone.utc)
    one = 1_704_067_200_000_001_000
    for given, want in [
            (EqualTo(("timestamp",), at), [(">=", one), ("<", one + 1000)]),
            (In(("timestamp",), (at, at + timedelta(seconds=1))), [(">=", one), ("<", one + 10**9 + 1000)]),
            (In(("timestamp",), (None,)), [("in", ())]),
            (LessThanOrEqual(("timestamp",), at), [("<", one + 1000)]),
            (GreaterThan(("timestamp",), at), [(">=", one + 1000)]),
            (GreaterThanOrEqual(("timestamp",), at), [(">=", one)]),
            (LessThan(("timestamp",), at), [("<", one)]),
            (Not(EqualTo(("timestamp",), at)), []), (IsNotNull(("timestamp",)), [("is_not_null", None)])]:
        assert list(told([given], format_of("liftbridge.entries"))) == [Filter("timestamp", *each) for each in want]
    for given in EqualTo, LessThanOrEqual, GreaterThan:         # the last time that there is has none behind it
        assert list(told([given(("timestamp",), datetime.max)], format_of("liftbridge.entries"))) == []
    assert list(told([EqualTo(("real",), 1.0)], format_of("thrift.fields"))) == []
    assert list(told([IsNull(("leader_epoch",))], format_of("liftbridge.entries"))) == []


def test_fewer_offsets_of_topics_are_fetched():
    cluster = FakeCluster()
    for topic in ("a", "b"):
        cluster.add_topic(topic, 2)
        for number in (0, 1):
            for base in range(0, 100, 20):
                records = [kafka.Record(base + i, 1_700_000_000_000 + base + i, b"k", b"v") for i in range(20)]
                cluster.append(topic, number, kafka.encode_batch(records))
    with Server(cluster):
        def ranges(*pushed, **more):
            options = {"bootstrap.servers": cluster.bootstrap, "topic": "a,b", **more}
            reader = PushdownReader(options, reading_of(options).struct)
            assert list(reader.pushFilters(list(pushed))) == list(pushed)
            return [(one.name, one.start, one.stop) for part in reader.partitions() for one in part.value or ()]
        every = [(name, 0, 100) for name in ("a-0", "a-1", "b-0", "b-1")]
        assert ranges() == every
        assert ranges(EqualTo(("topic",), "b"), In(("partition",), (1, 3))) == every[3:]
        assert ranges(Not(EqualTo(("topic",), "b")), LessThan(("partition",), 1)) == every[:1]
        assert ranges(EqualTo(("topic",), "c")) == ranges(GreaterThan(("offset",), 99)) == []
        few = [EqualTo(("topic",), "a"), EqualTo(("partition",), 0)]
        assert ranges(*few, GreaterThan(("offset",), 30), LessThanOrEqual(("offset",), 41)) == [("a-0", 31, 42)]
        assert ranges(*few, LessThan(("offset",), 10), stop="50") == [("a-0", 0, 10)]
        at = datetime(2023, 11, 14, 22, 13, 20, 45000, timezone.utc)
        assert ranges(*few, GreaterThanOrEqual(("timestamp",), at)) == [("a-0", 45, 100)]
        assert ranges(*few, GreaterThanOrEqual(("timestamp",), at), start="10") == [("a-0", 10, 100)]
        assert ranges(*few, GreaterThan(("timestamp",), at), startTime="1700000000070") == [("a-0", 70, 100)]
        assert ranges(*few, GreaterThan(("timestamp",), at + timedelta(days=1))) == []
        assert ranges(*few, GreaterThan(("offset",), 30), errors="mark") == [("a-0", 0, 100)]
