"""Kernels refuse unfit arguments.

Such arguments are rows of another kind, rows outside their buffer, and sizes that do not fit.
"""

import mmap
import os
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import wirescan
from tests.strategies.kafka_redpanda import make_batch as make_redpanda_batch
from tests.support.connect_records import encode_record
from tests.support.kbak_records import encode_segment
from tests.support.liftbridge_bytes import make_entry
from wirescan import kafka, lumberjack, pcap, thrift
from wirescan.core import loop
from wirescan.core.column_writer import ColumnWriter
from wirescan.core.inflate import inflate_spans
from wirescan.core.parallel import FixedWorkers
from wirescan.core.rows import Block, RowBlock
from wirescan.core.strings import ByteStrings
from wirescan.files.length_prefix import END, FOUND, MORE, hop
from wirescan.frames.limits import Limits
from wirescan.kafka.client.partitioner import murmur2, partition_of
from wirescan.kafka.encode.writer import Columns, Headers, write_batches, write_message_sets
from wirescan.kafka.protocol.body import read_int16
from wirescan.lumberjack.writer import Documents, Fields, write_windows

# Packages have functions of the same names as these modules.
kafka_message = import_module("wirescan.kafka.protocol.message")
kafka_scan = import_module("wirescan.kafka.record_batches.scan")
liftbridge_scan = import_module("wirescan.liftbridge.scan")
payload_spans = import_module("wirescan.liftbridge.payload_spans")
lumberjack_scan = import_module("wirescan.lumberjack.scan")
nats_scan = import_module("wirescan.nats.scan")
pcap_scan = import_module("wirescan.pcap.scan")
thrift_payloads = import_module("wirescan.thrift.payloads")
thrift_scan = import_module("wirescan.thrift.scan")
thrift_writer = import_module("wirescan.thrift.writer")
thrift_structs = import_module("wirescan.thrift.struct_fields")

