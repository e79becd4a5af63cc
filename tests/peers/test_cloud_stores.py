"""Objects in Azure and Google Cloud are read like those in S3. Azurite and fake-gcs-server run."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import run
from tests.support.object_names import GLOBS, NAMES, write_tree
from tests.support.paths import AIVEN_STORAGE, CORPUS, ORDERS, TIERED_STORAGE
from wirescan import Fault, FrameError, kafka
from wirescan.export.hive_layout import Layout
from wirescan.files import source
from wirescan.files.source import expand, get_size, list_files, open_ranges, read_range
from wirescan.files.store_errors import redact_url
from wirescan.kafka.log.aiven_segments import KEYS
from wirescan.reading import chunked, splits

from .cloud_stores import ACCOUNT, KEY, WRONG_KEY, Azurite, FakeGcs

pytestmark = pytest.mark.peers
BACKUPS = CORPUS / "kafka-backup"
CONNECT_BACKUP = CORPUS / "kafka-connect-backup"
SERVERS = {"azure": Azurite, "google": FakeGcs}
CLOSED_PORT = "http://127.0.0.1:9"


# The server of Google Cloud is built from source for minutes, so only the nightly run has it.
@pytest.fixture(scope="module", params=["azure", pytest.param("google", marks=pytest.mark.nightly)])
def objects(request):
    with SERVERS[request.param]() as store:
        for name in NAMES:
            store.put(name, name.encode())
        for directory in (ORDERS, *TIERED_STORAGE.glob("orders-0-*")):
            store.put_directory(directory, directory.name)
        for directory in BACKUPS.rglob("partition=0"):
            store.put_directory(directory, f"kbak/{directory.relative_to(BACKUPS)}")
        store.put_directory(CONNECT_BACKUP / "orders", "connect/orders")
        for directory in AIVEN_STORAGE.rglob("orders-*/0"):
            store.put_directory(directory, f"aiven/{directory.relative_to(AIVEN_STORAGE)}")
        yield store


@pytest.fixture(scope="module")
def azure():
    with Azurite() as store:
        store.put("logs/a.log", b"hello")
        yield store


def list_rows(records):
    names = ("offset", "timestamp", "key", "value")
    return list(zip(*(np.asarray(records[name]).tolist() for name in names)))


def test_globs_match_as_in_folders(objects, tmp_path):
    tree = write_tree(tmp_path)
    others = ("/orders-0", "/kbak/", "/connect/", "/aiven/")
    for glob in GLOBS:
        listed = [
            file for file in list_files(objects.url(glob)) if not any(map(file.path.count, others))
        ]
        names = [bytes(read_range(file.path, 0, 100)).decode() for file in listed]
        paths = expand(os.path.join(tree, glob))
        assert sorted(names) == sorted(os.path.relpath(path, tree) for path in paths), glob
        assert all(file.size == get_size(file.path) for file in listed)


def test_ranges_are_those_of_the_bytes(objects):
    path = max(ORDERS.glob("*.log"), key=lambda path: path.stat().st_size)
    raw = path.read_bytes()
    size = len(raw)
    spans = [(0, 10), (5, 5), (9, 3), (100, 5000), (size - 3, size + 9), (size, size + 1)]
    with open_ranges(objects.url(f"orders-0/{path.name}")) as read_part:
        data = [bytes(read_part(*span)) for span in spans]
    assert data == [raw[:10], b"", b"", raw[100:5000], raw[-3:], b""]


def test_a_partition_equals_the_one_on_disk(objects):
    url = objects.url("orders-0")
    on_disk = list_rows(wirescan.scan(ORDERS, "kafka.records"))
    assert len(on_disk) > 27_000
    assert list_rows(wirescan.scan(url, "kafka.records")) == on_disk
    for bounds in {"start": 20_000, "stop": 26_000}, {"isolation": "read_committed"}:
        ours, theirs = (kafka.records(kafka.open_log(log, **bounds)) for log in (url, ORDERS))
        assert list_rows(ours) == list_rows(theirs)


def test_segments_are_cut_by_their_indexes(objects):
    segment = max(ORDERS.glob("*.log"), key=lambda path: path.stat().st_size)
    size = segment.stat().st_size // 4
    expected = [(piece.start, piece.stop) for piece in splits.plan(segment, "kafka.batches", size)]
    url = objects.url(f"orders-0/{segment.name}")
    pieces = splits.plan(url, "kafka.batches", size)
    assert [(piece.start, piece.stop) for piece in pieces] == expected
    assert len(pieces) > 2
    count = sum(
        len(table)
        for piece in pieces
        for table in chunked.iter_tables(
            piece.path, piece.start, piece.stop, format="kafka.batches"
        )
    )
    assert count == len(kafka.scan(segment))


def test_tiered_storage_is_read_as_from_disk(objects):
    (directory,) = TIERED_STORAGE.glob("orders-0-*")
    for bounds in {}, {"start": 300, "stop": 400}, {"isolation": "read_committed"}:
        ours, theirs = (
            kafka.records(kafka.open_log(log, **bounds))
            for log in (objects.url(directory.name), directory)
        )
        assert len(theirs)
        assert list_rows(ours) == list_rows(theirs)


@pytest.mark.parametrize("form", ["plain", "compressed-encrypted"])
def test_segments_of_aivens_plugin_are_read_as_from_disk(objects, form, monkeypatch):
    monkeypatch.setenv(KEYS, f"key1={AIVEN_STORAGE / 'private.pem'}")
    (directory,) = (AIVEN_STORAGE / form).rglob("orders-*/0")
    url = objects.url(f"aiven/{directory.relative_to(AIVEN_STORAGE)}")
    ours, theirs = (kafka.records(kafka.open_log(log, start=100)) for log in (url, directory))
    assert len(theirs)
    assert list_rows(ours) == list_rows(theirs)


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_backups_are_read_as_from_disk(objects, compression):
    ours, theirs = (
        wirescan.scan(path, "kafka.kbak_records")
        for path in (objects.url(f"kbak/{compression}"), BACKUPS / compression)
    )
    assert len(theirs) == 240
    assert list_rows(ours) == list_rows(theirs)


def test_a_backup_of_the_connector_is_read_as_from_disk(objects):
    name = "kafka.connect_backup_records"
    theirs = wirescan.scan(CONNECT_BACKUP / "orders", name)
    assert len(theirs) == 240
    assert list_rows(wirescan.scan(objects.url("connect"), name)) == list_rows(theirs)


def test_the_command_reads_urls(objects, tmp_path):
    url = objects.url("orders-0")
    scheme, folder = url.partition("://")[0], str(ORDERS.parent)
    for arguments in (
        ("scan", "--format", "kafka.records", "--columns", "topic,partition,offset,key"),
        ("stat", "--deep"),
        ("scan", "--since", "2023-11-14", "--limit", "3", "--columns", "offset,value"),
    ):
        verb, *options = arguments
        ours, theirs = (run(verb, path, *options) for path in (url, ORDERS))
        assert theirs.exit_code == ours.exit_code == 0, ours.output
        assert ours.stdout.replace("://bucket", "") == theirs.stdout.replace(folder, scheme)
    assert run("diff", url, ORDERS).exit_code == 0
    out = tmp_path / "out.parquet"
    result = run("convert", url, out, "--columns", "offset,key", "--no-query")
    assert result.exit_code == 0, result.output
    assert pq.read_table(out).num_rows == 27_708
    result = run("verify", url)
    assert result.exit_code == 0, result.output
    assert "27,708 records" in result.output and "clean" in result.output
    assert KEY not in result.output


def test_damage_has_the_url_without_the_login(objects):
    raw = bytearray((ORDERS / f"{4160:020}.log").read_bytes())
    raw[100_000] ^= 1
    objects.put("damaged/00000000000000004160.log", bytes(raw))
    with pytest.raises(FrameError) as raised:
        kafka.scan(objects.url("damaged"))
    assert raised.value.fault == Fault.BAD_CHECKSUM
    result = run("verify", objects.url("damaged"))
    assert result.exit_code == 1
    assert "bucket/damaged/00000000000000004160.log: byte" in result.output
    as_json = run("verify", "--json", objects.url("damaged")).output
    assert '://bucket/damaged/00000000000000004160.log"' in as_json
    for text in (str(raised.value), result.output, as_json):
        assert "?" not in text and KEY[:20] not in text


def test_missing_objects_are_reported(objects):
    for url in objects.url("none.log"), objects.url("none/*.log"), objects.url("none"):
        for call in list_files, source.open:
            with pytest.raises(FileNotFoundError) as caught:
                call(url)
            assert redact_url(url) in str(caught.value)
    for call in get_size, lambda url: read_range(url, 0, 1):
        with pytest.raises(FileNotFoundError, match=r"no such object: '\w+://bucket/deep'"):
            call(objects.url("deep"))
        with pytest.raises(FileNotFoundError, match=r"no such bucket; .*: '\w+://nowhere/a.log'"):
            call(objects.url("a.log", bucket="nowhere"))


def test_an_object_that_is_deleted_or_replaced_during_a_read(objects):
    objects.put("going.log", b"x" * 1000)
    url = objects.url("going.log")
    replaced = pytest.raises(OSError, match=r"replaced while it was read: '\w+://bucket/going.log'")
    with replaced, open_ranges(url) as read_part:
        assert read_part(0, 100) == b"x" * 100
        objects.put("going.log", b"y" * 550)
        read_part(500, 600)
    with replaced, open_ranges(url) as read_part:
        objects.put("going.log", b"z" * 5)
        read_part(500, 600)
    missing = pytest.raises(FileNotFoundError, match="no such object: '.*/going.log'")
    with missing, open_ranges(url) as read_part:
        objects.files.delete_file("bucket/going.log")
        read_part(0, 5)


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        (f"az://bucket/a.log?account_name=a&account_key={WRONG_KEY}", "Azure: Fail to get"),
        ("gs://bucket/a.log?anonymous=true&retry_limit_seconds=1", "Storage: Could not connect"),
    ],
)
def test_an_unreachable_server_is_reported(url, detail):
    with pytest.raises(ConnectionError) as caught:
        get_size(f"{url}&endpoint_override={CLOSED_PORT}")
    assert detail in str(caught.value)
    assert "check" in str(caught.value) and WRONG_KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_refused_login_is_reported(azure):
    for call in list_files, get_size, source.open, lambda url: read_range(url, 0, 1):
        for path in "logs/a.log", "logs", "*/*.log":
            if call is list_files or path == "logs/a.log":
                with pytest.raises(PermissionError, match="the credentials are refused") as caught:
                    call(azure.url(path, key=WRONG_KEY))
                assert "\n" not in str(caught.value)
                assert WRONG_KEY not in str(caught.value)
    assert len(list_files(azure.url("logs/a.log"))) == 1


@pytest.mark.parametrize(
    "root",
    [
        "az://bucket",
        "abfs://bucket",
        f"abfs://bucket@{ACCOUNT}.dfs.core.windows.net",
        f"abfss://bucket@{ACCOUNT}.blob.core.windows.net",
        f"abfss://{ACCOUNT}.dfs.core.windows.net/bucket",
        f"abfs://{ACCOUNT}@bucket",
    ],
)
def test_every_form_of_azures_urls_with_a_login_of_the_environment(azure, root, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    options = f"?endpoint_override={azure.address}"
    for path in "/logs/a.log", "/logs", "/*/a.*", "/**/*.log":
        (file,) = list_files(root + path + options)
        assert file == (f"{root}/logs/a.log{options}", 5)
        assert bytes(read_range(file.path, 0, 9)) == b"hello"


def test_an_object_is_written(objects):
    from wirescan.files import object_store

    url = objects.url("written%20here.log")
    for data in b"first", b"again and longer":
        object_store.write(url, data)
        assert bytes(read_range(url, 0, 100)) == data


def test_tables_of_polars_and_arrow_read_urls(objects):
    url = objects.url("orders-0")
    scanned = wirescan.scan_polars(url, format="kafka.records").select("offset").collect()
    assert scanned.height == 27_708
    assert wirescan.dataset(url, format="kafka.records").count_rows() == 27_708


def test_parquet_files_of_tasks_are_moved_to_their_places(objects):
    """Without Spark: two parts, their places, and the second output in place of the first."""
    from wirescan.export.parquet_writer import WrittenFile
    from wirescan.spark.store_output import StoreOutput

    url = objects.url("parquet/out")
    for rows in 10, 5:
        with StoreOutput(url, overwrite=rows < 10) as output:
            path = f"{output.make_part_path(0, '0')}.parquet"
            with output.open_file(path) as file:
                pq.write_table(pa.table({"offset": np.arange(rows)}), file)
            output.commit([WrittenFile("", path, rows, 1), WrittenFile("kind=A", path, rows, 1)])
        names = [file.path for file in list_files(objects.url("parquet/out/**/*"))]
        assert len(names) == 3 and any("/kind%3DA/part-00000-" in name for name in names)
        (part,) = [name for name in names if "/out/part-00000-" in name]
        assert pq.read_table(pa.BufferReader(read_range(part, 0, 1 << 20))).num_rows == rows


@pytest.mark.parametrize("form", ["container", "account"])
def test_a_delta_table_in_azure(azure, form):
    """Without Spark: one file, and its commit."""
    deltalake = pytest.importorskip("deltalake")
    from wirescan.spark.delta_commit import DeltaTarget
    from wirescan.spark.written_data import WrittenData

    url = azure.url(f"tables/{form}")
    if form == "account":
        url = url.replace("az://", f"abfss://{ACCOUNT}.dfs.core.windows.net/")
    target = DeltaTarget(url, Layout("kafka.records", ("offset",)))
    rows = pa.table({"offset": np.arange(10)}, schema=target.file_schema)
    with target.files.open_file("a.parquet") as file:
        pq.write_table(rows, file)
    size = azure.files.get_file_info(f"bucket/tables/{form}/a.parquet").size
    target.commit([WrittenData("a.parquet", (), 10, size, '{"numRecords": 10}')], overwrite=False)
    storage = {
        "azure_storage_account_name": ACCOUNT,
        "azure_storage_account_key": KEY,
        "azure_storage_endpoint": f"{azure.address}/{ACCOUNT}",
        "azure_allow_http": "true",
    }
    table = deltalake.DeltaTable(f"az://bucket/tables/{form}", storage_options=storage)
    assert table.to_pyarrow_table()["offset"].to_pylist() == list(range(10))
