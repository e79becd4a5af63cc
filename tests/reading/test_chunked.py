"""Files in chunks: what one scan of the whole finds, in memory that does not grow."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from wirescan import Fault, FrameError, Limits, kafka
from wirescan.export.batches import iter_batches
from wirescan.export.parquet import convert
from wirescan.frames.registry import format_of
from wirescan.reading import nested_groups
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import iter_tables, scan_outermost
from wirescan.reading.chunks import open_chunks
from wirescan.reading.nested_groups import open_nested
from wirescan.reading.splits import plan

BATCHES = format_of("kafka.batches")


def make_batch(first: int, *, value: bytes = b"value", **options) -> bytes:
    records = [kafka.Record(first + i, 1_700_000_000_000 + i, b"key", value) for i in range(10)]
    return kafka.encode_batch(records, **options)


def cut(data: bytes, size: int):
    """Return the chunks of data as an iterator, which is read once."""
    return (data[i : i + size] for i in range(0, len(data), size))


def open_local(data: bytes, size: int):
    """Return the chunks of data as those of a local file, which may begin with a cut frame."""
    return open_chunks(data, 0, None, size).chunks


def scan_in_chunks(data: bytes, size: int, limits: Limits = Limits(), split=cut):
    """Return (good frames, bad bytes, end, stop's fault) of data; rows and tail cover it."""
    good, bad, at = [], 0, 0
    parts = split(data, size)
    for table in scan_outermost(parts, BATCHES, errors="mark", limits=limits):
        columns = (table.positions, table["size"], table["fault"])
        for start, length, fault in zip(*(column.tolist() for column in columns)):
            assert start == at, "a byte is not covered, or twice"
            at += length
            good += [] if fault else [(start, length)]
            bad += length if fault else 0
    assert at + len(table.tail) == len(data)
    return good, bad, at, table.stop.fault


@pytest.mark.parametrize("split", [cut, open_local])
@pytest.mark.parametrize("size", [64, 333, 1000, 4096, 1 << 20])
def test_chunks_find_what_one_scan_finds(size, split):
    draw = random.Random(size)
    data = b"".join(make_batch(10 * i, codec=["none", "lz4", "none"][i % 3]) for i in range(12))
    inputs = [
        data,
        data + bytes(5000),
        data[:-9],
        data[:700] + draw.randbytes(900) + data[700:],
        b"",
        bytes(3000),
        data + bytes(5000) + data,
        draw.randbytes(3000),
        make_batch(0, value=bytes(500)) + data,
    ]
    for _ in range(20):
        bad = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        inputs.append(bytes(bad))
    for raw in inputs:
        table = kafka.scan(raw, errors="mark")
        fine = table.where(~table.bad)
        good, bad, end, fault = scan_in_chunks(raw, size, split=split)
        assert good == list(zip(fine["start"].tolist(), fine["size"].tolist()))
        assert (end, fault) == (table.stop.offset, table.stop.fault)
        assert bad == int(table["size"][table.bad].sum())


@pytest.mark.parametrize("mapped", [False, True])
def test_a_local_file_is_read_without_joining_frames(tmp_path, monkeypatch, mapped):
    """A piece begins with the frame that the one before cuts. Its bytes count once."""
    path = tmp_path / f"{0:020}.log"
    data = b"".join(make_batch(10 * i) for i in range(40))
    path.write_bytes(data)
    counted = []
    monkeypatch.setattr(Allowance, "count_read", lambda self, count: counted.append(count))
    size = 8 * len(make_batch(0)) + 7
    read = iter_tables(str(path), format="kafka.records", piece=size, mapped=mapped)
    tables = list(read)
    assert sum(map(len, tables)) == 400
    assert {len(table.outer.buffers) for table in tables} == {1}
    assert len(counted) == 5 and sum(counted) == len(data)
    counted.clear()
    options = {"format": "kafka.records", "batch_bytes": size, "workers": 1, "mapped": mapped}
    assert sum(map(len, iter_batches(str(path), **options))) == 400
    assert sum(counted) == len(data)
    large = make_batch(0, value=bytes(1000))
    path.write_bytes(large + data)
    counted.clear()
    (first, *_) = iter_tables(str(path), format="kafka.records", piece=size, mapped=mapped)
    assert len(first.outer.buffers) == 2, "a frame that fills a piece is joined"
    assert sum(counted) == len(large + data)


def test_repeated_bytes_count_when_they_are_first_read(tmp_path):
    """What the frames of a piece may expand to follows from all bytes of the piece."""
    zeros = make_batch(0, value=bytes(400_000), codec="gzip")
    last = kafka.encode_batch([random.Random(0).randbytes(100_000)])
    path = tmp_path / "a.log"
    path.write_bytes(zeros + last)
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allowance, "count_read", lambda self, count: read.append(count))
        options = {"format": "kafka.batches", "piece": len(zeros) + 1000}
        tables = iter_tables(str(path), **options)
        assert len(next(tables)) == 1
        assert read == [len(zeros) + 1000]


