"""Thrift through Spark: captures, and frames in a binary column."""
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as f
from thrift_bytes import binary, capture, frame, framed

import wirescan
from wirescan import Fault
from wirescan.arrow import to_batch
from wirescan.spark import map_frames, read
from wirescan.thrift.kind import MessageType, Transform

pytestmark = pytest.mark.spark

FORMATS = ("thrift.frames", "thrift.infos", "thrift.plain", "thrift.messages", "thrift.fields")
FILES = 3


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    for number in range(FILES):
        (folder / f"{number}.theader").write_bytes(capture(100 * number, 100))
    (folder / "notes.txt").write_text("no capture")
    return str(folder)


def rows_of(batch):
    return sorted(map(repr, batch.to_pylist()))


def of_spark(frame, schema):
    return rows_of(frame.toArrow().cast(schema))


def local(source, format, names=None):
    return to_batch(wirescan.scan(source, format), names, types="spark", binary="binary")


@pytest.mark.parametrize("format", FORMATS)
def test_captures(spark, captures, format):
    want = local(captures, format)
    assert want.num_rows > 70 * FILES
    whole = read(spark, captures, format)
    cut = spark.read.format("wirescan").options(format=format, bytesPerPartition="2k").load(captures)
    assert cut.rdd.getNumPartitions() > 3 * FILES
    assert of_spark(whole, want.schema) == of_spark(cut, want.schema) == rows_of(want)


def test_infos_are_a_list_column_of_frames(spark, captures):
    frames = read(spark, captures, "thrift.frames", ["seq", "infos"])
    assert frames.schema["infos"].dataType.simpleString() == "array<struct<key:binary,value:binary>>"
    pairs = frames.select(f.explode("infos").alias("info")).select("info.*")
    alone = read(spark, captures, "thrift.infos", ["key", "value"])
    assert pairs.count() == alone.count() == len(wirescan.scan(captures, "thrift.infos"))
    assert pairs.exceptAll(alone).isEmpty()
    clients = frames.where("seq = 1").select(f.expr("cast(infos[0].value as string)"))
    assert clients.first() == ("1",)


def test_columns_of_frames_around_fields(spark, captures):
    fields = read(spark, captures, "thrift.fields", ["kind", "id", "integer", "depth", "method", "seqid"])
    first = fields.where("kind = 'I32' and depth = 1 and id = 1")
    assert first.where("integer != seqid").isEmpty() and first.count() == 100 * FILES
    methods = first.groupBy(f.expr("cast(method as string)")).count()
    assert dict(map(tuple, methods.collect())) == {"add": 200, "ping": 100}


@pytest.mark.parametrize("format", FORMATS)
def test_values_hold_frames(spark, format):
    streams = [capture(0, 40), None, b"", capture(40, 5) + b"\0\0\0\x20\x80", capture(45, 1)]
    frame = spark.createDataFrame(list(enumerate(streams)), "number bigint, bytes binary").repartition(2)
    parts = {i: local(stream, format) for i, stream in enumerate(streams) if stream}
    want = sorted(repr({"number": i, **row}) for i, part in parts.items() for row in part.to_pylist())
    out = map_frames(frame, "bytes", format, keep=["number"], cut="leave")
    schema = parts[0].schema
    found = out.toArrow().cast(schema.insert(0, out.select("number").toArrow().schema.field(0)))
    assert len(want) > 30 and sorted(map(repr, found.to_pylist())) == want


def test_bad_values_in_each_mode(spark):
    good = framed(binary(b"add", MessageType.CALL, 1))
    values = [good, b"", frame(b"?", transforms=[Transform.CUSTOM]), None, frame(b"?", transforms=[Transform.ZSTD]),
              framed(binary(b"add", 9, 1)), good + good, b"\xff" * 20]
    column = spark.createDataFrame(list(enumerate(values)), "id int, payload binary").coalesce(1)
    def found(format="thrift.messages", **options):
        out = map_frames(column, "payload", format, ["id"], columns=["fault"], **options)
        return sorted(map(tuple, out.collect()))
    fine = [(0, 0), (6, 0), (6, 0)]
    bad = [(2, Fault.BAD_CODEC), (4, Fault.BAD_COMPRESSION), (5, Fault.BAD_KIND), (7, Fault.NOT_A_FRAME)]
    assert found(errors="skip") == fine and found(errors="mark") == sorted(fine + bad)
    assert {row for row in found("thrift.frames", errors="mark") if row[1]} == {bad[0], bad[3]}
    with pytest.raises(PythonException, match=r"BAD_CODEC\) at byte 0 of column payload, row 2 of partition 0"):
        found()
