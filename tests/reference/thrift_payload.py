"""Thrift messages of the binary and the compact protocol, decoded one value at a time, without an IDL.

    binary, strict   0x8001 0 type(1) | size(4) name | seqid(4) | struct           all integers big-endian
    binary, old      size(4) name | type(1) | seqid(4) | struct
    compact          0x82 | type << 5 and version (1) | varint seqid | varint size, name | struct

A row is a dict with every column of the format. The bytes that a struct takes are only known once it was walked.
"""
import struct

from reference.window import Bad, Window

TRUNCATED, BAD_MAGIC, BAD_VERSION, BAD_COUNT, BAD_VARINT, LEFTOVER, NESTED = 1, 2, 3, 5, 6, 10, 11
BAD_KIND, BAD_FIELD = 15, 16
BINARY, COMPACT = 0, 2
BOOL, BYTE, DOUBLE, I16, I32, U64, I64, STRING, STRUCT, MAP, SET, LIST, UUID, FLOAT = (
    2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19)
FIELD_ROLE, ELEMENT, KEY, VALUE = range(4)
DEEPEST = 64

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
BAD_MESSAGE = HEAD | {name + end: 0 for name in ("method", "service", "arguments") for end in ("_at", "_size")} | dict(
    seqid=0, protocol=0, version=0, strict=0)
BAD_FIELD_ROW = HEAD | dict(integer=0, real=0.0, value_at=0, value_size=0, enclosing=-1, count=0, id=0, depth=0, role=0,
                            key_type=0, element_type=0)

BINARY_WIDTH = {BOOL: 1, BYTE: 1, I16: 2, I32: 4, U64: 8, I64: 8, DOUBLE: 8, FLOAT: 4, UUID: 16}
BINARY_LEAST = BINARY_WIDTH | {STRING: 4, STRUCT: 1, MAP: 6, SET: 5, LIST: 5}
COMPACT_TYPES = {1: BOOL, 2: BOOL, 3: BYTE, 4: I16, 5: I32, 6: I64, 7: DOUBLE, 8: STRING, 9: LIST, 10: SET, 11: MAP,
                 12: STRUCT}
COMPACT_LEAST = {DOUBLE: 8, UUID: 16, FLOAT: 4}


class Cut(Exception):
    """The bytes end inside a message of so many bytes at the least; more may come."""


class Cursor(Window):
    """A window with Thrift's numbers. open_ended: where it ends, more may follow."""

    def __init__(self, data, at, end, open_ended=False):
        super().__init__(data, at, end)
        self.first, self.open_ended = at, open_ended

    def take(self, size):
        if size > self.left and self.open_ended:
            raise Cut(self.at - self.first + size)
        return super().take(size)

    def number(self, size):
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self, bits=32):
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if number >= 1 << bits or (byte & 0x80 and shift + 7 >= bits):
                raise Bad(BAD_VARINT)
            if not byte & 0x80:
                return number
        raise AssertionError("not reached: ten bytes hold 64 bits")

    def zigzag(self, bits=32):
        number = self.varint(bits)
        return -(number + 1 >> 1) if number & 1 else number >> 1

    def allow(self, count, least):
        """So many elements follow, of so many bytes each at the least."""
        if count < 0 or count * least > self.left and not self.open_ended:
            raise Bad(BAD_COUNT)
        if count * least > self.left:
            raise Cut(self.at - self.first + count * least)


# ------------------------------------------------------------------------------------------- message begin

def begin(cursor, compact):
    """The columns of the message that the cursor stands at; it is left at the struct. Raises Bad."""
    at = cursor.at
    if compact:
        first, second = cursor.take(2)
        if first != 0x82:
            raise Bad(BAD_MAGIC)
        version, kind = second & 31, second >> 5
        if version not in (1, 2):
            raise Bad(BAD_VERSION)
        known(kind)
        seqid = cursor.varint()
        seqid -= (seqid >> 31) << 32
        name = string(cursor, cursor.varint(), at)
        row = dict(kind=kind, seqid=seqid, protocol=COMPACT, version=version, strict=1)
    else:
        word = cursor.number(4)
        if word >= 0:
            name = string(cursor, word, at)
            kind = known(cursor.take(1)[0])
            row = dict(kind=kind, seqid=cursor.number(4), protocol=BINARY, version=0, strict=0)
        else:
            if word >> 16 & 0xFFFF != 0x8001:
                raise Bad(BAD_MAGIC)
            kind = known(word & 0xFF)
            name = string(cursor, cursor.number(4), at)
            row = dict(kind=kind, seqid=cursor.number(4), protocol=BINARY, version=1, strict=1)
    first, size = name
    service = -1
    if row["kind"] in (1, 4):
        service = bytes(cursor.data[at + first:at + first + size]).find(b":")
    places = dict(service_at=first if service >= 0 else 0, service_size=service,
                  method_at=first + service + 1, method_size=size - service - 1)
    return row | places | dict(body=cursor.at - at, arguments_at=cursor.at - at)


