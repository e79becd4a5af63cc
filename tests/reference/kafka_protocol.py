"""Kafka requests and responses, decoded one field at a time.

Every frame is a size, i32, then a header, then a body. The size counts from byte 4. Position and
name of the fields of the headers:

    request     4 api key i16 | 6 api version i16 | 8 correlation id i32    header version 0
                | 12 client id, with a length of 16 bits                    header version 1
                | tagged fields                                             header version 2
    response    4 correlation id i32                                        header version 0
                | tagged fields                                             header version 1

Only ControlledShutdown 0 has request header 0. Flexible versions have request header 2 and response
header 1; ApiVersions is the exception, whose responses have header 0.

A row is a dict with every column of the format. A field that was not read has its default. So has a
field that the version does not have. The place of a null field is where its bytes would be, with
size -1. The place of a field that the message does not have is 0. A bad header has the kind of the
part that is whole. Its body begins where the fields of fixed size end.

A request with an unknown API key may be a SASL token, which has no header. Its kind is OPAQUE, and
only its first bytes are read. The next response is its answer, whatever that response holds.

A fault is repeated in every struct that encloses it. The rows of these structs end where the frame
ends. An array that ended before the fault is whole. An array with the fault in it ends with the bad
row. If the count of an array was not read, the array has one row. That row covers the enclosing bad
row and has its fault, and all other columns are 0.
"""

import re
import struct
from collections import defaultdict

from tests.reference import kafka_group_messages, kafka_internal, kafka_messages, kafka_metadata
from tests.reference.kafka import BAD_COUNT, BAD_LENGTH, BAD_NULL, HEAD, LEFTOVER, OK, SHORT
from tests.reference.kafka_messages import API, FLEXIBLE, NEVER, NEWEST
from tests.reference.window import BAD_VARINT, TRUNCATED, BadBytesError, Window

BAD_VERSION, BAD_FIELD = 3, 16
LARGEST = 100 << 20  # bytes of a frame: the default of Limits.frame
LARGEST_COUNT = (1 << 31) - 1  # in a column of 32 bits
OPAQUE = 255  # the kind of a message without a known header
VERSIONS = 256  # API versions are below this
PRODUCE, CONTROLLED_SHUTDOWN, API_VERSIONS = 0, 7, 18  # API keys
UNSUPPORTED_VERSION = 35  # error code

REQUEST = HEAD | dict(
    correlation_id=0, client_id_at=0, client_id_size=-1, api_key=-1, api_version=-1
)
METADATA_RECORD = HEAD | dict(message_at=0, message_size=-1, frame_version=-1, type=-1, version=-1)
RESPONSE = HEAD | dict(correlation_id=0, request=-1, tag_count=0, api_key=-1, api_version=-1)


# ---- streams


def split_frames(data):
    """Return (spans of the whole frames, stop fault, stop position)."""
    spans, at = [], 0
    while at < len(data):
        left = len(data) - at
        (size,) = struct.unpack_from(">i", data, at) if left >= 4 else (0,)
        if size < 0 or 4 + size > LARGEST:
            return spans, BAD_LENGTH, at
        if 4 + size > left:
            return spans, SHORT, at
        spans.append((at, at + 4 + size))
        at += 4 + size
    return spans, OK, at


def read_requests(data):
    """Return (rows of kafka.requests, stop fault, stop position) for one connection's requests."""
    spans, fault, at = split_frames(data)
    return [read_request(data, *span) for span in spans], fault, at


def read_request(data, start, end):
    row = REQUEST | dict(start=start, size=end - start)
    header = Reader(data, start + 4, end, row)
    if 4 < end - start < 12:
        return row | dict(kind=OPAQUE, body=4)
    try:
        numbers = struct.unpack(">hhi", header.take(8))
        row |= zip(("api_key", "api_version", "correlation_id"), numbers)
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
    except BadBytesError as bad:
        row["fault"] = bad.fault
    return row


def is_flexible(api_key, api_version):
    return api_version >= FLEXIBLE.get(api_key, NEVER)


