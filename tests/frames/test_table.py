"""FrameTable, Row, join and the errors: what every layer leans on, over small hand-made batches."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import wirescan
from wirescan import Fault, FrameError, FrameTable, Limits, join, kafka
from wirescan.core.loop import HEAD, spans
from wirescan.core.stop import Stop
from wirescan.frames.columns import list_places
from wirescan.frames.errors import HARD, MEANING, MODES, make_frame_error
from wirescan.frames.table import Row, make_empty
from wirescan.kafka import Record, encode_batch, encode_message_set
from wirescan.reading import filters
from wirescan.reading.chunked import iter_tables
from wirescan.testing.mutations import flip_bit

ROWS = [
    Record(7, 1_000, b"key", b"value" * 10, [("a", b"1"), ("b", None), ("a", b"")]),
    Record(8, 1_001, None, b""),
    Record(9, 1_002, b"", None, [("z", b"last")]),
]
FIRST, SECOND = (
    encode_batch(ROWS),
    encode_batch([Record(10 + i, value=b"%d" % i) for i in range(20)]),
)
RAW = FIRST + SECOND
RECORDS = wirescan.formats()["kafka.records"]


@pytest.fixture
def batches():
    return kafka.scan(RAW)


@pytest.fixture
def records(batches):
    return kafka.records(batches)


# ---- columns and rows


def test_head_is_24_bytes_and_begins_every_row():
    assert HEAD.itemsize == 24
    for format in wirescan.formats().values():
        assert (
            format.dtype.names[:7]
            == HEAD.names
            == ("start", "size", "body", "parent", "buffer", "kind", "fault")
        )
        types = ("i8", "u4", "u4", "i4", "u2", "u1", "u1")  # in the machine's byte order
        assert [format.dtype[n] for n in HEAD.names] == [np.dtype(type) for type in types]
        assert format.dtype.itemsize == sum(
            format.dtype[n].itemsize for n in format.dtype.names
        )  # no padding
    assert (kafka.RECORD.itemsize, kafka.BATCH.itemsize, kafka.HEADER.itemsize) == (64, 88, 40)


def test_columns_are_arrays(records, batches):
    assert len(records) == 23 and len(batches) == 2
    assert records["offset"].tolist() == list(range(7, 30))
    assert records["parent"].tolist() == [0] * 3 + [1] * 20
    assert batches["start"].tolist() == [0, len(FIRST)]
    assert batches["size"].sum() == len(RAW)
    assert records["offset"].base is not None  # a view of the rows, no copy
    assert np.shares_memory(records["offset"], records.rows)
    assert records.dtype == kafka.RECORD and records.name == "kafka.records"
    assert records.places == ("key", "value") == list_places(kafka.RECORD)
    with pytest.raises(KeyError, match="nothing"):
        records["nothing"]


def test_slices_masks_and_numbers(records):
    assert records[10:20]["offset"].tolist() == list(range(17, 27))
    assert records[::-1]["offset"].tolist() == list(range(29, 6, -1))
    assert records[np.array([4, 0])]["offset"].tolist() == [11, 7]
    assert records[records["offset"] > 27]["offset"].tolist() == [28, 29]
    assert records.where(records["key_size"] >= 0)["offset"].tolist() == [7, 9]
    assert records.where([False] * 23)["offset"].tolist() == []
    part = records[2:4]
    assert (
        isinstance(part, FrameTable)
        and part.outer is records.outer
        and part.buffers is records.buffers
    )
    assert part.format is records.format
    assert [row.offset for row in part] == [9, 10]
    with pytest.raises(IndexError, match="boolean index did not match"):
        records.where([True])


def test_a_number_selects_a_row(records):
    assert (
        records[0].offset == 7 and records[-1].offset == 29 and records[np.int64(-23)].offset == 7
    )
    for wrong in (23, -24):
        with pytest.raises(IndexError, match="out of range"):
            records[wrong]


def test_attributes_of_a_row_are_its_columns(records):
    row = records[0]
    assert isinstance(row, Row)
    for name in records.dtype.names:
        value = getattr(row, name)
        assert type(value) is int and value == records[name][0]
    assert row.key == b"key" and row.value == b"value" * 10
    assert isinstance(row.value, memoryview) and row.value.readonly
    with pytest.raises(AttributeError, match="kafka.records.*'nothing'"):
        row.nothing


def test_null_is_told_from_empty(records):
    assert (records[1].key, bytes(records[1].value)) == (None, b"")
    assert (bytes(records[2].key), records[2].value) == (b"", None)
    assert records.bytes(1, "key") is None and records.bytes(1, "value") == b""
    assert records.bytes(-22, "value") == b""
    with pytest.raises(KeyError, match="key, value"):
        records.bytes(0, "header")


def test_rows_iterate_and_unpack(records):
    assert [row.offset for row in records] == records["offset"].tolist()
    key, value = records[0]
    assert (key, value) == (b"key", b"value" * 10)
    pairs = [
        (bytes(key), None if value is None else bytes(value)) for key, value in records[0].headers
    ]
    assert pairs == [(b"a", b"1"), (b"b", None), (b"a", b"")]
    assert list(records[1].headers) == []
    assert [bytes(key) for key, _ in records[2].headers] == [b"z"]
    assert [record.offset for record in records.outer[1].records] == list(range(10, 30))


def test_a_row_can_be_copied_and_pickled(records):
    assert copy.copy(records[0]).offset == 7
    assert pickle.loads(pickle.dumps(records[0])).value == b"value" * 10


# ---- frames, payloads, ends


def test_frame_and_payload_are_views(batches, records):
    assert batches.frame(0) == FIRST and batches.frame(-1) == SECOND
    assert batches.payload(0) == FIRST[61:]
    for table in (batches, records):
        for i in range(len(table)):
            assert table.frame(i).obj is RAW and table.payload(i).obj is RAW
    assert records.payload(0) == RAW[61 + records[0].body : 61 + records[0].size]


def test_stop_tail_and_consumed():
    table = kafka.scan(RAW + FIRST[:40])
    assert table.stop == (Fault.SHORT, len(RAW), 0) == table.stops[0]
    copied = dataclasses.replace(table)
    assert [type(stop) for stop in (*table.stops, *copied.stops)] == [Stop, Stop]
    assert hash(table.stop) == hash(Stop(*table.stop))
    assert table.consumed == len(RAW) and table.tail == FIRST[:40]
    assert table.tail.obj is table.buffers[0].obj
    whole = kafka.scan(RAW)
    assert whole.stop == Stop(0, len(RAW), 0) and whole.tail == b""
    zeros = kafka.scan(RAW + bytes(4096))
    assert zeros.stop.fault == Fault.ZEROS and zeros.tail == bytes(4096)
    nothing = kafka.scan(b"")
    assert len(nothing) == 0 and nothing.tail == b"" and nothing.consumed == 0


def test_bytes_of_a_bad_row():
    table = kafka.records(kafka.scan(flip_bit(FIRST) + SECOND, errors="mark"), errors="mark")
    assert table.bad.tolist() == [True] + [False] * 20
    assert (
        table[0].fault == Fault.BAD_CHECKSUM
        and table[0].key is None
        and table.bytes(0, "value") is None
    )
    assert table.frame(0) == flip_bit(FIRST)[61:]  # the row covers the batch's payload
    assert table[0].offset == 0  # unread columns are zero
    assert table.bad.dtype == bool


def test_positions_are_in_the_file():
    table = kafka.records(kafka.scan([FIRST, SECOND]))
    assert table.positions.tolist() == [0] * 23
    table = kafka.records(kafka.scan(RAW))
    assert (
        table.positions.tolist() == [0] * 3 + [len(FIRST)] * 20
        and table.positions.dtype == np.int64
    )
    assert kafka.headers(table).positions.tolist() == [0] * 4
    moved = dataclasses.replace(table.outer, origins=(1 << 40,))
    assert kafka.records(moved).positions[-1] == (1 << 40) + len(FIRST)
    assert table[3:5].positions.tolist() == [len(FIRST)] * 2
    assert make_empty(RECORDS).positions.tolist() == []


def test_tables_are_frozen_and_rows_read_only(records):
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'rows'"):
        records.rows = records.rows.copy()
    for part in (
        records,
        records[1:3],
        records.where(records["offset"] > 8),
        records.outer,
        kafka.headers(records),
        join([records, records]),
        pickle.loads(pickle.dumps(records)),
        make_empty(RECORDS),
    ):
        assert not part.rows.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            part["offset" if "offset" in part.dtype.names else "size"][:] = 0
    with pytest.raises(TypeError, match="read-only"):
        records.frame(0)[0] = 1


def test_rows_given_by_the_caller():
    into = np.empty(30, kafka.RECORD)
    table = kafka.records(kafka.scan(RAW), into=into)
    assert (
        np.shares_memory(table.rows, into)
        and into.flags.writeable
        and not table.rows.flags.writeable
    )
    assert into["offset"][:23].tolist() == list(range(7, 30))
    with pytest.raises(ValueError, match="into has 22 rows"):
        kafka.records(kafka.scan(RAW), into=np.empty(22, kafka.RECORD))
    for wrong in (
        np.empty(30, kafka.BATCH),
        np.empty((5, 5), kafka.RECORD),
        np.empty(60, kafka.RECORD)[::2],
        bytearray(9),
    ):
        with pytest.raises(TypeError, match="into"):
            kafka.records(kafka.scan(RAW), into=wrong)


def test_spans_cover_rows_and_places(records):
    frame_spans = spans(records.rows)
    assert frame_spans.dtype == HEAD and frame_spans["parent"].tolist() == list(range(23))
    assert (frame_spans["start"] + frame_spans["size"] == records["start"] + records["size"]).all()
    at_headers = spans(records.rows, records["headers_at"])
    assert at_headers["size"][1] == 0 and (at_headers["size"] <= frame_spans["size"]).all()


def replace_values(table, **columns):
    rows = table.rows.copy()
    for name, (row, value) in columns.items():
        rows[name][row] = value
    return dataclasses.replace(table, rows=rows)


@pytest.mark.parametrize("name", ["key", "value"])
def test_places_outside_their_frame_are_refused(records, name):
    size = int(records["size"][4])
    for at, length in ((2**32 - 1, 1), (size - 4, 5), (size + 1, 0), (0, 2**31 - 1), (0, size + 1)):
        table = replace_values(records, **{f"{name}_at": (4, at), f"{name}_size": (4, length)})
        for call in (
            lambda: table.bytes(4, name),
            lambda: getattr(table[4], name),
            lambda: list(table[4]),
        ):
            with pytest.raises(
                ValueError, match=f"row 4 of kafka.records: {name} points outside its frame"
            ):
                call()
        assert table.bytes(3, name) == records.bytes(3, name)
    whole = replace_values(records, **{f"{name}_at": (4, 0), f"{name}_size": (4, size)})
    assert whole.bytes(4, name) == records.frame(4)


@pytest.mark.parametrize(
    "name, value",
    [
        ("start", -1),
        ("start", len(RAW)),
        ("start", 2**62),
        ("size", 2**32 - 1),
        ("buffer", 1),
        ("buffer", 65_535),
    ],
)
def test_frames_outside_their_buffer_are_refused(records, name, value):
    table = replace_values(records, **{name: (-1, value)})
    for call in (table.frame, table.payload, lambda i: table.bytes(i, "value")):
        with pytest.raises(
            ValueError, match="row -1 of kafka.records: start and size point outside its buffer"
        ):
            call(-1)
    with pytest.raises(ValueError, match="row 0 of kafka.records: body points outside its frame"):
        replace_values(records, body=(0, int(records["size"][0]) + 1)).payload(0)


def replace_parent(records, level, value):
    """Return the headers of records. The first row of `level` names row `value` as its parent."""
    if level == "headers":
        return replace_values(kafka.headers(records), parent=(0, value))
    outer = replace_values(records, parent=(0, value))
    return dataclasses.replace(kafka.headers(records), outer=outer)


@pytest.mark.parametrize("level", ["headers", "records"])
@pytest.mark.parametrize("value", [-1, -(2**31), 23, 2**31 - 1])
def test_rows_outside_the_table_around_them_are_refused(records, level, value):
    """The last frame is not taken for the one meant, and there is no IndexError."""
    table = replace_parent(records, level, value)
    conditions = filters.check_filters([("base_offset", ">=", 0)], table.format)
    for call in (
        lambda: table.positions,
        lambda: make_frame_error(table, 0),
        lambda: filters.apply_filters(table, conditions),
    ):
        with pytest.raises(
            ValueError, match="a row of kafka.(headers|records) points outside the table"
        ):
            call()


@pytest.mark.parametrize("level", ["headers", "records"])
@pytest.mark.parametrize("value", [-1, -(2**31), 23, 2**31 - 1])
def test_rows_outside_the_table_around_them_are_not_exported(records, level, value):
    pytest.importorskip("pyarrow")
    from wirescan.export import fault_report
    from wirescan.frames import to_arrow

    table = replace_parent(records, level, value)
    marked = replace_values(table, fault=(0, Fault.BAD_VARINT))
    for call in (
        lambda: to_arrow.to_batch(table, ["_start"]),
        lambda: to_arrow.to_batch(table, ["_fault"]),
        lambda: to_arrow.to_batch(table, ["base_offset"]),
        lambda: fault_report.to_batch(marked, "a file"),
    ):
        with pytest.raises(
            ValueError, match="a row of kafka.(headers|records) points outside the table"
        ):
            call()


@pytest.mark.parametrize("value", [1, 65_535])
def test_rows_of_no_buffer_are_refused(batches, value):
    table = replace_values(batches, buffer=(0, value), fault=(0, Fault.BAD_VARINT))
    for call in (
        lambda: table.positions,
        lambda: dataclasses.replace(kafka.records(batches), outer=table).positions,
    ):
        with pytest.raises(
            ValueError, match="a row of kafka.batches points to a buffer that is not there"
        ):
            call()


@pytest.mark.parametrize("value", [1, 65_535])
def test_rows_of_no_buffer_are_not_exported(batches, value):
    pytest.importorskip("pyarrow")
    from wirescan.export import fault_report
    from wirescan.frames import to_arrow

    table = replace_values(batches, buffer=(0, value), fault=(0, Fault.BAD_VARINT))
    for call in (
        lambda: to_arrow.to_batch(table, ["_start"]),
        lambda: fault_report.to_batch(table, "a file"),
    ):
        with pytest.raises(
            ValueError, match="a row of kafka.batches points to a buffer that is not there"
        ):
            call()
    with pytest.raises(ValueError, match="row 0 points outside its buffer"):
        to_arrow.to_batch(replace_values(kafka.records(batches), buffer=(0, value)), ["value"])


@pytest.mark.parametrize(
    "name, value", [("buffer", 1), ("buffer", 65_535), ("start", -1), ("start", 2**62)]
)
def test_an_error_of_a_row_outside_its_buffer(batches, name, value):
    """Of the row itself, or of the frame on the wire around one in an inflated payload."""
    outer = kafka.scan(encode_batch(ROWS, codec="gzip"))
    inflated = dataclasses.replace(
        kafka.records(outer), outer=replace_values(outer, **{name: (0, value)})
    )
    for table in (replace_values(batches, **{name: (0, value)}), inflated):
        with pytest.raises(
            ValueError, match="row 0 of kafka.batches: buffer and start point outside its buffers"
        ):
            make_frame_error(table, 0)


# ---- join


def test_join_shifts_buffers_and_parents():
    parts = [kafka.records(kafka.scan(raw)) for raw in ([FIRST, SECOND], SECOND, FIRST)]
    joined = join(parts)
    assert len(joined) == 23 + 20 + 3 and len(joined.buffers) == 4
    assert joined["buffer"].tolist() == [0] * 3 + [1] * 20 + [2] * 20 + [3] * 3
    assert joined["parent"].tolist() == [0] * 3 + [1] * 20 + [2] * 20 + [3] * 3
    assert len(joined.outer) == 4 and joined.format is parts[0].format
    assert [view.obj for view in joined.buffers] == [
        FIRST,
        SECOND,
        SECOND,
        FIRST,
    ]  # held, not copied
    values = [[bytes(row.value or b"") for row in part] for part in parts]
    assert [bytes(row.value or b"") for row in joined] == sum(values, [])
    assert [stop.buffer for stop in joined.outer.stops] == [0, 1, 2, 3]
    assert joined.outer.consumed == 2 * len(RAW)


def test_join_of_inflated_tables_keeps_arenas():
    packed = [encode_batch([Record(i, value=b"%d" % i * 300)], codec="lz4") for i in range(3)]
    joined = join([kafka.records(kafka.scan(raw)) for raw in packed])
    assert [bytes(row.value) for row in joined] == [b"%d" % i * 300 for i in range(3)]
    assert len(joined.buffers) == 6 and len(joined.outer.buffers) == 3
    assert [bytes(row.value) for row in kafka.records(joined.outer)] == [
        b"%d" % i * 300 for i in range(3)
    ]


def test_join_keeps_origins():
    first = dataclasses.replace(kafka.scan(FIRST), origins=(100,))
    joined = join([first, kafka.scan(SECOND)])
    assert joined.origins == (100, 0) and joined.positions.tolist() == [100, 0]


def test_join_of_one_and_of_none(records):
    assert join([records]) is records
    assert join(iter([records])) is records
    with pytest.raises(ValueError, match="at least one"):
        join([])
    assert len(join([records, records[:0]])) == 23


def test_join_refuses_unlike_tables(records, batches):
    with pytest.raises(ValueError, match="one format"):
        join([records, batches])


@pytest.mark.parametrize("more", [1, 2, 65_536])
def test_join_refuses_more_buffers_than_a_row_can_name(batches, more):
    many = FrameTable(batches.buffers * 65_535, batches.rows, (), batches.format)
    assert len(join([many, batches]).buffers) == 65_536
    assert join([many, batches])["buffer"].tolist() == [0, 0, 65_535, 65_535]
    full = FrameTable(batches.buffers * 65_536, batches.rows, (), batches.format)
    with pytest.raises(ValueError, match="65,536 buffers"):
        join([full, FrameTable(batches.buffers * more, batches.rows, (), batches.format)])


def test_join_refuses_what_is_no_table(records):
    for wrong in (b"..", [None], records, [records, 3]):
        with pytest.raises(TypeError, match="join takes a list of FrameTables"):
            join(wrong)


def test_join_of_tables_without_outer_has_none(records):
    alone = dataclasses.replace(records, outer=None)
    assert join([records, alone]).outer is None


# ---- pickling


def test_mapped_file_travels_as_its_path(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(FIRST + encode_batch([bytes(1 << 20)]))
    table = kafka.records(kafka.scan(path))
    data = pickle.dumps(table)
    assert len(data) < 4_000 and str(path).encode() in data
    back = pickle.loads(data)
    assert back[3].value == bytes(1 << 20)
    assert back.buffers[0].obj.path == str(path)
    assert (back.rows == table.rows).all() and back.dtype == table.dtype
    assert back.format is table.format and back.outer.format is table.outer.format
    assert back.outer.stops == table.outer.stops and len(back.outer) == 2
    path.write_bytes(b"short now")
    with pytest.raises(EOFError, match="short|bytes now"):
        pickle.loads(data)


def test_bytes_travel_as_bytes(records):
    back = pickle.loads(pickle.dumps(kafka.headers(records)))
    assert [(bytes(key), value if value is None else bytes(value)) for key, value in back][:2] == [
        (b"a", b"1"),
        (b"b", None),
    ]
    assert back.name == "kafka.headers" and back.outer.outer.name == "kafka.batches"
    assert bytes(back.buffers[0]) == RAW and back.outer[0].value == b"value" * 10
    assert [key == b"a" for key, _ in back.outer[0].headers] == [True, False, True]


def test_bytes_travel_once(records):
    large = kafka.headers(
        kafka.records(
            kafka.scan(encode_batch([Record(value=bytes(1 << 20), headers=[("a", b"")])]))
        )
    )
    assert len(pickle.dumps(large)) < 3 << 19  # the tables that enclose it hold the same buffer


@pytest.mark.parametrize(
    "move",
    [copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))],
    ids=["copied", "pickled"],
)
def test_errors_are_told_alike_after_a_journey(tmp_path, move):
    path = tmp_path / "a.log"
    path.write_bytes(FIRST + make_batch_with_null_key("none"))
    for source in (
        path,
        FIRST + make_batch_with_null_key("none"),
        FIRST + make_batch_with_null_key("gzip"),
    ):
        table = kafka.records(kafka.scan(source))
        said = []
        for moved in (table, move(table)):
            with pytest.raises(FrameError) as caught:
                kafka.headers(moved)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_a_table_without_a_format_pickles():
    rows = np.zeros(1, HEAD)
    back = pickle.loads(pickle.dumps(FrameTable((memoryview(b"abc"),), rows, origins=(5,))))
    assert (
        back.format is None
        and back.name == "frames"
        and back.origins == (5,)
        and bytes(back.buffers[0]) == b"abc"
    )


def test_copies_have_the_same_rows(records):
    assert copy.copy(records)["offset"].tolist() == records["offset"].tolist()
    assert copy.deepcopy(records)[0].value == b"value" * 10


# ---- faults and modes


def test_every_fault_has_a_meaning():
    assert set(MEANING) == set(Fault) and all(isinstance(fault, Fault) for fault in MEANING)
    assert len(set(MEANING.values())) == len(Fault)
    assert min(fault for fault in Fault if fault >= 160) == HARD
    for fault in Fault:
        assert MEANING[fault] in str(FrameError(fault, 0, 0, b"")) and fault.name in str(
            FrameError(fault, 0, 0, b"")
        )


def test_frame_error_says_where(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(FIRST + flip_bit(SECOND))
    with pytest.raises(FrameError) as caught:
        kafka.scan(path)
    error = caught.value
    assert isinstance(error, ValueError)
    assert (error.fault, error.offset, error.row, error.source) == (
        Fault.BAD_CHECKSUM,
        len(FIRST),
        1,
        str(path),
    )
    assert error.near == SECOND[:16] and not error.inflated and isinstance(error.fault, Fault)
    assert str(error) == (
        f"the checksum does not match (BAD_CHECKSUM) at byte {len(FIRST)} of {path}, row 1: "
        + SECOND[:16].hex(" ")
    )
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == str(error) and vars(back) == vars(error) and type(back) is FrameError
    assert str(FrameError(Fault.LIMIT, 3, 4, b"")).endswith("row 4: no bytes")


def test_damage_follows_the_mode(tmp_path):
    raw = FIRST + flip_bit(SECOND) + FIRST
    with pytest.raises(FrameError, match="BAD_CHECKSUM"):
        kafka.scan(raw)
    marked = kafka.scan(raw, errors="mark")
    assert marked["fault"].tolist() == [0, Fault.BAD_CHECKSUM, 0] and marked["size"].sum() == len(
        raw
    )
    skipped = kafka.scan(raw, errors="skip")
    assert skipped["start"].tolist() == [0, len(RAW)] and not skipped.bad.any()
    assert (
        len(kafka.records(marked, errors="skip")) == 6
        and len(kafka.records(marked, errors="mark")) == 7
    )
    with pytest.raises(FrameError) as caught:
        kafka.records(marked, errors="strict")
    assert caught.value.offset == len(FIRST) + 61
    unchecked = kafka.scan(raw, check=False)
    assert not unchecked.bad.any()


def test_a_hard_fault_covers_the_gap():
    gap = b"\xfe" * 57
    with pytest.raises(FrameError) as caught:
        kafka.scan([FIRST, SECOND + gap + FIRST])
    assert (
        caught.value.fault == Fault.BAD_LENGTH
        and caught.value.offset == len(SECOND)
        and caught.value.row == 1
    )
    marked = kafka.scan(SECOND + gap + FIRST, errors="mark")
    assert marked["fault"].tolist() == [0, Fault.BAD_LENGTH, 0]
    assert marked["size"].tolist() == [len(SECOND), len(gap), len(FIRST)]
    assert kafka.scan(SECOND + gap + FIRST, errors="skip")["start"].tolist() == [
        0,
        len(SECOND) + len(gap),
    ]


def test_unknown_modes_are_refused(batches, records):
    for call in (
        lambda: kafka.scan(RAW, errors="ignore"),
        lambda: kafka.records(batches, errors="Strict"),
        lambda: kafka.headers(records, errors=""),
        lambda: wirescan.stream("kafka.batches", errors="warn"),
        lambda: wirescan.scan(RAW, "kafka.headers", errors="coerce"),
    ):
        with pytest.raises(ValueError, match="errors must be one of " + ", ".join(MODES)):
            call()
    with pytest.raises(ValueError, match="kafka.batches, kafka.records"):
        wirescan.scan(RAW, "kafka.nothing")


def make_batch_with_null_key(codec):
    """A batch whose second record has a header without a key."""
    raw = bytearray(
        encode_batch(
            [Record(value=b"v" * 99), Record(value=b"w", headers=[("", b"1")])], codec="none"
        )
    )
    at = len(raw) - 3  # the length of the header's key
    assert raw[at:] == b"\x00\x021"
    raw[at] = 1  # null
    return encode_raw(bytes(raw), codec)


def encode_raw(raw, codec):
    """A batch's bytes again, its payload compressed and its checksum mended."""
    from wirescan.core.checksum import crc32c
    from wirescan.frames.codecs import compress

    number = {"none": 0, "gzip": 1}[codec]
    body = raw[61:] if codec == "none" else compress(codec, raw[61:])
    covered = bytes([0, number]) + raw[23:61] + body
    return (
        raw[:8]
        + (len(covered) + 9).to_bytes(4, "big")
        + raw[12:17]
        + crc32c(covered).to_bytes(4, "big")
        + covered
    )


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_offset_of_an_error_inside(codec):
    raw = FIRST + make_batch_with_null_key(codec)
    table = kafka.records(kafka.scan(raw))
    with pytest.raises(FrameError) as caught:
        kafka.headers(table)
    error = caught.value
    assert error.fault == Fault.BAD_NULL and error.row == 4
    assert error.inflated == (codec == "gzip")
    assert error.offset == (len(FIRST) if codec == "gzip" else len(raw) - 3)
    assert error.near == b"\x01\x021" if codec == "none" else error.near.startswith(b"\x01\x021")
    assert ("in the decompressed payload of the frame at byte" in str(error)) == (codec == "gzip")


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_bad_headers_of_a_row_are_met_as_its_table_was(codec):
    raw = FIRST + make_batch_with_null_key(codec) + SECOND

    def read(errors):
        return kafka.records(kafka.scan(raw, errors=errors), errors=errors)

    with pytest.raises(FrameError) as caught:
        list(read("strict")[4].headers)
    assert caught.value.fault == Fault.BAD_NULL and caught.value.__notes__ == [
        "among the headers of row 4 of kafka.records"
    ]
    marked, skipped = read("mark"), read("skip")
    for table in (
        marked,
        marked[3:],
        join([marked, kafka.records(kafka.scan(RAW))]),
        pickle.loads(pickle.dumps(marked)),
        next(batch for batch in marked.outer[1:]).records,
    ):
        row = next(row for row in table if row.header_count == 1 and row.value == b"w")
        assert [tuple(pair) for pair in row.headers] == [(None, None)]
    assert list(skipped[4].headers) == [] and (marked.errors, skipped.errors) == ("mark", "skip")
    assert [bytes(key) for key, _ in marked[0].headers] == [b"a", b"b", b"a"]
    fed = wirescan.stream("kafka.records", errors="mark").feed(raw)
    assert [tuple(pair) for pair in fed[4].headers] == [(None, None)]


