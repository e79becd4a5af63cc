"""Filters of `read`, and filters that Spark pushes down to the data source.

The rows are the same, and fewer bytes are read.
"""

import warnings
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

import wirescan
from tests.spark.frames import load_frames
from tests.spark.records import ORDERS, make_batch, write_segment
from tests.support.fake_broker import FakeCluster, Server
from wirescan import kafka
from wirescan.frames.registry import format_of
from wirescan.reading.filters import Filter
from wirescan.spark import read, register
from wirescan.spark.datasource import SETTING
from wirescan.spark.datasource_options import parse_reading
from wirescan.spark.datasource_pushdown import PushdownReader, translate_filters

pytestmark = pytest.mark.spark
RECORDS = [
    "_file",
    "_start",
    "_fault",
    "offset",
    "timestamp",
    "key",
    "value",
    "is_control",
    "producer_id",
    "fault",
]
LIFTBRIDGE = ORDERS.parents[1] / "liftbridge"
ROLLED = LIFTBRIDGE / "single" / "logs" / "rolled-0"
MICROSECONDS = int(wirescan.scan(ROLLED, "liftbridge.entries")["timestamp"][20]) // 1000


QUERIES = [
    (
        "kafka.records",
        RECORDS,
        [
            "offset >= 100 and offset < 130",
            "offset = 77",
            "offset <=> 77",
            "offset in (5, 6, 700, null)",
            "offset != 3",
            "not offset in (1, 2)",
            "timestamp > timestamp'2023-11-14 22:13:20.5Z'",
            "key is null",
            "value is not null",
            "timestamp = timestamp'2023-11-14 22:13:20.001Z'",
            "key = X'6b65792037' or offset = 1",
            "key = X'6b65792037'",
            "key >= X'6b6579203936'",
            "_file like '%a.log'",
            "_file like '%b.log'",
            "_start > 1000",
            "_fault is null",
            "_fault = 'BAD_CHECKSUM'",
            "fault is null",
            "fault is not null",
            "fault = 'BAD_CHECKSUM'",
            "fault < 'C'",
            "fault != 'SHORT'",
            "is_control",
            "not is_control",
            "is_control is null",
            "producer_id = -1",
            "offset is null",
            "offset > 90 and value > X'76' and length(key) > 5 and timestamp is not null",
            "offset + 1 = 8",
            "offset > 99999999999",
            "timestamp is null",
            "offset < 10",
        ],
    ),
    (
        "liftbridge.entries",
        ["offset", "timestamp", "key", "value", "leader_epoch"],
        [
            "offset > 12",
            "offset in (3, 14)",
            "leader_epoch = 1",
            "leader_epoch is null",
            "timestamp is not null",
            *(
                f"timestamp {op} timestamp_micros({MICROSECONDS})"
                for op in ("=", "!=", "<", "<=", ">", ">=")
            ),
        ],
    ),
    (
        "liftbridge.messages",
        ["kind", "timestamp", "stream", "subject", "offset"],
        [
            "kind = 'PUBLISH'",
            "kind like 'P%'",
            "kind in ('ACK', 'PLAIN')",
            "kind != 'PUBLISH'",
            "timestamp is null",
        ],
    ),
    (
        "thrift.fields",
        ["kind", "real", "integer", "method", "seqid"],
        ["real > 1.5", "real != 0", "kind = 'I32' and integer > 3", "method = X'616464'"],
    ),
]


