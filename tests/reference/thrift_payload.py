"""Thrift messages of the binary and the compact protocol, decoded one value at a time, without IDL.

    binary, strict   0x8001 0 type(1) | size(4) name | seqid(4) | struct
    binary, old      size(4) name | type(1) | seqid(4) | struct
    compact          0x82 | type << 5 and version (1) | varint seqid | varint size, name | struct

The integers of the binary protocol are big-endian.

A row is a dict with every column of the format. A struct has no length, so its size is known only
after it was read.
"""

import struct

from tests.reference.window import BadBytesError, Window

TRUNCATED, BAD_MAGIC, BAD_VERSION, BAD_COUNT, BAD_VARINT, LEFTOVER, NESTED = 1, 2, 3, 5, 6, 10, 11
BAD_KIND, BAD_FIELD = 15, 16
BINARY, COMPACT = 0, 2
BOOL, BYTE, DOUBLE, I16, I32, U64, I64 = 2, 3, 4, 6, 8, 9, 10
STRING, STRUCT, MAP, SET, LIST, UUID, FLOAT = 11, 12, 13, 14, 15, 16, 19
FIELD_ROLE, ELEMENT, KEY, VALUE = range(4)
DEEPEST = 64  # nested structs and containers
CALL, ONEWAY = 1, 4
MESSAGE_TYPES = (1, 2, 3, 4)

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
BAD_MESSAGE = (
    HEAD
    | {name + end: 0 for name in ("method", "service", "arguments") for end in ("_at", "_size")}
    | dict(seqid=0, protocol=0, version=0, strict=0)
)
BAD_FIELD_ROW = HEAD | dict(
    integer=0,
    real=0.0,
    value_at=0,
    value_size=0,
    enclosing=-1,
    count=0,
    id=0,
    depth=0,
    role=0,
    key_type=0,
    element_type=0,
)

BINARY_WIDTH = {BOOL: 1, BYTE: 1, I16: 2, I32: 4, U64: 8, I64: 8, DOUBLE: 8, FLOAT: 4, UUID: 16}
# The smallest size of a value in bytes.
BINARY_LEAST = BINARY_WIDTH | {STRING: 4, STRUCT: 1, MAP: 6, SET: 5, LIST: 5}
COMPACT_TYPES = {
    1: BOOL,
    2: BOOL,
    3: BYTE,
    4: I16,
    5: I32,
    6: I64,
    7: DOUBLE,
    8: STRING,
    9: LIST,
    10: SET,
    11: MAP,
    12: STRUCT,
}
# The smallest size of a value in bytes. Types that are not listed have 1.
COMPACT_LEAST = {DOUBLE: 8, UUID: 16, FLOAT: 4}


class ShortError(Exception):
    """The bytes end inside a message. `size` is the smallest possible size of the message."""

    def __init__(self, size):
        super().__init__(size)
        self.size = size


class Cursor(Window):
    """A window that reads Thrift's numbers. open_ended: more bytes may follow its end."""

    def __init__(self, data, at, end, open_ended=False):
        super().__init__(data, at, end)
        self.first = at
        self.open_ended = open_ended

    def take(self, size):
        if size > self.left and self.open_ended:
            raise ShortError(self.at - self.first + size)
        return super().take(size)

    def number(self, size):
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self, bits=32):
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if number >= 1 << bits or (byte & 0x80 and shift + 7 >= bits):
                raise BadBytesError(BAD_VARINT)
            if not byte & 0x80:
                return number
        raise AssertionError("not reached: ten bytes hold 64 bits")

    def zigzag(self, bits=32):
        number = self.varint(bits)
        return -(number + 1 >> 1) if number & 1 else number >> 1

    def allow(self, count, least):
        """Check that `count` elements of at least `least` bytes may follow."""
        if count < 0 or count * least > self.left and not self.open_ended:
            raise BadBytesError(BAD_COUNT)
        if count * least > self.left:
            raise ShortError(self.at - self.first + count * least)


# ---- message begin


