"""Objects in stores: a URL, a glob or a directory of them gives what a path does."""
import os
import re
from pathlib import Path

import numpy as np
import pytest

from wirescan import kafka, partition, pieces, source, store
from wirescan.source import File, beside, expand, found, name_of, ranges, read_range, size_of

CORPUS = Path(__file__).parent / "corpus"
ORDERS = CORPUS / "kafka" / "orders-0"
NAMES = ("a.log", "b.txt", "deep/c.log", "deep/er/d.log", "deep/er/.hidden.log", ".hid/e.log", "x-1/y/f.log",
         "x-2/y/g.log", "x-2/z/h.log", "odd [a]*?#%20 name.log", "snow \N{SNOWMAN}.log", "a.log.frames.json")
GLOBS = ("", "*", "*.log", "[ab].*", "?.log", "**", "**/*.log", "deep/**", "deep/**/*.log", "**/er", "**/er/*",
         "x-*/y/*.log", "x-?/*/h.log", "x-*", "*/y", ".*/*", "**/.hidden.log", "deep/*/d.log", "d*/er/d.log")


@pytest.fixture
def tree(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def in_store(url, files=None, ignore=None):
    """What a store gives, here that of the local files: name -> size. source.py takes their URLs for paths."""
    listed = store.found(url, lambda name: not files or re.search(files, name),
                         lambda name: ignore and re.search(ignore, "/" + name))
    return {bytes(read_range(one, 0, 1 << 20)).decode(): size for one, size in listed}


# ---------------------------------------------------------------------------- without a server

@pytest.mark.parametrize("glob", GLOBS)
def test_a_glob_of_urls_gives_what_one_of_paths_does(tree, glob):
    (tree / "a.log.frames.json").unlink()
    for options in {}, {"files": r"\.log$"}, {"ignore": r"^/deep/|\.txt$"}, {"ignore": "er/$"}:
        try:
            wanted = {os.path.relpath(name, tree): size
                      for name, size in found(os.path.join(tree, glob), **options)}
        except FileNotFoundError:
            wanted = {}
        assert in_store(f"file://{tree}/{glob}", **options) == wanted
        assert not glob or options or wanted


def test_urls_that_are_listed_name_what_they_were_made_of(tree):
    listed = store.found(f"file://{tree}", lambda name: True, lambda name: False)
    assert [url for url, _ in listed] == sorted({url for url, _ in listed})
    assert {bytes(read_range(url, 0, 100)).decode() for url, _ in listed} == set(NAMES)
    for url, size in listed:
        assert store.found(url, lambda name: True, lambda name: False) == [(url, size)] and size_of(url) == size
        assert not set("[]*?# ") & set(url)


def test_names_and_what_lies_beside():
    assert name_of("/a/0.log") == name_of("s3://bucket/a/0.log?endpoint_override=http://x/y&region=z") == "0.log"
    assert name_of("s3://bucket/a%20b%3F.log") == "a b?.log" and name_of("s3://bucket") == ""
    assert beside("/a.b/0.log", ".index") == "/a.b/0.index"
    assert beside("s3://b/a%3F/0.log?region=z", ".index") == "s3://b/a%3F/0.index?region=z"


@pytest.mark.parametrize("url, message", [
    ("s3:///nothing", "no file system for s3://: .*[Mm]issing bucket"),
    ("s3://me:secret@buc*ket/a.log", "not the URL of an object: s3://buc\\*ket/a.log"),
    ("nope://me:secret@there/a.log", "no file system for nope://there: "),
    ("s3://bucket/a.log?colour=red", "no file system for s3://bucket: .*colour"),
], ids=["no-bucket", "bucket-glob", "scheme", "option"])
def test_urls_of_no_store(url, message):
    for call in expand, found, size_of, source.open, lambda url: read_range(url, 0, 1):
        with pytest.raises(ValueError, match=message) as caught:
            call(url)
        assert "secret" not in str(caught.value)


# ---------------------------------------------------------------------------- S3

s3 = pytest.mark.peers


@pytest.fixture(scope="module")
def objects():
    from objects import ObjectStore
    with ObjectStore() as store:
        for name in NAMES:
            store.put(name, name.encode())
        store.put_directory(ORDERS, "orders-0")
        yield store


@s3
@pytest.mark.parametrize("glob", GLOBS)
def test_globs_in_s3(objects, tree, glob):
    wanted = [os.path.relpath(name, tree) for name in expand(os.path.join(tree, glob))]
    listed = [one for one in found(objects.url(glob)) if "/orders-0/" not in one.path]
    assert sorted(bytes(read_range(one.path, 0, 100)).decode() for one in listed) == sorted(wanted)
    assert all(one.size == size_of(one.path) for one in listed)


@s3
def test_a_directory_costs_a_request_for_a_thousand_objects(objects):
    listed, requests = objects.told(lambda: found(objects.url("orders-0"), files=kafka.FORMATS[0].files))
    assert [name_of(path) for path, _ in listed] == [path.name for path in sorted(ORDERS.glob("0*.log"))]
    assert [size for _, size in listed] == [path.stat().st_size for path in sorted(ORDERS.glob("0*.log"))]
    assert len(requests) <= 3 and not any(".log" in one for one in requests)


@s3
def test_an_object_is_opened_once_for_all_its_ranges(objects):
    path = max(ORDERS.glob("*.log"), key=lambda path: path.stat().st_size)
    raw, url = path.read_bytes(), objects.url(f"orders-0/{path.name}")
    def read():
        with ranges(url) as part:
            return [bytes(part(*at)) for at in ((0, 10), (5, 5), (9, 3), (100, 5000), (len(raw) - 3, len(raw) + 9),
                                                (len(raw), len(raw) + 1), (len(raw) + 7, len(raw) + 9))]
    got, requests = objects.told(read)
    assert got == [raw[:10], b"", b"", raw[100:5000], raw[-3:], b"", b""]
    assert [one.split()[0] for one in requests] == ["HEAD", "GET", "GET", "GET", "HEAD"]
    tables, requests = objects.told(lambda: list(pieces.iter_tables(url, format="kafka.records", piece=16 << 10)))
    assert sum(map(len, tables)) == len(kafka.records(kafka.scan(path)))
    assert sum(one.startswith("HEAD") for one in requests) <= 3


@s3
def test_a_partition_in_s3_is_what_it_is_on_disk(objects):
    table, here = (kafka.records(kafka.scan(where)) for where in (objects.url("orders-0"), ORDERS))
    for name in here.dtype.names:
        assert np.array_equal(table[name], here[name]), name
    assert bytes(table[7].value) == bytes(here[7].value)


@s3
@pytest.mark.parametrize("folder, format", [
    ("kafka/orders-0", "kafka.records"), ("liftbridge/single/logs/rolled-0", "liftbridge.entries")])
def test_objects_are_cut_by_the_index_beside_them(objects, folder, format):
    there = CORPUS / folder
    segment = max(there.rglob("0*.log"), key=lambda path: path.stat().st_size)
    name = f"{folder}/{segment.name}"
    objects.put_directory(segment.parent, folder)
    size = segment.stat().st_size // 4
    here = [(one.start, one.stop) for one in partition.plan(segment, size, format)]
    slices, requests = objects.told(lambda: partition.plan(objects.url(name), size, format))
    assert [(one.start, one.stop) for one in slices] == here and len(here) > 2
    assert any(f"GET /bucket/{beside(name, '.index')}" == one for one in requests)
    tables = (table for one in slices for table in pieces.iter_tables(one.path, one.start, one.stop, format=format))
    assert sum(map(len, tables)) == sum(map(len, pieces.iter_tables(str(segment), format=format)))


@s3
def test_what_is_not_there(objects):
    for url in objects.url("none.log"), objects.url("none/*.log"), objects.url("a.log", bucket="nowhere"):
        for call in found, source.open:
            with pytest.raises(FileNotFoundError) as caught:
                call(url)
            assert store.shown(url) in str(caught.value) and "secret" not in str(caught.value)
    for call in size_of, lambda url: read_range(url, 0, 1):
        with pytest.raises(FileNotFoundError, match=r"no such object: 's3://bucket/deep'"):
            call(objects.url("deep"))
    with pytest.raises(FileNotFoundError, match="no file to read in s3://bucket/deep:"):
        found(objects.url("deep"), files="nothing")


@s3
def test_an_object_that_is_gone_or_replaced_while_it_is_read(objects):
    objects.put("going.log", b"x" * 1000)
    replaced = pytest.raises(OSError, match="replaced while it was read: 's3://bucket/going.log'")
    with replaced, ranges(objects.url("going.log")) as read:
        assert read(0, 100) == b"x" * 100
        objects.put("going.log", b"y" * 550)
        assert len(read(500, 600)) == 100           # half of it is no one's: so it has to be told
    with replaced, ranges(objects.url("going.log")) as read:
        objects.put("going.log", b"z" * 5)
        read(500, 600)
    with pytest.raises(FileNotFoundError, match="no such object: 's3://bucket/going.log'"):
        with ranges(objects.url("going.log")) as read:
            objects.files.delete_file("bucket/going.log")
            read(0, 5)


@s3
def test_a_server_that_is_not_there():
    with pytest.raises(OSError, match="(?s)[Cc]ould not connect.*'s3://bucket/a.log'$") as caught:
        size_of("s3://me:secret@bucket/a.log?endpoint_override=http://127.0.0.1:9&region=us-east-1")
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


@s3
def test_the_same_names_as_hadoop_has_and_the_environment_says(objects, monkeypatch):
    assert found(objects.url("a.log").replace("s3://", "s3a://"))[0].size == 5
    monkeypatch.setenv("AWS_ENDPOINT_URL", objects.options.partition("=")[2].partition("&")[0])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wirescan")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert found("s3://bucket/deep/*.log?region=us-east-1") == [File("s3://bucket/deep/c.log?region=us-east-1", 10)]


@s3
def test_a_login_that_is_refused(objects):
    with objects.refusing():
        for call in found, size_of, source.open, lambda url: read_range(url, 0, 1):
            for path in "a.log", "deep", "*.log":
                if call is found or path == "a.log":
                    with pytest.raises(PermissionError, match=r"'s3://bucket/[^']*'$") as caught:
                        call(objects.url(path))
                    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)
    assert len(found(objects.url("a.log"))) == 1
