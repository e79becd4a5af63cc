"""Kafka requests and responses, decoded one field at a time.

    every frame   size i32 | header | body                               size counts from byte 4
    request       4 api key i16 | 6 api version i16 | 8 correlation id i32   header 0 (ControlledShutdown, version 0)
                  | 12 client id, its length i16                             header 1
                  | tagged fields                                            header 2 (flexible versions)
    response      4 correlation id i32                                       header 0
                  | tagged fields                                            header 1 (flexible, but for ApiVersions)

A row is a dict with every column of the format. What was not read has its default, and so has a field that the version
does not have. A place that is null is where its bytes would be, with size -1; one that is not there is at 0.
A header that is bad has the kind of what is whole of it, and its body begins where the fields of fixed size end.

A request of an API that nobody knows may be a token of SASL, which has no header: it is opaque. What is read of it are
its first bytes, and its answer is the next, whatever stands in that.

What encloses a fault has it too: the row of that struct, and those of the structs around it, reach to the end of what
encloses them. An array that was complete before the fault is whole; one with the fault in it ends with that bad row; of
one whose count was not read there is one row, which covers the bad row around it and has its fault and nothing else.
"""
import re
import struct
from collections import defaultdict

from reference import kafka_internal, kafka_messages
from reference.kafka import BAD_COUNT, BAD_LENGTH, BAD_NULL, HEAD, LEFTOVER, OK, SHORT
from reference.kafka_messages import API, FLEXIBLE, NEVER, NEWEST
from reference.window import BAD_VARINT, TRUNCATED, Bad, Window

BAD_VERSION = 3
LARGEST = 100 << 20     # limits.frame
MOST = (1 << 31) - 1    # of what a column of 32 bits counts
OPAQUE, VERSIONS = 255, 256
PRODUCE, CONTROLLED_SHUTDOWN, API_VERSIONS, UNSUPPORTED_VERSION = 0, 7, 18, 35

REQUEST = HEAD | dict(correlation_id=0, client_id_at=0, client_id_size=-1, api_key=-1, api_version=-1)
RESPONSE = HEAD | dict(correlation_id=0, request=-1, tag_count=0, api_key=-1, api_version=-1)


# ---------------------------------------------------------------------------------------------- streams

def frames(data):
    """(spans of whole frames, stop fault, stop offset)."""
    found, at = [], 0
    while at < len(data):
        left = len(data) - at
        size, = struct.unpack_from(">i", data, at) if left >= 4 else (LARGEST,)
        if size < 0 or min(4 + size, left) > LARGEST:
            return found, BAD_LENGTH, at
        if 4 + size > left:
            return found, SHORT, at
        found.append((at, at + 4 + size))
        at += 4 + size
    return found, OK, at


def requests(data):
    """(rows of kafka.requests, stop fault, stop offset) of what one connection sent."""
    spans, fault, at = frames(data)
    return [request(data, *span) for span in spans], fault, at


def request(data, start, end):
    row = REQUEST | dict(start=start, size=end - start)
    header = Reader(data, start + 4, end, row)
    if 4 < end - start < 12:
        return row | dict(kind=OPAQUE, body=4)
    try:
        row["api_key"], row["api_version"], row["correlation_id"] = struct.unpack(">hhi", header.take(8))
        row["body"] = 12
        if row["api_key"] not in FLEXIBLE or not 0 <= row["api_version"] < VERSIONS:
            return row | dict(kind=OPAQUE)
        if (row["api_key"], row["api_version"]) != (CONTROLLED_SHUTDOWN, 0):
            header.field(row, "client_id", header.number(">h"))
            row["kind"] = 1
        if is_flexible(row["api_key"], row["api_version"]):
            header.flexible = True
            header.tags()
            row["kind"] = 2
        row["body"] = header.at - start
    except Bad as bad:
        row["fault"] = bad.fault
    return row


def is_flexible(api_key, api_version):
    return api_version >= FLEXIBLE.get(api_key, NEVER)


def responses(data, asked=(), sent=b""):
    """(rows of kafka.responses, stop fault, stop offset) of what one connection received.

    asked: the rows of kafka.requests of what it `sent`, if they are known. Brokers answer in order: an answer is that
    of the first request with its correlation id after the one that was answered last.
    """
    spans, fault, at = frames(data)
    rows, waiting = [], [i for i, row in enumerate(asked) if is_answered(sent, row)]
    for start, end in spans:
        row = RESPONSE | dict(start=start, size=end - start)
        rows.append(row)
        has_id = end - start >= 8
        if has_id:
            row |= dict(body=8, correlation_id=struct.unpack_from(">i", data, start + 4)[0])
        if waiting and asked[waiting[0]]["kind"] == OPAQUE:
            row |= dict(request=waiting.pop(0), kind=OPAQUE, body=row["body"] or 4)
            continue
        if not has_id:
            row["fault"] = TRUNCATED
            continue
        for n, i in enumerate(waiting):
            if asked[i]["correlation_id"] == row["correlation_id"]:
                row["request"], waiting = i, waiting[n + 1:]
                answer(data, row, asked[i])
                break
    return rows, fault, at


