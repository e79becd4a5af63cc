"""Segments of itadventurer's kafka-backup, decoded one field at a time.

    segment   version u8, 1 | records
    record    offset i64 | timestamp type i32 | timestamp i64, only for types 0 and 1
              | key size i32 | key | value size i32 | value | header count i32 | headers
    header    key size i32 | key | value size i32 | value

Integers are big-endian. A negative size of a key or a value is null. The first record of a segment
has the version before it. A record has no length, and nothing marks the next record after a damaged
one, so the rest of the bytes is bad.

A row is a dict with every column of the format, as in tests/reference/kafka.py. Source:
github.com/itadventurer/kafka-backup, RecordSerde.java and SegmentWriter.java.
"""

from tests.reference.kafka import HEADER, NOT_A_FRAME, OK, RECORD, SHORT
from tests.reference.window import BadBytesError, Window

BAD_LENGTH = 160
CONNECT_RECORD = RECORD | dict(timestamp_type=0)
VERSION = 1
CREATE_TIME, NO_TYPE, CREATE_TIME_WITHOUT_TIME = 0, -1, -2
TYPES = (CREATE_TIME_WITHOUT_TIME, NO_TYPE, CREATE_TIME, 1)
SMALLEST_HEADER = 8
LARGEST_FRAME = 100 << 20  # bytes: the default of Limits.frame


class CutError(Exception):  # noqa: N818 (as in window.py)
    """The bytes end inside a record, which has at least `needed` bytes."""

    def __init__(self, needed):
        super().__init__(needed)
        self.needed = needed


class RecordWindow(Window):
    """A cursor over a record. `start` is its position."""

    def __init__(self, data, at):
        super().__init__(data, at, len(data))
        self.start = at

    def need(self, size, follow):
        """Raise CutError if fewer than `size` bytes are left. follow: bytes that follow them."""
        if self.left < size:
            raise CutError(self.at - self.start + size + follow)

    def number(self, size, follow):
        self.need(size, follow)
        return int.from_bytes(self.take(size), "big", signed=True)

    def sized(self, row, name, follow):
        """Read a field after its size. follow: bytes that follow the field at least."""
        size = self.number(4, follow)
        self.need(size, follow)
        self.field(row, name, size)


def read_records(data, resync=True):
    """Return (rows of kafka.connect_backup_records, stop fault, stop position)."""
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(read_record(data, at))
        except CutError as cut:
            if max(cut.needed, len(data) - at) <= LARGEST_FRAME:
                return rows, SHORT, at
            fault = BAD_LENGTH
        except BadBytesError as bad:
            fault = bad.fault
        else:
            at += rows[-1]["size"]
            continue
        if not resync:
            return rows, fault, at
        rows.append(CONNECT_RECORD | dict(start=at, size=len(data) - at, fault=fault))
        return rows, OK, len(data)
    return rows, OK, at


def read_record(data, start):
    """Return the row of the record at a position. Raises CutError and BadBytesError."""
    window = RecordWindow(data, start)
    row = CONNECT_RECORD | dict(start=start)
    if data[start] == VERSION:
        row["body"] = 1
        window.at += 1
    if window.left and data[window.at] != 0:
        raise BadBytesError(NOT_A_FRAME)
    window.need(12, 12)
    row["offset"] = window.number(8, 0)
    kind = window.number(4, 0)
    if kind not in TYPES:
        raise BadBytesError(NOT_A_FRAME)
    row["timestamp_type"] = CREATE_TIME if kind == CREATE_TIME_WITHOUT_TIME else kind
    row["timestamp"] = window.number(8, 12) if kind >= 0 else -1
    window.sized(row, "key", 8)
    window.sized(row, "value", 4)
    count = window.number(4, 0)
    if count < 0:
        raise BadBytesError(BAD_LENGTH)
    row |= dict(headers_at=window.at - start, header_count=count)
    for left in range(count - 1, -1, -1):
        follow = left * SMALLEST_HEADER
        if window.left < SMALLEST_HEADER + follow:
            raise CutError(window.at - start + SMALLEST_HEADER + follow)
        read_header(window, dict(start=start), follow)
    row["size"] = window.at - start
    return row


def read_header(window, row, follow):
    """Read a header of a record into a row. follow: bytes that the headers after it need."""
    window.sized(row, "key", follow + 4)
    if row["key_size"] < 0:
        raise BadBytesError(BAD_LENGTH)
    window.sized(row, "value", follow)


def list_headers(data, record, parent=0):
    """Return the rows of kafka.connect_backup_headers for a row of the records."""
    start, end = record["start"] + record["headers_at"], record["start"] + record["size"]
    blank = HEADER | dict(parent=parent)
    if record["fault"]:
        return [blank | dict(start=start, size=end - start, fault=record["fault"])]
    rows = []
    for _ in range(record["header_count"]):
        row = blank | dict(start=start, body=4)
        window = RecordWindow(data, start)
        read_header(window, row, 0)
        row["size"] = window.at - start
        rows.append(row)
        start = window.at
    assert start == end or not rows
    return rows
