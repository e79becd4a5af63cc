"""map_frames(): record sets in a binary column, of each row apart."""
import numpy as np
import pyarrow as pa
import pytest
from conftest import batch, expected
from pyspark.errors import PythonException

import wirescan
from wirescan import FrameError, Limits, kafka, pieces
from wirescan.core.loop import HEAD
from wirescan.spark import map_frames, mapping
from wirescan.spark.mapping import tables
from wirescan.spark.reading import Reading

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
    out = map_frames(frame.withColumnRenamed("value", "set"), "set", "kafka.records", keep=["id", "topic"],
                     cut="leave")
    assert out.columns[:2] == ["id", "topic"] and "offset" in out.columns
    seen = sorted((r.id, r.topic, r.offset, r.key, r.value, [tuple(h) for h in r.headers]) for r in out.collect())
    cut = [value if i != 8 else value[:len(batch(600))] for i, value in enumerate(values)]
    assert seen == [(i, f"topic {i % 3}", r[0], r[2], r[3], r[4])
                    for i, value in enumerate(cut) if value for r in expected(value)]


def test_columns_and_other_formats(sets):
    frame, values = sets
    out = map_frames(frame, "value", "kafka.batches", keep=["id"], columns=["record_count"], cut="leave")
    assert sorted(map(tuple, out.collect())) == sorted(
        (i, count) for i, value in enumerate(values) if value
        for count in wirescan.scan(value, "kafka.batches", errors="mark")["record_count"].tolist())
    none = map_frames(frame.where("id < 0"), "value", "kafka.records", columns=["offset"])
    assert none.columns == ["offset"] and none.collect() == []


def test_what_the_end_of_a_value_cuts(spark):
    whole, cut = batch(600), batch(620)[:-1]
    frame = spark.createDataFrame(list(enumerate(map(bytearray, (whole + cut, cut, whole)))), "id int, value binary")
    frame = frame.coalesce(1)
    columns = ["_start", "size", "_fault"]
    def rows(**options):
        out = map_frames(frame, "value", "kafka.batches", keep=["id"], columns=columns, errors="mark", **options)
        return list(map(tuple, out.collect()))
    assert rows() == [(0, 0, len(whole), None), (0, len(whole), len(cut), "SHORT"), (1, 0, len(cut), "SHORT"),
                      (2, 0, len(whole), None)]
    assert rows(cut="leave") == [row for row in rows() if row[1] == 0]
    with pytest.raises(PythonException, match="SHORT") as caught:
        map_frames(frame, "value").collect()
    assert f"at byte {len(whole)} of column value, row 0 of partition 0" in str(caught.value)
    with pytest.raises(ValueError, match="cut must be one of fault, leave, not 'drop'"):
        map_frames(frame, "value", cut="drop")


def test_kept_columns_that_are_large_are_not_gathered_at_once(spark):
    """Each frame repeats the columns kept: a million bytes, 2,400 times, are more than a column of Arrow holds."""
    sets = batch(0, 1200, "zstd") + batch(1200, 1200, "zstd")
    frame = spark.range(0, 1, 1, 1).selectExpr("repeat('x', 1000000) as large", f"unhex('{sets.hex()}') as value")
    out = map_frames(frame, "value", keep=["large"], columns=["offset"])
    assert out.selectExpr("count(*)", "sum(length(large))", "sum(offset)").first() == (
        2400, 2_400_000_000, 2400 * 2399 // 2)


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
        map_frames(frame.withColumnRenamed("value", "a {b}"), "a {b}").collect()
    assert f"at byte {len(good)} of column a {{b}}, row 1 of partition 0" in str(caught.value)


@pytest.mark.parametrize("format", ["kafka.batches", "kafka.records", "kafka.headers"])
@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_what_is_held_inflated_is_bounded(monkeypatch, format, errors):
    """Values are opened in parts; their frames stay the same, and so does the value that each is in."""
    bad = bytearray(batch(50))
    bad[-1] ^= 1
    sets = [batch(10 * i, 10, ("zstd", "none", "gzip")[i % 3]) * (i % 4) for i in range(60)]
    sets[20:20] = [None, bytes(bad) + batch(60), b"\xff" * 90]
    values, reading = pa.array(sets, pa.binary())[1:], Reading(format, errors=errors)
    def found():
        return [(table["fault"].tolist(), at.tolist(), sum(map(len, table.buffers[1:])))
                for table, at in tables(values, reading)]
    def flat(parts):
        return [pair for faults, at, _ in parts for pair in zip(faults, at)]
    whole = found()
    filled = {at for at, one in enumerate(sets[1:]) if one}
    assert len(whole) == 1 and {at for _, at in flat(whole)} >= filled - {20, 21}
    inner = format != "kafka.batches"
    largest = max(size for *_, size in whole) // 5
    monkeypatch.setattr(pieces, "INFLATED", max(largest, 1))
    parts = found()
    assert (len(parts) > 4) == inner and all(size <= max(largest, 1) for *_, size in parts)
    assert flat(parts) == flat(whole)


def test_formats_without_a_way_to_scan_many_streams_together():
    """As those of other packages may be: each value is scanned by itself, and the same is found."""
    data = memoryview(batch(0) + batch(20)[:-1] + b"\xff" * 70 + batch(40, codec="lz4"))
    ends = np.cumsum([0, len(batch(0)), len(batch(20)) - 1, 70, 0, len(batch(40, codec="lz4"))])
    spans = np.zeros(len(ends) - 1, HEAD)
    spans["start"], spans["size"], spans["parent"] = ends[:-1], np.diff(ends), np.arange(len(spans))
    format = wirescan.formats()["kafka.batches"]
    rows, _, *why = format.spans((data,), spans, True, True, Limits())
    alone, _, *told = mapping._one_by_one(format, (data,), spans, True, True, Limits())
    assert alone.tolist() == rows.tolist() and len(rows) == 3
    assert [one.tolist() for one in told] == [one.tolist() for one in why]


def test_errors_name_the_value_wherever_it_is_opened(monkeypatch):
    """Also those of a limit, and in a part that is not the first."""
    bad = bytearray(batch(20, codec="gzip"))
    bad[-1] ^= 1
    values = pa.array([batch(0, 30, "zstd")] * 9 + [None, batch(0, 2) + bad], pa.binary())
    for inflated in (pieces.INFLATED, 1_000):
        monkeypatch.setattr(pieces, "INFLATED", inflated)
        with pytest.raises(FrameError, match="BAD_CHECKSUM") as caught:
            list(tables(values, Reading("kafka.records"), first=100, where=str))
        assert (caught.value.source, caught.value.offset) == ("110", len(batch(0, 2)))
        with pytest.raises(FrameError, match="LIMIT") as caught:
            list(tables(pa.array([b"", batch(0, 2), batch(0, 30)]), Reading("kafka.records", limits=Limits(rows=10))))
        assert caught.value.source == "value 2" and 61 < caught.value.offset < len(batch(0, 30))


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
