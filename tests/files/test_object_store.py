"""Objects in stores: a URL, a glob or a directory of URLs is read like a path."""

import os
import re
import shutil

import numpy as np
import pytest

from tests.support.command import parse_lines, run
from tests.support.object_names import GLOBS, NAMES, write_tree
from tests.support.paths import CORPUS
from wirescan import kafka
from wirescan.files import object_store as store
from wirescan.files import source
from wirescan.files.source import (
    File,
    expand,
    get_file_name,
    get_size,
    list_files,
    make_sibling_path,
    open_ranges,
    read_range,
)
from wirescan.reading import splits as partition
from wirescan.reading.chunked import iter_tables

ORDERS = CORPUS / "kafka" / "orders-0"


@pytest.fixture
def tree(tmp_path):
    return write_tree(tmp_path)


def list_in_store(url, files=None, ignore=None):
    """Return {name: size} of the objects that match a URL, here in the store of local files.

    files/source.py reads file URLs as paths, so the test calls the store itself.
    """
    listed = store.list_objects(
        url,
        lambda name: not files or re.search(files, name),
        lambda name: ignore and re.search(ignore, "/" + name),
    )
    return {bytes(read_range(object_url, 0, 1 << 20)).decode(): size for object_url, size in listed}


# --- without a server


@pytest.mark.parametrize("glob", GLOBS)
def test_a_glob_of_urls_matches_like_a_glob_of_paths(tree, glob):
    (tree / "a.log.frames.json").unlink()
    for options in {}, {"files": r"\.log$"}, {"ignore": r"^/deep/|\.txt$"}, {"ignore": "er/$"}:
        try:
            expected = {
                os.path.relpath(name, tree): size
                for name, size in list_files(os.path.join(tree, glob), **options)
            }
        except FileNotFoundError:
            expected = {}
        assert list_in_store(f"file://{tree}/{glob}", **options) == expected
        assert not glob or options or expected


def test_listed_urls_name_their_objects(tree):
    listed = store.list_objects(f"file://{tree}", lambda name: True, lambda name: False)
    assert [url for url, _ in listed] == sorted({url for url, _ in listed})
    assert {bytes(read_range(url, 0, 100)).decode() for url, _ in listed} == set(NAMES)
    for url, size in listed:
        assert store.list_objects(url, lambda name: True, lambda name: False) == [(url, size)]
        assert get_size(url) == size
        assert not set("[]*?# ") & set(url)


def test_names_of_a_directory_are_those_of_its_own_files(tree):
    names = {name for name in NAMES if "/" not in name}
    assert set(store.list_names(f"file://{tree}")) == names
    assert store.list_names(f"file://{tree}/deep") == ["c.log"]


def test_names_and_neighbours_of_urls():
    assert get_file_name("/a/0.log") == "0.log"
    assert get_file_name("s3://bucket/a/0.log?endpoint_override=http://x/y&region=z") == "0.log"
    assert get_file_name("s3://bucket/a%20b%3F.log") == "a b?.log"
    assert get_file_name("s3://bucket") == ""
    assert make_sibling_path("/a.b/0.log", ".index") == "/a.b/0.index"
    assert (
        make_sibling_path("s3://b/a%3F/0.log?region=z", ".index") == "s3://b/a%3F/0.index?region=z"
    )


@pytest.mark.parametrize(
    "url, message",
    [
        ("s3:///nothing", "no file system for s3://: .*[Mm]issing bucket"),
        ("s3://me:secret@buc*ket/a.log", "not the URL of an object: s3://buc\\*ket/a.log"),
        ("nope://me:secret@there/a.log", "no file system for nope://there: "),
        ("s3://bucket/a.log?colour=red", "no file system for s3://bucket: .*colour"),
    ],
    ids=["no-bucket", "bucket-glob", "scheme", "option"],
)
def test_urls_of_no_store(url, message):
    for call in expand, list_files, get_size, source.open, lambda url: read_range(url, 0, 1):
        with pytest.raises(ValueError, match=message) as caught:
            call(url)
        assert "secret" not in str(caught.value)


# --- S3

s3 = pytest.mark.peers


@pytest.fixture(scope="module")
def objects():
    from tests.support.object_store import ObjectStore

    with ObjectStore() as store:
        for name in NAMES:
            store.put(name, name.encode())
        store.put_directory(ORDERS, "orders-0")
        yield store