LIMITS = Limits()
FORMATS = wirescan.formats()
OK = wirescan.Fault.OK
REQUEST = bytes(kafka.encode_request("Metadata", 12, {}, correlation_id=1))
FRAME_OF_FORMAT = {
    "kafka.batches": kafka.encode_batch([b"a"]),
    "kafka.redpanda_batches": make_redpanda_batch(kafka.encode_batch([b"a"])),
    "kafka.kbak_segments": encode_segment(b"", 0),
    "kafka.connect_backup_records": encode_record(0, b"", b""),
    "kafka.requests": REQUEST,
    "kafka.responses": REQUEST,
    "lumberjack.frames": lumberjack.encode_json(1, b"{}"),
    "nats.messages": b"PING\r\n",
    "liftbridge.entries": make_entry(0, 1, b"key", b"value"),
    "thrift.frames": thrift.encode_frames([b"a"])[0],
    "pcap.blocks": pcap.encode_pcap([]),
}
OTHER_ROWS = np.zeros(1, loop.HEAD)
OUTSIDE = np.zeros(1, loop.HEAD)
OUTSIDE["size"] = 9
BUFFERS = (bytes(8),)
NO_COUNTS = np.zeros(1, np.int32)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: kafka_scan.open_records(
                OTHER_ROWS, BUFFERS, OTHER_ROWS, NO_COUNTS, check=True, limits=LIMITS
            ),
            "records are opened from a table of kafka.batches",
        ),
        (
            lambda: kafka_scan.child_spans(OTHER_ROWS, BUFFERS),
            "records are opened from a table of kafka.batches",
        ),
        (
            lambda: kafka_scan.open_headers(OTHER_ROWS, BUFFERS, OTHER_ROWS, NO_COUNTS, LIMITS),
            "headers are opened from a table of kafka.records",
        ),
        (
            lambda: nats_scan.open_headers(OTHER_ROWS, BUFFERS, LIMITS),
            "open_headers takes rows of nats.messages",
        ),
        (
            lambda: pcap_scan.open_packets(OTHER_ROWS, BUFFERS, LIMITS),
            "open_packets takes rows of pcap.blocks",
        ),
        (
            lambda: thrift_scan.open_infos(OTHER_ROWS, BUFFERS, LIMITS),
            "open_infos takes rows of thrift.frames",
        ),
        (
            lambda: thrift_structs.open_fields(OTHER_ROWS, BUFFERS, 1, LIMITS),
            "open_fields takes rows of thrift.messages",
        ),
        (
            lambda: thrift_scan.open_messages(OTHER_ROWS, BUFFERS, LIMITS),
            "open_messages takes rows of thrift.frames",
        ),
        (
            lambda: thrift_scan.open_plain(OTHER_ROWS, OTHER_ROWS, BUFFERS, LIMITS),
            "open_plain takes rows of thrift.frames and rows of thrift.plain",
        ),
        (
            lambda: thrift_payloads.list_payloads(OTHER_ROWS, BUFFERS),
            "list_payloads takes rows of thrift.frames",
        ),
        (
            lambda: payload_spans.make_message_spans(OTHER_ROWS),
            "payloads are read from rows of nats.messages",
        ),
        (
            lambda: lumberjack_scan.open_pairs(OTHER_ROWS, BUFFERS, OTHER_ROWS, NO_COUNTS, LIMITS),
            "pairs are opened from a table of lumberjack.events",
        ),
        (lambda: loop.spans(np.zeros(1, np.int64)), "rows must begin with the columns start, size"),
        (
            lambda: loop.bound_counts(np.zeros(1, np.int64), NO_COUNTS, 1, 1),
            "rows must begin with the columns start, size",
        ),
        (
            lambda: loop.lie_inside(np.zeros(1, np.dtype([("start", "i8")])), BUFFERS),
            "rows must begin with the columns",
        ),
        (
            lambda: loop.flatten(np.dtype([("a", "u1"), ("b", "u8")], align=True)),
            "the struct has padding: 16 bytes for 9",
        ),
    ],
)
def test_rows_of_another_kind(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def make_kafka_rows(dtype):
    rows = np.zeros(1, dtype)
    rows["size"] = 9
    return rows


def open_kafka_records(spans, *, verify=True, **options):
    """Open the records of a batch that is outside its buffer. verify: as in `open_records`."""
    batches = make_kafka_rows(kafka_scan.BATCH)
    return kafka_scan.open_records(
        batches, BUFFERS, spans, NO_COUNTS, check=True, limits=LIMITS, verify=verify, **options
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: kafka_scan.verify_batches(make_kafka_rows(kafka_scan.BATCH), BUFFERS),
        lambda: kafka_message.expects_response(make_kafka_rows(kafka_message.REQUEST), BUFFERS),
        lambda: kafka_message.name_responses(
            make_kafka_rows(kafka_message.RESPONSE),
            BUFFERS,
            make_kafka_rows(kafka_message.REQUEST),
            np.array([-1]),
        ),
        lambda: read_int16(OUTSIDE, BUFFERS, "key"),
        lambda: inflate_spans(
            BUFFERS, OUTSIDE, OUTSIDE.copy(), 0, Block(8), 0, 0, (1, 8, 8), 8, check=True
        ),
        lambda: lumberjack_scan.unpack(
            OTHER_ROWS,
            BUFFERS,
            NO_COUNTS,
            OTHER_ROWS,
            again=False,
            last=False,
            events=False,
            limits=LIMITS,
        ),
        lambda: liftbridge_scan.scan_values(BUFFERS, OUTSIDE, check=True, bare=-1, limits=LIMITS),
        lambda: kafka_scan.scan_sets(BUFFERS, OUTSIDE, check=True, resync=False, limits=LIMITS),
        lambda: kafka_scan.child_spans(make_kafka_rows(kafka_scan.BATCH), BUFFERS),
        lambda: kafka_scan.child_spans(make_kafka_rows(kafka_scan.BATCH), ()),
        lambda: open_kafka_records(OUTSIDE, verify=False),
        lambda: open_kafka_records(OTHER_ROWS),
        lambda: open_kafka_records(OTHER_ROWS, writer=ColumnWriter(kafka_scan.RECORD)),
    ],
)
def test_rows_outside_their_buffer(call):
    with pytest.raises(ValueError, match="outside its buffer"):
        call()


def test_a_parent_outside_its_buffer_ends_all_threads():
    batch = kafka.encode_batch([b"a"])
    table = kafka.scan(batch * 400, check=False)
    batches = table.rows.copy()
    opened, counts, _ = kafka_scan.child_spans(batches, table.buffers)
    batches["start"][390] = len(batch) * 400
    for workers in (1, 2):
        with FixedWorkers(workers), pytest.raises(ValueError, match="outside its buffer"):
            kafka_scan.open_records(
                batches, table.buffers, opened, counts, check=True, limits=LIMITS, verify=True
            )


def test_counts_of_another_length():
    rows = np.zeros(1, kafka_scan.BATCH)
    counts = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="spans and counts must be arrays of equal length"):
        kafka_scan.open_records(rows, BUFFERS, OTHER_ROWS, counts, check=True, limits=LIMITS)


