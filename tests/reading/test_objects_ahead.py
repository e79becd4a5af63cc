"""Chunks of an object, and objects of a directory, which are read ahead on other threads."""

import time
from operator import itemgetter

import pytest

import wirescan
from tests.support.paths import CORPUS
from tests.support.slow_store import SlowStore
from wirescan import FrameError, kafka
from wirescan.cli.main import main
from wirescan.export.parquet import convert
from wirescan.files import object_ranges, object_store
from wirescan.files.object_ranges import OBJECTS, REQUESTS, read_ahead
from wirescan.files.source import get_size, get_sizes, read_range
from wirescan.kafka import encode_batch
from wirescan.reading.chunked import iter_tables
from wirescan.reading.chunks import read_chunks

SEGMENT = CORPUS / "kafka" / "orders-0" / f"{0:020}.log"
SIZE = 10_000  # of a chunk


@pytest.fixture(scope="module")
def data():
    return SEGMENT.read_bytes()


def list_ranges(size):
    return [(start, min(start + SIZE, size)) for start in range(0, size, SIZE)]


def test_all_chunks_are_read_once_and_several_at_a_time(data):
    with SlowStore(data, 0.05) as store:
        chunks = list(read_chunks(store.url, 0, len(data), SIZE))
        assert b"".join(chunks) == data
        assert sorted(store.ranges) == list_ranges(len(data))
        assert 1 < store.most_at_once <= REQUESTS


def test_the_rows_are_those_of_the_file(data):
    with SlowStore(data, 0) as store:
        tables = list(iter_tables(store.url, format="kafka.records", piece=SIZE))
    expected = kafka.records(kafka.scan(data))
    offsets = [offset for table in tables for offset in table["offset"].tolist()]
    assert offsets == expected["offset"].tolist()


def test_a_large_range_is_read_in_parts(data, monkeypatch):
    monkeypatch.setattr(object_ranges, "PART_BYTES", SIZE)
    with SlowStore(data, 0.05) as store:
        assert read_range(store.url, 0, len(data)) == data
        assert sorted(store.ranges) == list_ranges(len(data))
        assert 1 < store.most_at_once <= REQUESTS
        assert read_range(store.url, 7, 3 * SIZE) == data[7 : 3 * SIZE]
        store.ranges.clear()
        assert read_range(store.url, 7, SIZE) == data[7:SIZE]
        assert store.ranges == [(7, SIZE)]
        assert len(wirescan.scan(store.url, "kafka.records")) == 1480


def test_an_object_that_becomes_shorter_while_its_parts_are_read_is_an_error(data, monkeypatch):
    monkeypatch.setattr(object_ranges, "PART_BYTES", SIZE)
    with (
        SlowStore(data, 0) as store,
        pytest.raises(OSError, match="replaced while it was read"),
        object_ranges.open_ranges(store.url) as read,
    ):
        read(0, 1)
        store.data = data[: 2 * SIZE + 5]
        assert bytes(read(0, len(data)))[: 2 * SIZE] == data[: 2 * SIZE]


def test_the_first_chunk_is_read_alone(data):
    """Who needs only the first rows reads no more."""
    with SlowStore(data, 0) as store:
        tables = iter_tables(store.url, format="kafka.records", piece=SIZE)
        assert len(next(tables)) > 0
        tables.close()
        assert store.ranges == [(0, SIZE)]


def test_each_chunk_allows_one_more_to_be_read_ahead(data):
    with SlowStore(data, 0) as store:
        chunks = read_chunks(store.url, 0, len(data), SIZE)
        for taken in range(1, 6):
            next(chunks)
            assert len(store.ranges) <= 2 * taken
        chunks.close()


def test_an_object_that_becomes_shorter_is_an_error(data):
    with SlowStore(data, 0) as store:
        chunks = read_chunks(store.url, 0, len(data), SIZE)
        next(chunks)
        store.data = data[: 2 * SIZE]
        with pytest.raises(OSError, match="replaced while it was read"):
            list(chunks)