@s3
@pytest.mark.parametrize("glob", GLOBS)
def test_globs_in_s3_match_as_in_folders(objects, tree, glob):
    expected = [os.path.relpath(name, tree) for name in expand(os.path.join(tree, glob))]
    listed = [file for file in list_files(objects.url(glob)) if "/orders-0/" not in file.path]
    names = [bytes(read_range(file.path, 0, 100)).decode() for file in listed]
    assert sorted(names) == sorted(expected)
    assert all(file.size == get_size(file.path) for file in listed)


@s3
def test_a_directory_costs_one_request_per_thousand_objects(objects):
    listed, requests = objects.record_requests(
        lambda: list_files(objects.url("orders-0"), files=kafka.FORMATS[0].storage.files)
    )
    segments = sorted(ORDERS.glob("0*.log"))
    assert [get_file_name(path) for path, _ in listed] == [path.name for path in segments]
    assert [size for _, size in listed] == [path.stat().st_size for path in segments]
    assert len(requests) <= 3
    assert not any(".log" in request for request in requests)


@s3
def test_an_object_is_opened_once_for_all_ranges(objects):
    path = max(ORDERS.glob("*.log"), key=lambda path: path.stat().st_size)
    raw = path.read_bytes()
    url = objects.url(f"orders-0/{path.name}")
    size = len(raw)
    spans = [(0, 10), (5, 5), (9, 3), (100, 5000)]
    spans += [(size - 3, size + 9), (size, size + 1), (size + 7, size + 9)]

    def read_ranges():
        with open_ranges(url) as read_part:
            return [bytes(read_part(*span)) for span in spans]

    data, requests = objects.record_requests(read_ranges)
    assert data == [raw[:10], b"", b"", raw[100:5000], raw[-3:], b"", b""]
    assert [request.split()[0] for request in requests] == ["HEAD", "GET", "GET", "GET", "HEAD"]
    tables, requests = objects.record_requests(
        lambda: list(iter_tables(url, format="kafka.records", piece=16 << 10))
    )
    assert sum(map(len, tables)) == len(kafka.records(kafka.scan(path)))
    assert sum(request.startswith("HEAD") for request in requests) <= 3


@s3
def test_a_partition_in_s3_equals_the_one_on_disk(objects):
    table = kafka.records(kafka.scan(objects.url("orders-0")))
    on_disk = kafka.records(kafka.scan(ORDERS))
    for name in on_disk.dtype.names:
        assert np.array_equal(table[name], on_disk[name]), name
    assert bytes(table[7].value) == bytes(on_disk[7].value)


@s3
@pytest.mark.parametrize(
    "folder, format",
    [
        ("kafka/orders-0", "kafka.records"),
        ("liftbridge/single/logs/rolled-0", "liftbridge.entries"),
    ],
)
def test_objects_are_cut_by_their_index_files(objects, folder, format):
    directory = CORPUS / folder
    segment = max(directory.rglob("0*.log"), key=lambda path: path.stat().st_size)
    name = f"{folder}/{segment.name}"
    objects.put_directory(segment.parent, folder)
    size = segment.stat().st_size // 4
    expected = [(piece.start, piece.stop) for piece in partition.plan(segment, format, size)]
    slices, requests = objects.record_requests(
        lambda: partition.plan(objects.url(name), format, size)
    )
    assert [(piece.start, piece.stop) for piece in slices] == expected
    assert len(expected) > 2
    assert any(f"GET /bucket/{make_sibling_path(name, '.index')}" == piece for piece in requests)
    tables = (
        table
        for piece in slices
        for table in iter_tables(piece.path, piece.start, piece.stop, format=format)
    )
    assert sum(map(len, tables)) == sum(map(len, iter_tables(str(segment), format=format)))


@s3
def test_missing_objects_are_reported(objects):
    for url in (
        objects.url("none.log"),
        objects.url("none/*.log"),
        objects.url("a.log", bucket="nowhere"),
    ):
        for call in list_files, source.open:
            with pytest.raises(FileNotFoundError) as caught:
                call(url)
            assert store.redact_url(url) in str(caught.value)
            assert "secret" not in str(caught.value)
    for call in get_size, lambda url: read_range(url, 0, 1):
        with pytest.raises(FileNotFoundError, match=r"no such object: 's3://bucket/deep'"):
            call(objects.url("deep"))
    with pytest.raises(FileNotFoundError, match="no file to read in s3://bucket/deep:"):
        list_files(objects.url("deep"), files="nothing")