@pytest.mark.parametrize("format, columns, queries", QUERIES, ids=[query[0] for query in QUERIES])
def test_rows_equal_those_of_spark_filters(spark, tmp_path, format, columns, queries):
    if format == "kafka.records":
        write_segment(tmp_path / "a.log", 8)
        bad = bytearray(make_batch(160) + make_batch(180, codec="zstd") + make_batch(200))
        bad[-3] ^= 1
        (tmp_path / "b.log").write_bytes(bad)
        path = [str(tmp_path / "*.log"), str(ORDERS / "00000000000000001480.log")]
    elif format == "liftbridge.entries":
        path = str(ROLLED)
    elif format == "liftbridge.messages":
        path = sorted(map(str, (LIFTBRIDGE / "single").glob("*.bin")))
    else:
        path = sorted(map(str, (ORDERS.parents[1] / "thrift").glob("*.theader")))
    options = {"format": format, "columns": ",".join(columns)}
    # Spark alone filters cached rows.
    cached = {
        errors: load_frames(spark, path, errors=errors, **options).cache()
        for errors in ("mark", "skip")
    }
    queries_with_rows = 0
    for number, query in enumerate(queries):
        errors = "mark" if number % 3 else "skip"
        expected = sorted(map(repr, cached[errors].where(query).collect()))
        frame = load_frames(spark, path, errors=errors, **options)
        assert sorted(map(repr, frame.where(query).collect())) == expected, query
        queries_with_rows += bool(expected)
    for frame in cached.values():
        frame.unpersist()
    assert queries_with_rows > len(queries) // 2


def test_a_file_without_matching_rows_is_not_read(spark, tmp_path):
    bad = bytearray(make_batch(0) + make_batch(20))
    bad[-3] ^= 1
    (tmp_path / "bad.log").write_bytes(bad)
    (tmp_path / "good.log").write_bytes(make_batch(40))
    path = str(tmp_path / "*.log")
    condition = "_file like '%good.log'"
    options = {"columns": "_file,offset"}
    with pytest.raises(PySparkException, match="BAD_CHECKSUM"):
        load_frames(spark, path, pushdown="false", **options).where(condition).collect()
    frame = load_frames(spark, path, **options).where(condition)
    assert frame.count() == 20
    filters = [("_file", "ends_with", "good.log")]
    assert read(spark, path, columns=["offset"], filters=filters).count() == 20
    frame = load_frames(spark, path, **options).where(condition)
    assert frame.rdd.getNumPartitions() == 1


def test_the_option_pushdown_switches_filters_off(spark, tmp_path):
    """Damage is reported if it is read. By default it is excluded by the filters of the query."""
    for partition in (0, 1):
        (tmp_path / f"topic-{partition}").mkdir()
    (tmp_path / "topic-0" / f"{0:020}.log").write_bytes(make_batch(0))
    bad = bytearray(make_batch(20))
    bad[-3] ^= 1
    (tmp_path / "topic-1" / f"{20:020}.log").write_bytes(bad)
    log = str(tmp_path)
    options = {"columns": "partition,offset"}
    assert load_frames(spark, log, **options).where("partition = 0").count() == 20
    with pytest.raises(PySparkException, match="BAD_CHECKSUM"):
        load_frames(spark, log, pushdown="false", **options).where("partition = 0").count()
    with pytest.raises(PySparkException, match="pushdown must be true or false"):
        load_frames(spark, log, pushdown="maybe").count()


def test_a_session_without_the_setting_is_warned_about(spark, log):
    """Spark refuses queries of a source that takes filters if the setting is off."""
    before = spark.conf.get(SETTING)
    spark.conf.set(SETTING, "false")
    try:
        with pytest.warns(RuntimeWarning, match=f'conf.set."{SETTING}", "true".'):
            register(spark)
        assert load_frames(spark, log).where("offset < 3").count() == 3
        with pytest.raises(PySparkException, match="filterPushdown"):
            load_frames(spark, log, pushdown="true").where("offset < 3").count()
    finally:
        spark.conf.set(SETTING, before)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            register(spark)


# ---- without a session


@pytest.mark.parametrize(
    "predicates, want",
    [
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
        (LessThan(("offset",), "a"), []),
    ],
)
def test_predicates_of_spark_become_filters(predicates, want):
    assert translate(predicates, "kafka.records") == [Filter(*condition) for condition in want]


def translate(predicate, format):
    return list(translate_filters([predicate], format_of(format)))