def test_error_in_a_joined_table_names_its_own_file(tmp_path):
    """Buffers of a joined table lie as its parts had them, arenas in between."""
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_bytes(encode_batch([b"x" * 500], codec="gzip"))
    second.write_bytes(FIRST + make_batch_with_null_key("none"))
    joined = join([kafka.records(kafka.scan(path)) for path in (first, second)])
    with pytest.raises(FrameError) as caught:
        kafka.headers(joined)
    assert (caught.value.source, caught.value.inflated) == (str(second), False)
    assert caught.value.offset == len(FIRST) + len(make_batch_with_null_key("none")) - 3
    inside = make_frame_error(joined, 0)
    assert (inside.source, inside.inflated, inside.offset) == (str(first), True, 0)


def test_wrappers_that_do_not_inflate():
    raw = bytearray(encode_message_set([b"x" * 300, b"y"], codec="gzip"))
    raw[60] ^= 0xFF
    table = kafka.scan(bytes(raw), check=False)
    with pytest.raises(FrameError) as caught:
        kafka.records(table, check=False)
    assert caught.value.fault == Fault.BAD_COMPRESSION and not caught.value.inflated


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_checksums_that_scan_left_are_verified_when_opened(codec):
    raw = bytearray(encode_batch([b"x" * 100] * 3, codec=codec))
    raw[-3] ^= 1
    table = kafka.scan(FIRST + raw + SECOND, check=False)
    assert not table.checked and not table.bad.any() and kafka.scan(RAW).checked
    for part in (
        table,
        table[:2],
        join([table, kafka.scan(RAW)]),
        pickle.loads(pickle.dumps(table)),
    ):
        assert not part.checked
        with pytest.raises(FrameError) as caught:
            kafka.records(part)
        assert caught.value.fault == Fault.BAD_CHECKSUM and not caught.value.inflated
        marked = kafka.records(part, errors="mark")
        assert marked.bad.tolist()[:5] == [False] * 3 + [True] + [False] * (len(marked) > 4)
        assert marked["fault"][3] == Fault.BAD_CHECKSUM and marked["parent"][3] == 1


