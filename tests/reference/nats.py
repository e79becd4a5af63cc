"""NATS messages of the client protocol, decoded one line and one word at a time.

    INFO {json}
    CONNECT {json}
    SUB subject [queue] sid
    UNSUB sid [max]
    PING
    PONG
    +OK
    -ERR 'text'
    PUB subject [reply] size                   CRLF payload CRLF
    MSG subject sid [reply] size               CRLF payload CRLF
    HPUB subject [reply] headers size          CRLF headers payload CRLF
    HMSG subject sid [reply] headers size      CRLF headers payload CRLF

A row is a dict with every column of the format. A place that a message does not have is null, with
size -1. In a bad row, all columns but the kind are 0. A row for the rest of some bytes has kind 0
too.
"""

import re

from tests.reference.window import BadBytesError

OK, TRUNCATED, BAD_MAGIC, BAD_COUNT, BAD_FIELD = 0, 1, 2, 5, 16
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
PLACES = ("subject", "sid", "reply", "queue", "headers", "payload")
BAD = (
    HEAD
    | {name + end: 0 for name in PLACES for end in ("_at", "_size")}
    | dict(count=0, status=0, header_count=0)
)
MESSAGE = BAD | {name + "_size": -1 for name in PLACES}
HEADER = HEAD | dict(key_at=0, key_size=0, value_at=0, value_size=0)

OPERATIONS = b"INFO CONNECT PUB HPUB SUB UNSUB MSG HMSG PING PONG +OK -ERR".split()
# The words behind the operation. A word in brackets may be missing.
WORDS = {
    b"PUB": "subject [reply] size",
    b"HPUB": "subject [reply] header size",
    b"MSG": "subject sid [reply] size",
    b"HMSG": "subject sid [reply] header size",
    b"SUB": "subject [queue] sid",
    b"UNSUB": "sid [max]",
}
LARGEST_FRAME = 100 << 20  # bytes: the default of Limits.frame
SIZE = re.compile(rb"[0-9]{1,9}")
STATUS = re.compile(rb"NATS/1\.0[ \t]+([0-9]{1,5})(?![0-9])")
LARGEST_STATUS = 0xFFFF
LINE = re.compile(rb"([^\n]*?)\r?\n")


def read_messages(data, resync=True, credentials=False):
    """Return (rows of nats.messages, stop fault, stop position).

    resync: the bytes behind a fault become one bad row.
    credentials: whether CONNECT has its JSON as payload.
    """
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(read_message(data, at, credentials))
        except BadBytesError as bad:
            if bad.fault == SHORT or not resync:
                return rows, bad.fault, at
            rows.append(BAD | dict(start=at, size=len(data) - at, fault=bad.fault))
        at += rows[-1]["size"]
    return rows, OK, at


def read_message(data, at, credentials=False):
    """Return the row of the message at `at`. Raises BadBytesError if its end is unknown."""
    newline = data.find(b"\n", at)
    if newline < 0:
        raise BadBytesError(SHORT if may_begin_a_message(bytes(data[at:])) else NOT_A_FRAME)
    line = bytes(data[at:newline]).removesuffix(b"\r")
    name, *words = [match.span() for match in re.finditer(rb"[^ \t]+", line)] or [(0, 0)]
    operation = line[: name[1]].upper()  # a line with a leading blank has no operation
    if operation not in OPERATIONS:
        raise BadBytesError(NOT_A_FRAME)
    row = MESSAGE | dict(start=at, size=newline + 1 - at, kind=1 + OPERATIONS.index(operation))
    row["body"] = row["size"]
    if operation in WORDS:
        return add_words(row, data, operation, line, words)
    if operation in (b"INFO", b"-ERR") or operation == b"CONNECT" and credentials:
        begin, end = (words[0][0], words[-1][1]) if words else (len(line), len(line))
        row |= dict(payload_at=begin, payload_size=end - begin, body=begin)
    return row


def may_begin_a_message(data):
    """May these bytes, which have no newline, begin a message?"""
    line = data.upper()
    return any(
        operation.startswith(line) or re.match(re.escape(operation) + rb"([ \t]|\r\Z)", line)
        for operation in OPERATIONS
    )