def known(kind):
    if kind not in (1, 2, 3, 4):
        raise Bad(BAD_KIND)
    return kind


def string(cursor, size, start):
    """(place from `start`, size) of a string whose size was just read."""
    if size < 0:
        raise Bad(TRUNCATED)
    at = cursor.at
    cursor.take(size)
    return at - start, size


def message(data, start, size, compact):
    """The row of one payload, without the columns that tell where it comes from."""
    cursor = Cursor(data, start, start + size)
    try:
        row = begin(cursor, compact)
    except Bad as bad:
        return BAD_MESSAGE | dict(start=start, size=size, fault=bad.fault)
    return HEAD | row | dict(start=start, size=size, arguments_size=size - row["arguments_at"])


def extent(data, at, compact):
    """Bytes of an unframed message. Raises Cut where the bytes end in it, Bad where it cannot be walked."""
    cursor = Cursor(data, at, len(data), open_ended=True)
    row = begin(cursor, compact)
    try:
        Walk(cursor, compact, row["version"], at, 0).struct(1, -1)
    except Damage as damage:
        raise Bad(damage.fault) from None
    return cursor.at - at


# ------------------------------------------------------------------------------------------- fields

class Damage(Exception):
    """What begins at `at`, so deep, and in such a row, cannot be read."""

    def __init__(self, fault, at, depth, enclosing):
        super().__init__(fault)
        self.fault, self.at, self.place = fault, at, dict(depth=depth, enclosing=enclosing)


