"""map_frames(): record sets in a binary column. Each row is read by itself."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException

import wirescan
from tests.spark.records import make_batch, read_expected_rows
from wirescan import FrameError, Limits, kafka
from wirescan.core.loop import HEAD
from wirescan.reading import nested_groups
from wirescan.spark import frame_mapping as mapping
from wirescan.spark import map_frames
from wirescan.spark.frame_mapping import read_values
from wirescan.spark.run import Reading

pytestmark = pytest.mark.spark


@pytest.fixture
def sets(spark):
    """Rows of (id, topic, value): record sets, null, empty, cut, of all codecs."""
    values = [
        make_batch(100 * i, 10 + i, codec)
        for i, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
    ]
    values += [
        None,
        b"",
        make_batch(500) + make_batch(520, codec="lz4"),
        make_batch(600) + make_batch(620)[:-1],
        kafka.encode_message_set([b"old %d" % i for i in range(5)], base_offset=700, codec="gzip"),
    ]
    rows = [
        (i, f"topic {i % 3}", None if value is None else bytearray(value))
        for i, value in enumerate(values)
    ]
    frame = spark.createDataFrame(rows, "id bigint, topic string, value binary")
    return frame.repartition(2), values


def test_every_value_gives_its_frames(sets):
    frame, values = sets
    frame = frame.withColumnRenamed("value", "set")
    out = map_frames(frame, "set", "kafka.records", keep=["id", "topic"], cut="leave")
    assert out.columns[:2] == ["id", "topic"]
    assert "offset" in out.columns
    rows = sorted(
        (row.id, row.topic, row.offset, row.key, row.value, [tuple(h) for h in row.headers])
        for row in out.collect()
    )
    whole = [value if i != 8 else value[: len(make_batch(600))] for i, value in enumerate(values)]
    assert rows == [
        (i, f"topic {i % 3}", offset, key, value, headers)
        for i, records in enumerate(whole)
        if records
        for offset, _, key, value, headers, _ in read_expected_rows(records)
    ]


def test_columns_and_other_formats(sets):
    frame, values = sets
    out = map_frames(
        frame, "value", "kafka.batches", keep=["id"], columns=["record_count"], cut="leave"
    )
    expected = []
    for i, value in enumerate(values):
        if value:
            table = wirescan.scan(value, "kafka.batches", errors="mark")
            expected += [(i, count) for count in table["record_count"].tolist()]
    assert sorted(map(tuple, out.collect())) == sorted(expected)
    empty = map_frames(frame.where("id < 0"), "value", "kafka.records", columns=["offset"])
    assert empty.columns == ["offset"]
    assert empty.collect() == []


def test_no_columns_still_have_rows(sets):
    frame, _ = sets
    count = map_frames(frame, "value", errors="mark").count()
    assert map_frames(frame, "value", columns=[], errors="mark").count() == count


def test_a_batch_cut_at_the_end_of_a_value(spark):
    whole = make_batch(600)
    cut = make_batch(620)[:-1]
    values = map(bytearray, (whole + cut, cut, whole))
    frame = spark.createDataFrame(list(enumerate(values)), "id int, value binary").coalesce(1)
    columns = ["_start", "size", "_fault"]

    def rows(**options):
        out = map_frames(
            frame, "value", "kafka.batches", keep=["id"], columns=columns, errors="mark", **options
        )
        return list(map(tuple, out.collect()))

    assert rows() == [
        (0, 0, len(whole), None),
        (0, len(whole), len(cut), "SHORT"),
        (1, 0, len(cut), "SHORT"),
        (2, 0, len(whole), None),
    ]
    assert rows(cut="leave") == [row for row in rows() if row[1] == 0]
    with pytest.raises(PythonException, match="SHORT") as caught:
        map_frames(frame, "value").collect()
    assert f"at byte {len(whole)} of column value, row 0 of partition 0" in str(caught.value)
    with pytest.raises(ValueError, match="cut must be one of fault, leave, not 'drop'"):
        map_frames(frame, "value", cut="drop")


@pytest.mark.nightly
def test_large_kept_columns_are_returned_in_several_batches(spark):
    """Each frame repeats the kept columns. One column of Arrow cannot hold 2,400 million bytes."""
    sets = make_batch(0, 1200, "zstd") + make_batch(1200, 1200, "zstd")
    frame = spark.range(0, 1, 1, 1).selectExpr(
        "repeat('x', 1000000) as large", f"unhex('{sets.hex()}') as value"
    )
    out = map_frames(frame, "value", keep=["large"], columns=["offset"])
    sums = out.selectExpr("count(*)", "sum(length(large))", "sum(offset)").first()
    assert sums == (2400, 2_400_000_000, 2400 * 2399 // 2)


def test_many_values_in_a_batch(spark):
    value = make_batch(0, 2)
    frame = spark.range(0, 30_000, 1, 1).selectExpr("id", f"unhex('{value.hex()}') as value")
    out = map_frames(frame, "value", keep=["id"], columns=["offset", "key"])
    sums = out.selectExpr("count(*)", "count(distinct id)", "sum(offset)", "count(key)").first()
    assert sums == (60_000, 30_000, 30_000, 30_000)


def test_kept_columns_keep_their_type(spark):
    frame = spark.range(0, 3, 1, 1).selectExpr(
        "id as `the id`",
        "array(named_struct('a', id, 'b', string(id))) as nested",
        "map('x', id) as pairs",
        "timestamp_seconds(id) as moment",
        "id / 2BD as half",
        "if(id = 1, null, date '2024-01-01') as day",
        f"unhex('{make_batch(0, 2).hex()}') as set",
    )
    names = frame.columns[:-1]
    out = map_frames(frame, "set", keep=names, columns=["offset"])
    assert [(f.name, f.dataType, f.nullable) for f in out.schema[:-1]] == [
        (f.name, f.dataType, f.nullable) for f in frame.schema[:-1]
    ]
    rows = [tuple(row) for row in frame.drop("set").collect()]
    assert [tuple(row) for row in out.collect()] == [
        (*row, offset) for row in rows for offset in (0, 1)
    ]


def test_bad_values_in_each_mode(spark):
    good = make_batch(10)
    damaged = bytearray(make_batch(20))
    damaged[-1] ^= 1
    rows = list(enumerate(map(bytearray, (good, good + damaged + good, b"\xff" * 100, good))))
    frame = spark.createDataFrame(rows, "id int, value binary").coalesce(1)
    skipped = map_frames(frame, "value", keep=["id"], columns=["offset"], errors="skip")
    assert skipped.groupBy("id").count().orderBy("id").collect() == [(0, 20), (1, 40), (3, 20)]
    marked = map_frames(frame, "value", keep=["id"], columns=["fault"], errors="mark")
    bad = marked.where("fault is not null").collect()
    assert bad[0].id == 1
    assert {row.id for row in bad} == {1, 2}
    assert bad[0].fault == "BAD_CHECKSUM"
    with pytest.raises(PythonException) as caught:
        map_frames(frame.withColumnRenamed("value", "a {b}"), "a {b}").collect()
    assert f"at byte {len(good)} of column a {{b}}, row 1 of partition 0" in str(caught.value)


@pytest.mark.parametrize("format", ["kafka.batches", "kafka.records", "kafka.headers"])
@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_decompressed_bytes_are_bounded(monkeypatch, format, errors):
    """Values are read in several tables. The frames and the values of the frames stay the same."""
    bad = bytearray(make_batch(50))
    bad[-1] ^= 1
    sets = [make_batch(10 * i, 10, ("zstd", "none", "gzip")[i % 3]) * (i % 4) for i in range(60)]
    sets[20:20] = [None, bytes(bad) + make_batch(60), b"\xff" * 90]
    values = pa.array(sets, pa.binary())[1:]
    reading = Reading(format, errors=errors)

    def read_tables():
        """Return (faults, numbers of the values, decompressed bytes) of each table."""
        return [
            (table["fault"].tolist(), numbers.tolist(), sum(map(len, table.buffers[1:])))
            for table, numbers in read_values(values, reading)
        ]

    def frames_of(parts):
        return [pair for faults, numbers, _ in parts for pair in zip(faults, numbers)]

    whole = read_tables()
    filled = {number for number, value in enumerate(sets[1:]) if value}
    assert len(whole) == 1
    assert {number for _, number in frames_of(whole)} >= filled - {20, 21}
    is_inner = format != "kafka.batches"
    limit = max(max(size for *_, size in whole) // 5, 1)
    monkeypatch.setattr(nested_groups, "INFLATED", limit)
    parts = read_tables()
    assert (len(parts) > 4) == is_inner
    assert all(size <= limit for *_, size in parts)
    assert frames_of(parts) == frames_of(whole)


def test_a_format_that_cannot_scan_many_streams_at_once():
    """A format of another package may lack `spans`. Each value is then scanned by itself."""
    values = [make_batch(0), make_batch(20)[:-1], b"\xff" * 70, b"", make_batch(40, codec="lz4")]
    buffers = (memoryview(b"".join(values)),)
    positions = np.cumsum([0, *map(len, values)])
    spans = np.zeros(len(values), HEAD)
    spans["start"] = positions[:-1]
    spans["size"] = np.diff(positions)
    spans["parent"] = np.arange(len(values))
    format = wirescan.formats()["kafka.batches"]
    check = resync = True
    rows, _, *stops = format.parser.spans(
        buffers, spans, check=check, resync=resync, limits=Limits()
    )
    alone, _, *stops_alone = mapping._scan_spans(
        format, buffers, spans, check=check, resync=resync, limits=Limits()
    )
    assert alone.tolist() == rows.tolist()
    assert len(rows) == 3
    assert [stop.tolist() for stop in stops_alone] == [stop.tolist() for stop in stops]


def test_errors_name_the_value(monkeypatch):
    """A limit may be exceeded, or the value may be in another table than the first."""
    bad = bytearray(make_batch(20, codec="gzip"))
    bad[-1] ^= 1
    values = pa.array([make_batch(0, 30, "zstd")] * 9 + [None, make_batch(0, 2) + bad], pa.binary())
    limited = Reading("kafka.records", limits=Limits(rows=10))
    for inflated in (nested_groups.INFLATED, 1_000):
        monkeypatch.setattr(nested_groups, "INFLATED", inflated)
        with pytest.raises(FrameError, match="BAD_CHECKSUM") as caught:
            list(read_values(values, Reading("kafka.records"), first=100, name_value=str))
        assert caught.value.source == "110"
        assert caught.value.offset == len(make_batch(0, 2))
        with pytest.raises(FrameError, match="LIMIT") as caught:
            list(read_values(pa.array([b"", make_batch(0, 2), make_batch(0, 30)]), limited))
        assert caught.value.source == "value 2"
        assert 61 < caught.value.offset < len(make_batch(0, 30))


def test_invalid_columns_are_refused(sets):
    frame, _ = sets
    with pytest.raises(ValueError, match="no column 'payload'"):
        map_frames(frame, "payload")
    with pytest.raises(ValueError, match="no column 'colour'"):
        map_frames(frame, "value", keep=["colour"])
    with pytest.raises(ValueError, match="topic is string, not binary"):
        map_frames(frame, "topic")
    with pytest.raises(ValueError, match="'value'"):
        map_frames(frame, "value", keep=["value"])