def add_words(row, data, operation, line, words):
    """Return the row of a message whose words have names."""
    names = WORDS[operation].split()
    if len(words) == len(names) - 1:
        names = [name for name in names if name[0] != "["]
    has_payload = names[-1] == "size"
    if len(words) != len(names):
        if has_payload or operation not in (b"SUB", b"UNSUB"):
            raise BadBytesError(NOT_A_FRAME)
        return make_bad_row(row, BAD_COUNT)
    spans = {name.strip("[]"): span for name, span in zip(names, words)}
    numbers = {}
    for name in ("header", "size", "max"):
        if name in spans:
            begin, end = spans.pop(name)
            if not SIZE.fullmatch(line[begin:end]):
                if name == "max":
                    return make_bad_row(row, BAD_COUNT)
                raise BadBytesError(BAD_LENGTH)
            numbers[name] = int(line[begin:end])
    row["count"] = numbers.get("max", 0)
    if numbers.get("header", 0) > numbers.get("size", 0):
        raise BadBytesError(BAD_LENGTH)
    for name, (begin, end) in spans.items():
        row |= {name + "_at": begin, name + "_size": end - begin}
    if has_payload:
        return add_payload(row, data, numbers.get("header"), numbers["size"])
    return row


def add_payload(row, data, headers_size, size):
    """Return the row of a message with a payload.

    headers_size: None if the message has no headers. size: of the headers and the payload.
    """
    first = row["size"]
    end = row["start"] + first + size
    row["size"] = first + size + 2
    if row["size"] > LARGEST_FRAME:
        raise BadBytesError(BAD_LENGTH)
    if end + 2 > len(data):
        raise BadBytesError(SHORT)
    if data[end : end + 2] != b"\r\n":
        raise BadBytesError(BAD_LENGTH)
    if headers_size is not None:
        begin = row["start"] + first
        block = bytes(data[begin : begin + headers_size])
        row |= dict(headers_at=first, headers_size=headers_size) | make_header_columns(block)
    payload_at = first + (headers_size or 0)
    return row | dict(
        payload_at=payload_at, payload_size=first + size - payload_at, body=payload_at
    )


def make_bad_row(row, fault):
    return BAD | {name: row[name] for name in ("start", "size", "kind")} | dict(fault=fault)


# ---- headers


def split_lines(block):
    """Return the lines between the first line and the empty line at the end.

    A line is (begin, end without its CR and LF, end).
    """
    if not block.startswith(b"NATS/1.0"):
        raise BadBytesError(BAD_MAGIC)
    spans = [(match.start(), match.end(1), match.end()) for match in LINE.finditer(block)]
    if len(spans) < 2:
        raise BadBytesError(TRUNCATED)
    last_begin, _, last_end = spans[-1]
    if last_end < len(block) or block[last_begin:] not in (b"\r\n", b"\n"):
        raise BadBytesError(TRUNCATED)
    return spans[1:-1]


def make_header_columns(block):
    """Return the columns of a message that describe its headers."""
    try:
        count = len(split_lines(block))
    except BadBytesError:
        return dict(status=0, header_count=1)  # one bad row
    match = STATUS.match(block)
    status = int(match[1]) if match else 0
    return dict(status=status if status <= LARGEST_STATUS else 0, header_count=count)


def read_headers(row, data, parent=0):
    """Return the rows of nats.headers for one row of nats.messages."""
    begin = row["start"] + row["headers_at"]
    end = begin + row["headers_size"]
    if row["fault"]:
        copied = {name: row[name] for name in ("start", "size", "fault")}
        return [HEADER | copied | dict(parent=parent)]
    if end < begin:
        return []
    try:
        spans = split_lines(bytes(data[begin:end]))
    except BadBytesError as bad:
        return [HEADER | dict(start=begin, size=end - begin, parent=parent, fault=bad.fault)]
    return [
        read_header(data[begin + first : begin + last])
        | dict(start=begin + first, size=after - first, parent=parent)
        for first, last, after in spans
    ]


def read_header(line):
    """Return the row of one header line, without its place in the data."""
    key, colon, rest = line.partition(b":")
    if not colon or not key:
        return HEADER | dict(fault=BAD_FIELD)
    value = rest.strip(b" \t")
    value_at = len(key) + 1 + len(rest) - len(rest.lstrip(b" \t"))
    return HEADER | dict(key_size=len(key), value_at=value_at, value_size=len(value), body=value_at)
