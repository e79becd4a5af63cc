"""Thrift through Spark: captures, and frames in a binary column."""

import struct

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions

import wirescan
from tests.spark.frames import sort_rows, sort_rows_of_frame, write_captures
from tests.support.thrift_bytes import (
    make_binary_message,
    make_binary_struct,
    make_capture,
    make_frame,
    make_framed,
)
from wirescan.frames.to_arrow import to_batch
from wirescan.spark import map_frames, read
from wirescan.thrift.constants import MessageType, Transform

pytestmark = pytest.mark.spark

FORMATS = ("thrift.frames", "thrift.infos", "thrift.plain", "thrift.messages", "thrift.fields")
FILES = 3


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    write_captures(folder, "theader", make_capture, FILES)
    return str(folder)


def read_locally(source, format):
    return to_batch(wirescan.scan(source, format), types="spark", binary="binary")


@pytest.mark.parametrize("format", FORMATS)
def test_spark_reads_captures(spark, captures, format):
    expected = read_locally(captures, format)
    assert expected.num_rows > 70 * FILES
    whole = read(spark, captures, format)
    reader = spark.read.format("wirescan").options(format=format, bytesPerPartition="2k")
    sliced = reader.load(captures)
    assert sliced.rdd.getNumPartitions() > 3 * FILES
    assert sort_rows_of_frame(whole, expected.schema) == sort_rows(expected)
    assert sort_rows_of_frame(sliced, expected.schema) == sort_rows(expected)


def test_infos_are_a_list_column_of_frames(spark, captures):
    frames = read(spark, captures, "thrift.frames", ["seq", "infos"])
    infos_type = frames.schema["infos"].dataType.simpleString()
    assert infos_type == "array<struct<key:binary,value:binary>>"
    pairs = frames.select(functions.explode("infos").alias("info")).select("info.*")
    infos = read(spark, captures, "thrift.infos", ["key", "value"])
    assert pairs.count() == infos.count() == len(wirescan.scan(captures, "thrift.infos"))
    assert pairs.exceptAll(infos).isEmpty()
    clients = frames.where("seq = 1").select(functions.expr("cast(infos[0].value as string)"))
    assert clients.first() == ("1",)


def test_columns_of_frames_around_fields(spark, captures):
    fields = read(
        spark, captures, "thrift.fields", ["kind", "id", "integer", "depth", "method", "seqid"]
    )
    first = fields.where("kind = 'I32' and depth = 1 and id = 1")
    assert first.where("integer != seqid").isEmpty()
    assert first.count() == 100 * FILES
    methods = first.groupBy(functions.expr("cast(method as string)")).count()
    assert dict(map(tuple, methods.collect())) == {"add": 200, "ping": 100}


@pytest.mark.parametrize("format", FORMATS)
def test_frames_in_values_are_mapped(spark, format):
    streams = [
        make_capture(0, 40),
        None,
        b"",
        make_capture(40, 5) + b"\0\0\0\x20\x80",
        make_capture(45, 1),
    ]
    column = spark.createDataFrame(list(enumerate(streams)), "number bigint, bytes binary")
    batches = {i: read_locally(stream, format) for i, stream in enumerate(streams) if stream}
    expected = sorted(
        repr({"number": i, **row}) for i, rows in batches.items() for row in rows.to_pylist()
    )
    out = map_frames(column.repartition(2), "bytes", format, keep=["number"], cut="leave")
    number = out.select("number").toArrow().schema.field(0)
    table = out.toArrow().cast(batches[0].schema.insert(0, number))
    assert len(expected) > 30
    assert sort_rows(table) == expected


def test_bad_values_in_each_mode(spark):
    good = make_framed(make_binary_message(b"add", MessageType.CALL, 1))
    values = [
        good,
        b"",
        make_frame(b"?", transforms=[Transform.CUSTOM]),
        None,
        make_frame(b"?", transforms=[Transform.ZSTD]),
        make_framed(make_binary_message(b"add", 9, 1)),
        good + good,
        b"\xff" * 20,
    ]
    column = spark.createDataFrame(list(enumerate(values)), "id int, payload binary").coalesce(1)

    def collect(format="thrift.messages", **options):
        out = map_frames(column, "payload", format, ["id"], columns=["fault"], **options)
        return sorted((number, fault or "") for number, fault in out.collect())

    good_rows = [(0, ""), (6, ""), (6, "")]
    bad_rows = [(2, "BAD_CODEC"), (4, "BAD_COMPRESSION"), (5, "BAD_KIND"), (7, "NOT_A_FRAME")]
    assert collect(errors="skip") == good_rows
    assert collect(errors="mark") == sorted(good_rows + bad_rows)
    bad_frames = {row for row in collect("thrift.frames", errors="mark") if row[1]}
    assert bad_frames == {bad_rows[0], bad_rows[3]}
    message = r"BAD_CODEC\) at byte 0 of column payload, row 2 of partition 0"
    with pytest.raises(PythonException, match=message):
        collect()


# A message without a version word.
NAME = struct.pack(">i", 3) + b"add"
OLD = NAME + struct.pack(">Bi", MessageType.CALL, 7) + make_binary_struct(5, b"name")
IDL = "service Calc { i32 add(1: i32 number, 2: string name) }"


def test_options_of_the_format(spark, tmp_path):
    pytest.importorskip("thriftpy2")
    path = tmp_path / "old.theader"
    idl = tmp_path / "calc.thrift"
    path.write_bytes((make_framed(OLD) + OLD) * 50)
    idl.write_text(IDL)
    source = spark.read.format("wirescan").option("format", "thrift.fields")
    loaded = source.options(nonStrict="true", idl=str(idl), bytesPerPartition="1k").load(str(path))
    fields = read(spark, path, f"thrift.fields?non_strict=true&idl={idl}")
    for dataframe in (loaded, fields):
        names = dataframe.where("depth = 1 and id < 3").groupBy("name").count()
        assert dict(map(tuple, names.collect())) == {"number": 100, "name": 100}
    assert loaded.rdd.getNumPartitions() > 3
    with pytest.raises(PythonException, match="NOT_A_FRAME"):
        read(spark, path, "thrift.messages").count()
    for size, count in (("1k", 100), ("60", 0)):
        limited = source.options(nonStrict="true", maxFrame=size, errors="skip").load(str(path))
        assert limited.where("depth = 1 and id = 1").count() == count
