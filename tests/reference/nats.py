"""NATS messages of the client protocol, decoded one line and one word at a time.

    INFO {json}    CONNECT {json}    SUB subject [queue] sid    UNSUB sid [max]    PING    PONG    +OK    -ERR 'text'
    PUB subject [reply] size             MSG subject sid [reply] size                           CRLF payload CRLF
    HPUB subject [reply] headers size    HMSG subject sid [reply] headers size      CRLF headers payload CRLF

A row is a dict with every column of the format. Places are null (size -1) where a message has none; a bad row has only
a kind, and the rest of some bytes not even that: all else is 0.
"""
import re

from reference.window import Bad

OK, TRUNCATED, BAD_MAGIC, BAD_COUNT, BAD_FIELD, BAD_HEADER = 0, 1, 2, 5, 16, 17
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
PLACES = ("subject", "sid", "reply", "queue", "headers", "payload")
BAD = HEAD | {name + end: 0 for name in PLACES for end in ("_at", "_size")} | dict(count=0, status=0, header_count=0)
MESSAGE = BAD | {name + "_size": -1 for name in PLACES}
HEADER = HEAD | dict(key_at=0, key_size=0, value_at=0, value_size=0)

OPERATIONS = b"INFO CONNECT PUB HPUB SUB UNSUB MSG HMSG PING PONG +OK -ERR".split()
# What the words behind the operation are; the one in brackets may be missing.
WORDS = {
    b"PUB": "subject [reply] size", b"HPUB": "subject [reply] header size", b"MSG": "subject sid [reply] size",
    b"HMSG": "subject sid [reply] header size", b"SUB": "subject [queue] sid", b"UNSUB": "sid [max]",
}
LONGEST = 100 << 20             # of a frame: the package's limit
SIZE = re.compile(rb"[0-9]{1,9}")
STATUS = re.compile(rb"NATS/1\.0[ \t]+([0-9]{1,5})(?![0-9])")
LINE = re.compile(rb"([^\n]*?)\r?\n")


def messages(data, resync=True, credentials=False):
    """(rows of nats.messages, stop fault, stop offset). resync: what follows a fault is one bad row."""
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(message(data, at, credentials))
        except Bad as bad:
            if bad.fault == SHORT or not resync:
                return rows, bad.fault, at
            rows.append(BAD | dict(start=at, size=len(data) - at, fault=bad.fault))
        at += rows[-1]["size"]
    return rows, OK, at


def message(data, at, credentials=False):
    """The row of the message at `at`. Raises Bad where its end is not known."""
    newline = data.find(b"\n", at)
    if newline < 0:
        begun = bytes(data[at:]).upper()
        more = any(one.startswith(begun) or re.match(re.escape(one) + rb"([ \t]|\r\Z)", begun) for one in OPERATIONS)
        raise Bad(SHORT if more else NOT_A_FRAME)
    line = bytes(data[at:newline]).removesuffix(b"\r")
    name, *words = [match.span() for match in re.finditer(rb"[^ \t]+", line)] or [(0, 0)]
    operation = line[:name[1]].upper()          # behind a blank none is an operation
    if operation not in OPERATIONS:
        raise Bad(NOT_A_FRAME)
    row = MESSAGE | dict(start=at, size=newline + 1 - at, kind=1 + OPERATIONS.index(operation))
    row["body"] = row["size"]
    if operation in WORDS:
        return with_words(row, data, operation, line, words)
    if operation in (b"INFO", b"-ERR") or operation == b"CONNECT" and credentials:
        begin, end = (words[0][0], words[-1][1]) if words else (len(line), len(line))
        row |= dict(payload_at=begin, payload_size=end - begin, body=begin)
    return row


def with_words(row, data, operation, line, words):
    names = WORDS[operation].split()
    if len(words) == len(names) - 1:
        names = [name for name in names if name[0] != "["]
    publishes = names[-1] == "size"
    if len(words) != len(names):
        if publishes or operation not in (b"SUB", b"UNSUB"):
            raise Bad(NOT_A_FRAME)
        return bad(row, BAD_COUNT)
    found = {name.strip("[]"): span for name, span in zip(names, words)}
    numbers = {}
    for name in ("header", "size", "max"):
        if name in found:
            begin, end = found.pop(name)
            if not SIZE.fullmatch(line[begin:end]):
                if name == "max":
                    return bad(row, BAD_COUNT)
                raise Bad(BAD_LENGTH)
            numbers[name] = int(line[begin:end])
    row["count"] = numbers.get("max", 0)
    for name, (begin, end) in found.items():
        row |= {name + "_at": begin, name + "_size": end - begin}
    return with_payload(row, data, numbers.get("header"), numbers["size"]) if publishes else row


def with_payload(row, data, header, size):
    first = row["size"]
    end = row["start"] + first + size
    row["size"] = first + size + 2
    if row["size"] > LONGEST:
        raise Bad(BAD_LENGTH)
    if end + 2 > len(data):
        raise Bad(SHORT)
    if data[end:end + 2] != b"\r\n":
        raise Bad(BAD_LENGTH)
    if header is not None and header > size:
        return bad(row, BAD_HEADER)
    if header is not None:
        block = bytes(data[row["start"] + first:row["start"] + first + header])
        row |= dict(headers_at=first, headers_size=header) | summary(block)
    begin = first + (header or 0)
    return row | dict(payload_at=begin, payload_size=first + size - begin, body=begin)


def bad(row, fault):
    return BAD | {name: row[name] for name in ("start", "size", "kind")} | dict(fault=fault)


# ------------------------------------------------------------------------------------------- headers

def lines(block):
    """[(begin, end without its CR and LF, end)] of the lines between the first and the empty one at the end."""
    if not block.startswith(b"NATS/1.0"):
        raise Bad(BAD_MAGIC)
    found = [(match.start(), match.end(1), match.end()) for match in LINE.finditer(block)]
    if len(found) < 2 or found[-1][2] < len(block) or block[found[-1][0]:] not in (b"\r\n", b"\n"):
        raise Bad(TRUNCATED)
    return found[1:-1]


def summary(block):
    """What a message says of its headers."""
    try:
        count = len(lines(block))
    except Bad:
        return dict(status=0, header_count=1)           # one bad row
    number = int((STATUS.match(block) or [0, 0])[1])
    return dict(status=number if number <= 0xFFFF else 0, header_count=count)


def headers(row, data, parent=0):
    """The rows of nats.headers of one row of nats.messages."""
    begin, end = row["start"] + row["headers_at"], row["start"] + row["headers_at"] + row["headers_size"]
    if row["fault"]:
        return [HEADER | dict(start=row["start"], size=row["size"], parent=parent, fault=row["fault"])]
    if end < begin:
        return []
    try:
        return [header(data[begin + first:begin + last]) | dict(start=begin + first, size=after - first, parent=parent)
                for first, last, after in lines(bytes(data[begin:end]))]
    except Bad as bad:
        return [HEADER | dict(start=begin, size=end - begin, parent=parent, fault=bad.fault)]


def header(line):
    key, colon, rest = line.partition(b":")
    if not colon or not key:
        return HEADER | dict(fault=BAD_FIELD)
    at = len(key) + 1 + len(rest) - len(rest.lstrip(b" \t"))
    return HEADER | dict(key_size=len(key), value_at=at, value_size=len(rest.strip(b" \t")), body=at)