@s3
def test_an_object_that_is_deleted_or_replaced_during_a_read(objects):
    objects.put("going.log", b"x" * 1000)
    replaced = pytest.raises(OSError, match="replaced while it was read: 's3://bucket/going.log'")
    with replaced, open_ranges(objects.url("going.log")) as read_part:
        assert read_part(0, 100) == b"x" * 100
        objects.put("going.log", b"y" * 550)
        # Half of these bytes are after the end of the new object: the replacement is reported.
        assert len(read_part(500, 600)) == 100
    with replaced, open_ranges(objects.url("going.log")) as read_part:
        objects.put("going.log", b"z" * 5)
        read_part(500, 600)
    missing = pytest.raises(FileNotFoundError, match="no such object: 's3://bucket/going.log'")
    with missing, open_ranges(objects.url("going.log")) as read_part:
        objects.files.delete_file("bucket/going.log")
        read_part(0, 5)


@s3
def test_an_unreachable_server_is_reported():
    with pytest.raises(OSError, match="(?s)[Cc]ould not connect.*'s3://bucket/a.log'$") as caught:
        get_size(
            "s3://me:secret@bucket/a.log?endpoint_override=http://127.0.0.1:9&region=us-east-1"
        )
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@s3
def test_names_of_hadoop_and_options_of_the_environment(objects, monkeypatch):
    assert list_files(objects.url("a.log").replace("s3://", "s3a://"))[0].size == 5
    monkeypatch.setenv("AWS_ENDPOINT_URL", objects.options.partition("=")[2].partition("&")[0])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wirescan")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert list_files("s3://bucket/deep/*.log?region=us-east-1") == [
        File("s3://bucket/deep/c.log?region=us-east-1", 10)
    ]


@s3
def test_a_refused_login_is_reported(objects):
    with objects.refuse_logins():
        for call in list_files, get_size, source.open, lambda url: read_range(url, 0, 1):
            for path in "a.log", "deep", "*.log":
                if call is list_files or path == "a.log":
                    with pytest.raises(PermissionError, match=r"'s3://bucket/[^']*'$") as caught:
                        call(objects.url(path))
                    assert "\n" not in str(caught.value)
                    assert "secret" not in str(caught.value)
    assert len(list_files(objects.url("a.log"))) == 1


@s3
def test_verify_checks_the_files_beside_segments(objects, tmp_path):
    """The findings are those for the same files on disk."""
    folder = tmp_path / "orders-0"
    shutil.copytree(ORDERS, folder)
    assert run("verify", objects.url("orders-0")).exit_code == 0
    index = folder / f"{20800:020}.index"
    index.write_bytes(index.read_bytes()[:8] * 2)
    (folder / f"{18101:020}.timeindex").unlink()
    snapshot = folder / f"{15336:020}.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    (folder / f"{12500:020}.log").unlink()
    last = folder / f"{24800:020}.log"
    last.write_bytes(last.read_bytes()[: int(kafka.scan(last)[-1].start)])
    objects.put_directory(folder, "damaged-0")
    on_disk, in_store = (
        run("verify", path, "--json") for path in (folder, objects.url("damaged-0"))
    )
    faults = {line.get("fault") for line in parse_lines(on_disk)}
    assert {"NOT_A_FRAME", "MISSING_FILE", "MISSING_SEGMENT", "LOG_TOO_SHORT"} <= faults
    expected = on_disk.stdout.replace(str(folder), "s3://bucket/damaged-0")
    assert in_store.stdout.replace("s3://wirescan:secret@bucket", "s3://bucket") == expected
    assert in_store.exit_code == 1


@s3
def test_verify_asks_for_no_file_that_is_not_there(objects):
    _, requests = objects.record_requests(lambda: run("verify", objects.url("orders-0")))
    requests = [request for request in requests if "checkpoint" not in request]
    names_of_directory = "delimiter=/&list-type=2&max-keys=1000&prefix=orders-0/"
    assert sum(names_of_directory in request for request in requests) == 1
    asked = {request.partition("/bucket/")[2] for request in requests}
    asked -= {name for name in asked if not name}
    existing = {f"orders-0/{path.name}" for path in ORDERS.iterdir()}
    assert {name for name in existing if "index" in name or ".log" in name} <= asked
    assert asked - {"orders-0"} <= existing