def is_answered(sent, row):
    """All are that a broker can read, but for Produce requests whose acks are 0."""
    if row["kind"] == OPAQUE or row["api_key"] != PRODUCE or row["fault"]:
        return not row["fault"]
    start, version = row["start"] + row["body"], row["api_version"]
    found, flexible = dict(start=start, children={}), is_flexible(PRODUCE, row["api_version"])
    reader = Reader(sent, start, row["start"] + row["size"], found, version, flexible)
    try:
        if version >= 3:
            reader.string("transactional_id", null=True)
        reader.i16("acks")
    except Bad:
        return True
    return found["acks"] != 0


def answer(data, row, asked):
    """Read what the request tells of its response. A broker that does not know the version that ApiVersions comes in
    says so in version 0."""
    if asked["kind"] == OPAQUE:
        row["kind"] = OPAQUE
        return
    row |= dict(api_key=asked["api_key"], api_version=asked["api_version"])
    header = Reader(data, row["start"] + 8, row["start"] + row["size"], row)
    try:
        if row["api_key"] == API_VERSIONS:
            row["api_version"] *= header.left < 2 or header.number(">h") != UNSUPPORTED_VERSION
        elif is_flexible(row["api_key"], row["api_version"]):
            row["kind"], header.flexible = 1, True
            header.tags()
            row["body"] = header.at - row["start"]
    except Bad as bad:
        row["fault"] = bad.fault
    row["tag_count"] = header.tag_count


def pair(asked, answers):
    """[(row of the request, row of its response)], -1 for what is not there; alien responses come last."""
    answer_of = {row["request"]: i for i, row in enumerate(answers)}
    aliens = [(-1, i) for i, row in enumerate(answers) if row["request"] < 0]
    return [(i, answer_of.get(i, -1)) for i in range(len(asked))] + aliens


# ----------------------------------------------------------------------------------------------- bodies

class Reader(Window):
    """Reads fields into a row, and arrays of structs into the lists that its `children` hold."""

    def __init__(self, data, at, end, row, version=0, flexible=False):
        super().__init__(data, at, end)
        self.row, self.version, self.flexible, self.prefix, self.tag_count = row, version, flexible, "", 0

    def uvarint(self):
        """An unsigned varint of 32 bits, in 5 bytes at most."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if number >= 1 << 32 or (byte & 0x80 and shift == 28):
                raise Bad(BAD_VARINT)
            if not byte & 0x80:
                return number
        raise AssertionError("not reached: five bytes hold 32 bits")

    def number(self, layout):
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def length(self, layout, null):
        """A length or count, -1 for null: any negative one; in compact form it is one more, and 0 for null."""
        length = self.uvarint() - 1 if self.flexible else self.number(layout)
        if length < 0 and not null:
            raise Bad(BAD_NULL)
        return max(length, -1)

    def scalar(self, name, layout):
        self.row[self.prefix + name] = self.number(layout)

    def i8(self, name):
        self.scalar(name, ">b")

    def i16(self, name):
        self.scalar(name, ">h")

    def i32(self, name):
        self.scalar(name, ">i")

    def i64(self, name):
        self.scalar(name, ">q")

    def boolean(self, name):
        self.scalar(name, ">B")

    def string(self, name, null=False):
        self.field(self.row, name, self.length(">h", null))

    def bytes(self, name, null=False):
        self.field(self.row, name, self.length(">i", null))

    def uuid(self, name):
        self.field(self.row, name, 16)

    def i32s(self, name):
        self.field(self.row, name, 4 * self.length(">i", False))

    def i64s(self, name):
        self.field(self.row, name, 8 * self.length(">i", False))

    def inline(self, name, read):
        self.prefix = name + "_"
        read(self, self.version)
        self.prefix = ""

    def structs(self, name, null=False):
        count = self.length(">i", null)
        outer, at, end, rows = self.row, self.at, self.end, []
        outer["children"][name] = rows
        outer |= {f"{name}_at": at - outer["start"], f"{name}_size": end - at, f"{name}_count": min(count, MOST)}
        for _ in range(count):
            self.struct(outer["read"].arrays[name](), rows)
        self.row = outer
        outer[f"{name}_size"] = self.at - at if count >= 0 else -1

    def struct(self, read, rows):
        start, end = self.at, self.end
        if not self.left:
            rows.append(refused(read, dict(start=start, size=0, fault=BAD_COUNT)))
            raise Bad(BAD_COUNT)
        row = self.row = blank(read) | dict(start=start, size=end - start, kind=self.version)
        rows.append(row)
        try:
            read(self, self.version)
            row["size"] = self.at - start
        except Bad as bad:
            row["fault"] = bad.fault
            raise

    def tags(self, known={}):  # noqa: B006 (never changed)
        """Read the tagged fields that are known, and skip the others."""
        count = self.uvarint() if self.flexible else 0
        self.tag_count = min(count, MOST)
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            if size > self.left:
                raise Bad(TRUNCATED)
            end, self.end = self.end, self.at + size
            known.get(tag, lambda: self.take(size))()
            if self.left:
                raise Bad(LEFTOVER)
            self.end = end


def blank(read):
    """A row whose fields have their defaults; with it, until it is laid out, what reads it and what its arrays hold."""
    return HEAD | read.columns | dict(read=read, children={})


def snake(name):
    """ListOffsets -> list_offsets."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def formats(api, direction):
    """{name of a format: the function that reads its structs}, the outermost first."""
    found, outermost = {}, f"kafka.{snake(api)}_{direction}"

    def add(name, read):
        found[name] = read
        for array, inside in read.arrays.items():
            add(f"{outermost}.{array}", inside())
    home = kafka_messages if direction in ("request", "response") else kafka_internal
    add(outermost, getattr(home, outermost.removeprefix("kafka.")))
    return found


