"""Lumberjack frames of versions 1 and 2, decoded one field at a time.

    every frame   version ('1' or '2') | type | ...             all integers u32, big-endian
    W, A          2 events of the window, or sequence | 6
    J             2 sequence | 6 length | 10 document
    D             2 sequence | 6 pairs | 10 { length | key | length | value } ...
    C             2 length | 6 zlib stream of frames

A row is a dict with every column of the format; with it comes what it points into. Columns are 0 where nothing was
read, and a bad row that no field stands behind (the rest of some bytes) has kind and body 0.
"""
import zlib

from reference.window import Bad, Window

OK, TRUNCATED, BAD_CHECKSUM, BAD_COMPRESSION, TOO_LARGE, LEFTOVER, NESTED, EMPTY = 0, 1, 4, 8, 9, 10, 11, 14
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
FRAME = HEAD | dict(sequence=0, count=0, length=0, version=0, depth=0)
EVENT = HEAD | dict(sequence=0, count=0, window=-1, json_at=0, json_size=-1, version=0, depth=0)
PAIR = HEAD | dict(key_at=0, key_size=0, value_at=0, value_size=0)

LARGEST_FIELD, MOST_PAIRS = (1 << 31) - 1, ((1 << 32) - 1 - 10) // 8
LONGEST, INFLATED, RATIO, SMALL = 100 << 20, 64 << 20, 2000, 1 << 20        # limits of the package


def frames(data, resync=True):
    """(rows of lumberjack.frames, stop fault, stop offset). resync: what follows a fault is one bad row."""
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(frame(data, at, LONGEST))
        except Bad as bad:
            fault = SHORT if bad.fault == TRUNCATED else bad.fault
            if fault == SHORT or not resync:
                return rows, fault, at
            rows.append(FRAME | dict(start=at, size=len(data) - at, fault=fault))
        at += rows[-1]["size"]
    return rows, OK, at


def frame(data, at, longest=1 << 64):
    """The row of the frame at `at`. Raises Bad: TRUNCATED where the bytes end before it does."""
    window = Window(data, at, len(data))

    def one_of(known):
        byte = window.take(1)[0]
        if byte not in known:
            raise Bad(NOT_A_FRAME)
        return byte

    def number():
        return int.from_bytes(window.take(4), "big")

    def enter(size, field=0):
        """So many bytes follow at the least, those of a field first."""
        if field > LARGEST_FIELD or window.at - at + size > longest:
            raise Bad(BAD_LENGTH)
        window.take(field)

    row = FRAME | dict(start=at, version=one_of(b"12") - ord("0"), kind=one_of(b"WADJC"))
    kind = chr(row["kind"])
    if kind in "JDA":
        row["sequence"] = number()
    if kind in "WD":
        row["count"] = number()
    if kind in "JC":
        row["length"] = number()
    row["body"] = window.at - at
    if kind in "JC":
        enter(row["length"], row["length"])
    pairs = row["count"] if kind == "D" else 0
    if pairs > MOST_PAIRS:
        raise Bad(BAD_LENGTH)
    for strings in range(2 * pairs, 0, -1):
        enter(4 * strings)
        size = number()
        enter(size + 4 * (strings - 1), size)
    row["size"] = window.at - at
    return row | dict(fault=EMPTY) if kind == "J" and not row["length"] else row


# ------------------------------------------------------------------------------------------- what is compressed

def inflate(payload, check=True):
    """(bytes, what is wrong with their end or OK) of a zlib stream (RFC 1950). Raises Bad where it is not opened."""
    if len(payload) < 2:
        return b"", TRUNCATED
    method, flags = payload[:2]
    if method & 15 != 8 or method >> 4 > 7 or (method << 8 | flags) % 31 or flags & 32:
        raise Bad(BAD_COMPRESSION)
    most = max(SMALL, min(INFLATED, RATIO * len(payload)))
    deflated = zlib.decompressobj(-15)
    try:
        plain = deflated.decompress(payload[2:], most + 1)
    except zlib.error:
        raise Bad(BAD_COMPRESSION) from None
    if len(plain) > most:
        raise Bad(TOO_LARGE)
    checksum, rest = deflated.unused_data[:4], deflated.unused_data[4:]
    if not deflated.eof or len(checksum) < 4:
        return plain, TRUNCATED
    if check and int.from_bytes(checksum, "big") != zlib.adler32(plain):
        raise Bad(BAD_CHECKSUM)
    return plain, LEFTOVER if rest else OK


def plain(data, check=True, depth=1, resync=True):
    """[(row of dtype FRAME, bytes that it points into)]: frames with what is in the compressed ones in their place."""
    found = []
    for parent, row in enumerate(frames(data, resync)[0]):
        row["parent"] = parent
        found += opened(row, data, check, depth)
    return found


def opened(row, data, check, depth):
    """A frame, or what is in it: `depth` compressed frames may lie around that."""
    if row["kind"] != ord("C") or row["fault"]:
        return [(row, data)]
    if row["depth"] == depth:
        return [(row | dict(fault=NESTED), data)]
    start, end = row["start"] + row["body"], row["start"] + row["size"]
    try:
        inner, behind = inflate(data[start:end], check)
    except Bad as bad:
        kept = {name: row[name] for name in ("parent", "buffer", "kind", "version", "depth")}
        return [(FRAME | kept | dict(start=start, size=end - start, fault=bad.fault), data)]
    alike = dict(parent=row["parent"], depth=row["depth"] + 1, buffer=1)
    found, at = [], 0
    while at < len(inner):
        try:
            one = frame(inner, at) | alike
        except Bad as bad:
            rest = dict(start=at, size=len(inner) - at, fault=bad.fault)
            return [*found, (FRAME | alike | rest, inner)]
        found += opened(one, inner, check, depth)
        at += one["size"]
    if behind:
        found.append((FRAME | alike | dict(start=at, fault=behind), inner))
    return found


# ------------------------------------------------------------------------------------------- events and pairs

def events(found):
    """[(row of lumberjack.events, bytes)] of what `plain` gave."""
    rows, window = [], -1
    for row, data in found:
        good = not row["fault"]
        window += good and row["kind"] == ord("W")
        if good and row["kind"] not in b"DJ":
            continue
        event = EVENT | {name: row[name] for name in EVENT if name in row} | dict(window=window, count=0)
        if good and row["kind"] == ord("J"):
            event |= dict(json_at=10, json_size=row["length"])
        elif good:
            event["count"] = row["count"]
        rows.append((event, data))
    return rows


def pairs(event, data, parent=0):
    """The rows of lumberjack.pairs of one row of lumberjack.events."""
    at, end = event["start"] + event["body"], event["start"] + event["size"]
    alike = PAIR | dict(parent=parent, buffer=event["buffer"])
    if event["fault"]:
        return [alike | dict(start=at, size=end - at, fault=event["fault"])]
    rows, window = [], Window(data, at, end)
    for _ in range(event["count"]):
        row = alike | dict(start=window.at)
        window.field(row, "key", window.i32())
        row["body"] = row["key_at"]
        window.field(row, "value", window.i32())
        rows.append(row | dict(size=window.at - row["start"]))
    return rows


def unroll(sequences, windows):
    """Sequence numbers with 2**32 counted on for each roll-over before them."""
    found, turns = [], 0
    for i, number in enumerate(sequences):
        if i and number < sequences[i - 1] and (
                windows[i] == windows[i - 1] or sequences[i - 1] - number > LARGEST_FIELD):
            turns += 1
        found.append(turns * 2**32 + number)
    return found