def test_sizes_and_positions_may_be_integers_of_numpy():
    raw = make_batch(0) * 300
    options = {"format": "kafka.batches", "piece": np.int16(20_000)}
    tables = iter_tables(raw, np.int16(0), np.int32(len(raw)), **options)
    assert sum(map(len, tables)) == 300
    with pytest.raises(TypeError):
        list(iter_tables(raw, format="kafka.batches", piece=1.5))


def test_a_gap_larger_than_any_frame_is_passed_in_bounded_memory():
    noise = random.Random(3).randbytes(40_000)
    claim = b"\0" * 7 + b"\x01" + b"\x7f\xff\xff\xff"  # an offset, and a length of 2 GiB
    data = make_batch(0) + noise + make_batch(10) + bytes(40_000) + make_batch(20) + claim + noise
    good, _, _, _ = scan_in_chunks(data, 1024, Limits(frame=4096))
    assert [start for start, _ in good] == [
        0,
        len(make_batch(0)) + 40_000,
        2 * len(make_batch(0)) + 80_000,
    ]


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_every_batch_is_in_a_table_with_records_or_without(tmp_path, errors, piece):
    path = tmp_path / "a.log"
    empty = kafka.encode_batch([])
    path.write_bytes(
        empty + make_batch(0) + empty + empty + make_batch(10, codec="zstd") + make_batch(20)[:-1]
    )
    tables = list(iter_tables(str(path), format="kafka.records", piece=piece, errors=errors))
    assert (
        sum(len(table) for table in tables) == 20 and sum(len(table.outer) for table in tables) == 5
    )
    assert all(table.format.name == "kafka.records" for table in tables)


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
def test_the_last_table_says_why_it_stopped(errors):
    data = make_batch(0) + make_batch(10)
    for tail, fault in (b"", Fault.OK), (data[:50], Fault.SHORT), (bytes(5000), Fault.ZEROS):
        parts = (data + tail)[:100], (data + tail)[100:]
        *_, last = scan_outermost(parts, BATCHES, errors=errors)
        assert (last.stop.fault, last.tail) == (fault, tail)
        if tail and errors == "strict":
            with pytest.raises(FrameError, match="BAD_LENGTH"):
                list(scan_outermost(parts, BATCHES, errors=errors, allow_cut=False))


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
def test_frames_that_inflate_to_more_than_fits_are_opened_apart(monkeypatch, errors):
    monkeypatch.setattr(nested_groups, "INFLATED", 100_000)
    data = b"".join(make_batch(10 * i, codec="zstd", value=b"x" * 6000) for i in range(8))
    tables = list(open_nested(kafka.scan(data), format_of("kafka.records"), errors=errors))
    assert sum(map(len, tables)) == 80 and not any(table.bad.any() for table in tables)
    assert len(tables) > 3 and Fault.TOO_LARGE not in np.concatenate(
        [table["fault"] for table in tables]
    )


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_frames_around_one_that_is_too_large_are_opened_together(errors):
    data = [make_batch(10 * i, codec="gzip") for i in range(300)]
    data[50] = data[200] = make_batch(0, codec="gzip", value=b"x" * 20_000)
    tables = list(
        open_nested(
            kafka.scan(b"".join(data)),
            format_of("kafka.records"),
            errors=errors,
            limits=Limits(inflated=100_000),
        )
    )
    good = np.concatenate([table["offset"][~table.bad] for table in tables])
    assert (
        good.tolist() == [n for n in range(3000) if n // 10 not in (50, 200)] and len(tables) < 50
    )


def test_a_pipe_has_no_parts(tmp_path):
    """Its size is 0, so that nothing of it would be read, without a word."""
    os.mkfifo(tmp_path / "pipe.log")
    for call in (
        lambda: plan(tmp_path / "pipe.log", "kafka.records"),
        lambda: convert(tmp_path / "pipe.log", tmp_path / "out", "kafka.records"),
        lambda: list(iter_tables(str(tmp_path / "pipe.log"), format="kafka.batches")),
    ):
        with pytest.raises(OSError, match="not a regular file"):
            call()


def test_no_part_of_a_file_is_refused(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(bytes(100))
    for start, stop, piece in ((0, 50, 0), (0, 50, -1), (60, 50, 10), (0, -5, 10), (101, None, 10)):
        with pytest.raises(ValueError, match="no part of a file"):
            list(iter_tables(str(path), start, stop, piece=piece, format="kafka.batches"))
