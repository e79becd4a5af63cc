"""The option `schema=kafka`: the columns and types of Spark's own Kafka source."""

import datetime

import pytest
from pyspark.errors import PySparkException

from wirescan.kafka import Record, encode_batch, encode_message_set
from wirescan.spark import read

pytestmark = pytest.mark.spark
UTC = datetime.timezone.utc
TYPES = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
HEADERS = ("headers", "array<struct<key:string,value:binary>>")


@pytest.fixture
def segment(tmp_path):
    """Data records of both timestamp types, a control record, and messages of magic 0."""
    path = tmp_path / "my-topic-7" / f"{0:020}.log"
    path.parent.mkdir()
    headers = [("trace", b"1"), ("\N{LATIN SMALL LETTER E WITH ACUTE}", None), (b"\xff", b"")]
    batches = [
        encode_batch([Record(0, 1_000, b"k", b"v", headers), Record(1, 2_000, None, None)]),
        encode_batch(
            [Record(2, 3_000, b"k", b"appended")], timestamp_type="append", max_timestamp=5_000
        ),
        encode_batch([Record(3, 6_000, b"\0\0\0\1", bytes(6))], control=True, transactional=True),
        encode_message_set([Record(4, None, b"old", b"message")], magic=0),
    ]
    path.write_bytes(b"".join(batches))
    return str(path)


def load(spark, path, **options):
    options = {"schema": "kafka", **options}
    return spark.read.format("wirescan").options(**options).load(path)


def read_all(spark, path, **options):
    named = {"includeHeaders": "include_headers"}
    return read(spark, path, schema="kafka", **{named.get(k, k): v for k, v in options.items()})


WAYS = pytest.mark.parametrize("way", [load, read_all])


@WAYS
def test_the_columns_have_the_names_and_types_of_the_kafka_source(spark, segment, way):
    assert way(spark, segment).dtypes == TYPES
    assert way(spark, segment, includeHeaders=True).dtypes == [*TYPES, HEADERS]


@WAYS
def test_the_rows_are_those_of_a_consumer(spark, segment, way):
    rows = [tuple(row) for row in way(spark, segment, includeHeaders=True).collect()]
    times = [row[5] and row[5].replace(tzinfo=UTC).timestamp() for row in rows]
    assert times == [1, 2, 5, None]
    assert [row[:5] for row in rows] == [
        (b"k", b"v", "my-topic", 7, 0),
        (None, None, "my-topic", 7, 1),
        (b"k", b"appended", "my-topic", 7, 2),
        (b"old", b"message", "my-topic", 7, 4),
    ]
    assert [row[6] for row in rows] == [0, 0, 1, -1]
    pairs = [None if row[7] is None else [tuple(pair) for pair in row[7]] for row in rows]
    first = [("trace", b"1"), ("\N{LATIN SMALL LETTER E WITH ACUTE}", None), ("\ufffd", b"")]
    assert pairs == [first, None, None, None]


def test_a_schema_chooses_columns(spark, segment):
    reader = spark.read.format("wirescan").option("schema", "kafka")
    frame = reader.schema("timestampType int, offset bigint").load(segment)
    assert [tuple(row) for row in frame.collect()] == [(0, 0), (0, 1), (1, 2), (-1, 4)]
    chosen = load(spark, segment, columns="offset, timestampType, topic")
    assert chosen.columns == ["offset", "timestampType", "topic"]
    assert tuple(chosen.collect()[2]) == (2, 1, "my-topic")
    with pytest.raises(PySparkException, match="timestampType"):
        reader.schema("timestampType bigint").load(segment).collect()


def test_no_columns_still_have_rows(spark, segment):
    assert read(spark, segment, columns=[], schema="kafka").count() == 4


@WAYS
def test_payloads_are_decoded(spark, tmp_path, way):
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(encode_batch([Record(0, 1, b"k", b'{"a": 1}'), Record(1, 1, b"k", b"?")]))
    options = {"decode.value": "json"} if way is load else {"decode": {"value": "json"}}
    frame = way(spark, str(path), **options)
    assert frame.columns == ["key", "value", "value_fault", *[name for name, _ in TYPES[2:]]]
    assert [row.value and row.value.a for row in frame.collect()] == [1, None]


def test_conditions_of_a_query_are_used(spark, segment):
    frame = load(spark, segment)
    rows = frame.where("topic = 'my-topic' and offset > 0 and timestampType = 1").collect()
    assert [row.offset for row in rows] == [2]
    assert frame.where("partition = 6").count() == 0
    assert frame.where("partition = 6").rdd.getNumPartitions() == 1


def test_a_stream_has_the_columns(spark, segment, tmp_path):
    stream = spark.readStream.format("wirescan").option("schema", "kafka").load(segment)
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.dtypes == TYPES
    assert sorted(row.offset for row in written.collect()) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "kafka.batches"}, "is for kafka.records"),
        ({"errors": "mark"}, "no column for the faults"),
        ({"schema": "kafak"}, "the schema can be 'kafka'"),
        ({"columns": "key,headers"}, "needs includeHeaders"),
        ({"columns": "time"}, "column 'time'"),
    ],
)
def test_unfit_options_are_refused(spark, segment, options, message):
    with pytest.raises((ValueError, PySparkException), match=message):
        load(spark, segment, **options).collect()


def test_headers_without_the_schema_are_refused(spark, segment):
    with pytest.raises(ValueError, match="includeHeaders is for schema=kafka"):
        read(spark, segment, include_headers=True)
