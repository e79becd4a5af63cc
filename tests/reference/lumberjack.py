"""Lumberjack frames of versions 1 and 2, decoded one field at a time.

Every frame begins with its version, '1' or '2', and its type. Position and name of the fields:

    W    2 number of events in the window
    A    2 sequence
    J    2 sequence | 6 length | 10 document
    D    2 sequence | 6 number of pairs | 10 pairs: { length | key | length | value }
    C    2 length | 6 zlib stream of frames

All integers are u32, big-endian.

A row is a dict with every column of the format. It comes with the bytes that it points into. A
column that was not read is 0. A bad row that covers the rest of some bytes has kind 0 and body 0.
"""

import zlib

from tests.reference.inflate import limit_payload
from tests.reference.window import BadBytesError, Window

OK, TRUNCATED, BAD_CHECKSUM, BAD_COMPRESSION, TOO_LARGE = 0, 1, 4, 8, 9
LEFTOVER, NESTED, EMPTY = 10, 11, 14
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
FRAME = HEAD | dict(sequence=0, count=0, length=0, version=0, depth=0)
EVENT = HEAD | dict(sequence=0, count=0, window=-1, json_at=0, json_size=-1, version=0, depth=0)
PAIR = HEAD | dict(key_at=0, key_size=0, value_at=0, value_size=0)

LARGEST_FIELD = (1 << 31) - 1  # bytes
MOST_PAIRS = ((1 << 32) - 1 - 10) // 8  # whose lengths fit into a frame of 32 bits
HALF_RANGE = (1 << 31) - 1  # of a sequence number
LARGEST_FRAME = 100 << 20  # bytes: the default of Limits.frame
# The numbers behind the type of a frame.
NUMBERS = {
    "W": ("count",),
    "A": ("sequence",),
    "J": ("sequence", "length"),
    "D": ("sequence", "count"),
    "C": ("length",),
}
RAW_DEFLATE = -15  # value of zlib's `wbits`


def read_frames(data, resync=True):
    """Return (rows of lumberjack.frames, stop fault, stop position).

    resync: the bytes behind a fault become one bad row.
    """
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(read_frame(data, at, LARGEST_FRAME))
        except BadBytesError as bad:
            fault = SHORT if bad.fault == TRUNCATED else bad.fault
            if fault == SHORT or not resync:
                return rows, fault, at
            rows.append(FRAME | dict(start=at, size=len(data) - at, fault=fault))
        at += rows[-1]["size"]
    return rows, OK, at


def read_frame(data, at, longest=1 << 64):
    """Return the row of the frame at `at`.

    Raises BadBytesError, with TRUNCATED where the bytes end before the frame does.
    """
    window = Window(data, at, len(data))

    def read_byte_of(values):
        byte = window.take(1)[0]
        if byte not in values:
            raise BadBytesError(NOT_A_FRAME)
        return byte

    def read_number():
        return int.from_bytes(window.take(4), "big")

    def skip_field(size, needed):
        """Skip a field. `needed` is the smallest size of the rest of the frame, with the field."""
        if size > LARGEST_FIELD or window.at - at + needed > longest:
            raise BadBytesError(BAD_LENGTH)
        window.take(size)

    version = read_byte_of(b"12") - ord("0")
    row = FRAME | dict(start=at, version=version, kind=read_byte_of(b"WADJC"))
    kind = chr(row["kind"])
    for name in NUMBERS[kind]:
        row[name] = read_number()
    row["body"] = window.at - at
    if kind in "JC":
        skip_field(row["length"], needed=row["length"])
    pairs = row["count"] if kind == "D" else 0
    if pairs > MOST_PAIRS:
        raise BadBytesError(BAD_LENGTH)
    for strings_left in range(2 * pairs, 0, -1):
        skip_field(0, needed=4 * strings_left)
        size = read_number()
        skip_field(size, needed=size + 4 * (strings_left - 1))
    row["size"] = window.at - at
    if kind == "J" and not row["length"]:
        row["fault"] = EMPTY
    return row


# ---- compressed frames