def body(data, row, api, direction, parent=0, levels=None):
    """{name of a format: its rows} of the body in a row of kafka.requests or kafka.responses, which that covers.

    levels: those of other bodies, to put these rows behind theirs."""
    return opened(data, row, api, direction, row["api_version"], range(NEWEST[api] + 1), FLEXIBLE[API[api]], parent,
                  levels)


def stored(data, row, name, side, parent=0, levels=None):
    """As `body`, of the "key" or "value" of a row of kafka.records: none if that is null, or the key another's."""
    levels = defaultdict(list) if levels is None else levels
    if leading(data, row, "key") not in kafka_internal.STORED[name][0] or row[side + "_size"] < 0:
        return levels
    span = dict(start=row["start"] + row[side + "_at"], size=row[side + "_size"], body=2, buffer=row["buffer"], fault=0)
    known = kafka_internal.versions(name, side)
    return opened(data, span, name, side, leading(data, row, side), *known, parent, levels)


def leading(data, row, place):
    """The int16 that a place of a good row begins with, or -1."""
    at = row["start"] + row[place + "_at"]
    return -1 if row["fault"] or row[place + "_size"] < 2 else int.from_bytes(data[at:at + 2], "big", signed=True)


def opened(data, row, api, direction, version, versions, flexible, parent, levels):
    levels = defaultdict(list) if levels is None else levels
    (name, read), *_ = formats(api, direction).items()
    top = blank(read) | dict(start=row["start"], size=row["size"])
    if row["fault"]:
        top = refused(read, row)
    elif version not in versions:
        top["fault"] = BAD_VERSION
    else:
        top |= dict(body=row["body"], kind=version)
        reader = Reader(data, row["start"] + row["body"], row["start"] + row["size"], top, version, version >= flexible)
        try:
            read(reader, version)
            if reader.left:
                raise Bad(LEFTOVER)
        except Bad as bad:
            top["fault"] = bad.fault
    lay_out(top, name, name, parent, row["buffer"], levels)
    return levels


def refused(read, row):
    """The row inside a bad one: it covers that."""
    nothing = dict.fromkeys(HEAD | read.columns, 0)
    return nothing | dict(start=row["start"], size=row["size"], fault=row["fault"], read=read, children={})


def lay_out(row, level, outermost, parent, buffer, levels):
    """Put a row, and those in its arrays, into the lists of their levels."""
    row |= dict(parent=parent, buffer=buffer)
    read, children, number = row.pop("read"), row.pop("children"), len(levels[level])
    levels[level].append(row)
    for name, inside in read.arrays.items():
        is_lost = row["fault"] and not row[f"{name}_at"]
        rows = [refused(inside(), row)] if is_lost else children.get(name, [])
        for child in rows:
            lay_out(child, f"{outermost}.{name}", outermost, number, buffer, levels)
