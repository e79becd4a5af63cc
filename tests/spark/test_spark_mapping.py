"""map_frames(): record sets in a binary column, of each row apart."""
import pytest
from conftest import batch, expected
from pyspark.errors import PythonException

import wirescan
from wirescan import kafka
from wirescan.spark import map_frames

pytestmark = pytest.mark.spark


@pytest.fixture
def sets(spark):
    """Rows of (id, topic, value): record sets, null, empty, cut, of all codecs."""
    values = [batch(100 * i, 10 + i, codec) for i, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))]
    values += [None, b"", batch(500) + batch(520, codec="lz4"), batch(600) + batch(620)[:-1],
               kafka.encode_message_set([b"old %d" % i for i in range(5)], base_offset=700, codec="gzip")]
    rows = [(i, f"topic {i % 3}", None if value is None else bytearray(value)) for i, value in enumerate(values)]
    return spark.createDataFrame(rows, "id bigint, topic string, value binary").repartition(2), values


def test_every_value_gives_its_frames(sets):
    frame, values = sets
    out = map_frames(frame.withColumnRenamed("value", "set"), "set", "kafka.records", keep=["id", "topic"])
    assert out.columns[:2] == ["id", "topic"] and "offset" in out.columns
    seen = sorted((r.id, r.topic, r.offset, r.key, r.value, [tuple(h) for h in r.headers]) for r in out.collect())
    cut = [value if i != 8 else value[:len(batch(600))] for i, value in enumerate(values)]
    assert seen == [(i, f"topic {i % 3}", r[0], r[2], r[3], r[4])
                    for i, value in enumerate(cut) if value for r in expected(value)]


def test_columns_and_other_formats(sets):
    frame, values = sets
    out = map_frames(frame, "value", "kafka.batches", keep=["id"], columns=["record_count"])
    assert sorted(map(tuple, out.collect())) == sorted(
        (i, count) for i, value in enumerate(values) if value
        for count in wirescan.scan(value, "kafka.batches", errors="mark")["record_count"].tolist())
    none = map_frames(frame.where("id < 0"), "value", "kafka.records", columns=["offset"])
    assert none.columns == ["offset"] and none.collect() == []


def test_many_values_in_a_batch(spark):
    value = batch(0, 2)
    frame = spark.range(0, 30_000, 1, 1).selectExpr("id", f"unhex('{value.hex()}') as value")
    out = map_frames(frame, "value", keep=["id"], columns=["offset", "key"])
    assert out.selectExpr("count(*)", "count(distinct id)", "sum(offset)", "count(key)").first() == (
        60_000, 30_000, 30_000, 30_000)


def test_kept_columns_of_any_type_keep_it(spark):
    frame = spark.range(0, 3, 1, 1).selectExpr(
        "id as `the id`", "array(named_struct('a', id, 'b', string(id))) as nested", "map('x', id) as pairs",
        "timestamp_seconds(id) as moment", "id / 2BD as half", "if(id = 1, null, date '2024-01-01') as day",
        f"unhex('{batch(0, 2).hex()}') as set")
    names = frame.columns[:-1]
    out = map_frames(frame, "set", keep=names, columns=["offset"])
    assert [(f.name, f.dataType, f.nullable) for f in out.schema[:-1]] == [
        (f.name, f.dataType, f.nullable) for f in frame.schema[:-1]]
    rows = [tuple(row) for row in frame.drop("set").collect()]
    assert [tuple(row) for row in out.collect()] == [(*row, offset) for row in rows for offset in (0, 1)]


def test_bad_values_in_each_mode(spark):
    good, bad = batch(10), bytearray(batch(20))
    bad[-1] ^= 1
    rows = list(enumerate(map(bytearray, (good, good + bad + good, b"\xff" * 100, good))))
    frame = spark.createDataFrame(rows, "id int, value binary").coalesce(1)
    skipped = map_frames(frame, "value", keep=["id"], columns=["offset"], errors="skip")
    assert skipped.groupBy("id").count().orderBy("id").collect() == [(0, 20), (1, 40), (3, 20)]
    marked = map_frames(frame, "value", keep=["id"], columns=["fault"], errors="mark").where("fault != 0").collect()
    assert [r.id for r in marked][:1] == [1] and {r.id for r in marked} == {1, 2}
    assert marked[0].fault == wirescan.Fault.BAD_CHECKSUM
    with pytest.raises(PythonException) as caught:
        map_frames(frame, "value").collect()
    assert f"at byte {len(good)} of column value, row 1 of partition 0" in str(caught.value)


def test_what_does_not_fit(sets):
    frame, _ = sets
    with pytest.raises(ValueError, match="no column 'payload'"):
        map_frames(frame, "payload")
    with pytest.raises(ValueError, match="no column 'colour'"):
        map_frames(frame, "value", keep=["colour"])
    with pytest.raises(ValueError, match="topic is string, not binary"):
        map_frames(frame, "topic")
    with pytest.raises(ValueError, match="'value'"):
        map_frames(frame, "value", keep=["value"])
