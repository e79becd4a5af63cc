"""Readers of files raise the first fault on the wire, after the frames before it."""

import pytest

import wirescan
from wirescan import lumberjack, nats, thrift
from wirescan.export import parquet
from wirescan.export.batches import iter_batches
from wirescan.reading.chunked import iter_tables
from wirescan.thrift import Transform

MESSAGE = thrift.encode_message("add", 1, 1)
EVENT = lumberjack.encode_json(1, b'{"a":1}')
DAMAGED_ZLIB = thrift.encode_frame(MESSAGE, transforms=[Transform.ZLIB])[:-1] + b"\xff"
# format: good frames, a frame whose content is damaged, and bytes that are no frame
DAMAGED_INSIDE_FIRST = {
    "lumberjack.events": (EVENT, b"2C\0\0\0\1x" + EVENT, b"zz"),
    "lumberjack.pairs": (EVENT, b"2C\0\0\0\1x" + EVENT, b"zz"),
    "thrift.messages": (thrift.encode_frame(MESSAGE), DAMAGED_ZLIB, b"\xff" * 40),
    "nats.headers": (
        nats.encode_pub("a", b"x"),
        b"HPUB a 20 20\r\nNATS/1.0\r\nnocolon\r\n\r\n\r\n",
        b"zz",
    ),
}
formats = pytest.mark.parametrize("format", DAMAGED_INSIDE_FIRST)


def read_to_error(parts):
    """Return the number of rows of parts, and the error after them."""
    rows = 0
    with pytest.raises(wirescan.FrameError) as caught:
        for part in parts:
            rows += len(part)
    return rows, caught.value


@pytest.fixture
def scanned(format):
    """The bytes of a format, and the error that a scan of them raises."""
    good, damaged, no_frame = DAMAGED_INSIDE_FIRST[format]
    data = good + damaged + no_frame
    with pytest.raises(wirescan.FrameError) as caught:
        wirescan.scan(data, format)
    assert len(good) <= caught.value.offset < len(good + damaged)
    return data, caught.value


def is_same(error, other):
    return (error.fault, error.offset) == (other.fault, other.offset)


@formats
@pytest.mark.parametrize("size", [10, 1 << 20])
@pytest.mark.parametrize("workers", [1, 2])
def test_batches_raise_a_fault_inside_a_frame_before_a_later_one(format, scanned, size, workers):
    data, expected = scanned
    parts = iter_batches(data, format=format, batch_bytes=size, workers=workers)
    _, error = read_to_error(parts)
    assert is_same(error, expected)


@formats
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_tables_raise_a_fault_inside_a_frame_before_a_later_one(format, scanned, size):
    data, expected = scanned
    _, error = read_to_error(iter_tables(data, format=format, piece=size))
    assert is_same(error, expected)


@formats
def test_a_conversion_raises_a_fault_inside_a_frame_before_a_later_one(format, scanned, tmp_path):
    data, expected = scanned
    path = tmp_path / "frames.bin"
    path.write_bytes(data)
    with pytest.raises(wirescan.FrameError) as caught:
        parquet.convert([str(path)], tmp_path / "out", format)
    assert is_same(caught.value, expected)


@pytest.mark.parametrize("format", ["lumberjack.frames", "lumberjack.events", "nats.messages"])
@pytest.mark.parametrize("size", [100, 1 << 20])
@pytest.mark.parametrize("read", [iter_batches, iter_tables])
def test_frames_before_a_fault_are_read_first(format, size, read):
    frame = nats.encode_pub("a", b"x") if format.startswith("nats") else EVENT
    size_option = "piece" if read is iter_tables else "batch_bytes"
    rows, error = read_to_error(read(frame * 50 + b"zz", format=format, **{size_option: size}))
    assert rows == 50
    assert error.offset == 50 * len(frame)


def test_frames_before_the_end_of_a_part_that_cuts_a_frame_are_read_first():
    data = EVENT * 50
    stop = len(data) - 3
    for read in (iter_batches, iter_tables):
        rows, error = read_to_error(read(data, 0, stop, format="lumberjack.events"))
        assert rows == 49
        assert error.offset == 49 * len(EVENT)