def test_a_microsecond_is_a_range_of_nanoseconds():
    time = datetime(2024, 1, 1, 0, 0, 0, 1, timezone.utc)
    start = 1_704_067_200_000_001_000
    stop = start + 1000
    two_times = (time, time + timedelta(seconds=1))
    for predicate, expected in [
        (EqualTo(("timestamp",), time), [(">=", start), ("<", stop)]),
        (In(("timestamp",), two_times), [(">=", start), ("<", stop + 10**9)]),
        (In(("timestamp",), (None,)), [("in", ())]),
        (LessThanOrEqual(("timestamp",), time), [("<", stop)]),
        (GreaterThan(("timestamp",), time), [(">=", stop)]),
        (GreaterThanOrEqual(("timestamp",), time), [(">=", start)]),
        (LessThan(("timestamp",), time), [("<", start)]),
        (Not(EqualTo(("timestamp",), time)), []),
        (IsNotNull(("timestamp",)), [("is_not_null", None)]),
    ]:
        filters = [Filter("timestamp", *condition) for condition in expected]
        assert translate(predicate, "liftbridge.entries") == filters
    # No microsecond follows the largest time.
    for predicate in (EqualTo, LessThanOrEqual, GreaterThan):
        assert translate(predicate(("timestamp",), datetime.max), "liftbridge.entries") == []


def test_predicates_that_are_not_translated():
    assert translate(EqualTo(("real",), 1.0), "thrift.fields") == []
    assert translate(IsNull(("leader_epoch",)), "liftbridge.entries") == []


def test_fewer_offsets_of_topics_are_fetched():
    cluster = FakeCluster()
    for topic in ("a", "b"):
        cluster.add_topic(topic, 2)
        for number in (0, 1):
            for base in range(0, 100, 20):
                records = [
                    kafka.Record(base + i, 1_700_000_000_000 + base + i, b"k", b"v")
                    for i in range(20)
                ]
                cluster.append(topic, number, kafka.encode_batch(records))
    with Server(cluster):

        def ranges(*predicates, **more):
            options = {"bootstrap.servers": cluster.bootstrap, "topic": "a,b", **more}
            reader = PushdownReader(options, parse_reading(options).struct)
            assert list(reader.pushFilters(list(predicates))) == list(predicates)
            return [
                (fetch.name, fetch.start, fetch.stop)
                for part in reader.partitions()
                for fetch in part.value or ()
            ]

        every = [(name, 0, 100) for name in ("a-0", "a-1", "b-0", "b-1")]
        assert ranges() == every
        assert ranges(EqualTo(("topic",), "b"), In(("partition",), (1, 3))) == every[3:]
        assert ranges(Not(EqualTo(("topic",), "b")), LessThan(("partition",), 1)) == every[:1]
        assert ranges(EqualTo(("topic",), "c")) == []
        assert ranges(GreaterThan(("offset",), 99)) == []

        a_0 = [EqualTo(("topic",), "a"), EqualTo(("partition",), 0)]
        above = GreaterThan(("offset",), 30)
        up_to = LessThanOrEqual(("offset",), 41)
        assert ranges(*a_0, above, up_to) == [("a-0", 31, 42)]
        assert ranges(*a_0, LessThan(("offset",), 10), stop="50") == [("a-0", 0, 10)]
        assert ranges(*a_0, above, errors="mark") == [("a-0", 0, 100)]
        time = datetime(2023, 11, 14, 22, 13, 20, 45000, timezone.utc)
        not_before = GreaterThanOrEqual(("timestamp",), time)
        after = GreaterThan(("timestamp",), time)
        assert ranges(*a_0, not_before) == [("a-0", 45, 100)]
        assert ranges(*a_0, not_before, start="10") == [("a-0", 10, 100)]
        assert ranges(*a_0, after, startTime="1700000000070") == [("a-0", 70, 100)]
        assert ranges(*a_0, GreaterThan(("timestamp",), time + timedelta(days=1))) == []