def read_beginning(cursor, compact):
    """Read a message up to its struct and return its columns. Raises BadBytesError."""
    at = cursor.at
    row, name_at, name_size = (
        read_compact_beginning(cursor) if compact else read_binary_beginning(cursor)
    )
    service_size = -1
    if row["kind"] in (CALL, ONEWAY):
        name = bytes(cursor.data[at + name_at : at + name_at + name_size])
        service_size = name.find(b":")
    places = dict(
        service_at=name_at if service_size >= 0 else 0,
        service_size=service_size,
        method_at=name_at + service_size + 1,
        method_size=name_size - service_size - 1,
    )
    return row | places | dict(body=cursor.at - at, arguments_at=cursor.at - at)


def read_compact_beginning(cursor):
    """Return (columns, position of the name, size of the name)."""
    at = cursor.at
    first, second = cursor.take(2)
    if first != 0x82:
        raise BadBytesError(BAD_MAGIC)
    version = second & 31
    if version not in (1, 2):
        raise BadBytesError(BAD_VERSION)
    kind = check_message_type(second >> 5)
    seqid = cursor.varint()
    seqid -= (seqid >> 31) << 32  # the varint is unsigned, the column signed
    name = skip_string(cursor, cursor.varint(), at)
    return dict(kind=kind, seqid=seqid, protocol=COMPACT, version=version, strict=1), *name


def read_binary_beginning(cursor):
    """Return (columns, position of the name, size of the name)."""
    at = cursor.at
    word = cursor.number(4)
    is_strict = word < 0
    if is_strict:
        if word >> 16 & 0xFFFF != 0x8001:
            raise BadBytesError(BAD_MAGIC)
        kind = check_message_type(word & 0xFF)
        name = skip_string(cursor, cursor.number(4), at)
    else:
        name = skip_string(cursor, word, at)
        kind = check_message_type(cursor.take(1)[0])
    seqid = cursor.number(4)
    version = strict = int(is_strict)
    return dict(kind=kind, seqid=seqid, protocol=BINARY, version=version, strict=strict), *name


def check_message_type(kind):
    if kind not in MESSAGE_TYPES:
        raise BadBytesError(BAD_KIND)
    return kind


def skip_string(cursor, size, start):
    """Skip a string whose size was just read. Return (position from `start`, size)."""
    if size < 0:
        raise BadBytesError(TRUNCATED)
    at = cursor.at
    cursor.take(size)
    return at - start, size


def read_message(data, start, size, compact):
    """Return the row of one payload. The columns `parent` and `buffer` have their defaults."""
    cursor = Cursor(data, start, start + size)
    try:
        row = read_beginning(cursor, compact)
    except BadBytesError as bad:
        return BAD_MESSAGE | dict(start=start, size=size, fault=bad.fault)
    return HEAD | row | dict(start=start, size=size, arguments_size=size - row["arguments_at"])


def measure_message(data, at, compact):
    """Return the size of an unframed message in bytes.

    Raises ShortError where the bytes end in it, and BadBytesError where it cannot be read.
    """
    cursor = Cursor(data, at, len(data), open_ended=True)
    row = read_beginning(cursor, compact)
    try:
        FieldReader(cursor, compact, row["version"], at, 0).struct(1, -1)
    except ValueFaultError as error:
        raise BadBytesError(error.fault) from None
    return cursor.at - at


# ---- fields


class ValueFaultError(Exception):
    """A value cannot be read. `at` is its position, and `place` has columns of its row."""

    def __init__(self, fault, at, depth, enclosing):
        super().__init__(fault)
        self.fault = fault
        self.at = at
        self.place = dict(depth=depth, enclosing=enclosing)