def read_responses(data, asked=(), sent=b""):
    """Return (rows of kafka.responses, stop fault, stop position) for one connection's responses.

    asked: the rows of kafka.requests for the bytes that were `sent`, if they are known.

    Brokers answer in order. So a response belongs to the first request with its correlation id
    behind the request that was answered last.
    """
    spans, fault, at = split_frames(data)
    rows = []
    waiting = [i for i, row in enumerate(asked) if is_answered(sent, row)]
    for start, end in spans:
        row = RESPONSE | dict(start=start, size=end - start)
        rows.append(row)
        has_id = end - start >= 8
        if has_id:
            row |= dict(body=8, correlation_id=struct.unpack_from(">i", data, start + 4)[0])
        if waiting and asked[waiting[0]]["kind"] == OPAQUE:
            row["request"] = waiting.pop(0)
            row["kind"] = OPAQUE
            row["body"] = row["body"] or 4
            continue
        if not has_id:
            row["fault"] = TRUNCATED
            continue
        for n, i in enumerate(waiting):
            if asked[i]["correlation_id"] == row["correlation_id"]:
                row["request"] = i
                waiting = waiting[n + 1 :]
                read_answer(data, row, asked[i])
                break
    return rows, fault, at


def is_answered(sent, row):
    """Does a broker answer this request?

    It does not answer bad requests, nor Produce requests with acks 0.
    """
    if row["kind"] == OPAQUE or row["api_key"] != PRODUCE or row["fault"]:
        return not row["fault"]
    start = row["start"] + row["body"]
    end = row["start"] + row["size"]
    version = row["api_version"]
    body = dict(start=start, children={})
    reader = Reader(sent, start, end, body, version, is_flexible(PRODUCE, version))
    try:
        if version >= 3:
            reader.string("transactional_id", null=True)
        reader.i16("acks")
    except BadBytesError:
        return True
    return body["acks"] != 0


def read_answer(data, row, asked):
    """Read the header of a response whose request is known.

    A broker that does not support the version of an ApiVersions request answers in version 0.
    """
    if asked["kind"] == OPAQUE:
        row["kind"] = OPAQUE
        return
    row |= dict(api_key=asked["api_key"], api_version=asked["api_version"])
    header = Reader(data, row["start"] + 8, row["start"] + row["size"], row)
    try:
        if row["api_key"] == API_VERSIONS:
            if header.left >= 2 and header.number(">h") == UNSUPPORTED_VERSION:
                row["api_version"] = 0
        elif is_flexible(row["api_key"], row["api_version"]):
            row["kind"] = 1
            header.flexible = True
            header.tags()
            row["body"] = header.at - row["start"]
    except BadBytesError as bad:
        row["fault"] = bad.fault
    row["tag_count"] = header.tag_count


def pair(asked, answers):
    """Return pairs (number of the request, number of its response), -1 for a missing message.

    Responses without a request come last.
    """
    answer_of = {row["request"]: i for i, row in enumerate(answers)}
    unasked = [(-1, i) for i, row in enumerate(answers) if row["request"] < 0]
    return [(i, answer_of.get(i, -1)) for i in range(len(asked))] + unasked


# ---- bodies


