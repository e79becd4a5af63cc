"""Chunks of an object in a store, which are read ahead on other threads."""

import pytest

import wirescan
from tests.support.paths import CORPUS
from tests.support.slow_store import SlowStore
from wirescan import FrameError, kafka
from wirescan.files import object_store
from wirescan.files.object_store import REQUESTS
from wirescan.files.source import read_range
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
    monkeypatch.setattr(object_store, "PART_BYTES", SIZE)
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
    monkeypatch.setattr(object_store, "PART_BYTES", SIZE)
    with (
        SlowStore(data, 0) as store,
        pytest.raises(OSError, match="replaced while it was read"),
        object_store.open_ranges(store.url) as read,
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