def decompress(payload, check=True):
    """Return (decompressed bytes, fault of their end or OK) of a zlib stream (RFC 1950).

    Raises BadBytesError where the stream gives no bytes.
    """
    if len(payload) < 2:
        return b"", TRUNCATED
    method, flags = payload[:2]
    if method & 15 != 8 or method >> 4 > 7 or (method << 8 | flags) % 31 or flags & 32:
        raise BadBytesError(BAD_COMPRESSION)
    most = limit_payload(len(payload))
    decompressor = zlib.decompressobj(RAW_DEFLATE)
    try:
        plain = decompressor.decompress(payload[2:], most + 1)
    except zlib.error:
        raise BadBytesError(BAD_COMPRESSION) from None
    if len(plain) > most:
        raise BadBytesError(TOO_LARGE)
    checksum = decompressor.unused_data[:4]
    rest = decompressor.unused_data[4:]
    if not decompressor.eof or len(checksum) < 4:
        return plain, TRUNCATED
    if check and int.from_bytes(checksum, "big") != zlib.adler32(plain):
        raise BadBytesError(BAD_CHECKSUM)
    return plain, LEFTOVER if rest else OK


def list_plain_frames(data, check=True, depth=1, resync=True):
    """Return pairs (row of FRAME, bytes that it points into) of all frames.

    The frames in a compressed frame take its place. Up to `depth` compressed frames may be nested.
    """
    pairs = []
    rows, _, _ = read_frames(data, resync)
    for parent, row in enumerate(rows):
        row["parent"] = parent
        pairs += expand(row, data, check, depth)
    return pairs


def expand(row, data, check, depth):
    """Return the pairs of a frame, or of the frames in it if it is compressed."""
    if row["kind"] != ord("C") or row["fault"]:
        return [(row, data)]
    if row["depth"] == depth:
        return [(row | dict(fault=NESTED), data)]
    start, end = row["start"] + row["body"], row["start"] + row["size"]
    try:
        inner, end_fault = decompress(data[start:end], check)
    except BadBytesError as bad:
        copied = {name: row[name] for name in ("parent", "buffer", "kind", "version", "depth")}
        return [(FRAME | copied | dict(start=start, size=end - start, fault=bad.fault), data)]
    common = dict(parent=row["parent"], depth=row["depth"] + 1, buffer=1)
    pairs, at = [], 0
    while at < len(inner):
        try:
            inner_row = read_frame(inner, at) | common
        except BadBytesError as bad:
            rest = dict(start=at, size=len(inner) - at, fault=bad.fault)
            return [*pairs, (FRAME | common | rest, inner)]
        pairs += expand(inner_row, inner, check, depth)
        at += inner_row["size"]
    if end_fault:
        pairs.append((FRAME | common | dict(start=at, fault=end_fault), inner))
    return pairs


# ---- events and pairs


def list_events(plain_frames):
    """Return pairs (row of lumberjack.events, bytes) for the result of `list_plain_frames`."""
    rows, window = [], -1
    for row, data in plain_frames:
        is_good = not row["fault"]
        if is_good and row["kind"] == ord("W"):
            window += 1
        if is_good and row["kind"] not in b"DJ":
            continue
        copied = {name: row[name] for name in EVENT if name in row}
        event = EVENT | copied | dict(window=window, count=0)
        if is_good and row["kind"] == ord("J"):
            event |= dict(json_at=10, json_size=row["length"])
        elif is_good:
            event["count"] = row["count"]
        rows.append((event, data))
    return rows


def list_pairs(event, data, parent=0):
    """Return the rows of lumberjack.pairs for one row of lumberjack.events."""
    at = event["start"] + event["body"]
    end = event["start"] + event["size"]
    blank = PAIR | dict(parent=parent, buffer=event["buffer"])
    if event["fault"]:
        return [blank | dict(start=at, size=end - at, fault=event["fault"])]
    rows, window = [], Window(data, at, end)
    for _ in range(event["count"]):
        row = blank | dict(start=window.at)
        window.field(row, "key", window.i32())
        row["body"] = row["key_at"]
        window.field(row, "value", window.i32())
        rows.append(row | dict(size=window.at - row["start"]))
    return rows


def unroll(sequences, windows):
    """Return sequence numbers that do not wrap: each wrap before a number adds 2**32.

    Numbers wrap where they decrease within a window, or by more than half of their range.
    """
    unrolled, wraps = [], 0
    for i, number in enumerate(sequences):
        if i:
            decrease = sequences[i - 1] - number
            is_same_window = windows[i] == windows[i - 1]
            if decrease > HALF_RANGE or decrease > 0 and is_same_window:
                wraps += 1
        unrolled.append(wraps * 2**32 + number)
    return unrolled
