"""Arguments that a kernel cannot work with: rows of another kind, rows outside their buffer, sizes that do not fit."""

import os
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import wirescan
from wirescan import kafka
from wirescan.core import loop
from wirescan.core.hop import END, FOUND, MORE, hop
from wirescan.core.inflate import inflate_spans
from wirescan.core.rows import Block
from wirescan.core.strings import ByteStrings
from wirescan.kafka.body import leading_int16
from wirescan.kafka.partitioner import partition_of
from wirescan.kafka.write import Headers
from wirescan.limits import Limits

# Packages have functions of the same names as these modules.
kafka_message = import_module("wirescan.kafka.message")
kafka_scan = import_module("wirescan.kafka.scan")
thrift_scan = import_module("wirescan.thrift.scan")
thrift_structs = import_module("wirescan.thrift.structs")

LIMITS = Limits()
OTHER_ROWS = np.zeros(1, loop.HEAD)
OUTSIDE = np.zeros(1, loop.HEAD)
OUTSIDE["size"] = 9
BUFFERS = (bytes(8),)
NO_COUNTS = np.zeros(1, np.int32)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: kafka_scan.open_records(OTHER_ROWS, BUFFERS, OTHER_ROWS, NO_COUNTS, True, LIMITS),
            "records are opened from a table of kafka.batches",
        ),
        (
            lambda: kafka_scan.open_headers(OTHER_ROWS, BUFFERS, OTHER_ROWS, NO_COUNTS, LIMITS),
            "headers are opened from a table of kafka.records",
        ),
        (lambda: thrift_scan.open_infos(OTHER_ROWS, BUFFERS, LIMITS), "infos are those of rows of thrift.frames"),
        (lambda: thrift_structs.open_fields(OTHER_ROWS, BUFFERS, 1, LIMITS), "fields are those of rows of thrift.messages"),
        (lambda: loop.spans(np.zeros(1, np.int64)), "rows must begin with the columns start, size"),
        (lambda: loop.lie_inside(np.zeros(1, np.dtype([("start", "i8")])), BUFFERS), "rows must begin with the columns"),
        (lambda: loop.flat(np.dtype([("a", "u1"), ("b", "u8")], align=True)), "the struct has padding: 16 bytes for 9"),
    ],
)
def test_rows_of_another_kind(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def kafka_rows(dtype):
    rows = np.zeros(1, dtype)
    rows["size"] = 9
    return rows


@pytest.mark.parametrize(
    "call",
    [
        lambda: kafka_scan.verify_batches(kafka_rows(kafka_scan.BATCH), BUFFERS),
        lambda: kafka_message.answered(kafka_rows(kafka_message.REQUEST), BUFFERS),
        lambda: leading_int16(OUTSIDE, BUFFERS, "key"),
        lambda: inflate_spans(BUFFERS, OUTSIDE, OUTSIDE.copy(), 0, Block(8), 0, 0, (1, 8, 8), 8, True),
        lambda: kafka_scan.scan_sets(BUFFERS, OUTSIDE, True, False, LIMITS),
    ],
)
def test_rows_outside_their_buffer(call):
    with pytest.raises(ValueError, match="outside its buffer"):
        call()


def test_counts_of_another_length():
    rows = np.zeros(1, kafka_scan.BATCH)
    with pytest.raises(ValueError, match="spans and counts must be arrays of equal length"):
        kafka_scan.open_records(rows, BUFFERS, OTHER_ROWS, np.zeros(2, np.int32), True, LIMITS)


def test_rows_are_not_written_over_what_is_read():
    memory = np.zeros(4, kafka_scan.BATCH)
    with pytest.raises(ValueError, match="into lies in the memory that is read"):
        kafka_scan.scan_batches(memory.view(np.uint8), True, False, LIMITS, memory)
    rows = np.zeros(1, kafka_scan.BATCH)
    records = np.zeros(4, kafka_scan.RECORD)
    with pytest.raises(ValueError, match="into lies in the memory that is read"):
        kafka_scan.open_records(rows, (records.view(np.uint8),), OTHER_ROWS, NO_COUNTS, True, LIMITS, records)


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="a block of -1 bytes"):
        Block(-1)
    with pytest.raises(ValueError, match="how must be 'murmur2' or 'crc32', not 'md5'"):
        partition_of([b"a"], 3, "md5")
    with pytest.raises(ValueError, match="there are from 1 to 2147483647 partitions, not 0"):
        partition_of([b"a"], 0)
    for first, count in (([0], [2]), ([1], [1]), ([0, 0], [1]), ([0], [-1])):
        with pytest.raises(ValueError, match="the counts of headers do not fit"):
            Headers(first, count, ByteStrings([b"k"]), ByteStrings([b"v"]))