class FieldReader:
    """Reads values and appends their rows of thrift.fields.

    Attributes:
        deepest: values below this depth have no rows.
        rows: the rows, after those of earlier messages. `enclosing` is an index of this list.
        unfinished: the rows of the structs and containers around the cursor.
    """

    def __init__(self, cursor, compact, version, start, deepest, rows=None):
        self.cursor = cursor
        self.compact = compact
        self.version = version
        self.start = start
        self.deepest = deepest
        self.rows = [] if rows is None else rows
        self.unfinished = []

    def type_of(self, number):
        """Return the type for a type's number on the wire. Raises BadBytesError."""
        if self.compact:
            types = COMPACT_TYPES | {13: UUID if self.version == 1 else FLOAT}
            kind = types.get(number)
        else:
            kind = number if number in BINARY_LEAST else None
        if kind is None:
            raise BadBytesError(BAD_FIELD)
        return kind

    def unchecked_type_of(self, number):
        """Return the type that an empty container's row has. The type may be unknown."""
        if not self.compact:
            return number
        return (COMPACT_TYPES | {0: 0, 13: UUID if self.version == 1 else FLOAT}).get(number, 255)

    def struct(self, depth, enclosing):
        last = 0
        while True:
            at = self.cursor.at
            truth = None
            try:
                number = self.cursor.take(1)[0]
                if number == 0:
                    return
                if self.compact:
                    delta = number >> 4
                    number &= 15
                    kind = self.type_of(number)
                    last = last + delta if delta else self.cursor.zigzag()
                    if not -1 << 15 <= last < 1 << 15:
                        raise BadBytesError(BAD_FIELD)
                    truth = number == 1 if kind == BOOL else None
                else:
                    kind = self.type_of(number)
                    last = self.cursor.number(2)
            except BadBytesError as bad:
                raise ValueFaultError(bad.fault, at, depth, enclosing) from None
            self.value(at, kind, depth, enclosing, dict(role=FIELD_ROLE, id=last), truth)

    def value(self, at, kind, depth, enclosing, role, truth=None):
        """Read one value, whose row begins at `at`.

        role: the columns `role` and `id`.
        truth: the value of a compact boolean field, which has no bytes of its own.
        """
        row = BAD_FIELD_ROW | role | dict(start=at, kind=kind, depth=depth, enclosing=enclosing)
        number = len(self.rows)
        if depth <= self.deepest:
            self.rows.append(row)
        try:
            read_contents = self.head(row, kind, truth)
        except BadBytesError as bad:
            del self.rows[number:]
            raise ValueFaultError(bad.fault, at, depth, enclosing) from None
        if read_contents is None:
            row["size"] = self.cursor.at - at
            return
        try:
            self.unfinished.append(row)
            read_contents(depth + 1, number)
            self.unfinished.pop()
        except ValueFaultError as error:
            if depth == self.deepest:  # the contents have no rows, so this value is the bad one
                del self.rows[number:]
                self.unfinished.remove(row)
                raise ValueFaultError(error.fault, at, depth, enclosing) from None
            raise
        end = self.cursor.at
        row |= dict(size=end - at, value_size=end - at - row["value_at"])

    def head(self, row, kind, truth):
        """Read a value, or the head of a struct or container, into its row.

        Return None for a value. For a struct or container, return the function that reads its
        contents.
        """
        if kind not in (STRUCT, MAP, SET, LIST):
            self.scalar(row, kind, truth)
            return None
        if row["depth"] == DEEPEST:
            raise BadBytesError(NESTED)
        if kind == STRUCT:
            self.note(row, b"")
            return self.struct
        key, element, count = self.map_head() if kind == MAP else self.list_head()
        self.note(row, b"", count=count, key_type=key, element_type=element)
        return lambda depth, enclosing: self.contents(key, element, count, depth, enclosing)

    def note(self, row, raw, **columns):
        """Write the place of the bytes that were just read, and other columns, into a row."""
        first = self.cursor.at - len(raw) - row["start"]
        row.update(value_at=first, value_size=len(raw), body=first, **columns)

    def scalar(self, row, kind, truth):
        cursor = self.cursor
        if truth is not None:
            self.note(row, b"", integer=int(truth))
        elif kind == BOOL:
            raw = cursor.take(1)
            is_true = raw[0] == 1 if self.compact else raw[0] != 0
            self.note(row, raw, integer=int(is_true))
        elif kind == BYTE:
            raw = cursor.take(1)
            self.note(row, raw, integer=int.from_bytes(raw, signed=True))
        elif kind in (I16, I32, I64) and self.compact:
            first = cursor.at
            number = cursor.zigzag(64 if kind == I64 else 32)
            self.note(row, bytes(cursor.data[first : cursor.at]), integer=number)
        elif kind in (I16, I32, I64, U64):
            raw = cursor.take(BINARY_WIDTH[kind])
            self.note(row, raw, integer=int.from_bytes(raw, "big", signed=True))
        elif kind in (DOUBLE, FLOAT):
            raw = cursor.take(BINARY_WIDTH[kind])
            order = "<" if self.compact and self.version == 1 and kind == DOUBLE else ">"
            self.note(row, raw, real=struct.unpack(order + "fd"[kind == DOUBLE], raw)[0])
        elif kind == UUID:
            self.note(row, cursor.take(16))
        else:
            assert kind == STRING
            size = cursor.varint() if self.compact else cursor.number(4)
            if size < 0:
                raise BadBytesError(TRUNCATED)
            self.note(row, cursor.take(size))

    def list_head(self):
        """Return (0, type of the elements, number of elements) of a list or set."""
        cursor = self.cursor
        if self.compact:
            byte = cursor.take(1)[0]
            number = byte & 15
            count = byte >> 4
            if count == 15:
                count = cursor.varint()
        else:
            number = cursor.take(1)[0]
            count = cursor.number(4)
        if not count:
            return 0, self.unchecked_type_of(number), 0
        if count < 0:
            raise BadBytesError(BAD_COUNT)
        kind = self.type_of(number)
        cursor.allow(count, self.least(kind))
        return 0, kind, count

    def map_head(self):
        """Return (type of the keys, type of the values, number of pairs) of a map."""
        cursor = self.cursor
        if self.compact:
            count = cursor.varint()
            byte = cursor.take(1)[0] if count else 0
            numbers = byte >> 4, byte & 15
        else:
            numbers = cursor.take(1)[0], cursor.take(1)[0]
            count = cursor.number(4)
        if not count:
            return *map(self.unchecked_type_of, numbers), 0
        if count < 0:
            raise BadBytesError(BAD_COUNT)
        key, value = map(self.type_of, numbers)
        cursor.allow(count, self.least(key) + self.least(value))
        return key, value, count

    def least(self, kind):
        """Return the smallest size of a value of a type in bytes."""
        return COMPACT_LEAST.get(kind, 1) if self.compact else BINARY_LEAST[kind]

    def contents(self, key, element, count, depth, enclosing):
        for i in range(count):
            if key:
                self.value(self.cursor.at, key, depth, enclosing, dict(role=KEY, id=i))
            role = VALUE if key else ELEMENT
            self.value(self.cursor.at, element, depth, enclosing, dict(role=role, id=i))


def read_fields(data, row, parent, rows, depth=DEEPEST):
    """Append the rows of thrift.fields for one row of thrift.messages to `rows`."""
    common = dict(parent=parent, buffer=row["buffer"])
    start = row["start"] + row["body"]
    end = row["start"] + row["size"]
    if row["fault"]:
        bad_row = dict(start=start, size=end - start, fault=row["fault"])
        rows.append(BAD_FIELD_ROW | common | bad_row)
        return
    first = len(rows)
    cursor = Cursor(data, start, end)
    walk = FieldReader(
        cursor, row["protocol"] == COMPACT, row["version"], row["start"], depth, rows
    )
    try:
        walk.struct(1, -1)
        if cursor.left:
            rows.append(BAD_FIELD_ROW | dict(start=cursor.at, size=cursor.left, fault=LEFTOVER))
    except ValueFaultError as error:
        for outer in walk.unfinished:
            size = end - outer["start"]
            outer |= dict(size=size, value_size=size - outer["value_at"], fault=error.fault)
        bad_row = dict(start=error.at, size=end - error.at, fault=error.fault)
        rows.append(BAD_FIELD_ROW | error.place | bad_row)
    for new_row in rows[first:]:
        new_row |= common