def test_rows_have_a_limit():
    with pytest.raises(FrameError) as caught:
        kafka.records(kafka.scan(RAW), limits=Limits(rows=22))
    error, last = caught.value, kafka.records(kafka.scan(RAW))[21]
    assert (error.fault, error.row, error.offset) == (Fault.LIMIT, 22, last.start + last.size)
    assert error.near == RAW[error.offset : error.offset + 16]
    assert len(kafka.records(kafka.scan(RAW), limits=Limits(rows=23))) == 23
    for errors in ("strict", "mark"):
        if errors == "strict":
            with pytest.raises(FrameError, match="LIMIT"):
                kafka.scan(RAW, limits=Limits(rows=1))
        else:
            assert kafka.scan(RAW, errors=errors, limits=Limits(rows=1)).stop.fault == Fault.LIMIT


def test_the_limit_on_rows_says_where(tmp_path):
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(FIRST + encode_batch([b"x" * 500] * 20, codec="gzip"))
    for rows, offset, inflated in (
        (2, None, False),
        (3, len(FIRST), False),
        (10, len(FIRST), True),
    ):
        for call in (
            lambda limits: kafka.records(kafka.scan(path), limits=limits),
            lambda limits: list(iter_tables(str(path), format="kafka.records", limits=limits)),
        ):
            with pytest.raises(FrameError) as caught:
                call(Limits(rows=rows))
            error = caught.value
            assert (error.fault, error.row, error.source, error.inflated) == (
                Fault.LIMIT,
                rows,
                str(path),
                inflated,
            )
            assert error.offset == offset or offset is None and 61 < error.offset < len(FIRST)