def test_leading_numbers():
    data = b"\x01\x02\x03\x00\x04\x05"
    rows = np.zeros(4, np.dtype([*((name, loop.HEAD[name]) for name in loop.HEAD.names), ("key_at", "u4"), ("key_size", "i4")]))
    rows["size"] = len(data)
    rows["key_at"] = 0, 2, 4, 0
    rows["key_size"] = 2, 1, 2, -1
    assert leading_int16(rows, (data,), "key").tolist() == [0x0102, -1, 0x0405, -1]


def sized(**changes):
    values = {"header": 8, "length_at": 0, "overhead": 4, "kind_at": -1, "smallest": (4,)}
    return SimpleNamespace(**values | changes)


# Three frames: their length, which does not count itself, a kind, and zeros.
FRAMES = b"".join(size.to_bytes(4, "big") + kind.to_bytes(1, "big") + bytes(size - 1) for size, kind in [(4, 0), (6, 1), (8, 0)])


def hops(page, until, first=0, at=0, descriptor=-1, **changes):
    return hop(descriptor, page, first, at, until, len(FRAMES), 100, sized(**changes))


def test_hops_from_header_to_header():
    assert hops(FRAMES, 1) == (8, 18, FOUND)
    assert hops(FRAMES, 9) == (18, 30, FOUND)
    assert hops(FRAMES, 19)[2] == END
    assert hops(FRAMES[:12], 9) == (8, 8, MORE)
    assert hops(FRAMES[8:], 9, first=8) == (0, 0, MORE)
    assert hops(FRAMES, 9, kind_at=4, smallest=(4, 4)) == (18, 30, FOUND)
    assert hops(FRAMES, 9, kind_at=4, smallest=(4,)) == (8, 8, END)
    assert hops(FRAMES, 9, kind_at=4, smallest=(4, 11)) == (8, 8, END)


def test_a_file_that_is_shorter_by_now(tmp_path):
    path = tmp_path / "frames"
    path.write_bytes(FRAMES[:12])
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert hops(b"", 9, descriptor=descriptor) == (8, 8, END)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("changes", [{"header": 3}, {"header": 65}, {"kind_at": 8}, {"smallest": ()}, {"length_at": -1}])
def test_no_header_of_a_frame(changes):
    with pytest.raises(ValueError, match="no header of a frame"):
        hops(FRAMES, 1, **changes)


def test_a_batch_that_is_not_what_its_row_says():
    raw = kafka.encode_batch([b"a"])
    rows = kafka.scan(raw).rows.copy()
    assert kafka_scan.verify_batches(rows, (raw,)).tolist() == [0]
    rows["magic"] = 1
    assert kafka_scan.verify_batches(rows, (raw,)).tolist() == [wirescan.Fault.BAD_CHECKSUM]


@pytest.mark.parametrize("path", kafka_scan.PATHS)
def test_many_records_are_written_past_the_caches(path):
    """Rows of 32 MiB and more are written past the caches."""
    count = (32 << 20) // kafka_scan.RECORD.itemsize + 1
    raw = kafka.encode_batches((np.zeros(count + 1, np.int64), b""), batch_bytes=1 << 30)
    batches = kafka.scan(raw).rows
    assert len(batches) == 1
    counts = np.array([count], np.int32)
    records, bad, _ = kafka_scan.open_records(batches, (raw,), loop.spans(batches), counts, True, LIMITS, path=path)
    assert len(records) == count and bad == 0
    assert np.array_equal(records["offset"], np.arange(count))
    assert np.array_equal(records["start"][1:], records["start"][:-1] + records["size"][:-1])
    assert np.all(records["key_size"] == -1) and np.all(records["value_size"] == 0)
