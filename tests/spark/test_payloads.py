"""Payloads become the same typed columns in Spark's tasks as without Spark."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan.spark
from tests.spark.records import ORDERS
from tests.support.paths import ROOT
from wirescan.decoding.decoder import Decoded, Decoder
from wirescan.export.batches import iter_batches
from wirescan.kafka import Record, encode_batch
from wirescan.spark import read, read_topic, register, to_parquet
from wirescan.spark.payload_types import SparkDecoder, make_payloads

pytestmark = pytest.mark.spark
COLUMNS = ["offset", "key", "value"]
DECODE = {"value": "json", "key": "string"}
NAMES = ["offset", "key", "key_fault", "value", "value_fault"]


def read_locally(path, decode=DECODE):
    rows = []
    for batch in iter_batches(str(path), format="kafka.records", columns=COLUMNS, decode=decode):
        rows += batch.to_pylist()
    return sorted(rows, key=lambda row: row["offset"])


def collect(frame):
    rows = [row.asDict(recursive=True) for row in frame.orderBy("offset").collect()]
    assert list(rows[0]) == frame.columns
    return rows


def write_log(path: Path, values, **fields):
    records = [Record(number, value=value, **fields) for number, value in enumerate(values)]
    path.write_bytes(encode_batch(records))
    return str(path)


@pytest.fixture
def damaged(tmp_path):
    """Values of several shapes: the types come from the first rows, and two are refused."""
    values = [
        b'{"a": 1, "b": ["x", null]}',
        None,
        b'{"a": 2, "c": {"d": 1.5}}',
        b"{",
        b'{"a": "z"}',
    ]
    return write_log(tmp_path / "0.log", values, key=b"k")


def test_columns_are_those_of_the_local_reader(spark, damaged):
    frame = read(spark, damaged, columns=COLUMNS, decode=DECODE)
    assert frame.columns == NAMES
    assert collect(frame) == read_locally(damaged)
    assert frame.where("value_fault is not null").count() == 2


def test_a_recorded_partition(spark):
    path = str(ORDERS / "00000000000000012500.log")
    frame = read(spark, path, columns=COLUMNS, decode=DECODE, bytes_per_partition=50_000)
    assert frame.rdd.getNumPartitions() > 2
    assert collect(frame) == read_locally(path)
    totals = frame.groupBy("value.currency").count().collect()
    assert sum(row["count"] for row in totals) == frame.count()


def test_the_data_source_has_an_option_for_each_column(spark, damaged):
    register(spark)
    source = spark.read.format("wirescan").option("columns", ",".join(COLUMNS))
    source = source.option("decode.value", "json").option("decode.key", "string")
    assert source.load(damaged).columns == NAMES
    assert collect(source.load(damaged)) == read_locally(damaged)
    with pytest.raises(
        Exception, match="the columns have to be value, value_fault, key, key_fault"
    ):
        source.schema("value string, value_fault string, key string").load(damaged).collect()
    kind = "struct<a: bigint, b: array<string>, c: struct<d: double>>"
    source = spark.read.format("wirescan").option("decode.value", "json")
    frame = source.schema(f"value {kind}, value_fault string, offset bigint").load(damaged)
    assert [row["value"] for row in collect(frame)] == [
        row["value"] for row in read_locally(damaged)
    ]


def test_pushed_filters_do_not_touch_decoded_columns(spark, damaged):
    register(spark)
    frame = spark.read.format("wirescan").option("decode.value", "json").load(damaged)
    # Null, and the refused payloads, which are not null in the file.
    assert frame.where("value is null").count() == 3
    assert frame.where("value_fault is not null and offset > 3").count() == 1


def test_a_stream_decodes(spark, damaged, tmp_path):
    register(spark)
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"a": "int64"}))
    source = spark.readStream.format("wirescan").option("columns", ",".join(COLUMNS))
    stream = source.option("decode.value", f"json:{schema}").load(damaged)
    query = (
        stream.writeStream.format("memory").queryName("decoded").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    rows = collect(spark.table("decoded"))
    assert [row["value"] for row in rows] == [{"a": 1}, None, {"a": 2}, None, None]


def test_the_example_of_the_documents_runs(spark, capsys, monkeypatch):
    (code,) = re.findall(
        r"```python spark\n(.*?)```", (ROOT / "docs/payloads.md").read_text(), re.S
    )
    monkeypatch.setattr(wirescan.spark, "session", lambda name: spark)
    exec(code.replace("/var/lib/kafka/orders-0", str(ORDERS)), {})
    assert "sum(value.amount" in capsys.readouterr().out


@pytest.mark.parametrize("writer", ["task", "spark"])
def test_parquet_has_decoded_columns(spark, damaged, tmp_path, writer):
    out = tmp_path / "out"
    summary = to_parquet(spark, damaged, out, columns=COLUMNS, decode=DECODE, writer=writer)
    assert summary.records == 5
    table = pq.read_table(out)
    assert table.column_names == NAMES
    assert sorted(table.to_pylist(), key=lambda row: row["offset"]) == read_locally(damaged)


def test_the_command_decodes_with_spark(damaged, tmp_path):
    out = tmp_path / "out"
    arguments = ("--decode", "value=json", "--columns", "offset,value", "--engine", "spark")
    # The command ends its session, so it gets a process of its own.
    command = [sys.executable, "-m", "wirescan", "convert", damaged, str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(out)["value_fault"].null_count == 3


def test_topics_need_types(spark):
    with pytest.raises(ValueError, match="payloads of topics cannot be inferred: give a schema"):
        read_topic(spark, "127.0.0.1:1", "orders", decode={"value": "json"})


def test_payloads_without_a_type_are_refused(spark, tmp_path):
    path = write_log(tmp_path / "0.log", [b"\0\0\0\0\1"])
    (tmp_path / "schemas").mkdir()
    with pytest.raises(ValueError, match="give a schema"):
        read(spark, path, decode={"value": f"avro:registry={tmp_path / 'schemas'}"})


class Fixed(Decoder):
    """Returns values that a test gives, whatever the payloads are."""

    def __init__(self, values):
        self._values = values
        self.type = values.type

    def decode(self, payloads):
        count = len(payloads)
        return Decoded(self._values.slice(0, count), pa.nulls(count, pa.string()))


LARGE = 2**64 - 1
TYPES = {
    "uint8": (pa.array([255, None], pa.uint8()), [255, None], "smallint"),
    "uint16": (pa.array([65_535, None], pa.uint16()), [65_535, None], "int"),
    "uint32": (pa.array([2**32 - 1, None], pa.uint32()), [2**32 - 1, None], "bigint"),
    "uint64": (pa.array([LARGE, None], pa.uint64()), [LARGE, None], "decimal(20,0)"),
    "time32": (pa.array([61, None], pa.time32("s")), [61_000_000, None], "bigint"),
    "time64": (pa.array([1999, None], pa.time64("ns")), [1, None], "bigint"),
    "view": (pa.array(["é", None], pa.string_view()), ["é", None], "string"),
    "fixed": (pa.array([b"ab", None], pa.binary(2)), [b"ab", None], "binary"),
    "codes": (pa.array(["a", None]).dictionary_encode(), ["a", None], "string"),
    "null": (pa.nulls(2), [None, None], "string"),
    "list": (pa.array([[1, None], None], pa.large_list(pa.uint8())), [[1, None], None],
             "array<smallint>"),
    "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.uint32())), [{"k": 1}, None],
            "map<string,bigint>"),
    "struct": (pa.array([{"t": 5, "s": {"u": 7}}, None],
                        pa.struct({"t": pa.time32("ms"), "s": pa.struct({"u": pa.uint64()})})),
               [{"t": 5000, "s": {"u": 7}}, None], "struct<t:bigint,s:struct<u:decimal(20,0)>>"),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_each_type_has_one_in_spark(spark, tmp_path, name):
    values, expected, kind = TYPES[name]
    path = write_log(tmp_path / "0.log", [b"x", b"y"])
    frame = read(spark, path, columns=["offset", "value"], decode={"value": Fixed(values)})
    assert frame.schema["value"].dataType.simpleString() == kind
    assert [row["value"] for row in collect(frame)] == expected


def test_times_are_cut_to_microseconds_and_others_are_refused(spark, tmp_path):
    values = pa.array([1_999, 2**62, None], pa.int64())
    path = write_log(tmp_path / "0.log", [b"x", b"y", b"z"])
    nanoseconds = Fixed(values.cast(pa.timestamp("ns", "UTC")))
    frame = read(spark, path, columns=["offset", "value"], decode={"value": nanoseconds})
    micros = frame.selectExpr("offset", "unix_micros(value) value")
    assert [row["value"] for row in collect(micros)] == [1, 2**62 // 1000, None]
    seconds = Fixed(values.cast(pa.timestamp("s", "UTC")))
    frame = read(spark, path, columns=["offset", "value"], decode={"value": seconds})
    rows = collect(frame.selectExpr("offset", "unix_micros(value) value", "value_fault"))
    assert [row["value"] for row in rows] == [1_999_000_000, None, None]
    assert [row["value_fault"] is None for row in rows] == [True, False, True]


def test_numbers_of_kafka(spark, tmp_path):
    path = write_log(tmp_path / "0.log", [struct.pack(">d", 1.5), b"x"])
    frame = read(spark, path, columns=["offset", "value"], decode={"value": "double"})
    assert [(row["value"], row["value_fault"]) for row in collect(frame)] == [
        (1.5, None),
        (None, "it does not have 8 bytes"),
    ]


def test_decoders_infer_before_they_have_a_type():
    payloads = make_payloads({"value": "json"})
    decoder = payloads.decoders["value"]
    assert isinstance(decoder, SparkDecoder)
    assert decoder.type is None
    decoder.fit(pa.array([b'{"a": 1}']))
    assert decoder.type == pa.struct({"a": pa.int64()})
    assert not make_payloads(None).decoders
