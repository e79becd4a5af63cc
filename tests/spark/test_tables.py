"""Frames to Delta Lake and Iceberg tables, read back by the readers of these formats."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wirescan
from tests.peers.ports import find_free_ports
from tests.spark.records import ORDERS
from wirescan import kafka
from wirescan.export.hive_layout import Layout
from wirescan.spark import delta_commit, to_table

pytestmark = pytest.mark.spark

COLUMNS = ["offset", "timestamp", "key", "value"]


@pytest.fixture(scope="module")
def expected():
    """The rows of the log, as wirescan reads them without Spark."""
    table = wirescan.scan(str(ORDERS), "kafka.records").to_arrow(COLUMNS, binary="binary")
    return sort(table)


@pytest.fixture(scope="module")
def address():
    """The address of moto's S3 server in another process, with a bucket of the name `bucket`.

    deltalake holds Python's lock while it waits for the server, so a thread could not answer.
    """
    from pyarrow.fs import S3FileSystem

    code = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as server:
        lines = iter(server.stdout)
        host, port = next(line for line in lines if line.startswith("127.0.0.1 ")).split()
        address = f"http://{host}:{port}"
        files = S3FileSystem(
            access_key="wirescan",
            secret_key="secret",
            endpoint_override=address,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        files.create_dir("bucket")
        yield address
        server.stdin.close()


def sort(table):
    table = table.select(COLUMNS).sort_by("offset").combine_chunks()
    kinds = [pa.int64(), pa.timestamp("us", "UTC"), pa.binary(), pa.binary()]
    return table.cast(pa.schema(zip(COLUMNS, kinds)))


def read_delta(path, **options):
    from deltalake import DeltaTable

    return DeltaTable(str(path), **options)


def read_rows(table):
    return sort(table.to_pyarrow_table())


def write_damaged(directory):
    """Write a log whose second segment has a wrong checksum."""
    directory.mkdir()
    for path in sorted(ORDERS.glob("*.log"))[:2]:
        data = bytearray(path.read_bytes())
        (directory / path.name).write_bytes(data)
    data[-1] ^= 1
    (directory / path.name).write_bytes(data)
    return directory


def test_a_delta_table_has_the_rows_of_the_log(spark, tmp_path, expected):
    target = tmp_path / "orders"
    summary = to_table(spark, str(ORDERS), target, columns=COLUMNS)
    table = read_delta(target)
    assert read_rows(table).equals(expected)
    assert summary.records == len(expected) and table.version() == 0
    names = {Path(path).name for path in table.file_uris()}
    assert {path.name for path in target.glob("*.parquet")} == names


def test_append_adds_a_version_and_overwrite_replaces_the_rows(spark, tmp_path, expected):
    target = tmp_path / "orders"
    for _ in range(2):
        to_table(spark, str(ORDERS), target, columns=COLUMNS)
    twice = read_delta(target)
    assert len(twice.to_pyarrow_table()) == 2 * len(expected)
    to_table(spark, str(ORDERS), target, columns=COLUMNS, mode="overwrite")
    table = read_delta(target)
    assert read_rows(table).equals(expected) and table.version() == 2
    # Readers of the version before still find its files.
    assert len(read_delta(target, version=1).to_pyarrow_table()) == 2 * len(expected)


def test_partitions_and_statistics_exclude_files(spark, tmp_path, expected):
    target = tmp_path / "orders"
    columns = [*COLUMNS, "codec"]
    to_table(spark, str(ORDERS), target, columns=columns, partition_by=["codec"])
    table = read_delta(target)
    assert table.metadata().partition_columns == ["codec"]
    assert read_rows(table).equals(expected)
    actions = pa.table(table.get_add_actions(flatten=True))
    assert sum(actions["num_records"].to_pylist()) == len(expected)
    assert pc.min(actions["min.offset"]).as_py() == expected["offset"][0].as_py()
    assert pc.max(actions["max.offset"]).as_py() == expected["offset"][-1].as_py()
    codec = actions["partition.codec"][0].as_py()
    rows = table.to_pyarrow_table(filters=[("codec", "=", codec)])
    assert 0 < len(rows) < len(expected)


@pytest.mark.parametrize("time", [253_402_300_800_000, -62_135_596_800_001])  # milliseconds
def test_times_without_a_year_of_four_digits_have_no_statistics(spark, tmp_path, time):
    """The job failed with an OverflowError."""
    path = tmp_path / "0.log"
    records = [kafka.Record(0, time, b"k", b"v"), kafka.Record(1, 0, b"k", b"v")]
    path.write_bytes(kafka.encode_batch(records))
    to_table(spark, str(path), tmp_path / "table", columns=["offset", "timestamp"])
    table = read_delta(tmp_path / "table")
    actions = pa.table(table.get_add_actions(flatten=True))
    assert actions["max.offset"].to_pylist() == [1]
    assert actions["max.timestamp"].to_pylist() == [None]
    times = table.to_pyarrow_table()["timestamp"].cast(pa.int64())
    assert sorted(times.to_pylist()) == sorted([1000 * time, 0])


@pytest.mark.parametrize("errors", ["strict", "mark"])
def test_values_that_partition_are_no_names_of_directories(spark, tmp_path, errors):
    """Long text was shortened or refused, and null had the value of the text that stands for it."""
    keys = [None, b"__HIVE_DEFAULT_PARTITION__", b"a/b", b"x" * 300, b"x" * 301, None]
    path = tmp_path / "0.log"
    path.write_bytes(kafka.encode_batch([{"offset": i, "key": key} for i, key in enumerate(keys)]))
    target = tmp_path / "table"
    columns = ["offset", "key"]
    to_table(spark, str(path), target, columns=columns, partition_by="key", errors=errors)
    rows = read_delta(target).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [row["key"] and row["key"].encode() for row in rows] == keys


def test_a_job_that_fails_changes_nothing(spark, tmp_path, expected):
    target = tmp_path / "orders"
    to_table(spark, str(ORDERS), target, columns=COLUMNS)
    files = sorted(target.rglob("*"))
    damaged = write_damaged(tmp_path / "damaged")
    with pytest.raises(Exception, match="BAD_CHECKSUM"):
        to_table(spark, str(damaged), target, columns=COLUMNS, bytes_per_partition=50_000)
    assert sorted(target.rglob("*")) == files
    assert read_rows(read_delta(target)).equals(expected)


def test_files_of_other_attempts_are_not_in_the_table(spark, tmp_path, expected, monkeypatch):
    """A task that ran twice has written its files twice, and Spark takes one result."""
    from wirescan.spark import store_files, table_tasks

    write_files = table_tasks.write_files
    make_name = store_files.StoreFiles.make_name

    def write_twice(slices, files, *arguments):
        def make_other_name(self, number):
            return make_name(self, number).replace(".parquet", "-again.parquet")

        result = write_files(slices, files, *arguments)
        store_files.StoreFiles.make_name = make_other_name
        try:
            write_files(slices, files, *arguments)
        finally:
            store_files.StoreFiles.make_name = make_name
        return result

    monkeypatch.setattr(table_tasks, "write_files", write_twice)
    target = tmp_path / "orders"
    to_table(spark, str(ORDERS), target, columns=COLUMNS)
    table = read_delta(target)
    assert read_rows(table).equals(expected)
    assert len(list(target.glob("*.parquet"))) == len(table.file_uris())


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_delta_table_is_spelled_as_spark_spells_it(spark, tmp_path, scheme):
    to_table(spark, str(ORDERS), f"{scheme}{tmp_path}/orders", columns=COLUMNS)
    assert read_delta(tmp_path / "orders").version() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["offset", "value"]}, "column value is binary here, and the Delta table"),
        ({"columns": COLUMNS, "partition_by": ["codec"]}, "is partitioned by no column"),
        ({"columns": COLUMNS, "mode": "replace"}, "mode must be one of append, overwrite"),
    ],
)
def test_arguments_that_do_not_fit_the_table(spark, tmp_path, arguments, message):
    target = tmp_path / "orders"
    to_table(spark, str(ORDERS), target, columns=["offset", "timestamp", "key"])
    with pytest.raises(ValueError, match=message):
        to_table(spark, str(ORDERS), target, **arguments)


def test_a_delta_table_in_an_object_store(spark, address, expected):
    options = f"endpoint_override={address}&region=us-east-1"
    target = f"s3://wirescan:secret@bucket/tables/orders?{options}"
    to_table(spark, str(ORDERS), target, columns=COLUMNS)
    to_table(spark, str(ORDERS), target, columns=COLUMNS, mode="overwrite")
    storage = {
        "aws_access_key_id": "wirescan",
        "aws_secret_access_key": "secret",
        "aws_endpoint_url": address,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    table = read_delta("s3://bucket/tables/orders", storage_options=storage)
    assert table.version() == 1
    assert read_rows(table).equals(expected)


def test_requests_to_an_unreachable_store_are_repeated_for_a_bounded_time(monkeypatch):
    (port,) = find_free_ports(1)
    url = f"s3://wirescan:secret@bucket/orders?endpoint_override=http://127.0.0.1:{port}"
    layout = Layout("kafka.records", ("offset",))
    assert delta_commit.RETRY_TIMEOUT == "30s"
    monkeypatch.setattr(delta_commit, "RETRY_TIMEOUT", "0s")
    with pytest.raises(ConnectionError, match="check endpoint_override") as raised:
        delta_commit.DeltaTarget(url, layout)
    assert "retries" not in str(raised.value)


def test_an_iceberg_table_has_the_rows_of_the_log(spark, tmp_path, expected):
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "logs", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    options = {"columns": COLUMNS, "catalog": catalog}
    to_table(spark, str(ORDERS), "logs.orders", **options)
    table = catalog.load_table("logs.orders")
    assert sort(table.scan().to_arrow()).equals(expected)
    to_table(spark, str(ORDERS), "logs.orders", **options)
    assert len(catalog.load_table("logs.orders").scan().to_arrow()) == 2 * len(expected)
    to_table(spark, str(ORDERS), "logs.orders", mode="overwrite", **options)
    assert sort(catalog.load_table("logs.orders").scan().to_arrow()).equals(expected)
    damaged = write_damaged(tmp_path / "damaged")
    with pytest.raises(Exception, match="BAD_CHECKSUM"):
        to_table(spark, str(damaged), "logs.orders", **options)
    assert sort(catalog.load_table("logs.orders").scan().to_arrow()).equals(expected)