def test_rows_are_not_written_over_what_is_read():
    memory = np.zeros(4, kafka_scan.BATCH)
    with pytest.raises(ValueError, match="into shares the memory that is read"):
        kafka_scan.scan_batches(
            memory.view(np.uint8), check=True, resync=False, limits=LIMITS, into=memory
        )
    rows = np.zeros(1, kafka_scan.BATCH)
    records = np.zeros(4, kafka_scan.RECORD)
    with pytest.raises(ValueError, match="into shares the memory that is read"):
        kafka_scan.open_records(
            rows,
            (records.view(np.uint8),),
            OTHER_ROWS,
            NO_COUNTS,
            check=True,
            limits=LIMITS,
            into=records,
        )


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="at least 0 bytes, not -1"):
        Block(-1)
    with pytest.raises(ValueError, match="how must be 'murmur2' or 'crc32', not 'md5'"):
        partition_of([b"a"], 3, "md5")
    with pytest.raises(ValueError, match="partitions must be from 1 to 2147483647, not 0"):
        partition_of([b"a"], 0)
    for first, count in (([0], [2]), ([1], [1]), ([0, 0], [1]), ([0], [-1])):
        with pytest.raises(ValueError, match="the counts of headers do not fit"):
            Headers(first, count, ByteStrings([b"k"]), ByteStrings([b"v"]))


def test_values_and_null_bitmaps_of_unequal_length():
    nulls = np.zeros(2, bool)
    with pytest.raises(ValueError, match="n values have n \\+ 1 offsets"):
        payload_spans.make_offset_spans(np.zeros(2, np.int64), 8, 8, nulls)
    with pytest.raises(ValueError, match="views are an array of shape"):
        payload_spans.make_view_spans(np.zeros((1, 4), np.int32), 0, nulls, np.array([8]), 8)


def test_columns_of_unequal_length():
    with pytest.raises(ValueError, match="columns of unequal length"):
        Fields([b"a"], [], 2)
    with pytest.raises(ValueError, match="columns of unequal length"):
        Columns(ByteStrings([b"k"]), ByteStrings([b"v", b"w"]), np.zeros(1, np.int64), None, None)
    single = ByteStrings([b"a"])
    headers = Headers([0, 1], [1, 0], single, single)
    with pytest.raises(ValueError, match="columns of unequal length"):
        Columns(single, single, np.zeros(1, np.int64), headers, None)


def test_more_parts_than_a_header_has():
    numbers = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="a header has at most 3 parts, not 4"):
        thrift_writer.write_frames(
            ByteStrings([b"a"]), numbers, numbers, [b"part"] * 4, padding=False, big=False
        )


def test_a_masked_array_is_refused():
    strings = np.ma.masked_array(np.array([b"a", b"b"]), mask=[False, True])
    with pytest.raises(TypeError, match="a masked array is not accepted"):
        ByteStrings(strings)