class Reader(Window):
    """A cursor that reads fields into a row, and arrays of structs into the row's `children`."""

    def __init__(self, data, at, end, row, version=0, flexible=False):
        super().__init__(data, at, end)
        self.row = row
        self.version = version
        self.flexible = flexible
        self.prefix = ""
        self.tag_count = 0

    def uvarint(self):
        """Read an unsigned varint of 32 bits, in at most 5 bytes."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if number >= 1 << 32 or (byte & 0x80 and shift == 28):
                raise BadBytesError(BAD_VARINT)
            if not byte & 0x80:
                return number
        raise AssertionError("not reached: five bytes hold 32 bits")

    def number(self, layout):
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def length(self, layout, *, null):
        """Read a length or count. The result is -1 for null.

        Any negative number is null. The compact form is a varint of the length plus one, and 0 for
        null.
        """
        length = self.uvarint() - 1 if self.flexible else self.number(layout)
        if length < 0 and not null:
            raise BadBytesError(BAD_NULL)
        return max(length, -1)

    def scalar(self, name, layout):
        self.row[self.prefix + name] = self.number(layout)

    def i8(self, name):
        self.scalar(name, ">b")

    def i16(self, name):
        self.scalar(name, ">h")

    def u16(self, name):
        self.scalar(name, ">H")

    def f64(self, name):
        number = self.number(">d")
        # NaN does not equal itself, so the laws compare None.
        self.row[self.prefix + name] = None if number != number else number

    def i32(self, name):
        self.scalar(name, ">i")

    def i64(self, name):
        self.scalar(name, ">q")

    def boolean(self, name):
        self.scalar(name, ">B")

    def string(self, name, null=False):
        self.field(self.row, name, self.length(">h", null=null))

    def bytes(self, name, null=False):
        self.field(self.row, name, self.length(">i", null=null))

    def uuid(self, name):
        self.field(self.row, name, 16)

    def i32s(self, name, null=False):
        self.field(self.row, name, 4 * self.length(">i", null=null))

    def i64s(self, name):
        self.field(self.row, name, 8 * self.length(">i", null=False))

    def inline(self, name, read):
        self.prefix = name + "_"
        read(self, self.version)
        self.prefix = ""

    def optional(self, read):
        """Read a struct that may be null. A negative byte is null."""
        if self.number(">b") >= 0:
            read(self, self.version)

    def structs(self, name, null=False):
        count = self.length(">i", null=null)
        at = self.at
        rows = []
        outer = self.row
        outer["children"][name] = rows
        outer |= {
            f"{name}_at": at - outer["start"],
            f"{name}_size": self.end - at,  # if a struct in the array is bad
            f"{name}_count": min(count, LARGEST_COUNT),
        }
        for _ in range(count):
            self.struct(outer["read"].arrays[name](), rows)
        self.row = outer
        outer[f"{name}_size"] = self.at - at if count >= 0 else -1

    def struct(self, read, rows):
        start = self.at
        end = self.end
        if not self.left:
            rows.append(make_faulty_row(read, dict(start=start, size=0, fault=BAD_COUNT)))
            raise BadBytesError(BAD_COUNT)
        row = make_blank_row(read) | dict(start=start, size=end - start, kind=self.version)
        self.row = row
        rows.append(row)
        try:
            read(self, self.version)
            row["size"] = self.at - start
        except BadBytesError as bad:
            row["fault"] = bad.fault
            raise

    def tags(self, known={}):  # noqa: B006 (never changed)
        """Read the known tagged fields. Skip the others."""
        count = self.uvarint() if self.flexible else 0
        self.tag_count = min(count, LARGEST_COUNT)
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            if size > self.left:
                raise BadBytesError(TRUNCATED)
            end = self.end
            self.end = self.at + size
            if tag in known:
                known[tag]()
            else:
                self.take(size)
            if self.left:
                raise BadBytesError(LEFTOVER)
            self.end = end


def make_blank_row(read):
    """Return a row with the defaults of all fields.

    Until `lay_out` removes them, it also has its function, "read", and the rows of its arrays,
    "children".
    """
    return HEAD | read.columns | dict(read=read, children={})


def to_snake_case(name):
    """Convert a name from camel case: ListOffsets becomes list_offsets."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def list_formats(api, direction):
    """Return {name of a format: function that reads its structs}, the outermost format first."""
    outermost = f"kafka.{to_snake_case(api)}_{direction}"
    read = find_function(outermost)
    arrays = {name_format(outermost, path): inner for path, inner in list_arrays(read)}
    return {outermost: read} | arrays


def find_function(outermost):
    """Return the function that reads a message. outermost: the name of its format."""
    name = outermost.removeprefix("kafka.")
    modules = (kafka_messages, kafka_group_messages, kafka_internal, kafka_metadata)
    (read,) = [getattr(module, name) for module in modules if hasattr(module, name)]
    return read


def list_arrays(read, outer=()):
    """Return [(names of the enclosing arrays and of the array, function of its structs)]."""
    arrays = []
    for array, get_function in read.arrays.items():
        path = (*outer, array)
        arrays += [(path, get_function()), *list_arrays(get_function(), path)]
    return arrays


def name_format(outermost, path):
    """Return the name of the format of an array.

    outermost: the name of the message's format.
    path: the names of the enclosing arrays and of the array.

    Arrays with the same name have the names of their enclosing arrays too.
    """
    arrays = list_arrays(find_function(outermost))
    is_repeated = sum(other[-1] == path[-1] for other, _ in arrays) > 1
    return ".".join((outermost, *(path if is_repeated else path[-1:])))


def read_body(data, row, api, direction, parent=0, levels=None):
    """Return {name of a format: its rows} for the body of one message.

    row: of kafka.requests or kafka.responses.
    levels: the rows of other bodies. The new rows are appended to them.
    """
    versions = range(NEWEST[api] + 1)
    (name, read), *_ = list_formats(api, direction).items()
    top = read_top(data, row, read, row["api_version"], versions, FLEXIBLE[API[api]])
    return add_to_levels(top, name, parent, row["buffer"], levels)


def read_stored(data, row, name, side, parent=0, levels=None):
    """Return the same as `read_body` for the "key" or "value" of a row of kafka.records.

    There are no rows if the key or value is null, or if the key has another type.
    """
    levels = defaultdict(list) if levels is None else levels
    key_version = read_leading_int16(data, row, "key")
    if key_version not in kafka_internal.STORED[name][0] or row[side + "_size"] < 0:
        return levels
    span = dict(
        start=row["start"] + row[side + "_at"],
        size=row[side + "_size"],
        body=2,
        buffer=row["buffer"],
        fault=0,
    )
    versions, flexible = kafka_internal.list_versions(name, side)
    version = read_leading_int16(data, row, side)
    (format_name, read), *_ = list_formats(name, side).items()
    top = read_top(data, span, read, version, versions, flexible)
    return add_to_levels(top, format_name, parent, row["buffer"], levels)