class Walk:
    """Rows of thrift.fields, those to `shown` deep. rows: what there are already; `enclosing` counts in them."""

    def __init__(self, cursor, compact, version, start, shown, rows=None):
        self.cursor, self.compact, self.version, self.start, self.shown = cursor, compact, version, start, shown
        self.rows, self.opened = [] if rows is None else rows, []

    def type_of(self, number):
        """The type of a number on the wire. Raises Bad."""
        if self.compact:
            types = COMPACT_TYPES | {13: UUID if self.version == 1 else FLOAT}
            kind = types.get(number)
        else:
            kind = number if number in BINARY_LEAST else None
        if kind is None:
            raise Bad(BAD_FIELD)
        return kind

    def written(self, number):
        """What the type of an empty container is told as: nobody looks whether there is such a type."""
        if not self.compact:
            return number
        return (COMPACT_TYPES | {0: 0, 13: UUID if self.version == 1 else FLOAT}).get(number, 255)

    def struct(self, depth, enclosing):
        last = 0
        while True:
            at, truth = self.cursor.at, None
            try:
                number = self.cursor.take(1)[0]
                if number == 0:
                    return
                if self.compact:
                    delta, number = number >> 4, number & 15
                    kind = self.type_of(number)
                    last = last + delta if delta else self.cursor.zigzag()
                    if not -1 << 15 <= last < 1 << 15:
                        raise Bad(BAD_FIELD)
                    truth = number == 1 if kind == BOOL else None
                else:
                    kind, last = self.type_of(number), self.cursor.number(2)
            except Bad as bad:
                raise Damage(bad.fault, at, depth, enclosing) from None
            self.value(at, kind, depth, enclosing, dict(role=FIELD_ROLE, id=last), truth)

    def value(self, at, kind, depth, enclosing, said, truth=None):
        """One value, whose row begins at `at`. truth: of a compact boolean field, which has no bytes of its own."""
        row = BAD_FIELD_ROW | said | dict(start=at, kind=kind, depth=depth, enclosing=enclosing)
        number = len(self.rows)
        if depth <= self.shown:
            self.rows.append(row)
        try:
            inside = self.head(row, kind, truth)
        except Bad as bad:
            del self.rows[number:]
            raise Damage(bad.fault, at, depth, enclosing) from None
        if inside is None:
            row |= dict(size=self.cursor.at - at)
            return
        try:
            self.opened.append(row)
            inside(depth + 1, number)
            self.opened.pop()
        except Damage as damage:
            if depth == self.shown:         # what is not shown cannot be told from it
                del self.rows[number:]
                self.opened.remove(row)
                raise Damage(damage.fault, at, depth, enclosing) from None
            raise
        end = self.cursor.at
        row |= dict(size=end - at, value_size=end - at - row["value_at"])

    def head(self, row, kind, truth):
        """Note what a row says of its value; return None if that is read, else the function that reads the contents."""
        cursor, at = self.cursor, row["start"]
        if kind in (STRUCT, MAP, SET, LIST) and row["depth"] == DEEPEST:
            raise Bad(NESTED)

        def note(raw, **more):
            first = cursor.at - len(raw) - at
            row.update(value_at=first, value_size=len(raw), body=first, **more)

        if truth is not None:
            note(b"", integer=int(truth))
        elif kind == BOOL:
            raw = cursor.take(1)
            note(raw, integer=int(raw[0] == 1 if self.compact else raw[0] != 0))
        elif kind == BYTE:
            raw = cursor.take(1)
            note(raw, integer=int.from_bytes(raw, signed=True))
        elif kind in (I16, I32, I64) and self.compact:
            first = cursor.at
            number = cursor.zigzag(64 if kind == I64 else 32)
            note(bytes(cursor.data[first:cursor.at]), integer=number)
        elif kind in (I16, I32, I64, U64):
            raw = cursor.take(BINARY_WIDTH[kind])
            note(raw, integer=int.from_bytes(raw, "big", signed=True))
        elif kind in (DOUBLE, FLOAT):
            raw = cursor.take(BINARY_WIDTH[kind])
            order = "<" if self.compact and self.version == 1 and kind == DOUBLE else ">"
            note(raw, real=struct.unpack(order + "fd"[kind == DOUBLE], raw)[0])
        elif kind == UUID:
            note(cursor.take(16))
        elif kind == STRING:
            size = cursor.varint() if self.compact else cursor.number(4)
            if size < 0:
                raise Bad(TRUNCATED)
            note(cursor.take(size))
        elif kind == STRUCT:
            note(b"")
            return self.struct
        else:
            key, element, count = self.map_head() if kind == MAP else self.list_head()
            note(b"", count=count, key_type=key, element_type=element)
            return lambda depth, enclosing: self.contents(key, element, count, depth, enclosing)
        return None

    def list_head(self):
        cursor = self.cursor
        if self.compact:
            byte = cursor.take(1)[0]
            number, count = byte & 15, byte >> 4
            if count == 15:
                count = cursor.varint()
        else:
            number, count = cursor.take(1)[0], cursor.number(4)
        if not count:
            return 0, self.written(number), 0
        if count < 0:
            raise Bad(BAD_COUNT)
        kind = self.type_of(number)
        cursor.allow(count, self.least(kind))
        return 0, kind, count

    def map_head(self):
        cursor = self.cursor
        if self.compact:
            count = cursor.varint()
            byte = cursor.take(1)[0] if count else 0
            numbers = byte >> 4, byte & 15
        else:
            numbers = cursor.take(1)[0], cursor.take(1)[0]
            count = cursor.number(4)
        if not count:
            return *map(self.written, numbers), 0
        if count < 0:
            raise Bad(BAD_COUNT)
        key, value = map(self.type_of, numbers)
        cursor.allow(count, self.least(key) + self.least(value))
        return key, value, count

    def least(self, kind):
        return COMPACT_LEAST.get(kind, 1) if self.compact else BINARY_LEAST[kind]

    def contents(self, key, element, count, depth, enclosing):
        for i in range(count):
            if key:
                self.value(self.cursor.at, key, depth, enclosing, dict(role=KEY, id=i))
            role = VALUE if key else ELEMENT
            self.value(self.cursor.at, element, depth, enclosing, dict(role=role, id=i))


def fields(data, row, parent, rows, depth=DEEPEST):
    """Append to `rows` those of thrift.fields of one row of thrift.messages."""
    alike = dict(parent=parent, buffer=row["buffer"])
    start, end = row["start"] + row["body"], row["start"] + row["size"]
    if row["fault"]:
        rows.append(BAD_FIELD_ROW | alike | dict(start=start, size=end - start, fault=row["fault"]))
        return
    first, cursor = len(rows), Cursor(data, start, end)
    walk = Walk(cursor, row["protocol"] == COMPACT, row["version"], row["start"], depth, rows)
    try:
        walk.struct(1, -1)
        if cursor.left:
            rows.append(BAD_FIELD_ROW | dict(start=cursor.at, size=cursor.left, fault=LEFTOVER))
    except Damage as damage:
        for one in walk.opened:
            size = end - one["start"]
            one |= dict(size=size, value_size=size - one["value_at"], fault=damage.fault)
        rows.append(BAD_FIELD_ROW | damage.place | dict(start=damage.at, size=end - damage.at, fault=damage.fault))
    for one in rows[first:]:
        one |= alike