@pytest.mark.parametrize("name", [name for name, format in FORMATS.items() if format.parser.spans])
def test_the_limit_of_rows_ends_the_scan_of_many_streams(name):
    """The streams after the limit have neither a fault nor a position."""
    format = FORMATS[name]
    raw = b"".join(FRAME_OF_FORMAT[name] for _ in range(3))
    spans = np.zeros(3, loop.HEAD)
    spans["size"] = len(raw)
    spans["start"] = np.arange(3) * len(raw)
    spans["parent"] = np.arange(3)
    options = {"check": True, "resync": True}
    rows, bad, faults, positions = format.parser.spans((raw * 3,), spans, **options, limits=LIMITS)
    assert (len(rows), bad) == (9, 0)
    assert rows["parent"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert faults.tolist() == [OK] * 3
    assert positions.tolist() == [len(raw), 2 * len(raw), 3 * len(raw)]
    rows, _, faults, positions = format.parser.spans(
        (raw * 3,), spans, **options, limits=Limits(rows=4)
    )
    assert len(rows) == 4
    assert faults.tolist() == [OK, wirescan.Fault.LIMIT]
    assert len(positions) == 2


def test_a_compressed_window_is_too_large():
    with mmap.mmap(-1, (1 << 31) + 4096) as sparse:
        payload = memoryview(sparse)
        documents = Documents(ByteStrings([b"{}"]), 2)
        with pytest.raises(ValueError, match="the window of event 0 is too large"):
            write_windows(documents, 1, 1, restart=False, compress=lambda raw: payload)
        columns = Columns(
            ByteStrings([None]), ByteStrings([b"v"]), np.zeros(1, np.int64), None, None
        )
        with pytest.raises(ValueError, match="row 0 is too large"):
            write_batches(columns, 1000, (0, -1, -1, -1, 1, -1), lambda raw: payload)
        with pytest.raises(ValueError, match="row 0 is too large"):
            write_message_sets(columns, 1000, 1, 0, 0, 1, lambda raw: payload)
        payload.release()


def test_numbers_are_read_from_places():
    data = b"\x01\x02\x03\x00\x04\x05"
    head = [(name, loop.HEAD[name]) for name in loop.HEAD.names]
    rows = np.zeros(4, np.dtype([*head, ("key_at", "u4"), ("key_size", "i4")]))
    rows["size"] = len(data)
    rows["key_at"] = 0, 2, 4, 0
    rows["key_size"] = 2, 1, 2, -1
    assert read_int16(rows, (data,), "key").tolist() == [0x0102, -1, 0x0405, -1]
    rows["key_size"] = 3, 2, 3, -1
    assert read_int16(rows, (data,), "key", 1).tolist() == [0x0203, -1, -1, -1]


def make_frame_header(**changes):
    values = {"header": 8, "length_at": 0, "overhead": 4, "kind_at": -1, "smallest": (4,)}
    return SimpleNamespace(**values | changes)


# Three frames. Each has a length, a kind and zeros. The length does not count its own 4 bytes.
FRAMES = b"".join(
    size.to_bytes(4, "big") + kind.to_bytes(1, "big") + bytes(size - 1)
    for size, kind in [(4, 0), (6, 1), (8, 0)]
)


def run_hop(page, until, first=0, at=0, descriptor=-1, **changes):
    return hop(descriptor, page, first, at, until, len(FRAMES), 100, make_frame_header(**changes))


def test_hops_from_header_to_header():
    assert run_hop(FRAMES, 1) == (8, 18, FOUND)
    assert run_hop(FRAMES, 9) == (18, 30, FOUND)
    assert run_hop(FRAMES, 19)[2] == END
    assert run_hop(FRAMES[:12], 9) == (8, 8, MORE)
    assert run_hop(FRAMES[8:], 9, first=8) == (0, 0, MORE)
    assert run_hop(FRAMES, 9, kind_at=4, smallest=(4, 4)) == (18, 30, FOUND)
    assert run_hop(FRAMES, 9, kind_at=4, smallest=(4,)) == (8, 8, END)
    assert run_hop(FRAMES, 9, kind_at=4, smallest=(4, 11)) == (8, 8, END)


def test_a_hop_in_a_file_that_became_shorter(tmp_path):
    path = tmp_path / "frames"
    path.write_bytes(FRAMES[:12])
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert run_hop(b"", 9, descriptor=descriptor) == (8, 8, END)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "changes", [{"header": 3}, {"header": 65}, {"kind_at": 8}, {"smallest": ()}, {"length_at": -1}]
)
def test_invalid_frame_headers_are_refused(changes):
    with pytest.raises(ValueError, match="no header of a frame"):
        run_hop(FRAMES, 1, **changes)


def test_a_batch_that_differs_from_its_row():
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
    records, bad, _ = kafka_scan.open_records(
        batches, (raw,), loop.spans(batches), counts, check=True, limits=LIMITS, path=path
    )
    assert len(records) == count
    assert bad == 0
    assert np.array_equal(records["offset"], np.arange(count))
    assert np.array_equal(records["start"][1:], records["start"][:-1] + records["size"][:-1])
    assert np.all(records["key_size"] == -1)
    assert np.all(records["value_size"] == 0)


def test_counts_and_hashes():
    assert len(Documents(ByteStrings([b"{}", b"{}"]), 2)) == 2
    # The value is from the tests of Kafka's own Utils.murmur2.
    assert murmur2(b"21") == -973932308


def test_columns_that_count_pairs_are_integers_of_16_or_32_bits():
    writer = ColumnWriter(kafka_scan.RECORD)
    for add in (writer.add_sum, partial(writer.add_rows, "headers")):
        with pytest.raises(TypeError, match="column 'timestamp' counts pairs, so it must be int32"):
            add("timestamp")
        add("header_count")
    assert writer.take_sum("header_count") == 0