def test_damage_is_an_error_at_its_place(data):
    damaged = bytearray(data)
    damaged[5 * SIZE] ^= 1
    with SlowStore(bytes(damaged), 0) as store, pytest.raises(FrameError) as found:
        list(iter_tables(store.url, format="kafka.records", piece=SIZE))
    with pytest.raises(FrameError) as expected:
        kafka.scan(bytes(damaged))
    assert (found.value.fault, found.value.offset) == (expected.value.fault, expected.value.offset)


def test_local_files_are_read_on_the_calling_thread(data, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a chunk was read ahead")

    monkeypatch.setattr("wirescan.reading.chunks.map_in_order", refuse)
    assert b"".join(read_chunks(str(SEGMENT), 0, len(data), SIZE)) == data


# ---- several objects

COUNT = 20


@pytest.fixture
def segments():
    records = [kafka.Record(number, value=b"v" * number) for number in range(COUNT)]
    return {f"orders-0/{record.offset:020}.log": encode_batch([record]) for record in records}


def read_offsets(table):
    return table["offset"].tolist()


def read_with_scan(store):
    return read_offsets(wirescan.scan(store.make_url("orders-0"), "kafka.records"))


def read_a_list(store):
    return read_offsets(wirescan.scan(list(map(store.make_url, store.objects)), "kafka.records"))


def read_a_log(store):
    return kafka.open_log(store.make_url("orders-0"))["base_offset"].tolist()


def read_a_dataset(store):
    table = wirescan.dataset(store.make_url("orders-0"), format="kafka.records", columns=["offset"])
    return table.to_table()["offset"].to_pylist()


@pytest.mark.parametrize("read", [read_with_scan, read_a_list, read_a_log, read_a_dataset])
def test_small_objects_are_read_once_and_several_at_a_time(segments, read):
    with SlowStore(b"", 0.02, segments) as store:
        assert read(store) == list(range(COUNT))
        assert len(store.ranges) == COUNT
        assert store.heads <= COUNT + 2
        assert 1 < store.most_at_once <= OBJECTS
    assert not object_ranges._opened


def test_conversion_and_the_command_read_several_objects_at_a_time(
    segments, tmp_path, capsys, monkeypatch
):
    # The command identifies the objects by their heads before. This must not hide what follows.
    monkeypatch.setattr("wirescan.cli.path_arguments.read_ahead", lambda files, head: files)
    with SlowStore(b"", 0.02, segments) as store:
        url = store.make_url("orders-0")
        assert convert(url, tmp_path / "out", "kafka.records", workers=1).records == COUNT
        assert 1 < store.most_at_once <= OBJECTS
        options = {"report": ["-o", str(tmp_path / "report.md")]}
        for verb in ("stat", "verify", "report", "scan"):
            store.most_at_once = 0
            with pytest.raises(SystemExit) as ended:
                main([verb, url, "--format", "kafka.records", *options.get(verb, ())])
            assert ended.value.code == 0
            assert 1 < store.most_at_once <= OBJECTS
        assert len(capsys.readouterr().out.splitlines()) > COUNT


def test_the_first_object_is_read_alone(segments):
    with SlowStore(b"", 0, segments) as store:
        paths = read_ahead(list(map(store.make_url, segments)))
        path = next(paths)
        assert store.heads == 1
        assert bytes(read_range(path, 0, 1000)) == segments["orders-0/" + "0" * 20 + ".log"]
        paths.close()
        assert store.heads == len(store.ranges) == 1


def test_a_large_object_is_opened_ahead_and_not_read(segments, monkeypatch):
    monkeypatch.setattr(object_ranges, "AHEAD_BYTES", 80)
    sizes = [len(data) for data in segments.values()]
    assert min(sizes) < 80 < max(sizes)
    with SlowStore(b"", 0, segments) as store:
        paths = read_ahead(list(map(store.make_url, segments)))
        assert [get_size(path) for path in paths] == sizes
        assert store.heads == COUNT
        assert len(store.ranges) == sum(size <= 80 for size in sizes)


def test_only_the_head_is_read_ahead(segments):
    with SlowStore(b"", 0, segments) as store:
        pairs = [(number, store.make_url(name)) for number, name in enumerate(segments)]
        for number, path in read_ahead(pairs, itemgetter(1), head=9):
            whole = segments[f"orders-0/{number:020}.log"]
            assert bytes(read_range(path, 2, 7)) == whole[2:7]
            if number < 3:
                assert bytes(read_range(path, 2, 1000)) == whole[2:]
        assert sorted(store.ranges)[:COUNT] == [(0, 9)] * COUNT
        assert len(store.ranges) == COUNT + 3
        assert get_sizes([path for _, path in pairs]) == list(map(len, segments.values()))


def test_an_object_that_is_missing_is_an_error_where_it_is_opened(segments):
    name = f"orders-0/{5:020}.log"
    segments[name] = None
    with SlowStore(b"", 0, segments) as store:
        read = []
        with pytest.raises(FileNotFoundError, match=f"{5:020}.log"):
            for path in read_ahead(list(map(store.make_url, segments))):
                read.append(bytes(read_range(path, 0, 1000)))
        assert read == list(segments.values())[:5]
    assert not object_ranges._opened


def test_an_object_that_is_replaced_after_its_head_was_read_is_an_error(segments):
    with SlowStore(b"", 0, segments) as store:
        for path in read_ahead(list(map(store.make_url, segments)), head=9):
            store.objects = dict.fromkeys(segments, b"short")
            with pytest.raises(OSError, match="replaced while it was read"):
                read_range(path, 0, 60)
            break


def test_what_was_read_ahead_is_not_used_after_a_while(segments, monkeypatch):
    monkeypatch.setattr(object_ranges, "KEEP_SECONDS", 0.05)
    with SlowStore(b"", 0, segments) as store:
        paths = read_ahead(list(map(store.make_url, segments)))
        for _ in range(4):
            next(paths)
        time.sleep(0.2)  # a slow caller, after the next objects were read
        store.objects = dict.fromkeys(segments, b"another")
        path = next(paths)
        assert bytes(read_range(path, 0, get_size(path))) == b"another"
        paths.close()


def test_an_object_that_becomes_shorter_after_it_was_opened_ahead_is_an_error(segments):
    with SlowStore(b"", 0, segments) as store:
        for path in read_ahead(list(map(store.make_url, segments)), head=0):
            store.objects = dict.fromkeys(segments, b"short")
            with pytest.raises(OSError, match="replaced while it was read"):
                read_range(path, 0, get_size(path))
            break


def test_a_sample_reads_each_object_twice(segments, capsys):
    """To count the rows, and to print the chosen ones."""
    with SlowStore(b"", 0.02, segments) as store, pytest.raises(SystemExit):
        main(["scan", store.make_url("orders-0"), "--sample", "3", "--format", "kafka.records"])
    assert len(store.ranges) == 3 * COUNT  # with those that identify each object
    assert 1 < store.most_at_once <= OBJECTS
    assert capsys.readouterr().out.count("vv") > 3


def test_an_empty_object_is_listed(segments, monkeypatch):
    """Azure has such objects in the place of directories."""
    listed = []
    original = object_store.list_objects

    def list_objects(url, *arguments):
        listed.append(url)
        return original(url, *arguments)

    monkeypatch.setattr(object_store, "list_objects", list_objects)
    segments["empty"] = b""
    with SlowStore(b"", 0, segments) as store:
        urls = list(map(store.make_url, segments))
        assert len(wirescan.scan(urls, "kafka.records")) == COUNT
        assert listed == [store.make_url("empty")]