def read_leading_int16(data, row, place):
    """Return the int16 at the beginning of a place of a good row, or -1."""
    if row["fault"] or row[place + "_size"] < 2:
        return -1
    at = row["start"] + row[place + "_at"]
    return int.from_bytes(data[at : at + 2], "big", signed=True)


def read_metadata_record(data, record, is_control, parent):
    """Return the row of kafka.metadata_records for a row of kafka.records, its row `parent`."""
    where = dict(parent=parent, buffer=record["buffer"])
    whole = where | dict(start=record["start"], size=record["size"])
    empty_fault = BAD_NULL if record["value_size"] < 0 else TRUNCATED
    fault = record["fault"] or (not is_control and record["value_size"] <= 0 and empty_fault)
    if fault:
        return dict.fromkeys(METADATA_RECORD, 0) | whole | dict(fault=fault)
    if is_control:
        return METADATA_RECORD | whole
    start = record["start"] + record["value_at"]
    row = METADATA_RECORD | where | dict(start=start, size=record["value_size"])
    reader = Reader(data, start, start + row["size"], row)
    try:
        for column in ("frame_version", "type", "version"):
            number = reader.uvarint()
            if number > kafka_metadata.LARGEST:
                raise BadBytesError(BAD_FIELD)
            row[column] = number
            if column == "frame_version" and number != kafka_metadata.FRAME_VERSION:
                raise BadBytesError(BAD_VERSION)
    except BadBytesError as bad:
        return row | dict(fault=bad.fault)
    row["body"] = row["message_at"] = reader.at - start
    row["message_size"] = reader.left
    return row


def read_metadata_message(data, row, name, parent, levels):
    """Append the rows of the message in a row of kafka.metadata_records to `levels`.

    parent: the number of the row. There are no new rows if the record has another type.
    """
    number, newest = kafka_metadata.TYPES[name]
    if row["frame_version"] == kafka_metadata.FRAME_VERSION and row["type"] == number:
        format_name, read = next(iter(list_formats(name, "record").items()))
        top = read_top(data, row, read, row["version"], range(newest + 1), flexible=0)
        add_to_levels(top, format_name, parent, row["buffer"], levels)


def read_top(data, row, read, version, versions, flexible):
    """Return the row of the outermost struct of a body.

    row: covers the header and the body.
    version: of the body. versions: the known ones. flexible: the first flexible version.
    """
    if row["fault"]:
        return make_faulty_row(read, row)
    top = make_blank_row(read) | dict(start=row["start"], size=row["size"])
    if version not in versions:
        return top | dict(fault=BAD_VERSION)
    top |= dict(body=row["body"], kind=version)
    start = row["start"] + row["body"]
    end = row["start"] + row["size"]
    reader = Reader(data, start, end, top, version, version >= flexible)
    try:
        read(reader, version)
        if reader.left:
            raise BadBytesError(LEFTOVER)
    except BadBytesError as bad:
        top["fault"] = bad.fault
    return top


def add_to_levels(top, name, parent, buffer, levels):
    """Append a body's rows to `levels`, or to new levels. Return the levels."""
    levels = defaultdict(list) if levels is None else levels
    names = {(): name} | {path: name_format(name, path) for path, _ in list_arrays(top["read"])}
    lay_out(top, (), names, parent, buffer, levels)
    return levels


def make_faulty_row(read, row):
    """Return the row of a struct inside a bad row. It covers that row and has its fault."""
    zeros = dict.fromkeys(HEAD | read.columns, 0)
    return zeros | dict(
        start=row["start"], size=row["size"], fault=row["fault"], read=read, children={}
    )


def lay_out(row, path, names, parent, buffer, levels):
    """Append a row, and the rows of its arrays, to the lists of their levels.

    path: the names of the arrays around the row. names: path -> name of the level.
    """
    row |= dict(parent=parent, buffer=buffer)
    read = row.pop("read")
    children = row.pop("children")
    level = names[path]
    number = len(levels[level])
    levels[level].append(row)
    for name, get_function in read.arrays.items():
        is_lost = row["fault"] and not row[f"{name}_at"]
        rows = [make_faulty_row(get_function(), row)] if is_lost else children.get(name, [])
        for child in rows:
            lay_out(child, (*path, name), names, number, buffer, levels)