@pytest.mark.parametrize("kind", ["u2", "u4", "i4"])
def test_counts_of_16_bits_and_32_bits(kind):
    """The column after a count does not count, and neither do bad rows and negative numbers."""
    rows = np.zeros(6, [*loop.HEAD.descr, ("count", kind), ("next", "u2")])
    rows["count"] = [0, 1, 2, 3, 0, 40_000]
    rows["next"] = 7
    rows["fault"][3] = 1
    if kind == "i4":
        rows["count"][4] = -1
    writer = ColumnWriter(rows.dtype)
    writer.add_sum("count")
    writer.add_rows("list", "count")
    writer.read_rows(rows, [b""])
    assert writer.take_sum("count") == 40_003
    assert writer.take_rows("list")[0].tolist() == [1, 2, 5]


def test_a_writer_takes_one_scan():
    writer = ColumnWriter(nats_scan.MESSAGE)
    writer.add_numbers("size")
    options = dict(check=True, resync=False, limits=LIMITS, into=writer)
    nats_scan.scan_stream(b"PING\r\n", **options)
    with pytest.raises(ValueError, match="a ColumnWriter takes the rows of one scan"):
        nats_scan.scan_stream(b"PING\r\n", **options)
    assert writer.take_numbers("size").tolist() == [6]


def test_columns_keep_no_more_memory_than_twice_their_rows():
    """The first rows are far smaller than the last one, so too much room was made."""
    raw = b"+OK\r\n" * 9000 + b"PUB a %d\r\n" % (8 << 20) + bytes(8 << 20) + b"\r\n"
    writer = ColumnWriter(nats_scan.MESSAGE)
    for name in ("size", "start", "kind"):
        writer.add_numbers(name)
    nats_scan.scan_stream(raw, check=True, resync=False, limits=LIMITS, into=writer)
    sizes = writer.take_numbers("size")
    assert sizes.tolist() == [5] * 9000 + [len(raw) - 45_000]
    assert len(sizes.base.obj) < 2 * 9001 * (4 + 8 + 1)
    assert writer.take_numbers("start").tolist() == list(range(0, 45_001, 5))
    assert set(writer.take_numbers("kind").tolist()[:9000]) == {writer.take_numbers("kind")[0]}


def test_rows_are_allocated_only_once():
    block = RowBlock(8, 1, 1)
    with pytest.raises(ValueError, match="a block is allocated only once"):
        block.__init__(8, 1, 1)


def test_ranges_of_rows():
    spans = np.zeros(5, loop.HEAD)
    spans["buffer"] = [0, 1, 1, 3, 0]
    spans["start"] = [5, 7, 2, 9, 1]
    spans["size"] = [1, 2, 3, 0, 100]
    buffers = [bytes(101), bytes(9), b"", bytes(9)]
    expected = [[1, 101], [2, 9], [np.iinfo(np.int64).max, 0], [9, 9]]
    for rows in (spans, widen(spans)):
        assert loop.find_ranges(rows, buffers).tolist() == expected
    assert loop.find_ranges(spans[:0], [b""]).tolist() == [expected[2]]
    with pytest.raises(ValueError, match="^row 3 points outside its buffer$"):
        loop.find_ranges(spans, buffers[:3])
    for change in ("start", "size"):
        rows = spans.copy()
        rows[change][1] += 1
        with pytest.raises(ValueError, match="^row 1 points outside its buffer$"):
            loop.find_ranges(rows, buffers)
    spans["start"][4] = -1
    with pytest.raises(ValueError, match="^row 4 points outside its buffer$"):
        loop.find_ranges(spans, buffers)
    with pytest.raises(TypeError, match="^rows must begin with the columns"):
        loop.find_ranges(np.zeros(1, [("start", "i8")]), buffers)


def test_bounds_of_counts():
    spans = np.zeros(6, loop.HEAD)
    spans["size"] = [0, 1, 3, 3, 3, 2**32 - 1]
    counts = np.array([7, 7, 7, -1, 0, 2**31 - 1], np.int32)
    expected = [1, 2, 6, 1, 1, 9]
    strided = np.repeat(counts, 2)[::2]  # as a column of a table
    for rows in (spans, widen(spans)):
        assert loop.bound_counts(rows, counts, 2, 9).tolist() == expected
        assert loop.bound_counts(rows, strided, 2, 9).tolist() == expected
    assert not len(loop.bound_counts(spans[:0], counts[:0], 2, 9))
    with pytest.raises(ValueError, match="^6 rows need as many counts, not 5$"):
        loop.bound_counts(spans, counts[1:], 2, 9)


def widen(spans):
    """Return rows that begin with the columns of spans, and have another column."""
    rows = np.zeros(len(spans), [*loop.HEAD.descr, ("other", "i8")])
    for name in loop.HEAD.names:
        rows[name] = spans[name]
    return rows