# ---- columns


def test_an_unknown_column_is_named_with_the_columns_that_exist(records):
    columns = "it has start, .*offset, timestamp, .*key, value, headers"
    for key in (
        "nothing",
        np.str_("nothing"),
        ["offset", "nothing"],
        ["nothing", 3],
        ("key", "nothing"),
        np.array(["offset", "nothing"]),
    ):
        with pytest.raises(KeyError, match=f"kafka.records has no column 'nothing'; {columns}"):
            records[key]
    with pytest.raises(KeyError, match="kafka.records has no column 3; it has start"):
        records[["offset", 3]]
    with pytest.raises(KeyError, match="frames has no column 'nothing'; it has start, "):
        dataclasses.replace(records, format=None)["nothing"]
    with pytest.raises(KeyError, match="kafka.records has no column 'key'; it has start, .*offset"):
        records[["offset"]]["key"]
    with pytest.raises(KeyError, match="kafka.records has no place 'nothing', only key, value"):
        records.bytes(0, "nothing")
    with pytest.raises(AttributeError, match=f"a row of kafka.records has no 'nothing'; {columns}"):
        records[0].nothing
    for key in ("offset", "key"), np.array(["offset", "key"]):
        assert records[key].dtype == records[["offset", "key"]].dtype


@pytest.mark.parametrize(
    "wrong, meant",
    [("ofset", "offset"), ("Key", "key"), ("header", "headers"), ("base_ofset", "base_offset")],
)
def test_an_unknown_column_is_named_with_a_similar_one(records, wrong, meant):
    for key in (wrong, ["offset", wrong]):
        with pytest.raises(KeyError, match=f"'{wrong}'; did you mean {meant}\\?"):
            records[key]
    with pytest.raises(AttributeError, match=f"'{wrong}'; did you mean {meant}\\?"):
        getattr(records[0], wrong)


# ---- data frames


def test_columns_are_those_of_exports(records):
    assert records.columns == records.format.export_columns
    assert {"offset", "timestamp", "key", "headers", "is_control"} <= set(records.columns)
    assert not {"start", "body", "buffer", "key_at"} & set(records.columns)
    assert len(records["start"]) == len(records) and type(records["offset"]) is np.ndarray
    assert dataclasses.replace(records, format=None).columns[-1] == "fault"


def test_head_is_the_first_rows_and_tail_stays_bytes(records):
    assert records.head()["offset"].tolist() == records["offset"][:5].tolist()
    assert len(records.head(2)) == 2 and len(records.head(-3)) == len(records) - 3
    assert len(records.head(1000)) == len(records)
    assert isinstance(records.tail, memoryview)


def test_dir_of_a_row_has_its_columns(records):
    row = records[0]
    assert {"offset", "key", "value", "headers", "start"} <= set(dir(row))
    assert all(hasattr(row, name) for name in dir(row))
